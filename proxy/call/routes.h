/*
 * Route matching: exact path, then "/Service/(star)", "/package.(star)" (longest first), then "*".
 * Among equals the one with more conditions, then the first in the file. Hash look-ups: the cost
 * does not grow with the number of routes.
 */
#ifndef TRIBUTARY_CALL_ROUTES_H
#define TRIBUTARY_CALL_ROUTES_H

#include "proxy/call/snapshot.h"

/* Build snapshot->table from snapshot->routes, in the snapshot's arena. */
void routes_build(struct snapshot *snapshot);

struct route_query {
    struct text path;      /* ":path", a query string is ignored */
    struct text authority; /* may be empty; the port is ignored where the condition has none */
    struct text listener;
    const struct fields
        *fields; /* request fields for match_header; NULL in --explain without headers */
};

/* NULL: no route takes it. */
const struct route *routes_find(const struct snapshot *snapshot, const struct route_query *query);

#endif
