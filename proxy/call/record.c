/*
 * Keeping the books: counters, histograms and the access log of a call. Times as design.md defines
 * them: what the proxy itself costs is queue + request + response, with waiting for a peer's window
 * or a full socket taken out.
 */
#include "proxy/call/call.h"
#include "proxy/call/call_private.h"

#include "proxy/base/clock.h"
#include "proxy/base/log.h"

#include <stdio.h>

static uint64_t
span(uint64_t from, uint64_t to, uint64_t less)
{
    uint64_t ns = to > from ? to - from : 0;
    return ns > less ? ns - less : 0;
}

struct phases {
    uint64_t ns[PHASE_COUNT];
};

static void
measure(const struct call *call, uint64_t end_ns, struct phases *phases)
{
    const struct call_times *times = &call->times;
    uint64_t ready = times->request_read > times->granted ? times->request_read : times->granted;
    uint64_t *ns = phases->ns;
    ns[PHASE_QUEUE] = times->earlier_queue + span(times->request_read, times->granted, 0);
    ns[PHASE_REQUEST] =
        times->earlier_request + span(ready, times->request_written, times->request_stalled);
    ns[PHASE_UPSTREAM] =
        times->earlier_upstream + span(times->request_written, times->reply_read, 0);
    ns[PHASE_RESPONSE] = span(times->reply_read, end_ns, times->reply_stalled);
    ns[PHASE_OVERHEAD] = ns[PHASE_QUEUE] + ns[PHASE_REQUEST] + ns[PHASE_RESPONSE];
    ns[PHASE_TOTAL] = span(times->head_read, end_ns, 0);
}

uint64_t
record_overhead_ns(const struct call *call, uint64_t end_ns)
{
    struct phases phases;
    if (call->times.granted == 0 && call->attempts == 0)
        return span(call->times.head_read, end_ns, 0); /* never left the proxy: all of it is ours */
    measure(call, end_ns, &phases);
    if (call->times.reply_read == 0) /* nothing of the reply's way can be told yet */
        return phases.ns[PHASE_QUEUE] + phases.ns[PHASE_REQUEST];
    return phases.ns[PHASE_OVERHEAD];
}

void
record_started(struct call *call)
{
    struct stats_entry *entry = call->route ? call->route->stats : call->worker->no_route;
    call->cells = stats_route(entry, call->worker->index);
    stats_add(&call->cells->started, 1);
}

static bool
reached_all_points(const struct call *call)
{
    const struct call_times *times = &call->times;
    return call->unary && call->path_chosen && times->request_read && times->granted &&
           times->request_written && times->reply_read && times->reply_written;
}

static void
record_times(struct call *call, uint64_t end_ns, struct phases *phases)
{
    struct route_cells *cells = call->cells;
    measure(call, end_ns, phases);
    histogram_record(call->path_chosen ? &cells->path_total[call->path]
                                       : &cells->phase[PHASE_TOTAL],
                     phases->ns[PHASE_TOTAL]);
    if (!reached_all_points(call))
        return;
    histogram_record(&cells->path_overhead[call->path], phases->ns[PHASE_OVERHEAD]);
    for (unsigned i = PHASE_QUEUE; i <= PHASE_UPSTREAM; i++)
        histogram_record(&cells->phase[i], phases->ns[i]);
}

static void
number(struct call *call, struct log_pair *pair, const char *key, uint64_t value)
{
    *pair = (struct log_pair){key, arena_decimal(&call->arena, value), true};
}

/* The status as the client got it: a gRPC client knows no code 17 (the grpc server codec makes it
 * UNKNOWN). */
static unsigned
final_code(const struct call *call)
{
    bool grpc = call->protocol != PROTOCOL_TRIPLE && !call->request.dubbo_client;
    return call->status.code == RPC_BIZ && grpc ? RPC_UNKNOWN : (unsigned)call->status.code;
}

static void
log_call(struct call *call, const struct phases *phases)
{
    struct log_pair pairs[16];
    unsigned n = 0;
    if (call->down)
        pairs[n++] = (struct log_pair){"peer", call->down_ops->peer(call), false};
    pairs[n++] = (struct log_pair){"method", call->request.path, false};
    if (call->route)
        pairs[n++] = (struct log_pair){"route", call->route->name, false};
    if (call->up_peer.len > 0)
        pairs[n++] = (struct log_pair){"endpoint", call->up_peer, false};
    pairs[n++] = (struct log_pair){"status", status_name((int)final_code(call)), false};
    if (call->path_chosen)
        pairs[n++] = (struct log_pair){"path", text_of(stats_path_name(call->path)), false};
    if (call->reason != REASON_NONE)
        pairs[n++] = (struct log_pair){"reason", text_of(stats_reason_name(call->reason)), false};
    number(call, &pairs[n++], "attempts", call->attempts);
    number(call, &pairs[n++], "bytes_in", call->bytes_in);
    number(call, &pairs[n++], "bytes_out", call->bytes_out);
    if (reached_all_points(call)) {
        number(call, &pairs[n++], "overhead_us", phases->ns[PHASE_OVERHEAD] / NS_PER_US);
        number(call, &pairs[n++], "upstream_us", phases->ns[PHASE_UPSTREAM] / NS_PER_US);
    }
    number(call, &pairs[n++], "total_us", phases->ns[PHASE_TOTAL] / NS_PER_US);
    log_access(pairs, n);
}

void
record_finished(struct call *call)
{
    struct route_cells *cells = call->cells;
    if (!cells)
        return; /* the head never got as far as a route */
    call->bytes_in = call->request_flow.message_bytes;
    call->bytes_out = call->reply_flow.out_bytes;
    uint64_t end_ns = call->times.reply_written ? call->times.reply_written : clock_now_ns();
    struct phases phases;
    unsigned code = final_code(call);
    stats_add(&cells->calls, 1);
    stats_add(&cells->status[code < STATS_CODES - 1 ? code : STATS_CODES - 1], 1);
    if (call->path_chosen)
        stats_add(&cells->path[call->path], 1);
    if (call->reason != REASON_NONE)
        stats_add(&cells->reasons[call->reason], 1);
    stats_add(&cells->bytes_in, call->bytes_in);
    stats_add(&cells->bytes_out, call->bytes_out);
    record_times(call, end_ns, &phases);
    if (log_access_enabled())
        log_call(call, &phases);
}
