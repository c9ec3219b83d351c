/*
 * The registry of names and their cells.
 *
 * Owns entries and cells until stats_fini(). Happy path: the main thread registers names when a
 * configuration is built; a worker asks for its cells when it takes the snapshot, keeps the pointer
 * and only stores to it; the admin thread sums. Cells are mapped: pages that nothing is counted in
 * cost nothing, and no two workers share a cache line. Failure: none (out of memory aborts).
 *
 * Cells only ever grow (/metrics must not go back). A reset keeps a copy of the histograms behind
 * the cells, and sums since the reset subtract it; only max_ns, which cannot be subtracted, is
 * really zeroed.
 */
#include "proxy/stats/stats.h"

#include <sys/mman.h>

#include "proxy/base/check.h"
#include "proxy/base/mem.h"

static const size_t kind_bytes[] = {
    [STATS_ROUTE] = sizeof(struct route_cells),
    [STATS_LISTENER] = sizeof(struct listener_cells),
    [STATS_ENDPOINT] = sizeof(struct endpoint_cells),
};

/* A worker's cells and, behind them, what their histograms were at the last reset. */
static size_t
block_bytes(enum stats_kind kind)
{
    return 2 * kind_bytes[kind];
}

static void *
at_reset(const struct stats_entry *entry, void *cells)
{
    return (char *)cells + kind_bytes[entry->kind];
}

void
stats_init(struct stats *stats, unsigned workers)
{
    check(workers > 0 && workers <= STATS_MAX_WORKERS);
    *stats = (struct stats){.workers = workers};
    check(pthread_mutex_init(&stats->lock, NULL) == 0);
}

static void *
worker_cells(const struct stats_entry *entry, unsigned worker)
{
    return atomic_load_explicit(&entry->cells[worker], memory_order_acquire);
}

static void
free_entry(struct stats_entry *entry, unsigned workers)
{
    for (unsigned i = 0; i < workers; i++) {
        void *cells = worker_cells(entry, i);
        if (cells)
            munmap(cells, block_bytes(entry->kind));
    }
    mem_free(entry->name);
    mem_free(entry->name2);
    mem_free(entry);
}

void
stats_fini(struct stats *stats)
{
    for (struct stats_entry *entry = stats->first, *next; entry; entry = next) {
        next = entry->next;
        free_entry(entry, stats->workers);
    }
    pthread_mutex_destroy(&stats->lock);
    stats->first = stats->last = NULL;
}

static bool
is_named(const struct stats_entry *entry, enum stats_kind kind, struct text name, struct text name2)
{
    return entry->kind == kind && text_eq(text_of(entry->name), name) &&
           text_eq(text_of(entry->name2), name2);
}

static struct stats_entry *
find_entry(const struct stats *stats, enum stats_kind kind, struct text name, struct text name2)
{
    struct stats_entry *entry = stats->first;
    while (entry && !is_named(entry, kind, name, name2))
        entry = entry->next;
    return entry;
}

static struct stats_entry *
add_entry(struct stats *stats, enum stats_kind kind, struct text name, struct text name2)
{
    struct stats_entry *entry =
        mem_zalloc(sizeof(*entry) + stats->workers * sizeof(entry->cells[0]));
    entry->kind = kind;
    entry->name = text_dup(name);
    entry->name2 = kind == STATS_ENDPOINT ? text_dup(name2) : NULL;
    if (stats->last)
        stats->last->next = entry;
    else
        stats->first = entry;
    stats->last = entry;
    return entry;
}

struct stats_entry *
stats_register(struct stats *stats, enum stats_kind kind, struct text name, struct text name2)
{
    check(kind == STATS_ENDPOINT || name2.len == 0);
    pthread_mutex_lock(&stats->lock);
    struct stats_entry *entry = find_entry(stats, kind, name, name2);
    if (!entry)
        entry = add_entry(stats, kind, name, name2);
    pthread_mutex_unlock(&stats->lock);
    return entry;
}

