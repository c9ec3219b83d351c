/*
 * The framed client codec: gRPC over HTTP/2 towards providers: all streams, and unary calls to
 * providers that take nothing bare.
 */
#include "upstream/client_codecs.h"

#include "proxy/wire/content_type.h"
#include "proxy/wire/timeout.h"
#include "upstream/codec_common.h"
#include "upstream/reply_framed.h"

static void
add_encodings(struct call *call, struct fields *out)
{
    const struct call_request *request = &call->request;
    if (request->encoding != ENCODING_IDENTITY && !call->request_flow.inflate)
        fields_add(out, TEXT("grpc-encoding"), request->encoding_name, FIELD_STATIC_NAME);
    if (call->route->upstream->forward_accept_encoding &&
        encoding_offered(request->accept_encoding, TEXT("gzip")))
        fields_add(out, TEXT("grpc-accept-encoding"), TEXT("gzip"), FIELD_STATIC);
}

static void
framed_write_request(struct call *call, struct fields *out)
{
    uint64_t remaining = call_remaining_ns(call);
    codec_common_pseudo(call, out);
    fields_add(out, TEXT("content-type"), content_type_framed(&call->arena, call->request.codec),
               FIELD_STATIC_NAME);
    fields_add(out, TEXT("te"), TEXT("trailers"), FIELD_STATIC);
    if (remaining != UINT64_MAX)
        fields_add(out, TEXT("grpc-timeout"),
                   timeout_to_grpc(&call->arena, remaining ? remaining : 1),
                   FIELD_STATIC_NAME | FIELD_NO_INDEX);
    add_encodings(call, out);
    codec_common_metadata(call, out, true);
}

const struct codec framed_codec = {
    .name = "framed",
    .form = FORM_FRAMED,
    .write_request = framed_write_request,
    .read_reply = reply_framed_read_head,
    .read_end = reply_framed_read_end,
};
