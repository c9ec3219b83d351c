/*
 * One endpoint: how many connections, which call gets the next stream, when to dial again.
 *
 * Dialling: `connections` are opened as soon as there is work, more (to max_connections) when all
 * are full and calls wait; only one dial is under way at a time beyond that, so that a burst before
 * the first SETTINGS does not open a connection per call. After a failure nothing is dialled for 50
 * ms, doubled per failure to 1 s, with a fifth of jitter.
 */
#include "upstream/endpoint.h"

#include <stdio.h>

#include "proxy/base/clock.h"
#include "proxy/base/log.h"
#include "upstream/cluster.h"
#include "upstream/upstream_call.h"

enum { BACKOFF_MS = 50, BACKOFF_MAX_MS = 1000 };

static void
on_backoff_over(struct timer *timer)
{
    struct endpoint *endpoint = container_of(timer, struct endpoint, backoff);
    endpoint_serve(endpoint);
    endpoint_show_state(endpoint);
}

struct endpoint *
endpoint_new(struct cluster *cluster, struct text name, const struct address *address)
{
    struct worker *worker = cluster->worker;
    struct endpoint *endpoint = mem_new(struct endpoint);
    endpoint->cluster = cluster;
    endpoint->name = text_dup(name);
    endpoint->address = *address;
    endpoint->facts = facts_of(text_of(cluster->name), name);
    struct stats_entry *entry =
        stats_register(worker->stats, STATS_ENDPOINT, text_of(cluster->name), name);
    endpoint->cells = stats_endpoint(entry, worker->index);
    list_init(&endpoint->node);
    list_init(&endpoint->connections);
    list_init(&endpoint->retired);
    list_init(&endpoint->waiting);
    endpoint->backoff.on_due = on_backoff_over;
    stats_set(&endpoint->cells->present, 1);
    endpoint_show_state(endpoint);
    return endpoint;
}

void
endpoint_free(struct endpoint *endpoint)
{
    timers_stop(&endpoint->cluster->worker->ctx.timers, &endpoint->backoff);
    list_unlink(&endpoint->node);
    mem_free(endpoint->name);
    mem_free(endpoint);
}

bool
endpoint_idle(const struct endpoint *endpoint)
{
    return endpoint->active == 0 && list_empty(&endpoint->connections) &&
           list_empty(&endpoint->retired);
}

static bool
in_backoff(const struct endpoint *endpoint)
{
    return timer_running(&endpoint->backoff);
}

bool
endpoint_usable(const struct endpoint *endpoint)
{
    return !list_empty(&endpoint->connections) || !in_backoff(endpoint);
}

void
endpoint_show_state(struct endpoint *endpoint)
{
    enum endpoint_state state = ENDPOINT_IDLE;
    if (endpoint->connection_count > endpoint->connecting)
        state = ENDPOINT_READY;
    else if (endpoint->connecting > 0)
        state = ENDPOINT_CONNECTING;
    else if (in_backoff(endpoint))
        state = ENDPOINT_BACKOFF;
    else if (endpoint->leaving || !list_empty(&endpoint->retired))
        state = ENDPOINT_DRAINING;
    stats_set(&endpoint->cells->state, state);
    bool told = endpoint->cluster->conf->wire != UPSTREAM_WIRE_AUTO;
    enum endpoint_wire wire = facts_wire(endpoint->facts);
    if (told && wire == WIRE_UNKNOWN)
        wire = endpoint->cluster->conf->wire == UPSTREAM_WIRE_FRAMED ? WIRE_FRAMED : WIRE_BARE;
    stats_set(&endpoint->cells->wire, wire);
}

/* --- streams for calls --- */

/* The connection with the most room: keeps them evenly filled. */
static struct client_conn *
roomiest(const struct endpoint *endpoint)
{
    struct client_conn *best = NULL;
    uint32_t most = 0;
    list_for_each (node, &endpoint->connections) {
        struct client_conn *conn = client_conn_of(node);
        uint32_t capacity = client_conn_capacity(conn);
        if (capacity > most) {
            most = capacity;
            best = conn;
        }
    }
    return best;
}

