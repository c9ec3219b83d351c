/*
 * Bytes on their way to one socket: copied protocol bytes and chunk references, in order.
 *
 * Small pieces are copied into blocks of its own (from the slab, outside the budget: frame heads
 * must never fail), so that many of them make few iovecs; larger ones stay references to the chunks
 * they came in. Both are held until the kernel has them. One thread. Not the socket: conn_write.c
 * and tls.c take from it.
 */
#ifndef TRIBUTARY_NET_OUTBUF_H
#define TRIBUTARY_NET_OUTBUF_H

#include <uv.h>

#include "proxy/base/list.h"
#include "proxy/base/slab.h"
#include "proxy/base/slices.h"

/* up to this a body is cheaper to copy than to give an iovec of its own */
enum { OUTBUF_COPY_BYTES = 512 };

struct outbuf {
    struct slab *slab;
    struct slices slices; /* what waits; slices without chunk point into blocks */
    struct list blocks;   /* memory of copied bytes, oldest first */
    /* The newest block while the last of `slices` ends where its used bytes do; else NULL. */
    struct outbuf_block *open;
    uint64_t queued; /* bytes ever added */
    uint64_t taken;  /* bytes ever taken off the front */
};

void outbuf_init(struct outbuf *outbuf, struct slab *slab);
/* drops what waits (it never counts as taken); usable again */
void outbuf_clear(struct outbuf *outbuf);
void outbuf_add(struct outbuf *outbuf, const void *bytes, size_t len); /* copied */
/* The first `bytes` of `from`: references move, short bodies are copied. */
void outbuf_move(struct outbuf *outbuf, struct slices *from, uint64_t bytes);
/* What waits, from the front, as at most `max` buffers; their number, and their bytes in *bytes. */
unsigned outbuf_iovecs(const struct outbuf *outbuf, uv_buf_t *buffers, unsigned max, size_t *bytes);
/* the first bytes are done with: let go of their memory */
void outbuf_take(struct outbuf *outbuf, size_t bytes);

#endif
