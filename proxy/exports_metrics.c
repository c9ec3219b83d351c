/*
 * /metrics: the statistics in Prometheus' text format 0.0.4. Counters and histograms reach back to
 * the start of the process and are never reset (POST /reset is for /stats).
 *
 * Owns nothing. One pass over routes, listeners and endpoints fills a text per metric family; they
 * are then put out one after another, as the format wants them. Labels: route, status, path, phase,
 * upstream, endpoint, and listener, reason, version; never a method or a peer. Histograms appear
 * once something was recorded. A removed route keeps its counters (they must not go back); an
 * endpoint that is gone goes.
 */
#include "proxy/base/clock.h"
#include "proxy/base/mem.h"
#include "proxy/exports_private.h"
#include "proxy/wire/percent.h"

#include <stdio.h>

enum family {
    BUILD_INFO,
    READY,
    CONFIG_GENERATION,
    CONFIG_RELOAD_FAILED,
    BUFFER_BYTES,
    BUFFER_PEAK_BYTES,
    BUFFER_BUDGET_BYTES,
    LISTENER_CONNECTIONS,
    LISTENER_ACCEPTED,
    LISTENER_STREAMS,
    LISTENER_READS,
    LISTENER_WRITES,
    CALLS_STARTED,
    CALLS_ACTIVE,
    CALLS,
    CALLS_BY_PATH,
    CALL_ERRORS,
    CALL_RETRIES,
    RESETS_DOWNSTREAM,
    RESETS_UPSTREAM,
    REQUEST_BYTES,
    REPLY_BYTES,
    PHASE_SECONDS,
    PATH_OVERHEAD_SECONDS,
    PATH_CALL_SECONDS,
    ENDPOINT_USABLE,
    ENDPOINT_CONNECTIONS,
    ENDPOINT_STREAMS,
    ENDPOINT_OPENED,
    ENDPOINT_FAILURES,
    ENDPOINT_READS,
    ENDPOINT_WRITES,
    ENDPOINT_SECONDS,
    PROCESS_RESIDENT,
    PROCESS_VIRTUAL,
    PROCESS_CPU,
    PROCESS_START,
    PROCESS_OPEN_FDS,
    PROCESS_MAX_FDS,
    FAMILY_COUNT
};

