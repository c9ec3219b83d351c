/* See caller_call.h. */
#include "caller_call.h"

#include <stdio.h>
#include <string.h>
#include <zlib.h>

#include "peer_text.h"

#define SEND_AHEAD_BYTES (256u * 1024)

static void
found(struct caller_call *call, const char *problem)
{
    if (!call->problem)
        call->problem = problem;
}

/* ---- requests ---- */

/* 16 digits that tell calls and messages apart, neighbours as well. */
static void
write_stamp(uint8_t *at, size_t len, uint64_t number, uint64_t message)
{
    static const char digits[] = "0123456789abcdef";
    uint64_t value = (number * 0x9e3779b97f4a7c15u) ^ (message * 0xc2b2ae3d27d4eb4fu);
    for (size_t i = 0; i < len; i++)
        at[i] = (uint8_t)digits[value >> (60 - 4 * i) & 15];
}

static struct peer_body *
stream_message(struct caller_call *call, long index)
{
    const struct caller_engine *engine = call->engine;
    struct peer_body *body = peer_body_copy(engine->plain->data, engine->plain->len);
    write_stamp(body->data + engine->stamp_at, engine->stamp_len, call->number, (uint64_t)index);
    return body;
}

static void
push_stream_message(struct caller_call *call)
{
    struct peer_body *body = stream_message(call, call->sent_messages);
    const uint8_t *message = body->data + PEER_PREFIX_BYTES;
    size_t len = body->len - PEER_PREFIX_BYTES;
    if (call->engine->config.type == CALLER_CLIENT)
        call->crc = (uint32_t)crc32(call->crc, message, (uInt)len);
    call->message_bytes += len;
    call->sent_messages++;
    if (call->engine->config.gzip) {
        struct peer_body *packed = peer_gzip(message, len, (int)call->engine->config.gzip_level);
        peer_body_unref(body);
        body = peer_body_message(true, packed->data, packed->len);
        peer_body_unref(packed);
    }
    peer_stream_push(&call->stream, body, 0);
}

/* The queue is empty: the next messages of a client or bidi stream. */
static void
more(struct peer_stream *stream)
{
    struct caller_call *call = (struct caller_call *)stream;
    const struct caller_config *config = &call->engine->config;
    bool wait = config->type == CALLER_BIDI && config->lockstep;
    while (call->sent_messages < config->messages && stream->queued_bytes < SEND_AHEAD_BYTES) {
        if (wait && call->got_messages < call->sent_messages)
            return;
        push_stream_message(call);
    }
    if (call->sent_messages == config->messages && !(wait && call->got_messages < config->messages))
        peer_stream_end(stream, false);
}

void
caller_call_fill(struct caller_call *call)
{
    struct caller_engine *engine = call->engine;
    if (engine->config.type >= CALLER_CLIENT) {
        call->stream.more = more;
        return;
    }
    if (engine->packed) {
        peer_stream_push(&call->stream, peer_body_ref(engine->packed), 0);
    } else {
        size_t skip = engine->framed ? 0 : PEER_PREFIX_BYTES;
        size_t head = engine->stamp_at + engine->stamp_len - skip;
        memcpy(call->stream.inline_data, engine->plain->data + skip, head);
        write_stamp(call->stream.inline_data + head - engine->stamp_len, engine->stamp_len,
                    call->number, 0);
        call->stream.inline_len = (uint8_t)head;
        peer_stream_push(&call->stream, peer_body_ref(engine->plain), skip + head);
    }
    call->message_bytes += engine->plain->len - PEER_PREFIX_BYTES;
    peer_stream_end(&call->stream, false);
}

/* ---- reply heads ---- */

static bool
is(const uint8_t *text, size_t len, const char *literal)
{
    return strlen(literal) == len && memcmp(text, literal, len) == 0;
}

