/*
 * One upstream on one worker. Owns its endpoints; knows how to choose one.
 *
 * Choosing: two passes. First among the healthy ones, so that a dead endpoint costs nobody a dial;
 * only when there is none also among those that failed last, whose backoff is over. Their pools
 * dial by themselves, which is how they come back into the first pass.
 */
#include "upstream/cluster.h"

/* --- letting go --- */

/* Nobody uses it any more: connections close, and when they have, it goes. */
static void
let_go(struct endpoint *endpoint)
{
    if (endpoint->active == 0)
        endpoint_drain(endpoint);
}

static void
sweep(struct cluster *cluster)
{
    list_for_each_safe (node, &cluster->leaving) {
        struct endpoint *endpoint = list_entry(node, struct endpoint, node);
        let_go(endpoint);
        if (endpoint_idle(endpoint))
            endpoint_free(endpoint);
    }
    if (cluster->gone)
        for (uint32_t i = 0; i < cluster->endpoint_count; i++)
            let_go(cluster->endpoints[i]);
}

static void
on_sweep(struct deferred *deferred)
{
    sweep(container_of(deferred, struct cluster, sweep));
}

void
cluster_leave(struct cluster *cluster, struct endpoint *endpoint)
{
    endpoint->active--;
    if (endpoint->leaving && endpoint->active == 0)
        ctx_defer(&cluster->worker->ctx, &cluster->sweep);
}

static struct endpoint *
endpoint_of(struct target *target)
{
    return container_of(target, struct endpoint, target);
}

static void
on_change(struct target *target)
{
    struct endpoint *endpoint = endpoint_of(target);
    endpoint_show(endpoint);
    if (endpoint->leaving)
        ctx_defer(&target->worker->ctx, &endpoint->cluster->sweep);
}

static void
on_trouble(struct target *target)
{
    struct cluster *cluster = endpoint_of(target)->cluster;
    if (cluster->resolver)
        resolver_look_again(cluster->resolver);
}

/* --- endpoints --- */

static bool
same(const struct endpoint *endpoint, const struct resolved *resolved)
{
    const struct target *target = &endpoint->target;
    const struct address *a = &target->address, *b = &resolved->address;
    return text_eq(target->name, resolved->name) && text_eq(target->host, resolved->host) &&
           a->len == b->len && memcmp(&a->storage, &b->storage, a->len) == 0;
}

/* Takes it out of where it is. */
static struct endpoint *
take_known(struct cluster *cluster, const struct resolved *resolved)
{
    for (uint32_t i = 0; i < cluster->endpoint_count; i++) {
        struct endpoint *endpoint = cluster->endpoints[i];
        if (!endpoint || !same(endpoint, resolved))
            continue;
        cluster->endpoints[i] = NULL;
        return endpoint;
    }
    list_for_each (node, &cluster->leaving) {
        struct endpoint *endpoint = list_entry(node, struct endpoint, node);
        if (!same(endpoint, resolved))
            continue;
        list_unlink(node);
        endpoint_set_leaving(endpoint, false);
        return endpoint;
    }
    return NULL;
}

static struct endpoint *
make(struct cluster *cluster, const struct resolved *resolved)
{
    struct target target = {
        .worker = cluster->worker,
        .conf = cluster->conf,
        .upstream = cluster->name,
        .name = resolved->name,
        .host = resolved->host,
        .address = resolved->address,
        .waiting = &cluster->waiting,
        .on_change = on_change,
        .on_trouble = on_trouble,
    };
    return endpoint_new(cluster, &target);
}

static void
set_leaving(struct cluster *cluster, struct endpoint *endpoint)
{
    list_push_back(&cluster->leaving, &endpoint->node);
    endpoint_set_leaving(endpoint, true);
}

/* The addresses there are now: those that stay are kept, others leave, new ones are dialled, so
 * that they are known to work. */
