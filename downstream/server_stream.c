/*
 * The downstream end of one call. Owns the pairing of stream and call, the choice of the codec, and
 * plain HTTP answers to requests that are no RPC at all. Does not own the stream (its connection
 * does) nor the call.
 *
 * Happy path: open → on_head (choose a codec, read the request, call_start) → on_data … on_end →
 * send_head, send_body, send_end → on_flushed → the call finishes and detaches.
 *
 * Failure modes: a client that resets or goes → call_downstream_gone; a reply before the request's
 * end → after it left, RST_STREAM(NO_ERROR), for a plain answer only once the body is long.
 */
#include "downstream/server_stream.h"

#include "downstream/grpc.h"
#include "downstream/request_common.h"
#include "downstream/triple.h"
#include "proxy/net/h2.h"
#include "proxy/wire/content_type.h"
#include "proxy/wire/header_class.h"

struct server_stream {
    struct stream *stream; /* NULL after reset, and once a plain answer was given */
    struct call *call;
    const struct server_peer *peer;
};

static void on_head(struct stream *stream, bool end);

static void
on_data(struct stream *stream, const uint8_t *data, size_t len)
{
    struct server_stream *self = stream->owner;
    call_request_data(self->call, data, len);
}

static void
on_end(struct stream *stream, const struct fields *trailers)
{
    struct server_stream *self = stream->owner;
    (void)trailers; /* gRPC requests have none; Java providers must never see any */
    call_request_end(self->call);
}

static void
on_reset(struct stream *stream, uint32_t error)
{
    struct server_stream *self = stream->owner;
    call_downstream_gone(self->call, error);
}

static void
on_sent(struct stream *stream, size_t bytes)
{
    struct server_stream *self = stream->owner;
    call_downstream_sent(self->call, bytes);
}

static void
on_flushed(struct stream *stream, uint64_t now_ns, uint64_t stalled_ns)
{
    struct server_stream *self = stream->owner;
    call_downstream_flushed(self->call, now_ns, stalled_ns);
}

static const struct stream_events EVENTS = {
    .on_head = on_head,
    .on_data = on_data,
    .on_end = on_end,
    .on_reset = on_reset,
    .on_sent = on_sent,
    .on_flushed = on_flushed,
};

/* --- what the call asks of us --- */

static void
op_send_head(struct call *call)
{
    struct server_stream *self = call->down;
    struct fields head;
    fields_init(&head, &call->arena);
    call->down_codec->write_head(call, &head);
    stream_send_head(self->stream, &head, false);
}

static void
op_send_body(struct call *call, struct slices *body)
{
    struct server_stream *self = call->down;
    stream_send_data(self->stream, body, false);
}

/* The bare form's error: a whole reply. Without budget for its body the status alone must do. */
static void
send_bare_error(struct call *call, struct server_stream *self)
{
    struct fields head;
    struct slices body;
    slices_init(&body);
    fields_init(&head, &call->arena);
    call->down_codec->write_end(call, &head, false);
    struct text error = call->reply.error_body;
    bool whole = slices_append(&body, &call->worker->ctx.chunks, error.ptr, error.len, error.len);
    if (!whole) {
        slices_clear(&body);
        fields_remove(&head, TEXT("content-length"));
    }
    bool end = body.bytes == 0;
    stream_send_head(self->stream, &head, end);
    if (!end)
        stream_send_data(self->stream, &body, true);
}

static void
end_by_reset(struct call *call, struct server_stream *self, uint32_t h2_error)
{
    stream_reset(self->stream, h2_error);
    self->stream = NULL;
    call_downstream_flushed(call, call->worker->ctx.turn_ns, 0);
}

static void
send_bare_end(struct call *call, struct server_stream *self)
{
    struct slices nothing;
    if (!call->head_sent) {
        send_bare_error(call, self);
    } else if (call->status.code == RPC_OK) {
        slices_init(&nothing);
        stream_send_data(self->stream, &nothing, true);
    } else { /* the head said 200: a reset is all that can still be said */
        end_by_reset(call, self, NGHTTP2_INTERNAL_ERROR);
    }
}

