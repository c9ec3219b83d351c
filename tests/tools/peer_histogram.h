/*
 * Latencies in log-linear buckets, in the manner of HdrHistogram: 64 steps per power of two, so
 * that a percentile is off by less than 1.6 %. Pure values, no I/O.
 */
#ifndef TOOLS_PEER_HISTOGRAM_H
#define TOOLS_PEER_HISTOGRAM_H

#include <stdint.h>

#define PEER_HISTOGRAM_SLOTS 3776u

struct peer_histogram {
    uint64_t count;
    uint64_t sum;
    uint64_t max;
    uint64_t slots[PEER_HISTOGRAM_SLOTS];
};

void peer_histogram_add(struct peer_histogram *h, uint64_t value);
/* The value below or at which the share lies, share in 0..1; 0 when empty. */
uint64_t peer_histogram_at(const struct peer_histogram *h, double share);

#endif
