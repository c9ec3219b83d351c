/*
 * The reply's way: from the provider's head to the client's last byte, and what happens when the
 * exchange breaks.
 *
 * Steps: call_reply_head (codec reads it; the flow is set up; a head that can leave leaves) →
 * call_reply_data (flow, pump) → call_reply_end (codec reads the status; refusals turn into a
 * framed try; lessons are learnt) → reply_end.
 */
#include "proxy/call/call.h"
#include "proxy/call/call_private.h"

#include "proxy/base/clock.h"
#include "proxy/call/filter.h"
#include "proxy/call/path.h"
#include "proxy/net/h2.h"

static bool
client_takes(const struct call *call)
{
    return encoding_offered(call->request.accept_encoding, call->reply.encoding_name);
}

/* What the call has cost so far: with the trailers, wherever the client's protocol puts them. */
static void
add_report(struct call *call)
{
    if (!call->route || !call->route->report || call->reported)
        return;
    call->reported = true;
    if (call->path_chosen)
        fields_add(&call->reply.trailers, TEXT("tributary-path"),
                   text_of(stats_path_name(call->path)), FIELD_STATIC);
    uint64_t overhead = record_overhead_ns(call, clock_now_ns());
    fields_add(&call->reply.trailers, TEXT("tributary-overhead-us"),
               arena_decimal(&call->arena, overhead / NS_PER_US),
               FIELD_STATIC_NAME | FIELD_NO_INDEX);
}

static void
send_head(struct call *call)
{
    if (call->head_sent)
        return;
    call_filter_response(call);
    if (call->down_codec->form == FORM_BARE)
        add_report(call); /* its trailers travel in the head */
    call->head_sent = true;
    call->down_ops->send_head(call);
}

static void
pump(struct call *call)
{
    struct flow *flow = &call->reply_flow;
    if (flow->held || flow->out.bytes == 0 || !call->down)
        return;
    send_head(call);
    flow->queued_bytes += flow->out.bytes;
    call->down_ops->send_body(call, &flow->out);
}

/* The body is no message: it's held as it is until the codec reads it at the end, if it is short
 * enough to be worth that. */
static void
prepare_error_body(struct call *call)
{
    call->reply_flow.from = call->reply_flow.to = FORM_BARE;
    call->reply_flow.bare_length = call->reply.content_length;
}

/* Without a length a prefix cannot be written; without the status a bare head cannot. */
static bool
must_hold(const struct flow *flow)
{
    if (flow->from == FORM_BARE)
        return flow->inflate || (flow->to == FORM_FRAMED && flow->bare_length < 0);
    return flow->to == FORM_BARE;
}

static void
prepare_message_body(struct call *call)
{
    struct flow *flow = &call->reply_flow;
    struct call_reply *reply = &call->reply;
    flow->from = reply->form;
    flow->to = call->down_codec->form;
    flow->bare_length = reply->content_length;
    flow->encoding_known = reply->encoding != ENCODING_IDENTITY;
    flow->gzip = reply->encoding == ENCODING_GZIP;
    flow->bare_compressed = flow->from == FORM_BARE && flow->encoding_known;
    flow->one_message = call->unary || flow->from == FORM_BARE || flow->to == FORM_BARE;
    flow->inflate = flow->encoding_known && !client_takes(call);
    if (flow->inflate)
        reply->encoding_name = TEXT_NONE;
}

static void
start_message(struct call *call)
{
    struct flow *flow = &call->reply_flow;
    flow_forget(&call->request_flow); /* it was processed: no replay from here on */
    prepare_message_body(call);
    if (flow->bare_length > 0 && (uint64_t)flow->bare_length > flow->max_message) {
        outcome_flow_error(call, FLOW_TOO_LONG, true);
        return;
    }
    if (!must_hold(flow))
        flow_release(flow, false); /* nothing is held yet: from now on it passes */
    if (flow->to == FORM_FRAMED || !flow->held)
        send_head(call);
}

void
call_reply_head(struct call *call, bool end)
{
    if (call->phase >= CALL_ENDING)
        return;
    call->phase = CALL_REPLYING;
    call->up_codec->read_reply(call, end);
    if (call->reply.body_is_error)
        prepare_error_body(call);
    else if (!call->reply.ends_with_head)
        start_message(call);
    if (end && call->phase == CALL_REPLYING)
        call_reply_end(call, NULL);
}