static void
on_endpoints(void *owner, const struct resolved *list, unsigned count)
{
    struct cluster *cluster = owner;
    struct endpoint **old = cluster->endpoints;
    struct endpoint **now = mem_alloc((count + 1) * sizeof(struct endpoint *));
    for (unsigned i = 0; i < count; i++)
        now[i] = take_known(cluster, &list[i]);
    for (uint32_t i = 0; i < cluster->endpoint_count; i++)
        if (old[i])
            set_leaving(cluster, old[i]);
    for (unsigned i = 0; i < count; i++) {
        if (now[i])
            continue;
        now[i] = make(cluster, &list[i]);
        endpoint_warm(now[i]);
    }
    cluster->endpoints = now;
    cluster->endpoint_count = count;
    mem_free(old);
    ctx_defer(&cluster->worker->ctx, &cluster->sweep);
}

/* --- choosing --- */

/* The first good one from `index` on, in a ring; not `avoid`. */
static struct endpoint *
good_from(const struct cluster *cluster, uint32_t index, const struct endpoint *avoid, bool healthy)
{
    for (uint32_t i = 0; i < cluster->endpoint_count; i++) {
        struct endpoint *endpoint = cluster->endpoints[index];
        bool good = healthy ? endpoint_healthy(endpoint) : endpoint_usable(endpoint);
        if (good && endpoint != avoid)
            return endpoint;
        if (++index == cluster->endpoint_count)
            index = 0;
    }
    return NULL;
}

static struct endpoint *
pick_least(struct cluster *cluster, const struct endpoint *avoid, bool healthy)
{
    struct rng *rng = &cluster->worker->ctx.rng;
    uint32_t first = rng_below(rng, cluster->endpoint_count);
    uint32_t second = rng_below(rng, cluster->endpoint_count - 1);
    second += second >= first; /* two different ones */
    struct endpoint *a = good_from(cluster, first, avoid, healthy);
    struct endpoint *b = a ? good_from(cluster, second, avoid, healthy) : NULL;
    return b && b->active < a->active ? b : a;
}

static struct endpoint *
pick(struct cluster *cluster, const struct endpoint *avoid, bool healthy)
{
    if (cluster->conf->lb_policy == LB_LEAST_REQUEST)
        return pick_least(cluster, avoid, healthy);
    return good_from(cluster, cluster->next++ % cluster->endpoint_count, avoid, healthy);
}

struct endpoint *
cluster_pick(struct cluster *cluster, const struct endpoint *avoid)
{
    if (cluster->endpoint_count == 0)
        return NULL;
    if (cluster->endpoint_count == 1)
        return endpoint_usable(cluster->endpoints[0]) ? cluster->endpoints[0] : NULL;
    struct endpoint *endpoint = pick(cluster, avoid, true);
    if (!endpoint && avoid && endpoint_healthy(avoid))
        endpoint = good_from(cluster, 0, NULL, true);
    return endpoint ? endpoint : pick(cluster, NULL, false);
}

const char *
cluster_last_error(const struct cluster *cluster)
{
    for (uint32_t i = 0; i < cluster->endpoint_count; i++) {
        const char *error = endpoint_error(cluster->endpoints[i]);
        if (error[0])
            return error;
    }
    const char *error = cluster->resolver ? resolver_error(cluster->resolver) : "";
    return error[0] ? error : "it has no endpoints";
}

/* --- life --- */

/* Whether connections made by the one are not what the other asks for. */
static bool
differs(const struct upstream_conf *a, const struct upstream_conf *b)
{
    return a->tls_on != b->tls_on || !text_eq(a->tls_ca, b->tls_ca) ||
           !text_eq(a->tls_cert, b->tls_cert) || !text_eq(a->tls_key, b->tls_key) ||
           !text_eq(a->tls_server_name, b->tls_server_name);
}