struct stats_entry *
stats_next(struct stats *stats, const struct stats_entry *entry)
{
    pthread_mutex_lock(&stats->lock);
    struct stats_entry *next = entry ? entry->next : stats->first;
    pthread_mutex_unlock(&stats->lock);
    return next;
}

/* The worker is the only one that ever sets its slot. */
static void *
own_cells(struct stats_entry *entry, enum stats_kind kind, unsigned worker)
{
    check(entry->kind == kind);
    void *cells = atomic_load_explicit(&entry->cells[worker], memory_order_relaxed);
    if (cells)
        return cells;
    cells =
        mmap(NULL, block_bytes(kind), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check(cells != MAP_FAILED); /* out of memory */
    atomic_store_explicit(&entry->cells[worker], cells, memory_order_release);
    return cells;
}

struct route_cells *
stats_route(struct stats_entry *entry, unsigned worker)
{
    return own_cells(entry, STATS_ROUTE, worker);
}

struct listener_cells *
stats_listener(struct stats_entry *entry, unsigned worker)
{
    return own_cells(entry, STATS_LISTENER, worker);
}

struct endpoint_cells *
stats_endpoint(struct stats_entry *entry, unsigned worker)
{
    return own_cells(entry, STATS_ENDPOINT, worker);
}

static void
reset_histograms(struct histogram *histograms, struct histogram *reset, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        atomic_store_explicit(&histograms[i].max_ns, 0, memory_order_relaxed);
        histogram_copy(&reset[i], &histograms[i]);
    }
}

static void
reset_entry(const struct stats_entry *entry, void *cells)
{
    if (entry->kind == STATS_ROUTE) {
        struct route_cells *route = cells, *reset = at_reset(entry, cells);
        reset_histograms(route->phase, reset->phase, PHASE_COUNT);
        reset_histograms(route->path_overhead, reset->path_overhead, PATH_COUNT);
        reset_histograms(route->path_total, reset->path_total, PATH_COUNT);
    } else if (entry->kind == STATS_ENDPOINT) {
        struct endpoint_cells *endpoint = cells, *reset = at_reset(entry, cells);
        reset_histograms(&endpoint->upstream, &reset->upstream, 1);
    }
}

void
stats_reset_histograms(struct stats *stats, unsigned worker)
{
    for (struct stats_entry *entry = stats_next(stats, NULL); entry;
         entry = stats_next(stats, entry)) {
        void *cells = worker_cells(entry, worker);
        if (cells)
            reset_entry(entry, cells);
    }
}

static void
sum_cells(stats_cell *sum, const stats_cell *cells, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        stats_add(&sum[i], stats_get(&cells[i]));
}

/* One worker's histogram, from the time asked for. What the worker records or resets meanwhile may
 * be in or out. */
static void
sum_histograms(struct histogram *sum, const struct histogram *histograms,
               const struct histogram *reset, unsigned count, enum stats_since since)
{
    for (unsigned i = 0; i < count; i++) {
        histogram_merge(&sum[i], &histograms[i]);
        if (since == STATS_SINCE_RESET)
            histogram_subtract(&sum[i], &reset[i]);
    }
}

static void
add_route(struct route_cells *sum, const struct route_cells *cells, const struct route_cells *reset,
          enum stats_since since)
{
    sum_cells(&sum->started, &cells->started, 1);
    sum_cells(&sum->calls, &cells->calls, 1);
    sum_cells(sum->status, cells->status, STATS_CODES);
    sum_cells(sum->path, cells->path, PATH_COUNT);
    sum_cells(&sum->retries, &cells->retries, 1);
    sum_cells(&sum->resets_downstream, &cells->resets_downstream, 1);
    sum_cells(&sum->resets_upstream, &cells->resets_upstream, 1);
    sum_cells(&sum->bytes_in, &cells->bytes_in, 1);
    sum_cells(&sum->bytes_out, &cells->bytes_out, 1);
    sum_cells(sum->reasons, cells->reasons, REASON_COUNT);
    sum_histograms(sum->phase, cells->phase, reset->phase, PHASE_COUNT, since);
    sum_histograms(sum->path_overhead, cells->path_overhead, reset->path_overhead, PATH_COUNT,
                   since);
    sum_histograms(sum->path_total, cells->path_total, reset->path_total, PATH_COUNT, since);
}

