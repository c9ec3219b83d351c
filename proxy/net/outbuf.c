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
    outbuf->open = NULL;
    list_for_each_safe (node, &outbuf->blocks)
        block_free(outbuf, list_entry(node, struct outbuf_block, node));
}

static struct slice *
last_slice(struct outbuf *outbuf)
{
    return &outbuf->slices.items[outbuf->slices.head + outbuf->slices.count - 1];
}

/* The newest block, with a new slice that begins behind its used bytes. */
static void
open_block(struct outbuf *outbuf, const uint8_t *bytes, uint32_t len)
{
    struct outbuf_block *block = NULL;
    if (!list_empty(&outbuf->blocks))
        block = list_entry(outbuf->blocks.prev, struct outbuf_block, node);
    if (!block || block->used == BLOCK_CAP) {
        block = slab_alloc(outbuf->slab, BLOCK_BYTES);
        block->used = 0;
        list_push_back(&outbuf->blocks, &block->node);
    }
    uint32_t room = BLOCK_CAP - block->used, part = len < room ? len : room;
    uint8_t *to = block->data + block->used;
    memcpy(to, bytes, part);
    slices_push(&outbuf->slices, (struct slice){.data = to, .len = part});
    block->used += part;
    block->end = outbuf->queued += part;
    outbuf->open = block;
}

static void
extend_block(struct outbuf *outbuf, const uint8_t *bytes, uint32_t len)
{
    struct outbuf_block *block = outbuf->open;
    memcpy(block->data + block->used, bytes, len);
    last_slice(outbuf)->len += len;
    outbuf->slices.bytes += len;
    block->used += len;
    block->end = outbuf->queued += len;
}

static __attribute__((noinline)) void
add_to_blocks(struct outbuf *outbuf, const uint8_t *from, size_t len)
{
    while (len > 0) {
        uint64_t before = outbuf->queued;
        uint32_t room = outbuf->open ? BLOCK_CAP - outbuf->open->used : 0;
        if (room > 0)
            extend_block(outbuf, from, len < room ? (uint32_t)len : room);
        else
            open_block(outbuf, from, len < BLOCK_CAP ? (uint32_t)len : BLOCK_CAP);
        from += outbuf->queued - before;
        len -= outbuf->queued - before;
    }
}

void
outbuf_add(struct outbuf *outbuf, const void *bytes, size_t len)
{
    if (__builtin_expect(outbuf->open && len <= BLOCK_CAP - outbuf->open->used, 1))
        extend_block(outbuf, bytes, (uint32_t)len);
    else
        add_to_blocks(outbuf, bytes, len);
}

void
outbuf_move(struct outbuf *outbuf, struct slices *from, uint64_t bytes)
{
    check(bytes <= from->bytes);
    if (bytes > OUTBUF_COPY_BYTES) {
        outbuf->open = NULL;
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
    if (outbuf->slices.count == 0)
        outbuf->open = NULL;
    if (outbuf->slices.count == 0 && outbuf->slices.cap > KEPT_ITEMS)
        slices_clear(&outbuf->slices);
    while (!list_empty(&outbuf->blocks)) {
        struct outbuf_block *first = list_first(&outbuf->blocks, struct outbuf_block, node);
        if (first->end > outbuf->taken)
            break;
        block_free(outbuf, first);
    }
}