static void
op_send_end(struct call *call)
{
    struct server_stream *self = call->down;
    if (call->down_codec->form == FORM_BARE) {
        send_bare_end(call, self);
        return;
    }
    /* Clients take trailers inside a message for a broken peer, INTERNAL; for this reset they make
     * RESOURCE_EXHAUSTED themselves. */
    if (call->head_sent && call->reason == REASON_NO_BUDGET && flow_is_cut(&call->reply_flow)) {
        end_by_reset(call, self, NGHTTP2_ENHANCE_YOUR_CALM);
        return;
    }
    struct fields trailers;
    fields_init(&trailers, &call->arena);
    call->down_codec->write_end(call, &trailers, call->head_sent);
    if (call->head_sent)
        stream_send_trailers(self->stream, &trailers);
    else
        stream_send_head(self->stream, &trailers, true);
}

static void
op_credit(struct call *call, uint64_t bytes)
{
    struct server_stream *self = call->down;
    if (self->stream)
        stream_credit(self->stream, bytes);
}

static void
forget(struct call *call, struct server_stream *self)
{
    call->down = NULL;
    slab_free(&call->worker->ctx.slab, self);
}

static void
op_reset(struct call *call, uint32_t h2_error)
{
    struct server_stream *self = call->down;
    if (self->stream)
        stream_reset(self->stream, h2_error);
    forget(call, self);
}

static void
op_detach(struct call *call)
{
    struct server_stream *self = call->down;
    struct stream *stream = self->stream;
    if (stream && !stream->in_end && stream->out_closed)
        stream_reset(
            stream,
            NGHTTP2_NO_ERROR); /* the reply is complete: the rest of the request is of no use */
    else if (stream)
        stream_detach(stream);
    forget(call, self);
}

static struct text
op_peer(struct call *call)
{
    struct server_stream *self = call->down;
    return text_of(self->peer->address);
}

static const struct downstream_ops OPS = {
    .send_head = op_send_head,
    .send_body = op_send_body,
    .send_end = op_send_end,
    .credit = op_credit,
    .reset = op_reset,
    .detach = op_detach,
    .peer = op_peer,
};

/* --- requests --- */

/* A short answer to what is no RPC. */
struct plain_answer {
    struct text status, text;
};

static const struct plain_answer NOT_FOUND = {{"404", 3},
                                              {"no such page; RPCs have /SERVICE/METHOD\n", 40}};
static const struct plain_answer NOT_POST = {{"405", 3}, {"RPCs are POST\n", 14}};
static const struct plain_answer NOT_RPC = {{"415", 3},
                                            {"the content-type is none of gRPC or Triple\n", 43}};

static const struct plain_answer NOT_HTTP2 = {{"415", 3}, {"gRPC needs HTTP/2\n", 18}};

static void
send_plain(struct call *call, struct stream *stream, const struct plain_answer *answer)
{
    struct fields head;
    struct slices body;
    bool bodiless = text_eq(header_value(&call->request.head, HEADER_METHOD), TEXT("HEAD"));
    slices_init(&body);
    fields_init(&head, &call->arena);
    fields_add(&head, TEXT(":status"), answer->status, FIELD_STATIC);
    fields_add(&head, TEXT("content-type"), TEXT("text/plain; charset=utf-8"), FIELD_STATIC);
    if (answer == &NOT_POST)
        fields_add(&head, TEXT("allow"), TEXT("POST"), FIELD_STATIC);
    fields_add(&head, TEXT("content-length"), arena_printf(&call->arena, "%zu", answer->text.len),
               FIELD_STATIC_NAME);
    stream_send_head(stream, &head, bodiless);
    if (bodiless)
        return;
    slices_push(
        &body, (struct slice){NULL, (const uint8_t *)answer->text.ptr, (uint32_t)answer->text.len});
    stream_send_data(stream, &body, true);
}

/* --- the body of what is no RPC: dropped, but read to its end where that is near, so that a client
 * which breaks HTTP in it is told so and one that cannot take an early answer gets its answer ---
 */

enum { DROPPED_BODY_MAX = 64 * 1024 };

static void
on_dropped_data(struct stream *stream, const uint8_t *data, size_t len)
{
    (void)data, (void)len;
    if (stream->uncredited > DROPPED_BODY_MAX) /* never credited: all of it so far */
        stream_reset(stream, NGHTTP2_NO_ERROR);
}

