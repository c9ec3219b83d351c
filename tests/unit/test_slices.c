/*
 * Slices against a model: every queue is compared with a plain byte array after random appends,
 * pushes, moves, shares, drops. What one queue does must never show in another that shares its
 * chunks.
 */
#include "tests/unit/unit.h"

#include "proxy/base/mem.h"
#include "proxy/base/rng.h"
#include "proxy/base/slices.h"

#define MIB ((uint64_t)1 << 20)

static struct budget budget;
static struct chunk_pool pool;

static int
setup(void **state)
{
    (void)state;
    budget_init(&budget, 256 * MIB);
    chunk_pool_init(&pool, &budget);
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    assert_int_equal(pool.lease.used, 0); /* every reference was put */
    chunk_pool_fini(&pool);
    return 0;
}

static const uint8_t *
pattern(void)
{
    static uint8_t bytes[1 << 20];
    if (!bytes[1])
        for (size_t i = 0; i < sizeof(bytes); i++)
            bytes[i] = (uint8_t)(i * 7 + i / 251);
    return bytes;
}

/* The queue holds exactly these bytes, and its own numbers agree. */
static void
expect_bytes(const struct slices *queue, const uint8_t *bytes, size_t len)
{
    size_t at = 0;
    assert_int_equal(queue->bytes, len);
    for (uint32_t i = 0; i < queue->count; i++) {
        const struct slice *slice = &queue->items[queue->head + i];
        assert_true(slice->len > 0 && at + slice->len <= len);
        assert_memory_equal(slice->data, bytes + at, slice->len);
        at += slice->len;
    }
    assert_int_equal(at, len);
    assert_true(queue->head + queue->count <= queue->cap);
}

static void
append(struct slices *queue, const void *bytes, size_t len, uint64_t body_bytes)
{
    assert_true(slices_append(queue, &pool, bytes, len, body_bytes));
}

static void
empty_queue_has_no_front(void **state)
{
    (void)state;
    struct slices queue;
    slices_init(&queue);
    assert_null(slices_front(&queue));
    append(&queue, NULL, 0, 0);
    slices_drop(&queue, 0);
    slices_peek(&queue, NULL, 0);
    slices_push(&queue, (struct slice){NULL, (const uint8_t *)"x", 0});
    assert_null(slices_front(&queue));
    slices_clear(&queue);
    slices_fini(&queue);
}

static void
small_appends_share_one_chunk(void **state)
{
    (void)state;
    struct slices queue;
    slices_init(&queue);
    for (unsigned i = 0; i < 400; i++)
        append(&queue, pattern() + i, 1, 0);
    assert_int_equal(queue.count, 1);
    assert_int_equal(pool.lease.used, 512);
    expect_bytes(&queue, pattern(), 400);
    slices_fini(&queue);
}

static void
known_length_takes_one_chunk_that_fits(void **state)
{
    (void)state;
    struct slices queue;
    slices_init(&queue);
    append(&queue, pattern(), 10, 2000);
    assert_int_equal(pool.lease.used, 2048);
    append(&queue, pattern() + 10, 1990, 2000);
    assert_int_equal(queue.count, 1);
    expect_bytes(&queue, pattern(), 2000);
    slices_fini(&queue);
}

static void
body_of_a_bit_more_than_20k_takes_no_64k_chunk(void **state)
{
    (void)state;
    struct slices queue;
    slices_init(&queue);
    append(&queue, pattern(), 16384, 16384); /* nor one of 16 KiB two */
    assert_int_equal(queue.count, 1);
    assert_int_equal(pool.lease.used, 20480);
    slices_clear(&queue);
    append(&queue, pattern(), 22000, 22000);
    assert_true(pool.lease.used <= 2 * 20480);
    expect_bytes(&queue, pattern(), 22000);
    slices_clear(&queue);
    append(&queue, pattern(), 60000, 60000);
    assert_int_equal(queue.count, 1);
    slices_fini(&queue);
}

static void
megabyte_in_data_frames_fills_its_chunks(void **state)
{
    (void)state;
    struct slices queue;
    slices_init(&queue);
    for (size_t at = 0; at < MIB; at += 16384)
        append(&queue, pattern() + at, 16384, MIB);
    assert_true(pool.lease.used < MIB + MIB / 32);
    assert_int_equal(queue.count, 17);
    expect_bytes(&queue, pattern(), MIB);
    slices_fini(&queue);
}

