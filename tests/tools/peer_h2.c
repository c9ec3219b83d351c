/* See peer_h2.h. */
#include "peer_h2.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FRAME_HEAD_BYTES 9u

/* ---- outgoing bodies ---- */

void
peer_stream_push(struct peer_stream *stream, struct peer_body *body, size_t offset)
{
    if (body->len == offset) { /* else nghttp2 would send an empty DATA frame */
        peer_body_unref(body);
        return;
    }
    struct peer_piece *piece = peer_alloc(sizeof *piece);
    *piece = (struct peer_piece){.body = body, .offset = offset};
    if (stream->last)
        stream->last->next = piece;
    else
        stream->first = piece;
    stream->last = piece;
    stream->queued_bytes += body->len - offset;
    if (stream->deferred) {
        stream->deferred = false;
        nghttp2_session_resume_data(stream->h2->session, stream->id);
        peer_link_wake(stream->h2->link);
    }
}

void
peer_stream_end(struct peer_stream *stream, bool trailers)
{
    stream->ended = true;
    stream->trailers = trailers;
    if (stream->deferred) {
        stream->deferred = false;
        nghttp2_session_resume_data(stream->h2->session, stream->id);
        peer_link_wake(stream->h2->link);
    }
}

static void
drop_piece(struct peer_stream *stream)
{
    struct peer_piece *piece = stream->first;
    stream->first = piece->next;
    if (!stream->first)
        stream->last = NULL;
    peer_body_unref(piece->body);
    free(piece);
}

void
peer_stream_fini(struct peer_stream *stream)
{
    while (stream->first)
        drop_piece(stream);
}

/* What one DATA frame carries at most: inline bytes and the first piece. A message is a piece, so
 * that a stream's message leaves in a frame of its own. */
static size_t
frame_bytes(const struct peer_stream *stream)
{
    size_t inline_bytes = stream->inline_len - stream->inline_off;
    if (!stream->first)
        return inline_bytes;
    return inline_bytes + stream->first->body->len - stream->first->offset;
}

static ssize_t
on_ng_read_data(nghttp2_session *session, int32_t stream_id, uint8_t *buf, size_t max_bytes,
                uint32_t *flags, nghttp2_data_source *source, void *user_data)
{
    struct peer_stream *stream = source->ptr;
    struct peer_h2 *h2 = user_data;
    (void)session;
    (void)stream_id;
    (void)buf;
    size_t have = frame_bytes(stream);
    if (have == 0 && !stream->ended && stream->more) {
        stream->more(stream);
        have = frame_bytes(stream);
    }
    if (have == 0 && !stream->ended) {
        stream->deferred = true;
        return NGHTTP2_ERR_DEFERRED;
    }
    size_t n = have < max_bytes ? have : max_bytes;
    *flags |= NGHTTP2_DATA_FLAG_NO_COPY;
    bool last_piece = !stream->first || !stream->first->next;
    if (n == have && last_piece && stream->ended) {
        *flags |= NGHTTP2_DATA_FLAG_EOF;
        if (stream->trailers) {
            *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
            h2->events->trailers(stream);
        }
    }
    return (ssize_t)n;
}

static void
record_data(struct peer_h2 *h2, const struct peer_stream *stream, const nghttp2_frame *frame,
            size_t len_bytes)
{
    uint8_t shown[PEER_RECORD_DATA_BYTES];
    size_t n = stream->inline_len - stream->inline_off;
    memcpy(shown, stream->inline_data + stream->inline_off, n);
    const struct peer_piece *piece = stream->first;
    if (piece) {
        size_t more = piece->body->len - piece->offset;
        more = more < sizeof shown - n ? more : sizeof shown - n;
        memcpy(shown + n, piece->body->data + piece->offset, more);
        n += more;
    }
    peer_record_frame(h2->record, true, h2->link->number, frame, NULL, 0, shown,
                      n < len_bytes ? n : len_bytes);
}