static void
see_metadata(struct caller_call *call, const uint8_t *name, size_t name_len, const uint8_t *value,
             size_t value_len)
{
    const struct caller_engine *engine = call->engine;
    bool bare = !engine->framed;
    for (int i = 0; i < engine->config.metadata.count; i++) {
        const char *pair = engine->config.metadata.items[i];
        size_t key_len = strcspn(pair, "=");
        const char *tail = engine->tail_names[i] + (bare ? 0 : strlen("trailer-"));
        if (!is(value, value_len, pair + key_len + 1))
            continue;
        if (key_len == name_len && memcmp(name, pair, key_len) == 0)
            call->lead_seen |= 1u << i;
        if (is(name, name_len, tail))
            call->tail_seen |= 1u << i;
    }
}

void
caller_call_field(struct peer_stream *stream, const uint8_t *name, size_t name_len,
                  const uint8_t *value, size_t value_len)
{
    struct caller_call *call = (struct caller_call *)stream;
    if (is(name, name_len, ":status")) {
        call->http_status = (int)peer_text_number_of(value, value_len);
    } else if (is(name, name_len, "content-type")) {
        call->grpc_reply = value_len >= 16 && memcmp(value, "application/grpc", 16) == 0;
    } else if (is(name, name_len, "grpc-status")) {
        if (call->grpc_status >= 0)
            found(call, "two grpc-status");
        call->grpc_status = (int)peer_text_number_of(value, value_len);
    } else if (is(name, name_len, "grpc-message")) {
        size_t n = value_len < sizeof call->message - 1 ? value_len : sizeof call->message - 1;
        memcpy(call->message, value, n);
        call->message[n] = '\0';
    } else if (is(name, name_len, "grpc-encoding") || is(name, name_len, "content-encoding")) {
        call->packed = is(value, value_len, "gzip");
    } else if (call->engine->config.metadata.count) {
        see_metadata(call, name, name_len, value, value_len);
    }
}

/* ---- reply bodies ---- */

/* Bytes of the reply, from at on, that come out of the request as it was sent: what is behind the
 * prefix and up to the stamp. The prefix is not: it tells the reply's own length. */
static bool
is_stamped(const struct caller_call *call, size_t at)
{
    const struct caller_engine *engine = call->engine;
    size_t from = engine->framed ? PEER_PREFIX_BYTES : 0;
    return engine->echoes && !engine->packed && at >= from && at < call->stream.inline_len;
}

/* Compares a part of a unary reply with what is due at its place. */
static void
compare(struct caller_call *call, const uint8_t *data, size_t len_bytes)
{
    const struct caller_engine *engine = call->engine;
    size_t at = call->reply_bytes;
    call->reply_bytes += len_bytes;
    if (call->reply_bytes > engine->expect_len) {
        found(call, "reply is too long");
        return;
    }
    for (; len_bytes && at < call->stream.inline_len; at++, data++, len_bytes--)
        if (*data != (is_stamped(call, at) ? call->stream.inline_data : engine->expect)[at])
            found(call, "reply differs in its first bytes: another call's?");
    if (memcmp(engine->expect + at, data, len_bytes) != 0)
        found(call, "reply differs");
}

static struct peer_body *
unpack_message(struct caller_call *call, struct peer_body *message)
{
    if (message->data[0] == 0)
        return message;
    if (!call->engine->config.gzip)
        found(call, "compressed without an offer");
    struct peer_body *plain = call->packed
                                  ? peer_gunzip(message->data + PEER_PREFIX_BYTES,
                                                message->len - PEER_PREFIX_BYTES, (size_t)1 << 30)
                                  : NULL;
    peer_body_unref(message);
    if (!plain) {
        found(call, "compressed message without encoding, or not gzip");
        return NULL;
    }
    message = peer_body_message(false, plain->data, plain->len);
    peer_body_unref(plain);
    return message;
}

static bool
equals_text(const uint8_t *message, size_t len, const char *text)
{
    return strlen(text) == len && memcmp(message, text, len) == 0;
}

