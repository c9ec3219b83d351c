/*
 * One [upstream] section on one worker: its endpoints, and the choice between them.
 *
 * Matched by name across reloads: endpoints whose address stays keep their connections, facts and
 * health. A cluster that is no longer named (gone) keeps its endpoints for the calls that began
 * before.
 */
#ifndef TRIBUTARY_UPSTREAM_CLUSTER_H
#define TRIBUTARY_UPSTREAM_CLUSTER_H

#include "upstream/endpoint.h"
#include "upstream/resolver.h"

struct cluster {
    struct list node; /* upstreams->clusters or leaving */
    struct worker *worker;
    struct snapshot *snapshot;        /* a reference: holds conf */
    const struct upstream_conf *conf; /* of the newest snapshot that names it */
    char *name;
    struct resolver *resolver;   /* NULL once it is gone or closed */
    struct endpoint **endpoints; /* an array: picking is by index */
    uint32_t endpoint_count;
    struct list leaving;   /* struct endpoint: no longer named, still in use */
    uint32_t waiting;      /* calls without a stream, over all endpoints: bounded by max_pending */
    uint32_t next;         /* round_robin */
    struct deferred sweep; /* at the end of the turn: lets go of what is leaving and unused */
    bool gone;
};

/* conf belongs to `snapshot`, of which the cluster takes a reference. */
struct cluster *
cluster_new(struct worker *worker, struct snapshot *snapshot, const struct upstream_conf *conf);
void cluster_update(struct cluster *cluster, struct snapshot *snapshot,
                    const struct upstream_conf *conf);
/* An endpoint by lb_policy; not `avoid` (may be NULL) where there is another, and one that failed
 * last only where there is no better one. NULL: none is usable now. */
struct endpoint *cluster_pick(struct cluster *cluster, const struct endpoint *avoid);
/* Why none is usable; constant until the next event. */
const char *cluster_last_error(const struct cluster *cluster);
void cluster_leave(struct cluster *cluster, struct endpoint *endpoint); /* a call is done with it */
/* Blocks until host names were looked up once, or it is that late: before the loop runs. */
void cluster_await(struct cluster *cluster, uint64_t until_ns);
void cluster_check(struct cluster *cluster, uint64_t now_ns); /* once a second */
void cluster_set_gone(struct cluster *cluster);
void cluster_close(struct cluster *cluster); /* connections say goodbye and close */
void cluster_abort(struct cluster *cluster); /* what is still open closes now */
bool cluster_idle(struct cluster *cluster);  /* gone, and nothing of it is left in use */
void cluster_free(struct cluster *cluster);  /* only when nothing of it is open */

#endif