static void
add_paths(struct route_cells *sum)
{
    for (unsigned i = 0; i < PATH_COUNT; i++) {
        histogram_merge(&sum->phase[PHASE_OVERHEAD], &sum->path_overhead[i]);
        histogram_merge(&sum->phase[PHASE_TOTAL], &sum->path_total[i]);
    }
}

void
stats_sum_route_since(const struct stats *stats, const struct stats_entry *entry,
                      enum stats_since since, struct route_cells *sum)
{
    check(entry->kind == STATS_ROUTE);
    memset(sum, 0, sizeof(*sum));
    for (unsigned i = 0; i < stats->workers; i++) {
        struct route_cells *cells = worker_cells(entry, i);
        if (cells)
            add_route(sum, cells, at_reset(entry, cells), since);
    }
    add_paths(sum);
}

void
stats_sum_route(const struct stats *stats, const struct stats_entry *entry, struct route_cells *sum)
{
    stats_sum_route_since(stats, entry, STATS_SINCE_RESET, sum);
}

void
stats_sum_listener(const struct stats *stats, const struct stats_entry *entry,
                   struct listener_cells *sum)
{
    check(entry->kind == STATS_LISTENER);
    memset(sum, 0, sizeof(*sum));
    for (unsigned i = 0; i < stats->workers; i++) {
        const struct listener_cells *cells = worker_cells(entry, i);
        if (!cells)
            continue;
        sum_cells(&sum->connections, &cells->connections, 1);
        sum_cells(&sum->accepted, &cells->accepted, 1);
        sum_cells(&sum->streams, &cells->streams, 1);
        sum_cells(&sum->reads, &cells->reads, 1);
        sum_cells(&sum->writes, &cells->writes, 1);
    }
}

/* How well an endpoint in that state can take a call: the best of all workers' states is shown. */
static const unsigned state_rank[] = {
    [ENDPOINT_EJECTED] = 0,  [ENDPOINT_BACKOFF] = 1,    [ENDPOINT_IDLE] = 2,
    [ENDPOINT_DRAINING] = 3, [ENDPOINT_CONNECTING] = 4, [ENDPOINT_READY] = 5,
};

/* A worker whose snapshot no longer lists the endpoint has nothing to say beside one whose does. */
static void
merge_state(struct endpoint_cells *sum, const struct endpoint_cells *cells, bool first)
{
    uint64_t present = stats_get(&cells->present), shown = stats_get(&sum->present);
    uint64_t state = stats_get(&cells->state), wire = stats_get(&cells->wire);
    bool newer = present > shown, older = present < shown;
    if (first || newer || (!older && state_rank[state] > state_rank[stats_get(&sum->state)]))
        stats_set(&sum->state, state);
    if (newer)
        stats_set(&sum->present, present);
    if (wire != WIRE_UNKNOWN && (newer || stats_get(&sum->wire) == WIRE_UNKNOWN))
        stats_set(&sum->wire, wire);
}

static void
add_endpoint(struct endpoint_cells *sum, const struct endpoint_cells *cells,
             const struct endpoint_cells *reset, enum stats_since since)
{
    sum_cells(&sum->connections, &cells->connections, 1);
    sum_cells(&sum->streams, &cells->streams, 1);
    sum_cells(&sum->opened, &cells->opened, 1);
    sum_cells(&sum->failures, &cells->failures, 1);
    sum_cells(&sum->reads, &cells->reads, 1);
    sum_cells(&sum->writes, &cells->writes, 1);
    sum_histograms(&sum->upstream, &cells->upstream, &reset->upstream, 1, since);
}

