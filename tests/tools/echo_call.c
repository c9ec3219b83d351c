/*
 * The request of a call: header fields, what the head decides, body and messages.
 * See echo_call.h. Failure modes: every refusal is a verdict, answered at once on HTTP/2 (before
 * the body is read, as dubbo-go does) and after the body on HTTP/1.1.
 */
#include "echo_call.h"
#include "peer_text.h"

#include <stdlib.h>
#include <string.h>

#define METADATA_PREFIX "trailer-tail-"
#define METADATA_MAX_BYTES 65000u
#define CHAT_QUEUE_BYTES (256u * 1024)

struct echo_call *
echo_call_new(struct echo_provider *provider, struct echo_h1 *h1)
{
    struct echo_call *call = peer_alloc(sizeof *call);
    memset(call, 0, sizeof *call);
    call->provider = provider;
    call->h1 = h1;
    call->grpc_timeout_ms = call->triple_timeout_ms = -1;
    call->content_length = -1;
    call->delay_us = provider->delay_us;
    call->framer.max_bytes = (size_t)provider->max_message_bytes;
    call->method = ECHO_NO_METHOD;
    return call;
}

void
echo_call_free(struct echo_call *call)
{
    peer_timer_stop(&call->timer);
    peer_stream_fini(&call->stream);
    peer_framer_fini(&call->framer);
    peer_body_unref(call->request);
    peer_body_unref(call->metadata);
    peer_body_unref(call->status_text);
    peer_body_unref(call->status_details);
    free(call);
}

/* ---- header fields ---- */

static bool
is(const uint8_t *text, size_t len, const char *literal)
{
    return strlen(literal) == len && memcmp(text, literal, len) == 0;
}

static bool
has_gzip(const uint8_t *value, size_t len)
{
    for (size_t i = 0; i + 4 <= len; i++)
        if (memcmp(value + i, "gzip", 4) == 0)
            return true;
    return false;
}

static void
copy_text(char *to, size_t cap, const uint8_t *value, size_t len)
{
    len = len < cap - 1 ? len : cap - 1;
    memcpy(to, value, len);
    to[len] = '\0';
}

static void
take_path(struct echo_call *call, const uint8_t *path, size_t len)
{
    static const char *const methods[] = {"Say", "Fail", "Down", "Up", "Chat"};
    const uint8_t *query = memchr(path, '?', len);
    if (query)
        len = (size_t)(query - path);
    const uint8_t *slash = len ? memchr(path + 1, '/', len - 1) : NULL;
    if (!slash)
        return;
    const char *service = call->provider->service;
    if (strcmp(service, "*") != 0 && !is(path + 1, (size_t)(slash - path - 1), service))
        return;
    const uint8_t *name = slash + 1;
    size_t name_len = len - (size_t)(name - path);
    for (int m = 0; m < ECHO_NO_METHOD; m++) {
        /* the first letter may be lower case */
        if (name_len == strlen(methods[m]) && (name[0] & ~0x20) == methods[m][0] &&
            memcmp(name + 1, methods[m] + 1, name_len - 1) == 0)
            call->method = (enum echo_method)m;
    }
}

static void
take_triple_timeout(struct echo_call *call, const uint8_t *value, size_t len)
{
    char text[12];
    char *end;
    copy_text(text, sizeof text, value, len);
    long ms = strtol(text, &end, 10);
    call->timeout_wrong = len > 10 || len == 0 || *end;
    call->triple_timeout_ms = ms > 0 ? ms : 0;
}

static void
take_metadata(struct echo_call *call, const uint8_t *name, size_t name_len, const uint8_t *value,
              size_t value_len)
{
    size_t full_len = sizeof METADATA_PREFIX - 1 + name_len;
    if (!call->metadata)
        call->metadata = peer_body_new(256);
    if (full_len > UINT16_MAX || value_len > UINT16_MAX ||
        call->metadata->len + full_len + value_len > METADATA_MAX_BYTES)
        return;
    uint16_t lens[2] = {(uint16_t)full_len, (uint16_t)value_len};
    call->metadata = peer_body_append(call->metadata, lens, sizeof lens);
    call->metadata = peer_body_append(call->metadata, METADATA_PREFIX, sizeof METADATA_PREFIX - 1);
    call->metadata = peer_body_append(call->metadata, name, name_len);
    call->metadata = peer_body_append(call->metadata, value, value_len);
    if (is(name, name_len, "x-delay-us"))
        call->delay_us = peer_text_number_of(value, value_len);
}

