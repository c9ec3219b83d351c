/*
 * The bare client codec: Triple's unary form and Connect's, which differ in field names and tables
 * (wire.md, sections 1 and 2).
 *
 * Request: a POST whose body is the message. Reply: 200 with the message, or another status with a
 * JSON error; trailers are "trailer-NAME" fields. A provider that does not take this form refuses
 * before any handler has run: read_end says so, the call decides what follows.
 */
#include "upstream/client_codecs.h"

#include "proxy/wire/content_type.h"
#include "proxy/wire/error_json.h"
#include "proxy/wire/timeout.h"
#include "upstream/codec_common.h"
#include "upstream/reply_framed.h"

static enum dialect
dialect_of(const struct call *call)
{
    return call->route->upstream->dialect;
}

/* --- requests --- */

static void
add_length(struct call *call, struct fields *out)
{
    int64_t length = flow_bare_length(&call->request_flow);
    if (!call->route->content_length || call->path == PATH_RELAY || length < 0)
        return;
    fields_add(out, TEXT("content-length"), arena_decimal(&call->arena, (uint64_t)length),
               FIELD_STATIC_NAME);
}

static void
add_protocol(struct call *call, struct fields *out)
{
    bool connect = dialect_of(call) == DIALECT_CONNECT;
    uint64_t remaining = call_remaining_ns(call);
    if (connect)
        fields_add(out, TEXT("connect-protocol-version"), TEXT("1"), FIELD_STATIC);
    else
        fields_add(out, TEXT("triple-protocol-version"), TEXT("0.1.0"), FIELD_STATIC);
    if (remaining != UINT64_MAX)
        fields_add(out, connect ? TEXT("connect-timeout-ms") : TEXT("triple-timeout-ms"),
                   timeout_to_ms(&call->arena, remaining), FIELD_STATIC_NAME | FIELD_NO_INDEX);
}

static void
add_encodings(struct call *call, struct fields *out)
{
    const struct flow *flow = &call->request_flow;
    bool compressed = flow->from == FORM_FRAMED ? flow->first_compressed : flow->bare_compressed;
    if (compressed && !flow->inflate)
        fields_add(out, TEXT("content-encoding"), call->request.encoding_name, FIELD_STATIC_NAME);
    if (call->route->upstream->forward_accept_encoding &&
        encoding_offered(call->request.accept_encoding, TEXT("gzip")))
        fields_add(out, TEXT("accept-encoding"), TEXT("gzip"), FIELD_STATIC);
}

static void
bare_write_request(struct call *call, struct fields *out)
{
    codec_common_pseudo(call, out);
    fields_add(out, TEXT("content-type"), content_type_bare(&call->arena, call->request.codec),
               FIELD_STATIC_NAME);
    add_length(call, out);
    add_protocol(call, out);
    add_encodings(call, out);
    codec_common_metadata(call, out, false);
}

/* --- replies --- */

static void
sort_field(struct call_reply *reply, const struct field *field)
{
    uint64_t length;
    enum header_class class = header_class_of_field(field);
    switch (class) {
    case HEADER_CONTENT_LENGTH:
        if (text_to_u64(field->value, &length) && length <= INT64_MAX)
            reply->content_length = (int64_t)length;
        break;
    case HEADER_CONTENT_ENCODING:
        reply->encoding_name = field->value;
        reply->encoding = encoding_of(field->value);
        if (reply->encoding == ENCODING_IDENTITY)
            reply->encoding_name = TEXT_NONE;
        break;
    case HEADER_TRAILER_PREFIXED: {
        struct text name = text_from(field->name, strlen("trailer-"));
        if (codec_common_passes(header_class_of(name)))
            fields_add(&reply->trailers, name, field->value, 0);
        break;
    }
    default:
        if (codec_common_passes(class))
            fields_add(&reply->metadata, field->name, field->value, field->flags);
    }
}

/* A 200 whose content-type is not that of the request is no message: HTML of a middlebox, the wrong
 * codec, two types. */
static bool
is_message(const struct call *call, const struct content_type *type, unsigned types)
{
    return call->reply.http_status == 200 && types == 1 && type->kind == CONTENT_BARE &&
           text_eq(type->codec, call->request.codec);
}

