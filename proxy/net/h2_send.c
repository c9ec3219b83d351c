/*
 * What goes out: heads, data and trailers into nghttp2, and from nghttp2 into the connection's
 * write queue.
 *
 * Happy path: h2_send_* submit or append to stream->out and mark the connection dirty; at the end
 * of the turn fill() calls mem_send until nothing is left or the queue is full. nghttp2 asks for
 * DATA with on_ng_data_read, which gives no bytes but their number (NO_COPY); on_ng_send_data then
 * moves chunk references behind a frame head. The frame with END_STREAM leaves a mark in the queue,
 * so that on_flushed comes when the kernel has it.
 *
 * nghttp2 sends HEADERS before any DATA, so trailers are submitted when the last byte before them
 * has been taken, from within on_ng_data_read (its DATA frame is already on its way then), or at
 * once when nothing waits. An empty DATA frame that would only end the data before trailers is
 * swallowed: its head is never queued. Failure modes: a header block that is too long
 * (on_ng_frame_not_send) ends the stream with STREAM_UNSENDABLE.
 */
#include "proxy/net/h2_private.h"

#include "proxy/base/check.h"

/* --- header blocks --- */

/* By enum field_flag: text that outlives every frame is not copied. */
enum {
    KEEP_NAME = NGHTTP2_NV_FLAG_NO_COPY_NAME,
    KEEP_BOTH = KEEP_NAME | NGHTTP2_NV_FLAG_NO_COPY_VALUE,
    NO_INDEX = NGHTTP2_NV_FLAG_NO_INDEX,
    FIELD_FLAGS = 8,
};
static const uint8_t nv_flags[FIELD_FLAGS] = {
    [FIELD_STATIC] = KEEP_BOTH,
    [FIELD_NO_INDEX] = NO_INDEX,
    [FIELD_STATIC | FIELD_NO_INDEX] = KEEP_BOTH | NO_INDEX,
    [FIELD_STATIC_NAME] = KEEP_NAME,
    [FIELD_STATIC_NAME | FIELD_STATIC] = KEEP_BOTH,
    [FIELD_STATIC_NAME | FIELD_NO_INDEX] = KEEP_NAME | NO_INDEX,
    [FIELD_STATIC_NAME | FIELD_STATIC | FIELD_NO_INDEX] = KEEP_BOTH | NO_INDEX,
};

static nghttp2_nv *
make_nvs(const struct h2 *h2, const struct fields *fields, nghttp2_nv *space)
{
    nghttp2_nv *nvs =
        fields->count <= H2_NV_INLINE ? space : mem_alloc(fields->count * sizeof *nvs);
    /* A frame that has to wait may outlive the snapshot that its text is in. */
    uint8_t allowed = conn_full(h2->conn) ? NO_INDEX : NO_INDEX | KEEP_BOTH;
    nghttp2_nv *nv = nvs;
    fields_for_each (field, fields) {
        nv->name = (uint8_t *)field->name.ptr;
        nv->value = (uint8_t *)field->value.ptr;
        nv->namelen = field->name.len;
        nv->valuelen = field->value.len;
        nv->flags = nv_flags[field->flags % FIELD_FLAGS] & allowed;
        nv++;
    }
    return nvs;
}

static void
free_nvs(nghttp2_nv *nvs, nghttp2_nv *space)
{
    if (nvs != space)
        mem_free(nvs);
}

static void
submit_trailers(struct h2_stream *hs)
{
    struct h2 *h2 = h2_of(hs);
    nghttp2_nv space[H2_NV_INLINE], *nvs = make_nvs(h2, &hs->trailers, space);
    nghttp2_submit_trailer(h2->session, hs->stream.id, nvs, hs->trailers.count);
    free_nvs(nvs, space);
    hs->trailers_submitted = true;
}

/* --- waiting output --- */

static void
free_trailers(struct h2_stream *hs)
{
    hs->has_trailers = false;
    hs->stream.out_trailers = NULL;
    if (!hs->trailer_arena)
        return;
    arena_fini(hs->trailer_arena);
    mem_free(hs->trailer_arena);
    hs->trailer_arena = NULL;
}

/* They have to wait longer than their owner's text is good for. */
static void
copy_trailers(struct h2_stream *hs)
{
    if (!hs->has_trailers || hs->trailer_arena)
        return;
    struct fields from = hs->trailers;
    hs->trailer_arena = mem_new(struct arena);
    arena_init(hs->trailer_arena, NULL, 0);
    fields_init(&hs->trailers, hs->trailer_arena);
    fields_for_each (field, &from)
        fields_add_copy(&hs->trailers, field->name, field->value, field->flags & FIELD_NO_INDEX);
}

static bool
output_waits(const struct h2_stream *hs)
{
    return hs->stream.out.bytes > 0 || (hs->stream.out_end && !hs->stream.out_closed);
}

