/*
 * Replies of the echo provider: heads, bodies, errors in both wire forms, refusals.
 * See echo_call.h. One list of header fields serves HTTP/2 and HTTP/1.1.
 */
#include <stdio.h>
#include <string.h>

#include "echo_h1.h"
#include "peer_text.h"

#define FIELDS_MAX 80u
#define GZIP_LEVEL 1
#define METADATA_LEAD_AT 13u /* "x-..." within "trailer-tail-x-..." */
#define METADATA_TAIL_AT 8u  /* "tail-x-..." */

struct fields {
    size_t count;
    nghttp2_nv nv[FIELDS_MAX];
};

static const char accept_post[] =
    "application/grpc, application/grpc+json, application/grpc+proto, application/json, "
    "application/proto";

static void
add(struct fields *fields, const char *name, const void *value, size_t value_len)
{
    if (fields->count < FIELDS_MAX)
        fields->nv[fields->count++] = (nghttp2_nv){(uint8_t *)name, (uint8_t *)value, strlen(name),
                                                   value_len, NGHTTP2_NV_FLAG_NO_COPY_NAME};
}

/* A field of constants, which nghttp2 need not copy. */
static void
add_constant(struct fields *fields, const char *name, const char *value)
{
    add(fields, name, value, strlen(value));
    fields->nv[fields->count - 1].flags = PEER_NV_STATIC;
}

static void
add_number(struct fields *fields, const char *name, char *text, size_t cap, long long number)
{
    add(fields, name, text, (size_t)snprintf(text, cap, "%lld", number));
    fields->nv[fields->count - 1].flags |= NGHTTP2_NV_FLAG_NO_INDEX;
}

static void
add_metadata(struct fields *fields, const struct echo_call *call, size_t from)
{
    const uint8_t *name, *value;
    size_t name_len, value_len, at = 0;
    while (fields->count < FIELDS_MAX &&
           echo_call_metadata(call, &at, &name, &name_len, &value, &value_len))
        fields->nv[fields->count++] =
            (nghttp2_nv){(uint8_t *)name + from, (uint8_t *)value, name_len - from, value_len, 0};
}

/* Sends a whole reply that is not gRPC. Takes the body's reference. */
static void
send_whole(struct echo_call *call, struct fields *fields, struct peer_body *body, bool chunked)
{
    call->answered = true;
    if (call->h1) {
        echo_h1_reply(call->h1, fields->nv, fields->count, body, chunked);
        return;
    }
    peer_stream_respond(&call->stream, fields->nv, fields->count, body->len > 0);
    peer_stream_push(&call->stream, body, 0);
    peer_stream_end(&call->stream, false);
}

static bool
length_is_told(const struct echo_call *call, size_t body_bytes)
{
    long max = call->provider->content_length_max;
    if (call->h1 && max == ECHO_CONTENT_LENGTH_MAX) /* as dubbo-go: half of it on HTTP/1.1 */
        max /= 2;
    return max >= 0 && body_bytes <= (size_t)max;
}

static void
send_bare(struct echo_call *call, int http, const char *type, struct peer_body *body, bool packed)
{
    struct fields fields = {0};
    char status[8], length[24];
    if (http == 200)
        add_constant(&fields, ":status", "200");
    else
        add_number(&fields, ":status", status, sizeof status, http);
    add_constant(&fields, "accept-encoding", "gzip");
    add(&fields, "content-type", type, strlen(type));
    if (packed)
        add_constant(&fields, "content-encoding", "gzip");
    bool told = length_is_told(call, body->len);
    if (told)
        add_number(&fields, "content-length", length, sizeof length, (long long)body->len);
    if (call->metadata) {
        add_metadata(&fields, call, METADATA_LEAD_AT);
        add_metadata(&fields, call, 0);
    }
    send_whole(call, &fields, body, !told);
}

