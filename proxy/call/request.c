/*
 * The request's way: hold, decide, open, send, and once more where that is safe. Owns the attempts.
 *
 * Steps: call_request_data/end feed the flow → request_decide asks path.c → start_path opens an
 * upstream stream → call_upstream_granted releases the body into it → pump sends what there is. A
 * later attempt (replay of a call that provably was not processed, framed try after a refusal) goes
 * the same way again, from open.
 */
#include "proxy/call/call.h"
#include "proxy/call/call_private.h"

#include "proxy/base/clock.h"
#include "proxy/call/path.h"

static enum route_call
effective_call(const struct call *call)
{
    return call->request.form == FORM_BARE ? CALL_UNARY : call->route->call;
}

static bool
may_fall_back(const struct call *call)
{
    return path_may_fall_back(effective_call(call), call->route->upstream->wire);
}

/* Providers that take nothing bare are Java's: compressed requests reach some of their services as
 * garbage, and an encoding unknown to them is never answered. */
static bool
must_inflate(const struct call *call, bool takes_nothing_bare)
{
    return takes_nothing_bare && call->route->upstream->dialect == DIALECT_TRIPLE &&
           call->request.encoding != ENCODING_IDENTITY;
}

static bool
provider_wants_plain(const struct call *call)
{
    return must_inflate(call, call->facts.endpoint_framed ||
                                  call->route->upstream->wire == UPSTREAM_WIRE_FRAMED);
}

/* A bare request's body is its one message. */
static bool
first_known(const struct flow *flow)
{
    return flow->from == FORM_BARE || flow->reader.messages > 0;
}

static bool
budget_is_tight(const struct call *call)
{
    return budget_pressure(&call->worker->ctx.chunks.lease) >= BUDGET_TIGHT;
}

static void
fill_input(const struct call *call, struct path_input *in)
{
    const struct flow *flow = &call->request_flow;
    bool bare = flow->from == FORM_BARE;
    *in = (struct path_input){
        .call = call->route->call,
        .wire = call->route->upstream->wire,
        .fast_path_max = call->route->fast_path_max,
        .fast_share = call->fast_share,
        .facts = call->facts,
        .source_bare = bare,
        .must_inflate = bare && provider_wants_plain(call),
        .first_known = first_known(flow),
        .length = flow_bare_length(flow),
        .complete = flow->first_complete,
        .several = flow->reader.messages > 1,
        .ended = flow->ended,
        .turn_over = call->turn_over,
        .head_alone = call->head_alone,
        .budget_tight = !flow->ended && budget_is_tight(call),
    };
}

/* What can only be checked once the call is known to be unary, or to leave bare. An encoding
 * without a name here is refused in bare form even where the flag says that the message is plain:
 * gRPC's servers do the same, and the header that they would refuse does not leave. */
static enum flow_error
check_chosen(struct flow *flow, bool unary, enum encoding encoding)
{
    if (unary) {
        flow->one_message = true;
        if (flow->reader.messages > 1)
            return FLOW_SEVERAL;
    }
    if (flow->to == FORM_BARE && encoding == ENCODING_OTHER)
        return FLOW_UNKNOWN_ENCODING;
    return flow->ended ? flow_end(flow) : FLOW_OK;
}

static void
start_path(struct call *call, const struct path_choice *choice)
{
    struct flow *flow = &call->request_flow;
    call->path = choice->path;
    call->path_chosen = true;
    call->upstream_form = flow->to = choice->form;
    call->unary = choice->unary || call->unary;
    flow->inflate = choice->form == FORM_FRAMED && provider_wants_plain(call);
    enum flow_error error = check_chosen(flow, call->unary, call->request.encoding);
    if (error != FLOW_OK) {
        call->path_chosen = false; /* ended before it had a path */
        outcome_flow_error(call, error, false);
        return;
    }
    call->phase = CALL_OPENING;
    call->up_ops->open(call);
}