static bool
is_down_message(const struct caller_call *call, const uint8_t *message, size_t len)
{
    char head[24];
    size_t size = (size_t)call->engine->expect_size;
    size_t head_len = (size_t)snprintf(head, sizeof head, "%ld:", call->got_messages);
    if (len != size)
        return false;
    head_len = head_len < size ? head_len : size;
    if (memcmp(message, head, head_len) != 0)
        return false;
    uint8_t step[4096];
    for (size_t at = head_len; at < size; at += sizeof step) {
        size_t n = size - at < sizeof step ? size - at : sizeof step;
        peer_pattern_fill(step, at, n);
        if (memcmp(message + at, step, n) != 0)
            return false;
    }
    return true;
}

/* What comes back for a message of a bidi stream. */
static struct peer_body *
expected_echo(struct caller_call *call, long index)
{
    const struct caller_engine *engine = call->engine;
    struct peer_body *body = stream_message(call, index);
    body = peer_body_append(body, engine->tail->data, engine->tail->len);
    uint8_t field[12] = {(uint8_t)(engine->config.reply_index << 3)};
    size_t n = 1;
    for (uint64_t left = (uint64_t)index; left; left >>= 7)
        field[n++] = (uint8_t)((left & 0x7f) | (left > 0x7f ? 0x80 : 0));
    if (engine->config.reply_index && index) /* proto3 leaves zero out */
        body = peer_body_append(body, field, n);
    return body;
}

static bool
is_expected_message(struct caller_call *call, const uint8_t *message, size_t len)
{
    const struct caller_engine *engine = call->engine;
    if (engine->config.type == CALLER_SERVER)
        return is_down_message(call, message, len);
    if (engine->config.type == CALLER_CLIENT) {
        char text[96];
        snprintf(text, sizeof text, "count=%ld bytes=%llu crc=%08x", call->sent_messages,
                 (unsigned long long)call->message_bytes, call->crc);
        return equals_text(message, len, text);
    }
    struct peer_body *sent = expected_echo(call, call->got_messages);
    bool same = len == sent->len - PEER_PREFIX_BYTES &&
                memcmp(message, sent->data + PEER_PREFIX_BYTES, len) == 0;
    peer_body_unref(sent);
    return same;
}

static void
take_message(struct caller_call *call, struct peer_body *message)
{
    message = unpack_message(call, message);
    if (!message)
        return;
    size_t len = message->len - PEER_PREFIX_BYTES;
    if (call->engine->config.type == CALLER_UNARY)
        compare(call, message->data, message->len);
    else if (!is_expected_message(call, message->data + PEER_PREFIX_BYTES, len))
        found(call, "a message of the stream differs");
    call->got_messages++;
    call->engine->replies++;
    if (call->engine->config.type != CALLER_CLIENT)
        call->message_bytes += len;
    peer_body_unref(message);
    if (call->engine->config.type == CALLER_BIDI && !call->stream.ended)
        more(&call->stream);
}

static void
take_framed(struct caller_call *call, const uint8_t *data, size_t len_bytes)
{
    while (len_bytes && !call->problem) {
        struct peer_body *message;
        int rv = peer_framer_feed(&call->framer, &data, &len_bytes, &message);
        if (rv < 0)
            found(call, "bad message prefix");
        else if (rv == 1)
            take_message(call, message);
    }
}

void
caller_call_data(struct peer_stream *stream, const uint8_t *data, size_t len_bytes)
{
    struct caller_call *call = (struct caller_call *)stream;
    const struct caller_engine *engine = call->engine;
    peer_stream_credit(stream, len_bytes);
    if (call->done)
        return;
    bool unary = engine->config.type == CALLER_UNARY;
    if (unary && call->http_status == 200 && !call->packed) {
        compare(call, data, len_bytes);
    } else if (engine->framed && call->http_status == 200) {
        take_framed(call, data, len_bytes);
    } else if (!call->kept || call->kept->len < (size_t)1 << 27) {
        if (!call->kept)
            call->kept = peer_body_new(len_bytes);
        call->kept = peer_body_append(call->kept, data, len_bytes);
    }
}

