/*
 * HTTP/1.1 on a pool's connection: one call at a time, kept for the next one.
 *
 * Happy path: start (idle, at the front of the pool's list) → request (busy, at the back) → reply →
 * idle again. Reading goes on while idle, so that a provider's close is noticed before the next
 * request.
 *
 * Failure modes: a provider that closes just as a request is on its way: nobody can know whether it
 * was taken, so the call ends UNAVAILABLE (a POST is not to be repeated, RFC 9110 section 9.2.2);
 * only when no byte of it was written it goes to another connection. To make that rare idle
 * connections are closed from our side before servers usually do. Cancelled calls close the
 * connection: HTTP/1.1 has no other word for it.
 */
#include "upstream/pool_private.h"

#include "proxy/base/clock.h"

enum {
    IDLE_S = 30, /* below what servers usually allow: 60 s and more */
    MAX_REPLY_HEAD = 64 * 1024,
};

static void
be_idle(struct pool_conn *conn)
{
    struct pool *pool = conn->pool;
    conn->idle = true;
    conn->idle_since_ns = pool_ctx(pool)->turn_ns;
    list_unlink(&conn->node);
    list_push_front(&pool->connections, &conn->node);
}

static void
on_stream_closed(struct h1 *h1, struct stream *stream)
{
    struct pool_conn *conn = h1_owner(h1);
    (void)stream;
    stats_sub(&conn->pool->target->cells->streams, 1);
}

static void
on_idle(struct h1 *h1)
{
    struct pool_conn *conn = h1_owner(h1);
    if (conn->retired)
        return;
    be_idle(conn);
    pool_capacity(conn->pool);
}

static void
on_down(struct h1 *h1, int error, const char *text)
{
    struct pool_conn *conn = h1_owner(h1);
    if (error == UV_ECANCELED) /* a cancelled call, or we closed it */
        conn->ended = true;
    pool_conn_down(conn, error, text);
}

static void
on_closed(struct h1 *h1)
{
    pool_conn_forget(h1_owner(h1));
}

static const struct h1_events EVENTS = {
    .on_stream_closed = on_stream_closed,
    .on_idle = on_idle,
    .on_down = on_down,
    .on_closed = on_closed,
};

void
pool_h1_start(struct pool_conn *conn, struct conn *socket)
{
    struct h1_options options = {.max_head = MAX_REPLY_HEAD};
    conn->h1 = h1_client_open(socket, &options, &EVENTS, conn);
    be_idle(conn);
}

struct stream *
pool_h1_request(struct pool_conn *conn, const struct fields *fields,
                const struct stream_events *events, void *owner, struct fields *reply_fields,
                struct fields *reply_trailers)
{
    struct stream *stream =
        h1_request(conn->h1, fields, false, events, owner, reply_fields, reply_trailers);
    if (!stream)
        return NULL;
    conn->idle = false;
    list_unlink(&conn->node);
    list_push_back(&conn->pool->connections, &conn->node);
    return stream;
}

void
pool_h1_check(struct pool_conn *conn, uint64_t now_ns)
{
    if (conn->idle && now_ns > conn->idle_since_ns + IDLE_S * NS_PER_S)
        pool_conn_close(conn);
}
