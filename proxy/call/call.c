/*
 * The life of a call: from its head to its one exit. Owns creation, routing, the deadline, the end;
 * see call.h for the whole way.
 */
#include "proxy/call/call.h"
#include "proxy/call/call_private.h"

#include "proxy/base/check.h"
#include "proxy/base/clock.h"
#include "proxy/call/filter.h"
#include "proxy/call/routes.h"

static void
on_turn_end(struct deferred *deferred)
{
    struct call *call = container_of(deferred, struct call, turn_end);
    call->turn_over = true;
    if (call->phase == CALL_DECIDING)
        request_decide(call);
}

void
call_set_deadline_exceeded(struct call *call)
{
    uint64_t ms = (call->deadline_ns - call->times.head_read + NS_PER_MS - 1) / NS_PER_MS;
    call_set_error(call, RPC_DEADLINE_EXCEEDED, REASON_DEADLINE_EXCEEDED,
                   "deadline of %llu ms exceeded", (unsigned long long)ms);
}

static void
on_deadline(struct timer *timer)
{
    struct call *call = container_of(timer, struct call, deadline);
    if (call->phase == CALL_ENDING) {
        /* Everything was handed over and the client still does not read it: it has given up by its
         * own clock. */
        call->status.code = RPC_DEADLINE_EXCEEDED;
        call->reason = REASON_DEADLINE_EXCEEDED;
        if (call->down)
            call->down_ops->reset(call, NGHTTP2_CANCEL);
        call_finish(call);
        return;
    }
    call_set_deadline_exceeded(call);
    reply_end(call);
}

_Static_assert(sizeof(struct call) + SLAB_HEADER <= SLAB_MAX, "a call would come from the heap");

struct call *
call_new(struct worker *worker, const struct downstream_ops *ops, void *down)
{
    struct call *call = slab_alloc(&worker->ctx.slab, sizeof(*call));
    memset(call, 0, offsetof(struct call, request_flow));
    call->worker = worker;
    call->down_ops = ops;
    call->down = down;
    call->up_ops = &upstream_ops;
    list_init(&call->undecided_node);
    list_init(&call->starved_node);
    list_init(&call->turn_end.node);
    call->turn_end.run = on_turn_end;
    call->deadline.on_due = on_deadline;
    arena_init(&call->arena, call->arena_memory, sizeof(call->arena_memory));
    fields_init(&call->request.head, &call->arena);
    fields_init(&call->request.metadata, &call->arena);
    fields_init(&call->reply.head, &call->arena);
    fields_init(&call->reply.raw_trailers, &call->arena);
    fields_init(&call->reply.metadata, &call->arena);
    fields_init(&call->reply.trailers, &call->arena);
    call->request.content_length = call->reply.content_length = -1;
    call->request.timeout_ns = UINT64_MAX;
    call->snapshot = snapshot_ref(worker->snapshot);
    flow_init(&call->request_flow, &worker->ctx.chunks, call->snapshot->max_message);
    flow_init(&call->reply_flow, &worker->ctx.chunks, call->snapshot->max_message);
    list_push_back(&worker->calls, &call->node);
    worker->call_count++;
    return call;
}

static bool
run_filters(struct call *call)
{
    const struct route *route = call->route;
    for (unsigned i = 0; i < route->filter_count; i++) {
        if (!route->filters[i]->request(call, route->filter_settings[i], &call->status))
            return false;
        call->filters_passed++;
    }
    return true;
}

void
call_filter_response(struct call *call)
{
    const struct route *route = call->route;
    for (unsigned i = 0; i < call->filters_passed; i++)
        if (route->filters[i]->response)
            route->filters[i]->response(call, route->filter_settings[i]);
}

static void
run_filters_done(struct call *call)
{
    const struct route *route = call->route;
    for (unsigned i = 0; i < call->filters_passed; i++)
        if (route->filters[i]->done)
            route->filters[i]->done(call, route->filter_settings[i]);
}

/* The shorter of the client's deadline and the route's bound. False: already over. */
static bool
arm_deadline(struct call *call)
{
    uint64_t timeout = call->request.timeout_ns;
    if (call->route->timeout_ns > 0 && call->route->timeout_ns < timeout)
        timeout = call->route->timeout_ns;
    if (timeout == UINT64_MAX)
        return true;
    uint64_t head = call->times.head_read;
    call->deadline_ns = timeout > UINT64_MAX - head ? UINT64_MAX : head + timeout;
    if (timeout == 0)
        return false;
    timers_start(&call->worker->ctx.timers, &call->deadline, call->deadline_ns);
    return true;
}

static bool
route_call(struct call *call)
{
    struct route_query query = {
        .path = call->request.path,
        .authority = call->request.authority,
        .listener = call->listener,
        .fields = &call->request.head,
    };
    call->route = routes_find(call->snapshot, &query);
    record_started(call);
    if (call->route)
        return true;
    call_set_error(call, RPC_UNIMPLEMENTED, REASON_NO_ROUTE, "no route takes %.*s",
                   (int)(call->request.path.len < 200 ? call->request.path.len : 200),
                   call->request.path.ptr ? call->request.path.ptr : "");
    return false;
}

/* Every N-th call in an even rhythm, so that "10%" is each tenth call and not a coin. */
static bool
is_fast_share(const struct call *call)
{
    uint64_t n = stats_get(&call->cells->started), share = call->route->fast_path_share;
    return n * share / 10000 != (n - 1) * share / 10000;
}