static const struct {
    const char *name, *type, *help;
} FAMILIES[FAMILY_COUNT] = {
    [BUILD_INFO] = {"tributary_build_info", "gauge", "1; the version is the label."},
    [READY] = {"tributary_ready", "gauge", "1 while configured, listening and not draining."},
    [CONFIG_GENERATION] = {"tributary_config_generation", "gauge",
                           "Configurations taken since the start; 1 is the first."},
    [CONFIG_RELOAD_FAILED] = {"tributary_config_reload_failed", "gauge",
                              "1 when the last reload failed and the older configuration runs."},
    [BUFFER_BYTES] = {"tributary_buffer_bytes", "gauge",
                      "Memory taken for bodies, held or passing."},
    [BUFFER_PEAK_BYTES] = {"tributary_buffer_peak_bytes", "gauge", "The most it has been."},
    [BUFFER_BUDGET_BYTES] = {"tributary_buffer_budget_bytes", "gauge", "The most it may be."},
    [LISTENER_CONNECTIONS] = {"tributary_listener_connections", "gauge", "Open connections."},
    [LISTENER_ACCEPTED] = {"tributary_listener_accepted_total", "counter", "Accepted connections."},
    [LISTENER_STREAMS] = {"tributary_listener_streams", "gauge", "Open streams."},
    [LISTENER_READS] = {"tributary_listener_reads_total", "counter", "Read system calls."},
    [LISTENER_WRITES] = {"tributary_listener_writes_total", "counter", "Write system calls."},
    [CALLS_STARTED] = {"tributary_calls_started_total", "counter", "Calls that have begun."},
    [CALLS_ACTIVE] = {"tributary_calls_active", "gauge", "Calls that have begun and not ended."},
    [CALLS] = {"tributary_calls_total", "counter", "Calls that have ended, by their final status."},
    [CALLS_BY_PATH] = {"tributary_calls_by_path_total", "counter",
                       "Calls that have ended, by the path they took."},
    [CALL_ERRORS] = {"tributary_call_errors_total", "counter",
                     "Calls that the proxy itself ended, by reason."},
    [CALL_RETRIES] = {"tributary_call_retries_total", "counter", "Calls sent again."},
    [RESETS_DOWNSTREAM] = {"tributary_resets_downstream_total", "counter",
                           "Streams that clients reset."},
    [RESETS_UPSTREAM] = {"tributary_resets_upstream_total", "counter",
                         "Streams that providers reset."},
    [REQUEST_BYTES] = {"tributary_request_bytes_total", "counter",
                       "Message bytes from clients, without framing."},
    [REPLY_BYTES] = {"tributary_reply_bytes_total", "counter",
                     "Message bytes to clients, without framing."},
    [PHASE_SECONDS] =
        {"tributary_call_phase_seconds", "histogram",
         "Time of calls by phase: what the proxy costs is overhead, which is queue and "
         "request and response."},
    [PATH_OVERHEAD_SECONDS] = {"tributary_path_overhead_seconds", "histogram",
                               "What the proxy cost, by the path of the call."},
    [PATH_CALL_SECONDS] = {"tributary_path_call_seconds", "histogram",
                           "Calls from head to last byte, by their path."},
    [ENDPOINT_USABLE] = {"tributary_endpoint_usable", "gauge",
                         "0 while in backoff or ejected, else 1."},
    [ENDPOINT_CONNECTIONS] = {"tributary_endpoint_connections", "gauge", "Open connections."},
    [ENDPOINT_STREAMS] = {"tributary_endpoint_streams", "gauge", "Open streams."},
    [ENDPOINT_OPENED] = {"tributary_endpoint_connections_opened_total", "counter",
                         "Connections opened."},
    [ENDPOINT_FAILURES] = {"tributary_endpoint_failures_total", "counter",
                           "Dials that failed and connections that died."},
    [ENDPOINT_READS] = {"tributary_endpoint_reads_total", "counter", "Read system calls."},
    [ENDPOINT_WRITES] = {"tributary_endpoint_writes_total", "counter", "Write system calls."},
    [ENDPOINT_SECONDS] = {"tributary_endpoint_upstream_seconds", "histogram",
                          "From the last request byte out to the last reply byte in."},
    [PROCESS_RESIDENT] = {"process_resident_memory_bytes", "gauge", "Resident memory."},
    [PROCESS_VIRTUAL] = {"process_virtual_memory_bytes", "gauge", "Virtual memory."},
    [PROCESS_CPU] = {"process_cpu_seconds_total", "counter", "User and system time."},
    [PROCESS_START] = {"process_start_time_seconds", "gauge", "Start, since the epoch."},
    [PROCESS_OPEN_FDS] = {"process_open_fds", "gauge", "Open descriptors."},
    [PROCESS_MAX_FDS] = {"process_max_fds", "gauge", "Most descriptors that may be open."},
};

/* Powers of two: edges of the histogram's own cells, so that every bucket is exact. */
static const uint64_t BOUNDS_NS[] = {
    1ull << 12, 1ull << 13, 1ull << 14, 1ull << 15, 1ull << 16, 1ull << 17, 1ull << 18,
    1ull << 19, 1ull << 20, 1ull << 21, 1ull << 22, 1ull << 23, 1ull << 24, 1ull << 25,
    1ull << 26, 1ull << 27, 1ull << 28, 1ull << 29, 1ull << 30, 1ull << 32, 1ull << 34,
};
enum { BOUNDS = sizeof(BOUNDS_NS) / sizeof(BOUNDS_NS[0]), LABELS_MAX = 2 };

