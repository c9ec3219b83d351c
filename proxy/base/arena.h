/*
 * Bump allocator: everything that lives as long as one call. Starts in memory that its owner
 * embeds, grows by blocks from the heap, is freed at once. No single free.
 */
#ifndef TRIBUTARY_BASE_ARENA_H
#define TRIBUTARY_BASE_ARENA_H

#include <stddef.h>
#include <stdint.h>

#include "proxy/base/text.h"

struct arena_block;

struct arena {
    char *next, *end;           /* free part of the current block */
    struct arena_block *blocks; /* heap, newest first; NULL while the first memory suffices */
    size_t heap_bytes;          /* bytes in heap blocks, for limits */
};

/* `memory` (may be NULL with 0 bytes) belongs to the caller and must outlive the arena. */
void arena_init(struct arena *arena, void *memory, size_t bytes);
void arena_fini(struct arena *arena);
void *arena_add_block(struct arena *arena, size_t bytes); /* arena_alloc() where it does not fit */
/* Aligned to 8, not zeroed, never NULL. */
static inline void *
arena_alloc(struct arena *arena, size_t bytes)
{
    size_t need = (bytes + 7) & ~(size_t)7;
    /* need - 1: nothing asked for, and a size that wrapped, go the slow way too. */
    if (__builtin_expect(need - 1 >= (size_t)(arena->end - arena->next), 0))
        return arena_add_block(arena, bytes);
    void *memory = arena->next;
    arena->next += need;
    return memory;
}

/* A copy that lives as long as the arena, NUL behind it. */
struct text arena_copy(struct arena *arena, struct text text);
struct text arena_decimal(struct arena *arena, uint64_t value); /* its digits, NUL behind them */
/* printf into the arena; NUL behind it. Not for the call path. */
__attribute__((format(printf, 2, 3))) struct text
arena_printf(struct arena *arena, const char *format, ...);

#endif
