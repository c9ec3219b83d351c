/*
 * The nghttp2 session of a connection: how it is set up, and its callbacks for what comes in.
 *
 * Happy path of a stream, server: on_ng_begin_headers (stream object, on_stream) -> on_ng_header …
 * -> on_ng_frame_recv HEADERS (on_head) -> on_ng_data_chunk … (on_data) -> on_ng_frame_recv with
 * END_STREAM (on_end) -> on_ng_stream_close. Client: the same from the reply's HEADERS on; a block
 * with a 1xx status is skipped, so that the next one is the head.
 *
 * Failure modes: malformed messages (h2_message.c) reset the stream: on_ng_stream_close says so to
 * the owner. Protocol errors of the connection are answered by
 * nghttp2 with GOAWAY; what it gives up on without one (floods) gets one here. Callbacks never
 * send: they submit, and the turn's end flushes.
 */
#include "proxy/net/h2_private.h"

#include "proxy/base/check.h"

enum { SETTINGS_MAX = 4 };

static struct text
text_of_rcbuf(nghttp2_rcbuf *buffer)
{
    nghttp2_vec bytes = nghttp2_rcbuf_get_buf(buffer);
    return text_make(bytes.base, bytes.len);
}

/* More clients' streams than we announced are refused one by one: RFC 9113 section 5.1.2. */
static int
refuse_stream(struct h2 *h2, int32_t id)
{
    nghttp2_submit_rst_stream(h2->session, NGHTTP2_FLAG_NONE, id, NGHTTP2_REFUSED_STREAM);
    return 0;
}

/* RFC 9113 section 8.1.1. Nothing more of the stream is listened to, and its close tells the owner.
 */
static int
malformed(struct h2 *h2, struct h2_stream *hs)
{
    hs->malformed = true;
    if (!hs->own_reset)
        nghttp2_submit_rst_stream(h2->session, NGHTTP2_FLAG_NONE, hs->stream.id,
                                  NGHTTP2_PROTOCOL_ERROR);
    return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
}

static int
on_ng_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *user_data)
{
    struct h2 *h2 = user_data;
    int32_t id = frame->hd.stream_id;
    h2->private->block_bytes = 0;
    h2->private->block_stream = NULL;
    if (frame->hd.type != NGHTTP2_HEADERS)
        return 0; /* PUSH_PROMISE */
    if (frame->headers.cat != NGHTTP2_HCAT_REQUEST) {
        h2->private->block_stream = h2_stream_find(h2, id);
        return 0;
    }
    if (h2->private->end_text ||
        (h2->options.max_streams && h2->open_streams >= h2->options.max_streams))
        return refuse_stream(h2, id);
    struct h2_stream *hs = h2_stream_new(h2);
    hs->stream.id = id;
    nghttp2_session_set_stream_user_data(session, id, hs);
    *h2_found_slot(h2->private, id) = hs;
    h2->private->block_stream = hs;
    h2->events->on_stream(h2, &hs->stream);
    return 0;
}

/* Where the field of the block being read goes; NULL: nowhere. */
static struct fields *
field_target(const struct h2_stream *hs)
{
    if (!hs->stream.events || h2_message_is_interim(&hs->message))
        return NULL;
    return hs->head_done ? hs->stream.trailer_fields : hs->stream.fields;
}

static bool
list_too_long(struct h2 *h2, struct h2_stream *hs)
{
    if (!h2->options.max_header_list || h2->private->block_bytes <= h2->options.max_header_list)
        return false;
    if (!h2->server)
        h2_stream_fail(hs, NGHTTP2_CANCEL, STREAM_HEADERS_TOO_LONG);
    else if (!hs->head_done)
        hs->stream.fields_overflow = true;
    return true;
}

/* What is not nghttp2's for good is copied, with a NUL behind it: two at once. */
static void
keep_field(struct fields *fields, const struct h2_message_field *field)
{
    struct text name = field->name, value = field->value;
    bool name_stays = field->constant_name, value_stays = field->constant_value;
    size_t name_bytes = name_stays ? 0 : name.len + 1,
           value_bytes = value_stays ? 0 : value.len + 1;
    if (name_bytes + value_bytes > 0) {
        char *copy = arena_alloc(fields->arena, name_bytes + value_bytes);
        if (!name_stays)
            name.ptr = memcpy(copy, name.ptr, name_bytes);
        if (!value_stays)
            value.ptr = memcpy(copy + name_bytes, value.ptr, value_bytes);
    }
    struct field *kept = fields_add(
        fields, name, value, name_stays ? (value_stays ? FIELD_STATIC : FIELD_STATIC_NAME) : 0);
    header_class_keep(kept, field->class);
}

