/*
 * Stream objects of HTTP/1.1: birth, incoming data and its credit, reset, detach, death.
 *
 * Happy path: new -> head, data, end -> the outgoing side's mark fires -> released by the
 * connection -> detached by the owner
 * -> graveyard. Failure modes: the connection dies first (on_reset, orphan); the owner detaches
 * first (what it left unsaid on the wire decides whether the connection can go on).
 */
#include "proxy/base/check.h"
#include "proxy/net/h1_private.h"

static void
on_bury(struct grave *grave)
{
    struct h1_stream *exchange = container_of(grave, struct h1_stream, grave);
    slices_fini(&exchange->stream.out);
    strbuf_fini(&exchange->trailers);
    slab_free(&exchange->ctx->slab, exchange);
}

static void
on_flushed(struct conn_mark *mark, uint64_t now_ns, bool blocked)
{
    struct stream *stream = container_of(mark, struct stream, mark);
    struct h1_stream *exchange = (struct h1_stream *)stream;
    exchange->flushed = true;
    if (blocked)
        stream->stalled_ns += now_ns - exchange->marked_ns;
    if (stream->events)
        stream->events->on_flushed(stream, now_ns, stream->stalled_ns);
    h1_stream_release(exchange);
}

struct h1_stream *
h1_stream_new(struct h1 *h1)
{
    struct h1_stream *exchange = slab_zalloc(&h1->ctx->slab, sizeof *exchange);
    exchange->ctx = h1->ctx;
    exchange->h1 = h1;
    exchange->stream.transport = STREAM_H1;
    exchange->stream.connection = h1;
    exchange->stream.id = ++h1->exchanges;
    exchange->stream.mark.on_flushed = on_flushed;
    list_init(&exchange->stream.mark.node);
    list_init(&exchange->grave.node);
    slices_init(&exchange->stream.out);
    list_push_back(&h1->streams, &exchange->node);
    h1->stream = exchange;
    return exchange;
}

/* From here on the connection knows it no more. */
static void
let_go(struct h1_stream *exchange)
{
    struct h1 *h1 = exchange->h1;
    list_unlink(&exchange->node);
    list_unlink(&exchange->stream.mark.node);
    slices_clear(&exchange->stream.out);
    if (h1->stream == exchange)
        h1->stream = NULL;
    exchange->h1 = NULL;
    exchange->stream.connection = NULL;
    if (h1->events->on_stream_closed)
        h1->events->on_stream_closed(h1, &exchange->stream);
    if (!exchange->stream.events)
        ctx_bury(exchange->ctx, &exchange->grave, on_bury);
}

void
h1_stream_lose(struct h1_stream *exchange, uint32_t error)
{
    struct stream *stream = &exchange->stream;
    bool complete =
        stream->in_end && stream->out_closed && (exchange->flushed || !exchange->h1->server);
    if (stream->events && !complete && !exchange->told) {
        exchange->told = true;
        stream->events->on_reset(stream, error);
    }
    let_go(exchange);
}

void
h1_stream_release(struct h1_stream *exchange)
{
    if (exchange->h1 && exchange->h1->stream != exchange && exchange->flushed)
        let_go(exchange);
}

void
h1_stream_data(struct h1_stream *exchange, const uint8_t *data, size_t len)
{
    struct stream *stream = &exchange->stream;
    if (!stream->events)
        return; /* dropped, and credited by not being counted */
    stream->uncredited += len;
    if (stream->uncredited >= H1_WINDOW)
        conn_stop_read(exchange->h1->conn);
    stream->events->on_data(stream, data, len);
}

void
h1_stream_end(struct h1_stream *exchange)
{
    struct stream *stream = &exchange->stream;
    const struct fields *trailers = &exchange->h1->reader.trailers;
    stream->in_end = true;
    if (!stream->events || exchange->head_ended)
        return;
    if (trailers->count > 0 && stream->trailer_fields)
        h1_copy_fields(stream->trailer_fields, trailers);
    stream->events->on_end(stream, trailers->count > 0 ? stream->trailer_fields : NULL);
}

void
h1_credit(struct stream *stream, uint64_t bytes)
{
    struct h1_stream *exchange = (struct h1_stream *)stream;
    check(bytes <= stream->uncredited);
    stream->uncredited -= bytes;
    if (exchange->h1 && stream->uncredited < H1_WINDOW / 2)
        h1_read_on(exchange->h1);
}

void
h1_reset(struct stream *stream, uint32_t h2_error)
{
    struct h1_stream *exchange = (struct h1_stream *)stream;
    (void)h2_error; /* HTTP/1.1 has no word for it */
    bool complete = (stream->in_end || exchange->head_ended) && stream->out_closed;
    stream->events = NULL;
    if (exchange->h1 && exchange->h1->stream == exchange && !complete)
        h1_go_down_later(exchange->h1, UV_ECANCELED, "exchange reset");
    h1_detach(stream);
}

void
h1_detach(struct stream *stream)
{
    struct h1_stream *exchange = (struct h1_stream *)stream;
    stream->events = NULL;
    stream->owner = NULL;
    stream->fields = stream->trailer_fields = NULL;
    if (!exchange->h1) {
        if (!list_linked(&exchange->grave.node))
            ctx_bury(exchange->ctx, &exchange->grave, on_bury);
        return;
    }
    if (stream->uncredited > 0)
        h1_credit(stream, stream->uncredited);
    if (exchange->h1->stream == exchange && !stream->out_end)
        h1_go_down_later(exchange->h1, UV_ECANCELED, "message left incomplete");
}
