/* Chunks: classes, references, the free lists' bounds, the budget's last eighth. */
#include "tests/unit/unit.h"

#include "proxy/base/chunk.h"
#include "proxy/base/rng.h"

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
    chunk_pool_fini(&pool); /* checks that all chunks are back */
    assert_int_equal(budget.leased, 0);
    return 0;
}

static const uint32_t class_bytes[CHUNK_CLASSES] = {512, 2048, 20480, 65536};

static void
smallest_class_that_holds_the_bytes(void **state)
{
    (void)state;
    for (unsigned i = 0; i < CHUNK_CLASSES; i++) {
        uint32_t cap = class_bytes[i] - (uint32_t)sizeof(struct chunk);
        assert_int_equal(chunk_class_cap(i), cap);
        struct chunk *fits = chunk_get(&pool, cap, 0), *over = chunk_get(&pool, cap + 1, 0);
        assert_int_equal(fits->cap, cap);
        assert_int_equal(fits->used, 0);
        assert_int_equal(fits->refs, 1);
        assert_int_equal(over->size_class, i < CHUNK_CLASSES - 1 ? i + 1 : i);
        memset(fits->data, 1, fits->cap); /* the sanitizer looks on */
        memset(over->data, 1, over->cap);
        chunk_put(fits);
        chunk_put(over);
    }
    struct chunk *none = chunk_get(&pool, 0, 0), *all = chunk_get(&pool, SIZE_MAX, 0);
    assert_int_equal(none->size_class, 0);
    assert_int_equal(all->size_class, CHUNK_CLASSES - 1);
    chunk_put(none);
    chunk_put(all);
}

static void
counts_in_the_budget_from_taken_to_last_reference(void **state)
{
    (void)state;
    struct chunk *chunk = chunk_get(&pool, 1000, 0);
    assert_int_equal(pool.lease.used, 2048);
    assert_ptr_equal(chunk_ref(chunk), chunk);
    chunk_put(chunk);
    assert_int_equal(pool.lease.used, 2048);
    chunk_put(chunk);
    assert_int_equal(pool.lease.used, 0);
}

static void
put_chunk_is_used_again(void **state)
{
    (void)state;
    struct chunk *first = chunk_get(&pool, 5000, 0);
    first->used = 77;
    chunk_put(first);
    struct chunk *second = chunk_get(&pool, 5000, 0);
    assert_ptr_equal(first, second);
    assert_int_equal(second->used, 0);
    assert_int_equal(second->refs, 1);
    assert_int_equal(pool.allocations, 1);
    chunk_put(second);
}

static void
take_and_put(unsigned count, size_t bytes)
{
    struct chunk **all = test_malloc(count * sizeof(*all));
    for (unsigned i = 0; i < count; i++) {
        all[i] = chunk_get(&pool, bytes, 0);
        assert_non_null(all[i]);
        all[i]->data[0] = 1;
    }
    for (unsigned i = 0; i < count; i++)
        chunk_put(all[i]);
    test_free(all);
}

static void
burst_is_given_back_by_trimming(void **state)
{
    (void)state;
    for (unsigned i = 0; i < CHUNK_CLASSES; i++) {
        take_and_put(200, chunk_class_cap(i));
        chunk_pool_trim(&pool); /* this interval had them all in use */
        assert_int_equal(pool.free_count[i], 200);
        chunk_pool_trim(&pool); /* in this one they lay there */
        assert_true(pool.free_count[i] * class_bytes[i] <= 128 * 1024);
        assert_true(pool.free_count[i] > 0);
    }
    assert_int_equal(budget.leased, 0);
}

static void
what_steady_load_uses_survives_trimming(void **state)
{
    (void)state;
    take_and_put(100, 16000);
    for (unsigned second = 0; second < 10; second++) {
        take_and_put(100, 16000);
        chunk_pool_trim(&pool);
    }
    assert_int_equal(pool.allocations, 100);
    for (unsigned second = 0; second < 3; second++) {
        take_and_put(40, 16000);
        chunk_pool_trim(&pool);
    }
    take_and_put(40, 16000);
    assert_int_equal(pool.allocations, 100);
    assert_true(pool.free_count[2] <= 48);
}

static void
free_lists_are_bounded_by_their_part_of_the_budget(void **state)
{
    (void)state;
    take_and_put(3000, 60000); /* 188 MiB at once */
    assert_int_equal(pool.free_count[3], 256 * MIB / 2 / 65536);
    take_and_put(40000, 100);
    assert_int_equal(pool.free_count[0], 256 * MIB / 16 / 512);
}