static void
begin_stall(struct h2_stream *hs)
{
    if (!hs->stream.stalled_since_ns)
        hs->stream.stalled_since_ns = hs->ctx->turn_ns;
    copy_trailers(hs);
}

static void
end_stall(struct h2_stream *hs)
{
    if (!hs->stream.stalled_since_ns)
        return;
    hs->stream.stalled_ns += hs->ctx->turn_ns - hs->stream.stalled_since_ns;
    hs->stream.stalled_since_ns = 0;
}

/* Output was added: what has not left when the next fill() is over waits for the peer's window or
 * the socket. */
static void
output_added(struct h2_stream *hs)
{
    struct h2 *h2 = h2_of(hs);
    if (conn_full(h2->conn) || hs->stream.stalled_since_ns)
        begin_stall(hs);
    else if (!list_linked(&hs->pending))
        list_push_back(&h2->private->pending, &hs->pending);
    conn_dirty(h2->conn);
}

static void
settle_pending(struct h2 *h2)
{
    struct list *pending = &h2->private->pending;
    while (!list_empty(pending)) {
        struct h2_stream *hs = list_first(pending, struct h2_stream, pending);
        list_unlink(&hs->pending);
        if (output_waits(hs))
            begin_stall(hs);
    }
}

void
h2_send_forget(struct h2_stream *hs)
{
    list_unlink(&hs->pending);
    slices_clear(&hs->stream.out);
    free_trailers(hs);
}

void
h2_send_resume(struct h2_stream *hs)
{
    if (!hs->deferred)
        return;
    hs->deferred = false;
    nghttp2_session_resume_data(h2_of(hs)->session, hs->stream.id);
}

/* --- the verbs --- */

static bool
closed(const struct h2_stream *hs)
{
    return !h2_of(hs) || h2_of(hs)->down || !hs->ng_open || hs->own_reset || hs->stream.out_end;
}

static ssize_t on_ng_data_read(nghttp2_session *session, int32_t id, uint8_t *buffer, size_t len,
                               uint32_t *flags, nghttp2_data_source *source, void *user_data);

int32_t
h2_send_request(struct h2_stream *hs, const struct fields *fields, bool end)
{
    struct h2 *h2 = h2_of(hs);
    nghttp2_data_provider body = {.source.ptr = hs, .read_callback = on_ng_data_read};
    nghttp2_nv space[H2_NV_INLINE], *nvs = make_nvs(h2, fields, space);
    int32_t id =
        nghttp2_submit_request(h2->session, NULL, nvs, fields->count, end ? NULL : &body, hs);
    free_nvs(nvs, space);
    if (id < 0)
        return id;
    hs->has_length = !end && fields_find(fields, TEXT("content-length"));
    hs->stream.out_end = end;
    output_added(hs);
    return id;
}

int
h2_send_head(struct stream *stream, const struct fields *fields, bool end)
{
    struct h2_stream *hs = h2_stream_of(stream);
    if (closed(hs))
        return -EPIPE;
    struct h2 *h2 = h2_of(hs);
    check(h2->server);
    nghttp2_data_provider body = {.source.ptr = hs, .read_callback = on_ng_data_read};
    nghttp2_nv space[H2_NV_INLINE], *nvs = make_nvs(h2, fields, space);
    int error =
        nghttp2_submit_response(h2->session, stream->id, nvs, fields->count, end ? NULL : &body);
    free_nvs(nvs, space);
    if (error)
        return -EPIPE;
    stream->out_end = end;
    output_added(hs);
    return 0;
}

void
h2_send_data(struct stream *stream, struct slices *body, bool end)
{
    struct h2_stream *hs = h2_stream_of(stream);
    if (closed(hs)) {
        slices_clear(body);
        return;
    }
    slices_move(&stream->out, body, body->bytes);
    stream->out_end = end;
    h2_send_resume(hs);
    output_added(hs);
}

void
h2_send_trailers(struct stream *stream, const struct fields *trailers)
{
    struct h2_stream *hs = h2_stream_of(stream);
    if (closed(hs))
        return;
    hs->trailers = *trailers;
    stream->out_end = true;
    if (stream->out.bytes == 0 && (h2_of(hs)->server || hs->head_queued)) {
        submit_trailers(hs); /* not held up by the peer's window, as DATA would be */
    } else {
        hs->has_trailers = true;
        stream->out_trailers = &hs->trailers;
        h2_send_resume(hs);
    }
    output_added(hs);
}

/* --- nghttp2's callbacks --- */

