/*
 * The gRPC server codec: gRPC over HTTP/2 (PROTOCOL-HTTP2.md), which is also what Dubbo clients
 * speak by default.
 *
 * Owns the meaning of gRPC's request fields and the shape of its replies: Response-Headers,
 * Trailers, Trailers-Only.
 */
#include "downstream/grpc.h"

#include "downstream/request_common.h"
#include "proxy/wire/content_type.h"
#include "proxy/wire/percent.h"
#include "proxy/wire/status_proto.h"
#include "proxy/wire/timeout.h"

/* grpc-java and many servers' clients take 8 KiB of trailers: longer ones are shortened, message
 * first, then details. */
enum { TRAILER_TEXT_MAX = 6 * 1024 };

static const struct field STATUS_200 = {{":status", 7}, {"200", 3}, FIELD_STATIC};
static const struct text ACCEPTED = {"identity,gzip", 13};

/* --- requests --- */

static bool
read_timeout(struct call *call, struct text value)
{
    bool again = call->request.timeout_ns != UINT64_MAX;
    if (!again && timeout_from_grpc(value, &call->request.timeout_ns))
        return true;
    if (again)
        call_set_error(call, RPC_INTERNAL, REASON_BAD_TIMEOUT, "several grpc-timeout fields");
    else
        call_set_error(call, RPC_INTERNAL, REASON_BAD_TIMEOUT, "malformed grpc-timeout \"%.*s\"",
                       (int)(value.len < 32 ? value.len : 32), value.len ? value.ptr : "");
    return false;
}

static bool
read_special(struct call *call, enum header_class class, const struct field *field)
{
    struct call_request *request = &call->request;
    switch (class) {
    case HEADER_CONTENT_TYPE:
        request->codec = content_type_parse(&call->arena, field->value).codec;
        return true;
    case HEADER_GRPC_TIMEOUT:
        return read_timeout(call, field->value);
    case HEADER_GRPC_ENCODING:
        request->encoding_name = field->value;
        request->encoding = encoding_of(field->value);
        return true;
    case HEADER_GRPC_ACCEPT_ENCODING:
        request->accept_encoding = field->value;
        return true;
    case HEADER_GRPC_OTHER:
        /* grpc-trace-bin, grpc-tags-bin: call context that must reach a framed provider; the bare
         * codec drops what starts with grpc-. */
        fields_add(&request->metadata, field->name, field->value, field->flags);
        return true;
    default:
        return true; /* hop-by-hop, te, and HTTP fields that mean nothing here: dropped */
    }
}

/* Dubbo's clients name no gRPC library and carry tri- fields or Dubbo's own (wire.md, "Consumers").
 */
static bool
is_dubbo_client(const struct call *call)
{
    bool tri = false;
    fields_for_each (field, &call->request.head) {
        if (text_eq(field->name, TEXT("user-agent")) && text_starts(field->value, TEXT("grpc-")))
            return false;
        tri |= text_starts(field->name, TEXT("tri-")) || text_eq(field->name, TEXT("interface"));
    }
    return tri;
}

static bool
grpc_read_request(struct call *call)
{
    call->request.form = FORM_FRAMED;
    if (!request_common_read(call, read_special))
        return false;
    call->request.content_length = -1; /* counts prefixes: of no use behind them */
    call->request.dubbo_client = is_dubbo_client(call);
    return true;
}

/* --- replies --- */

static void
add_all(struct fields *out, const struct fields *from)
{
    fields_for_each (field, from)
        fields_add(out, field->name, field->value, field->flags);
}

static void
grpc_write_head(struct call *call, struct fields *out)
{
    fields_add(out, STATUS_200.name, STATUS_200.value, STATUS_200.flags);
    fields_add(out, TEXT("content-type"), content_type_framed(&call->arena, call->request.codec),
               FIELD_STATIC_NAME);
    if (call->reply.encoding_name.len > 0)
        fields_add(out, TEXT("grpc-encoding"), call->reply.encoding_name, FIELD_STATIC_NAME);
    add_all(out, &call->reply.metadata);
}

/* A plain error of a provider's handler: what grpc-go itself makes of one, with the number kept
 * beside it. */
static void
translate_code_17(struct call *call, struct rpc_status *status, struct fields *out)
{
    struct rpc_detail *details =
        arena_alloc(&call->arena, (status->detail_count + 1) * sizeof(*details));
    if (status->detail_count > 0)
        memcpy(details, status->details, status->detail_count * sizeof(*details));
    details[status->detail_count] = status_proto_error_info(
        &call->arena, TEXT("TRIPLE_BUSINESS_ERROR"), TEXT("dubbo.apache.org"), NULL, 0);
    status->details = details;
    status->detail_count++;
    status->code = RPC_UNKNOWN;
    status->details_bin = TEXT_NONE;
    fields_add(out, TEXT("tri-status-code"), TEXT("17"), FIELD_STATIC);
}

/* Details as received when they came framed and still agree with the code; built otherwise. */
static struct text
details_bin(struct call *call, const struct rpc_status *status)
{
    if (status->details_bin.len > 0)
        return status->details_bin;
    return status->detail_count > 0 ? status_proto_details_bin(&call->arena, status) : TEXT_NONE;
}

static void
write_status(struct call *call, const struct rpc_status *original, struct fields *out)
{
    struct rpc_status status = *original;
    if (status.code == RPC_BIZ && !call->request.dubbo_client) {
        if (status.detail_count == 0 && status.details_bin.len > 0)
            status_proto_read_details_bin(&call->arena, status.details_bin, &status);
        translate_code_17(call, &status, out);
    }
    struct text code = status_code_text(status.code);
    if (code.len > 0)
        fields_add(out, TEXT("grpc-status"), code, FIELD_STATIC);
    else
        fields_add(out, TEXT("grpc-status"), arena_printf(&call->arena, "%d", status.code),
                   FIELD_STATIC_NAME);
    struct text details = details_bin(call, &status);
    size_t room = details.len < TRAILER_TEXT_MAX ? TRAILER_TEXT_MAX - details.len : 0;
    struct text message = percent_encode(&call->arena, status.message, call->request.dubbo_client);
    if (message.len > room && message.len > 256) {
        struct text cut = text_make(
            status.message.ptr, percent_utf8_cut(status.message, room / 3 > 85 ? room / 3 : 85));
        message = percent_encode(&call->arena, cut, call->request.dubbo_client);
    }
    if (message.len > 0)
        fields_add(out, TEXT("grpc-message"), message, FIELD_STATIC_NAME | FIELD_NO_INDEX);
    if (details.len > 0 && details.len <= TRAILER_TEXT_MAX)
        fields_add(out, TEXT("grpc-status-details-bin"), details,
                   FIELD_STATIC_NAME | FIELD_NO_INDEX);
}

static void
grpc_write_end(struct call *call, struct fields *out, bool head_is_out)
{
    if (!head_is_out) {
        fields_add(out, STATUS_200.name, STATUS_200.value, STATUS_200.flags);
        fields_add(out, TEXT("content-type"),
                   content_type_framed(&call->arena, call->request.codec), FIELD_STATIC_NAME);
    }
    write_status(call, &call->status, out);
    if (call->reason == REASON_ENCODING)
        fields_add(out, TEXT("grpc-accept-encoding"), ACCEPTED, FIELD_STATIC);
    if (!head_is_out)
        add_all(out, &call->reply.metadata);
    add_all(out, &call->reply.trailers);
}

const struct codec grpc_codec = {
    .name = "grpc",
    .form = FORM_FRAMED,
    .read_request = grpc_read_request,
    .write_head = grpc_write_head,
    .write_end = grpc_write_end,
};
