/*
 * /stats: the statistics as JSON, in the shape that design.md fixes. Users and tests read these
 * names: add some, never rename one.
 *
 * Owns nothing. Additions to the design's shape: "process", and per route "errors" (calls that the
 * proxy itself ended, by reason). A status or reason is a key only once it has been counted. Routes
 * are those of the newest configuration; removed ones stay while calls of theirs run, and "(none)",
 * for calls that no route takes, once there was one.
 */
#include "proxy/base/clock.h"
#include "proxy/base/mem.h"
#include "proxy/exports_private.h"

/* --- JSON, member by member: an object's last byte tells whether a comma is due --- */

static void
key(struct strbuf *out, struct text name)
{
    if (out->data[out->len - 1] != '{')
        strbuf_add_char(out, ',');
    strbuf_add_json(out, name);
    strbuf_add_char(out, ':');
}

static void
open_object(struct strbuf *out, struct text name)
{
    key(out, name);
    strbuf_add_char(out, '{');
}

static void
close_object(struct strbuf *out)
{
    strbuf_add_char(out, '}');
}

static void
add_number(struct strbuf *out, struct text name, uint64_t value)
{
    key(out, name);
    strbuf_addf(out, "%llu", (unsigned long long)value);
}

static void
add_cell(struct strbuf *out, struct text name, const stats_cell *cell)
{
    add_number(out, name, stats_get(cell));
}

/* Up to three decimals, no more than it has. */
static void
add_decimal(struct strbuf *out, struct text name, double value)
{
    key(out, name);
    strbuf_addf(out, "%.3f", value);
    while (out->data[out->len - 1] == '0')
        out->data[--out->len] = '\0';
    if (out->data[out->len - 1] == '.')
        out->data[--out->len] = '\0';
}

static void
add_string(struct strbuf *out, struct text name, struct text value)
{
    key(out, name);
    strbuf_add_json(out, value);
}

static void
add_histogram(struct strbuf *out, struct text name, const struct histogram *histogram)
{
    struct histogram_summary summary;
    histogram_summarize(histogram, &summary);
    open_object(out, name);
    add_number(out, TEXT("count"), summary.count);
    add_decimal(out, TEXT("mean"), summary.mean_us);
    add_decimal(out, TEXT("p50"), summary.p50_us);
    add_decimal(out, TEXT("p90"), summary.p90_us);
    add_decimal(out, TEXT("p99"), summary.p99_us);
    add_decimal(out, TEXT("p999"), summary.p999_us);
    add_decimal(out, TEXT("max"), summary.max_us);
    close_object(out);
}

/* --- the process --- */

static struct text
without_line_end(struct text text)
{
    while (text.len > 0 && text.ptr[text.len - 1] == '\n')
        text.len--;
    return text;
}

static void
add_config(struct strbuf *out, const struct server *server)
{
    open_object(out, TEXT("config"));
    add_number(out, TEXT("generation"), server->snapshot->generation);
    if (server->reload_error) {
        add_string(out, TEXT("error"), without_line_end(text_of(server->reload_error)));
    } else {
        key(out, TEXT("error"));
        strbuf_add_str(out, "null");
    }
    close_object(out);
}

static void
add_buffers(struct strbuf *out, const struct server *server)
{
    uint64_t bytes = 0, peak_bytes = 0;
    if (server->workers)
        workers_buffers(server->workers, &bytes, &peak_bytes);
    open_object(out, TEXT("buffers"));
    add_number(out, TEXT("bytes"), bytes);
    add_number(out, TEXT("peak_bytes"), peak_bytes);
    add_number(out, TEXT("budget_bytes"), server->budget.total);
    close_object(out);
}

static void
add_process(struct strbuf *out, const struct server *server)
{
    struct exports_process process;
    exports_process(server, &process);
    open_object(out, TEXT("process"));
    add_number(out, TEXT("workers"), server->snapshot->proxy.workers);
    add_decimal(out, TEXT("cpu_s"), process.cpu_s);
    add_number(out, TEXT("resident_bytes"), process.resident_bytes);
    add_number(out, TEXT("open_fds"), process.open_fds);
    close_object(out);
}

/* --- listeners --- */

static void
add_listeners(struct strbuf *out, const struct server *server)
{
    struct listener_cells sum;
    open_object(out, TEXT("listeners"));
    for (unsigned i = 0; i < server->snapshot->listener_count; i++) {
        const struct listener_conf *listener = &server->snapshot->listeners[i];
        stats_sum_listener(&server->stats, listener->stats, &sum);
        open_object(out, listener->name);
        add_cell(out, TEXT("connections"), &sum.connections);
        add_cell(out, TEXT("accepted"), &sum.accepted);
        add_cell(out, TEXT("streams"), &sum.streams);
        add_cell(out, TEXT("reads"), &sum.reads);
        add_cell(out, TEXT("writes"), &sum.writes);
        close_object(out);
    }
    close_object(out);
}

/* --- routes --- */