static ssize_t
on_ng_data_read(nghttp2_session *session, int32_t id, uint8_t *buffer, size_t len, uint32_t *flags,
                nghttp2_data_source *source, void *user_data)
{
    struct h2_stream *hs = source->ptr;
    struct stream *stream = &hs->stream;
    (void)session, (void)id, (void)buffer, (void)user_data;
    *h2_found_slot(h2_of(hs)->private, stream->id) = hs; /* on_ng_frame_send follows */
    if (stream->out.bytes == 0 && (!stream->out_end || hs->trailers_submitted)) {
        hs->deferred = true;
        return NGHTTP2_ERR_DEFERRED;
    }
    *flags |= NGHTTP2_DATA_FLAG_NO_COPY;
    size_t bytes = stream->out.bytes < len ? (size_t)stream->out.bytes : len;
    if (stream->out_end && bytes == stream->out.bytes) {
        *flags |= NGHTTP2_DATA_FLAG_EOF;
        if (hs->has_trailers) {
            *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
            submit_trailers(hs);
        }
    }
    return (ssize_t)bytes;
}

static int
on_ng_send_data(nghttp2_session *session, nghttp2_frame *frame, const uint8_t *frame_head,
                size_t len, nghttp2_data_source *source, void *user_data)
{
    struct h2 *h2 = user_data;
    struct h2_stream *hs = source->ptr;
    struct stream *stream = &hs->stream;
    (void)session;
    if (len == 0 && !(frame->hd.flags & NGHTTP2_FLAG_END_STREAM))
        return 0;
    conn_queue(h2->conn, frame_head, H2_FRAME_HEAD);
    if (len > 0)
        conn_queue_slices(h2->conn, &stream->out, len);
    if (stream->out.bytes == 0)
        end_stall(hs);
    if (len > 0 && stream->events && stream->events->on_sent)
        stream->events->on_sent(stream, len);
    h2->private->paused = conn_full(h2->conn);
    return h2->private->paused ? NGHTTP2_ERR_PAUSE : 0;
}

/* Large bodies in larger frames where the peer takes them. */
static ssize_t
on_ng_read_length(nghttp2_session *session, uint8_t type, int32_t id, int32_t session_window,
                  int32_t stream_window, uint32_t max_frame, void *user_data)
{
    (void)session, (void)type, (void)session_window, (void)stream_window;
    if (max_frame <= H2_DATA_FRAME)
        return H2_DATA_FRAME;
    struct h2_stream *hs = h2_stream_find(user_data, id);
    uint64_t bytes = hs ? hs->stream.out.bytes : 0;
    if (bytes <= H2_DATA_FRAME)
        return H2_DATA_FRAME;
    uint64_t most = max_frame < H2_MAX_DATA_FRAME ? max_frame : H2_MAX_DATA_FRAME;
    return (ssize_t)(bytes < most ? bytes : most);
}

static void
set_mark(struct h2_stream *hs)
{
    if (!hs->stream.events)
        return;
    hs->marked = true;
    hs->marked_ns = hs->ctx->turn_ns;
    conn_mark(h2_of(hs)->conn, &hs->stream.mark);
}

/* The frame with END_STREAM has been taken. DATA is in the queue; HEADERS will be when mem_send has
 * returned them. */
static void
outgoing_ended(struct h2 *h2, struct h2_stream *hs, bool queued)
{
    hs->stream.out_closed = true;
    list_unlink(&hs->pending);
    end_stall(hs);
    free_trailers(hs);
    if (queued)
        set_mark(hs);
    else if (hs->stream.events) {
        hs->marked = true; /* stay until then */
        h2->private->to_mark = hs;
    }
    if (hs->reset_after_end && !hs->stream.in_end) {
        hs->own_reset = true;
        nghttp2_submit_rst_stream(h2->session, NGHTTP2_FLAG_NONE, hs->stream.id, NGHTTP2_NO_ERROR);
    }
}

static void
headers_sent(struct h2 *h2, const nghttp2_frame *frame)
{
    struct h2_stream *hs = h2_stream_find(h2, frame->hd.stream_id);
    if (!hs)
        return;
    hs->head_queued = true;
    if (frame->headers.cat == NGHTTP2_HCAT_REQUEST)
        h2->private->to_place = hs;
    if (frame->hd.flags & NGHTTP2_FLAG_END_STREAM)
        outgoing_ended(h2, hs, false);
    else if (!output_waits(hs))
        end_stall(hs); /* it was the head that had to wait */
}

static void
goaway_sent(struct h2 *h2, const nghttp2_frame *frame)
{
    if (frame->goaway.last_stream_id == INT32_MAX && frame->goaway.error_code == NGHTTP2_NO_ERROR &&
        h2->server)
        return; /* the notice before the real one */
    h2->goaway_sent = true;
    h2->private->goaway_code = frame->goaway.error_code;
}

