/* xorshift64*, after Vigna, "An experimental exploration of Marsaglia's xorshift generators". */
#include "proxy/base/rng.h"

void
rng_seed(struct rng *rng, uint64_t seed)
{
    /* Neighbouring seeds (worker 1, 2, …) must not give neighbouring streams: mix (splitmix64). */
    seed += 0x9e3779b97f4a7c15;
    seed = (seed ^ (seed >> 30)) * 0xbf58476d1ce4e5b9;
    seed = (seed ^ (seed >> 27)) * 0x94d049bb133111eb;
    seed ^= seed >> 31;
    rng->state = seed ? seed : 1;
}

uint64_t
rng_next(struct rng *rng)
{
    uint64_t state = rng->state;
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    rng->state = state;
    return state * 0x2545f4914f6cdd1d;
}

uint32_t
rng_below(struct rng *rng, uint32_t bound)
{
    /* The high half of a product instead of a division; the bias is under bound / 2^32. */
    return (uint32_t)(((rng_next(rng) >> 32) * bound) >> 32);
}
