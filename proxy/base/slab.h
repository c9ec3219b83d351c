/*
 * Fixed-size objects from per-worker free lists: calls, streams, and everything nghttp2 allocates.
 * Size classes are multiples of 32 bytes up to SLAB_MAX, what is larger goes to the heap. One
 * thread, no locks. Freed objects stay on their list (bounded per class) and are given back to the
 * heap by slab_trim().
 */
#ifndef TRIBUTARY_BASE_SLAB_H
#define TRIBUTARY_BASE_SLAB_H

#include <stddef.h>
#include <stdint.h>

enum {
    SLAB_STEP = 32,
    SLAB_MAX = 4096, /* header included */
    SLAB_HEADER = 16,
    SLAB_CLASSES = SLAB_MAX / SLAB_STEP,
};

struct slab_list {
    void *first;
    uint32_t count, most; /* at most so many */
    uint32_t low;         /* least count since the last trim */
};

struct slab {
    struct slab_list
        free[SLAB_CLASSES + 1]; /* the last: of what came from the heap; it keeps none */
};

void slab_init(struct slab *slab);
void slab_fini(struct slab *slab); /* frees the free lists; live objects are the caller's fault */
/* 16-byte aligned, not zeroed, never NULL; has a small header. */
void *slab_alloc(struct slab *slab, size_t bytes);
void *slab_zalloc(struct slab *slab, size_t bytes);
void *slab_realloc(struct slab *slab, void *memory, size_t bytes); /* NULL allocates */
void slab_free(struct slab *slab, void *memory); /* NULL is allowed; the size is in the header */
void slab_trim(struct slab *slab); /* give what lay unused since the last call back to the heap */

#endif