/* ---- verdict ---- */

/* The status that a bare reply says: by its JSON code, else unknown. */
static int
bare_status(struct caller_call *call)
{
    static const char key[] = "\"code\":\"";
    if (call->http_status == 200)
        return 0;
    if (!call->kept)
        return 2;
    const char *text = (const char *)call->kept->data;
    const char *at = memmem(text, call->kept->len, key, sizeof key - 1);
    if (!at)
        return 2;
    at += sizeof key - 1;
    const char *end = memchr(at, '"', call->kept->len - (size_t)(at - text));
    int code = end ? peer_code_of_name(at, (size_t)(end - at)) : -1;
    return code < 0 ? 2 : code;
}

static int
reply_status(struct caller_call *call)
{
    if (!call->engine->framed)
        return bare_status(call);
    if (call->http_status != 200)
        found(call, "HTTP status of a gRPC reply is not 200");
    if (!call->grpc_reply)
        found(call, "content-type of a gRPC reply is not application/grpc");
    if (call->grpc_status < 0) {
        found(call, "no grpc-status");
        return 2;
    }
    return call->grpc_status;
}

static void
judge_bytes(struct caller_call *call)
{
    const struct caller_engine *engine = call->engine;
    const struct caller_config *config = &engine->config;
    if (config->type == CALLER_UNARY && !engine->framed && call->packed) {
        const struct peer_body *kept = call->kept;
        if (!config->gzip)
            found(call, "compressed without an offer");
        struct peer_body *plain =
            peer_gunzip(kept ? kept->data : NULL, kept ? kept->len : 0, (size_t)1 << 30);
        if (!plain)
            found(call, "reply is not gzip");
        else
            compare(call, plain->data, plain->len);
        peer_body_unref(plain);
    }
    if (config->type == CALLER_UNARY && call->reply_bytes != engine->expect_len)
        found(call, "reply is too short");
    long due = config->type == CALLER_SERVER   ? engine->expect_messages
               : config->type == CALLER_CLIENT ? 1
                                               : config->messages;
    if (config->type != CALLER_UNARY && call->got_messages != due)
        found(call, "not as many messages as expected");
    if (!peer_framer_at_rest(&call->framer))
        found(call, "the reply ends inside a message");
    uint32_t all = config->metadata.count == 32 ? ~0u : (1u << config->metadata.count) - 1;
    if (config->check_metadata && (call->lead_seen != all || call->tail_seen != all))
        found(call, "metadata did not come back");
}

static void
judge_text(struct caller_call *call)
{
    const char *wanted = call->engine->config.expect_text;
    if (!wanted)
        return;
    bool there = call->engine->framed ? strstr(call->message, wanted) != NULL
                                      : call->kept && memmem(call->kept->data, call->kept->len,
                                                             wanted, strlen(wanted));
    if (!there)
        found(call, "the error's message is another");
}

struct caller_outcome
caller_call_judge(struct caller_call *call, uint32_t error_code)
{
    const struct caller_config *config = &call->engine->config;
    int status;
    if (call->forced_status >= 0) {
        status = call->forced_status;
    } else if (!call->ended) {
        status = 14;
        found(call, error_code == PEER_H2_LOST ? "no connection, or it was lost"
                    : error_code               ? nghttp2_http2_strerror(error_code)
                                               : "stream closed early");
    } else {
        status = reply_status(call);
    }
    if (status != config->expect_status)
        found(call, "status is not the expected one");
    if (status == 0 && call->ended)
        judge_bytes(call);
    else if (call->ended)
        judge_text(call);
    return (struct caller_outcome){.status = status,
                                   .problem = call->problem,
                                   .message = call->message,
                                   .start_ns = call->start_ns,
                                   .bytes = call->message_bytes + call->reply_bytes};
}
