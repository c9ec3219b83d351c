/*
 * How a call goes wrong: the statuses that the proxy itself makes (design.md, "Errors that the
 * proxy itself makes").
 *
 * Each has a code, a message that names the route and what failed, a google.rpc.ErrorInfo detail
 * and a counter. In front of a Connect provider there is no detail: what Connect's and gRPC's own
 * servers answer to an expired deadline or a malformed request has none, and Connect's conformance
 * suite compares the list of details whole.
 */
#include "proxy/call/call.h"
#include "proxy/call/call_private.h"

#include "proxy/wire/status_proto.h"

#include <stdio.h>

static const struct text DOMAIN = {"tributary", 9};

static void
attach_error_info(struct call *call)
{
    struct text pairs[2];
    unsigned count = 0;
    if (call->route && call->route->upstream->dialect == DIALECT_CONNECT)
        return;
    if (call->route) {
        pairs[0] = TEXT("route");
        pairs[1] = call->route->name;
        count = 1;
    }
    struct rpc_detail *detail = arena_alloc(&call->arena, sizeof(*detail));
    *detail = status_proto_error_info(&call->arena, text_of(stats_reason_name(call->reason)),
                                      DOMAIN, pairs, count);
    call->status.details = detail;
    call->status.detail_count = 1;
}

void
outcome_set_error(struct call *call, enum rpc_code code, enum stats_reason reason,
                  const char *format, va_list args)
{
    char text[512];
    int len = vsnprintf(text, sizeof(text), format, args);
    size_t kept = len < 0 ? 0 : (size_t)len < sizeof(text) ? (size_t)len : sizeof(text) - 1;
    memset(&call->status, 0, sizeof(call->status));
    call->status.code = code;
    if (call->route)
        call->status.message = arena_printf(&call->arena, "tributary: route %.*s: %.*s",
                                            TEXT_ARGS(call->route->name), (int)kept, text);
    else
        call->status.message = arena_printf(&call->arena, "tributary: %.*s", (int)kept, text);
    call->reason = reason;
    call->reply.provider_error = TEXT_NONE; /* what it said is no longer what happened */
    attach_error_info(call);
}

void
call_set_error(struct call *call, enum rpc_code code, enum stats_reason reason, const char *format,
               ...)
{
    va_list args;
    va_start(args, format);
    outcome_set_error(call, code, reason, format, args);
    va_end(args);
}

void
call_fail(struct call *call, enum rpc_code code, enum stats_reason reason, const char *format, ...)
{
    if (call->phase >= CALL_ENDING)
        return;
    va_list args;
    va_start(args, format);
    outcome_set_error(call, code, reason, format, args);
    va_end(args);
    reply_end(call);
}

/* One row per flow error: what the client is told. */
struct flow_answer {
    enum rpc_code code;
    enum stats_reason reason;
    const char *text;
};

static const struct flow_answer REQUEST_ANSWERS[] = {
    [FLOW_TOO_LONG] = {RPC_RESOURCE_EXHAUSTED, REASON_MESSAGE_TOO_LONG,
                       "request message is over max_message"},
    [FLOW_NO_BUDGET] = {RPC_RESOURCE_EXHAUSTED, REASON_NO_BUDGET, "buffer_budget is used up"},
    [FLOW_BAD_FLAG] = {RPC_INTERNAL, REASON_MALFORMED_REQUEST,
                       "request has a compressed-flag byte that is neither 0 nor 1"},
    [FLOW_NO_ENCODING] = {RPC_INTERNAL, REASON_MALFORMED_REQUEST,
                          "request has the compressed flag set without a grpc-encoding"},
    [FLOW_UNKNOWN_ENCODING] = {RPC_UNIMPLEMENTED, REASON_ENCODING,
                               "request encoding is not supported; supported: identity, gzip"},
    [FLOW_SEVERAL] = {RPC_UNIMPLEMENTED, REASON_CARDINALITY, "several messages on a unary call"},
    [FLOW_CUT] = {RPC_INTERNAL, REASON_MALFORMED_REQUEST, "request ended inside a message"},
    [FLOW_NONE] = {RPC_UNIMPLEMENTED, REASON_CARDINALITY, "no message on a unary call"},
    [FLOW_BAD_GZIP] = {RPC_INTERNAL, REASON_MALFORMED_REQUEST,
                       "request message does not decompress"},
};

static const struct flow_answer REPLY_ANSWERS[] = {
    [FLOW_TOO_LONG] = {RPC_RESOURCE_EXHAUSTED, REASON_MESSAGE_TOO_LONG,
                       "reply message is over max_message"},
    [FLOW_NO_BUDGET] = {RPC_RESOURCE_EXHAUSTED, REASON_NO_BUDGET, "buffer_budget is used up"},
    [FLOW_BAD_FLAG] = {RPC_INTERNAL, REASON_MALFORMED_REPLY,
                       "reply has a compressed-flag byte that is neither 0 nor 1"},
    [FLOW_NO_ENCODING] = {RPC_INTERNAL, REASON_MALFORMED_REPLY,
                          "reply has the compressed flag set without an encoding"},
    [FLOW_UNKNOWN_ENCODING] = {RPC_INTERNAL, REASON_ENCODING,
                               "reply encoding is neither asked for nor known"},
    [FLOW_SEVERAL] = {RPC_UNIMPLEMENTED, REASON_CARDINALITY,
                      "several messages in the reply to a unary call"},
    [FLOW_CUT] = {RPC_INTERNAL, REASON_MALFORMED_REPLY, "reply ended inside a message"},
    [FLOW_NONE] = {RPC_INTERNAL, REASON_MALFORMED_REPLY,
                   "status OK without a message in the reply to a unary call"},
    [FLOW_BAD_GZIP] = {RPC_INTERNAL, REASON_MALFORMED_REPLY, "reply message does not decompress"},
};

void
outcome_flow_error(struct call *call, enum flow_error error, bool of_reply)
{
    const struct flow_answer *answer = of_reply ? &REPLY_ANSWERS[error] : &REQUEST_ANSWERS[error];
    if (error == FLOW_TOO_LONG)
        call_fail(call, answer->code, answer->reason, "%s (%llu bytes)", answer->text,
                  (unsigned long long)call->snapshot->max_message);
    else
        call_fail(call, answer->code, answer->reason, "%s", answer->text);
}
