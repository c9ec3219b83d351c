/*
 * One address as it is dialled: what an endpoint, its pools and their connections share, and the
 * way upwards for what they notice. Embedded in struct endpoint; the cluster fills it.
 */
#ifndef TRIBUTARY_UPSTREAM_TARGET_H
#define TRIBUTARY_UPSTREAM_TARGET_H

#include "proxy/call/worker.h"
#include "proxy/net/address.h"

struct target {
    struct worker *worker;
    const struct upstream_conf *conf; /* of the newest snapshot; the cluster holds it */
    const char *upstream;             /* its name, the cluster's */
    struct text name;                 /* "127.0.0.1:20000", for messages and stats; owned */
    struct text host; /* the host as it was configured, when a name: whose certificate it must be;
                         owned, may be empty */
    struct address address;
    struct endpoint_cells *cells;
    uint32_t *waiting; /* the cluster's count of calls without a stream */
    /* A connection came, went or failed. Nothing is freed before the turn's end. */
    void (*on_change)(struct target *target);
    /* A dial failed, a connection was lost or sent GOAWAY: the address may be out of date. */
    void (*on_trouble)(struct target *target);
};

#endif
