/*
 * One connection of a pool from its dial to its end, whatever it speaks. Dies by itself: it leaves
 * the pool's lists when it is down, and is freed when its socket is closed.
 *
 * Happy path: open → connected (pool_h2.c or pool_h1.c takes the socket) → requests → down →
 * closed.
 *
 * Failure modes: the dial is refused or takes too long; the loss of a connection that was of no use
 * (no reply, not a second of life): both are the endpoint's failure and start the backoff. Any
 * other loss only makes room for the next dial.
 */
#include "upstream/pool_private.h"

#include "proxy/base/clock.h"

#define USEFUL_AFTER_NS NS_PER_S
enum { UNACKED_MS = 20000 }; /* sent, and no ACK for it: the network or the host is gone */

void
pool_conn_retire(struct pool_conn *conn)
{
    struct pool *pool = conn->pool;
    if (conn->retired)
        return;
    conn->retired = true;
    conn->idle = false;
    pool->connection_count--;
    if (!conn->connected_ns)
        pool->connecting--;
    list_unlink(&conn->node);
    list_push_back(&pool->retired, &conn->node);
}

void
pool_conn_forget(struct pool_conn *conn)
{
    struct pool *pool = conn->pool;
    pool_conn_retire(conn);
    list_unlink(&conn->node);
    stats_sub(&pool->target->cells->connections, 1);
    slab_free(&pool_ctx(pool)->slab, conn);
    pool->target->on_change(pool->target);
}

/* Whether the loss is the endpoint's failure. One that says politely that it is going may be met
 * while it restarts: the first is forgiven, so that its calls move on at once. */
static bool
is_failure(struct pool_conn *conn, int error)
{
    if (conn->failure)
        return true;
    if (conn->ended || conn->useful)
        return false;
    return error != 0 || ++conn->pool->wasted > 1;
}

void
pool_conn_down(struct pool_conn *conn, int error, const char *text)
{
    struct pool *pool = conn->pool;
    struct target *target = pool->target;
    if (!text)
        text = uv_strerror(error);
    pool_conn_retire(conn);
    conn->down = true;
    conn->broken = false;
    if (is_failure(conn, error)) {
        pool_failed(pool, conn->failure ? conn->failure : text);
        return;
    }
    if (!conn->ended && error)
        target->on_trouble(target);
    pool_capacity(pool);
    target->on_change(target);
}

/* --- dialling --- */

static bool
speaks(struct pool_conn *conn, struct conn *socket)
{
    const char *chosen = conn_protocol(socket);
    return !chosen[0] || strcmp(chosen, conn->pool->http1 ? "http/1.1" : "h2") == 0;
}

static void
connected(struct pool_conn *conn, struct conn *socket)
{
    struct pool *pool = conn->pool;
    conn->connected_ns = clock_now_ns();
    conn->conn = NULL;
    pool->connecting--;
    stats_add(&pool->target->cells->opened, 1);
    conn_limit_unacked(socket, UNACKED_MS);
    if (pool->http1)
        pool_h1_start(conn, socket);
    else
        pool_h2_start(conn, socket);
    pool_connected(conn);
}

static void
on_open(struct conn *socket, int error)
{
    struct pool_conn *conn = socket->owner;
    if (error == 0 && !conn->retired && speaks(conn, socket)) {
        connected(conn, socket);
        return;
    }
    bool ours = conn->retired;
    pool_conn_retire(conn);
    conn_close(socket);
    if (!ours)
        pool_failed(conn->pool, error ? uv_strerror(error) : "it chose another protocol by ALPN");
}

static void
on_lost(struct conn *socket, int error)
{
    on_open(socket, error);
}

static void
on_closed(struct conn *socket)
{
    pool_conn_forget(socket->owner);
}

static const struct conn_events DIAL_EVENTS = {
    .on_open = on_open,
    .on_lost = on_lost,
    .on_closed = on_closed,
};

static const char *
server_name(const struct target *target)
{
    if (target->conf->tls_server_name.len)
        return target->conf->tls_server_name.ptr;
    return target->host.len ? target->host.ptr : NULL;
}

