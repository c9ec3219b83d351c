/*
 * What the files of the call share: call.c (life), request.c (towards the provider), reply.c
 * (towards the client), credit.c (windows), outcome.c (errors), record.c (statistics, access log).
 * Nobody else includes this.
 */
#ifndef TRIBUTARY_CALL_CALL_PRIVATE_H
#define TRIBUTARY_CALL_CALL_PRIVATE_H

#include "proxy/call/flow.h"
#include "proxy/net/timers.h"
#include "proxy/stats/stats.h"
#include "proxy/wire/status.h"

struct call;

enum {
    CALL_MAX_ATTEMPTS = 5,   /* streams granted for one call: bounds replays of what was refused */
    CALL_HEAD_ALONE_MS = 10, /* call = auto: HEADERS alone this long make it a stream */
    CALL_LAST_MS = 1000,     /* for an answer to leave, counted from the deadline */
};

/* request.c: choose the path if that is possible by now, and go on from there. */
void request_decide(struct call *call);
/* request.c: begin another attempt; the caller has cancelled the last one and checked that the body
 * is still whole. */
void request_try_again(struct call *call);
/* request.c: the body can be sent once more from the start. */
bool request_replayable(const struct call *call);
/* request.c: the framed try after a refusal of the bare form; false when the body is gone. */
bool request_fall_back(struct call *call);

/* call.c: the head is about to leave: the filters' response. Once per call. */
void call_filter_response(struct call *call);

/* call.c: the status of a call whose deadline is over. */
void call_set_deadline_exceeded(struct call *call);

/* reply.c: answer downstream with call->status (and whatever trailers are set); the call then waits
 * for the kernel. */
void reply_end(struct call *call);

/* outcome.c: end the call for what is wrong with a body. */
void outcome_flow_error(struct call *call, enum flow_error error, bool of_reply);
__attribute__((format(printf, 4, 0))) void
outcome_set_error(struct call *call, enum rpc_code code, enum stats_reason reason,
                  const char *format, va_list args);

/* credit.c: bytes were received (held: returned at once; passing: owed) / have left for the other
 * side. */
void credit_request_received(struct call *call, size_t bytes);
void credit_request_sent(struct call *call, size_t bytes);
void credit_reply_received(struct call *call, size_t bytes);
void credit_reply_sent(struct call *call, size_t bytes);
void credit_on_timer(
    struct timer *timer); /* worker->starved_timer: try again while the budget was tight */
void credit_give_up_replays(struct worker *worker); /* what calls keep for one */
/* Before bytes are taken in. */
static inline void
credit_before(struct worker *worker)
{
    if (__builtin_expect(worker->ctx.chunks.lease.scarce, 0))
        credit_give_up_replays(worker);
}

/* record.c */
void record_started(struct call *call);
void record_finished(struct call *call);
uint64_t
record_overhead_ns(const struct call *call, uint64_t end_ns); /* as far as it is known by end_ns */

#endif
