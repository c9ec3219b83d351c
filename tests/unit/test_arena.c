/* The bump allocator: alignment, growth, and that nothing overlaps. */
#include "tests/unit/unit.h"

#include "proxy/base/arena.h"
#include "proxy/base/rng.h"

static void
first_memory_is_used_before_the_heap(void **state)
{
    (void)state;
    _Alignas(8) char memory[256];
    struct arena arena;
    arena_init(&arena, memory, sizeof(memory));
    for (unsigned i = 0; i < 4; i++) {
        char *at = arena_alloc(&arena, 64);
        assert_ptr_equal(at, memory + i * 64);
    }
    assert_int_equal(arena.heap_bytes, 0);
    assert_non_null(arena_alloc(&arena, 1));
    assert_true(arena.heap_bytes > 0);
    arena_fini(&arena);
}

static void
unaligned_first_memory_is_aligned(void **state)
{
    (void)state;
    _Alignas(8) char memory[64];
    for (unsigned skip = 0; skip < 16; skip++) {
        struct arena arena;
        arena_init(&arena, memory + skip, 40 - skip);
        char *at = arena_alloc(&arena, 8);
        assert_int_equal((uintptr_t)at % 8, 0);
        assert_true(at >= memory + skip && at + 8 <= memory + 40);
        arena_fini(&arena);
    }
    struct arena arena;
    arena_init(&arena, memory + 1, 3); /* too small for anything once aligned */
    memset(arena_alloc(&arena, 8), 1, 8);
    assert_true(arena.heap_bytes > 0);
    arena_fini(&arena);
}

static void
nothing_asked_for_is_not_null(void **state)
{
    (void)state;
    struct arena arena;
    arena_init(&arena, NULL, 0);
    assert_non_null(arena_alloc(&arena, 0));
    assert_non_null(arena_copy(&arena, TEXT_NONE).ptr);
    arena_fini(&arena);
    arena_fini(&arena); /* nothing left to free */
}

static void
allocations_are_aligned_and_do_not_overlap(void **state)
{
    (void)state;
    enum { COUNT = 2000 };
    static struct {
        unsigned char *at;
        size_t len;
    } all[COUNT];
    char memory[1000];
    struct arena arena;
    struct rng rng;
    rng_seed(&rng, 1);
    arena_init(&arena, memory, sizeof(memory));
    for (unsigned i = 0; i < COUNT; i++) {
        all[i].len = rng_below(&rng, i % 50 == 0 ? 20000 : 100);
        all[i].at = arena_alloc(&arena, all[i].len);
        assert_int_equal((uintptr_t)all[i].at % 8, 0);
        memset(all[i].at, (int)(i % 251), all[i].len);
    }
    for (unsigned i = 0; i < COUNT; i++)
        for (size_t j = 0; j < all[i].len; j++)
            assert_int_equal(all[i].at[j], i % 251);
    arena_fini(&arena);
}

static void
large_value_does_not_cost_the_current_block(void **state)
{
    (void)state;
    _Alignas(8) char memory[4096];
    struct arena arena;
    arena_init(&arena, memory, sizeof(memory));
    arena_alloc(&arena, 8);
    arena_alloc(&arena, 2000);
    arena_alloc(&arena, 3000); /* a common block, but less is left in it than here */
    assert_ptr_equal(arena_alloc(&arena, 8), memory + 8 + 2000);
    arena_alloc(&arena, 100000); /* a block of its own */
    assert_ptr_equal(arena_alloc(&arena, 8), memory + 16 + 2000);
    arena_fini(&arena);
}

static void
copy_ends_with_nul(void **state)
{
    (void)state;
    char from[] = "abcdefgh";
    struct arena arena;
    arena_init(&arena, NULL, 0);
    struct text copy = arena_copy(&arena, text_make(from, 8));
    memset(from, 'x', sizeof(from));
    expect_text(copy, "abcdefgh");
    assert_int_equal(copy.ptr[8], 0);
    arena_fini(&arena);
}

static void
printf_fits_wherever_the_block_ends(void **state)
{
    (void)state;
    _Alignas(8) char memory[64];
    for (unsigned used = 0; used <= 64; used += 8) {
        for (unsigned size = used; size <= 64; size++) {
            struct arena arena;
            arena_init(&arena, memory, size);
            char *before = arena_alloc(&arena, used);
            memset(before, 'b', used);
            struct text text = arena_printf(&arena, "%s=%d", "value", 1234567);
            char *after = arena_alloc(&arena, 16);
            memset(after, 'a', 16);
            expect_text(text, "value=1234567");
            assert_int_equal(text.ptr[text.len], 0);
            for (unsigned i = 0; i < used; i++)
                assert_int_equal(before[i], 'b');
            arena_fini(&arena);
        }
    }
}

static void
decimal_is_as_printf_writes_it(void **state)
{
    (void)state;
    const uint64_t values[] = {0, 9, 10, 128, 4294967295u, 10000000000u, UINT64_MAX};
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        struct arena arena;
        arena_init(&arena, NULL, 0);
        struct text expected = arena_printf(&arena, "%llu", (unsigned long long)values[i]);
        struct text text = arena_decimal(&arena, values[i]);
        assert_int_equal(text.len, expected.len);
        assert_string_equal(text.ptr, expected.ptr);
        arena_fini(&arena);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_memory_is_used_before_the_heap),
        cmocka_unit_test(unaligned_first_memory_is_aligned),
        cmocka_unit_test(nothing_asked_for_is_not_null),
        cmocka_unit_test(allocations_are_aligned_and_do_not_overlap),
        cmocka_unit_test(large_value_does_not_cost_the_current_block),
        cmocka_unit_test(copy_ends_with_nul),
        cmocka_unit_test(printf_fits_wherever_the_block_ends),
        cmocka_unit_test(decimal_is_as_printf_writes_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
