/* The upstream side of one worker: its clusters by name. */
#ifndef TRIBUTARY_UPSTREAM_UPSTREAMS_H
#define TRIBUTARY_UPSTREAM_UPSTREAMS_H

#include "upstream/cluster.h"

/* The cluster for an upstream of `snapshot` (the call's own, which may be older than the worker's).
 */
struct cluster *
upstreams_find(struct worker *worker, struct snapshot *snapshot, const struct upstream_conf *conf);

#endif
