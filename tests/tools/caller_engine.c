/* See caller_engine.h. */
#include "caller_engine.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "caller_call.h"
#include "peer_text.h"

#define RECONNECT_WAIT_NS                                                                          \
    100000000u                       /* after a failed connect, so that a dead target is no storm  \
                                      */
#define DEADLINE_GRACE_NS 500000000u /* the peer has to end a late call; we only notice */

struct caller_connection {
    struct peer_link link; /* first: link events carry a pointer to it */
    struct caller_connection *prev;
    struct caller_connection *next;
    struct caller_engine *engine;
    unsigned slot;
    struct peer_h2 h2;
    uv_connect_t connect;
    struct peer_timer retry;
};

/* ---- calls ---- */

static void
finish(struct caller_call *call, uint32_t error_code)
{
    struct caller_engine *engine = call->engine;
    if (call->done)
        return;
    call->done = true;
    peer_timer_stop(&call->timer);
    struct caller_outcome outcome = caller_call_judge(call, error_code);
    if (engine->config.type == CALLER_UNARY && !call->got_messages)
        engine->replies++; /* was compared as it came, not taken as a message */
    outcome.end_ns = uv_hrtime();
    engine->in_flight--;
    if (!engine->stopping)
        engine->done(engine, call->slot, &outcome);
}

static void
on_head(struct peer_stream *stream, bool end)
{
    (void)stream;
    (void)end;
}

static void
on_end(struct peer_stream *stream)
{
    struct caller_call *call = (struct caller_call *)stream;
    bool sending =
        !stream->ended || stream->queued_bytes || stream->inline_off < stream->inline_len;
    call->ended = true;
    finish(call, 0);
    if (sending) /* the answer is final: the rest of the request is not wanted */
        peer_stream_reset(stream, NGHTTP2_NO_ERROR);
}

static void
on_closed(struct peer_stream *stream, uint32_t error_code)
{
    struct caller_call *call = (struct caller_call *)stream;
    finish(call, error_code);
    peer_stream_fini(stream);
    peer_framer_fini(&call->framer);
    peer_body_unref(call->kept);
    free(call);
}

static void
on_call_timer(struct peer_timer *timer)
{
    struct caller_call *call =
        (struct caller_call *)((char *)timer - offsetof(struct caller_call, timer));
    bool cancel = call->engine->config.cancel_ms > 0;
    call->forced_status = cancel ? 1 : 4;
    if (!cancel)
        call->problem = "the peer let the deadline pass";
    finish(call, 0);
    peer_stream_reset(&call->stream, NGHTTP2_CANCEL);
}

static void
start_timer(struct caller_call *call)
{
    const struct caller_config *config = &call->engine->config;
    if (config->cancel_ms == 0 && config->deadline_ms == 0)
        return;
    uint64_t wait_ns = config->cancel_ms
                           ? (uint64_t)config->cancel_ms * 1000000u
                           : (uint64_t)config->deadline_ms * 1000000u + DEADLINE_GRACE_NS;
    call->timer.fired = on_call_timer;
    peer_timer_start(&call->engine->timers, &call->timer, uv_hrtime() + wait_ns);
}

/* ---- connections ---- */

static void
leave_slot(struct caller_connection *c)
{
    if (c->engine->slots[c->slot] == c)
        c->engine->slots[c->slot] = NULL;
}

/* New calls of the slot go to a new connection; this one stays for those under way. */
static void
on_goaway(struct peer_h2 *h2)
{
    leave_slot((struct caller_connection *)h2->link);
}

static const struct peer_h2_events h2_events = {
    .field = caller_call_field,
    .head = on_head,
    .data = caller_call_data,
    .end = on_end,
    .closed = on_closed,
    .goaway = on_goaway,
};

static void
on_link_read(struct peer_link *link, const uint8_t *data, size_t len_bytes)
{
    peer_h2_receive(&((struct caller_connection *)link)->h2, data, len_bytes);
}

static void
on_link_fill(struct peer_link *link)
{
    peer_h2_fill(&((struct caller_connection *)link)->h2);
}

