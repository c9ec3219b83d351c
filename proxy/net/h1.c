/*
 * A connection's life in HTTP/1.1, either role: opening, reading, ending. Owns struct h1 and its
 * reader.
 *
 * Happy path: open -> on_read -> reader events -> stream events; after the exchange the reader
 * starts again, on what was stashed or on what comes. Failure modes: a lost socket or malformed
 * input loses the running exchange (a malformed request is answered first); on_down comes once,
 * on_closed last.
 */
#include "proxy/net/h1.h"

#include "proxy/base/check.h"
#include "proxy/net/h1_private.h"
#include "proxy/wire/header_class.h"

/* Whether the peer can't have seen a byte of the request. */
static bool
never_written(const struct h1_stream *exchange)
{
    return !exchange->h1->server && (!exchange->head_queued || !exchange->h1->conn ||
                                     exchange->h1->conn->flushed <= exchange->start);
}

static void
on_read(struct conn *conn, const uint8_t *data, size_t len)
{
    h1_feed(conn->owner, data, len);
}

static void
on_lost(struct conn *conn, int error)
{
    struct h1 *h1 = conn->owner;
    struct h1_stream *exchange = h1->stream;
    if (!h1->server && exchange && !exchange->stream.in_end && error == UV_EOF &&
        http1_reader_eof(&h1->reader) == HTTP1_END) {
        h1_stream_end(exchange);
        h1_client_step(h1);
    }
    h1_go_down(h1, error, "connection lost");
}

static void
on_closed(struct conn *conn)
{
    struct h1 *h1 = conn->owner;
    h1->conn = NULL;
    h1_go_down(h1, UV_ECANCELED, "closed");
    /* After leaving politely: those that were still to be flushed. */
    while (!list_empty(&h1->streams))
        h1_stream_lose(list_first(&h1->streams, struct h1_stream, node), STREAM_LOST);
    if (h1->events->on_closed)
        h1->events->on_closed(h1);
    http1_reader_fini(&h1->reader);
    arena_fini(&h1->arena);
    strbuf_fini(&h1->head);
    strbuf_fini(&h1->stash);
    slab_free(&h1->ctx->slab, h1);
}

static const struct conn_events conn_events = {
    .on_read = on_read,
    .on_lost = on_lost,
    .fill = h1_fill,
    .on_closed = on_closed,
};

static void
on_ending(struct deferred *deferred)
{
    struct h1 *h1 = container_of(deferred, struct h1, ending);
    h1_go_down(h1, h1->ending_error, h1->ending_text);
}

/* Input that waited: for the exchange before it, or for the connection's opening to return. */
static void
on_again(struct deferred *deferred)
{
    struct h1 *h1 = container_of(deferred, struct h1, again);
    struct strbuf stash = h1->stash;
    h1->stash = STRBUF_INIT;
    if (stash.len > 0 && !h1->down)
        h1_feed(h1, (const uint8_t *)stash.data, stash.len);
    if (!h1->down && h1->stash.len < H1_STASH_BYTES)
        conn_start_read(h1->conn);
    strbuf_fini(&stash);
}

struct h1 *
h1_new(struct conn *conn, bool server, const struct h1_options *options,
       const struct h1_events *events, void *owner)
{
    struct ctx *ctx = conn->ctx;
    struct h1 *h1 = slab_zalloc(&ctx->slab, sizeof *h1);
    h1->ctx = ctx;
    h1->conn = conn;
    h1->events = events;
    h1->owner = owner;
    h1->options = *options;
    h1->server = server;
    h1->keep = true;
    h1->again.run = on_again;
    h1->ending.run = on_ending;
    h1->timer.on_due = h1_server_on_timer;
    list_init(&h1->streams);
    list_init(&h1->again.node);
    list_init(&h1->ending.node);
    arena_init(&h1->arena, h1->memory, sizeof h1->memory);
    http1_reader_init(&h1->reader, server ? HTTP1_REQUEST : HTTP1_RESPONSE, options->max_head,
                      &h1->arena);
    conn_set_events(conn, &conn_events, h1);
    return h1;
}

void *
h1_owner(const struct h1 *h1)
{
    return h1->owner;
}

struct conn *
h1_conn(const struct h1 *h1)
{
    return h1->conn;
}

/* on_down, and nothing of ours happens any more; streams and socket are the caller's to deal with.
 */
static void
stop(struct h1 *h1, int error, const char *text)
{
    h1->down = true;
    timers_stop(&h1->ctx->timers, &h1->timer);
    list_unlink(&h1->again.node);
    list_unlink(&h1->ending.node);
    if (h1->events->on_down)
        h1->events->on_down(h1, error, text);
}

void
h1_go_down(struct h1 *h1, int error, const char *text)
{
    if (h1->down)
        return;
    h1->down = true; /* verbs that callbacks call do nothing from here on */
    while (!list_empty(&h1->streams)) {
        struct h1_stream *exchange = list_first(&h1->streams, struct h1_stream, node);
        h1_stream_lose(exchange, never_written(exchange) ? STREAM_NOT_PROCESSED : STREAM_LOST);
    }
    stop(h1, error, text);
    if (h1->conn)
        conn_close(h1->conn);
}