static int
on_ng_send_data(nghttp2_session *session, nghttp2_frame *frame, const uint8_t *frame_head,
                size_t len_bytes, nghttp2_data_source *source, void *user_data)
{
    struct peer_h2 *h2 = user_data;
    struct peer_stream *stream = source->ptr;
    (void)session;
    if (!peer_link_wants(h2->link)) /* nghttp2 offers the frame again at the next fill */
        return NGHTTP2_ERR_WOULDBLOCK;
    peer_link_put(h2->link, frame_head, FRAME_HEAD_BYTES);
    if (h2->record)
        record_data(h2, stream, frame, len_bytes);
    size_t in = stream->inline_len - stream->inline_off;
    size_t from_inline = in < len_bytes ? in : len_bytes;
    peer_link_put(h2->link, stream->inline_data + stream->inline_off, from_inline);
    stream->inline_off += (uint8_t)from_inline;
    len_bytes -= from_inline;
    struct peer_piece *piece = stream->first;
    if (piece) {
        peer_link_put_body(h2->link, piece->body, piece->offset, len_bytes);
        piece->offset += len_bytes;
        stream->queued_bytes -= len_bytes;
        if (piece->offset == piece->body->len)
            drop_piece(stream);
    }
    return 0;
}

/* Frames as long as the peer takes; nghttp2 alone would stop at 16 KiB. */
static ssize_t
on_ng_frame_bytes(nghttp2_session *session, uint8_t type, int32_t stream_id, int32_t session_window,
                  int32_t stream_window, uint32_t max_frame_bytes, void *user_data)
{
    (void)type;
    (void)session_window;
    (void)stream_window;
    (void)user_data;
    struct peer_stream *stream = nghttp2_session_get_stream_user_data(session, stream_id);
    size_t have = stream ? frame_bytes(stream) : 0;
    /* nghttp2 grows its buffer to what is answered here, so answer no more than there is */
    size_t n = have > 16384 ? have : 16384;
    return (ssize_t)(n < max_frame_bytes ? n : max_frame_bytes);
}

/* ---- incoming ---- */

static void
list_stream(struct peer_h2 *h2, struct peer_stream *stream, int32_t id)
{
    stream->h2 = h2;
    stream->id = id;
    stream->prev = NULL;
    stream->next = h2->streams;
    if (h2->streams)
        h2->streams->prev = stream;
    h2->streams = stream;
    h2->stream_count++;
}

static void
close_stream(struct peer_h2 *h2, struct peer_stream *stream, uint32_t error_code)
{
    if (stream->prev)
        stream->prev->next = stream->next;
    else
        h2->streams = stream->next;
    if (stream->next)
        stream->next->prev = stream->prev;
    h2->stream_count--;
    stream->closed = true;
    h2->events->closed(stream, error_code);
}

static int
on_ng_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *user_data)
{
    struct peer_h2 *h2 = user_data;
    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST)
        return 0;
    struct peer_stream *stream = h2->events->opened(h2);
    if (!stream)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    list_stream(h2, stream, frame->hd.stream_id);
    nghttp2_session_set_stream_user_data(session, stream->id, stream);
    return 0;
}

static void
seen_field(struct peer_h2 *h2, const uint8_t *name, size_t name_len, const uint8_t *value,
           size_t value_len)
{
    if (h2->seen_count == h2->seen_cap) {
        h2->seen_cap = h2->seen_cap ? h2->seen_cap * 2 : 32;
        h2->seen = realloc(h2->seen, h2->seen_cap * sizeof *h2->seen);
        peer_check(h2->seen);
    }
    uint8_t *copy = peer_alloc(name_len + value_len + 1);
    memcpy(copy, name, name_len);
    memcpy(copy + name_len, value, value_len);
    h2->seen[h2->seen_count++] = (nghttp2_nv){copy, copy + name_len, name_len, value_len, 0};
}

static void
seen_reset(struct peer_h2 *h2)
{
    for (size_t i = 0; i < h2->seen_count; i++)
        free(h2->seen[i].name);
    h2->seen_count = 0;
    h2->seen_data_len = 0;
}

static int
on_ng_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
             size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
             void *user_data)
{
    struct peer_h2 *h2 = user_data;
    (void)flags;
    if (h2->record)
        seen_field(h2, name, name_len, value, value_len);
    struct peer_stream *stream = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
    if (stream)
        h2->events->field(stream, name, name_len, value, value_len);
    return 0;
}

static int
on_ng_data_chunk(nghttp2_session *session, uint8_t flags, int32_t stream_id, const uint8_t *data,
                 size_t len_bytes, void *user_data)
{
    struct peer_h2 *h2 = user_data;
    (void)flags;
    if (h2->record) {
        size_t room = sizeof h2->seen_data - h2->seen_data_len;
        size_t take = len_bytes < room ? len_bytes : room;
        memcpy(h2->seen_data + h2->seen_data_len, data, take);
        h2->seen_data_len += take;
    }
    nghttp2_session_consume_connection(session, len_bytes);
    struct peer_stream *stream = nghttp2_session_get_stream_user_data(session, stream_id);
    if (stream)
        h2->events->data(stream, data, len_bytes);
    return 0;
}