bool
echo_call_metadata(const struct echo_call *call, size_t *at, const uint8_t **name, size_t *name_len,
                   const uint8_t **value, size_t *value_len)
{
    if (!call->metadata || *at >= call->metadata->len)
        return false;
    uint16_t lens[2];
    memcpy(lens, call->metadata->data + *at, sizeof lens);
    *name = call->metadata->data + *at + sizeof lens;
    *name_len = lens[0];
    *value = *name + lens[0];
    *value_len = lens[1];
    *at += sizeof lens + lens[0] + lens[1];
    return true;
}

static void
take_encoding(struct echo_call *call, const uint8_t *value, size_t len)
{
    call->gzip_in = is(value, len, "gzip");
    call->encoding_unknown = !call->gzip_in && !is(value, len, "identity") && len;
}

/* What proxies add is not the caller's metadata. */
static bool
is_forwarded(const uint8_t *name, size_t len)
{
    static const char prefix[] = "x-forwarded-";
    return len >= sizeof prefix - 1 && memcmp(name, prefix, sizeof prefix - 1) == 0;
}

void
echo_call_field(struct echo_call *call, const uint8_t *name, size_t name_len, const uint8_t *value,
                size_t value_len)
{
    if (name_len > 2 && name[0] == 'x' && name[1] == '-' && !is_forwarded(name, name_len))
        take_metadata(call, name, name_len, value, value_len);
    else if (is(name, name_len, ":path"))
        take_path(call, value, value_len);
    else if (is(name, name_len, ":method"))
        call->is_post = is(value, value_len, "POST");
    else if (is(name, name_len, "content-type")) {
        copy_text(call->content_type, sizeof call->content_type, value, value_len);
        call->framed = strncmp(call->content_type, "application/grpc", 16) == 0;
    } else if (is(name, name_len, "content-length"))
        call->content_length = peer_text_number_of(value, value_len);
    else if (is(name, name_len, "triple-protocol-version")) {
        copy_text(call->version, sizeof call->version, value, value_len);
        call->version_wrong = value_len && !is(value, value_len, "0.1.0");
    } else if (is(name, name_len, "triple-timeout-ms"))
        take_triple_timeout(call, value, value_len);
    else if (is(name, name_len, "grpc-timeout"))
        call->grpc_timeout_ms = peer_text_grpc_timeout_ms((const char *)value, value_len);
    else if (is(name, name_len, "content-encoding") || is(name, name_len, "grpc-encoding"))
        take_encoding(call, value, value_len);
    else if (is(name, name_len, "accept-encoding") || is(name, name_len, "grpc-accept-encoding"))
        call->gzip_offered = call->gzip_offered || has_gzip(value, value_len);
}

/* ---- the decision ---- */

static bool
type_served(const struct echo_call *call)
{
    static const char application[] = "application/";
    const char *type = call->content_type;
    int wire = call->provider->wire;
    if (call->framed)
        return wire != ECHO_WIRE_BARE && !call->h1 && (type[16] == '\0' || strchr("+;", type[16]));
    if (wire == ECHO_WIRE_FRAMED || call->method >= ECHO_DOWN)
        return false;
    bool json = strncmp(type, "application/json", 16) == 0;
    return strncmp(type, application, sizeof application - 1) == 0 && (json || !strchr(type, ';'));
}

static enum echo_verdict
judge(const struct echo_call *call)
{
    if (call->method == ECHO_NO_METHOD)
        return ECHO_NO_PATH;
    if (!call->is_post)
        return ECHO_BAD_VERB;
    if (!type_served(call))
        return ECHO_BAD_TYPE;
    if (call->encoding_unknown)
        return ECHO_BAD_ENCODING;
    if (call->framed)
        return ECHO_SERVE;
    if (call->version_wrong)
        return ECHO_BAD_VERSION;
    if (call->timeout_wrong)
        return ECHO_BAD_TIMEOUT;
    return call->triple_timeout_ms == 0 ? ECHO_TIMEOUT_OVER : ECHO_SERVE;
}

/* So that a benchmark can prove what form its calls had when they came here. */
static void
count(struct echo_call *call)
{
    struct echo_provider *provider = call->provider;
    if (call->verdict != ECHO_SERVE)
        provider->counts.refused++;
    else if (call->framed)
        provider->counts.framed++;
    else if (call->h1)
        provider->counts.bare_h1++;
    else
        provider->counts.bare_h2++;
    provider->counts.gzip_in += call->gzip_in;
    provider->counts.gzip_out +=
        provider->gzip && (call->gzip_offered || (call->gzip_in && !call->framed));
}

