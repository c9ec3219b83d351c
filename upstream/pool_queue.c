/*
 * Who waits, who gets what, when to dial. Owns the lists and the backoff of a pool; connections
 * (pool_conn.c) report here.
 *
 * Happy path: pool_enter → a connection has room → on_granted; or: wait → dial → connected → serve
 * → on_granted.
 *
 * Failure modes: a dial fails, or a connection goes down that was of no use: backoff, and the calls
 * that wait here fail (they try another endpoint) unless another connection is open. A connection
 * that is known to be going down, but has not said why, holds back the next dial: what its calls do
 * when they are replayed must not outrun the backoff.
 */
#include "upstream/pool_private.h"

#include <stdio.h>

#include "proxy/base/clock.h"
#include "proxy/base/log.h"

enum {
    BACKOFF_MS = 50,
    BACKOFF_MAX_MS = 1000,
    HTTP1_DIALS = 16, /* under way at once */
    KEEPALIVE_S = 10,
};

static void serve(struct pool *pool);

static void
on_later(struct deferred *deferred)
{
    serve(container_of(deferred, struct pool, later));
}

static void
changed(struct pool *pool)
{
    pool->target->on_change(pool->target);
}

static void
on_backoff_over(struct timer *timer)
{
    struct pool *pool = container_of(timer, struct pool, backoff);
    bool resting = pool->unwanted || pool->target->worker->draining;
    serve(pool);
    if (!resting)
        pool_warm(pool);
    changed(pool);
}

void
pool_init(struct pool *pool, struct target *target, bool http1)
{
    memset(pool, 0, sizeof(*pool));
    pool->target = target;
    pool->http1 = http1;
    pool->peer_streams = UINT32_MAX;
    pool->keepalive_ns = KEEPALIVE_S * NS_PER_S;
    list_init(&pool->connections);
    list_init(&pool->retired);
    list_init(&pool->waiting);
    list_init(&pool->later.node);
    pool->later.run = on_later;
    pool->backoff.on_due = on_backoff_over;
}

void
pool_fini(struct pool *pool)
{
    timers_stop(&pool_ctx(pool)->timers, &pool->backoff);
    list_unlink(&pool->later.node);
}

bool
pool_idle(const struct pool *pool)
{
    return list_empty(&pool->connections) && list_empty(&pool->retired) &&
           list_empty(&pool->waiting);
}

bool
pool_in_backoff(const struct pool *pool)
{
    return list_empty(&pool->connections) && timer_running(&pool->backoff);
}

bool
pool_usable(const struct pool *pool)
{
    return !pool_in_backoff(pool) && !pool->closing;
}

uint32_t
pool_ready(const struct pool *pool)
{
    return pool->connection_count - pool->connecting;
}

static bool
settled(const struct pool_conn *conn)
{
    return conn->h2 ? pool_h2_settled(conn) : conn->h1 != NULL;
}

bool
pool_healthy(const struct pool *pool)
{
    if (pool->failures == 0)
        return pool_usable(pool);
    list_for_each (node, &pool->connections)
        if (settled(pool_conn_of(node)))
            return true;
    return false;
}

/* --- dialling --- */

static bool
is_going(const struct pool_conn *conn)
{
    return conn->broken || (conn->h2 && pool_h2_going(conn));
}

static bool
any_going(const struct pool *pool)
{
    list_for_each (node, &pool->connections)
        if (is_going(pool_conn_of(node)))
            return true;
    list_for_each (other, &pool->retired)
        if (is_going(pool_conn_of(other)))
            return true;
    return false;
}

static bool
all_settled(const struct pool *pool)
{
    list_for_each (node, &pool->connections)
        if (!settled(pool_conn_of(node)))
            return false;
    return true;
}

static bool
may_dial(const struct pool *pool)
{
    const struct upstream_conf *conf = pool->target->conf;
    if (pool->closing || timer_running(&pool->backoff) || any_going(pool))
        return false;
    if (pool->http1)
        return pool->connection_count < conf->max_connections_http1 &&
               pool->connecting < HTTP1_DIALS && pool->connecting < pool->waiting_count;
    if (pool->connection_count < conf->connections)
        return true;
    return pool->connection_count < conf->max_connections && all_settled(pool);
}

static void
dial_for_waiting(struct pool *pool)
{
    while (!list_empty(&pool->waiting) && may_dial(pool))
        if (!pool_conn_open(pool))
            return;
}

void
pool_warm(struct pool *pool)
{
    if (list_empty(&pool->connections) && !pool->closing && !timer_running(&pool->backoff))
        pool_conn_open(pool);
}

/* --- who gets what --- */

static struct pool_conn *
last_used(const struct pool *pool)
{
    list_for_each (node, &pool->connections) {
        struct pool_conn *conn = pool_conn_of(node);
        if (!conn->idle)
            return NULL;
        if (pool_conn_capacity(conn) > 0)
            return conn;
    }
    return NULL;
}

/* The one with the most room: keeps them evenly filled. */
static struct pool_conn *
roomiest(const struct pool *pool)
{
    struct pool_conn *best = NULL;
    uint32_t most = 0;
    list_for_each (node, &pool->connections) {
        struct pool_conn *conn = pool_conn_of(node);
        uint32_t capacity = pool_conn_capacity(conn);
        if (capacity > most) {
            most = capacity;
            best = conn;
        }
    }
    return best;
}

