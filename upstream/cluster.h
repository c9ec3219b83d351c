/*
 * One [upstream] section on one worker: its endpoints, and the choice between them.
 *
 * Matched by name across reloads: endpoints whose address stays keep their connections, facts and
 * health.
 */
#ifndef TRIBUTARY_UPSTREAM_CLUSTER_H
#define TRIBUTARY_UPSTREAM_CLUSTER_H

#include "upstream/endpoint.h"

struct cluster {
    struct list node; /* upstreams->clusters or leaving */
    struct worker *worker;
    struct snapshot *snapshot;        /* a reference: holds conf */
    const struct upstream_conf *conf; /* of the newest snapshot that names it */
    char *name;
    struct list endpoints, leaving; /* struct endpoint */
    uint32_t endpoint_count;
    uint32_t waiting;      /* calls without a stream, over all endpoints: bounded by max_pending */
    uint32_t next;         /* round_robin */
    struct deferred later; /* serve waiting calls and sweep, at the end of the turn */
    bool closing;
};

struct cluster *cluster_new(struct worker *worker, const struct upstream_conf *conf);
void cluster_update(struct cluster *cluster, const struct upstream_conf *conf);
/* The addresses it has now (config or a resolver): those that stay are kept, others drain. names[i]
 * is shown in stats. */
void cluster_set_endpoints(struct cluster *cluster, const struct text *names,
                           const struct address *addresses, unsigned count);
/* An endpoint by lb_policy; not `avoid` (may be NULL) where there is another. NULL: none is usable
 * now. */
struct endpoint *cluster_pick(struct cluster *cluster, const struct endpoint *avoid);
const char *cluster_last_error(
    const struct cluster *cluster); /* why none is usable; constant until the next event */
void cluster_serve_later(struct cluster *cluster);
void cluster_sweep_later(struct cluster *cluster);
void cluster_check(struct cluster *cluster, uint64_t now_ns); /* once a second */
void cluster_drain(struct cluster *cluster);
void cluster_close(struct cluster *cluster);
bool cluster_idle(const struct cluster *cluster); /* nothing open and nobody waiting */
void cluster_free(struct cluster *cluster);

#endif
