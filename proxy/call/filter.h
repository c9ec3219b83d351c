/*
 * Filters: what a route may run on each call besides translating. One type per file in filters/,
 * named in INI sections:
 *
 *     [filter limit]
 *     type = rate_limit
 *     rate = 100/1s
 *
 * A filter sees heads, never bodies; it may add or remove metadata, or end the call with a status.
 */
#ifndef TRIBUTARY_CALL_FILTER_H
#define TRIBUTARY_CALL_FILTER_H

#include "proxy/base/fields.h"
#include "proxy/base/strbuf.h"
#include "proxy/wire/status.h"

struct call;

enum filter_key_kind {
    FILTER_KEY_TEXT,
    FILTER_KEY_NUMBER,
    FILTER_KEY_DURATION,
    FILTER_KEY_SIZE,
    FILTER_KEY_RATE,
    FILTER_KEY_BOOL
};

struct filter_key {
    const char *name; /* NULL ends the list */
    enum filter_key_kind kind;
    const char *fallback; /* default as text; NULL: the key is required */
    const char *help;     /* one line for the key table */
    bool repeats;
};

/* A parsed value handed to compile(), in the order of the type's keys; repeated keys give several.
 */
struct filter_value {
    const struct filter_key *key;
    struct text text;   /* as written, trimmed; lives as long as the snapshot */
    uint64_t number;    /* NUMBER, DURATION (ns), SIZE (bytes), RATE (count), BOOL (0, 1) */
    uint64_t window_ns; /* RATE */
};

struct filter_type {
    const char *name;
    const char *help;
    const struct filter_key *keys;
    /* Build settings from values (memory from the arena, read-only afterwards, shared by all
     * workers). NULL and a reason in error when they make no sense. */
    void *(*compile)(struct arena *arena, const struct filter_value *values, unsigned count,
                     struct strbuf *error);
    /* The request's head is complete and routed; metadata in call->request.metadata may change.
     * False: end the call with *status. */
    bool (*request)(struct call *call, void *settings, struct rpc_status *status);
    /* The reply's head is about to leave; call->reply.metadata may change. Also for errors, the
     * proxy's own included. NULL: not interested. */
    void (*response)(struct call *call, void *settings);
    /* The call has ended (call->status is final). NULL: not interested. Like response, only for
     * calls that request() has let pass. */
    void (*done)(struct call *call, void *settings);
};

#endif
