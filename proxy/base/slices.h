/*
 * A queue of slices: views of chunk parts, each holding one reference. What bodies are, held or
 * queued. Appending bytes refers to them where they were read, if they are many; else it fills the
 * last chunk's free end where this queue was its only writer (no copy of what is already there,
 * never a realloc). Moving between queues moves references.
 */
#ifndef TRIBUTARY_BASE_SLICES_H
#define TRIBUTARY_BASE_SLICES_H

#include <stdbool.h>

#include "proxy/base/chunk.h"
#include "proxy/base/text.h"

struct slice {
    struct chunk *chunk; /* one reference; NULL: constant bytes that outlive everything */
    const uint8_t *data;
    uint32_t len;
};

enum {
    SLICES_INLINE = 3,
    SLICES_REF_BYTES = 8192, /* pieces of the pool's input from here on are not copied */
};

struct slices {
    struct slice *items; /* inline_items or the heap; `count` used from `head` on (not a ring) */
    uint32_t head, count, cap;
    uint64_t bytes; /* sum of the lengths */
    struct slice inline_items[SLICES_INLINE];
};

/* A queue's address is part of it (inline_items): it must not be copied or moved as a struct. */
static inline void
slices_init(struct slices *queue)
{
    queue->items = queue->inline_items;
    queue->head = queue->count = 0;
    queue->cap = SLICES_INLINE;
    queue->bytes = 0;
}

void slices_release(struct slices *queue); /* slices_clear() of a queue that was used */
/* Puts every chunk; usable again. Most queues that are cleared have nothing. */
static inline void
slices_clear(struct slices *queue)
{
    if (queue->count > 0 || queue->items != queue->inline_items)
        slices_release(queue);
}

static inline void
slices_fini(struct slices *queue)
{
    slices_clear(queue);
}

/* Copy bytes in (long pieces of the pool's input: refer to them), in chunks from the pool sized for
 * body_bytes (0: unknown, or the whole body's expected length). False when the budget ran out (what
 * fitted stays appended: the caller drops the queue). */
bool slices_append(struct slices *queue, struct chunk_pool *pool, const void *bytes, size_t len,
                   uint64_t body_bytes);
/*
 * The same for a piece of a body that passes on at once, so that the queue does not know where the
 * piece before went: chunks are sized for the piece. open: NULL when no other piece waits; else
 * where the chunk stands that the last short one was copied into (one reference, or none yet). It
 * is filled first, and the next is larger; the caller puts it when nothing waits any more.
 * body_bytes: what the budget's last eighth judges by, len at least.
 */
bool slices_append_piece(struct slices *queue, struct chunk_pool *pool, struct chunk **open,
                         const void *bytes, size_t len, uint64_t body_bytes);
void slices_push(struct slices *queue, struct slice slice); /* takes over the slice's reference */
void slices_push_ref(struct slices *queue, struct slice slice);   /* takes a new reference */
void slices_push_front(struct slices *queue, struct slice slice); /* takes over the reference */
/* Move the first `bytes` (<= from->bytes) of `from` to the end of `to`; splits a slice where it
 * must. */
void slices_move(struct slices *to, struct slices *from, uint64_t bytes);
/* Append references to all of `from`, which stays as it is. */
void slices_share(struct slices *to, const struct slices *from);
void slices_drop(struct slices *queue, uint64_t bytes); /* forget the first bytes */
/* Copy the first `len` bytes out without removing them (len <= bytes). */
void slices_peek(const struct slices *queue, void *into, size_t len);
static inline struct slice *
slices_front(struct slices *queue) /* NULL when empty */
{
    return queue->count ? &queue->items[queue->head] : NULL;
}

#endif
