/*
 * Stream objects from birth to death: requests, credit, reset, detach, and what nghttp2's close of
 * a stream means.
 *
 * A stream object lives until nghttp2 has closed the stream (ng_open), its owner has detached
 * (events NULL) and its last byte is with the kernel or nobody asks (marked); then it goes to the
 * graveyard. When the connection is freed before the owner has detached, the object stays as an
 * orphan (connection NULL) for which every verb is a no-op, until detach.
 */
#include "proxy/net/h2_private.h"

static void
on_bury(struct grave *grave)
{
    struct h2_stream *hs = container_of(grave, struct h2_stream, grave);
    slices_fini(&hs->stream.out);
    slab_free(&hs->ctx->slab, hs);
}

void
h2_stream_release(struct h2_stream *hs)
{
    if (hs->ng_open || hs->marked || hs->stream.events || hs->dying)
        return;
    hs->dying = true;
    struct h2 *h2 = h2_of(hs);
    if (h2 && h2->events->on_stream_closed)
        h2->events->on_stream_closed(h2, &hs->stream);
    list_unlink(&hs->node);
    ctx_bury(hs->ctx, &hs->grave, on_bury);
}

/* The exchange broke: the owner's last event. */
static void
tell_reset(struct h2_stream *hs, uint32_t error)
{
    if (hs->told || !hs->stream.events)
        return;
    hs->told = true;
    hs->stream.events->on_reset(&hs->stream, error);
}

static void
on_mark_flushed(struct conn_mark *mark, uint64_t now_ns, bool blocked)
{
    struct stream *stream = container_of(mark, struct stream, mark);
    struct h2_stream *hs = h2_stream_of(stream);
    if (blocked)
        stream->stalled_ns += now_ns - hs->marked_ns;
    if (stream->events && stream->events->on_flushed)
        stream->events->on_flushed(stream, now_ns, stream->stalled_ns);
    hs->marked = false;
    if (!hs->ng_open && !stream->in_end) /* for an owner who reads on behind its reply */
        tell_reset(hs, NGHTTP2_NO_ERROR);
    h2_stream_release(hs);
}

struct h2_stream *
h2_stream_new(struct h2 *h2)
{
    struct h2_stream *hs = slab_zalloc(&h2->ctx->slab, sizeof *hs);
    hs->stream.transport = STREAM_H2;
    hs->stream.connection = h2;
    hs->stream.mark.on_flushed = on_mark_flushed;
    hs->ctx = h2->ctx;
    hs->ng_open = true;
    slices_init(&hs->stream.out);
    list_init(&hs->stream.mark.node);
    list_init(&hs->pending);
    list_init(&hs->grave.node);
    list_push_back(&h2->streams, &hs->node);
    h2->open_streams++;
    return hs;
}

/* The peer reset it. What it had already said completely stands: RFC 9113 section 8.1. */
static void
peer_reset(struct h2 *h2, struct h2_stream *hs, uint32_t h2_error)
{
    const struct stream *stream = &hs->stream;
    if (!h2->server && stream->in_end)
        return;
    if (h2->server && stream->out_closed && h2_error == NGHTTP2_NO_ERROR && hs->marked)
        return; /* on_flushed is still to come */
    bool refused = !h2->server && h2_error == NGHTTP2_REFUSED_STREAM;
    tell_reset(hs, refused ? (uint32_t)STREAM_NOT_PROCESSED : h2_error);
}

/* nghttp2 closed it and the peer did not ask for that. */
static void
broken(struct h2 *h2, struct h2_stream *hs, uint32_t h2_error)
{
    if (hs->unsendable) {
        tell_reset(hs, STREAM_UNSENDABLE);
    } else if (h2_error ==
               NGHTTP2_REFUSED_STREAM) { /* a GOAWAY below its id, or a request that never left */
        tell_reset(hs, h2->server ? (uint32_t)STREAM_LOST : (uint32_t)STREAM_NOT_PROCESSED);
    } else {
        tell_reset(hs, STREAM_MALFORMED);
        h2_limits_fault(h2);
    }
}

void
h2_stream_closed(struct h2_stream *hs, uint32_t h2_error)
{
    struct h2 *h2 = h2_of(hs);
    bool complete = hs->stream.in_end && hs->stream.out_closed;
    h2->open_streams--;
    if (hs->peer_reset)
        peer_reset(h2, hs, h2_error);
    else if (!complete && !hs->own_reset)
        broken(h2, hs, h2_error);
    h2_stream_unfind(hs);
    if (h2->private->block_stream == hs)
        h2->private->block_stream = NULL;
    h2_send_forget(hs);
    h2_stream_release(hs);
    if (h2->draining && !h2->server && h2->open_streams == 0)
        h2_end(h2, 0, "drained");
}

struct stream *
h2_request(struct h2 *h2, const struct fields *fields, bool end, const struct stream_events *events,
           void *owner, struct fields *reply_fields, struct fields *reply_trailers)
{
    if (h2_capacity(h2) == 0)
        return NULL;
    struct h2_stream *hs = h2_stream_new(h2);
    struct stream *stream = &hs->stream;
    stream->events = events;
    stream->owner = owner;
    stream->fields = reply_fields;
    stream->trailer_fields = reply_trailers;
    int32_t id = h2_send_request(hs, fields, end);
    if (id < 0) {
        h2->open_streams--;
        list_unlink(&hs->node);
        slab_free(&hs->ctx->slab, hs); /* nobody has seen it */
        return NULL;
    }
    stream->id = id;
    return stream;
}