static void
on_link_closed(struct peer_link *link, int error)
{
    struct caller_connection *c = (struct caller_connection *)link;
    (void)error;
    leave_slot(c);
    peer_timer_stop(&c->retry);
    peer_h2_fini(&c->h2);
    if (c->prev)
        c->prev->next = c->next;
    else
        c->engine->all = c->next;
    if (c->next)
        c->next->prev = c->prev;
    free(c);
}

static const struct peer_link_events link_events = {
    .read = on_link_read,
    .fill = on_link_fill,
    .closed = on_link_closed,
};

/* The calls of a connection that never came about end a little later, with it. */
static void
on_retry_over(struct peer_timer *timer)
{
    struct caller_connection *c =
        (struct caller_connection *)((char *)timer - offsetof(struct caller_connection, retry));
    peer_link_close(&c->link, UV_ECONNREFUSED);
}

static void
connect_failed(struct caller_connection *c)
{
    if (c->link.closing)
        return;
    c->retry.fired = on_retry_over;
    peer_timer_start(&c->engine->timers, &c->retry, uv_hrtime() + RECONNECT_WAIT_NS);
}

static void
on_uv_connect(uv_connect_t *request, int status)
{
    struct caller_connection *c = request->data;
    if (status < 0) {
        connect_failed(c);
        return;
    }
    peer_link_start(&c->link);
}

static int
parse_address(const char *target, struct sockaddr_storage *address)
{
    char host[64];
    const char *colon = strrchr(target, ':');
    if (!colon)
        return -EINVAL;
    bool v6 = target[0] == '[';
    size_t len = (size_t)(colon - target) - (v6 ? 2 : 0);
    if (len >= sizeof host)
        return -EINVAL;
    memcpy(host, target + (v6 ? 1 : 0), len);
    host[len] = '\0';
    int port = atoi(colon + 1);
    if (v6)
        return uv_ip6_addr(host, port, (struct sockaddr_in6 *)address);
    return uv_ip4_addr(strcmp(host, "localhost") == 0 ? "127.0.0.1" : host, port,
                       (struct sockaddr_in *)address);
}

static struct caller_connection *
open_connection(struct caller_engine *engine, unsigned slot)
{
    const struct caller_config *config = &engine->config;
    struct peer_h2_options options = {
        .stream_window_bytes = (uint32_t)config->window,
        .connection_window_bytes = 1 << 30,
        .max_frame_bytes = 16384,
        .record = config->record,
    };
    bool unix_path = strncmp(config->target, "unix:", 5) == 0;
    struct caller_connection *c = peer_alloc(sizeof *c);
    memset(c, 0, sizeof *c);
    c->engine = engine;
    c->slot = slot;
    c->next = engine->all;
    if (engine->all)
        engine->all->prev = c;
    engine->all = c;
    engine->slots[slot] = c;
    engine->connects++;
    peer_link_init(&c->link, &engine->net, unix_path, &link_events);
    peer_check(peer_h2_init(&c->h2, &c->link, false, &h2_events, &options) == 0);
    c->connect.data = c;
    struct sockaddr_storage address;
    if (unix_path)
        uv_pipe_connect(&c->connect, &c->link.io.pipe, config->target + 5, on_uv_connect);
    else if (parse_address(config->target, &address) < 0 ||
             uv_tcp_connect(&c->connect, &c->link.io.tcp, (struct sockaddr *)&address,
                            on_uv_connect) < 0)
        connect_failed(c);
    return c;
}

void
caller_engine_connect(struct caller_engine *engine)
{
    for (unsigned slot = 0; slot < (unsigned)engine->config.connections; slot++)
        if (!engine->slots[slot])
            open_connection(engine, slot);
}

