/*
 * The memory budget for bodies, shared by all workers: one atomic counter that workers lease from
 * in BUDGET_STEP steps, so that the call path writes no shared cache line per call.
 */
#ifndef TRIBUTARY_BASE_BUDGET_H
#define TRIBUTARY_BASE_BUDGET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BUDGET_STEP ((uint64_t)1 << 20) /* bytes per lease; smaller budgets lease by a 64th */

struct budget {
    uint64_t total;          /* bytes */
    _Atomic uint64_t leased; /* bytes, sum of all leases, <= total */
};

enum budget_pressure {
    BUDGET_ROOMY, /* under a quarter: memory may be spent to save time */
    BUDGET_FREE,  /* under three quarters */
    BUDGET_TIGHT, /* from three quarters on: passing streams get no credit, bodies cut through */
    BUDGET_LAST,  /* in the last eighth: only bodies up to 16K */
};

/* One worker's lease; one thread. */
struct budget_lease {
    struct budget *budget; /* not owned */
    uint64_t leased;       /* bytes taken from the budget */
    _Atomic uint64_t used; /* bytes in chunks taken; written by one worker, read by the stats */
    _Atomic uint64_t peak; /* the most `used` has been; zeroed by the owner on reset */
    /* More was asked of the budget from three quarters on: whoever can do without memory should
     * give it back. The owner clears it. */
    bool scarce;
};

void budget_init(struct budget *budget, uint64_t total_bytes);
void budget_lease_init(struct budget_lease *lease, struct budget *budget);
void budget_lease_fini(struct budget_lease *lease); /* gives everything back; used must be 0 */
/* Take / give bytes; take is false, with nothing taken, when the budget has no room. Giving returns
 * spare steps to the budget. */
bool budget_take(struct budget_lease *lease, uint64_t bytes);
void budget_give(struct budget_lease *lease, uint64_t bytes);
/* Gives back everything unused; call about once a second, so that an idle worker holds nothing
 * others need. */
void budget_lease_trim(struct budget_lease *lease);
enum budget_pressure budget_pressure(const struct budget_lease *lease);
/* What it would be with so many more bytes taken. */
enum budget_pressure budget_pressure_after(const struct budget_lease *lease, uint64_t bytes);

#endif
