/* See peer_histogram.h. */
#include "peer_histogram.h"

static unsigned
slot_of(uint64_t value)
{
    if (value < 128)
        return (unsigned)value;
    unsigned shift = 63u - (unsigned)__builtin_clzll(value) - 6u;
    return shift * 64u + (unsigned)(value >> shift);
}

/* The middle of a slot. */
static uint64_t
value_of(unsigned slot)
{
    if (slot < 128)
        return slot;
    unsigned shift = slot / 64u - 1u;
    uint64_t low = (uint64_t)(slot % 64u + 64u) << shift;
    return low + ((uint64_t)1 << shift) / 2;
}

void
peer_histogram_add(struct peer_histogram *h, uint64_t value)
{
    h->slots[slot_of(value)]++;
    h->count++;
    h->sum += value;
    if (value > h->max)
        h->max = value;
}

uint64_t
peer_histogram_at(const struct peer_histogram *h, double share)
{
    if (h->count == 0)
        return 0;
    uint64_t wanted = (uint64_t)(share * (double)h->count + 0.9999999);
    uint64_t seen = 0;
    for (unsigned slot = 0; slot < PEER_HISTOGRAM_SLOTS; slot++) {
        seen += h->slots[slot];
        if (h->slots[slot] && seen >= wanted)
            return value_of(slot) < h->max ? value_of(slot) : h->max;
    }
    return h->max;
}
