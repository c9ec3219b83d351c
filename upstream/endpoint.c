/* One endpoint: two pools and what they have in common. See endpoint.h. */
#include "upstream/endpoint.h"

struct endpoint *
endpoint_new(struct cluster *cluster, const struct target *target)
{
    struct endpoint *endpoint = mem_new(struct endpoint);
    struct worker *worker = target->worker;
    struct text upstream = text_of(target->upstream);
    endpoint->cluster = cluster;
    endpoint->target = *target;
    endpoint->target.name = text_make(text_dup(target->name), target->name.len);
    endpoint->target.host = text_make(text_dup(target->host), target->host.len);
    endpoint->facts = facts_of(upstream, target->name);
    struct stats_entry *entry =
        stats_register(worker->stats, STATS_ENDPOINT, upstream, target->name);
    endpoint->target.cells = stats_endpoint(entry, worker->index);
    list_init(&endpoint->node);
    pool_init(&endpoint->h2, &endpoint->target, false);
    pool_init(&endpoint->http1, &endpoint->target, true);
    endpoint_set_leaving(endpoint, false);
    return endpoint;
}

void
endpoint_free(struct endpoint *endpoint)
{
    pool_fini(&endpoint->h2);
    pool_fini(&endpoint->http1);
    list_unlink(&endpoint->node);
    mem_free((char *)endpoint->target.name.ptr);
    mem_free((char *)endpoint->target.host.ptr);
    mem_free(endpoint);
}

bool
endpoint_idle(const struct endpoint *endpoint)
{
    return endpoint->active == 0 && pool_idle(&endpoint->h2) && pool_idle(&endpoint->http1);
}

struct pool *
endpoint_pool(struct endpoint *endpoint, enum body_form form)
{
    bool http1 = endpoint->target.conf->transport == TRANSPORT_HTTP1 && form == FORM_BARE;
    return http1 ? &endpoint->http1 : &endpoint->h2;
}

/* What most calls take. */
static const struct pool *
main_pool(const struct endpoint *endpoint)
{
    return endpoint->target.conf->transport == TRANSPORT_HTTP1 ? &endpoint->http1 : &endpoint->h2;
}

bool
endpoint_usable(const struct endpoint *endpoint)
{
    return pool_usable(main_pool(endpoint));
}

bool
endpoint_healthy(const struct endpoint *endpoint)
{
    return pool_healthy(main_pool(endpoint));
}

const char *
endpoint_error(const struct endpoint *endpoint)
{
    return endpoint->h2.error[0] ? endpoint->h2.error : endpoint->http1.error;
}

void
endpoint_warm(struct endpoint *endpoint)
{
    pool_warm((struct pool *)main_pool(endpoint));
}

void
endpoint_set_leaving(struct endpoint *endpoint, bool leaving)
{
    endpoint->leaving = endpoint->h2.unwanted = endpoint->http1.unwanted = leaving;
    stats_set(&endpoint->target.cells->present, !leaving);
    endpoint_show(endpoint);
}

void
endpoint_drain(struct endpoint *endpoint)
{
    pool_drain(&endpoint->h2);
    pool_drain(&endpoint->http1);
}

void
endpoint_close(struct endpoint *endpoint)
{
    pool_close(&endpoint->h2);
    pool_close(&endpoint->http1);
}

void
endpoint_abort(struct endpoint *endpoint)
{
    pool_abort(&endpoint->h2);
    pool_abort(&endpoint->http1);
}

void
endpoint_check(struct endpoint *endpoint, uint64_t now_ns)
{
    pool_check(&endpoint->h2, now_ns);
    pool_check(&endpoint->http1, now_ns);
}

static enum endpoint_state
state_of(const struct endpoint *endpoint)
{
    const struct pool *h2 = &endpoint->h2, *http1 = &endpoint->http1;
    if (pool_ready(h2) + pool_ready(http1) > 0)
        return endpoint->leaving ? ENDPOINT_DRAINING : ENDPOINT_READY;
    if (h2->connecting + http1->connecting > 0 && main_pool(endpoint)->failures == 0)
        return ENDPOINT_CONNECTING;
    if (main_pool(endpoint)->failures > 0)
        return ENDPOINT_BACKOFF; /* in it, or in the dial that may end it */
    if (endpoint->leaving || !list_empty(&h2->retired) || !list_empty(&http1->retired))
        return ENDPOINT_DRAINING;
    return ENDPOINT_IDLE;
}

void
endpoint_show(struct endpoint *endpoint)
{
    const struct upstream_conf *conf = endpoint->target.conf;
    if (endpoint->leaving && stats_get(&endpoint->target.cells->present))
        return; /* the name is another endpoint's by now */
    enum endpoint_wire wire = facts_wire(endpoint->facts);
    if (conf->wire != UPSTREAM_WIRE_AUTO && wire == WIRE_UNKNOWN)
        wire = conf->wire == UPSTREAM_WIRE_FRAMED ? WIRE_FRAMED : WIRE_BARE;
    stats_set(&endpoint->target.cells->state, state_of(endpoint));
    stats_set(&endpoint->target.cells->wire, wire);
}