static void
much_that_lies_unused_is_given_back_in_several_steps(void **state)
{
    (void)state;
    struct budget large;
    struct chunk_pool wide;
    enum { CHUNKS = 5000 };
    struct chunk **all = test_malloc(CHUNKS * sizeof(*all));
    budget_init(&large, 1024 * MIB);
    chunk_pool_init(&wide, &large);
    for (unsigned i = 0; i < CHUNKS; i++)
        assert_non_null(all[i] = chunk_get(&wide, CHUNK_64K_CAP, 0));
    for (unsigned i = 0; i < CHUNKS; i++)
        chunk_put(all[i]);
    assert_false(chunk_pool_trim(&wide)); /* in use until now */
    assert_true(chunk_pool_trim(&wide));
    assert_int_equal(wide.free_count[3], CHUNKS - 2048); /* 128 MiB: the loop waits for no more */
    assert_true(chunk_pool_trim(&wide));
    assert_false(chunk_pool_trim(&wide));
    assert_in_range(wide.free_count[3], 1, 2);
    chunk_pool_fini(&wide);
    test_free(all);
}

static void
no_budget_gives_null_and_takes_nothing(void **state)
{
    (void)state;
    struct budget small;
    struct chunk_pool tight;
    budget_init(&small, 1024);
    chunk_pool_init(&tight, &small);
    assert_null(chunk_get(&tight, 1000, 0)); /* a 2K chunk */
    struct chunk *a = chunk_get(&tight, 100, 0), *b = chunk_get(&tight, 100, 0);
    assert_non_null(a);
    assert_non_null(b);
    assert_null(chunk_get(&tight, 100, 0));
    chunk_put(a);
    a = chunk_get(&tight, 100, 0);
    assert_non_null(a);
    chunk_put(a);
    chunk_put(b);
    chunk_pool_fini(&tight);
}

static void
last_eighth_serves_bodies_up_to_16k_only(void **state)
{
    (void)state;
    struct budget small;
    struct chunk_pool tight;
    struct chunk *large[16], *chunk;
    unsigned count = 0, more = 0;
    budget_init(&small, 16 * 65536);
    chunk_pool_init(&tight, &small);
    while (count < 16 && (large[count] = chunk_get(&tight, 60000, MIB)))
        count++;
    assert_int_equal(count, 13); /* the fourteenth would begin the last eighth */
    assert_null(chunk_get(&tight, 60000, 0));
    assert_int_equal(tight.lease.peak, 13 * 65536); /* a refused one was never taken */
    struct chunk *held[12];
    while (more < 12 && (chunk = chunk_get(&tight, 16000, CHUNK_LAST_BODY)))
        held[more++] = chunk;
    assert_int_equal(more, 9); /* down to less than one more */
    assert_null(chunk_get(&tight, 16000, CHUNK_LAST_BODY));
    for (unsigned i = 0; i < count; i++)
        chunk_put(large[i]);
    for (unsigned i = 0; i < more; i++)
        chunk_put(held[i]);
    chunk_pool_fini(&tight);
}

/* Random gets, refs and puts; every chunk is filled with its own byte and must keep it. */
static void
chunks_in_use_never_share_bytes(void **state)
{
    (void)state;
    enum { SLOTS = 64, ROUNDS = 20000 };
    struct chunk *slots[SLOTS] = {NULL};
    uint64_t used = 0;
    struct rng rng;
    rng_seed(&rng, 9);
    for (unsigned round = 0; round < ROUNDS; round++) {
        unsigned i = rng_below(&rng, SLOTS);
        if (!slots[i]) {
            size_t bytes = rng_below(&rng, 1u << (4 + rng_below(&rng, 13)));
            slots[i] = chunk_get(&pool, bytes, 0);
            assert_non_null(slots[i]);
            assert_true(slots[i]->cap >= bytes);
            used += class_bytes[slots[i]->size_class];
            memset(slots[i]->data, (int)i, slots[i]->cap);
        } else if (rng_below(&rng, 4) == 0) {
            chunk_ref(slots[i]);
        } else {
            for (uint32_t at = 0; at < slots[i]->cap; at += 97)
                assert_int_equal(slots[i]->data[at], i);
            bool last = slots[i]->refs == 1;
            used -= last ? class_bytes[slots[i]->size_class] : 0;
            chunk_put(slots[i]);
            if (last)
                slots[i] = NULL;
        }
        assert_int_equal(pool.lease.used, used);
        if (round % 1000 == 0)
            chunk_pool_trim(&pool);
    }
    for (unsigned i = 0; i < SLOTS; i++)
        for (uint32_t refs = slots[i] ? slots[i]->refs : 0; refs > 0; refs--)
            chunk_put(slots[i]);
}