/* Most names come from HPACK's static table, whose buffers nghttp2 never moves or frees: what such
 * a name is and means is looked up once, by its buffer's address. */
static void
name_field(struct ctx *ctx, nghttp2_rcbuf *name, struct h2_message_field *field)
{
    struct ctx_h2_name *known = &ctx->h2_names[((uintptr_t)name >> 3) % CTX_H2_NAMES];
    if (known->buffer == name) {
        field->name = known->text;
        field->class = known->class;
        field->constant_name = true;
        return;
    }
    field->name = text_of_rcbuf(name);
    field->class = header_class_of(field->name);
    field->constant_name = nghttp2_rcbuf_is_static(name);
    if (field->constant_name)
        *known = (struct ctx_h2_name){name, field->name, field->class};
}

static enum h2_message_block
block_of(const struct h2 *h2, const struct h2_stream *hs)
{
    if (h2->server)
        return hs->head_done ? H2_MESSAGE_REQUEST_TRAILERS : H2_MESSAGE_REQUEST;
    return hs->head_done ? H2_MESSAGE_RESPONSE_TRAILERS : H2_MESSAGE_RESPONSE;
}

/* Sizes as RFC 9113 section 6.5.2 counts them. Fields of streams that nobody listens to are counted
 * too: decoding costs. */
static int
on_ng_header(nghttp2_session *session, const nghttp2_frame *frame, nghttp2_rcbuf *name,
             nghttp2_rcbuf *value, uint8_t flags, void *user_data)
{
    struct h2 *h2 = user_data;
    struct h2_message_field field = {
        .value = text_of_rcbuf(value),
        .constant_value = nghttp2_rcbuf_is_static(value),
    };
    (void)session, (void)frame, (void)flags;
    name_field(h2->ctx, name, &field);
    uint32_t *bytes = &h2->private->block_bytes;
    *bytes += (uint32_t)(field.name.len + field.value.len) +
              32; /* a field is at most 64K: no overflow before the check */
    if (*bytes > H2_MAX_HEADER_BOMB)
        h2_terminate(h2, NGHTTP2_ENHANCE_YOUR_CALM, UV_ECONNABORTED,
                     "header block far over the limit");
    if (h2->private->end_text)
        return NGHTTP2_ERR_CALLBACK_FAILURE; /* stop decoding */
    struct h2_stream *hs = h2->private->block_stream;
    if (!hs)
        return 0;
    if (!h2_message_take(&hs->message, block_of(h2, hs), &field))
        return malformed(h2, hs);
    struct fields *target = field_target(hs);
    if (target && !list_too_long(h2, hs))
        keep_field(target, &field);
    return 0;
}

/* nghttp2 itself knows only that a request cannot begin with DATA. */
static bool
before_head(const struct h2 *h2, const struct h2_stream *hs)
{
    return !h2->server && !hs->head_done;
}

static int
on_ng_data_chunk(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *data,
                 size_t len, void *user_data)
{
    struct h2 *h2 = user_data;
    nghttp2_session_consume_connection(session, len);
    struct h2_stream *hs = h2_stream_find(h2, id);
    if (!hs)
        return 0;
    hs->last_data = flags & NGHTTP2_FLAG_END_STREAM;
    if (hs->malformed)
        return 0;
    if (before_head(h2, hs) || !h2_message_data(&hs->message, len)) {
        malformed(h2, hs);
        return 0;
    }
    if (!hs->stream.events) {
        if (!hs->last_data)
            nghttp2_session_consume_stream(session, id, len);
        return 0;
    }
    hs->stream.uncredited += len;
    hs->stream.events->on_data(&hs->stream, data, len);
    return 0;
}

static void
data_received(struct h2 *h2, const nghttp2_frame *frame)
{
    bool end = frame->hd.flags & NGHTTP2_FLAG_END_STREAM;
    h2_limits_data(h2, frame->hd.length == frame->data.padlen, end);
    if (!end)
        return;
    struct h2_stream *hs = h2_stream_find(h2, frame->hd.stream_id);
    if (!hs || hs->malformed)
        return;
    if (before_head(h2, hs) || !h2_message_whole(&hs->message)) {
        malformed(h2, hs);
        return;
    }
    hs->stream.in_end = true;
    if (hs->stream.events)
        hs->stream.events->on_end(&hs->stream, NULL);
}

static void
interim_received(struct h2 *h2, struct h2_stream *hs, bool end)
{
    h2_message_interim(&hs->message);
    if (end)
        malformed(h2, hs);
    else if (++hs->interims > H2_MAX_INTERIM)
        h2_stream_fail(hs, NGHTTP2_PROTOCOL_ERROR, STREAM_MALFORMED);
}