static void
set_conf(struct cluster *cluster, const struct upstream_conf *conf)
{
    cluster->conf = conf;
    for (uint32_t i = 0; i < cluster->endpoint_count; i++)
        cluster->endpoints[i]->target.conf = conf;
    list_for_each (node, &cluster->leaving)
        list_entry(node, struct endpoint, node)->target.conf = conf;
}

void
cluster_update(struct cluster *cluster, struct snapshot *snapshot, const struct upstream_conf *conf)
{
    struct snapshot *old_snapshot = cluster->snapshot;
    const struct upstream_conf *old = cluster->conf;
    cluster->snapshot = snapshot_ref(snapshot);
    set_conf(cluster, conf);
    if (old && differs(old, conf))
        for (uint32_t i = 0; i < cluster->endpoint_count; i++)
            endpoint_drain(cluster->endpoints[i]);
    resolver_update(cluster->resolver, conf);
    if (old_snapshot)
        snapshot_unref(old_snapshot);
}

struct cluster *
cluster_new(struct worker *worker, struct snapshot *snapshot, const struct upstream_conf *conf)
{
    struct cluster *cluster = mem_new(struct cluster);
    cluster->worker = worker;
    cluster->name = text_dup(conf->name);
    list_init(&cluster->node);
    list_init(&cluster->leaving);
    list_init(&cluster->sweep.node);
    cluster->sweep.run = on_sweep;
    cluster->resolver = resolver_open(worker, cluster->name, on_endpoints, cluster);
    cluster_update(cluster, snapshot, conf);
    return cluster;
}

void
cluster_await(struct cluster *cluster, uint64_t until_ns)
{
    resolver_await(cluster->resolver, until_ns);
}

void
cluster_check(struct cluster *cluster, uint64_t now_ns)
{
    if (cluster->resolver)
        resolver_check(cluster->resolver, now_ns);
    for (uint32_t i = 0; i < cluster->endpoint_count; i++)
        endpoint_check(cluster->endpoints[i], now_ns);
    list_for_each (node, &cluster->leaving)
        endpoint_check(list_entry(node, struct endpoint, node), now_ns);
}

static void
close_resolver(struct cluster *cluster)
{
    if (cluster->resolver)
        resolver_close(cluster->resolver);
    cluster->resolver = NULL;
}

void
cluster_set_gone(struct cluster *cluster)
{
    cluster->gone = true;
    close_resolver(cluster);
    for (uint32_t i = 0; i < cluster->endpoint_count; i++)
        endpoint_set_leaving(cluster->endpoints[i], true);
    ctx_defer(&cluster->worker->ctx, &cluster->sweep);
}

void
cluster_close(struct cluster *cluster)
{
    close_resolver(cluster);
    for (uint32_t i = 0; i < cluster->endpoint_count; i++)
        endpoint_close(cluster->endpoints[i]);
    list_for_each (node, &cluster->leaving)
        endpoint_close(list_entry(node, struct endpoint, node));
}

void
cluster_abort(struct cluster *cluster)
{
    for (uint32_t i = 0; i < cluster->endpoint_count; i++)
        endpoint_abort(cluster->endpoints[i]);
    list_for_each (node, &cluster->leaving)
        endpoint_abort(list_entry(node, struct endpoint, node));
}

bool
cluster_idle(struct cluster *cluster)
{
    sweep(cluster);
    for (uint32_t i = 0; i < cluster->endpoint_count; i++)
        if (!endpoint_idle(cluster->endpoints[i]))
            return false;
    return cluster->gone && list_empty(&cluster->leaving);
}

void
cluster_free(struct cluster *cluster)
{
    list_for_each_safe (node, &cluster->leaving)
        endpoint_free(list_entry(node, struct endpoint, node));
    for (uint32_t i = 0; i < cluster->endpoint_count; i++)
        endpoint_free(cluster->endpoints[i]);
    list_unlink(&cluster->node);
    list_unlink(&cluster->sweep.node);
    snapshot_unref(cluster->snapshot);
    mem_free(cluster->endpoints);
    mem_free(cluster->name);
    mem_free(cluster);
}