static int
on_ng_frame_send(nghttp2_session *session, const nghttp2_frame *frame, void *user_data)
{
    struct h2 *h2 = user_data;
    (void)session;
    if (frame->hd.type == NGHTTP2_HEADERS) {
        headers_sent(h2, frame);
    } else if (frame->hd.type == NGHTTP2_DATA && (frame->hd.flags & NGHTTP2_FLAG_END_STREAM)) {
        struct h2_stream *hs = h2_stream_find(h2, frame->hd.stream_id);
        if (hs)
            outgoing_ended(h2, hs, true);
    } else if (frame->hd.type == NGHTTP2_GOAWAY) {
        goaway_sent(h2, frame);
    }
    return 0;
}

/* Without this the call would wait for ever: nghttp2 drops the block, and for a request closes the
 * stream. */
static int
on_ng_frame_not_send(nghttp2_session *session, const nghttp2_frame *frame, int error,
                     void *user_data)
{
    struct h2 *h2 = user_data;
    (void)session;
    if (frame->hd.type != NGHTTP2_HEADERS || error != NGHTTP2_ERR_FRAME_SIZE_ERROR)
        return 0;
    struct h2_stream *hs = h2_stream_find(h2, frame->hd.stream_id);
    if (!hs)
        return 0;
    hs->unsendable = true;
    if (frame->headers.cat != NGHTTP2_HCAT_REQUEST)
        h2_stream_fail(hs, NGHTTP2_INTERNAL_ERROR, STREAM_UNSENDABLE);
    return 0;
}

void
h2_send_callbacks(nghttp2_session_callbacks *callbacks)
{
    nghttp2_session_callbacks_set_send_data_callback(callbacks, on_ng_send_data);
    nghttp2_session_callbacks_set_data_source_read_length_callback(callbacks, on_ng_read_length);
    nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, on_ng_frame_send);
    nghttp2_session_callbacks_set_on_frame_not_send_callback(callbacks, on_ng_frame_not_send);
}

/* --- filling the write queue --- */

static uint32_t
read_u32(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

/* Our SETTINGS with the number that is meant: see submit_preface in h2_session.c. */
static void
queue_patched_settings(struct h2 *h2, const uint8_t *bytes, size_t len)
{
    enum { ENTRY = 6, MOST = H2_FRAME_HEAD + 8 * ENTRY };
    uint8_t frame[MOST];
    check(len <= MOST);
    memcpy(frame, bytes, len);
    for (size_t at = H2_FRAME_HEAD; at + ENTRY <= len; at += ENTRY) {
        if (frame[at] != 0 || frame[at + 1] != NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS)
            continue;
        check(read_u32(frame + at + 2) >= h2->options.max_streams);
        for (int i = 0; i < 4; i++)
            frame[at + 2 + i] = (uint8_t)(h2->options.max_streams >> (24 - 8 * i));
    }
    conn_queue(h2->conn, frame, len);
    h2->private->patch_settings = false;
}

static void
queue_frame(struct h2 *h2, const uint8_t *bytes, size_t len)
{
    struct h2_private *private = h2->private;
    bool own_settings = private->patch_settings && len >= H2_FRAME_HEAD &&
                        bytes[3] == NGHTTP2_SETTINGS && !(bytes[4] & NGHTTP2_FLAG_ACK);
    if (own_settings)
        queue_patched_settings(h2, bytes, len);
    else
        conn_queue(h2->conn, bytes, len);
    if (private->to_place)
    private->to_place->head_end = h2->conn->out.queued;
    private->to_place = NULL;
    struct h2_stream *hs = private->to_mark;
    private->to_mark = NULL;
    if (hs) {
        hs->marked = false;
        set_mark(hs);
        h2_stream_release(hs); /* if it was detached in between */
    }
}

/* One step of mem_send; false when there is nothing to send now. */
static bool
send_some(struct h2 *h2)
{
    struct h2_private *private = h2->private;
    const uint8_t *bytes;
    private->paused = false;
    private->in_session = true;
    ssize_t len = nghttp2_session_mem_send(h2->session, &bytes);
    if (len > 0)
        queue_frame(h2, bytes, (size_t)len);
    private->in_session = false;
    if (len < 0) {
        private->broken = true;
        h2_end(h2, UV_EPROTO, nghttp2_strerror((int)len));
    }
    return len > 0 || (len == 0 && private->paused);
}

void
h2_send_fill(struct h2 *h2)
{
    if (h2->down || h2->private->in_session || h2->private->broken)
        return;
    while (!conn_full(h2->conn) && send_some(h2))
        ;
    settle_pending(h2);
    h2_check_end(h2);
}

void
h2_send_last(struct h2 *h2, uint32_t h2_error)
{
    struct h2_private *private = h2->private;
    while (!private->broken && !conn_full(h2->conn) && send_some(h2))
        ;
    if (!h2->goaway_sent)
        nghttp2_session_terminate_session(h2->session, h2_error);
    while (!private->broken && send_some(h2)) /* no DATA any more */
        ;
}