struct label {
    const char *name; /* NULL: no more */
    struct text value;
};

struct labels {
    struct label items[LABELS_MAX];
};

#define NO_LABELS ((struct labels){.items = {{NULL, TEXT_NONE}}})
#define ONE_LABEL(name, value) ((struct labels){.items = {{(name), (value)}, {NULL, TEXT_NONE}}})
#define TWO_LABELS(a, a_value, b, b_value)                                                         \
    ((struct labels){.items = {{(a), (a_value)}, {(b), (b_value)}}})

struct metrics {
    struct strbuf samples[FAMILY_COUNT];
};

/* UTF-8, as the format wants it: one bad byte would cost the whole scrape. */
static void
add_label(struct strbuf *out, const char *name, struct text value)
{
    char memory[256];
    struct arena arena;
    arena_init(&arena, memory, sizeof(memory));
    value = percent_utf8(&arena, value);
    strbuf_addf(out, "%s=\"", name);
    for (size_t i = 0; i < value.len; i++) {
        char byte = value.ptr[i];
        if (byte == '\\' || byte == '"')
            strbuf_add_char(out, '\\');
        if (byte == '\n')
            strbuf_add_str(out, "\\n");
        else
            strbuf_add_char(out, byte);
    }
    strbuf_add_char(out, '"');
    arena_fini(&arena);
}

/* A sample up to its value; le: a bucket's bound, NULL for other samples. */
static struct strbuf *
begin_sample(struct metrics *metrics, enum family family, const char *suffix,
             const struct labels *labels, const char *le)
{
    struct strbuf *out = &metrics->samples[family];
    char before = '{';
    strbuf_addf(out, "%s%s", FAMILIES[family].name, suffix);
    for (unsigned i = 0; i < LABELS_MAX && labels->items[i].name; i++, before = ',') {
        strbuf_add_char(out, before);
        add_label(out, labels->items[i].name, labels->items[i].value);
    }
    if (le) {
        strbuf_add_char(out, before);
        strbuf_addf(out, "le=\"%s\"", le);
    }
    if (le || labels->items[0].name)
        strbuf_add_char(out, '}');
    strbuf_add_char(out, ' ');
    return out;
}

static void
add_number(struct metrics *metrics, enum family family, struct labels labels, uint64_t value)
{
    strbuf_addf(begin_sample(metrics, family, "", &labels, NULL), "%llu\n",
                (unsigned long long)value);
}

static void
add_decimal(struct metrics *metrics, enum family family, double value)
{
    struct labels none = NO_LABELS;
    strbuf_addf(begin_sample(metrics, family, "", &none, NULL), "%.3f\n", value);
}

static void
add_cell(struct metrics *metrics, enum family family, struct labels labels, const stats_cell *cell)
{
    add_number(metrics, family, labels, stats_get(cell));
}

static void
add_histogram(struct metrics *metrics, enum family family, struct labels labels,
              const struct histogram *histogram)
{
    char bound[32];
    unsigned long long count = histogram_count_below(histogram, UINT64_MAX);
    unsigned long long sum_ns = atomic_load_explicit(&histogram->sum_ns, memory_order_relaxed);
    if (count == 0)
        return;
    for (unsigned i = 0; i < BOUNDS; i++) {
        snprintf(bound, sizeof(bound), "%.12g", (double)BOUNDS_NS[i] / (double)NS_PER_S);
        strbuf_addf(begin_sample(metrics, family, "_bucket", &labels, bound), "%llu\n",
                    (unsigned long long)histogram_count_below(histogram, BOUNDS_NS[i]));
    }
    strbuf_addf(begin_sample(metrics, family, "_bucket", &labels, "+Inf"), "%llu\n", count);
    strbuf_addf(begin_sample(metrics, family, "_sum", &labels, NULL), "%llu.%09llu\n",
                sum_ns / NS_PER_S, sum_ns % NS_PER_S);
    strbuf_addf(begin_sample(metrics, family, "_count", &labels, NULL), "%llu\n", count);
}

