/*
 * The upstream side of one worker through start, reload, drain and stop. Owns the clusters; a
 * cluster that the configuration no longer names goes on for the calls that use it and is freed
 * when nothing is left of it.
 */
#include "upstream/upstreams.h"

#include "proxy/base/clock.h"
#include "proxy/call/module.h"

#define NAMES_NS NS_PER_S /* how long a start waits for host names */

struct upstreams {
    struct worker *worker;
    struct list clusters; /* struct cluster: those of the newest snapshot */
    struct list leaving;
    struct cluster **by_index; /* of the newest snapshot's upstreams */
    struct timer tick;         /* once a second */
    bool closing;
};

static struct cluster *
find_in(struct list *clusters, struct text name)
{
    list_for_each (node, clusters) {
        struct cluster *cluster = list_entry(node, struct cluster, node);
        if (text_eq(text_of(cluster->name), name))
            return cluster;
    }
    return NULL;
}

struct cluster *
upstreams_find(struct worker *worker, struct snapshot *snapshot, const struct upstream_conf *conf)
{
    struct upstreams *self = worker->upstreams;
    if (snapshot == worker->snapshot)
        return self->by_index[conf->index];
    struct cluster *cluster = find_in(&self->clusters, conf->name);
    if (!cluster)
        cluster = find_in(&self->leaving, conf->name);
    if (!cluster) { /* the call began before the reload that took it away, and nobody else did */
        cluster = cluster_new(worker, snapshot, conf);
        cluster_set_gone(cluster);
        list_push_back(&self->leaving, &cluster->node);
    }
    return cluster;
}

static void
sweep(struct upstreams *self)
{
    list_for_each_safe (node, &self->leaving) {
        struct cluster *cluster = list_entry(node, struct cluster, node);
        if (cluster_idle(cluster))
            cluster_free(cluster);
    }
}

static void
on_tick(struct timer *timer)
{
    struct upstreams *self = container_of(timer, struct upstreams, tick);
    uint64_t now = clock_now_ns();
    list_for_each_safe (node, &self->clusters)
        cluster_check(list_entry(node, struct cluster, node), now);
    list_for_each_safe (other, &self->leaving)
        cluster_check(list_entry(other, struct cluster, node), now);
    sweep(self);
    if (!self->closing)
        timers_start(&self->worker->ctx.timers, timer, now + NS_PER_S);
}

static void
apply(struct worker *worker, struct snapshot *old)
{
    (void)old;
    struct upstreams *self = worker->upstreams;
    const struct snapshot *snapshot = worker->snapshot;
    struct list kept;
    list_init(&kept);
    mem_free(self->by_index);
    self->by_index = mem_zalloc((snapshot->upstream_count + 1) * sizeof(*self->by_index));
    for (unsigned i = 0; i < snapshot->upstream_count; i++) {
        const struct upstream_conf *conf = &snapshot->upstreams[i];
        struct cluster *cluster = find_in(&self->clusters, conf->name);
        if (cluster)
            cluster_update(cluster, worker->snapshot, conf);
        else
            cluster = cluster_new(worker, worker->snapshot, conf);
        self->by_index[conf->index] = cluster;
        list_unlink(&cluster->node);
        list_push_back(&kept, &cluster->node);
    }
    list_for_each (node, &self->clusters)
        cluster_set_gone(list_entry(node, struct cluster, node));
    list_splice(&self->leaving, &self->clusters);
    list_splice(&self->clusters, &kept);
    sweep(self);
}

static int
start(struct worker *worker)
{
    struct upstreams *self = mem_new(struct upstreams);
    worker->upstreams = self;
    self->worker = worker;
    list_init(&self->clusters);
    list_init(&self->leaving);
    self->tick.on_due = on_tick;
    apply(worker, NULL);
    uint64_t until_ns = clock_now_ns() + NAMES_NS;
    list_for_each (node, &self->clusters)
        cluster_await(list_entry(node, struct cluster, node), until_ns);
    timers_start(&worker->ctx.timers, &self->tick, clock_now_ns() + NS_PER_S);
    return 0;
}

static void
drain(struct worker *worker)
{
    (void)worker; /* calls under way still need it: connections close at stop */
}

static void
stop(struct worker *worker)
{
    struct upstreams *self = worker->upstreams;
    self->closing = true;
    timers_stop(&worker->ctx.timers, &self->tick);
    list_splice(&self->leaving, &self->clusters);
    list_for_each (node, &self->leaving)
        cluster_close(list_entry(node, struct cluster, node));
    ctx_flush(&worker->ctx); /* goodbyes leave, and their connections with them */
    list_for_each (other, &self->leaving)
        cluster_abort(list_entry(other, struct cluster, node));
}

static void
free_all(struct worker *worker)
{
    struct upstreams *self = worker->upstreams;
    if (!self)
        return;
    list_for_each_safe (node, &self->leaving)
        cluster_free(list_entry(node, struct cluster, node));
    mem_free(self->by_index);
    mem_free(self);
    worker->upstreams = NULL;
}

static bool
idle(const struct worker *worker)
{
    (void)worker;
    return true;
}

static void
report_cluster(struct cluster *cluster, struct text path, struct strbuf *out)
{
    for (uint32_t i = 0; i < cluster->endpoint_count; i++) {
        const struct endpoint *endpoint = cluster->endpoints[i];
        strbuf_addf(out, "upstream %s ", cluster->name);
        facts_report(endpoint->facts, endpoint->target.name, path, out);
    }
}

static void
report(struct worker *worker, struct text path, struct strbuf *out)
{
    list_for_each (node, &worker->upstreams->clusters)
        report_cluster(list_entry(node, struct cluster, node), path, out);
}

const struct module upstream_module = {
    .name = "upstream",
    .start = start,
    .apply = apply,
    .drain = drain,
    .stop = stop,
    .free = free_all,
    .idle = idle,
    .report = report,
};