void
caller_engine_call(struct caller_engine *engine, unsigned slot, uint64_t start_ns)
{
    struct caller_connection *c = engine->slots[slot];
    if (!c || c->link.closing)
        c = open_connection(engine, slot);
    struct caller_call *call = peer_alloc(sizeof *call);
    memset(call, 0, sizeof *call);
    call->engine = engine;
    call->slot = slot;
    call->number = ++engine->next_number;
    call->start_ns = start_ns ? start_ns : uv_hrtime();
    call->grpc_status = call->forced_status = -1;
    call->framer.max_bytes = (size_t)1 << 30;
    caller_call_fill(call);
    bool has_body = call->stream.inline_len || call->stream.first || !call->stream.ended;
    engine->in_flight++;
    int rv =
        peer_stream_request(&call->stream, &c->h2, engine->fields, engine->field_count, has_body);
    if (rv < 0) { /* stream ids are used up, after 2^30 calls */
        leave_slot(c);
        peer_stream_fini(&call->stream);
        free(call);
        engine->in_flight--;
        caller_engine_call(engine, slot, start_ns);
        return;
    }
    start_timer(call);
}

/* ---- templates ---- */

static void
add_field(struct caller_engine *engine, const char *name, size_t name_len, const char *value)
{
    engine->fields[engine->field_count++] =
        (nghttp2_nv){(uint8_t *)name, (uint8_t *)value, name_len, strlen(value), PEER_NV_STATIC};
}

#define ADD_FIELD(engine, name, value) add_field(engine, name, sizeof(name) - 1, value)

static void
make_fields(struct caller_engine *engine)
{
    const struct caller_config *config = &engine->config;
    const char *codec = config->codec;
    bool framed = engine->framed;
    snprintf(engine->authority, sizeof engine->authority, "%s",
             config->authority                          ? config->authority
             : strncmp(config->target, "unix:", 5) == 0 ? "localhost"
                                                        : config->target);
    if (framed)
        snprintf(engine->content_type, sizeof engine->content_type, "application/grpc%s%s",
                 codec ? "+" : "", codec ? codec : "");
    else
        snprintf(engine->content_type, sizeof engine->content_type, "application/%s",
                 codec ? codec : "proto");
    ADD_FIELD(engine, ":method", "POST");
    ADD_FIELD(engine, ":scheme", "http");
    ADD_FIELD(engine, ":path", config->method);
    ADD_FIELD(engine, ":authority", engine->authority);
    ADD_FIELD(engine, "content-type", engine->content_type);
    if (framed) {
        ADD_FIELD(engine, "te", "trailers");
    } else {
        ADD_FIELD(engine, "triple-protocol-version", "0.1.0");
        const struct peer_body *sent = engine->packed ? engine->packed : engine->plain;
        snprintf(engine->content_length, sizeof engine->content_length, "%zu",
                 sent->len - (engine->packed ? 0 : PEER_PREFIX_BYTES));
        ADD_FIELD(engine, "content-length", engine->content_length);
    }
    ADD_FIELD(engine, "user-agent", framed ? "grpc-echo-caller/1.0" : "triple-echo-caller/1.0");
    if (config->deadline_ms) {
        snprintf(engine->timeout, sizeof engine->timeout, "%ld%s", config->deadline_ms,
                 framed ? "m" : "");
        if (framed)
            ADD_FIELD(engine, "grpc-timeout", engine->timeout);
        else
            ADD_FIELD(engine, "triple-timeout-ms", engine->timeout);
    }
    if (config->gzip && framed) {
        ADD_FIELD(engine, "grpc-encoding", "gzip");
        ADD_FIELD(engine, "grpc-accept-encoding", "gzip");
    } else if (config->gzip) {
        ADD_FIELD(engine, "content-encoding", "gzip");
        ADD_FIELD(engine, "accept-encoding", "gzip");
    }
    for (int i = 0; i < config->metadata.count; i++) {
        const char *pair = config->metadata.items[i];
        size_t key_len = strcspn(pair, "=");
        add_field(engine, pair, key_len, pair + key_len + 1);
        snprintf(engine->tail_names[i], sizeof engine->tail_names[i], "trailer-tail-%.*s",
                 (int)key_len, pair);
    }
}