/* --- the process --- */

static void
add_process(struct metrics *metrics, const struct server *server)
{
    struct exports_process process;
    exports_process(server, &process);
    add_number(metrics, PROCESS_RESIDENT, NO_LABELS, process.resident_bytes);
    add_number(metrics, PROCESS_VIRTUAL, NO_LABELS, process.virtual_bytes);
    add_decimal(metrics, PROCESS_CPU, process.cpu_s);
    add_decimal(metrics, PROCESS_START, process.start_s);
    add_number(metrics, PROCESS_OPEN_FDS, NO_LABELS, process.open_fds);
    add_number(metrics, PROCESS_MAX_FDS, NO_LABELS, process.max_fds);
}

static void
add_server(struct metrics *metrics, const struct server *server)
{
    uint64_t bytes = 0, peak_bytes = 0;
    if (server->workers)
        workers_buffers(server->workers, &bytes, &peak_bytes);
    add_number(metrics, BUILD_INFO, ONE_LABEL("version", TEXT(TRIBUTARY_VERSION)), 1);
    add_number(metrics, READY, NO_LABELS, server->state == SERVER_READY);
    add_number(metrics, CONFIG_GENERATION, NO_LABELS, server->snapshot->generation);
    add_number(metrics, CONFIG_RELOAD_FAILED, NO_LABELS, server->reload_error != NULL);
    add_number(metrics, BUFFER_BYTES, NO_LABELS, bytes);
    add_number(metrics, BUFFER_PEAK_BYTES, NO_LABELS, peak_bytes);
    add_number(metrics, BUFFER_BUDGET_BYTES, NO_LABELS, server->budget.total);
}

/* --- what the registry has --- */

static void
add_route(struct metrics *metrics, const struct stats_entry *entry, const struct route_cells *sum)
{
    struct text name = text_of(entry->name);
    struct labels route = ONE_LABEL("route", name);
    uint64_t started = stats_get(&sum->started), calls = stats_get(&sum->calls);
    add_number(metrics, CALLS_STARTED, route, started);
    add_number(metrics, CALLS_ACTIVE, route, started > calls ? started - calls : 0);
    for (unsigned i = 0; i < STATS_CODES; i++)
        if (i == RPC_OK || stats_get(&sum->status[i]))
            add_cell(metrics, CALLS, TWO_LABELS("route", name, "status", exports_status_name(i)),
                     &sum->status[i]);
    for (unsigned i = REASON_NONE + 1; i < REASON_COUNT; i++)
        if (stats_get(&sum->reasons[i]))
            add_cell(metrics, CALL_ERRORS,
                     TWO_LABELS("route", name, "reason", text_of(stats_reason_name(i))),
                     &sum->reasons[i]);
    add_cell(metrics, CALL_RETRIES, route, &sum->retries);
    add_cell(metrics, RESETS_DOWNSTREAM, route, &sum->resets_downstream);
    add_cell(metrics, RESETS_UPSTREAM, route, &sum->resets_upstream);
    add_cell(metrics, REQUEST_BYTES, route, &sum->bytes_in);
    add_cell(metrics, REPLY_BYTES, route, &sum->bytes_out);
    for (unsigned i = 0; i < PHASE_COUNT; i++)
        add_histogram(metrics, PHASE_SECONDS,
                      TWO_LABELS("route", name, "phase", text_of(stats_phase_name(i))),
                      &sum->phase[i]);
    for (unsigned i = 0; i < PATH_COUNT; i++) {
        struct labels path = TWO_LABELS("route", name, "path", text_of(stats_path_name(i)));
        add_cell(metrics, CALLS_BY_PATH, path, &sum->path[i]);
        add_histogram(metrics, PATH_OVERHEAD_SECONDS, path, &sum->path_overhead[i]);
        add_histogram(metrics, PATH_CALL_SECONDS, path, &sum->path_total[i]);
    }
}