/* Whether the header block that has just ended may stand where it does. */
static bool
block_well_formed(const struct h2 *h2, struct h2_stream *hs, bool end)
{
    if (hs->head_done ? !end : !h2_message_head(&hs->message, block_of(h2, hs)))
        return false;
    return !end || h2_message_whole(&hs->message);
}

static void
headers_received(struct h2 *h2, const nghttp2_frame *frame)
{
    struct h2_stream *hs = h2_stream_find(h2, frame->hd.stream_id);
    if (!hs)
        return;
    bool end = frame->hd.flags & NGHTTP2_FLAG_END_STREAM, trailers = hs->head_done;
    if (h2_message_is_interim(&hs->message)) {
        interim_received(h2, hs, end);
        return;
    }
    if (!block_well_formed(h2, hs, end)) {
        malformed(h2, hs);
        return;
    }
    struct stream *stream = &hs->stream;
    hs->head_done = true;
    stream->in_end = end;
    if (!trailers)
        stream->head_ns = ctx_head_read(h2->ctx);
    if (!stream->events)
        return;
    if (trailers)
        stream->events->on_end(stream, stream->trailer_fields);
    else
        stream->events->on_head(stream, end);
}

static void
settings_received(struct h2 *h2, const nghttp2_frame *frame)
{
    if (frame->hd.flags & NGHTTP2_FLAG_ACK)
        return;
    timers_stop(&h2->ctx->timers, &h2->private->handshake);
    h2->settings_seen = true;
    h2->peer_max_streams =
        nghttp2_session_get_remote_settings(h2->session, NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS);
    if (!h2->server && h2->events->on_settings)
        h2->events->on_settings(h2);
}

static void
reset_received(struct h2 *h2, const nghttp2_frame *frame)
{
    struct h2_stream *hs = h2_stream_find(h2, frame->hd.stream_id);
    if (!hs)
        return;            /* it was over: costs nothing */
    hs->peer_reset = true; /* on_ng_stream_close follows */
    if (!hs->stream.out_closed)
        h2_limits_fault(h2);
}

/* nghttp2 closes the streams above its last id after this callback: the owner hears of it after
 * those. */
static void
goaway_received(struct h2 *h2, const nghttp2_frame *frame)
{
    h2->goaway_seen = true;
    h2->private->goaway_code = frame->goaway.error_code;
    h2->private->tell_goaway = true;
}

static int
on_ng_frame_recv(nghttp2_session *session, const nghttp2_frame *frame, void *user_data)
{
    struct h2 *h2 = user_data;
    (void)session;
    switch (frame->hd.type) {
    case NGHTTP2_DATA:
        data_received(h2, frame);
        break;
    case NGHTTP2_HEADERS:
        headers_received(h2, frame);
        break;
    case NGHTTP2_RST_STREAM:
        reset_received(h2, frame);
        break;
    case NGHTTP2_SETTINGS:
        settings_received(h2, frame);
        break;
    case NGHTTP2_GOAWAY:
        goaway_received(h2, frame);
        break;
    case NGHTTP2_PING:
        if (frame->hd.flags & NGHTTP2_FLAG_ACK)
            h2_ponged(h2, frame->ping.opaque_data);
        break;
    default:
        break;
    }
    return 0;
}

/* grpc-go's client says goodbye with its own last stream id where ours belongs. nghttp2 makes that
 * a PROTOCOL_ERROR; it is an ordinary end. */
static int
on_ng_invalid_frame_recv(nghttp2_session *session, const nghttp2_frame *frame, int error,
                         void *user_data)
{
    (void)session, (void)error;
    if (frame->hd.type == NGHTTP2_GOAWAY)
        h2_end(user_data, UV_EOF, "GOAWAY");
    return 0;
}

static int
on_ng_stream_close(nghttp2_session *session, int32_t id, uint32_t error, void *user_data)
{
    (void)session;
    struct h2_stream *hs = h2_stream_find(user_data, id);
    if (hs)
        h2_stream_closed(hs, error);
    return 0;
}

static nghttp2_session_callbacks *
new_callbacks(void)
{
    nghttp2_session_callbacks *callbacks;
    check(nghttp2_session_callbacks_new(&callbacks) == 0);
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_ng_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback2(callbacks, on_ng_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_ng_data_chunk);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_ng_frame_recv);
    nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(callbacks,
                                                                 on_ng_invalid_frame_recv);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_ng_stream_close);
    h2_send_callbacks(callbacks);
    return callbacks;
}

static nghttp2_option *
new_option(void)
{
    nghttp2_option *option;
    check(nghttp2_option_new(&option) == 0);
    nghttp2_option_set_no_auto_window_update(option, 1);
    nghttp2_option_set_no_closed_streams(option, 1);
    nghttp2_option_set_no_http_messaging(option, 1); /* ours: h2_message.c */
    nghttp2_option_set_max_send_header_block_length(option, H2_MAX_SEND_HEADERS);
    nghttp2_option_set_max_continuations(option, H2_MAX_CONTINUATIONS);
    nghttp2_option_set_stream_reset_rate_limit(option, UINT32_MAX,
                                               UINT32_MAX); /* ours: h2_limits.c */
    return option;
}

