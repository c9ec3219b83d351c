/*
 * Chunks and their per-worker pool.
 *
 * Owns the free lists; a chunk in use is owned by whoever holds its references. Happy path: get
 * pops a free list, put pushes on it, each also moves the budget's `used`. Chunks of the two large
 * classes are mapped, not taken from malloc's heap: only then does giving them back after a burst
 * give the memory back, because nothing small can lie behind them. Failure: no budget, get returns
 * NULL; out of memory aborts.
 */
#include "proxy/base/chunk.h"

#include <stddef.h>
#include <sys/mman.h>

#include "proxy/base/check.h"
#include "proxy/base/mem.h"
#include "proxy/base/poison.h"

enum {
    CHUNK_MAPPED = 2, /* from this class on */
    CHUNK_INPUT = 3,  /* what is read into; larger ones did not make reading cheaper */
};

static const uint32_t class_bytes[CHUNK_CLASSES] = {512, 2048, 20480, 65536};
/* Free lists: never more than this part of the budget. Long bodies are many chunks that come back
 * all at once, and mapping one costs 16 page faults; trimming bounds the time. */
static const uint32_t free_part[CHUNK_CLASSES] = {16, 16, 4, 2};
/* Nor than so many bytes of a class: each worker has lists of its own. */
#define FREE_BYTES (512u << 20)
/* Bytes of a class that trimming gives back at once: unmapping them takes milliseconds. */
#define TRIM_BYTES (128u << 20)
/* What trimming leaves, so that a call after a quiet second finds warm memory: 312 KiB in all. */
static const uint32_t free_kept[CHUNK_CLASSES] = {64, 16, 6, 2};

#define CHUNK_CAP(size) ((uint32_t)((size)-offsetof(struct chunk, data)))

uint32_t
chunk_class_cap(unsigned size_class)
{
    return CHUNK_CAP(class_bytes[size_class]);
}

static unsigned
class_for(size_t bytes)
{
    return (unsigned)(bytes > CHUNK_CAP(512)) + (bytes > CHUNK_CAP(2048)) +
           (bytes > CHUNK_CAP(20480));
}

void
chunk_pool_init(struct chunk_pool *pool, struct budget *budget)
{
    *pool = (struct chunk_pool){.allocations = 0};
    budget_lease_init(&pool->lease, budget);
    for (unsigned i = 0; i < CHUNK_CLASSES; i++) {
        uint64_t share = budget->total / free_part[i] / class_bytes[i];
        uint32_t most = FREE_BYTES / class_bytes[i];
        pool->free_max[i] = share < most ? (uint32_t)share : most;
    }
}

