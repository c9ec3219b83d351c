/*
 * One upstream on one worker. Owns its endpoints; knows how to choose one.
 */
#include "upstream/cluster.h"

#include <stdio.h>

#include "upstream/client_conn.h"

static void
sweep(struct cluster *cluster)
{
    list_for_each_safe (node, &cluster->leaving) {
        struct endpoint *endpoint = list_entry(node, struct endpoint, node);
        if (endpoint_idle(endpoint))
            endpoint_free(endpoint);
    }
}

static void
on_later(struct deferred *deferred)
{
    struct cluster *cluster = container_of(deferred, struct cluster, later);
    list_for_each_safe (node, &cluster->endpoints)
        endpoint_serve(list_entry(node, struct endpoint, node));
    sweep(cluster);
}

void
cluster_serve_later(struct cluster *cluster)
{
    if (cluster->waiting > 0 || !list_empty(&cluster->leaving))
        ctx_defer(&cluster->worker->ctx, &cluster->later);
}

void
cluster_sweep_later(struct cluster *cluster)
{
    ctx_defer(&cluster->worker->ctx, &cluster->later);
}

/* --- endpoints --- */

static bool
same_address(const struct address *a, const struct address *b)
{
    return a->len == b->len && memcmp(&a->storage, &b->storage, a->len) == 0;
}

static struct endpoint *
find(struct cluster *cluster, struct text name, const struct address *address)
{
    list_for_each (node, &cluster->endpoints) {
        struct endpoint *endpoint = list_entry(node, struct endpoint, node);
        if (text_eq(text_of(endpoint->name), name) && same_address(&endpoint->address, address))
            return endpoint;
    }
    return NULL;
}

static void
leave(struct cluster *cluster, struct endpoint *endpoint)
{
    list_unlink(&endpoint->node);
    list_push_back(&cluster->leaving, &endpoint->node);
    endpoint_drain(endpoint);
}

void
cluster_set_endpoints(struct cluster *cluster, const struct text *names,
                      const struct address *addresses, unsigned count)
{
    struct list kept;
    list_init(&kept);
    for (unsigned i = 0; i < count; i++) {
        struct endpoint *endpoint = find(cluster, names[i], &addresses[i]);
        if (!endpoint)
            endpoint = endpoint_new(cluster, names[i], &addresses[i]);
        list_unlink(&endpoint->node);
        list_push_back(&kept, &endpoint->node);
    }
    while (!list_empty(&cluster->endpoints))
        leave(cluster, list_first(&cluster->endpoints, struct endpoint, node));
    list_splice(&cluster->endpoints, &kept);
    cluster->endpoint_count = 0;
    list_for_each (node, &cluster->endpoints)
        cluster->endpoint_count++;
    cluster_sweep_later(cluster);
}

static void
set_static_endpoints(struct cluster *cluster)
{
    const struct upstream_conf *conf = cluster->conf;
    struct text *names = mem_alloc((conf->endpoint_count + 1) * sizeof(*names));
    struct address *addresses = mem_alloc((conf->endpoint_count + 1) * sizeof(*addresses));
    unsigned count = 0;
    for (unsigned i = 0; i < conf->endpoint_count; i++) {
        if (address_from_text(conf->endpoints[i], false, &addresses[count]) != 0)
            continue;
        names[count++] = conf->endpoints[i];
    }
    cluster_set_endpoints(cluster, names, addresses, count);
    mem_free(names);
    mem_free(addresses);
}

/* --- choosing --- */

static struct endpoint *
nth(struct cluster *cluster, uint32_t index)
{
    struct list *node = cluster->endpoints.next;
    while (index-- > 0)
        node = node->next;
    return list_entry(node, struct endpoint, node);
}

/* The first usable one from `index` on, in a ring; not `avoid`. */
static struct endpoint *
usable_from(struct cluster *cluster, uint32_t index, const struct endpoint *avoid)
{
    struct endpoint *endpoint = nth(cluster, index);
    for (uint32_t i = 0; i < cluster->endpoint_count; i++) {
        if (endpoint != avoid && endpoint_usable(endpoint))
            return endpoint;
        struct list *next = endpoint->node.next;
        if (next == &cluster->endpoints)
            next = next->next;
        endpoint = list_entry(next, struct endpoint, node);
    }
    return NULL;
}