void
h1_go_down_later(struct h1 *h1, int error, const char *text)
{
    if (h1->down)
        return;
    h1->ending_error = error;
    h1->ending_text = text;
    ctx_defer(h1->ctx, &h1->ending);
}

void
h1_leave(struct h1 *h1, const char *text)
{
    if (h1->down)
        return;
    if (h1->stream) { /* its exchange is as over as it gets; its last bytes may still have to leave
                       */
        struct h1_stream *exchange = h1->stream;
        h1->stream = NULL;
        if (!exchange->stream.out_closed)
            h1_stream_lose(exchange, STREAM_LOST);
    }
    stop(h1, 0, text);
    conn_close_after_flush(h1->conn);
}

void
h1_next_message(struct h1 *h1)
{
    arena_fini(&h1->arena);
    arena_init(&h1->arena, h1->memory, sizeof h1->memory);
    http1_reader_restart(&h1->reader, &h1->arena);
}

static void
stash(struct h1 *h1, const uint8_t *data, size_t len)
{
    strbuf_add(&h1->stash, data, len);
    if (h1->stash.len >= H1_STASH_BYTES)
        conn_stop_read(h1->conn);
}

static void
take_head(struct h1 *h1)
{
    if (h1->server)
        h1_server_head(h1);
    else if (!h1->reader.interim)
        h1_client_head(h1);
}

static void
take_end(struct h1 *h1)
{
    if (h1->stream) {
        h1_stream_end(h1->stream);
        if (h1->down || !h1->stream)
            return;
    }
    if (h1->server)
        h1_server_step(h1);
    else
        h1_client_step(h1);
}

static void
take_bad(struct h1 *h1)
{
    const char *text = h1->reader.error;
    if (h1->server) {
        h1_server_refuse(h1, h1->reader.error_status, text);
        return;
    }
    if (h1->stream)
        h1_stream_lose(h1->stream,
                       h1->reader.error_status == 431 ? STREAM_HEADERS_TOO_LONG : STREAM_MALFORMED);
    h1_go_down(h1, UV_EPROTO, text);
}

/* Whether the reader may look at input now: a server between requests, or an exchange whose
 * incoming side is open. */
static bool
wants_input(const struct h1 *h1)
{
    return !h1->down && !list_linked(&h1->ending.node) &&
           (h1->stream ? !h1->stream->stream.in_end : h1->server);
}

void
h1_feed(struct h1 *h1, const uint8_t *data, size_t len)
{
    const uint8_t *body;
    size_t body_len;
    if (!h1->server && !h1->down && (!h1->stream || never_written(h1->stream))) {
        h1_go_down(h1, UV_EPROTO, "bytes without a request");
        return;
    }
    if (list_linked(&h1->again.node)) { /* what waits goes first */
        stash(h1, data, len);
        return;
    }
    while (wants_input(h1)) {
        switch (http1_reader_next(&h1->reader, &data, &len, &body, &body_len)) {
        case HTTP1_NEED_MORE:
            if (h1->server && !h1->stream)
                h1_server_wait(h1);
            return;
        case HTTP1_HEAD:
            take_head(h1);
            break;
        case HTTP1_BODY:
            h1_stream_data(h1->stream, body, body_len);
            break;
        case HTTP1_END:
            if (!h1->server && len > 0)
                h1->keep =
                    false; /* more than was asked for: no later request may take it for its reply */
            take_end(h1);
            break;
        case HTTP1_BAD:
            take_bad(h1);
            return;
        }
        if (list_linked(&h1->again.node))
            break; /* the exchange ended at once: the next one begins after this turn's callbacks */
    }
    if (!h1->down && len > 0)
        stash(h1, data, len);
}

/* A field that the connection field names is hop-by-hop too (RFC 9110 section 7.6.1). */
static bool
named_in(struct text name, struct text list)
{
    struct text token;
    while (text_next(&list, ',', &token))
        if (text_eq_nocase(token, name))
            return true;
    return false;
}

void
h1_copy_fields(struct fields *into, const struct fields *from)
{
    struct text named = fields_value(from, TEXT("connection"));
    fields_for_each (field, from) {
        enum header_class class = header_class_of(field->name);
        if (class == HEADER_HOP || class == HEADER_HOST || class == HEADER_EXPECT)
            continue;
        if (named.len > 0 && named_in(field->name, named))
            continue;
        fields_add_copy(into, field->name, field->value, 0);
    }
}

void
h1_drain(struct h1 *h1)
{
    if (h1->down)
        return;
    h1->draining = true;
    if (!h1->stream && http1_reader_idle(&h1->reader) && h1->stash.len == 0)
        h1_leave(h1, "drained");
}

void
h1_shutdown(struct h1 *h1)
{
    h1_go_down(h1, UV_ECANCELED, "shut down");
}
