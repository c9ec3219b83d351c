/*
 * The body budget: one shared counter, leased to workers in steps.
 *
 * Owns the arithmetic only. Happy path: a take or give inside the lease is a few instructions on
 * the worker's own cache line. A lease keeps up to two steps that it does not use, so that going
 * back and forth over a step's edge costs nothing; budget_lease_trim() returns those once a second.
 * Failure: no room, take says so.
 *
 * All orders are relaxed: the numbers guard no other memory.
 */
#include "proxy/base/budget.h"

#include "proxy/base/check.h"

static uint64_t
load(const _Atomic uint64_t *cell)
{
    return atomic_load_explicit(cell, memory_order_relaxed);
}

/* Only for cells with one writer: not a read-modify-write. */
static void
store(_Atomic uint64_t *cell, uint64_t value)
{
    atomic_store_explicit(cell, value, memory_order_relaxed);
}

static uint64_t
step_bytes(const struct budget *budget)
{
    uint64_t step = budget->total / 64;
    return step < BUDGET_STEP ? step + !step : BUDGET_STEP;
}

void
budget_init(struct budget *budget, uint64_t total_bytes)
{
    budget->total = total_bytes;
    atomic_init(&budget->leased, 0);
}

void
budget_lease_init(struct budget_lease *lease, struct budget *budget)
{
    lease->budget = budget;
    lease->leased = 0;
    lease->scarce = false;
    atomic_init(&lease->used, 0);
    atomic_init(&lease->peak, 0);
}

static void
give_back(struct budget_lease *lease, uint64_t bytes)
{
    lease->leased -= bytes;
    atomic_fetch_sub_explicit(&lease->budget->leased, bytes, memory_order_relaxed);
}

void
budget_lease_trim(struct budget_lease *lease)
{
    uint64_t spare = lease->leased - load(&lease->used);
    if (spare)
        give_back(lease, spare);
}

void
budget_lease_fini(struct budget_lease *lease)
{
    check(load(&lease->used) == 0);
    budget_lease_trim(lease);
}

/* Lease at least `missing` bytes more: whole steps, or what is left of the last one. */
static __attribute__((noinline)) bool
lease_more(struct budget_lease *lease, uint64_t missing)
{
    struct budget *budget = lease->budget;
    uint64_t step = step_bytes(budget);
    uint64_t leased = load(&budget->leased), more;
    do {
        uint64_t left = budget->total - leased;
        lease->scarce |= leased + missing > budget->total - budget->total / 4;
        if (missing > left)
            return false;
        uint64_t rest = missing % step;
        more = rest ? missing + (step - rest) : missing;
        if (more > left || more < missing)
            more = left;
    } while (!atomic_compare_exchange_weak_explicit(&budget->leased, &leased, leased + more,
                                                    memory_order_relaxed, memory_order_relaxed));
    lease->leased += more;
    return true;
}

bool
budget_take(struct budget_lease *lease, uint64_t bytes)
{
    uint64_t used = load(&lease->used), spare = lease->leased - used;
    if (__builtin_expect(bytes > spare, 0) && !lease_more(lease, bytes - spare))
        return false;
    used += bytes;
    store(&lease->used, used);
    if (used > load(&lease->peak))
        store(&lease->peak, used);
    return true;
}

void
budget_give(struct budget_lease *lease, uint64_t bytes)
{
    uint64_t used = load(&lease->used);
    check(bytes <= used);
    used -= bytes;
    store(&lease->used, used);
    uint64_t spare = lease->leased - used, step = step_bytes(lease->budget);
    if (__builtin_expect(spare >= 2 * step, 0))
        give_back(lease, spare - step);
}

enum budget_pressure
budget_pressure(const struct budget_lease *lease)
{
    return budget_pressure_after(lease, 0);
}

enum budget_pressure
budget_pressure_after(const struct budget_lease *lease, uint64_t bytes)
{
    uint64_t total = lease->budget->total;
    /* Other workers' spare steps count as used, one's own do not: alone, this is exact. */
    uint64_t spare = lease->leased - load(&lease->used);
    uint64_t used = load(&lease->budget->leased) - spare + bytes;
    if (used >= total - total / 8)
        return BUDGET_LAST;
    if (used >= total - total / 4)
        return BUDGET_TIGHT;
    return used >= total / 4 ? BUDGET_FREE : BUDGET_ROOMY;
}
