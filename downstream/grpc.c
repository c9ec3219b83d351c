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

/*
 * grpc-java, Netty and others end the call for a header list over 8 KiB (RFC 9113 section 6.5.2's
 * count, 32 bytes a field): a status that would not fit beside the metadata is shortened. Half a
 * KiB is spared for grpc-accept-encoding and what a proxy behind us may add.
 */
enum { TRAILERS_MOST = 8192 - 512, MESSAGE_LEAST = 512, ENTRY_BYTES = 32 };

static const struct field STATUS_200 = {{":status", 7}, {"200", 3}, FIELD_STATIC, 0};
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

/* dubbo-go calls itself grpc-go-triple; dubbo-java names no library and carries tri- fields. A gRPC
 * library is none, even where its user sets tri-service-version. */
static void
read_client(struct call_request *request)
{
    struct text agent = fields_value(&request->metadata, TEXT("user-agent"));
    bool tri = false;
    request->dubbo_client = text_starts(agent, TEXT("grpc-go-triple"));
    if (text_starts(agent, TEXT("grpc-")))
        return;
    fields_for_each (field, &request->head)
        tri |= text_starts(field->name, TEXT("tri-")) || text_eq(field->name, TEXT("interface"));
    request->dubbo_client = request->java_client = tri;
}

static bool
grpc_read_request(struct call *call)
{
    call->request.form = FORM_FRAMED;
    if (!request_common_read(call, read_special))
        return false;
    call->request.content_length = -1; /* counts prefixes: of no use behind them */
    read_client(&call->request);
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
    if (status->detail_count == 0 && status->details_bin.len > 0)
        status_proto_read_details_bin(&call->arena, status->details_bin, status);
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
    if (!fields_find(&call->reply.trailers, TEXT("tri-status-code")))
        fields_add(out, TEXT("tri-status-code"), TEXT("17"), FIELD_STATIC);
}

/* What a status says beside its code, as its other two trailers carry it. */
struct status_texts {
    struct text message, details;
};

/* dubbo-java takes the message from the details and URL-decodes it there as well. */
static struct text
details_for_java(struct call *call, const struct rpc_status *status, struct text message)
{
    struct rpc_status escaped = *status;
    if (escaped.detail_count == 0 &&
        !status_proto_read_details_bin(&call->arena, status->details_bin, &escaped))
        return status->details_bin;
    escaped.message = message;
    return status_proto_details_bin(&call->arena, &escaped);
}

static struct status_texts
status_texts(struct call *call, const struct rpc_status *status)
{
    struct arena *arena = &call->arena;
    struct status_texts texts = {.details = status->details_bin};
    texts.message = percent_encode(arena, status->message, call->request.dubbo_client);
    /* As received when they came framed; built otherwise. */
    if (texts.details.len == 0 && status->detail_count > 0)
        texts.details = status_proto_details_bin(arena, status);
    bool escaped = texts.message.ptr != status->message.ptr;
    if (call->request.java_client && escaped && texts.details.len > 0)
        texts.details = details_for_java(call, status, texts.message);
    return texts;
}

/* What the two trailers that may be cut count in a header list; without them nothing. */
static size_t
texts_size(const struct status_texts *texts)
{
    size_t size = 0;
    if (texts->message.len > 0)
        size += texts->message.len + strlen("grpc-message") + ENTRY_BYTES;
    if (texts->details.len > 0)
        size += texts->details.len + strlen("grpc-status-details-bin") + ENTRY_BYTES;
    return size;
}

/* Shorten the message until all fits into `room`, but not below `least` bytes. What is longer than
 * the room by itself is not even encoded: a provider's message may have megabytes. */
static struct status_texts
cut_message(struct call *call, struct rpc_status *status, size_t room, size_t least)
{
    status->message.len = percent_utf8_cut(status->message, room > least ? room : least);
    struct status_texts texts = status_texts(call, status);
    while (texts_size(&texts) > room && status->message.len > least) {
        size_t shorter = status->message.len * 3 / 4;
        status->message.len = percent_utf8_cut(status->message, shorter < room ? shorter : room);
        texts = status_texts(call, status);
    }
    return texts;
}

/*
 * Cut the status to `room` bytes of header list: first the message, down to MESSAGE_LEAST, then the
 * details go, then the message alone gets what there is. The details hold the message too and are
 * built again, since the two must agree.
 */
static struct status_texts
fit(struct call *call, struct rpc_status *status, size_t room)
{
    struct status_texts texts;
    if (status->message.len <= room) {
        texts = status_texts(call, status);
        if (texts_size(&texts) <= room)
            return texts;
    }
    if (status->detail_count == 0 && status->details_bin.len > 0)
        status_proto_read_details_bin(&call->arena, status->details_bin, status);
    status->details_bin = TEXT_NONE;
    texts = cut_message(call, status, room, status->detail_count > 0 ? MESSAGE_LEAST : 0);
    if (texts_size(&texts) <= room)
        return texts;
    status->detail_count = 0;
    return cut_message(call, status, room, 0);
}

static void
add_texts(struct call *call, struct rpc_status *status, size_t room, struct fields *out)
{
    struct status_texts texts = fit(call, status, room);
    if (texts.message.len > 0)
        fields_add(out, TEXT("grpc-message"), texts.message, FIELD_STATIC_NAME | FIELD_NO_INDEX);
    if (texts.details.len > 0)
        fields_add(out, TEXT("grpc-status-details-bin"), texts.details,
                   FIELD_STATIC_NAME | FIELD_NO_INDEX);
}

static struct text
code_text(struct arena *arena, int code)
{
    struct text known = status_code_text(code);
    return known.len > 0 ? known : arena_printf(arena, "%d", code);
}

static void
write_status(struct call *call, struct fields *out, size_t others)
{
    struct rpc_status status = call->status;
    size_t used = others + strlen("grpc-status") + 3 + ENTRY_BYTES;
    if (status.code == RPC_BIZ && !call->request.dubbo_client)
        translate_code_17(call, &status, out);
    fields_add(out, TEXT("grpc-status"), code_text(&call->arena, status.code), FIELD_STATIC_NAME);
    if (status.message.len > 0 || status.detail_count > 0 || status.details_bin.len > 0)
        add_texts(call, &status, used < TRAILERS_MOST ? TRAILERS_MOST - used : 0, out);
}

static void
grpc_write_end(struct call *call, struct fields *out, bool head_is_out)
{
    size_t others = fields_list_size(&call->reply.trailers);
    if (!head_is_out) {
        others += fields_list_size(&call->reply.metadata);
        fields_add(out, STATUS_200.name, STATUS_200.value, STATUS_200.flags);
        fields_add(out, TEXT("content-type"),
                   content_type_framed(&call->arena, call->request.codec), FIELD_STATIC_NAME);
    }
    write_status(call, out, others + fields_list_size(out));
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
