/*
 * HTTP/1.1 as a server: requests become streams; idle and head timeouts; the answer to what is no
 * request.
 *
 * Happy path: h1_server_open -> request head -> on_stream, on_head -> … -> both sides over -> the
 * next request. Failure modes: a malformed request is answered with its status and a line of text,
 * and the connection closed; a malformed body resets the stream first. A reply that ends before its
 * request was read closes the connection after it.
 */
#include "proxy/base/clock.h"
#include "proxy/net/h1_private.h"

/* What a request target says, in HTTP/2's terms. */
struct target {
    struct text authority, path;
};

/* RFC 9112 section 3.2: origin form, absolute form, or "*" for OPTIONS. False: none of them. */
static bool
read_target(const struct http1_reader *reader, struct target *target)
{
    static const struct text schemes[] = {{"http://", 7}, {"https://", 8}};
    target->authority = fields_value(&reader->fields, TEXT("host"));
    target->path = reader->target;
    if (text_starts(target->path, TEXT("/")))
        return true;
    if (text_eq(target->path, TEXT("*")))
        return text_eq(reader->method, TEXT("OPTIONS"));
    for (unsigned i = 0; i < 2; i++) {
        if (!text_starts_nocase(target->path, schemes[i]))
            continue;
        struct text rest = text_from(target->path, schemes[i].len);
        ptrdiff_t slash = text_find(rest, '/', 0);
        target->authority = slash < 0 ? rest : text_make(rest.ptr, (size_t)slash);
        target->path = slash < 0 ? TEXT("/") : text_from(rest, (size_t)slash);
        return target->authority.len > 0 && text_find(target->authority, '@', 0) < 0;
    }
    return false;
}

static void
fill_fields(struct h1 *h1, struct fields *fields, const struct target *target)
{
    struct arena *arena = fields->arena;
    fields_add(fields, TEXT(":method"), arena_copy(arena, h1->reader.method), FIELD_STATIC_NAME);
    fields_add(fields, TEXT(":scheme"), h1->conn->tls ? TEXT("https") : TEXT("http"), FIELD_STATIC);
    if (target->authority.len > 0)
        fields_add(fields, TEXT(":authority"), arena_copy(arena, target->authority),
                   FIELD_STATIC_NAME);
    fields_add(fields, TEXT(":path"), arena_copy(arena, target->path), FIELD_STATIC_NAME);
    h1_copy_fields(fields, &h1->reader.fields);
}

void
h1_server_head(struct h1 *h1)
{
    const struct http1_reader *reader = &h1->reader;
    struct target target;
    timers_stop(&h1->ctx->timers, &h1->timer);
    h1->head_timing = false;
    if (text_eq(reader->method, TEXT("CONNECT"))) {
        h1_server_refuse(h1, 501, "no tunnels here");
        return;
    }
    if (!read_target(reader, &target)) {
        h1_server_refuse(h1, 400, "not a request target");
        return;
    }
    struct h1_stream *exchange = h1_stream_new(h1);
    struct stream *stream = &exchange->stream;
    exchange->no_body = text_eq(reader->method, TEXT("HEAD"));
    exchange->head_ended = !reader->chunked && reader->content_length <= 0;
    stream->head_ns = ctx_head_read(h1->ctx);
    h1->keep = reader->keep_alive;
    h1->events->on_stream(h1, stream);
    if (stream->fields)
        fill_fields(h1, stream->fields, &target);
    if (stream->events)
        stream->events->on_head(stream, exchange->head_ended);
    /* Asked for and wanted: nobody has begun to answer or given the request up. */
    if (reader->expect_continue && !exchange->head_ended && !h1->down && h1->stream == exchange &&
        stream->events && !exchange->head_given && !list_linked(&h1->ending.node)) {
        conn_queue(h1->conn, "HTTP/1.1 100 Continue\r\n\r\n", 25);
        conn_dirty(h1->conn);
    }
}

void
h1_server_step(struct h1 *h1)
{
    struct h1_stream *exchange = h1->stream;
    if (!exchange || !exchange->stream.out_closed)
        return;
    bool keep = h1->keep && !h1->draining && exchange->stream.in_end;
    if (!keep) {
        h1_leave(h1, "last exchange is over");
        return;
    }
    h1->stream = NULL;
    h1->completed++;
    h1_stream_release(exchange);
    h1_next_message(h1);
    h1_server_wait(h1);
    ctx_defer(h1->ctx, &h1->again);
}

/* Whether a reply's first bytes are on the way: then nothing but closing can be said. */
static bool
reply_begun(const struct h1 *h1)
{
    return h1->stream && h1->stream->head_queued;
}

void
h1_server_refuse(struct h1 *h1, int status, const char *text)
{
    char answer[512];
    bool begun = reply_begun(h1);
    if (h1->stream)
        h1_stream_lose(h1->stream, STREAM_MALFORMED);
    if (h1->down)
        return;
    if (!begun) {
        int len = snprintf(answer, sizeof answer,
                           "HTTP/1.1 %d %s\r\ncontent-type: text/plain\r\ncontent-length: %zu\r\n"
                           "connection: close\r\n\r\n%s\n",
                           status, http1_reason(status), strlen(text) + 1, text);
        conn_queue(h1->conn, answer, (size_t)len < sizeof answer ? (size_t)len : sizeof answer - 1);
    }
    h1_leave(h1, text);
}

void
h1_server_wait(struct h1 *h1)
{
    struct timers *timers = &h1->ctx->timers;
    if (http1_reader_idle(&h1->reader)) {
        h1->head_timing = false;
        if (h1->options.idle_timeout_ns && !timer_running(&h1->timer))
            timers_start(timers, &h1->timer, h1->ctx->turn_ns + h1->options.idle_timeout_ns);
        return;
    }
    if (h1->head_timing)
        return; /* counted from the head's first byte, however slowly the rest trickles in */
    h1->head_timing = true;
    timers_stop(timers, &h1->timer);
    if (h1->options.head_timeout_ns)
        timers_start(timers, &h1->timer, h1->ctx->turn_ns + h1->options.head_timeout_ns);
}

void
h1_server_on_timer(struct timer *timer)
{
    struct h1 *h1 = container_of(timer, struct h1, timer);
    if (h1->head_timing)
        h1_server_refuse(h1, 408, "request head too slow");
    else
        h1_leave(h1, "idle");
}

struct h1 *
h1_server_open(struct conn *conn, const struct h1_options *options, const struct h1_events *events,
               void *owner, const uint8_t *first, size_t first_len)
{
    struct h1 *h1 = h1_new(conn, true, options, events, owner);
    strbuf_add(&h1->stash, first, first_len);
    ctx_defer(h1->ctx, &h1->again); /* feeds it, and starts reading */
    h1_server_wait(h1);
    return h1;
}