static int
on_ng_frame_recv(nghttp2_session *session, const nghttp2_frame *frame, void *user_data)
{
    struct peer_h2 *h2 = user_data;
    if (h2->record) {
        peer_record_frame(h2->record, false, h2->link->number, frame, h2->seen, h2->seen_count,
                          h2->seen_data, h2->seen_data_len);
        seen_reset(h2);
    }
    if (frame->hd.type == NGHTTP2_GOAWAY && h2->events->goaway)
        h2->events->goaway(h2);
    if (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA)
        return 0;
    struct peer_stream *stream = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
    if (!stream)
        return 0;
    bool end = frame->hd.flags & NGHTTP2_FLAG_END_STREAM;
    if (frame->hd.type == NGHTTP2_HEADERS)
        h2->events->head(stream, end);
    if (end)
        h2->events->end(stream);
    return 0;
}

static int
on_ng_frame_send(nghttp2_session *session, const nghttp2_frame *frame, void *user_data)
{
    struct peer_h2 *h2 = user_data;
    if (h2->record && frame->hd.type != NGHTTP2_DATA) {
        bool head = frame->hd.type == NGHTTP2_HEADERS;
        peer_record_frame(h2->record, true, h2->link->number, frame,
                          head ? frame->headers.nva : NULL, head ? frame->headers.nvlen : 0, NULL,
                          0);
    }
    if (!h2->events->sent || !(frame->hd.flags & NGHTTP2_FLAG_END_STREAM) ||
        (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA))
        return 0;
    struct peer_stream *stream = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
    if (stream)
        h2->events->sent(stream);
    return 0;
}

static int
on_ng_stream_close(nghttp2_session *session, int32_t stream_id, uint32_t error_code,
                   void *user_data)
{
    struct peer_h2 *h2 = user_data;
    struct peer_stream *stream = nghttp2_session_get_stream_user_data(session, stream_id);
    if (!stream)
        return 0;
    nghttp2_session_set_stream_user_data(session, stream_id, NULL);
    close_stream(h2, stream, error_code);
    return 0;
}

/* A block that cannot be sent (too long, no stream ids left) must end its stream, else the call
 * would wait for ever. */
static int
on_ng_frame_not_send(nghttp2_session *session, const nghttp2_frame *frame, int error,
                     void *user_data)
{
    (void)user_data;
    /* a request that cannot be sent is closed by nghttp2 itself */
    if (frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat != NGHTTP2_HCAT_REQUEST &&
        error != NGHTTP2_ERR_STREAM_CLOSED && error != NGHTTP2_ERR_STREAM_CLOSING)
        nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, frame->hd.stream_id,
                                  NGHTTP2_INTERNAL_ERROR);
    return 0;
}

/* ---- session ---- */