static void
queue_that_shares_a_chunk_does_not_see_later_appends(void **state)
{
    (void)state;
    struct slices a, b;
    slices_init(&a);
    slices_init(&b);
    append(&a, "abc", 3, 0);
    slices_share(&b, &a);
    append(&a, "def", 3, 0); /* a was the last to write: fills the same chunk */
    append(&b, "xyz", 3, 0); /* b is not any more: another chunk */
    assert_int_equal(a.count, 1);
    assert_int_equal(b.count, 2);
    expect_bytes(&a, (const uint8_t *)"abcdef", 6);
    expect_bytes(&b, (const uint8_t *)"abcxyz", 6);
    slices_fini(&a);
    expect_bytes(&b, (const uint8_t *)"abcxyz", 6);
    slices_fini(&b);
}

static void
cut_slice_is_not_written_behind(void **state)
{
    (void)state;
    struct slices a, b;
    slices_init(&a);
    slices_init(&b);
    append(&a, "abcdef", 6, 0);
    slices_move(&b, &a, 3);
    append(&b, "xyz", 3, 0); /* "def" lies behind b's part */
    expect_bytes(&a, (const uint8_t *)"def", 3);
    expect_bytes(&b, (const uint8_t *)"abcxyz", 6);
    slices_fini(&a);
    slices_fini(&b);
}

static void
parts_of_a_chunk_that_meet_again_become_one(void **state)
{
    (void)state;
    struct slices a, b;
    slices_init(&a);
    slices_init(&b);
    append(&a, pattern(), 300, 0);
    slices_move(&b, &a, 100);
    slices_move(&b, &a, 150);
    slices_move(&b, &a, 50);
    assert_int_equal(b.count, 1);
    assert_int_equal(slices_front(&b)->chunk->refs, 1);
    expect_bytes(&b, pattern(), 300);
    slices_fini(&a);
    slices_fini(&b);
}

static void
constants_need_no_chunk(void **state)
{
    (void)state;
    static const uint8_t constant[] = "constant";
    struct slices a, b;
    slices_init(&a);
    slices_init(&b);
    slices_push(&a, (struct slice){NULL, constant, 8});
    append(&a, "+", 1, 0);
    slices_push_front(&a, (struct slice){NULL, constant, 3});
    expect_bytes(&a, (const uint8_t *)"conconstant+", 12);
    slices_share(&b, &a);
    slices_move(&b, &a, 5);
    slices_drop(&a, 5);
    expect_bytes(&a, (const uint8_t *)"t+", 2);
    expect_bytes(&b, (const uint8_t *)"conconstant+conco", 17);
    slices_fini(&a);
    slices_fini(&b);
}

static void
pushing_takes_over_or_adds_a_reference(void **state)
{
    (void)state;
    struct slices queue;
    slices_init(&queue);
    struct chunk *chunk = chunk_get(&pool, 100, 0);
    memcpy(chunk->data, "0123456789", 10);
    chunk->used = 10;
    slices_push_ref(&queue, (struct slice){chunk, chunk->data, 5});
    assert_int_equal(chunk->refs, 2);
    slices_push_ref(&queue, (struct slice){chunk, chunk->data + 7, 3});
    assert_int_equal(chunk->refs, 3);
    slices_push_ref(&queue, (struct slice){chunk, chunk->data, 0});
    assert_int_equal(chunk->refs, 3);
    slices_push_front(&queue, (struct slice){chunk, chunk->data + 9, 1});
    assert_int_equal(chunk->refs, 3);
    expect_bytes(&queue, (const uint8_t *)"901234789", 9);
    slices_fini(&queue);
}

static void
budget_that_runs_out_keeps_what_fitted(void **state)
{
    (void)state;
    struct budget small;
    struct chunk_pool tight;
    struct slices queue;
    budget_init(&small, 4 * 65536);
    chunk_pool_init(&tight, &small);
    slices_init(&queue);
    assert_false(slices_append(&queue, &tight, pattern(), MIB, MIB));
    assert_true(queue.bytes > 65536 && queue.bytes < 4 * 65536);
    expect_bytes(&queue, pattern(), queue.bytes);
    slices_clear(&queue);
    assert_int_equal(tight.lease.used, 0);
    assert_true(slices_append(&queue, &tight, pattern(), 10000, 10000));
    slices_fini(&queue);
    chunk_pool_fini(&tight);
}

static void
body_of_unknown_length_may_not_grow_in_the_last_eighth(void **state)
{
    (void)state;
    struct budget small;
    struct chunk_pool tight;
    struct slices large, unknown;
    budget_init(&small, 16 * 65536);
    chunk_pool_init(&tight, &small);
    slices_init(&large);
    slices_init(&unknown);
    for (struct chunk *chunk; (chunk = chunk_get(&tight, 1, MIB));)
        slices_push(&large, (struct slice){chunk, chunk->data, 1});
    uint64_t taken = 0;
    while (slices_append(&unknown, &tight, pattern() + taken, 1000, 0))
        taken += 1000;
    assert_in_range(taken, 16000, 18000); /* about what a known one might have */
    slices_fini(&large);
    slices_fini(&unknown);
    chunk_pool_fini(&tight);
}

