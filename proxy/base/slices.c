/*
 * Queues of slices: how bodies are held, shared, moved and cut without copying.
 *
 * A queue owns one reference per slice that has a chunk, and its item array. Items used are
 * items[head … head+count); taking from the front moves `head`, room at the front is reclaimed when
 * the array is full and half of it is dead, so that both ends are cheap on average. A queue without
 * slices has no bytes, and the reverse: empty slices are never kept. Failure: only slices_append()
 * can run out of budget.
 */
#include "proxy/base/slices.h"

#include "proxy/base/check.h"
#include "proxy/base/mem.h"

static void
put_slice(struct slice slice)
{
    if (slice.chunk)
        chunk_put(slice.chunk);
}

static void
ref_slice(struct slice slice)
{
    if (slice.chunk)
        chunk_ref(slice.chunk);
}

static void
free_items(struct slices *queue)
{
    if (queue->items != queue->inline_items)
        mem_free(queue->items);
}

void
slices_release(struct slices *queue)
{
    for (const struct slice *item = queue->items + queue->head, *end = item + queue->count;
         item < end; item++)
        if (item->chunk)
            chunk_put(item->chunk);
    free_items(queue);
    slices_init(queue);
}

static void
to_front(struct slices *queue)
{
    memmove(queue->items, queue->items + queue->head, queue->count * sizeof(*queue->items));
    queue->head = 0;
}

/* One free item at the end. */
static __attribute__((noinline)) void
make_room(struct slices *queue)
{
    if (queue->head >= (queue->cap + 1) / 2) {
        to_front(queue);
        return;
    }
    uint32_t cap = queue->cap < 8 ? 8 : queue->cap * 2;
    struct slice *items = mem_alloc(cap * sizeof(*items));
    memcpy(items, queue->items + queue->head, queue->count * sizeof(*items));
    free_items(queue);
    queue->items = items;
    queue->head = 0;
    queue->cap = cap;
}

static struct slice *
last_slice(struct slices *queue)
{
    return queue->count ? &queue->items[queue->head + queue->count - 1] : NULL;
}

/*
 * The new last item. Its fields are stored one by one, here and by callers, never as a struct built
 * elsewhere: a vector load of what was just stored in halves stalls, and cost more than all the
 * rest of an append.
 */
static inline __attribute__((always_inline)) void
push_item(struct slices *queue, struct chunk *chunk, const uint8_t *data, uint32_t len)
{
    if (__builtin_expect(queue->head + queue->count == queue->cap, 0))
        make_room(queue);
    struct slice *item = &queue->items[queue->head + queue->count++];
    item->chunk = chunk;
    item->data = data;
    item->len = len;
    queue->bytes += len;
}

/* Parts of one chunk that follow each other become one slice: one reference, one iovec. */
static bool
joins(const struct slice *last, const struct chunk *chunk, const uint8_t *data)
{
    return last && chunk && last->chunk == chunk && last->data + last->len == data;
}

/* Takes over the reference; len > 0. */
static inline __attribute__((always_inline)) void
push_or_join(struct slices *queue, struct chunk *chunk, const uint8_t *data, uint32_t len)
{
    struct slice *last = last_slice(queue);
    if (joins(last, chunk, data)) {
        last->len += len;
        queue->bytes += len;
        chunk_put(chunk);
    } else {
        push_item(queue, chunk, data, len);
    }
}

void
slices_push(struct slices *queue, struct slice slice)
{
    if (slice.len > 0)
        push_or_join(queue, slice.chunk, slice.data, slice.len);
    else
        put_slice(slice);
}

void
slices_push_ref(struct slices *queue, struct slice slice)
{
    ref_slice(slice);
    slices_push(queue, slice);
}

void
slices_push_front(struct slices *queue, struct slice slice)
{
    if (slice.len == 0) {
        put_slice(slice);
        return;
    }
    if (queue->head == 0) {
        if (queue->count == queue->cap)
            make_room(queue);
        memmove(queue->items + 1, queue->items, queue->count * sizeof(*queue->items));
        queue->head = 1;
    }
    queue->items[--queue->head] = slice;
    queue->count++;
    queue->bytes += slice.len;
}

/* The first slice leaves the array; its reference is the caller's. */
static void
pop_front(struct slices *queue)
{
    queue->bytes -= queue->items[queue->head].len;
    queue->count--;
    queue->head = queue->count ? queue->head + 1 : 0;
}

static void
advance_front(struct slices *queue, uint32_t bytes)
{
    struct slice *front = &queue->items[queue->head];
    front->data += bytes;
    front->len -= bytes;
    queue->bytes -= bytes;
}

void
slices_move(struct slices *to, struct slices *from, uint64_t bytes)
{
    check(bytes <= from->bytes && to != from);
    while (bytes > 0) {
        const struct slice *front = &from->items[from->head];
        struct chunk *chunk = front->chunk;
        const uint8_t *data = front->data;
        uint32_t len = front->len;
        if (len > bytes) {
            len = (uint32_t)bytes;
            advance_front(from, len);
            if (chunk)
                chunk_ref(chunk);
        } else {
            pop_front(from);
        }
        bytes -= len;
        push_or_join(to, chunk, data, len);
    }
}

void
slices_share(struct slices *to, const struct slices *from)
{
    check(to != from);
    for (uint32_t i = 0; i < from->count; i++)
        slices_push_ref(to, from->items[from->head + i]);
}