static void
credit(struct h2_stream *hs, uint64_t bytes)
{
    struct stream *stream = &hs->stream;
    struct h2 *h2 = h2_of(hs);
    if (bytes > stream->uncredited)
        bytes = stream->uncredited;
    stream->uncredited -= bytes;
    if (bytes == 0 || !h2 || h2->down || !hs->ng_open || hs->last_data || stream->in_end ||
        hs->own_reset)
        return; /* nothing comes any more that would need it */
    nghttp2_session_consume_stream(h2->session, stream->id, bytes);
    h2_wake(h2);
}

void
h2_credit(struct stream *stream, uint64_t bytes)
{
    credit(h2_stream_of(stream), bytes);
}

void
h2_detach(struct stream *stream)
{
    struct h2_stream *hs = h2_stream_of(stream);
    stream->events = NULL;
    stream->owner = NULL;
    stream->fields = stream->trailer_fields = NULL;
    credit(hs, stream->uncredited);
    if (hs->marked) {
        list_unlink(&stream->mark.node);
        hs->marked = false;
    }
    h2_stream_release(hs);
}

static void
submit_reset(struct h2_stream *hs, uint32_t h2_error)
{
    struct h2 *h2 = h2_of(hs);
    hs->own_reset = true;
    h2_send_forget(hs);
    nghttp2_submit_rst_stream(h2->session, NGHTTP2_FLAG_NONE, hs->stream.id, h2_error);
    h2_wake(h2);
}

/* Without a reset left to spend, the request is ended where it is and the reply is dropped as it
 * comes. Where a length was promised that cannot be: dubbo-java answers a wrong one with GOAWAY,
 * which is worse than one reset more. */
static bool
drained_instead(struct h2_stream *hs)
{
    struct stream *stream = &hs->stream;
    if (h2_of(hs)->server || !hs->head_queued || h2_limits_may_reset(h2_of(hs)))
        return false;
    if (hs->has_length && !stream->out_end)
        return false;
    if (!stream->out_end) {
        struct slices none;
        slices_init(&none);
        h2_send_data(stream, &none, true);
    }
    return true;
}

void
h2_reset(struct stream *stream, uint32_t h2_error)
{
    struct h2_stream *hs = h2_stream_of(stream);
    struct h2 *h2 = h2_of(hs);
    bool complete = stream->in_end && stream->out_closed;
    if (h2 && !h2->down && hs->ng_open && !complete && !hs->own_reset) {
        /* A reset overtakes DATA in nghttp2: a server's "send no more" waits for the end of its own
         * reply. */
        if (h2->server && h2_error == NGHTTP2_NO_ERROR && stream->out_end && !stream->out_closed)
            hs->reset_after_end = true;
        else if (!drained_instead(hs))
            submit_reset(hs, h2_error);
    }
    h2_detach(stream);
}

void
h2_stream_fail(struct h2_stream *hs, uint32_t h2_error, uint32_t error)
{
    if (hs->own_reset)
        return;
    if (error == STREAM_MALFORMED)
        h2_limits_fault(h2_of(hs));
    submit_reset(hs, h2_error);
    tell_reset(hs, error);
}

/* Whether no complete head of this request can be with the peer. What a full socket was offered may
 * be there in part. */
static bool
never_written(const struct h2_stream *hs)
{
    const struct conn *conn = h2_of(hs)->conn;
    uint64_t offered =
        conn->out.taken > conn->blocked_until ? conn->out.taken : conn->blocked_until;
    return hs->head_end > offered;
}

static void
lose(struct h2 *h2, struct h2_stream *hs, bool lost)
{
    const struct stream *stream = &hs->stream;
    bool unprocessed = !h2->server && (!hs->head_queued || (lost && never_written(hs)));
    /* A reply that is complete stands; ours does once the kernel has it, which it may still get. */
    bool silent = stream->in_end && (!h2->server || (stream->out_closed && (!hs->marked || !lost)));
    if (hs->marked && (lost || !silent)) {
        list_unlink(&hs->stream.mark.node);
        hs->marked = false;
    }
    if (hs->ng_open) {
        h2_stream_unfind(hs);
        h2->open_streams--;
    }
    h2_send_forget(hs);
    if (!silent)
        tell_reset(hs, unprocessed ? STREAM_NOT_PROCESSED : STREAM_LOST);
    h2_stream_release(hs);
}

void
h2_stream_lose_all(struct h2 *h2, bool lost)
{
    struct list todo;
    list_init(&todo);
    list_splice(&todo, &h2->streams);
    while (!list_empty(&todo)) {
        struct h2_stream *hs = list_first(&todo, struct h2_stream, node);
        list_unlink(&hs->node);
        list_push_back(&h2->streams, &hs->node);
        lose(h2, hs, lost);
    }
}

void
h2_stream_abandon_all(struct h2 *h2)
{
    h2_stream_lose_all(h2, true);
    while (!list_empty(&h2->streams)) { /* their owners have not detached yet */
        struct h2_stream *hs = list_first(&h2->streams, struct h2_stream, node);
        if (h2->events->on_stream_closed)
            h2->events->on_stream_closed(h2, &hs->stream);
        hs->stream.connection = NULL;
        list_unlink(&hs->node);
    }
}
