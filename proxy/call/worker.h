/* One worker as the call path sees it: a thread, its loop's context, the current snapshot, its
 * calls. Created by proxy/workers.c. */
#ifndef TRIBUTARY_CALL_WORKER_H
#define TRIBUTARY_CALL_WORKER_H

#include "proxy/call/snapshot.h"
#include "proxy/net/ctx.h"

struct downstream;
struct upstreams;
struct server;

struct worker {
    struct ctx ctx;
    unsigned index;
    struct snapshot *snapshot;     /* a reference; swapped between turns */
    struct stats *stats;           /* the registry, shared */
    struct downstream *downstream; /* downstream/module.c's state; owned by it */
    struct upstreams *upstreams;   /* upstream/module.c's state; owned by it */
    struct list calls;             /* struct call.node: running calls */
    struct list undecided; /* struct call.undecided_node, oldest first: call = auto, HEADERS alone,
                              waits 10 ms */
    struct timer undecided_timer;
    struct list
        starved; /* struct call.starved_node: passing calls whose credit waits for the budget */
    struct timer starved_timer;
    struct stats_entry *no_route; /* cells of calls that no route takes */
    uint32_t call_count;
    bool draining;
    struct server *server; /* opaque here: for messages to the main thread */
};

#endif