static void *
heap_get(unsigned size_class)
{
    if (size_class < CHUNK_MAPPED)
        return mem_alloc(class_bytes[size_class]);
    /* Populated: it is about to be filled, and a page fault for each 4K costs more than the copy.
     */
    void *memory = mmap(NULL, class_bytes[size_class], PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    check(memory != MAP_FAILED); /* out of memory */
    return memory;
}

static void
heap_put(void *memory, unsigned size_class)
{
    if (size_class < CHUNK_MAPPED)
        mem_free(memory);
    /* Unmapping may split a mapping and so fail at the kernel's limit of them: then let the pages
     * go and lose the addresses. */
    else if (munmap(memory, class_bytes[size_class]) != 0)
        madvise(memory, class_bytes[size_class], MADV_DONTNEED);
}

/* A free chunk's first word is the next one. */
static void *
pop_free(struct chunk_pool *pool, unsigned size_class)
{
    void **free_chunk = pool->free[size_class];
    poison_live(free_chunk, class_bytes[size_class]);
    pool->free[size_class] = *free_chunk;
    uint32_t count = --pool->free_count[size_class];
    if (count < pool->free_low[size_class])
        pool->free_low[size_class] = count;
    return free_chunk;
}

static void
push_free(struct chunk_pool *pool, void *memory, unsigned size_class)
{
    void **free_chunk = memory;
    *free_chunk = pool->free[size_class];
    pool->free[size_class] = free_chunk;
    pool->free_count[size_class]++;
    poison_free(free_chunk, class_bytes[size_class]);
}

static void
shrink_free(struct chunk_pool *pool, unsigned size_class, uint32_t count)
{
    while (count-- > 0)
        heap_put(pop_free(pool, size_class), size_class);
    pool->free_low[size_class] = pool->free_count[size_class];
}

bool
chunk_pool_trim(struct chunk_pool *pool)
{
    bool more = false;
    for (unsigned i = 0; i < CHUNK_CLASSES; i++) {
        uint32_t idle = pool->free_low[i] > free_kept[i] ? pool->free_low[i] - free_kept[i] : 0;
        uint32_t step = TRIM_BYTES / class_bytes[i];
        more |= idle > step;
        shrink_free(pool, i, idle < step ? idle : step);
    }
    budget_lease_trim(&pool->lease);
    return more;
}

void
chunk_pool_fini(struct chunk_pool *pool)
{
    if (pool->input)
        heap_put(pool->input, CHUNK_INPUT);
    pool->input = NULL;
    for (unsigned i = 0; i < CHUNK_CLASSES; i++)
        shrink_free(pool, i, pool->free_count[i]);
    budget_lease_fini(&pool->lease); /* checks that every chunk is back */
}

/* Whether the chunk would lie in the last eighth and the body may not. Only long ones pay for
 * asking. */
static bool
too_late(const struct chunk_pool *pool, uint32_t size, uint64_t body_bytes)
{
    return body_bytes > CHUNK_LAST_BODY && budget_pressure_after(&pool->lease, size) == BUDGET_LAST;
}

/* Without references; the budget is the caller's business. */
static struct chunk *
new_chunk(struct chunk_pool *pool, unsigned size_class)
{
    struct chunk *chunk;
    if (pool->free[size_class]) {
        chunk = pop_free(pool, size_class);
    } else {
        chunk = heap_get(size_class);
        pool->allocations++;
    }
    chunk->refs = 0;
    chunk->cap = CHUNK_CAP(class_bytes[size_class]);
    chunk->used = 0;
    chunk->size_class = (uint8_t)size_class;
    chunk->pool = pool;
    return chunk;
}

struct chunk *
chunk_get(struct chunk_pool *pool, size_t bytes, uint64_t body_bytes)
{
    unsigned size_class = class_for(bytes);
    uint32_t size = class_bytes[size_class];
    if (__builtin_expect(too_late(pool, size, body_bytes ? body_bytes : bytes), 0) ||
        __builtin_expect(!budget_take(&pool->lease, size), 0))
        return NULL;
    struct chunk *chunk = new_chunk(pool, size_class);
    chunk->refs = 1;
    return chunk;
}

uint8_t *
chunk_input(struct chunk_pool *pool, size_t *bytes)
{
    struct chunk *input = pool->input;
    if (!input || (input->refs > 0 && pool->input_at > input->cap / 2)) {
        input = pool->input = new_chunk(pool, CHUNK_INPUT); /* the old one is its readers' */
        input->used = input->cap; /* its free end is the next read's, nobody else's */
        pool->input_at = 0;
    } else if (input->refs == 0) {
        pool->input_at = 0;
    }
    *bytes = input->cap - pool->input_at;
    return input->data + pool->input_at;
}

void
chunk_input_done(struct chunk_pool *pool, size_t len)
{
    check(len <= pool->input->cap - pool->input_at);
    pool->input_at += (uint32_t)len;
}

struct chunk *
chunk_input_ref(struct chunk_pool *pool, const uint8_t *bytes, uint64_t body_bytes)
{
    struct chunk *input = pool->input;
    if (!input || bytes < input->data || bytes >= input->data + input->cap)
        return NULL;
    uint32_t size = class_bytes[CHUNK_INPUT];
    if (input->refs == 0 && (too_late(pool, size, body_bytes) || !budget_take(&pool->lease, size)))
        return NULL;
    return chunk_ref(input);
}

void
chunk_put(struct chunk *chunk)
{
    check(chunk->refs > 0);
    if (--chunk->refs > 0)
        return;
    struct chunk_pool *pool = chunk->pool;
    unsigned size_class = chunk->size_class;
    budget_give(&pool->lease, class_bytes[size_class]);
    if (chunk == pool->input)
        return;
    if (__builtin_expect(pool->free_count[size_class] < pool->free_max[size_class], 1))
        push_free(pool, chunk, size_class);
    else
        heap_put(chunk, size_class);
}
