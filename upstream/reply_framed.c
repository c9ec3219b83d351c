/*
 * Replies in gRPC framing: Response-Headers and Trailers, or Trailers-Only (PROTOCOL-HTTP2.md,
 * "Responses"), as Go and Java providers really send them: dubbo-java 3.3 puts errors into one
 * HEADERS with a status other than 200 and a raw grpc-message.
 */
#include "upstream/reply_framed.h"

#include "proxy/wire/content_type.h"
#include "proxy/wire/percent.h"
#include "proxy/wire/status_proto.h"
#include "upstream/codec_common.h"

static void
sort_field(struct call_reply *reply, const struct field *field, struct fields *custom)
{
    enum header_class class = header_class_of_field(field);
    switch (class) {
    case HEADER_GRPC_ENCODING:
        reply->encoding_name = field->value;
        reply->encoding = encoding_of(field->value);
        if (reply->encoding == ENCODING_IDENTITY)
            reply->encoding_name = TEXT_NONE;
        break;
    case HEADER_GRPC_OTHER:
        break; /* reserved names are nobody's metadata */
    default:
        if (codec_common_passes(class))
            fields_add(custom, field->name, field->value, field->flags);
    }
}

void
reply_framed_read_head(struct call *call, bool end)
{
    struct call_reply *reply = &call->reply;
    struct content_type type =
        content_type_parse(&call->arena, header_value(&reply->head, HEADER_CONTENT_TYPE));
    reply->form = FORM_FRAMED;
    reply->http_status = codec_common_status(&reply->head);
    reply->codec = type.codec;
    bool has_status = header_find(&reply->head, HEADER_GRPC_STATUS) != NULL;
    reply->ends_with_head = end;
    /* A page of a middlebox, or an error that carries its status in the head: no message follows.
     */
    reply->body_is_error =
        !end && (type.kind != CONTENT_GRPC || (reply->http_status != 200 && has_status));
    struct fields *custom = end || reply->body_is_error ? &reply->trailers : &reply->metadata;
    fields_for_each (field, &reply->head)
        sort_field(reply, field, custom);
}

/* Each byte as the character of that number, in UTF-8. */
static struct text
from_latin1(struct arena *arena, struct text text)
{
    char *out = arena_alloc(arena, text.len * 2);
    size_t len = 0;
    for (size_t i = 0; i < text.len; i++) {
        uint8_t byte = (uint8_t)text.ptr[i];
        if (byte >= 0x80)
            out[len++] = (char)(0xc0 | byte >> 6);
        out[len++] = (char)(byte < 0x80 ? byte : 0x80 | (byte & 0x3f));
    }
    return text_make(out, len);
}

/*
 * dubbo-java 3.3 sends its errors in one head with a status other than 200, and their message raw:
 * a '%' is a '%', and what is no UTF-8 is Latin-1. Any byte that gRPC would have escaped tells the
 * same.
 */
static struct text
read_message(struct call *call, struct text value)
{
    bool raw = call->reply.http_status != 200;
    for (size_t i = 0; i < value.len && !raw; i++)
        raw = (uint8_t)value.ptr[i] < 0x20 || (uint8_t)value.ptr[i] > 0x7e;
    if (!raw)
        return percent_decode(&call->arena, value);
    bool utf8 = percent_utf8(&call->arena, value).ptr == value.ptr; /* itself when it is valid */
    return utf8 ? value : from_latin1(&call->arena, value);
}

/* dubbo-java 3.2 percent-encodes the message inside the details as well, which nobody else decodes
 * there: the details are built again, with the message as it is meant. */
static void
mend_details(struct call *call)
{
    struct rpc_status *status = &call->reply.status;
    struct text inside;
    if (!status_proto_read_details_message(&call->arena, status->details_bin, &inside) ||
        text_eq(inside, status->message) ||
        !text_eq(percent_decode(&call->arena, inside), status->message))
        return;
    status_proto_read_details_bin(&call->arena, status->details_bin, status);
    status->details_bin = TEXT_NONE;
}