void
stats_sum_endpoint_since(const struct stats *stats, const struct stats_entry *entry,
                         enum stats_since since, struct endpoint_cells *sum)
{
    bool first = true;
    check(entry->kind == STATS_ENDPOINT);
    memset(sum, 0, sizeof(*sum));
    for (unsigned i = 0; i < stats->workers; i++) {
        struct endpoint_cells *cells = worker_cells(entry, i);
        if (!cells)
            continue;
        merge_state(sum, cells, first);
        add_endpoint(sum, cells, at_reset(entry, cells), since);
        first = false;
    }
}

void
stats_sum_endpoint(const struct stats *stats, const struct stats_entry *entry,
                   struct endpoint_cells *sum)
{
    stats_sum_endpoint_since(stats, entry, STATS_SINCE_RESET, sum);
}

static const char *const path_names[PATH_COUNT] = {
    [PATH_FAST] = "fast",     [PATH_CUT_THROUGH] = "cut_through", [PATH_RELAY] = "relay",
    [PATH_FRAMED] = "framed", [PATH_FALLBACK] = "fallback",
};

static const char *const phase_names[PHASE_COUNT] = {
    [PHASE_OVERHEAD] = "overhead", [PHASE_QUEUE] = "queue",       [PHASE_REQUEST] = "request",
    [PHASE_RESPONSE] = "response", [PHASE_UPSTREAM] = "upstream", [PHASE_TOTAL] = "total",
};

static const char *const reason_names[REASON_COUNT] = {
    [REASON_NONE] = "NONE",
    [REASON_NO_ROUTE] = "NO_ROUTE",
    [REASON_NO_ENDPOINT] = "NO_ENDPOINT",
    [REASON_CONNECT_FAILED] = "CONNECT_FAILED",
    [REASON_CONNECTION_LOST] = "CONNECTION_LOST",
    [REASON_UPSTREAM_RESET] = "UPSTREAM_RESET",
    [REASON_DEADLINE_EXCEEDED] = "DEADLINE_EXCEEDED",
    [REASON_MESSAGE_TOO_LONG] = "MESSAGE_TOO_LONG",
    [REASON_HEADERS_TOO_LONG] = "HEADERS_TOO_LONG",
    [REASON_NO_BUDGET] = "NO_BUDGET",
    [REASON_QUEUE_FULL] = "QUEUE_FULL",
    [REASON_MALFORMED_REQUEST] = "MALFORMED_REQUEST",
    [REASON_MALFORMED_REPLY] = "MALFORMED_REPLY",
    [REASON_MISSING_STATUS] = "MISSING_STATUS",
    [REASON_CARDINALITY] = "CARDINALITY",
    [REASON_ENCODING] = "ENCODING",
    [REASON_WIRE_REFUSED] = "WIRE_REFUSED",
    [REASON_HTTP_STATUS] = "HTTP_STATUS",
    [REASON_BAD_TIMEOUT] = "BAD_TIMEOUT",
    [REASON_DRAINING] = "DRAINING",
    [REASON_CLIENT_GONE] = "CLIENT_GONE",
    [REASON_FILTER] = "FILTER",
};

static const char *const state_names[] = {
    [ENDPOINT_IDLE] = "idle",       [ENDPOINT_CONNECTING] = "connecting",
    [ENDPOINT_READY] = "ready",     [ENDPOINT_BACKOFF] = "backoff",
    [ENDPOINT_EJECTED] = "ejected", [ENDPOINT_DRAINING] = "draining",
};

static const char *const wire_names[] = {
    [WIRE_UNKNOWN] = "unknown",
    [WIRE_BARE] = "bare",
    [WIRE_FRAMED] = "framed",
};

const char *
stats_path_name(enum stats_path path)
{
    return path_names[path];
}

const char *
stats_phase_name(enum stats_phase phase)
{
    return phase_names[phase];
}

const char *
stats_reason_name(enum stats_reason reason)
{
    return reason_names[reason];
}

const char *
stats_state_name(enum endpoint_state state)
{
    return state_names[state];
}

const char *
stats_wire_name(enum endpoint_wire wire)
{
    return wire_names[wire];
}
