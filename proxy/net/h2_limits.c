/*
 * What one peer may cost us: limits per connection, and what happens over them (GOAWAY with
 * ENHANCE_YOUR_CALM).
 *
 * nghttp2 keeps its own for PING and SETTINGS (what waits to be acknowledged), CONTINUATION and the
 * size of one field; its limiter of resets ends the connection with INTERNAL_ERROR and is set out
 * of the way (h2_session.c).
 */
#include "proxy/net/h2_private.h"

static const char *const error_names[] = {
    "NO_ERROR",
    "PROTOCOL_ERROR",
    "INTERNAL_ERROR",
    "FLOW_CONTROL_ERROR",
    "SETTINGS_TIMEOUT",
    "STREAM_CLOSED",
    "FRAME_SIZE_ERROR",
    "REFUSED_STREAM",
    "CANCEL",
    "COMPRESSION_ERROR",
    "CONNECT_ERROR",
    "ENHANCE_YOUR_CALM",
    "INADEQUATE_SECURITY",
    "HTTP_1_1_REQUIRED",
};

static const char *const stream_error_names[] = {
    "connection lost",  "not processed",      "malformed message",
    "headers too long", "headers unsendable",
};

const char *
h2_error_name(uint32_t h2_error)
{
    if (h2_error < sizeof error_names / sizeof *error_names)
        return error_names[h2_error];
    if (h2_error >= STREAM_LOST && h2_error <= STREAM_UNSENDABLE)
        return stream_error_names[h2_error - STREAM_LOST];
    return "unknown error";
}

bool
h2_limiter_allows(struct h2_limiter *limiter, uint32_t limit, uint64_t window_ns, uint64_t now_ns)
{
    if (limit == 0)
        return true;
    if (limiter->count == 0 || now_ns - limiter->began_ns >= window_ns) {
        limiter->began_ns = now_ns;
        limiter->count = 0;
    }
    if (limiter->count >= limit)
        return false;
    limiter->count++;
    return true;
}

void
h2_limits_fault(struct h2 *h2)
{
    const struct h2_options *options = &h2->options;
    if (!h2->server || h2_limiter_allows(&h2->private->resets, options->reset_limit,
                                         options->reset_window_ns, h2->ctx->turn_ns))
        return;
    h2_terminate(h2, NGHTTP2_ENHANCE_YOUR_CALM, UV_ECONNABORTED, "too many resets");
}

void
h2_limits_data(struct h2 *h2, bool empty, bool end)
{
    if (!empty || end)
        h2->private->empty_data = 0;
    else if (++h2->private->empty_data > H2_MAX_EMPTY_DATA)
        h2_terminate(h2, NGHTTP2_ENHANCE_YOUR_CALM, UV_ECONNABORTED, "too many empty DATA frames");
}

bool
h2_limits_may_reset(struct h2 *h2)
{
    const struct h2_options *options = &h2->options;
    return h2->server || h2_limiter_allows(&h2->private->rsts, options->rst_budget,
                                           options->rst_window_ns, h2->ctx->turn_ns);
}