static size_t
write_varint(uint8_t *at, uint64_t value)
{
    size_t n = 0;
    for (; value > 0x7f; value >>= 7)
        at[n++] = (uint8_t)(value | 0x80);
    at[n++] = (uint8_t)value;
    return n;
}

/* Pattern bytes, as they are or as one protobuf field of them; with room for the stamp. */
static void
make_generated(struct caller_engine *engine)
{
    uint8_t head[20];
    size_t head_len = 0;
    size_t size = (size_t)engine->config.size;
    if (engine->config.proto_field && size) { /* proto3 leaves an empty field out */
        head_len = write_varint(head, (uint64_t)engine->config.proto_field << 3 | 2);
        head_len += write_varint(head + head_len, size);
    }
    struct peer_body *body = peer_body_new(PEER_PREFIX_BYTES + head_len + size);
    peer_prefix_write(body->data, false, head_len + size);
    memcpy(body->data + PEER_PREFIX_BYTES, head, head_len);
    engine->stamp_at = PEER_PREFIX_BYTES + head_len;
    if (engine->config.random)
        peer_random_fill(body->data + engine->stamp_at, size);
    else
        peer_pattern_fill(body->data + engine->stamp_at, 0, size);
    body->len = engine->stamp_at + size;
    engine->stamp_len = size < CALLER_STAMP_BYTES ? size : CALLER_STAMP_BYTES;
    engine->plain = body;
}

/* A file's bytes as a message; one that cannot be read is a mistake of the command line. */
static struct peer_body *
read_message(const char *path)
{
    struct peer_body *bytes = peer_body_new(4096);
    uint8_t step[4096];
    FILE *file = fopen(path, "rb");
    if (!file) {
        perror(path);
        exit(2);
    }
    for (size_t n; (n = fread(step, 1, sizeof step, file)) > 0;)
        bytes = peer_body_append(bytes, step, n);
    fclose(file);
    struct peer_body *message = peer_body_message(false, bytes->data, bytes->len);
    peer_body_unref(bytes);
    return message;
}

/* Bytes of pairs of hex digits; NULL when the text is something else. */
static struct peer_body *
read_hex(const char *text)
{
    struct peer_body *bytes = peer_body_new(64);
    for (; *text; text += 2) {
        char pair[3] = {text[0], text[1], '\0'};
        char *end;
        uint8_t byte = (uint8_t)strtoul(pair, &end, 16);
        if (end != pair + 2) {
            peer_body_unref(bytes);
            return NULL;
        }
        bytes = peer_body_append(bytes, &byte, 1);
    }
    return bytes;
}

/* Prefix and message; a server stream's is the text that asks for its messages. */
static void
make_messages(struct caller_engine *engine)
{
    struct caller_config *config = &engine->config;
    struct peer_body *asked = NULL;
    if (config->type == CALLER_SERVER && !config->text) {
        asked =
            peer_text_add(peer_body_new(64), "count=%ld size=%ld", config->messages, config->size);
        asked = peer_body_append(asked, "", 1);
        config->text = (const char *)asked->data;
    }
    if (config->body) {
        engine->plain = read_message(config->body);
        engine->stamp_at = PEER_PREFIX_BYTES;
    } else if (config->text) {
        size_t len = strlen(config->text);
        engine->plain = peer_body_message(false, config->text, len);
        engine->stamp_at = PEER_PREFIX_BYTES;
        engine->expect_messages = peer_text_number(config->text, len, "count", 3);
        engine->expect_size = peer_text_number(config->text, len, "size", 10);
    } else {
        make_generated(engine);
    }
    if (asked)
        config->text = "";
    peer_body_unref(asked);
    const uint8_t *message = engine->plain->data + PEER_PREFIX_BYTES;
    size_t len = engine->plain->len - PEER_PREFIX_BYTES;
    if (config->gzip && config->type <= CALLER_SERVER) {
        engine->packed = peer_gzip(message, len, (int)config->gzip_level);
        if (engine->framed) {
            struct peer_body *bare = engine->packed;
            engine->packed = peer_body_message(true, bare->data, bare->len);
            peer_body_unref(bare);
        }
    }
}

