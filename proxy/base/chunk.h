/*
 * Chunks: reference-counted byte buffers for bodies, from per-worker free lists in four sizes.
 *
 * Owns the bytes of every body in memory, held or passing. A chunk counts in the budget from the
 * moment it is taken until its last reference is put. Bytes are written once, at the end of a chunk
 * (`used` grows), and never change afterwards; slices (slices.h) refer to parts of it. One worker,
 * no atomics.
 *
 * One chunk of each pool is its input: sockets are read into it. Long pieces of bodies are not
 * copied out of it but referred to; while anything refers to it, it counts in the budget, and
 * reading goes on behind what was read before, or in the next chunk.
 */
#ifndef TRIBUTARY_BASE_CHUNK_H
#define TRIBUTARY_BASE_CHUNK_H

#include <stdint.h>

#include "proxy/base/budget.h"

enum {
    CHUNK_CLASSES = 4,       /* 512 B, 2K, 20K (16 KiB in one piece), 64K; header included */
    CHUNK_LAST_BODY = 16384, /* longest body that the budget's last eighth serves */
};

struct chunk {
    uint32_t refs;
    uint32_t cap;  /* bytes of data[] */
    uint32_t used; /* bytes written so far */
    uint8_t size_class;
    struct chunk_pool *pool; /* where it goes back to */
    uint8_t data[];
};

/* Data bytes of the two large classes. */
enum {
    CHUNK_20K_CAP = 20480 - sizeof(struct chunk),
    CHUNK_64K_CAP = 65536 - sizeof(struct chunk),
};

struct chunk_pool {
    struct budget_lease lease;
    void *free[CHUNK_CLASSES]; /* singly linked through the first word */
    uint32_t free_count[CHUNK_CLASSES];
    uint32_t free_low[CHUNK_CLASSES]; /* least free_count since the last trim */
    uint32_t free_max[CHUNK_CLASSES]; /* more than these go straight back to the heap */
    uint64_t allocations;             /* from the heap, ever */
    struct chunk *input;              /* what is read into; no references: not in the budget */
    uint32_t input_at;                /* where in its data the next read begins */
};

void chunk_pool_init(struct chunk_pool *pool, struct budget *budget);
void chunk_pool_fini(struct chunk_pool *pool); /* every chunk must be back */
/* Give what lay unused since the last call back to the heap (all but a few of each class, and not
 * everything at once: true, call again), and the lease's unused steps to the budget. Call every
 * second or two. */
bool chunk_pool_trim(struct chunk_pool *pool);

/* Data bytes of a chunk of that class. */
uint32_t chunk_class_cap(unsigned size_class);

/*
 * An empty chunk with one reference, of the smallest class that holds `bytes` (the largest when
 * none does). NULL when the budget has no room. body_bytes: what the whole body is expected to be
 * (0: unknown, then `bytes` stands for it); in the last eighth of the budget only bodies up to 16K
 * are served.
 */
struct chunk *chunk_get(struct chunk_pool *pool, size_t bytes, uint64_t body_bytes);
void chunk_put(struct chunk *chunk); /* drops one reference */

/*
 * Reading: the room that the next read may fill (*bytes of it, half a 64K chunk at least); then,
 * when all of what came has been looked at, how much that was. What was read stays as it is for
 * those who took a reference to it in between.
 */
uint8_t *chunk_input(struct chunk_pool *pool, size_t *bytes);
void chunk_input_done(struct chunk_pool *pool, size_t len);
/* The input with one more reference, if that's where these bytes lie; NULL when not, or when the
 * budget has no room for it. body_bytes: as for chunk_get(). */
struct chunk *chunk_input_ref(struct chunk_pool *pool, const uint8_t *bytes, uint64_t body_bytes);

static inline struct chunk *
chunk_ref(struct chunk *chunk)
{
    chunk->refs++;
    return chunk;
}

#endif