static void
wait_for_more(struct call *call)
{
    struct worker *worker = call->worker;
    bool head_only = call->request_flow.raw_bytes == 0 && call->route->call == CALL_AUTO;
    /* head_alone: its 10 ms are over and it's waited for all the same (a method known to be unary).
     */
    if (!head_only || call->head_alone || list_linked(&call->undecided_node))
        return;
    list_push_back(&worker->undecided, &call->undecided_node);
    if (!timer_running(&worker->undecided_timer))
        timers_start(&worker->ctx.timers, &worker->undecided_timer,
                     call->times.head_read + CALL_HEAD_ALONE_MS * NS_PER_MS);
}

void
request_decide(struct call *call)
{
    struct path_input input;
    struct path_choice choice;
    const struct flow *flow = &call->request_flow;
    if (path_needs_message(call->route->call, first_known(flow), flow->ended))
        return; /* at the head: all the rest need not be looked at */
    fill_input(call, &input);
    switch (path_decide(&input, &choice)) {
    case PATH_WAIT:
        wait_for_more(call);
        return;
    case PATH_WAIT_TURN:
        ctx_defer(&call->worker->ctx, &call->turn_end);
        return;
    case PATH_GO:
        list_unlink(&call->undecided_node);
        start_path(call, &choice);
        return;
    }
}

/* Give the upstream stream what is ready for it. */
static void
pump(struct call *call)
{
    struct flow *flow = &call->request_flow;
    if (!call->granted || !call->up || call->phase >= CALL_ENDING)
        return;
    bool end = flow->ended && !call->request_end_sent;
    if (flow->out.bytes == 0 && !end)
        return;
    flow->queued_bytes += flow->out.bytes;
    call->request_end_sent |= end;
    call->up_ops->send_body(call, &flow->out, end);
}

static void
go_on(struct call *call)
{
    if (call->phase == CALL_DECIDING)
        request_decide(call);
    else
        pump(call);
}

void
call_request_data(struct call *call, const uint8_t *data, size_t len)
{
    if (call->phase == CALL_NEW || call->phase >= CALL_ENDING) {
        if (call->down)
            call->down_ops->credit(call, len); /* answered already: what still comes is dropped */
        return;
    }
    list_unlink(&call->undecided_node);
    credit_before(call->worker);
    enum flow_error error = flow_feed(&call->request_flow, data, len);
    credit_request_received(call, len);
    if (error != FLOW_OK)
        outcome_flow_error(call, error, false);
    else
        go_on(call);
}

void
call_request_end(struct call *call)
{
    call->request_ended = true;
    call->times.request_read = call->worker->ctx.turn_ns;
    if (call->phase == CALL_NEW || call->phase >= CALL_ENDING)
        return;
    enum flow_error error = flow_end(&call->request_flow);
    if (error != FLOW_OK)
        outcome_flow_error(call, error, false);
    else
        go_on(call);
}

void
call_upstream_granted(struct call *call)
{
    call->granted = true;
    call->attempts++;
    call->times.granted = call->worker->ctx.turn_ns;
    bool second_try = call->upstream_form == FORM_BARE && may_fall_back(call);
    enum flow_error error = flow_release(&call->request_flow, call->route->replay || second_try);
    if (error != FLOW_OK) {
        outcome_flow_error(call, error, false);
        return;
    }
    call->phase = CALL_SENT;
    call->up_ops->send_head(call, false);
    pump(call);
}

void
call_upstream_unavailable(struct call *call)
{
    reply_end(call);
}

void
call_upstream_sent(struct call *call, size_t bytes)
{
    if (call->phase < CALL_ENDING)
        credit_request_sent(call, bytes);
}

void
call_upstream_flushed(struct call *call, uint64_t now_ns, uint64_t stalled_ns)
{
    call->times.request_written = now_ns;
    call->times.request_stalled += stalled_ns;
}

/* --- further attempts --- */

/* Attempts add up: what this one took goes to the side, and the clock of the next starts where its
 * cause was read. */