/* Another unary reply than the request itself; NULL: it is that. */
static struct peer_body *
make_other_reply(struct caller_engine *engine)
{
    const struct caller_config *config = &engine->config;
    if (config->expect)
        return read_message(config->expect);
    if (config->reply_size >= 0) {
        size_t size = (size_t)config->reply_size;
        struct peer_body *fixed = peer_body_new(PEER_PREFIX_BYTES + size);
        peer_prefix_write(fixed->data, false, size);
        peer_pattern_fill(fixed->data + PEER_PREFIX_BYTES, 0, size);
        fixed->len = PEER_PREFIX_BYTES + size;
        return fixed;
    }
    if (engine->tail->len == 0)
        return NULL;
    struct peer_body *longer = peer_body_copy(engine->plain->data, engine->plain->len);
    longer = peer_body_append(longer, engine->tail->data, engine->tail->len);
    peer_prefix_write(longer->data, false, longer->len - PEER_PREFIX_BYTES);
    return longer;
}

static void
make_expectation(struct caller_engine *engine)
{
    const struct caller_config *config = &engine->config;
    size_t skip = engine->framed ? 0 : PEER_PREFIX_BYTES;
    engine->echoes = !config->expect && config->reply_size < 0;
    engine->other_reply = make_other_reply(engine);
    const struct peer_body *reply = engine->other_reply ? engine->other_reply : engine->plain;
    engine->expect = reply->data + skip;
    engine->expect_len = reply->len - skip;
}

int
caller_engine_init(struct caller_engine *engine, uv_loop_t *loop,
                   const struct caller_config *config, const char **error)
{
    *engine = (struct caller_engine){.config = *config};
    struct sockaddr_storage address;
    bool unix_path = config->target && strncmp(config->target, "unix:", 5) == 0;
    *error = NULL;
    if (!config->target || (!unix_path && parse_address(config->target, &address) < 0))
        *error = "--target must be IP:PORT, [IPV6]:PORT, localhost:PORT or unix:PATH";
    else if (!config->method || config->method[0] != '/')
        *error = "--method must be /Service/Method";
    else if (config->connections < 1 || config->size < 0 || config->proto_field < 0 ||
             config->proto_field > 15)
        *error = "--connections must be at least 1, --size at least 0, --proto-field 0 to 15";
    else if (config->gzip_level < 1 || config->gzip_level > 9)
        *error = "--gzip-level must be 1 to 9";
    else if (config->type != CALLER_UNARY && (config->body || config->expect))
        *error = "--body and --expect are for unary calls";
    else if (!(engine->tail = read_hex(config->reply_tail ? config->reply_tail : "")))
        *error = "--reply-tail must be pairs of hex digits";
    for (int i = 0; i < config->metadata.count; i++)
        if (!strchr(config->metadata.items[i], '='))
            *error = "--metadata must be name=value";
    if (*error)
        return -EINVAL;
    engine->framed = !config->triple || config->type != CALLER_UNARY;
    if (config->triple && engine->framed && !config->codec)
        engine->config.codec = "proto";
    make_messages(engine);
    make_expectation(engine);
    make_fields(engine);
    engine->slots = peer_alloc((size_t)config->connections * sizeof *engine->slots);
    memset(engine->slots, 0, (size_t)config->connections * sizeof *engine->slots);
    int rv = peer_loop_init(&engine->net, loop);
    return rv ? rv : peer_timers_init(&engine->timers, loop);
}

void
caller_engine_stop(struct caller_engine *engine)
{
    if (engine->stopping)
        return;
    engine->stopping = true;
    for (struct caller_connection *c = engine->all; c; c = c->next)
        peer_link_close(&c->link, 0);
    peer_timers_fini(&engine->timers);
    peer_loop_fini(&engine->net);
}

void
caller_engine_fini(struct caller_engine *engine)
{
    peer_body_unref(engine->plain);
    peer_body_unref(engine->packed);
    peer_body_unref(engine->tail);
    peer_body_unref(engine->other_reply);
    free(engine->slots);
}
