/*
 * Log-linear latency histogram. Owns the mapping from value to cell: eight cells of 8 ns below 64
 * ns, then eight for each power of two; what is longer than the last cell counts in it (max_ns
 * stays exact). Recording is a few shifts and two or three relaxed stores; it never fails and never
 * allocates.
 *
 * The cells are the count: a reader beside the writer may see one of those stores before another,
 * and summaries must agree with themselves.
 */
#include "proxy/base/histogram.h"

#include "proxy/base/clock.h"

#define HISTOGRAM_END ((uint64_t)1 << 42) /* ns; first value past the last cell */

static uint64_t
load(const _Atomic uint64_t *cell)
{
    return atomic_load_explicit(cell, memory_order_relaxed);
}

/* One writer a cell: a plain load and store, no locked instruction. */
static void
store(_Atomic uint64_t *cell, uint64_t value)
{
    atomic_store_explicit(cell, value, memory_order_relaxed);
}

static void
add(_Atomic uint64_t *cell, uint64_t value)
{
    store(cell, load(cell) + value);
}

static void
raise_to(_Atomic uint64_t *cell, uint64_t value)
{
    if (value > load(cell))
        store(cell, value);
}

static unsigned
cell_of(uint64_t ns)
{
    if (ns >= HISTOGRAM_END)
        return HISTOGRAM_CELLS - 1;
    unsigned exponent = 63 - (unsigned)__builtin_clzll(ns | 64);
    return (exponent - 6) * 8 + (unsigned)(ns >> (exponent - 3));
}

/* Least value of a cell; of HISTOGRAM_CELLS: the end of the last. */
static uint64_t
cell_floor(unsigned cell)
{
    if (cell < 8)
        return cell * 8;
    return (uint64_t)(8 + cell % 8) << (cell / 8 + 2);
}

void
histogram_record(struct histogram *histogram, uint64_t value_ns)
{
    add(&histogram->cells[cell_of(value_ns)], 1);
    add(&histogram->sum_ns, value_ns);
    raise_to(&histogram->max_ns, value_ns);
}

void
histogram_reset(struct histogram *histogram)
{
    store(&histogram->sum_ns, 0);
    store(&histogram->max_ns, 0);
    for (unsigned i = 0; i < HISTOGRAM_CELLS; i++)
        store(&histogram->cells[i], 0);
}

void
histogram_merge(struct histogram *into, const struct histogram *from)
{
    add(&into->sum_ns, load(&from->sum_ns));
    raise_to(&into->max_ns, load(&from->max_ns));
    for (unsigned i = 0; i < HISTOGRAM_CELLS; i++)
        add(&into->cells[i], load(&from->cells[i]));
}

void
histogram_copy(struct histogram *into, const struct histogram *from)
{
    store(&into->sum_ns, load(&from->sum_ns));
    store(&into->max_ns, load(&from->max_ns));
    for (unsigned i = 0; i < HISTOGRAM_CELLS; i++)
        store(&into->cells[i], load(&from->cells[i]));
}

static void
take(_Atomic uint64_t *cell, uint64_t value)
{
    uint64_t old = load(cell);
    store(cell, old > value ? old - value : 0);
}

void
histogram_subtract(struct histogram *into, const struct histogram *from)
{
    take(&into->sum_ns, load(&from->sum_ns));
    for (unsigned i = 0; i < HISTOGRAM_CELLS; i++)
        take(&into->cells[i], load(&from->cells[i]));
}

uint64_t
histogram_count(const struct histogram *histogram)
{
    uint64_t total = 0;
    for (unsigned i = 0; i < HISTOGRAM_CELLS; i++)
        total += load(&histogram->cells[i]);
    return total;
}

static double
least(double a, double b)
{
    return a < b ? a : b;
}

/* The value of that rank (1 … total): the values of a cell are taken to lie evenly in it. */
static double
value_at_us(const struct histogram *histogram, uint64_t rank)
{
    uint64_t below = 0;
    double value_ns = 0;
    for (unsigned i = 0; i < HISTOGRAM_CELLS; i++) {
        uint64_t here = load(&histogram->cells[i]);
        if (below + here >= rank) {
            double floor_ns = (double)cell_floor(i),
                   width_ns = (double)cell_floor(i + 1) - floor_ns;
            value_ns = floor_ns + width_ns * ((double)(rank - below) - 0.5) / (double)here;
            break;
        }
        below += here;
    }
    return least(value_ns, (double)load(&histogram->max_ns)) / (double)NS_PER_US;
}

/* Nearest rank: the least rank with at least that share of all values at or below it. */
static uint64_t
rank_of(uint64_t total, unsigned per_mille)
{
    uint64_t rank = (total / 1000) * per_mille + ((total % 1000) * per_mille + 999) / 1000;
    return rank ? rank : 1;
}

void
histogram_summarize(const struct histogram *histogram, struct histogram_summary *summary)
{
    uint64_t total = histogram_count(histogram);
    *summary = (struct histogram_summary){.count = total};
    if (total == 0)
        return;
    summary->max_us = (double)load(&histogram->max_ns) / (double)NS_PER_US;
    summary->mean_us = (double)load(&histogram->sum_ns) / (double)total / (double)NS_PER_US;
    summary->p50_us = value_at_us(histogram, rank_of(total, 500));
    summary->p90_us = value_at_us(histogram, rank_of(total, 900));
    summary->p99_us = value_at_us(histogram, rank_of(total, 990));
    summary->p999_us = value_at_us(histogram, rank_of(total, 999));
}

uint64_t
histogram_count_below(const struct histogram *histogram, uint64_t bound_ns)
{
    uint64_t below = 0;
    for (unsigned i = 0; i < HISTOGRAM_CELLS && cell_floor(i + 1) <= bound_ns; i++)
        below += load(&histogram->cells[i]);
    return below;
}