static void
add_listener(struct metrics *metrics, const struct stats_entry *entry,
             const struct listener_cells *sum)
{
    struct labels listener = ONE_LABEL("listener", text_of(entry->name));
    add_cell(metrics, LISTENER_CONNECTIONS, listener, &sum->connections);
    add_cell(metrics, LISTENER_ACCEPTED, listener, &sum->accepted);
    add_cell(metrics, LISTENER_STREAMS, listener, &sum->streams);
    add_cell(metrics, LISTENER_READS, listener, &sum->reads);
    add_cell(metrics, LISTENER_WRITES, listener, &sum->writes);
}

static void
add_endpoint(struct metrics *metrics, const struct stats_entry *entry,
             const struct endpoint_cells *sum)
{
    struct labels endpoint =
        TWO_LABELS("upstream", text_of(entry->name), "endpoint", text_of(entry->name2));
    add_number(metrics, ENDPOINT_USABLE, endpoint, exports_endpoint_usable(sum));
    add_cell(metrics, ENDPOINT_CONNECTIONS, endpoint, &sum->connections);
    add_cell(metrics, ENDPOINT_STREAMS, endpoint, &sum->streams);
    add_cell(metrics, ENDPOINT_OPENED, endpoint, &sum->opened);
    add_cell(metrics, ENDPOINT_FAILURES, endpoint, &sum->failures);
    add_cell(metrics, ENDPOINT_READS, endpoint, &sum->reads);
    add_cell(metrics, ENDPOINT_WRITES, endpoint, &sum->writes);
    add_histogram(metrics, ENDPOINT_SECONDS, endpoint, &sum->upstream);
}

struct sums {
    struct route_cells route;
    struct listener_cells listener;
    struct endpoint_cells endpoint;
};

static void
add_entry(struct metrics *metrics, const struct server *server, const struct stats_entry *entry,
          struct sums *sums)
{
    const struct stats *stats = &server->stats;
    switch (entry->kind) {
    case STATS_ROUTE:
        stats_sum_route_since(stats, entry, STATS_SINCE_START, &sums->route);
        if (exports_has_route(server, entry) || stats_get(&sums->route.started))
            add_route(metrics, entry, &sums->route);
        break;
    case STATS_LISTENER:
        stats_sum_listener(stats, entry, &sums->listener);
        add_listener(metrics, entry, &sums->listener);
        break;
    case STATS_ENDPOINT:
        stats_sum_endpoint_since(stats, entry, STATS_SINCE_START, &sums->endpoint);
        if (stats_get(&sums->endpoint.present))
            add_endpoint(metrics, entry, &sums->endpoint);
        break;
    }
}

void
exports_metrics(const struct server *server, struct strbuf *out)
{
    struct stats *stats = (struct stats *)&server->stats; /* its lock is taken */
    struct metrics *metrics = mem_new(struct metrics);
    struct sums *sums = mem_new(struct sums);
    add_server(metrics, server);
    for (const struct stats_entry *entry = stats_next(stats, NULL); entry;
         entry = stats_next(stats, entry))
        add_entry(metrics, server, entry, sums);
    add_process(metrics, server);
    for (unsigned i = 0; i < FAMILY_COUNT; i++) {
        struct strbuf *samples = &metrics->samples[i];
        if (samples->len > 0) {
            strbuf_addf(out, "# HELP %s %s\n# TYPE %s %s\n", FAMILIES[i].name, FAMILIES[i].help,
                        FAMILIES[i].name, FAMILIES[i].type);
            strbuf_add_text(out, strbuf_text(samples));
        }
        strbuf_fini(samples);
    }
    mem_free(sums);
    mem_free(metrics);
}