static void
piece_of_a_long_body_takes_no_more_than_the_piece_needs(void **state)
{
    (void)state;
    static const uint8_t frame[16384];
    struct slices queue;
    struct chunk *open = NULL;
    slices_init(&queue);
    assert_true(slices_append_piece(&queue, &pool, &open, frame, sizeof(frame), 1 << 20));
    assert_int_equal(queue.bytes, sizeof(frame));
    assert_true(pool.lease.used <= 20480); /* not a 64K chunk for each DATA frame */
    assert_null(open);
    slices_clear(&queue);
}

/* 30 000 bytes, each piece moved on to where it waits: 2048 one by one, then in pieces that no
 * chunk but the largest holds twice. */
static void
short_pieces_that_wait_elsewhere_share_their_chunks(void **state)
{
    (void)state;
    struct slices queue, waiting;
    struct chunk *open = NULL;
    slices_init(&queue);
    slices_init(&waiting);
    for (size_t at = 0, len; at < 30000; at += len) {
        len = at < 2048 ? 1 : 2100;
        assert_true(slices_append_piece(&queue, &pool, &open, pattern() + at, len, len));
        slices_move(&waiting, &queue, len);
    }
    expect_bytes(&waiting, pattern(), waiting.bytes);
    assert_in_range(waiting.bytes, 30000, 32100);
    assert_int_equal(pool.lease.used, 512 + 2048 + 2 * 20480);
    assert_true(waiting.count <= 8);
    slices_clear(&waiting);
    assert_int_equal(pool.lease.used, 20480); /* the open one */
    chunk_put(open);
}

static void
queue_used_as_a_pipe_does_not_grow(void **state)
{
    (void)state;
    struct slices queue;
    slices_init(&queue);
    uint64_t in = 0, out = 0;
    for (unsigned i = 0; i < 20000; i++) {
        append(&queue, pattern() + in % 1000, 600, 0);
        in += 600;
        if (i >= 5) {
            uint8_t bytes[600];
            slices_peek(&queue, bytes, 600);
            assert_memory_equal(bytes, pattern() + out % 1000, 600);
            slices_drop(&queue, 600);
            out += 600;
        }
    }
    assert_true(queue.cap <= 32);
    slices_fini(&queue);
}

/* The model: a queue and the bytes it should hold. */
enum { QUEUES = 4, MODEL_MAX = 300000 };

struct model {
    struct slices queue;
    uint8_t *bytes;
    size_t len;
};

static struct model models[QUEUES];

static void
model_add(struct model *model, const uint8_t *bytes, size_t len)
{
    memmove(model->bytes + model->len, bytes, len);
    model->len += len;
}

static void
model_drop(struct model *model, size_t len)
{
    model->len -= len;
    memmove(model->bytes, model->bytes + len, model->len);
}

static void
random_step(struct rng *rng)
{
    unsigned a = rng_below(rng, QUEUES), b = (a + 1 + rng_below(rng, QUEUES - 1)) % QUEUES;
    struct model *to = &models[a], *from = &models[b];
    const uint8_t *bytes = pattern() + rng_below(rng, 1 << 19);
    size_t len = rng_below(rng, 1u << rng_below(rng, 17));
    size_t part = from->len ? rng_next(rng) % (from->len + 1) : 0;
    switch (rng_below(rng, 9)) {
    case 0:
    case 1:
    case 2:
        append(&to->queue, bytes, len, rng_below(rng, 2) ? 0 : len + rng_below(rng, 100000));
        model_add(to, bytes, len);
        break;
    case 3:
        slices_push(&to->queue, (struct slice){NULL, bytes, (uint32_t)len});
        model_add(to, bytes, len);
        break;
    case 4:
        slices_push_front(&to->queue, (struct slice){NULL, bytes, (uint32_t)len});
        memmove(to->bytes + len, to->bytes, to->len);
        memcpy(to->bytes, bytes, len);
        to->len += len;
        break;
    case 5:
        slices_move(&to->queue, &from->queue, part);
        model_add(to, from->bytes, part);
        model_drop(from, part);
        break;
    case 6:
        slices_share(&to->queue, &from->queue);
        model_add(to, from->bytes, from->len);
        break;
    case 7:
        slices_drop(&from->queue, part);
        model_drop(from, part);
        break;
    case 8: {
        uint8_t *copy = mem_alloc(part);
        slices_peek(&from->queue, copy, part);
        assert_memory_equal(copy, from->bytes, part);
        mem_free(copy);
        break;
    }
    }
}