static bool
wants_dial(const struct endpoint *endpoint)
{
    const struct upstream_conf *conf = endpoint->cluster->conf;
    if (in_backoff(endpoint) || endpoint->leaving)
        return false;
    if (endpoint->connection_count < conf->connections)
        return true;
    return endpoint->connecting == 0 && endpoint->connection_count < conf->max_connections;
}

static void
dial(struct endpoint *endpoint)
{
    if (client_conn_open(endpoint))
        endpoint_show_state(endpoint);
}

void
endpoint_serve(struct endpoint *endpoint)
{
    while (!list_empty(&endpoint->waiting)) {
        struct client_conn *conn = roomiest(endpoint);
        if (!conn)
            break;
        struct upstream_call *up = list_first(&endpoint->waiting, struct upstream_call, node);
        list_unlink(&up->node);
        endpoint->cluster->waiting--;
        upstream_call_grant(up, conn);
    }
    if (!list_empty(&endpoint->waiting) && wants_dial(endpoint))
        dial(endpoint);
}

void
endpoint_enqueue(struct endpoint *endpoint, struct upstream_call *up)
{
    struct client_conn *conn = list_empty(&endpoint->waiting) ? roomiest(endpoint) : NULL;
    if (conn) {
        /* `connections` are opened under load, not before: the second one when the first has work.
         */
        if (endpoint->connection_count < endpoint->cluster->conf->connections &&
            wants_dial(endpoint))
            dial(endpoint);
        upstream_call_grant(up, conn);
        return;
    }
    list_push_back(&endpoint->waiting, &up->node);
    endpoint->cluster->waiting++;
    if (wants_dial(endpoint))
        dial(endpoint); /* may fail at once, and then this call has moved on */
}

/* --- health --- */

void
endpoint_connected(struct endpoint *endpoint)
{
    endpoint_show_state(endpoint);
    endpoint_serve(endpoint);
}

void
endpoint_proved(struct endpoint *endpoint)
{
    endpoint->failures = 0;
    endpoint->error[0] = 0;
}

static void
start_backoff(struct endpoint *endpoint)
{
    struct ctx *ctx = &endpoint->cluster->worker->ctx;
    uint64_t ms = BACKOFF_MS;
    for (uint32_t i = 1; i < endpoint->failures && ms < BACKOFF_MAX_MS; i++)
        ms *= 2;
    if (ms > BACKOFF_MAX_MS)
        ms = BACKOFF_MAX_MS;
    uint64_t ns = ms * NS_PER_MS, fifth = ns / 5;
    ns = ns - fifth + rng_next(&ctx->rng) % (2 * fifth);
    timers_start(&ctx->timers, &endpoint->backoff, clock_now_ns() + ns);
}

void
endpoint_failed(struct endpoint *endpoint, const char *error)
{
    endpoint->failures++;
    stats_add(&endpoint->cells->failures, 1);
    snprintf(endpoint->error, sizeof(endpoint->error), "%s", error);
    if (endpoint->failures == 1)
        log_warn("endpoint", "upstream %s: %s: %s", endpoint->cluster->name, endpoint->name, error);
    if (!endpoint->leaving && !endpoint->cluster->closing)
        start_backoff(endpoint);
    endpoint_show_state(endpoint);
    if (!list_empty(&endpoint->connections))
        return; /* the calls wait for another connection */
    struct list failed;
    list_init(&failed);
    list_splice(&failed, &endpoint->waiting);
    while (!list_empty(&failed)) {
        struct upstream_call *up = list_first(&failed, struct upstream_call, node);
        list_unlink(&up->node);
        endpoint->cluster->waiting--;
        upstream_call_endpoint_failed(up);
    }
}

void
endpoint_drain(struct endpoint *endpoint)
{
    endpoint->leaving = true;
    list_for_each_safe (node, &endpoint->connections)
        client_conn_drain(client_conn_of(node));
    stats_set(&endpoint->cells->present, 0);
    endpoint_show_state(endpoint);
}

void
endpoint_close(struct endpoint *endpoint)
{
    endpoint->leaving = true;
    timers_stop(&endpoint->cluster->worker->ctx.timers, &endpoint->backoff);
    list_for_each_safe (node, &endpoint->connections)
        client_conn_close(client_conn_of(node));
    list_for_each_safe (node, &endpoint->retired)
        client_conn_close(client_conn_of(node));
}