static void
close_attempt(struct call *call)
{
    struct call_times *times = &call->times;
    uint64_t now = call->worker->ctx.turn_ns;
    uint64_t ready = times->request_read > times->granted ? times->request_read : times->granted;
    if (times->granted > times->request_read && times->request_read > 0)
        times->earlier_queue += times->granted - times->request_read;
    if (times->request_written > ready && ready > 0)
        times->earlier_request += times->request_written - ready;
    if (times->request_written > 0 && now > times->request_written)
        times->earlier_upstream += now - times->request_written;
    if (times->request_read > 0)
        times->request_read = now;
    times->granted = times->request_written = times->reply_read = 0;
    call->granted = call->request_end_sent = false;
    flow_hold(&call->request_flow); /* the next stream may be long in coming */
    credit_request_received(call, 0);
}

/* Still to be had from the start, and in the framed form: a bare body that goes on can be prefixed
 * only where its length is known, and decompressed only when it has ended. */
static bool
can_go_framed(const struct call *call, bool inflate)
{
    const struct flow *flow = &call->request_flow;
    if (!flow->kept_whole)
        return false;
    return flow->from == FORM_FRAMED || flow->ended || (flow->bare_length >= 0 && !inflate);
}

bool
request_replayable(const struct call *call)
{
    return call->route->replay && call->attempts < CALL_MAX_ATTEMPTS && call->phase <= CALL_SENT &&
           call->request_flow.kept_whole;
}

/* Framed, nothing says any more that a call = auto is unary: a server stream's request looks the
 * same. */
static void
go_framed(struct call *call)
{
    bool unary = effective_call(call) == CALL_UNARY;
    call->upstream_form = call->request_flow.to = FORM_FRAMED;
    call->unary = call->request_flow.one_message = unary;
}

void
request_try_again(struct call *call)
{
    close_attempt(call);
    stats_add(&call->cells->retries, 1);
    if (!call->up_ops->pick(call, &call->facts)) {
        reply_end(call);
        return;
    }
    /* The other endpoint may be one that takes nothing bare. */
    bool refused = call->facts.endpoint_framed || call->facts.method_framed;
    if (call->upstream_form == FORM_BARE && refused && may_fall_back(call) &&
        can_go_framed(call, provider_wants_plain(call))) {
        call->path = PATH_FRAMED;
        go_framed(call);
        call->request_flow.inflate = provider_wants_plain(call);
    }
    call->phase = CALL_OPENING;
    call->up_ops->open(call);
}

static void
forget_reply(struct call *call)
{
    struct call_reply *reply = &call->reply;
    memset(reply, 0, sizeof(*reply));
    fields_init(&reply->head, &call->arena);
    fields_init(&reply->raw_trailers, &call->arena);
    fields_init(&reply->metadata, &call->arena);
    fields_init(&reply->trailers, &call->arena);
    reply->content_length = -1;
    flow_fini(&call->reply_flow);
    flow_init(&call->reply_flow, &call->worker->ctx.chunks, call->snapshot->max_message);
    call->reply_owed = 0;
}

bool
request_fall_back(struct call *call)
{
    bool inflate = must_inflate(call, call->reply.refusal == REFUSAL_ENDPOINT);
    if (!may_fall_back(call) || call->fell_back || !can_go_framed(call, inflate))
        return false;
    call->fell_back = true;
    call->refusal = call->reply.refusal;
    call->refused_http = call->reply.http_status;
    call->path = PATH_FALLBACK;
    go_framed(call);
    call->request_flow.inflate = inflate;
    call->up_ops->cancel(call, NGHTTP2_NO_ERROR, true);
    close_attempt(call);
    forget_reply(call);
    call->reason = REASON_NONE; /* of the refusal, which the client never sees */
    memset(&call->status, 0, sizeof(call->status));
    call->phase = CALL_OPENING;
    call->up_ops->open(call);
    return true;
}