static void
add_counters(struct strbuf *out, const struct route_cells *sum)
{
    uint64_t started = stats_get(&sum->started), calls = stats_get(&sum->calls);
    add_number(out, TEXT("started"), started);
    add_number(out, TEXT("calls"), calls);
    /* A call may begin and end between the two reads. */
    add_number(out, TEXT("active"), started > calls ? started - calls : 0);
    open_object(out, TEXT("status"));
    for (unsigned i = 0; i < STATS_CODES; i++)
        if (stats_get(&sum->status[i]))
            add_cell(out, exports_status_name(i), &sum->status[i]);
    close_object(out);
    open_object(out, TEXT("path"));
    for (unsigned i = 0; i < PATH_COUNT; i++)
        add_cell(out, text_of(stats_path_name(i)), &sum->path[i]);
    close_object(out);
    add_cell(out, TEXT("retries"), &sum->retries);
    open_object(out, TEXT("resets"));
    add_cell(out, TEXT("downstream"), &sum->resets_downstream);
    add_cell(out, TEXT("upstream"), &sum->resets_upstream);
    close_object(out);
    add_cell(out, TEXT("bytes_in"), &sum->bytes_in);
    add_cell(out, TEXT("bytes_out"), &sum->bytes_out);
    open_object(out, TEXT("errors"));
    for (unsigned i = REASON_NONE + 1; i < REASON_COUNT; i++)
        if (stats_get(&sum->reasons[i]))
            add_cell(out, text_of(stats_reason_name(i)), &sum->reasons[i]);
    close_object(out);
}

static void
add_times(struct strbuf *out, const struct route_cells *sum)
{
    static const struct {
        enum stats_phase phase;
        struct text name;
    } phases[] = {
        {PHASE_OVERHEAD, {"overhead_us", 11}}, {PHASE_QUEUE, {"queue_us", 8}},
        {PHASE_REQUEST, {"request_us", 10}},   {PHASE_RESPONSE, {"response_us", 11}},
        {PHASE_UPSTREAM, {"upstream_us", 11}}, {PHASE_TOTAL, {"total_us", 8}},
    };
    for (unsigned i = 0; i < sizeof(phases) / sizeof(phases[0]); i++)
        add_histogram(out, phases[i].name, &sum->phase[phases[i].phase]);
    open_object(out, TEXT("by_path"));
    for (unsigned i = 0; i < PATH_COUNT; i++) {
        open_object(out, text_of(stats_path_name(i)));
        add_histogram(out, TEXT("overhead_us"), &sum->path_overhead[i]);
        add_histogram(out, TEXT("total_us"), &sum->path_total[i]);
        close_object(out);
    }
    close_object(out);
}

static void
add_route(struct strbuf *out, const char *name, const struct route_cells *sum)
{
    open_object(out, text_of(name));
    add_counters(out, sum);
    add_times(out, sum);
    close_object(out);
}

/* Not of the newest configuration, and still worth showing. */
static bool
is_leftover(const struct stats_entry *entry, const struct route_cells *sum)
{
    uint64_t started = stats_get(&sum->started);
    return started > stats_get(&sum->calls) ||
           (started > 0 && text_eq(text_of(entry->name), TEXT("(none)")));
}

static void
add_routes(struct strbuf *out, const struct server *server)
{
    struct stats *stats = (struct stats *)&server->stats; /* its lock is taken */
    struct route_cells *sum = mem_new(struct route_cells);
    open_object(out, TEXT("routes"));
    for (unsigned i = 0; i < server->snapshot->route_count; i++) {
        const struct stats_entry *entry = server->snapshot->routes[i].stats;
        stats_sum_route(stats, entry, sum);
        add_route(out, entry->name, sum);
    }
    for (const struct stats_entry *entry = stats_next(stats, NULL); entry;
         entry = stats_next(stats, entry)) {
        if (entry->kind != STATS_ROUTE || exports_has_route(server, entry))
            continue;
        stats_sum_route(stats, entry, sum);
        if (is_leftover(entry, sum))
            add_route(out, entry->name, sum);
    }
    close_object(out);
    mem_free(sum);
}

/* --- upstreams --- */

static void
add_endpoint(struct strbuf *out, const char *name, const struct endpoint_cells *sum)
{
    open_object(out, text_of(name));
    add_string(out, TEXT("state"), text_of(stats_state_name(stats_get(&sum->state))));
    add_string(out, TEXT("wire"), text_of(stats_wire_name(stats_get(&sum->wire))));
    add_cell(out, TEXT("connections"), &sum->connections);
    add_cell(out, TEXT("streams"), &sum->streams);
    add_cell(out, TEXT("opened"), &sum->opened);
    add_cell(out, TEXT("failures"), &sum->failures);
    add_cell(out, TEXT("reads"), &sum->reads);
    add_cell(out, TEXT("writes"), &sum->writes);
    add_histogram(out, TEXT("upstream_us"), &sum->upstream);
    close_object(out);
}

static void
add_upstream(struct strbuf *out, struct stats *stats, struct text name)
{
    struct endpoint_cells sum;
    open_object(out, name);
    open_object(out, TEXT("endpoints"));
    for (const struct stats_entry *entry = stats_next(stats, NULL); entry;
         entry = stats_next(stats, entry)) {
        if (entry->kind != STATS_ENDPOINT || !text_eq(text_of(entry->name), name))
            continue;
        stats_sum_endpoint(stats, entry, &sum);
        if (stats_get(&sum.present))
            add_endpoint(out, entry->name2, &sum);
    }
    close_object(out);
    close_object(out);
}

void
exports_stats_json(const struct server *server, struct strbuf *out)
{
    strbuf_add_char(out, '{');
    add_string(out, TEXT("version"), TEXT(TRIBUTARY_VERSION));
    add_string(out, TEXT("state"), text_of(server_state_name(server->state)));
    add_number(out, TEXT("uptime_s"), (clock_now_ns() - server->started_ns) / NS_PER_S);
    add_config(out, server);
    add_buffers(out, server);
    add_process(out, server);
    add_listeners(out, server);
    add_routes(out, server);
    open_object(out, TEXT("upstreams"));
    for (unsigned i = 0; i < server->snapshot->upstream_count; i++)
        add_upstream(out, (struct stats *)&server->stats, server->snapshot->upstreams[i].name);
    close_object(out);
    strbuf_add_str(out, "}\n");
}