void
echo_reply_stream_head(struct echo_call *call)
{
    if (call->answered)
        return;
    struct fields fields = {0};
    add_constant(&fields, ":status", "200");
    add(&fields, "content-type", call->content_type, strlen(call->content_type));
    add_constant(&fields, "grpc-accept-encoding", "gzip");
    if (call->gzip_offered && call->provider->gzip)
        add_constant(&fields, "grpc-encoding", "gzip");
    if (call->metadata)
        add_metadata(&fields, call, METADATA_LEAD_AT);
    call->answered = true;
    peer_stream_respond(&call->stream, fields.nv, fields.count, true);
}

void
echo_reply_stream_message(struct echo_call *call, struct peer_body *message)
{
    if (call->gzip_offered && call->provider->gzip) {
        struct peer_body *packed = peer_gzip(message->data + PEER_PREFIX_BYTES,
                                             message->len - PEER_PREFIX_BYTES, GZIP_LEVEL);
        peer_body_unref(message);
        message = peer_body_message(true, packed->data, packed->len);
        peer_body_unref(packed);
    }
    peer_stream_push(&call->stream, message, 0);
}

void
echo_reply_message(struct echo_call *call, struct peer_body *body)
{
    if (call->framed) {
        echo_reply_stream_head(call);
        echo_reply_stream_message(call, body);
        peer_stream_end(&call->stream, true);
        return;
    }
    bool packed = call->provider->gzip && (call->gzip_in || call->gzip_offered);
    if (packed) {
        struct peer_body *plain = body;
        body = peer_gzip(plain->data, plain->len, GZIP_LEVEL);
        peer_body_unref(plain);
    }
    send_bare(call, 200, call->content_type, body, packed);
}

/* ---- errors ---- */

static struct peer_body *
add_length_delimited(struct peer_body *out, uint8_t tag, const void *data, size_t len)
{
    uint8_t head[3] = {tag, (uint8_t)(len & 0x7f), 0};
    if (len > 0x7f) { /* two bytes are enough: texts here stay below 16 KiB */
        head[1] |= 0x80;
        head[2] = (uint8_t)(len >> 7);
    }
    out = peer_body_append(out, head, len > 0x7f ? 3 : 2);
    return peer_body_append(out, data, len);
}

/* The bytes of google.rpc.ErrorInfo{reason, domain}, the one detail that Fail can add. */
static struct peer_body *
error_info(void)
{
    struct peer_body *info = add_length_delimited(peer_body_new(64), 0x0a, "ECHO_FAILED", 11);
    return add_length_delimited(info, 0x12, "tributary.demo", 14);
}

static struct peer_body *
error_json(int code, const char *text, bool details)
{
    struct peer_body *out =
        peer_text_add(peer_body_new(256), "{\"code\":\"%s\"", peer_code_name(code));
    if (text[0]) {
        out = peer_text_add(out, ",\"message\":");
        out = peer_text_json(out, text, strlen(text));
    }
    if (details) {
        struct peer_body *info = error_info();
        out = peer_text_add(out, ",\"details\":[{\"type\":\"google.rpc.ErrorInfo\",\"value\":\"");
        out = peer_text_base64(out, info->data, info->len);
        out = peer_text_add(out, "\"}]");
        peer_body_unref(info);
    }
    return peer_text_add(out, "}");
}

/* google.rpc.Status{code, message, details: [Any{ErrorInfo}]} in base64. */
static struct peer_body *
status_details(int code, const char *text)
{
    static const char type_url[] = "type.googleapis.com/google.rpc.ErrorInfo";
    struct peer_body *info = error_info();
    struct peer_body *any =
        add_length_delimited(peer_body_new(128), 0x0a, type_url, sizeof type_url - 1);
    any = add_length_delimited(any, 0x12, info->data, info->len);
    uint8_t head[2] = {0x08, (uint8_t)code};
    struct peer_body *status = peer_body_copy(head, sizeof head);
    status = add_length_delimited(status, 0x12, text, strlen(text));
    status = add_length_delimited(status, 0x1a, any->data, any->len);
    struct peer_body *out = peer_text_base64(peer_body_new(256), status->data, status->len);
    peer_body_unref(info);
    peer_body_unref(any);
    peer_body_unref(status);
    return out;
}

