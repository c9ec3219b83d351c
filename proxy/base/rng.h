/* Small fast generator (xorshift64*) for jitter and load balancing, not secrets. One thread each.
 */
#ifndef TRIBUTARY_BASE_RNG_H
#define TRIBUTARY_BASE_RNG_H

#include <stdint.h>

struct rng {
    uint64_t state; /* never 0 */
};

void rng_seed(struct rng *rng, uint64_t seed); /* any value; 0 is replaced */
uint64_t rng_next(struct rng *rng);
uint32_t rng_below(struct rng *rng, uint32_t bound); /* 0 … bound-1; bound > 0 */

#endif
