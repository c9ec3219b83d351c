/*
 * One endpoint of a cluster on one worker: an address, its connections by transport, what was
 * learnt about it, its state in the stats.
 *
 * An endpoint that is no longer named (leaving) goes on for the calls that picked it, dials for
 * them included, and closes its connections when the last of them is gone.
 */
#ifndef TRIBUTARY_UPSTREAM_ENDPOINT_H
#define TRIBUTARY_UPSTREAM_ENDPOINT_H

#include "proxy/call/codec.h"
#include "upstream/facts.h"
#include "upstream/pool.h"

struct cluster;

struct endpoint {
    struct list node; /* cluster->leaving once it is no longer named */
    struct cluster *cluster;
    struct target target;
    struct pool h2, http1;
    struct facts *facts; /* not owned */
    uint32_t active;     /* calls that picked this endpoint and have not left it */
    bool leaving;
};

/* Copies *target, and the texts in it that it owns. */
struct endpoint *endpoint_new(struct cluster *cluster, const struct target *target);
void endpoint_free(struct endpoint *endpoint);       /* only when endpoint_idle */
bool endpoint_idle(const struct endpoint *endpoint); /* no call and no connection */
/* The pool for a call in this form. */
struct pool *endpoint_pool(struct endpoint *endpoint, enum body_form form);
bool endpoint_usable(const struct endpoint *endpoint);       /* a call may get a connection */
bool endpoint_healthy(const struct endpoint *endpoint);      /* and the last thing heard was good */
const char *endpoint_error(const struct endpoint *endpoint); /* of the last failure; may be empty */
void endpoint_warm(struct endpoint *endpoint); /* a first connection, for what most calls take */
void endpoint_set_leaving(struct endpoint *endpoint, bool leaving);
void endpoint_drain(struct endpoint *endpoint); /* connections close as they empty */
void endpoint_close(struct endpoint *endpoint); /* now, saying goodbye; calls that wait fail */
void endpoint_abort(struct endpoint *endpoint); /* what is still open */
void endpoint_check(struct endpoint *endpoint, uint64_t now_ns); /* once a second */
void endpoint_show(struct endpoint *endpoint);                   /* into the stats cells */

#endif