void
echo_reply_status(struct echo_call *call, int code, const char *text, bool details)
{
    if (call->stream.ended)
        return;
    if (!call->framed) {
        if (!call->answered)
            send_bare(call, peer_code_http(code), "application/json",
                      error_json(code, text, details), false);
        return;
    }
    echo_reply_stream_head(call);
    call->status = code;
    call->status_text = peer_text_percent(peer_body_new(64), text, strlen(text));
    if (details)
        call->status_details = status_details(code, text);
    peer_stream_end(&call->stream, true);
}

void
echo_reply_trailers(struct peer_stream *stream)
{
    struct echo_call *call = (struct echo_call *)stream;
    struct fields fields = {0};
    char status[8];
    if (call->status == 0)
        add_constant(&fields, "grpc-status", "0");
    else
        add_number(&fields, "grpc-status", status, sizeof status, call->status);
    if (call->status_text && call->status_text->len)
        add(&fields, "grpc-message", call->status_text->data, call->status_text->len);
    else
        add_constant(&fields, "grpc-message", "");
    if (call->status_details)
        add(&fields, "grpc-status-details-bin", call->status_details->data,
            call->status_details->len);
    if (call->metadata)
        add_metadata(&fields, call, METADATA_TAIL_AT);
    nghttp2_submit_trailer(stream->h2->session, stream->id, fields.nv, fields.count);
}

/* ---- refusals ---- */

static void
send_text(struct echo_call *call, int http, const char *name, const char *value, const char *type,
          const char *text)
{
    struct fields fields = {0};
    char status[8], length[24];
    add_number(&fields, ":status", status, sizeof status, http);
    if (name)
        add_constant(&fields, name, value);
    if (type)
        add_constant(&fields, "content-type", type);
    if (http == 415 && call->provider->refusal == ECHO_REFUSE_JAVA32)
        add_constant(&fields, "grpc-status", "13");
    else
        add_number(&fields, "content-length", length, sizeof length, (long long)strlen(text));
    send_whole(call, &fields, peer_body_copy(text, strlen(text)), false);
}

/* A content type that is not served: what dubbo-go, dubbo-java 3.3 and 3.2 say. */
static void
send_bad_type(struct echo_call *call)
{
    int refusal = call->framed ? ECHO_REFUSE_GO : call->provider->refusal;
    if (refusal == ECHO_REFUSE_JAVA33)
        send_text(call, 404, NULL, NULL, "application/json",
                  "{\"message\":\"Invoker not found\",\"status\":\"404\"}");
    else if (refusal == ECHO_REFUSE_JAVA32)
        send_text(call, 415, NULL, NULL, "text/plain; encoding=utf-8",
                  "Content-Type is not supported");
    else
        send_text(call, 415, "accept-post", accept_post, NULL, "");
}

void
echo_reply_verdict(struct echo_call *call)
{
    switch (call->verdict) {
    case ECHO_NO_PATH:
        send_text(call, 404, "x-content-type-options", "nosniff", "text/plain; charset=utf-8",
                  "404 page not found\n");
        break;
    case ECHO_BAD_VERB:
        send_text(call, 405, "allow", "POST", NULL, "");
        break;
    case ECHO_BAD_TYPE:
        send_bad_type(call);
        break;
    case ECHO_BAD_VERSION: {
        char text[96];
        snprintf(text, sizeof text, "Triple-Protocol-Version must be \"0.1.0\": got \"%s\"",
                 call->version);
        echo_reply_status(call, 3, text, false);
        break;
    }
    case ECHO_BAD_TIMEOUT:
        echo_reply_status(call, 3, "parse timeout: not a number of at most 10 digits", false);
        break;
    case ECHO_TIMEOUT_OVER:
        echo_reply_status(call, 4, "context deadline exceeded", false);
        break;
    case ECHO_BAD_ENCODING:
        echo_reply_status(call, 12, "unknown compression: supported encodings are gzip", false);
        break;
    case ECHO_SERVE:
        break;
    }
}