static enum flow_error
feed(struct call *call, const uint8_t *data, size_t len)
{
    struct call_reply *reply = &call->reply;
    struct flow *flow = &call->reply_flow;
    if (!reply->body_is_error)
        return flow_feed(flow, data, len);
    bool fits = flow->body.bytes + len <= reply->error_body_max;
    if (fits && flow_feed(flow, data, len) == FLOW_OK)
        return FLOW_OK;
    /* Too long, or no budget for it: the HTTP status has to say it all. */
    reply->error_body_max = 0;
    slices_clear(&flow->body);
    return FLOW_OK;
}

void
call_reply_data(struct call *call, const uint8_t *data, size_t len)
{
    if (call->phase >= CALL_ENDING)
        return;
    credit_before(call->worker);
    enum flow_error error = feed(call, data, len);
    credit_reply_received(call, len);
    if (error != FLOW_OK)
        outcome_flow_error(call, error, true);
    else
        pump(call);
}

/* --- the end of a complete reply --- */

/* Why the framed try of a refused call proves nothing about the bare form. */
static bool
framed_try_failed_too(const struct call *call)
{
    return call->reply.http_status == 415 || call->reply.http_status == 404 ||
           call->reply.status.code == RPC_UNIMPLEMENTED;
}

static void
learn(struct call *call)
{
    const struct call_reply *reply = &call->reply;
    if (call->fell_back) {
        if (!framed_try_failed_too(call))
            call->up_ops->learn(call, call->refusal == REFUSAL_METHOD ? LESSON_METHOD_FRAMED
                                                                      : LESSON_ENDPOINT_FRAMED);
        return;
    }
    if (call->upstream_form != FORM_BARE || reply->form != FORM_BARE)
        return;
    if (reply->http_status == 200 && reply->status.code == RPC_OK) {
        if (!call->facts.method_unary || !call->facts.method_bare)
            call->up_ops->learn(call, LESSON_METHOD_UNARY);
    } else if (reply->bare_error_has_code && !call->facts.method_bare) {
        call->up_ops->learn(call, LESSON_METHOD_BARE);
    }
}

/* The bare form was refused. True: the call goes on, framed. */
static bool
handle_refusal(struct call *call)
{
    if (request_fall_back(call))
        return true;
    bool insists =
        !path_may_fall_back(call->request.form == FORM_BARE ? CALL_UNARY : call->route->call,
                            call->route->upstream->wire);
    if (insists) {
        call_fail(call, RPC_UNKNOWN, REASON_WIRE_REFUSED,
                  "provider answered %d to application/%.*s in the bare form; wire = auto would "
                  "send it framed",
                  call->reply.http_status, TEXT_ARGS(call->request.codec));
        return true;
    }
    call->up_ops->learn(call, LESSON_FORGET);
    call_fail(call, RPC_UNAVAILABLE, REASON_WIRE_REFUSED,
              "provider no longer takes the bare form and the message was not held; try again");
    return true;
}

static void
finish_message(struct call *call)
{
    struct flow *flow = &call->reply_flow;
    enum flow_error error = flow_end(flow);
    if (error == FLOW_OK && flow->held)
        error = flow_release(flow, false);
    if (error != FLOW_OK) {
        outcome_flow_error(call, error, true);
        return;
    }
    pump(call);
    send_head(call);
}

/* A provider whose context has expired answers with whatever its language makes of that (Go: 17, 2
 * or 1). The deadline is ours: its timer may merely be a fraction of a millisecond behind. */
static bool
is_echo_of_deadline(const struct call *call)
{
    return call->reply.status.code != RPC_OK && call->deadline_ns != 0 &&
           call->times.reply_read >= call->deadline_ns;
}

void
call_reply_end(struct call *call, const struct fields *trailers)
{
    if (call->phase >= CALL_ENDING)
        return;
    call->times.reply_read = call->worker->ctx.turn_ns;
    call->up_codec->read_end(call, trailers);
    if (call->reply.refusal != REFUSAL_NONE && call->upstream_form == FORM_BARE &&
        handle_refusal(call))
        return;
    learn(call);
    bool has_message = !call->reply.body_is_error && !call->reply.ends_with_head;
    if (call->reply.status.code == RPC_OK) {
        if (has_message) {
            finish_message(call);
        } else if (call->unary) {
            outcome_flow_error(call, FLOW_NONE, true);
        }
        if (call->phase >= CALL_ENDING)
            return;
    }
    if (call->reason == REASON_NONE || call->reply.status.code != RPC_OK)
        call->status = call->reply.status;
    if (is_echo_of_deadline(call))
        call_set_deadline_exceeded(call);
    reply_end(call);
}