static struct pool_conn *
choose(const struct pool *pool)
{
    return pool->http1 ? last_used(pool) : roomiest(pool);
}

static void
take_off(struct pool *pool, struct pool_waiter *waiter)
{
    list_unlink(&waiter->node);
    pool->waiting_count--;
    (*pool->target->waiting)--;
}

static void
serve(struct pool *pool)
{
    while (!list_empty(&pool->waiting)) {
        struct pool_conn *conn = choose(pool);
        if (!conn)
            break;
        struct pool_waiter *waiter = list_first(&pool->waiting, struct pool_waiter, node);
        take_off(pool, waiter);
        waiter->on_granted(waiter, conn);
    }
    dial_for_waiting(pool);
}

bool
pool_enter(struct pool *pool, struct pool_waiter *waiter)
{
    const struct upstream_conf *conf = pool->target->conf;
    struct pool_conn *conn = list_empty(&pool->waiting) ? choose(pool) : NULL;
    if (conn) {
        /* `connections` come under load, not before: the second when the first has work. */
        if (!pool->http1 && pool->connection_count < conf->connections && may_dial(pool))
            pool_conn_open(pool);
        waiter->on_granted(waiter, conn);
        return true;
    }
    if (*pool->target->waiting >= conf->max_pending)
        return false;
    list_push_back(&pool->waiting, &waiter->node);
    pool->waiting_count++;
    (*pool->target->waiting)++;
    dial_for_waiting(pool); /* may fail at once, and then this call has moved on */
    return true;
}

void
pool_leave(struct pool *pool, struct pool_waiter *waiter)
{
    if (list_linked(&waiter->node))
        take_off(pool, waiter);
}

/* --- what connections report --- */

void
pool_connected(struct pool_conn *conn)
{
    struct pool *pool = conn->pool;
    changed(pool);
    serve(pool);
}

void
pool_capacity(struct pool *pool)
{
    if (!list_empty(&pool->waiting))
        ctx_defer(pool_ctx(pool), &pool->later);
}

void
pool_proved(struct pool *pool)
{
    pool->wasted = 0;
    if (pool->failures == 0)
        return;
    log_info("pool", "upstream %s: %.*s is back", pool->target->upstream,
             TEXT_ARGS(pool->target->name));
    pool->failures = 0;
    pool->error[0] = 0;
    changed(pool);
}

static void
start_backoff(struct pool *pool)
{
    struct ctx *ctx = pool_ctx(pool);
    uint64_t ms = BACKOFF_MS;
    for (uint32_t i = 1; i < pool->failures && ms < BACKOFF_MAX_MS; i++)
        ms *= 2;
    if (ms > BACKOFF_MAX_MS)
        ms = BACKOFF_MAX_MS;
    uint64_t ns = ms * NS_PER_MS, fifth = ns / 5;
    ns = ns - fifth + rng_next(&ctx->rng) % (2 * fifth);
    timers_start(&ctx->timers, &pool->backoff, clock_now_ns() + ns);
}

static void
fail_waiting(struct pool *pool)
{
    struct list failed;
    list_init(&failed);
    list_splice(&failed, &pool->waiting);
    while (!list_empty(&failed)) {
        struct pool_waiter *waiter = list_first(&failed, struct pool_waiter, node);
        take_off(pool, waiter);
        waiter->on_failed(waiter);
    }
}

void
pool_failed(struct pool *pool, const char *error)
{
    struct target *target = pool->target;
    pool->failures++;
    stats_add(&target->cells->failures, 1);
    snprintf(pool->error, sizeof(pool->error), "%s", error);
    if (pool->failures == 1)
        log_warn("pool", "upstream %s: %.*s: %s", target->upstream, TEXT_ARGS(target->name), error);
    if (!pool->closing)
        start_backoff(pool);
    target->on_trouble(target);
    if (list_empty(&pool->connections))
        fail_waiting(pool); /* else they wait for another connection */
    changed(pool);
}

/* --- all connections --- */

void
pool_drain(struct pool *pool)
{
    list_for_each_safe (node, &pool->connections)
        pool_conn_drain(pool_conn_of(node));
    pool_capacity(pool);
}

void
pool_close(struct pool *pool)
{
    pool->closing = true;
    timers_stop(&pool_ctx(pool)->timers, &pool->backoff);
    list_for_each_safe (node, &pool->connections)
        pool_conn_close(pool_conn_of(node));
    list_for_each_safe (other, &pool->retired)
        pool_conn_close(pool_conn_of(other));
    snprintf(pool->error, sizeof(pool->error), "the proxy is stopping");
    fail_waiting(pool);
}

void
pool_abort(struct pool *pool)
{
    list_for_each_safe (node, &pool->connections)
        pool_conn_abort(pool_conn_of(node));
    list_for_each_safe (other, &pool->retired)
        pool_conn_abort(pool_conn_of(other));
}

void
pool_check(struct pool *pool, uint64_t now_ns)
{
    list_for_each_safe (node, &pool->connections)
        pool_conn_check(pool_conn_of(node), now_ns);
    list_for_each_safe (other, &pool->retired)
        pool_conn_check(pool_conn_of(other), now_ns);
}
