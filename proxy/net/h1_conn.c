/*
 * A connection's life in HTTP/1.1, either role: opening, ending. Owns struct h1.
 *
 * Happy path: open -> on_read -> reader events -> stream events; after the exchange the reader
 * starts again, on what was stashed or on what comes. Failure modes: a lost socket or malformed
 * input loses the running exchange (a malformed request is answered first); on_down comes once,
 * on_closed last.
 */
#include "proxy/net/h1.h"

#include "proxy/net/h1_private.h"

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
    .on_read = h1_read,
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
    h1->again.run = h1_read_again;
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

/* Whether the peer can't have seen a byte of the request. */
bool
h1_never_written(const struct h1_stream *exchange)
{
    return !exchange->h1->server && (!exchange->head_queued || !exchange->h1->conn ||
                                     exchange->h1->conn->flushed <= exchange->start);
}

void
h1_go_down(struct h1 *h1, int error, const char *text)
{
    if (h1->down)
        return;
    h1->down = true; /* verbs that callbacks call do nothing from here on */
    while (!list_empty(&h1->streams)) {
        struct h1_stream *exchange = list_first(&h1->streams, struct h1_stream, node);
        h1_stream_lose(exchange, h1_never_written(exchange) ? STREAM_NOT_PROCESSED : STREAM_LOST);
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

void
h1_drain(struct h1 *h1)
{
    if (h1->down)
        return;
    h1->draining = true;
    if (!h1->stream && http1_reader_idle(&h1->reader) && h1->stash.len == h1->stash_at)
        h1_leave(h1, "drained");
}

void
h1_shutdown(struct h1 *h1)
{
    h1_go_down(h1, UV_ECANCELED, "shut down");
}