static void
on_dropped_end(struct stream *stream, const struct fields *trailers)
{
    (void)trailers;
    stream_detach(stream);
}

static void
on_dropped_reset(struct stream *stream, uint32_t error)
{
    (void)error;
    stream_detach(stream);
}

static void
on_dropped_sent(struct stream *stream, size_t bytes)
{
    (void)stream, (void)bytes;
}

static const struct stream_events DROPPED = {
    .on_data = on_dropped_data,
    .on_end = on_dropped_end,
    .on_reset = on_dropped_reset,
    .on_sent = on_dropped_sent,
};

/* Not an RPC: the call is forgotten before it began. */
static void
answer_plain(struct server_stream *self, const struct plain_answer *answer)
{
    struct call *call = self->call;
    struct stream *stream = self->stream;
    send_plain(call, stream, answer);
    if (stream->in_end || stream->transport == STREAM_H1) {
        stream_detach(stream);
    } else {
        stream->events = &DROPPED;
        stream->owner = NULL;
        stream->fields = stream->trailer_fields = NULL; /* they lay in the call */
    }
    self->stream = NULL;
    call_finish(call);
}

static const struct codec *
choose_codec(struct call *call, struct text content_type)
{
    struct content_type type = content_type_parse(&call->arena, content_type);
    call->request.codec = type.codec;
    switch (type.kind) {
    case CONTENT_GRPC:
        call->protocol = PROTOCOL_GRPC;
        return &grpc_codec;
    case CONTENT_BARE:
        call->protocol = header_find(&call->request.head, HEADER_CONNECT_VERSION) ? PROTOCOL_CONNECT
                                                                                  : PROTOCOL_TRIPLE;
        return &triple_codec;
    default:
        return NULL;
    }
}

/* "/SERVICE/METHOD": what a bare request must name to be an RPC. */
static bool
names_method(struct text path)
{
    ptrdiff_t slash = path.len > 1 && path.ptr[0] == '/' ? text_find(path, '/', 1) : -1;
    return slash > 1 && (size_t)slash + 1 < path.len;
}

/* NULL: it is an RPC, and *codec reads it. */
static const struct plain_answer *
sort_request(struct call *call, enum stream_transport transport, const struct codec **codec)
{
    const struct fields *head = &call->request.head;
    struct text method = TEXT_NONE, content_type = TEXT_NONE;
    unsigned content_types = 0;
    fields_for_each (field, head) {
        if (header_is(field, HEADER_METHOD)) {
            method = field->value;
        } else if (header_is(field, HEADER_CONTENT_TYPE)) {
            content_type = field->value;
            content_types++;
        }
    }
    if (!text_eq(method, TEXT("POST")))
        return &NOT_POST;
    *codec = content_types == 1 ? choose_codec(call, content_type) : NULL;
    if (!*codec)
        return &NOT_RPC;
    if ((*codec)->form == FORM_FRAMED)
        return transport == STREAM_H1 ? &NOT_HTTP2 : NULL;
    return names_method(request_common_path(header_value(head, HEADER_PATH))) ? NULL : &NOT_FOUND;
}

static void
on_head(struct stream *stream, bool end)
{
    struct server_stream *self = stream->owner;
    struct call *call = self->call;
    const struct plain_answer *plain = sort_request(call, stream->transport, &call->down_codec);
    if (plain) {
        answer_plain(self, plain);
        return;
    }
    bool understood = call->down_codec->read_request(call);
    if (stream->fields_overflow)
        call_set_error(call, RPC_RESOURCE_EXHAUSTED, REASON_HEADERS_TOO_LONG,
                       "header list is over max_header_list");
    if (!understood || stream->fields_overflow)
        call_refuse(call, stream->head_ns);
    else
        call_start(call, stream->head_ns, end);
}

void
server_stream_open(struct stream *stream, const struct server_peer *peer)
{
    struct worker *worker = peer->worker;
    struct server_stream *self = slab_zalloc(&worker->ctx.slab, sizeof(*self));
    self->stream = stream;
    self->peer = peer;
    self->call = call_new(worker, &OPS, self);
    self->call->listener = peer->listener;
    stream->owner = self;
    stream->events = &EVENTS;
    stream->fields = &self->call->request.head;
    stream->trailer_fields = NULL;
}
