/*
 * HTTP/2 on a pool's connection: its session's events, and whether a silent peer is still there.
 *
 * Happy path: start → calls may be sent at once (100 streams are assumed until the peer's SETTINGS
 * say more or less) → SETTINGS → … → GOAWAY or loss.
 *
 * Failure modes: no SETTINGS in time, GOAWAY before any use: the endpoint's failure. After GOAWAY
 * the streams go on; when nothing was read for GOAWAY_SILENCE_S they are lost with the connection.
 * A peer that is silent while calls wait for it gets a PING, and PING_WAIT_S to answer before the
 * connection counts as lost: frozen hosts, and networks that drop packets, are found that way.
 *
 * PINGs and strict peers: grpc's servers close a connection at the third PING that comes within
 * five minutes of the one before, unless they have sent something for a stream in between. So: none
 * while idle, one per silence, and at most two more in five minutes, for requests that were sent
 * since.
 */
#include "upstream/pool_private.h"

#include <stdio.h>

#include "proxy/base/clock.h"
#include "proxy/base/log.h"

enum {
    PING_WAIT_S = 8,
    PING_INTERVAL_S = 310, /* grpc's five minutes, and some */
    PING_STRIKES = 2,      /* what grpc's servers bear */
    KEEPALIVE_MAX_S = 600, /* doubled up to this when a peer finds it too much */
    GOAWAY_SILENCE_S = 10,
    SETTINGS_WAIT_S = 5, /* or connect_timeout where that is longer */
    RST_WINDOW_S = 30,   /* in which dubbo-java bears 200 RST_STREAMs on a connection */
    RST_BUDGET = 150,    /* after so many the connection is retired, */
    RST_MOST = 190,      /* so many for what is left on it; then no more */
    MAX_REPLY_HEADERS = 256 * 1024,
};

/* --- events --- */

static void
on_stream(struct h2 *h2, struct stream *stream)
{
    (void)h2; /* servers do not open streams to us: push is off */
    (void)stream;
}

static void
on_stream_closed(struct h2 *h2, struct stream *stream)
{
    struct pool_conn *conn = h2->owner;
    (void)stream;
    stats_sub(&conn->pool->target->cells->streams, 1);
    if (!conn->retired)
        pool_capacity(conn->pool);
}

static void
on_settings(struct h2 *h2)
{
    struct pool_conn *conn = h2->owner;
    conn->pool->peer_streams = h2->peer_max_streams;
    pool_connected(conn);
}

static void
on_goaway(struct h2 *h2, uint32_t error)
{
    struct pool_conn *conn = h2->owner;
    struct pool *pool = conn->pool;
    struct target *target = pool->target;
    if (error != NGHTTP2_NO_ERROR)
        log_warn("pool_h2", "upstream %s: %.*s sent GOAWAY %s", target->upstream,
                 TEXT_ARGS(target->name), h2_error_name(error));
    if (error == NGHTTP2_ENHANCE_YOUR_CALM && pool->keepalive_ns < KEEPALIVE_MAX_S * NS_PER_S)
        pool->keepalive_ns *= 2;
    pool_conn_retire(conn);
    h2_drain(h2);
    target->on_trouble(target);
    target->on_change(target);
    pool_capacity(pool);
}

static void
on_down(struct h2 *h2, int error, const char *text)
{
    struct pool_conn *conn = h2->owner;
    char what[128];
    if (h2->goaway_seen)
        text = "it sends GOAWAY before any reply"; /* else nobody asks */
    snprintf(what, sizeof(what), "%s%s", text ? text : uv_strerror(error),
             h2->settings_seen ? "" : ", before it has shown that it speaks HTTP/2");
    pool_conn_down(conn, error, what);
}

static void
on_closed(struct h2 *h2)
{
    pool_conn_forget(h2->owner);
}

static void
on_ping_ack(struct h2 *h2)
{
    struct pool_conn *conn = h2->owner;
    conn->keepalive.pinged_ns = 0;
}

static const struct h2_events EVENTS = {
    .on_stream = on_stream,
    .on_stream_closed = on_stream_closed,
    .on_settings = on_settings,
    .on_goaway = on_goaway,
    .on_down = on_down,
    .on_closed = on_closed,
    .on_ping_ack = on_ping_ack,
};

void
pool_h2_start(struct pool_conn *conn, struct conn *socket)
{
    const struct target *target = conn->pool->target;
    uint64_t timeout_ns = target->conf->connect_timeout_ns;
    struct h2_options options = {
        .stream_window = (uint32_t)target->worker->snapshot->stream_window,
        .max_header_list = MAX_REPLY_HEADERS,
        .rst_window_ns = RST_WINDOW_S * NS_PER_S,
        .handshake_timeout_ns =
            timeout_ns > SETTINGS_WAIT_S * NS_PER_S ? timeout_ns : SETTINGS_WAIT_S * NS_PER_S,
    };
    conn->h2 = h2_client_open(socket, &options, &EVENTS, conn);
}

bool
pool_h2_settled(const struct pool_conn *conn)
{
    const struct h2 *h2 = conn->h2;
    return h2->settings_seen && !h2->down && !h2->goaway_seen;
}