bool
pool_conn_open(struct pool *pool)
{
    struct target *target = pool->target;
    struct ctx *ctx = pool_ctx(pool);
    struct pool_conn *conn = slab_zalloc(&ctx->slab, sizeof(*conn));
    conn->pool = pool;
    int error =
        conn_connect(ctx, &target->address, target->conf->connect_timeout_ns, target->conf->tls,
                     server_name(target), &DIAL_EVENTS, conn, &conn->conn);
    if (error) {
        slab_free(&ctx->slab, conn);
        pool_failed(pool, uv_strerror(error));
        return false;
    }
    if (pool->http1)
        conn_offer(conn->conn, "http/1.1");
    conn->conn->reads = &target->cells->reads;
    conn->conn->writes = &target->cells->writes;
    stats_add(&target->cells->connections, 1);
    pool->connection_count++;
    pool->connecting++;
    list_push_back(&pool->connections, &conn->node);
    target->on_change(target);
    return true;
}

/* --- calls --- */

uint32_t
pool_conn_capacity(const struct pool_conn *conn)
{
    if (conn->retired)
        return 0;
    if (conn->h1)
        return conn->idle && h1_usable(conn->h1);
    return conn->h2 ? pool_h2_capacity(conn) : 0;
}

struct stream *
pool_request(struct pool_conn *conn, const struct fields *fields,
             const struct stream_events *events, void *owner, struct fields *reply_fields,
             struct fields *reply_trailers)
{
    struct stream *stream =
        conn->h1 ? pool_h1_request(conn, fields, events, owner, reply_fields, reply_trailers)
                 : pool_h2_request(conn, fields, events, owner, reply_fields, reply_trailers);
    if (!stream)
        return NULL;
    conn->live++;
    stats_add(&conn->pool->target->cells->streams, 1);
    return stream;
}

void
pool_release(struct pool_conn *conn, struct stream *stream, enum pool_end end, uint32_t h2_error)
{
    conn->live--;
    if (end == POOL_END_OVER) {
        stream_detach(stream);
    } else {
        if (conn->h2)
            pool_h2_count_reset(conn, end == POOL_END_RESET_COUNTED);
        stream_reset(stream, h2_error);
    }
    if (conn->h2)
        pool_h2_left(conn);
}

static void
prove(struct pool_conn *conn)
{
    conn->useful = true;
    pool_proved(conn->pool);
}

void
pool_heard(struct pool_conn *conn)
{
    conn->keepalive.heard = true;
    if (!conn->useful)
        prove(conn);
}

void
pool_broken(struct pool_conn *conn)
{
    /* On HTTP/1.1 the loss of an exchange is that of the connection. */
    conn->broken = conn->h1 && !conn->down;
}

/* --- the end --- */

void
pool_conn_drain(struct pool_conn *conn)
{
    pool_conn_retire(conn);
    conn->ended = true;
    if (conn->h2)
        h2_drain(conn->h2);
    else if (conn->h1)
        h1_drain(conn->h1);
    else
        conn_close(conn->conn);
}

void
pool_conn_close(struct pool_conn *conn)
{
    pool_conn_retire(conn);
    conn->ended = conn->closing = true;
    if (conn->h2)
        h2_shutdown(conn->h2, NGHTTP2_NO_ERROR);
    else if (conn->h1)
        h1_shutdown(conn->h1);
    else
        conn_close(conn->conn);
}

void
pool_conn_abort(struct pool_conn *conn)
{
    struct conn *socket = conn->h2 ? conn->h2->conn : conn->h1 ? h1_conn(conn->h1) : conn->conn;
    if (socket)
        conn_close(socket);
}

void
pool_conn_check(struct pool_conn *conn, uint64_t now_ns)
{
    if (!conn->connected_ns || conn->down || conn->closing)
        return;
    if (!conn->useful && (!conn->h2 || conn->h2->settings_seen) &&
        now_ns > conn->connected_ns + USEFUL_AFTER_NS)
        prove(conn);
    if (conn->h2)
        pool_h2_check(conn, now_ns);
    else
        pool_h1_check(conn, now_ns);
}
