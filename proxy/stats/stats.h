/*
 * Counters and histograms as cells: every (name, worker) pair has its own, written by that worker
 * alone with relaxed stores and read by anybody. Names are registered by the main thread and never
 * go away, so that counters survive reloads.
 *
 * Owns the registry and the cells. Does not know HTTP or JSON (proxy/exports.c renders).
 */
#ifndef TRIBUTARY_STATS_STATS_H
#define TRIBUTARY_STATS_STATS_H

#include <pthread.h>
#include <stdatomic.h>

#include "proxy/base/histogram.h"
#include "proxy/base/text.h"

enum stats_path { PATH_FAST, PATH_CUT_THROUGH, PATH_RELAY, PATH_FRAMED, PATH_FALLBACK, PATH_COUNT };
enum stats_phase {
    PHASE_OVERHEAD,
    PHASE_QUEUE,
    PHASE_REQUEST,
    PHASE_RESPONSE,
    PHASE_UPSTREAM,
    PHASE_TOTAL,
    PHASE_COUNT
};
enum { STATS_CODES = 19 }; /* gRPC 0 … 16, 17, and one for all other codes */
enum { STATS_MAX_WORKERS = 256 };

/* Why the proxy itself ended a call: ErrorInfo reasons. The order is the table in stats.c. */
enum stats_reason {
    REASON_NONE,
    REASON_NO_ROUTE,
    REASON_NO_ENDPOINT,
    REASON_CONNECT_FAILED,
    REASON_CONNECTION_LOST,
    REASON_UPSTREAM_RESET,
    REASON_DEADLINE_EXCEEDED,
    REASON_MESSAGE_TOO_LONG,
    REASON_HEADERS_TOO_LONG,
    REASON_NO_BUDGET,
    REASON_QUEUE_FULL,
    REASON_MALFORMED_REQUEST,
    REASON_MALFORMED_REPLY,
    REASON_MISSING_STATUS,
    REASON_CARDINALITY,
    REASON_ENCODING,
    REASON_WIRE_REFUSED,
    REASON_HTTP_STATUS,
    REASON_BAD_TIMEOUT,
    REASON_DRAINING,
    REASON_CLIENT_GONE,
    REASON_FILTER,
    REASON_COUNT
};

typedef _Atomic uint64_t stats_cell; /* the one typedef: a cell is a number, not a structure */

struct route_cells {
    stats_cell started, calls; /* active = started - calls */
    stats_cell status[STATS_CODES];
    stats_cell path[PATH_COUNT];
    stats_cell retries, resets_downstream, resets_upstream, bytes_in, bytes_out;
    stats_cell reasons[REASON_COUNT];
    /* A worker records overhead and total by path, and in `phase` only what has no path: a sum has
     * all of it there. */
    struct histogram phase[PHASE_COUNT];
    struct histogram path_overhead[PATH_COUNT], path_total[PATH_COUNT];
};

struct listener_cells {
    stats_cell connections, accepted, streams, reads, writes; /* first and third are gauges */
};

enum endpoint_state {
    ENDPOINT_IDLE,
    ENDPOINT_CONNECTING,
    ENDPOINT_READY,
    ENDPOINT_BACKOFF,
    ENDPOINT_EJECTED,
    ENDPOINT_DRAINING
};
enum endpoint_wire { WIRE_UNKNOWN, WIRE_BARE, WIRE_FRAMED };

struct endpoint_cells {
    stats_cell state, wire; /* the enums above, as this worker sees it */
    stats_cell connections, streams, opened, failures, reads, writes; /* the first two are gauges */
    stats_cell present; /* 1 while this worker's current snapshot lists the endpoint */
    struct histogram upstream;
};

static inline void
stats_add(stats_cell *cell, uint64_t n) /* the cell's one writer */
{
    atomic_store_explicit(cell, atomic_load_explicit(cell, memory_order_relaxed) + n,
                          memory_order_relaxed);
}
static inline void
stats_sub(stats_cell *cell, uint64_t n)
{
    atomic_store_explicit(cell, atomic_load_explicit(cell, memory_order_relaxed) - n,
                          memory_order_relaxed);
}
static inline void
stats_set(stats_cell *cell, uint64_t n)
{
    atomic_store_explicit(cell, n, memory_order_relaxed);
}
static inline uint64_t
stats_get(const stats_cell *cell)
{
    return atomic_load_explicit(cell, memory_order_relaxed);
}

/* One registered name and its cells; a route, a listener or an endpoint. Lives as long as the
 * registry. */
enum stats_kind { STATS_ROUTE, STATS_LISTENER, STATS_ENDPOINT };
struct stats_entry {
    struct stats_entry *next;
    enum stats_kind kind;
    char *name;              /* route or listener name; endpoint: the upstream's name */
    char *name2;             /* endpoint: "127.0.0.1:20000"; else NULL */
    bool current;            /* named by the newest configuration; main thread only */
    _Atomic(void *) cells[]; /* one per worker, NULL until that worker first asks */
};

struct stats {
    pthread_mutex_t lock; /* guards the list while names are added */
    unsigned workers;
    struct stats_entry *first, *last; /* registration order */
};

/* How far back histograms reach in a sum: /stats can be reset, /metrics never. Counters are never
 * reset. */
enum stats_since { STATS_SINCE_RESET, STATS_SINCE_START };

void stats_init(struct stats *stats, unsigned workers);
void stats_fini(struct stats *stats);
/* Find or add. Any thread (resolvers add endpoints); the entry is never removed. name2 only for
 * endpoints. */
struct stats_entry *
stats_register(struct stats *stats, enum stats_kind kind, struct text name, struct text name2);
/* The entry after `entry` in the order they were registered; NULL begins, and ends. Any thread. */
struct stats_entry *stats_next(struct stats *stats, const struct stats_entry *entry);
/* This worker's cells (made on first use, zeroed). Only from that worker's thread. */
struct route_cells *stats_route(struct stats_entry *entry, unsigned worker);
struct listener_cells *stats_listener(struct stats_entry *entry, unsigned worker);
struct endpoint_cells *stats_endpoint(struct stats_entry *entry, unsigned worker);
/* One worker's part of POST /reset, on that worker's thread: from here on, sums of its histograms
 * STATS_SINCE_RESET begin at zero. The cells themselves go on counting. */
void stats_reset_histograms(struct stats *stats, unsigned worker);
/* Sums over all workers, into private memory of the caller (zeroed first; a route's is about 40K,
 * not for small stacks). Without `_since`: histograms since the last reset. */
void stats_sum_route(const struct stats *stats, const struct stats_entry *entry,
                     struct route_cells *sum);
void stats_sum_listener(const struct stats *stats, const struct stats_entry *entry,
                        struct listener_cells *sum);
/* States are merged: the best of ready > connecting > draining > idle > backoff > ejected; wire:
 * any known form. */
void stats_sum_endpoint(const struct stats *stats, const struct stats_entry *entry,
                        struct endpoint_cells *sum);

void stats_sum_route_since(const struct stats *stats, const struct stats_entry *entry,
                           enum stats_since since, struct route_cells *sum);
void stats_sum_endpoint_since(const struct stats *stats, const struct stats_entry *entry,
                              enum stats_since since, struct endpoint_cells *sum);

const char *stats_path_name(enum stats_path path);       /* "fast", "cut_through", … */
const char *stats_phase_name(enum stats_phase phase);    /* "overhead", … */
const char *stats_reason_name(enum stats_reason reason); /* "NO_ROUTE", … UPPER_SNAKE */
const char *stats_state_name(enum endpoint_state state);
const char *stats_wire_name(enum endpoint_wire wire);

#endif
