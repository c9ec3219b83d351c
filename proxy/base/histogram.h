/*
 * Latency histogram: log-linear cells over nanoseconds, eight a power of two (error <= 12.5 %,
 * values are reported in microseconds), from 64 ns to about 73 minutes. One writer (relaxed
 * stores), any reader.
 */
#ifndef TRIBUTARY_BASE_HISTOGRAM_H
#define TRIBUTARY_BASE_HISTOGRAM_H

#include <stdatomic.h>
#include <stdint.h>

enum { HISTOGRAM_CELLS = 8 * 37 };

struct histogram {
    _Atomic uint64_t sum_ns;
    _Atomic uint64_t max_ns;
    _Atomic uint64_t cells[HISTOGRAM_CELLS]; /* 32 bits would wrap in a day at full load */
};

struct histogram_summary {
    uint64_t count;
    double mean_us;
    double p50_us, p90_us, p99_us, p999_us, max_us; /* 0 when empty; none exceeds max */
};

void histogram_record(struct histogram *histogram, uint64_t value_ns); /* the writer only */
void histogram_reset(struct histogram *histogram);                     /* the writer only */
/* `into` is private to the caller. */
void histogram_merge(struct histogram *into, const struct histogram *from);
void histogram_summarize(const struct histogram *histogram, struct histogram_summary *summary);
/* The writer of `into` only: the same values, store by store, never passing through zero. */
void histogram_copy(struct histogram *into, const struct histogram *from);
/* Takes what `from` counted out of `into`, which is private to the caller; stops at zero. max_ns
 * stays. */
void histogram_subtract(struct histogram *into, const struct histogram *from);
uint64_t histogram_count(const struct histogram *histogram); /* of all values */
/* How many values were <= bound_ns, for Prometheus buckets (by whole cells; exact at their edges).
 */
uint64_t histogram_count_below(const struct histogram *histogram, uint64_t bound_ns);

#endif
