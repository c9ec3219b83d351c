/* The slab: alignment, reuse, growth of objects, giving back. */
#include "tests/unit/unit.h"

#include "proxy/base/rng.h"
#include "proxy/base/slab.h"

static struct slab slab;

static int
setup(void **state)
{
    (void)state;
    slab_init(&slab);
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    slab_fini(&slab);
    return 0;
}

static uint64_t
free_objects(void)
{
    uint64_t count = 0;
    for (unsigned i = 0; i < SLAB_CLASSES; i++)
        count += slab.free[i].count;
    return count;
}

static void
objects_of_every_size_are_aligned_and_whole(void **state)
{
    (void)state;
    for (size_t bytes = 0; bytes < 5000; bytes++) {
        unsigned char *object = slab_alloc(&slab, bytes);
        assert_int_equal((uintptr_t)object % 16, 0);
        memset(object, 0xaa, bytes);
        slab_free(&slab, object);
    }
    slab_free(&slab, NULL);
}

static void
freed_object_is_used_again(void **state)
{
    (void)state;
    void *first = slab_alloc(&slab, 100);
    slab_free(&slab, first);
    assert_ptr_equal(slab_alloc(&slab, 90), first);
    assert_int_equal(free_objects(), 0);
    slab_free(&slab, first);
}

static void
large_objects_do_not_stay(void **state)
{
    (void)state;
    void *largest = slab_alloc(&slab, SLAB_MAX - 16), *over = slab_alloc(&slab, SLAB_MAX - 15);
    slab_free(&slab, over);
    assert_int_equal(free_objects(), 0);
    slab_free(&slab, largest);
    assert_int_equal(free_objects(), 1);
}

static void
zalloc_is_zeroed_when_memory_is_used_again(void **state)
{
    (void)state;
    unsigned char *object = slab_alloc(&slab, 200);
    memset(object, 0xff, 200);
    slab_free(&slab, object);
    object = slab_zalloc(&slab, 200);
    for (unsigned i = 0; i < 200; i++)
        assert_int_equal(object[i], 0);
    slab_free(&slab, object);
}

static void
realloc_keeps_bytes_through_all_classes(void **state)
{
    (void)state;
    unsigned char *object = slab_realloc(&slab, NULL, 1);
    object[0] = 1;
    for (size_t bytes = 2; bytes < 9000; bytes++) {
        object = slab_realloc(&slab, object, bytes);
        object[bytes - 1] = (unsigned char)bytes;
    }
    object = slab_realloc(&slab, object, 10);
    for (unsigned i = 0; i < 10; i++)
        assert_int_equal(object[i], i + 1);
    slab_free(&slab, object);
}

static void
burst_is_bounded_and_given_back(void **state)
{
    (void)state;
    enum { COUNT = 20000 };
    static void *all[COUNT];
    for (unsigned i = 0; i < COUNT; i++)
        all[i] = slab_alloc(&slab, 300);
    for (unsigned i = 0; i < COUNT; i++)
        slab_free(&slab, all[i]);
    assert_true(free_objects() * 320 <= 1 << 20);
    slab_trim(&slab);
    slab_trim(&slab);
    assert_true(free_objects() > 0 && free_objects() * 320 <= 16 * 1024);
}

static void
live_objects_never_share_bytes(void **state)
{
    (void)state;
    enum { SLOTS = 256, ROUNDS = 100000 };
    static struct {
        unsigned char *object;
        size_t bytes;
    } slots[SLOTS];
    struct rng rng;
    rng_seed(&rng, 11);
    for (unsigned round = 0; round < ROUNDS; round++) {
        unsigned i = rng_below(&rng, SLOTS);
        size_t bytes = rng_below(&rng, 1u << (3 + rng_below(&rng, 11)));
        if (slots[i].object)
            for (size_t at = 0; at < slots[i].bytes; at++)
                assert_int_equal(slots[i].object[at], i);
        if (rng_below(&rng, 2)) {
            slots[i].object = slab_realloc(&slab, slots[i].object, bytes);
            slots[i].bytes = bytes;
            memset(slots[i].object, (int)i, bytes);
        } else {
            slab_free(&slab, slots[i].object);
            slots[i].object = NULL;
        }
        if (round % 5000 == 0)
            slab_trim(&slab);
    }
    for (unsigned i = 0; i < SLOTS; i++)
        slab_free(&slab, slots[i].object);
}

int
main(void)
{
#define WITH_SLAB(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
    const struct CMUnitTest tests[] = {
        WITH_SLAB(objects_of_every_size_are_aligned_and_whole),
        WITH_SLAB(freed_object_is_used_again),
        WITH_SLAB(large_objects_do_not_stay),
        WITH_SLAB(zalloc_is_zeroed_when_memory_is_used_again),
        WITH_SLAB(realloc_keeps_bytes_through_all_classes),
        WITH_SLAB(burst_is_bounded_and_given_back),
        WITH_SLAB(live_objects_never_share_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