static void
prepare_request_flow(struct call *call)
{
    struct flow *flow = &call->request_flow;
    flow->from = call->request.form;
    flow->bare_length = call->request.content_length;
    flow->encoding_known = call->request.encoding != ENCODING_IDENTITY;
    flow->gzip = call->request.encoding == ENCODING_GZIP;
    flow->bare_compressed = flow->from == FORM_BARE && flow->encoding_known;
    flow->one_message = call->route->call == CALL_UNARY || flow->from == FORM_BARE;
    call->unary = flow->one_message;
}

void
call_start(struct call *call, uint64_t head_ns, bool end)
{
    check(call->phase == CALL_NEW);
    call->times.head_read = head_ns;
    if (!route_call(call)) {
        reply_end(call);
        return;
    }
    call->fast_share = is_fast_share(call);
    prepare_request_flow(call);
    if (!arm_deadline(call)) {
        call_set_deadline_exceeded(call);
        reply_end(call);
        return;
    }
    if (call->request.content_length > (int64_t)call->snapshot->max_message) {
        outcome_flow_error(call, FLOW_TOO_LONG, false);
        return;
    }
    if (!run_filters(call) || !call->up_ops->pick(call, &call->facts)) {
        reply_end(call);
        return;
    }
    call->phase = CALL_DECIDING;
    if (end)
        call_request_end(call);
    else
        request_decide(call);
}

void
call_refuse(struct call *call, uint64_t head_ns)
{
    check(call->phase == CALL_NEW && call->status.code != RPC_OK);
    call->times.head_read = head_ns;
    /* The head may be too broken to route; its route counts the error where there is one. */
    struct rpc_status status = call->status;
    enum stats_reason reason = call->reason;
    route_call(call);
    call->status = status;
    call->reason = reason;
    reply_end(call);
}

uint64_t
call_remaining_ns(const struct call *call)
{
    if (call->deadline_ns == 0)
        return UINT64_MAX;
    uint64_t now = clock_now_ns();
    return now < call->deadline_ns ? call->deadline_ns - now : 0;
}

void
call_downstream_gone(struct call *call, uint32_t error)
{
    (void)error;
    if (call->phase == CALL_FINISHED)
        return;
    if (call->cells)
        stats_add(&call->cells->resets_downstream, 1);
    if (call->phase != CALL_ENDING)
        call_set_error(call, RPC_CANCELLED, REASON_CLIENT_GONE, "the client has gone");
    call_finish(call);
}

static void
bury_call(struct grave *grave)
{
    struct call *call = container_of(grave, struct call, grave);
    arena_fini(&call->arena);
    snapshot_unref(call->snapshot);
    slab_free(&call->worker->ctx.slab, call);
}

void
call_finish(struct call *call)
{
    if (call->phase == CALL_FINISHED)
        return;
    call->phase = CALL_FINISHED;
    struct worker *worker = call->worker;
    timers_stop(&worker->ctx.timers, &call->deadline);
    list_unlink(&call->node);
    list_unlink(&call->undecided_node);
    list_unlink(&call->starved_node);
    list_unlink(&call->turn_end.node);
    worker->call_count--;
    /* Record first: what a detach wakes up (a waiting call, a drained connection) must find the
     * books closed. */
    record_finished(call);
    run_filters_done(call);
    if (call->up)
        call->up_ops->cancel(call, NGHTTP2_CANCEL, false);
    if (call->down)
        call->down_ops->detach(call);
    /* Bodies go at once: the budget must not wait for the turn's end. */
    flow_fini(&call->request_flow);
    flow_fini(&call->reply_flow);
    ctx_bury(&worker->ctx, &call->grave, bury_call);
}

void
call_end_all(struct worker *worker)
{
    struct list running;
    list_init(&running);
    list_splice(&running, &worker->calls);
    while (!list_empty(&running)) {
        struct call *call = list_first(&running, struct call, node);
        /* What is answered stays on the list until the kernel has the answer. */
        list_unlink(&call->node);
        list_push_back(&worker->calls, &call->node);
        if (call->phase == CALL_NEW) { /* its head is not complete: there is nobody to answer yet */
            call->down_ops->reset(call, NGHTTP2_REFUSED_STREAM);
            call_finish(call);
        } else {
            call_fail(call, RPC_UNAVAILABLE, REASON_DRAINING, "the proxy is stopping");
        }
    }
}

/* worker->undecided_timer: the oldest calls that have seen a head and nothing else for
 * CALL_HEAD_ALONE_MS are streams. */
static void
on_head_alone(struct timer *timer)
{
    struct worker *worker = container_of(timer, struct worker, undecided_timer);
    uint64_t now = clock_now_ns();
    while (!list_empty(&worker->undecided)) {
        struct call *call = list_first(&worker->undecided, struct call, undecided_node);
        uint64_t due = call->times.head_read + CALL_HEAD_ALONE_MS * NS_PER_MS;
        if (due > now) {
            timers_start(&worker->ctx.timers, timer, due);
            return;
        }
        list_unlink(&call->undecided_node);
        call->head_alone = true;
        request_decide(call);
    }
}

void
call_worker_init(struct worker *worker)
{
    list_init(&worker->calls);
    list_init(&worker->undecided);
    list_init(&worker->starved);
    worker->undecided_timer.on_due = on_head_alone;
    worker->starved_timer.on_due = credit_on_timer;
    worker->no_route = stats_register(worker->stats, STATS_ROUTE, TEXT("(none)"), TEXT_NONE);
}

void
call_worker_fini(struct worker *worker)
{
    timers_stop(&worker->ctx.timers, &worker->undecided_timer);
    timers_stop(&worker->ctx.timers, &worker->starved_timer);
}
