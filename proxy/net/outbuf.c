/* See outbuf.h. A block is freed when the last byte copied into it has been taken: blocks know
 * their end's position. */
#include "proxy/net/outbuf.h"

#include "proxy/base/check.h"

struct outbuf_block {
    struct list node;
    uint64_t end;  /* position, in bytes ever added, behind its last byte */
    uint32_t used; /* bytes of data[] */
    uint8_t data[];
};

enum {
    BLOCK_BYTES = SLAB_MAX - 64, /* the slab has a header in front */
    BLOCK_CAP = BLOCK_BYTES - sizeof(struct outbuf_block),
    KEPT_ITEMS = 64, /* room for slices that an idle connection keeps */
};

void
outbuf_init(struct outbuf *outbuf, struct slab *slab)
{
    *outbuf = (struct outbuf){.slab = slab};
    slices_init(&outbuf->slices);
    list_init(&outbuf->blocks);
}

static void
block_free(struct outbuf *outbuf, struct outbuf_block *block)
{
    list_unlink(&block->node);
    slab_free(outbuf->slab, block);
}

void
outbuf_clear(struct outbuf *outbuf)
{
    slices_clear(&outbuf->slices);
    list_for_each_safe (node, &outbuf->blocks)
        block_free(outbuf, list_entry(node, struct outbuf_block, node));
}

/* The block at the end if it has room, else a new one. */
static struct outbuf_block *
open_block(struct outbuf *outbuf)
{
    if (!list_empty(&outbuf->blocks)) {
        struct outbuf_block *last = list_entry(outbuf->blocks.prev, struct outbuf_block, node);
        if (last->used < BLOCK_CAP)
            return last;
    }
    struct outbuf_block *block = slab_alloc(outbuf->slab, BLOCK_BYTES);
    block->used = 0;
    list_push_back(&outbuf->blocks, &block->node);
    return block;
}

static void
push_bytes(struct outbuf *outbuf, const uint8_t *data, uint32_t len)
{
    struct slices *slices = &outbuf->slices;
    if (slices->count > 0) {
        struct slice *last = &slices->items[slices->head + slices->count - 1];
        if (!last->chunk && last->data + last->len == data) {
            last->len += len;
            slices->bytes += len;
            return;
        }
    }
    slices_push(slices, (struct slice){.data = data, .len = len});
}

void
outbuf_add(struct outbuf *outbuf, const void *bytes, size_t len)
{
    const uint8_t *from = bytes;
    while (len > 0) {
        struct outbuf_block *block = open_block(outbuf);
        uint32_t part = len < BLOCK_CAP - block->used ? (uint32_t)len : BLOCK_CAP - block->used;
        memcpy(block->data + block->used, from, part);
        push_bytes(outbuf, block->data + block->used, part);
        block->used += part;
        outbuf->queued += part;
        block->end = outbuf->queued;
        from += part;
        len -= part;
    }
}

void
outbuf_move(struct outbuf *outbuf, struct slices *from, uint64_t bytes)
{
    check(bytes <= from->bytes);
    if (bytes > OUTBUF_COPY_BYTES) {
        slices_move(&outbuf->slices, from, bytes);
        outbuf->queued += bytes;
        return;
    }
    while (bytes > 0) {
        struct slice *front = slices_front(from);
        uint32_t part = bytes < front->len ? (uint32_t)bytes : front->len;
        outbuf_add(outbuf, front->data, part);
        slices_drop(from, part);
        bytes -= part;
    }
}

unsigned
outbuf_iovecs(const struct outbuf *outbuf, uv_buf_t *buffers, unsigned max, size_t *bytes)
{
    const struct slices *slices = &outbuf->slices;
    unsigned count = slices->count < max ? slices->count : max;
    *bytes = 0;
    for (unsigned i = 0; i < count; i++) {
        const struct slice *slice = &slices->items[slices->head + i];
        buffers[i] = uv_buf_init((char *)slice->data, slice->len);
        *bytes += slice->len;
    }
    return count;
}

void
outbuf_take(struct outbuf *outbuf, size_t bytes)
{
    slices_drop(&outbuf->slices, bytes);
    outbuf->taken += bytes;
    if (outbuf->slices.count == 0 && outbuf->slices.cap > KEPT_ITEMS)
        slices_clear(&outbuf->slices);
    while (!list_empty(&outbuf->blocks)) {
        struct outbuf_block *first = list_first(&outbuf->blocks, struct outbuf_block, node);
        if (first->end > outbuf->taken)
            break;
        block_free(outbuf, first);
    }
}