/* --- a broken exchange --- */

static void
fail_broken(struct call *call, uint32_t error)
{
    struct text peer = call->up_ops->peer(call);
    switch (error) {
    case STREAM_LOST:
        call_fail(call, RPC_UNAVAILABLE, REASON_CONNECTION_LOST,
                  "connection to %.*s was lost before the answer", TEXT_ARGS(peer));
        return;
    case STREAM_NOT_PROCESSED:
        call_fail(call, RPC_UNAVAILABLE, REASON_CONNECTION_LOST, "%.*s did not process the call",
                  TEXT_ARGS(peer));
        return;
    case STREAM_MALFORMED:
        call_fail(call, RPC_INTERNAL, REASON_MALFORMED_REPLY, "%.*s sent a malformed reply",
                  TEXT_ARGS(peer));
        return;
    case STREAM_HEADERS_TOO_LONG:
        call_fail(call, RPC_RESOURCE_EXHAUSTED, REASON_HEADERS_TOO_LONG,
                  "the reply's header list from %.*s is too long", TEXT_ARGS(peer));
        return;
    case STREAM_UNSENDABLE:
        call_fail(call, RPC_RESOURCE_EXHAUSTED, REASON_HEADERS_TOO_LONG,
                  "the request's header list is too long to send");
        return;
    }
    int code = status_from_h2_error(error);
    /* dubbo-java 3.2 says CANCEL when its thread pool is full; others mean it. */
    bool framed_endpoint =
        call->facts.endpoint_framed || call->route->upstream->wire == UPSTREAM_WIRE_FRAMED;
    if (error == NGHTTP2_CANCEL && call->phase < CALL_REPLYING && framed_endpoint)
        code = RPC_RESOURCE_EXHAUSTED;
    call_fail(call, (enum rpc_code)code, REASON_UPSTREAM_RESET, "%.*s reset the stream: %s (%u)",
              TEXT_ARGS(peer), h2_error_name(error), error);
}

void
call_upstream_broken(struct call *call, uint32_t error)
{
    if (call->phase >= CALL_ENDING)
        return;
    if (error < STREAM_LOST)
        stats_add(&call->cells->resets_upstream, 1);
    if (error == STREAM_NOT_PROCESSED && request_replayable(call)) {
        call->up_ops->cancel(call, NGHTTP2_NO_ERROR, false);
        request_try_again(call);
        return;
    }
    fail_broken(call, error);
}

/* --- handing the outcome to the client --- */

/* The answer may be made in the very turn that the deadline is in: it must still be able to leave.
 * But a client that does not read it does not keep it for good. */
static void
grant_last_moment(struct call *call)
{
    uint64_t now = call->worker->ctx.turn_ns;
    uint64_t from = call->deadline_ns > now ? call->deadline_ns : now;
    uint64_t last = CALL_LAST_MS * NS_PER_MS;
    timers_start(&call->worker->ctx.timers, &call->deadline,
                 from > UINT64_MAX - last ? UINT64_MAX : from + last);
}

void
reply_end(struct call *call)
{
    if (call->phase >= CALL_ENDING)
        return;
    call->phase = CALL_ENDING;
    list_unlink(&call->undecided_node);
    list_unlink(&call->turn_end.node);
    if (call->up) {
        bool complete = call->times.reply_read != 0;
        call->up_ops->cancel(call, complete ? NGHTTP2_NO_ERROR : NGHTTP2_CANCEL, false);
    }
    flow_fini(&call->request_flow);
    slices_clear(&call->reply_flow.body);
    if (!call->down) {
        call_finish(call);
        return;
    }
    if (call->deadline_ns != 0)
        grant_last_moment(call);
    /* Later request bytes are dropped: whatever was not credited for them is now. */
    if (call->request_owed > 0) {
        call->down_ops->credit(call, call->request_owed);
        call->request_owed = 0;
    }
    if (!call->head_sent)
        call_filter_response(call);
    add_report(call);
    call->down_ops->send_end(call);
}

void
call_downstream_sent(struct call *call, size_t bytes)
{
    if (call->phase < CALL_ENDING)
        credit_reply_sent(call, bytes);
}

void
call_downstream_flushed(struct call *call, uint64_t now_ns, uint64_t stalled_ns)
{
    call->times.reply_written = now_ns;
    call->times.reply_stalled += stalled_ns;
    call_finish(call);
}
