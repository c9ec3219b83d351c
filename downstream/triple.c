/*
 * The Triple server codec: the bare form. A request body is the message; errors are JSON with an
 * HTTP status, trailers are "trailer-NAME" headers. Also the Connect protocol's unary form, which
 * differs in field names and tables only (dialect).
 *
 * Sources: wire.md sections 1 and 2 restate what dubbo-go and connect-go do.
 */
#include "downstream/triple.h"

#include "downstream/request_common.h"
#include "proxy/wire/content_type.h"
#include "proxy/wire/error_json.h"
#include "proxy/wire/status_proto.h"
#include "proxy/wire/timeout.h"

static enum dialect
dialect_of(const struct call *call)
{
    return call->protocol == PROTOCOL_CONNECT ? DIALECT_CONNECT : DIALECT_TRIPLE;
}

/* --- requests --- */

static bool
refuse(struct call *call, enum rpc_code code, enum stats_reason reason, const char *what,
       struct text value)
{
    call_set_error(call, code, reason, "%s \"%.*s\"", what, (int)(value.len < 32 ? value.len : 32),
                   value.len ? value.ptr : "");
    return false;
}

static bool
read_version(struct call *call, const struct field *field, struct text known)
{
    if (field->value.len == 0 || text_eq(field->value, known))
        return true;
    call_set_error(call, RPC_INVALID_ARGUMENT, REASON_MALFORMED_REQUEST,
                   "%.*s must be \"%.*s\": got \"%.*s\"", TEXT_ARGS(field->name), TEXT_ARGS(known),
                   (int)(field->value.len < 32 ? field->value.len : 32), field->value.ptr);
    return false;
}

static bool
read_timeout(struct call *call, struct text value)
{
    if (value.len == 0)
        return true; /* as good as none */
    switch (timeout_from_ms(value, &call->request.timeout_ns)) {
    case TIMEOUT_MS_OK:
        return true;
    case TIMEOUT_MS_EXPIRED:
        call->request.timeout_ns = 0;
        return true; /* ends 408 when the call starts */
    default:
        return refuse(call, RPC_INVALID_ARGUMENT, REASON_BAD_TIMEOUT, "malformed timeout", value);
    }
}

static bool
read_content_encoding(struct call *call, struct text value)
{
    call->request.encoding_name = value;
    call->request.encoding = encoding_of(value);
    if (call->request.encoding != ENCODING_OTHER)
        return true;
    return refuse(call, RPC_UNIMPLEMENTED, REASON_ENCODING,
                  "supported encodings are identity and gzip, not", value);
}

static bool
read_special(struct call *call, enum header_class class, const struct field *field)
{
    switch (class) {
    case HEADER_TRIPLE_VERSION:
        return read_version(call, field, TEXT("0.1.0"));
    case HEADER_CONNECT_VERSION:
        return read_version(call, field, TEXT("1"));
    case HEADER_TRIPLE_TIMEOUT:
    case HEADER_CONNECT_TIMEOUT:
        return read_timeout(call, field->value);
    case HEADER_CONTENT_ENCODING:
        return read_content_encoding(call, field->value);
    case HEADER_ACCEPT_ENCODING:
        call->request.accept_encoding = field->value;
        return true;
    default:
        return true;
    }
}

static bool
triple_read_request(struct call *call)
{
    call->request.form = FORM_BARE;
    return request_common_read(call, read_special);
}

/* --- replies --- */

static void
add_all(struct fields *out, const struct fields *from)
{
    fields_for_each (field, from)
        fields_add(out, field->name, field->value, field->flags);
}

static void
add_trailers(struct call *call, struct fields *out)
{
    fields_for_each (field, &call->reply.trailers)
        fields_add(out, arena_printf(&call->arena, "trailer-%.*s", TEXT_ARGS(field->name)),
                   field->value, 0);
}

static void
add_length(struct call *call, struct fields *out, uint64_t bytes)
{
    fields_add(out, TEXT("content-length"), arena_decimal(&call->arena, bytes),
               FIELD_STATIC_NAME | FIELD_NO_INDEX);
}

static void
triple_write_head(struct call *call, struct fields *out)
{
    fields_add(out, TEXT(":status"), TEXT("200"), FIELD_STATIC);
    fields_add(out, TEXT("content-type"), content_type_bare(&call->arena, call->request.codec),
               FIELD_STATIC_NAME);
    if (call->reply.encoding_name.len > 0)
        fields_add(out, TEXT("content-encoding"), call->reply.encoding_name, FIELD_STATIC_NAME);
    int64_t length = flow_bare_length(&call->reply_flow);
    if (length >= 0)
        add_length(call, out, (uint64_t)length);
    add_all(out, &call->reply.metadata);
    add_trailers(call, out);
}

/* The provider's own JSON goes on untouched when it was written for this kind of client. */
static struct text
error_body(struct call *call, const struct rpc_status *status)
{
    if (call->reply.provider_error.len > 0 && call->route->upstream->dialect == dialect_of(call))
        return call->reply.provider_error;
    return error_json_write(&call->arena, status);
}

static void
triple_write_end(struct call *call, struct fields *out, bool head_is_out)
{
    if (head_is_out)
        return; /* the status was the head's */
    struct rpc_status status = call->status;
    if (status.code == RPC_BIZ && call->protocol == PROTOCOL_CONNECT)
        status.code = RPC_UNKNOWN;
    if (status.detail_count == 0 && status.details_bin.len > 0)
        status_proto_read_details_bin(&call->arena, status.details_bin, &status);
    call->reply.error_body = error_body(call, &status);
    fields_add(out, TEXT(":status"),
               arena_printf(&call->arena, "%d", status_to_http(status.code, dialect_of(call))),
               FIELD_STATIC_NAME);
    fields_add(out, TEXT("content-type"), TEXT("application/json"), FIELD_STATIC);
    add_length(call, out, call->reply.error_body.len);
    add_all(out, &call->reply.metadata);
    add_trailers(call, out);
}

const struct codec triple_codec = {
    .name = "triple",
    .form = FORM_BARE,
    .read_request = triple_read_request,
    .write_head = triple_write_head,
    .write_end = triple_write_end,
};