static nghttp2_session_callbacks *
new_callbacks(void)
{
    nghttp2_session_callbacks *cb;
    peer_check(nghttp2_session_callbacks_new(&cb) == 0);
    nghttp2_session_callbacks_set_on_begin_headers_callback(cb, on_ng_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(cb, on_ng_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(cb, on_ng_data_chunk);
    nghttp2_session_callbacks_set_on_frame_recv_callback(cb, on_ng_frame_recv);
    nghttp2_session_callbacks_set_on_frame_send_callback(cb, on_ng_frame_send);
    nghttp2_session_callbacks_set_on_frame_not_send_callback(cb, on_ng_frame_not_send);
    nghttp2_session_callbacks_set_on_stream_close_callback(cb, on_ng_stream_close);
    nghttp2_session_callbacks_set_send_data_callback(cb, on_ng_send_data);
    nghttp2_session_callbacks_set_data_source_read_length_callback(cb, on_ng_frame_bytes);
    return cb;
}

static nghttp2_option *
new_options(void)
{
    nghttp2_option *option;
    peer_check(nghttp2_option_new(&option) == 0);
    nghttp2_option_set_no_auto_window_update(option, 1);
    nghttp2_option_set_max_send_header_block_length(option, 1024 * 1024);
    /* the limits under test are the proxy's, not ours */
    nghttp2_option_set_stream_reset_rate_limit(option, 1u << 30, 1u << 30);
    return option;
}

int
peer_h2_init(struct peer_h2 *h2, struct peer_link *link, bool server,
             const struct peer_h2_events *events, const struct peer_h2_options *options)
{
    *h2 = (struct peer_h2){.link = link, .events = events, .record = options->record};
    nghttp2_session_callbacks *cb = new_callbacks();
    nghttp2_option *option = new_options();
    int rv = server ? nghttp2_session_server_new2(&h2->session, cb, h2, option)
                    : nghttp2_session_client_new2(&h2->session, cb, h2, option);
    nghttp2_session_callbacks_del(cb);
    nghttp2_option_del(option);
    if (rv)
        return -ENOMEM;
    nghttp2_settings_entry settings[4] = {
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, options->stream_window_bytes},
        {NGHTTP2_SETTINGS_MAX_FRAME_SIZE, options->max_frame_bytes},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, 1024 * 1024},
        {NGHTTP2_SETTINGS_ENABLE_PUSH, 0},
    };
    if (server)
        settings[3] =
            (nghttp2_settings_entry){NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, options->max_streams};
    rv = nghttp2_submit_settings(h2->session, NGHTTP2_FLAG_NONE, settings, 4);
    if (rv == 0)
        rv = nghttp2_session_set_local_window_size(h2->session, NGHTTP2_FLAG_NONE, 0,
                                                   options->connection_window_bytes);
    peer_link_wake(link);
    return rv ? -EINVAL : 0;
}

void
peer_h2_fini(struct peer_h2 *h2)
{
    if (!h2->session)
        return;
    /* nghttp2_session_del() frees streams without a word: end them here, after it, so that what
     * their closed event does cannot reach the session */
    nghttp2_session_del(h2->session);
    h2->session = NULL;
    while (h2->streams)
        close_stream(h2, h2->streams, PEER_H2_LOST);
    seen_reset(h2);
    free(h2->seen);
    h2->seen = NULL;
}

void
peer_h2_receive(struct peer_h2 *h2, const uint8_t *data, size_t len_bytes)
{
    ssize_t n = nghttp2_session_mem_recv(h2->session, data, len_bytes);
    if (n < 0 || (size_t)n != len_bytes) {
        peer_link_close(h2->link, UV_EPROTO);
        return;
    }
    peer_link_wake(h2->link);
}

void
peer_h2_fill(struct peer_h2 *h2)
{
    while (peer_link_wants(h2->link)) {
        const uint8_t *data;
        ssize_t n = nghttp2_session_mem_send(h2->session, &data);
        if (n < 0) {
            peer_link_close(h2->link, UV_EPROTO);
            return;
        }
        if (n == 0)
            break;
        peer_link_put(h2->link, data, (size_t)n);
    }
    if (!nghttp2_session_want_read(h2->session) && !nghttp2_session_want_write(h2->session))
        peer_link_finish(h2->link);
}

/* ---- streams ---- */

static nghttp2_data_provider
provider_of(struct peer_stream *stream)
{
    return (nghttp2_data_provider){.source = {.ptr = stream}, .read_callback = on_ng_read_data};
}

void
peer_stream_respond(struct peer_stream *stream, const nghttp2_nv *fields, size_t count,
                    bool has_body)
{
    nghttp2_data_provider provider = provider_of(stream);
    int rv = nghttp2_submit_response(stream->h2->session, stream->id, fields, count,
                                     has_body ? &provider : NULL);
    peer_check(rv == 0);
    peer_link_wake(stream->h2->link);
}

int
peer_stream_request(struct peer_stream *stream, struct peer_h2 *h2, const nghttp2_nv *fields,
                    size_t count, bool has_body)
{
    nghttp2_data_provider provider = provider_of(stream);
    int32_t id = nghttp2_submit_request(h2->session, NULL, fields, count,
                                        has_body ? &provider : NULL, stream);
    if (id < 0)
        return -ENOSPC;
    list_stream(h2, stream, id);
    peer_link_wake(h2->link);
    return 0;
}

void
peer_stream_credit(struct peer_stream *stream, size_t len_bytes)
{
    nghttp2_session_consume_stream(stream->h2->session, stream->id, len_bytes);
}

void
peer_stream_reset(struct peer_stream *stream, uint32_t error_code)
{
    nghttp2_submit_rst_stream(stream->h2->session, NGHTTP2_FLAG_NONE, stream->id, error_code);
    peer_link_wake(stream->h2->link);
}
