/*
 * rate_limit: at most so many calls in a window, over all workers; more end RESOURCE_EXHAUSTED
 * before the provider hears of them.
 *
 *     [filter limit]
 *     type = rate_limit
 *     rate = 1000/1s
 *
 * A token bucket as one atomic word: the time at which the bucket would be empty again (virtual
 * scheduling). The only cache line that workers share, and only on routes that use this filter.
 */
#include "filters/filter_types.h"

#include <stdatomic.h>

#include "proxy/base/clock.h"
#include "proxy/call/call.h"

static const struct filter_key KEYS[] = {
    {"rate", FILTER_KEY_RATE, NULL,
     "calls per window, such as 1000/1s; bursts up to the same number", false},
    {NULL, FILTER_KEY_TEXT, NULL, NULL, false},
};

struct settings {
    uint64_t window_ns;
    uint64_t interval_ns;     /* between calls at the full rate */
    _Atomic uint64_t full_ns; /* when the calls let through so far will have been paid off */
};

static void *
compile(struct arena *arena, const struct filter_value *values, unsigned count,
        struct strbuf *error)
{
    if (count != 1 || values[0].number == 0 || values[0].window_ns < values[0].number) {
        strbuf_add_str(error, "rate must be at least 1 per window and at most one per nanosecond");
        return NULL;
    }
    struct settings *settings = arena_alloc(arena, sizeof(*settings));
    settings->window_ns = values[0].window_ns;
    settings->interval_ns = values[0].window_ns / values[0].number;
    atomic_init(&settings->full_ns, 0);
    return settings;
}

static bool
take_token(struct settings *settings, uint64_t now_ns)
{
    uint64_t full = atomic_load_explicit(&settings->full_ns, memory_order_relaxed);
    for (;;) {
        uint64_t from = full > now_ns ? full : now_ns;
        uint64_t next = from + settings->interval_ns;
        if (next > now_ns + settings->window_ns)
            return false;
        if (atomic_compare_exchange_weak_explicit(&settings->full_ns, &full, next,
                                                  memory_order_relaxed, memory_order_relaxed))
            return true;
    }
}

static bool
on_request(struct call *call, void *settings, struct rpc_status *status)
{
    if (take_token(settings, call->times.head_read))
        return true;
    call_set_error(call, RPC_RESOURCE_EXHAUSTED, REASON_FILTER, "rate_limit");
    *status = call->status;
    return false;
}

const struct filter_type rate_limit_filter = {
    .name = "rate_limit",
    .help = "at most so many calls in a window, over all workers",
    .keys = KEYS,
    .compile = compile,
    .request = on_request,
};
