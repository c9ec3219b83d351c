/*
 * Bump allocator: everything that lives as long as one call. Starts in memory that its owner
 * embeds, grows by blocks from the heap, is freed at once. No single free.
 */
#ifndef TRIBUTARY_BASE_ARENA_H
#define TRIBUTARY_BASE_ARENA_H

#include <stddef.h>

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
void *arena_alloc(struct arena *arena, size_t bytes); /* aligned to 8, not zeroed, never NULL */
/* A copy that lives as long as the arena, NUL behind it. */
struct text arena_copy(struct arena *arena, struct text text);
/* printf into the arena; NUL behind it. */
__attribute__((format(printf, 2, 3))) struct text
arena_printf(struct arena *arena, const char *format, ...);

#endif