static void
bare_read_reply(struct call *call, bool end)
{
    struct call_reply *reply = &call->reply;
    struct content_type type =
        content_type_parse(&call->arena, header_value(&reply->head, HEADER_CONTENT_TYPE));
    reply->http_status = codec_common_status(&reply->head);
    /* Asked bare, answered framed: never framed once more. A 415 is a refusal whatever it says. */
    if (type.kind == CONTENT_GRPC && reply->http_status != 415) {
        reply_framed_read_head(call, end);
        return;
    }
    reply->form = FORM_BARE;
    reply->codec = type.codec;
    unsigned types = 0;
    fields_for_each (field, &reply->head) {
        types += header_is(field, HEADER_CONTENT_TYPE);
        sort_field(reply, field);
    }
    reply->body_is_error = !is_message(call, &type, types);
    bool json = type.kind == CONTENT_BARE && text_eq(type.codec, TEXT("json"));
    reply->error_body_max = json && reply->http_status != 200 ? ERROR_JSON_MAX_BYTES : 0;
}

static struct text
copy_out(struct call *call, const struct slices *body)
{
    char *bytes = arena_alloc(&call->arena, body->bytes + 1);
    slices_peek(body, bytes, body->bytes);
    bytes[body->bytes] = 0;
    return text_make(bytes, body->bytes);
}

/* Connect allows compressed errors (dubbo-go sends none). What does not decompress is read as it
 * is: no JSON. */
static struct text
held_body(struct call *call)
{
    const struct slices *body = &call->reply_flow.body;
    struct slices plain;
    slices_init(&plain);
    bool inflated =
        call->reply.encoding == ENCODING_GZIP &&
        encoding_gunzip(&call->worker->ctx.chunks, body, &plain, ERROR_JSON_MAX_BYTES) == 0;
    struct text text = copy_out(call, inflated ? &plain : body);
    slices_clear(&plain);
    return text;
}

static void
read_json_error(struct call *call)
{
    struct call_reply *reply = &call->reply;
    struct text body = held_body(call);
    switch (
        error_json_read(&call->arena, body, reply->http_status, dialect_of(call), &reply->status)) {
    case ERROR_JSON_OK:
        reply->bare_error_has_code = true;
        reply->provider_error = body;
        return;
    case ERROR_JSON_BAD_CODE:
        return;
    case ERROR_JSON_NO_CODE:
        /* dubbo-java 3.3's "Invoker not found"; its REST side answers JSON calls so for real errors
         * too. */
        if (reply->http_status == 404 && !text_eq(call->request.codec, TEXT("json")))
            reply->refusal = REFUSAL_ENDPOINT;
        return;
    case ERROR_JSON_UNREADABLE:
        codec_common_http_status(call, status_from_http(reply->http_status, dialect_of(call)),
                                 "with unreadable JSON");
    }
}

static void
read_error(struct call *call)
{
    struct call_reply *reply = &call->reply;
    int http = reply->http_status;
    bool json = text_eq(reply->codec, TEXT("json"));
    if (http == 415)
        reply->refusal =
            fields_find(&reply->head, TEXT("grpc-status")) ? REFUSAL_ENDPOINT : REFUSAL_METHOD;
    else if (http == 505) /* dubbo-go's and connect-go's bidi methods on transport = http1: before
                             any handler, and before they look at the content-type */
        reply->refusal = REFUSAL_METHOD;
    if (http == 200)
        codec_common_http_status(call, RPC_INTERNAL, "with a content-type that was not asked for");
    else if (json && call->reply_flow.body.bytes > 0)
        read_json_error(call);
    else
        codec_common_http_status(call, status_from_http(http, dialect_of(call)),
                                 "without a readable error");
}

static void
bare_read_end(struct call *call, const struct fields *trailers)
{
    struct call_reply *reply = &call->reply;
    if (reply->form == FORM_FRAMED)
        reply_framed_read_end(call, trailers);
    else if (reply->body_is_error)
        read_error(call);
    else
        reply->status.code = RPC_OK;
}

const struct codec bare_codec = {
    .name = "bare",
    .form = FORM_BARE,
    .write_request = bare_write_request,
    .read_reply = bare_read_reply,
    .read_end = bare_read_end,
};