/* --- the input --- */

static void
what_nobody_refers_to_is_read_over(void **state)
{
    (void)state;
    size_t bytes, again;
    uint8_t *room = chunk_input(&pool, &bytes);
    assert_int_equal(bytes, CHUNK_64K_CAP);
    chunk_input_done(&pool, 1000);
    assert_ptr_equal(chunk_input(&pool, &again), room);
    assert_int_equal(again, bytes);
    assert_int_equal(pool.lease.used, 0);
}

static void
what_is_referred_to_stays_and_counts_until_the_last_reference(void **state)
{
    (void)state;
    size_t bytes;
    uint8_t *room = chunk_input(&pool, &bytes);
    struct chunk *first = chunk_input_ref(&pool, room + 10, 5000);
    assert_ptr_equal(chunk_input_ref(&pool, room + bytes - 1, 5000), first);
    assert_int_equal(first->refs, 2);
    assert_int_equal(pool.lease.used, 65536);
    chunk_input_done(&pool, 1000);
    assert_ptr_equal(chunk_input(&pool, &bytes), room + 1000); /* behind it */
    assert_int_equal(bytes, CHUNK_64K_CAP - 1000);
    chunk_put(first);
    chunk_put(first);
    assert_int_equal(pool.lease.used, 0);
    assert_ptr_equal(chunk_input(&pool, &bytes), room);
    assert_int_equal(pool.allocations, 1);
}

static void
reading_goes_on_in_the_next_chunk_when_half_is_taken(void **state)
{
    (void)state;
    size_t bytes;
    uint8_t *room = chunk_input(&pool, &bytes);
    struct chunk *first = chunk_input_ref(&pool, room, 5000);
    chunk_input_done(&pool, CHUNK_64K_CAP / 2 + 1);
    uint8_t *other = chunk_input(&pool, &bytes);
    assert_true(other < room || other >= room + CHUNK_64K_CAP);
    assert_int_equal(bytes, CHUNK_64K_CAP);
    assert_null(chunk_input_ref(&pool, room, 5000)); /* no longer the input */
    chunk_put(first);
    assert_int_equal(pool.free_count[3], 1);
    assert_int_equal(pool.lease.used, 0);
}

static void
bytes_from_elsewhere_and_bodies_too_long_for_the_last_eighth_are_not_referred_to(void **state)
{
    (void)state;
    size_t bytes;
    uint8_t *room = chunk_input(&pool, &bytes), other[1];
    assert_null(chunk_input_ref(&pool, other, 5000));
    struct chunk *most = chunk_get(&pool, CHUNK_64K_CAP, 0);
    assert_true(budget_take(&pool.lease, 256 * MIB - 65536 - 70000));
    assert_null(chunk_input_ref(&pool, room, 100000));
    struct chunk *small = chunk_input_ref(&pool, room, 5000);
    assert_non_null(small);
    chunk_put(small);
    budget_give(&pool.lease, 256 * MIB - 65536 - 70000);
    chunk_put(most);
}

int
main(void)
{
#define WITH_POOL(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
    const struct CMUnitTest tests[] = {
        WITH_POOL(smallest_class_that_holds_the_bytes),
        WITH_POOL(counts_in_the_budget_from_taken_to_last_reference),
        WITH_POOL(put_chunk_is_used_again),
        WITH_POOL(burst_is_given_back_by_trimming),
        WITH_POOL(what_steady_load_uses_survives_trimming),
        WITH_POOL(free_lists_are_bounded_by_their_part_of_the_budget),
        WITH_POOL(much_that_lies_unused_is_given_back_in_several_steps),
        WITH_POOL(no_budget_gives_null_and_takes_nothing),
        WITH_POOL(last_eighth_serves_bodies_up_to_16k_only),
        WITH_POOL(chunks_in_use_never_share_bytes),
        WITH_POOL(what_nobody_refers_to_is_read_over),
        WITH_POOL(what_is_referred_to_stays_and_counts_until_the_last_reference),
        WITH_POOL(reading_goes_on_in_the_next_chunk_when_half_is_taken),
        WITH_POOL(bytes_from_elsewhere_and_bodies_too_long_for_the_last_eighth_are_not_referred_to),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