void
slices_drop(struct slices *queue, uint64_t bytes)
{
    check(bytes <= queue->bytes);
    while (bytes > 0) {
        struct chunk *chunk = queue->items[queue->head].chunk;
        uint32_t len = queue->items[queue->head].len;
        if (len > bytes) {
            advance_front(queue, (uint32_t)bytes);
            return;
        }
        bytes -= len;
        pop_front(queue);
        if (chunk)
            chunk_put(chunk);
    }
}

void
slices_peek(const struct slices *queue, void *into, size_t len)
{
    uint8_t *out = into;
    check(len <= queue->bytes);
    for (const struct slice *item = queue->items + queue->head; len > 0; item++) {
        size_t part = item->len < len ? item->len : len;
        memcpy(out, item->data, part);
        out += part;
        len -= part;
    }
}

/* Copies what fits behind what is written; returns how much that was. */
static inline size_t
fill_chunk(struct chunk *chunk, const uint8_t *bytes, size_t len)
{
    size_t room = chunk->cap - chunk->used, part = len < room ? len : room;
    memcpy(chunk->data + chunk->used, bytes, part);
    chunk->used += (uint32_t)part;
    return part;
}

/*
 * Fill the free end of the last chunk; returns how many bytes went there. Only when the last slice
 * ends where the chunk does: then nobody, here or in another queue that shares the chunk, has bytes
 * behind it.
 */
static size_t
fill_last(struct slices *queue, const uint8_t *bytes, size_t len)
{
    struct slice *last = last_slice(queue);
    if (!last || !last->chunk)
        return 0;
    struct chunk *chunk = last->chunk;
    if (last->data + last->len != chunk->data + chunk->used)
        return 0;
    size_t part = fill_chunk(chunk, bytes, len);
    last->len += (uint32_t)part;
    queue->bytes += part;
    return part;
}

/*
 * What to ask the pool for when `ahead` bytes are still to come: bodies of a bit more than 20K take
 * two of those chunks, not a 64K one that stays mostly empty.
 */
static size_t
chunk_want(uint64_t ahead)
{
    if (ahead > CHUNK_20K_CAP && ahead <= 2 * CHUNK_20K_CAP)
        return CHUNK_20K_CAP;
    return ahead < CHUNK_64K_CAP ? (size_t)ahead : CHUNK_64K_CAP;
}

/*
 * Bytes of the pool's input: a reference instead of a copy, where the piece is long enough to be
 * worth a slice of its own. It pins the whole input, of which the rest may be long gone: that is
 * only for bodies that fill chunks themselves, or while there is room.
 */
static __attribute__((noinline)) bool
append_ref(struct slices *queue, struct chunk_pool *pool, const uint8_t *bytes, size_t len,
           uint64_t body_bytes)
{
    if (body_bytes < CHUNK_64K_CAP && budget_pressure(&pool->lease) != BUDGET_ROOMY)
        return false;
    struct chunk *input = chunk_input_ref(pool, bytes, body_bytes);
    if (input)
        push_or_join(queue, input, bytes, (uint32_t)len);
    return input;
}

/* `ahead` bytes will come to this queue, these included. */
static bool
append_copy(struct slices *queue, struct chunk_pool *pool, const uint8_t *from, size_t len,
            uint64_t ahead, uint64_t body_bytes)
{
    size_t part = fill_last(queue, from, len);
    for (from += part, len -= part, ahead -= part; len > 0;
         from += part, len -= part, ahead -= part) {
        struct chunk *chunk = chunk_get(pool, chunk_want(ahead), body_bytes);
        if (!chunk)
            return false;
        part = fill_chunk(chunk, from, len);
        push_item(queue, chunk, chunk->data, (uint32_t)part);
    }
    return true;
}

bool
slices_append(struct slices *queue, struct chunk_pool *pool, const void *bytes, size_t len,
              uint64_t body_bytes)
{
    uint64_t end = queue->bytes + len;
    if (body_bytes < end)
        body_bytes = end;
    if (__builtin_expect(len >= SLICES_REF_BYTES, 0) &&
        append_ref(queue, pool, bytes, len, body_bytes))
        return true;
    return append_copy(queue, pool, bytes, len, body_bytes - queue->bytes, body_bytes);
}

/* The same as fill_last() for a chunk whose last slice has gone on: its holder alone writes. */
static size_t
fill_open(struct slices *queue, struct chunk *chunk, const uint8_t *bytes, size_t len)
{
    const uint8_t *begin = chunk->data + chunk->used;
    size_t part = fill_chunk(chunk, bytes, len);
    if (part > 0)
        push_or_join(queue, chunk_ref(chunk), begin, (uint32_t)part);
    return part;
}

/* Behind a full chunk a larger one, for more of the kind: four times, which is the next class. */
static size_t
after_open(const struct chunk *open, size_t len)
{
    if (!open)
        return len;
    size_t more = open->cap < CHUNK_20K_CAP / 4 ? 4 * open->cap : CHUNK_20K_CAP;
    return more > len ? more : len;
}

bool
slices_append_piece(struct slices *queue, struct chunk_pool *pool, struct chunk **open,
                    const void *bytes, size_t len, uint64_t body_bytes)
{
    const uint8_t *from = bytes;
    if (len >= SLICES_REF_BYTES && append_ref(queue, pool, from, len, body_bytes))
        return true;
    if (__builtin_expect(!open, 1) || len >= SLICES_REF_BYTES)
        return append_copy(queue, pool, from, len, len, body_bytes);
    size_t part = *open ? fill_open(queue, *open, from, len) : 0;
    if (part == len)
        return true;
    len -= part;
    if (!append_copy(queue, pool, from + part, len, after_open(*open, len), body_bytes))
        return false;
    if (*open)
        chunk_put(*open);
    *open = chunk_ref(last_slice(queue)->chunk);
    return true;
}