static void
read_status(struct call *call, const struct fields *fields, struct text code)
{
    struct call_reply *reply = &call->reply;
    int value = status_from_field(code);
    bool once = header_count(fields, HEADER_GRPC_STATUS) == 1;
    if (value < 0 || !once) {
        call_set_error(call, RPC_UNKNOWN, REASON_MALFORMED_REPLY,
                       "provider sent a malformed grpc-status");
        reply->status = call->status;
        return;
    }
    reply->status.code = value;
    reply->status.message = read_message(call, header_value(fields, HEADER_GRPC_MESSAGE));
    if (fields_count(fields, TEXT("grpc-status-details-bin")) == 1)
        reply->status.details_bin = fields_value(fields, TEXT("grpc-status-details-bin"));
    if (reply->status.details_bin.len > 0)
        mend_details(call);
}

static void
missing_status(struct call *call)
{
    struct call_reply *reply = &call->reply;
    if (reply->http_status == 200) {
        /* Asked in the bare form it has answered in another protocol, and not even that fully. */
        enum rpc_code code = call->upstream_form == FORM_BARE ? RPC_INTERNAL : RPC_UNKNOWN;
        call_set_error(call, code, REASON_MISSING_STATUS,
                       "provider ended the reply without a grpc-status");
        reply->status = call->status;
    } else {
        codec_common_http_status(call, status_from_http_framed(reply->http_status),
                                 "without a grpc-status");
    }
}

/* dubbo-java 3.2 keeps what it could not read in the stack of a DebugInfo. */
static bool
stack_names_wrapper(struct call *call)
{
    struct rpc_status status = call->reply.status;
    if (status.code != RPC_UNKNOWN)
        return false;
    if (status.details_bin.len > 0)
        status_proto_read_details_bin(&call->arena, status.details_bin, &status);
    for (unsigned i = 0; i < status.detail_count; i++) {
        struct text value = status.details[i].value;
        if (memmem(value.ptr, value.len, "WrapRequestUnpack", strlen("WrapRequestUnpack")))
            return true;
    }
    return false;
}

/*
 * A Java service without IDL takes its arguments in Dubbo's wrapper messages. Called with a plain
 * message, 3.3 answers "Internal Server Error" or even OK with a serialized exception, always with
 * tri-exception-code in its head; Dubbo clients know what to make of that, gRPC clients do not.
 */
static void
explain_wrapper(struct call *call)
{
    struct call_reply *reply = &call->reply;
    if (call->request.dubbo_client ||
        (!fields_find(&reply->head, TEXT("tri-exception-code")) && !stack_names_wrapper(call)))
        return;
    struct text said = reply->status.message;
    if (reply->status.code == RPC_OK)
        reply->status.code = RPC_UNKNOWN;
    reply->status.details_bin = TEXT_NONE;
    reply->status.detail_count = 0;
    reply->status.message =
        arena_printf(&call->arena,
                     "the service is a Java interface without IDL: it takes Dubbo's wrapper "
                     "messages, which gRPC clients do not send%s%.*s",
                     said.len > 0 ? ": " : "", TEXT_ARGS(said));
}

void
reply_framed_read_end(struct call *call, const struct fields *trailers)
{
    struct call_reply *reply = &call->reply;
    const struct fields *from = NULL;
    if (trailers) {
        fields_for_each (field, trailers)
            sort_field(reply, field, &reply->trailers);
        if (header_find(trailers, HEADER_GRPC_STATUS))
            from = trailers;
    }
    /* In the head only where it is all there is: a status beside messages would be another's
     * opinion. */
    bool head_counts = reply->ends_with_head || reply->body_is_error;
    if (!from && head_counts && header_find(&reply->head, HEADER_GRPC_STATUS))
        from = &reply->head;
    if (from)
        read_status(call, from, header_value(from, HEADER_GRPC_STATUS));
    else
        missing_status(call);
    explain_wrapper(call);
}