/* Announces twice the limit and more to nghttp2 itself, which would otherwise end the connection of
 * a client that goes over it; h2_send.c puts the real value into the bytes. */
static void
submit_preface(struct h2 *h2)
{
    const struct h2_options *options = &h2->options;
    nghttp2_settings_entry entries[SETTINGS_MAX];
    size_t count = 0;
    if (h2->server && options->max_streams) {
        uint32_t spare =
            options->max_streams > H2_SPARE_STREAMS ? options->max_streams : H2_SPARE_STREAMS;
        uint32_t most =
            options->max_streams > INT32_MAX / 2 ? INT32_MAX : options->max_streams + spare;
        entries[count++] = (nghttp2_settings_entry){NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, most};
        h2->private->patch_settings = true;
    }
    if (!h2->server)
        entries[count++] = (nghttp2_settings_entry){NGHTTP2_SETTINGS_ENABLE_PUSH, 0};
    uint32_t window = options->stream_window < INT32_MAX ? options->stream_window : INT32_MAX;
    entries[count++] = (nghttp2_settings_entry){NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, window};
    if (options->max_header_list)
        entries[count++] = (nghttp2_settings_entry){NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE,
                                                    options->max_header_list};
    check(nghttp2_submit_settings(h2->session, NGHTTP2_FLAG_NONE, entries, count) == 0);
    check(nghttp2_session_set_local_window_size(h2->session, NGHTTP2_FLAG_NONE, 0,
                                                H2_CONNECTION_WINDOW) == 0);
}

void
h2_session_new(struct h2 *h2)
{
    nghttp2_session_callbacks *callbacks = new_callbacks();
    nghttp2_option *option = new_option();
    int error =
        h2->server
            ? nghttp2_session_server_new3(&h2->session, callbacks, h2, option, &h2->ctx->h2_mem)
            : nghttp2_session_client_new3(&h2->session, callbacks, h2, option, &h2->ctx->h2_mem);
    check(error == 0); /* it fails for memory only, and that aborts before */
    nghttp2_option_del(option);
    nghttp2_session_callbacks_del(callbacks);
    submit_preface(h2);
}

/* nghttp2 has given up on the connection. */
static void
feed_failed(struct h2 *h2, int error)
{
    switch (error) {
    case NGHTTP2_ERR_FLOODED:
        h2_terminate(h2, NGHTTP2_ENHANCE_YOUR_CALM, UV_ECONNABORTED,
                     "too many PING or SETTINGS frames");
        break;
    case NGHTTP2_ERR_TOO_MANY_CONTINUATIONS:
        h2_terminate(h2, NGHTTP2_ENHANCE_YOUR_CALM, UV_ECONNABORTED,
                     "too many CONTINUATION frames");
        break;
    case NGHTTP2_ERR_BAD_CLIENT_MAGIC:
        h2_terminate(h2, NGHTTP2_PROTOCOL_ERROR, UV_EPROTO, "not HTTP/2");
        break;
    default: /* or a callback of ours stopped it, having said why */
        h2_terminate(h2, NGHTTP2_INTERNAL_ERROR, UV_EPROTO, nghttp2_strerror(error));
        break;
    }
}

static void
feed(struct h2 *h2, const uint8_t *data, size_t len)
{
    h2->private->in_session = true;
    ssize_t taken = nghttp2_session_mem_recv(h2->session, data, len);
    h2->private->in_session = false;
    if (taken < 0)
        feed_failed(h2, (int)taken);
}

/* What stands before a frame on a closed stream is served first. */
static void
feed_server(struct h2 *h2, const uint8_t *data, size_t len)
{
    while (len > 0 && !h2->private->end_text) {
        struct h2_closed_fault fault;
        size_t before = h2_closed_scan(&h2->private->closed, data, len, &fault);
        feed(h2, data, before);
        if (fault.h2_error && !h2->private->end_text)
            h2_closed_answer(h2, &fault);
        data += before;
        len -= before;
    }
}

void
h2_session_feed(struct h2 *h2, const uint8_t *data, size_t len)
{
    struct h2_private *private = h2->private;
    if (h2->server)
        feed_server(h2, data, len);
    else
        feed(h2, data, len);
    if (private->tell_goaway) {
        private->tell_goaway = false;
        if (h2->events->on_goaway)
            h2->events->on_goaway(h2, private->goaway_code);
    }
    h2_wake(h2);
    h2_check_end(h2);
}
