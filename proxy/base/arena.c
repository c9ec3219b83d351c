/*
 * Bump allocation for what lives as long as one call.
 *
 * Owns the heap blocks it adds, not the first memory. Happy path: the owner's embedded memory
 * suffices and nothing is ever allocated. `next` is kept 8-aligned, so an allocation is one
 * rounding, one comparison and one addition. Failure: out of memory aborts; a size near SIZE_MAX
 * fails check().
 */
#include "proxy/base/arena.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>

#include "proxy/base/check.h"
#include "proxy/base/mem.h"

struct arena_block {
    struct arena_block *older;
    uint64_t memory[];
};

enum {
    ARENA_ALIGN = 8,
    /* With malloc's own header just a page; doubled with what is already there, up to 64K. */
    ARENA_BLOCK = 4096 - 16,
    ARENA_BLOCK_MAX = 65536 - 16,
};

void
arena_init(struct arena *arena, void *memory, size_t bytes)
{
    size_t skip = -(uintptr_t)memory & (ARENA_ALIGN - 1);
    *arena = (struct arena){.next = memory, .end = memory};
    if (bytes > skip) {
        arena->next += skip;
        arena->end += bytes;
    }
}

void
arena_fini(struct arena *arena)
{
    for (struct arena_block *block = arena->blocks, *older; block; block = older) {
        older = block->older;
        mem_free(block);
    }
    *arena = (struct arena){.next = NULL};
}

static size_t
room(const struct arena *arena)
{
    return (size_t)(arena->end - arena->next);
}

static size_t
block_bytes(const struct arena *arena, size_t need)
{
    size_t bytes = arena->heap_bytes > ARENA_BLOCK ? arena->heap_bytes : ARENA_BLOCK;
    if (bytes > ARENA_BLOCK_MAX)
        bytes = ARENA_BLOCK_MAX;
    need += sizeof(struct arena_block);
    return bytes > need ? bytes : need;
}

void *
arena_add_block(struct arena *arena, size_t bytes)
{
    check(bytes < SIZE_MAX / 4);
    size_t need = bytes ? (bytes + ARENA_ALIGN - 1) & ~(size_t)(ARENA_ALIGN - 1) : ARENA_ALIGN;
    size_t size = block_bytes(arena, need);
    struct arena_block *block = mem_alloc(size);
    block->older = arena->blocks;
    arena->blocks = block;
    arena->heap_bytes += size;
    char *memory = (char *)block->memory, *end = (char *)block + size;
    /* Go on in whichever block has more left: one large value must not cost the current one. */
    if ((size_t)(end - memory) - need > room(arena)) {
        arena->next = memory + need;
        arena->end = end;
    }
    return memory;
}

struct text
arena_copy(struct arena *arena, struct text text)
{
    char *copy = arena_alloc(arena, text.len + 1);
    if (text.len)
        memcpy(copy, text.ptr, text.len);
    copy[text.len] = '\0';
    return text_make(copy, text.len);
}

struct text
arena_decimal(struct arena *arena, uint64_t value)
{
    enum { MOST = 20 }; /* digits of UINT64_MAX */
    char *memory = arena_alloc(arena, MOST + 1), *end = memory + MOST, *digit = end;
    *end = '\0';
    do {
        *--digit = (char)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    return text_make(digit, (size_t)(end - digit));
}

struct text
arena_printf(struct arena *arena, const char *format, ...)
{
    char *printed = arena->next; /* try where it would come to lie: most fits at once */
    va_list args;
    va_start(args, format);
    int len = vsnprintf(printed, room(arena), format, args);
    va_end(args);
    check(len >= 0);
    char *text = arena_alloc(arena, (size_t)len + 1);
    if (text != printed) {
        va_start(args, format);
        vsnprintf(text, (size_t)len + 1, format, args);
        va_end(args);
    }
    return text_make(text, (size_t)len);
}