bool
pool_h2_going(const struct pool_conn *conn)
{
    const struct h2 *h2 = conn->h2;
    if (conn->down || conn->ended)
        return false;
    if (conn->retired) /* GOAWAY before any use: on_down follows, and is a failure */
        return !conn->useful && h2->open_streams == 0;
    return h2->down || h2->goaway_seen;
}

/* --- calls --- */

uint32_t
pool_h2_capacity(const struct pool_conn *conn)
{
    const struct h2 *h2 = conn->h2;
    const struct pool *pool = conn->pool;
    uint32_t room = h2_capacity(h2);
    if (h2->settings_seen)
        return room;
    /* After a failure it must first show that it speaks HTTP/2: what waits can go elsewhere, what
     * was sent cannot. Otherwise its limit is taken to be what it was on other connections. */
    if (pool->failures > 0 || pool->peer_streams <= h2->open_streams)
        return 0;
    uint32_t known = pool->peer_streams - h2->open_streams;
    return room < known ? room : known;
}

struct stream *
pool_h2_request(struct pool_conn *conn, const struct fields *fields,
                const struct stream_events *events, void *owner, struct fields *reply_fields,
                struct fields *reply_trailers)
{
    struct h2 *h2 = conn->h2;
    if (h2->open_streams == 0)
        conn->keepalive.busy_since_ns = h2->ctx->turn_ns;
    conn->keepalive.asked = true;
    struct stream *stream =
        h2_request(h2, fields, false, events, owner, reply_fields, reply_trailers);
    if (stream && stream->id > INT32_MAX - 2) /* RFC 9113 section 5.1.1: that was the last id */
        pool_conn_drain(conn);
    return stream;
}

/* --- resets --- */

void
pool_h2_count_reset(struct pool_conn *conn, bool counted)
{
    struct pool_resets *resets = &conn->resets;
    uint64_t now_ns = conn->h2->ctx->turn_ns;
    conn->h2->options.rst_budget = counted ? RST_MOST : 0;
    if (!counted || resets->spent)
        return;
    if (now_ns > resets->began_ns + RST_WINDOW_S * NS_PER_S) {
        resets->began_ns = now_ns;
        resets->count = 0;
    }
    if (++resets->count < RST_BUDGET)
        return;
    resets->spent = true; /* new calls get a connection with a fresh budget */
    pool_conn_drain(conn);
}

/* Streams whose reset was held back go on at the provider until they end by themselves, each on a
 * thread of its own. When no call needs the connection any more, closing it ends them. */
void
pool_h2_left(struct pool_conn *conn)
{
    if (conn->resets.spent && conn->live == 0 && conn->h2->open_streams > 0 && !conn->closing &&
        !conn->down)
        pool_conn_close(conn);
}

/* --- once a second --- */

static void
give_up(struct pool_conn *conn, const char *why)
{
    const struct target *target = conn->pool->target;
    log_warn("pool_h2", "upstream %s: %.*s %s, closing its connection", target->upstream,
             TEXT_ARGS(target->name), why);
    pool_conn_close(conn);
}

/* Whether a strict peer bears another PING now. */
static bool
may_ping(struct pool_keepalive *keepalive, uint64_t now_ns)
{
    if (keepalive->last_ping_ns == 0 || keepalive->heard) {
        keepalive->strikes = 0;
        return true;
    }
    if (now_ns >= keepalive->last_ping_ns + PING_INTERVAL_S * NS_PER_S)
        return true;
    return keepalive->asked && ++keepalive->strikes <= PING_STRIKES;
}

static void
ping(struct pool_conn *conn, uint64_t now_ns)
{
    struct pool_keepalive *keepalive = &conn->keepalive;
    keepalive->pinged_ns = keepalive->last_ping_ns = now_ns;
    keepalive->heard = keepalive->asked = false;
    h2_ping(conn->h2);
}

static bool
longer_than(uint64_t since_ns, uint64_t now_ns, uint64_t limit_ns)
{
    return now_ns > since_ns && now_ns - since_ns > limit_ns;
}

void
pool_h2_check(struct pool_conn *conn, uint64_t now_ns)
{
    struct pool_keepalive *keepalive = &conn->keepalive;
    const struct h2 *h2 = conn->h2;
    if (h2->open_streams == 0) {
        keepalive->pinged_ns = 0;
        return;
    }
    uint64_t since_ns =
        h2->last_read_ns > keepalive->busy_since_ns ? h2->last_read_ns : keepalive->busy_since_ns;
    if (h2->goaway_seen) {
        if (longer_than(h2->last_read_ns, now_ns, GOAWAY_SILENCE_S * NS_PER_S))
            give_up(conn, "is silent after its GOAWAY");
    } else if (keepalive->pinged_ns) {
        if (longer_than(keepalive->pinged_ns, now_ns, PING_WAIT_S * NS_PER_S)) {
            conn->failure = "it does not answer PING";
            give_up(conn, "does not answer PING");
        }
    } else if (longer_than(since_ns, now_ns, conn->pool->keepalive_ns) &&
               may_ping(keepalive, now_ns)) {
        ping(conn, now_ns);
    }
}