static struct endpoint *
pick_least(struct cluster *cluster, const struct endpoint *avoid)
{
    struct rng *rng = &cluster->worker->ctx.rng;
    uint32_t first = rng_below(rng, cluster->endpoint_count);
    uint32_t second = rng_below(rng, cluster->endpoint_count - 1);
    second += second >= first; /* two different ones */
    struct endpoint *a = usable_from(cluster, first, avoid),
                    *b = usable_from(cluster, second, avoid);
    return !a || !b ? a : b->active < a->active ? b : a;
}

struct endpoint *
cluster_pick(struct cluster *cluster, const struct endpoint *avoid)
{
    if (cluster->endpoint_count == 0)
        return NULL;
    if (cluster->endpoint_count == 1) {
        struct endpoint *only = nth(cluster, 0);
        return endpoint_usable(only) ? only : NULL;
    }
    struct endpoint *endpoint;
    if (cluster->conf->lb_policy == LB_ROUND_ROBIN)
        endpoint = usable_from(cluster, cluster->next++ % cluster->endpoint_count, avoid);
    else
        endpoint = pick_least(cluster, avoid);
    if (!endpoint && avoid && endpoint_usable(avoid))
        endpoint = usable_from(cluster, 0, NULL);
    return endpoint;
}

const char *
cluster_last_error(const struct cluster *cluster)
{
    list_for_each (node, &cluster->endpoints) {
        const struct endpoint *endpoint = list_entry(node, struct endpoint, node);
        if (endpoint->error[0])
            return endpoint->error;
    }
    return "it has no endpoints";
}

/* --- life --- */

void
cluster_update(struct cluster *cluster, const struct upstream_conf *conf)
{
    struct snapshot *old = cluster->snapshot;
    cluster->snapshot = snapshot_ref(cluster->worker->snapshot);
    cluster->conf = conf;
    set_static_endpoints(cluster);
    if (old)
        snapshot_unref(old);
}

struct cluster *
cluster_new(struct worker *worker, const struct upstream_conf *conf)
{
    struct cluster *cluster = mem_new(struct cluster);
    cluster->worker = worker;
    cluster->name = text_dup(conf->name);
    list_init(&cluster->node);
    list_init(&cluster->endpoints);
    list_init(&cluster->leaving);
    list_init(&cluster->later.node);
    cluster->later.run = on_later;
    cluster_update(cluster, conf);
    return cluster;
}

static void
check_endpoint(struct endpoint *endpoint, uint64_t now_ns)
{
    list_for_each_safe (node, &endpoint->connections)
        client_conn_check(client_conn_of(node), now_ns);
    list_for_each_safe (other, &endpoint->retired)
        client_conn_check(client_conn_of(other), now_ns);
}

void
cluster_check(struct cluster *cluster, uint64_t now_ns)
{
    list_for_each_safe (node, &cluster->endpoints)
        check_endpoint(list_entry(node, struct endpoint, node), now_ns);
    list_for_each_safe (other, &cluster->leaving)
        check_endpoint(list_entry(other, struct endpoint, node), now_ns);
}

void
cluster_drain(struct cluster *cluster)
{
    while (!list_empty(&cluster->endpoints))
        leave(cluster, list_first(&cluster->endpoints, struct endpoint, node));
    cluster->endpoint_count = 0;
    cluster_sweep_later(cluster);
}

void
cluster_close(struct cluster *cluster)
{
    cluster->closing = true;
    cluster_drain(cluster);
    list_for_each_safe (node, &cluster->leaving)
        endpoint_close(list_entry(node, struct endpoint, node));
}

bool
cluster_idle(const struct cluster *cluster)
{
    struct cluster *mutable = (struct cluster *)cluster;
    sweep(mutable);
    return list_empty(&cluster->endpoints) && list_empty(&cluster->leaving);
}

void
cluster_free(struct cluster *cluster)
{
    sweep(cluster);
    list_unlink(&cluster->node);
    list_unlink(&cluster->later.node);
    snapshot_unref(cluster->snapshot);
    mem_free(cluster->name);
    mem_free(cluster);
}
