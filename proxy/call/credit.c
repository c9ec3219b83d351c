/*
 * Stream windows: when the bytes that a side sent us are paid back to it.
 *
 * Held bytes are paid on receipt (a window smaller than the held message would otherwise deadlock;
 * max_message and the budget bound them). Passing bytes are paid when they enter the other side's
 * write queue, so a slow reader slows its writer and nothing else. While the budget is tight
 * passing bytes are not paid: the call waits on worker->starved, and a timer asks again. What
 * calls keep for a replay is given up then, and whenever more is asked of a tight budget: it is
 * what could be waited for.
 */
#include "proxy/call/call.h"
#include "proxy/call/call_private.h"

#include "proxy/base/clock.h"

enum { STARVED_RETRY_MS = 5 };

static bool
tight(const struct call *call)
{
    return budget_pressure(&call->worker->ctx.chunks.lease) >= BUDGET_TIGHT;
}

/* Not only passing calls: many short ones that wait for their answers keep much, too. */
void
credit_give_up_replays(struct worker *worker)
{
    worker->ctx.chunks.lease.scarce = false;
    list_for_each (node, &worker->calls)
        flow_forget(&list_entry(node, struct call, node)->request_flow);
}

static void
starve(struct call *call)
{
    struct worker *worker = call->worker;
    if (!list_linked(&call->starved_node))
        list_push_back(&worker->starved, &call->starved_node);
    if (timer_running(&worker->starved_timer))
        return;
    credit_give_up_replays(worker);
    timers_start(&worker->ctx.timers, &worker->starved_timer,
                 clock_now_ns() + STARVED_RETRY_MS * NS_PER_MS);
}

static void
pay_request(struct call *call, uint64_t bytes)
{
    if (bytes == 0 || !call->down)
        return;
    call->request_owed -= bytes;
    call->down_ops->credit(call, bytes);
}

static void
pay_reply(struct call *call, uint64_t bytes)
{
    if (bytes == 0 || !call->up)
        return;
    call->reply_owed -= bytes;
    call->up_ops->credit(call, bytes);
}

/* What may be paid now that `queued` bytes still wait on the other side: prefixes and compression
 * make the two sides' bytes differ, so an empty queue settles everything. */
static uint64_t
payable(uint64_t owed, uint64_t queued)
{
    return owed > queued ? owed - queued : 0;
}

void
credit_request_received(struct call *call, size_t bytes)
{
    call->request_owed += bytes;
    if (call->request_flow.held || call->request_flow.inflate)
        pay_request(call, call->request_owed);
}

/* `bytes` more are in the other side's write queue; those that still wait. */
static uint64_t
left(struct flow *flow, uint64_t bytes)
{
    uint64_t queued = flow->queued_bytes;
    queued -= bytes < queued ? bytes : queued;
    flow->queued_bytes = queued;
    if (queued == 0)
        flow_sent(flow);
    return queued;
}

void
credit_request_sent(struct call *call, size_t bytes)
{
    uint64_t due = payable(call->request_owed, left(&call->request_flow, bytes));
    if (due > 0 && tight(call))
        starve(call);
    else
        pay_request(call, due);
}

void
credit_reply_received(struct call *call, size_t bytes)
{
    call->reply_owed += bytes;
    if (call->reply_flow.held || call->reply_flow.inflate)
        pay_reply(call, call->reply_owed);
}

void
credit_reply_sent(struct call *call, size_t bytes)
{
    uint64_t due = payable(call->reply_owed, left(&call->reply_flow, bytes));
    if (due > 0 && tight(call))
        starve(call);
    else
        pay_reply(call, due);
}

void
credit_on_timer(struct timer *timer)
{
    struct worker *worker = container_of(timer, struct worker, starved_timer);
    struct list waiting;
    list_init(&waiting);
    list_splice(&waiting, &worker->starved);
    while (!list_empty(&waiting)) {
        struct call *call = list_first(&waiting, struct call, starved_node);
        list_unlink(&call->starved_node);
        credit_request_sent(call, 0); /* pays, or puts it back */
        credit_reply_sent(call, 0);
    }
}
