/*
 * gzip of whole messages. The first byte picks the slice length and the limit. The same result on
 * every split, never more than the limit, no chunk lost, and what came out is the same when it is
 * compressed and inflated again.
 */
#include "fuzz.h"

#include <errno.h>

#include "proxy/wire/encoding.h"

enum { SMALL_LIMIT = 100, LARGE_LIMIT = 256 * 1024 };

static struct budget budget;

/* Slices of constant bytes: they refer to a copy that the caller frees. */
static void
split(struct slices *queue, const uint8_t *data, size_t size, size_t step)
{
    slices_init(queue);
    for (size_t at = 0; at < size; at += step)
        slices_push(queue, (struct slice){NULL, data + at,
                                          (uint32_t)(size - at < step ? size - at : step)});
}

static uint8_t *
flat(const struct slices *queue)
{
    uint8_t *bytes = malloc(queue->bytes + 1);

    check(bytes != NULL);
    slices_peek(queue, bytes, queue->bytes);
    return bytes;
}

static void
check_same(const struct slices *a, const struct slices *b)
{
    uint8_t *left = flat(a), *right = flat(b);

    check(a->bytes == b->bytes && memcmp(left, right, a->bytes) == 0);
    free(left);
    free(right);
}

static void
check_packed_again(struct chunk_pool *pool, const struct slices *plain)
{
    struct slices packed, back;

    slices_init(&packed);
    slices_init(&back);
    check(encoding_gzip(pool, plain, &packed, 1) == 0);
    check(encoding_gunzip(pool, &packed, &back, plain->bytes) == 0);
    check_same(plain, &back);
    slices_fini(&packed);
    slices_fini(&back);
}

static void
inflate_both(struct chunk_pool *pool, const struct slices *whole, const struct slices *parts,
             uint64_t limit)
{
    struct slices first, second;
    int result;

    slices_init(&first);
    slices_init(&second);
    result = encoding_gunzip(pool, whole, &first, limit);
    check(result == 0 || result == -EINVAL || result == -EFBIG);
    check(encoding_gunzip(pool, parts, &second, limit) == result);
    check(first.bytes <= limit && (result == 0 || first.bytes == 0));
    check_same(&first, &second);
    if (result == 0)
        check_packed_again(pool, &first);
    slices_fini(&first);
    slices_fini(&second);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct chunk_pool pool;
    struct slices whole, parts;

    if (size == 0)
        return 0;

    uint8_t *copy = fuzz_copy(data + 1, size - 1);

    budget_init(&budget, (uint64_t)16 << 20);
    chunk_pool_init(&pool, &budget);
    split(&whole, copy, size - 1, size);
    split(&parts, copy, size - 1, (size_t)(data[0] >> 1) + 1);
    inflate_both(&pool, &whole, &parts, data[0] & 1 ? SMALL_LIMIT : LARGE_LIMIT);
    slices_fini(&whole);
    slices_fini(&parts);
    check(pool.lease.used == 0);
    chunk_pool_fini(&pool);
    free(copy);
    return 0;
}