static void
random_operations_agree_with_plain_byte_arrays(void **state)
{
    (void)state;
    struct rng rng;
    rng_seed(&rng, 2026);
    for (unsigned i = 0; i < QUEUES; i++) {
        slices_init(&models[i].queue);
        models[i].bytes = mem_alloc(2 * MODEL_MAX + (1 << 17));
        models[i].len = 0;
    }
    for (unsigned step = 0; step < 20000; step++) {
        random_step(&rng);
        for (unsigned i = 0; i < QUEUES; i++) {
            expect_bytes(&models[i].queue, models[i].bytes, models[i].len);
            if (models[i].len > MODEL_MAX) {
                slices_clear(&models[i].queue);
                models[i].len = 0;
            }
        }
    }
    for (unsigned i = 0; i < QUEUES; i++) {
        slices_fini(&models[i].queue);
        mem_free(models[i].bytes);
    }
}

static void
long_pieces_of_the_input_are_not_copied_and_short_ones_are(void **state)
{
    (void)state;
    struct slices queue;
    size_t room_bytes;
    slices_init(&queue);
    uint8_t *room = chunk_input(&pool, &room_bytes);
    memcpy(room, pattern(), 20000);
    assert_true(slices_append(&queue, &pool, room, SLICES_REF_BYTES - 1, 0));
    assert_true(queue.items[0].data != room);
    assert_true(slices_append(&queue, &pool, room + SLICES_REF_BYTES - 1, SLICES_REF_BYTES, 0));
    assert_ptr_equal(queue.items[1].data, room + SLICES_REF_BYTES - 1);
    chunk_input_done(&pool, 20000);
    /* What is read and appended next must not touch it. */
    uint8_t *next = chunk_input(&pool, &room_bytes);
    memset(next, 0xee, room_bytes);
    assert_true(slices_append(&queue, &pool, pattern() + 2 * SLICES_REF_BYTES - 1, 300, 0));
    expect_bytes(&queue, pattern(), 2 * SLICES_REF_BYTES - 1 + 300);
    slices_clear(&queue);
}

/* A reference pins the whole input: from a quarter of the budget on that is for long bodies only.
 */
static void
short_bodies_do_not_pin_the_input_once_a_quarter_of_the_budget_is_used(void **state)
{
    (void)state;
    struct budget small;
    struct chunk_pool tight;
    struct slices others, queue;
    size_t room_bytes;
    budget_init(&small, 4 << 20);
    chunk_pool_init(&tight, &small);
    slices_init(&others);
    slices_init(&queue);
    uint8_t *room = chunk_input(&tight, &room_bytes);
    memcpy(room, pattern(), 16000);
    assert_true(slices_append(&queue, &tight, room, 16000, 0));
    assert_ptr_equal(queue.items[0].data, room);
    slices_clear(&queue);
    for (unsigned i = 0; i < 16; i++) {
        struct chunk *chunk = chunk_get(&tight, CHUNK_64K_CAP, 0);
        slices_push(&others, (struct slice){chunk, chunk->data, 1});
    }
    assert_true(slices_append(&queue, &tight, room, 16000, 0));
    assert_true(queue.items[0].data != room);
    expect_bytes(&queue, pattern(), 16000);
    slices_clear(&queue);
    assert_true(slices_append(&queue, &tight, room, 16000, 100000));
    assert_ptr_equal(queue.items[0].data, room);
    slices_clear(&queue);
    slices_clear(&others);
    chunk_pool_fini(&tight);
}

int
main(void)
{
#define WITH_POOL(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
    const struct CMUnitTest tests[] = {
        WITH_POOL(empty_queue_has_no_front),
        WITH_POOL(small_appends_share_one_chunk),
        WITH_POOL(known_length_takes_one_chunk_that_fits),
        WITH_POOL(body_of_a_bit_more_than_20k_takes_no_64k_chunk),
        WITH_POOL(megabyte_in_data_frames_fills_its_chunks),
        WITH_POOL(queue_that_shares_a_chunk_does_not_see_later_appends),
        WITH_POOL(cut_slice_is_not_written_behind),
        WITH_POOL(parts_of_a_chunk_that_meet_again_become_one),
        WITH_POOL(constants_need_no_chunk),
        WITH_POOL(pushing_takes_over_or_adds_a_reference),
        WITH_POOL(budget_that_runs_out_keeps_what_fitted),
        WITH_POOL(body_of_unknown_length_may_not_grow_in_the_last_eighth),
        WITH_POOL(piece_of_a_long_body_takes_no_more_than_the_piece_needs),
        WITH_POOL(short_pieces_that_wait_elsewhere_share_their_chunks),
        WITH_POOL(queue_used_as_a_pipe_does_not_grow),
        WITH_POOL(random_operations_agree_with_plain_byte_arrays),
        WITH_POOL(long_pieces_of_the_input_are_not_copied_and_short_ones_are),
        WITH_POOL(short_bodies_do_not_pin_the_input_once_a_quarter_of_the_budget_is_used),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