void
echo_call_head(struct echo_call *call)
{
    if (call->answered || call->request) /* a block after the body: trailers, nothing in them */
        return;
    call->verdict = judge(call);
    count(call);
    call->request_at = call->framed ? PEER_PREFIX_BYTES : 0;
    call->timeout_ms = call->framed ? call->grpc_timeout_ms : call->triple_timeout_ms;
    if (call->verdict != ECHO_SERVE && !call->h1)
        echo_reply_verdict(call);
    else if (call->verdict == ECHO_SERVE && call->method >= ECHO_DOWN && call->method != ECHO_UP)
        echo_reply_stream_head(call); /* before any message: a client may wait for it */
}

/* ---- body ---- */

static void
take_bare(struct echo_call *call, const uint8_t *data, size_t len_bytes)
{
    size_t max = call->framer.max_bytes;
    if (!call->request) {
        bool known = call->content_length > 0 && (uint64_t)call->content_length <= max;
        call->request = peer_body_new(known ? (size_t)call->content_length : len_bytes);
    }
    if (call->request->len + len_bytes > max)
        call->body_too_long = true; /* read to its end, then refused */
    else
        call->request = peer_body_append(call->request, data, len_bytes);
}

/* An uncompressed copy, prefix included; NULL when it is not gzip. Takes the reference. */
static struct peer_body *
inflate_message(struct echo_call *call, struct peer_body *message)
{
    if (message->data[0] == 0)
        return message;
    struct peer_body *plain =
        call->gzip_in ? peer_gunzip(message->data + PEER_PREFIX_BYTES,
                                    message->len - PEER_PREFIX_BYTES, call->framer.max_bytes)
                      : NULL;
    peer_body_unref(message);
    if (!plain)
        return NULL;
    message = peer_body_message(false, plain->data, plain->len);
    peer_body_unref(plain);
    return message;
}

static void
take_message(struct echo_call *call, struct peer_body *message)
{
    message = inflate_message(call, message);
    if (!message) {
        echo_reply_status(call, 13, "message is not gzip", false);
    } else if (call->method >= ECHO_DOWN) {
        echo_method_message(call, message);
    } else if (call->request) {
        peer_body_unref(message);
        echo_reply_status(call, 12, "unary request has several messages", false);
    } else {
        call->request = message;
    }
}

void
echo_call_data(struct echo_call *call, const uint8_t *data, size_t len_bytes)
{
    size_t credit_bytes = len_bytes;
    bool over = call->verdict != ECHO_SERVE || call->stream.ended;
    if (!over && !call->framed)
        take_bare(call, data, len_bytes);
    while (!over && call->framed && len_bytes && !call->stream.ended) {
        struct peer_body *message;
        int rv = peer_framer_feed(&call->framer, &data, &len_bytes, &message);
        if (rv < 0) {
            echo_reply_status(call, 8, "message is longer than the provider takes", false);
            break;
        }
        if (rv == 1)
            take_message(call, message);
    }
    if (call->h1)
        return;
    /* a client that does not read its echoes gets no more window */
    if (call->method == ECHO_CHAT && call->stream.queued_bytes > CHAT_QUEUE_BYTES)
        call->uncredited_bytes += credit_bytes;
    else
        peer_stream_credit(&call->stream, credit_bytes);
}

static void
end_unary(struct echo_call *call)
{
    if (call->body_too_long) {
        echo_reply_status(call, 8, "message is longer than the provider takes", false);
    } else if (call->framed && (!call->request || !peer_framer_at_rest(&call->framer))) {
        echo_reply_status(call, call->request ? 13 : 12, "request has no whole message", false);
    } else if (!call->framed && call->gzip_in) {
        struct peer_body *packed = call->request ? call->request : peer_body_new(0);
        call->request = peer_gunzip(packed->data, packed->len, call->framer.max_bytes);
        peer_body_unref(packed);
        if (!call->request)
            echo_reply_status(call, 3, "get decompressor: unexpected EOF", false);
    } else if (!call->request) {
        call->request = peer_body_new(0);
    }
    if (!call->answered)
        echo_method_unary(call);
}

void
echo_call_end(struct echo_call *call)
{
    call->request_ended = true;
    if (call->answered && (call->stream.ended || call->method < ECHO_DOWN))
        return;
    if (call->verdict != ECHO_SERVE)
        echo_reply_verdict(call);
    else if (call->method < ECHO_DOWN)
        end_unary(call);
    else if (!peer_framer_at_rest(&call->framer))
        echo_reply_status(call, 13, "the stream ends inside a message", false);
    else
        echo_method_end(call);
}
