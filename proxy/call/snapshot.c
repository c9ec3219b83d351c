/*
 * Reference counting of configurations. One arena holds everything; only TLS contexts have a life
 * of their own.
 *
 * Failure modes: none; a count that would go below zero is our bug.
 */
#include "proxy/call/snapshot.h"

#include "proxy/base/check.h"
#include "proxy/base/mem.h"
#include "proxy/net/tls.h"

struct snapshot *
snapshot_new(void)
{
    struct snapshot *snapshot = mem_new(struct snapshot);
    atomic_init(&snapshot->refs, 1);
    arena_init(&snapshot->arena, NULL, 0);
    return snapshot;
}

struct snapshot *
snapshot_ref(struct snapshot *snapshot)
{
    atomic_fetch_add_explicit(&snapshot->refs, 1, memory_order_relaxed);
    return snapshot;
}

static void
snapshot_free(struct snapshot *snapshot)
{
    for (unsigned i = 0; i < snapshot->listener_count; i++)
        tls_context_unref(snapshot->listeners[i].tls);
    for (unsigned i = 0; i < snapshot->upstream_count; i++)
        tls_context_unref(snapshot->upstreams[i].tls);
    arena_fini(&snapshot->arena);
    mem_free(snapshot);
}

void
snapshot_unref(struct snapshot *snapshot)
{
    /* Release: our reads happen before the free; acquire: the others' do too. */
    uint32_t before = atomic_fetch_sub_explicit(&snapshot->refs, 1, memory_order_acq_rel);
    check(before > 0);
    if (before == 1)
        snapshot_free(snapshot);
}
