/* The generator: repeatable, even, and never stuck. */
#include "tests/unit/unit.h"

#include "proxy/base/rng.h"

static void
same_seed_gives_the_same_numbers(void **state)
{
    (void)state;
    struct rng a, b;
    rng_seed(&a, 42);
    rng_seed(&b, 42);
    for (unsigned i = 0; i < 1000; i++)
        assert_true(rng_next(&a) == rng_next(&b));
}

static void
no_seed_leads_to_the_stuck_state(void **state)
{
    (void)state;
    /* -0x9e37…15 is what the mixing maps to zero. */
    const uint64_t seeds[] = {0, 1, UINT64_MAX, -(uint64_t)0x9e3779b97f4a7c15};
    for (unsigned i = 0; i < 4; i++) {
        struct rng rng;
        rng_seed(&rng, seeds[i]);
        assert_true(rng.state != 0);
        assert_true(rng_next(&rng) != rng_next(&rng));
    }
}

static void
neighbouring_seeds_share_no_start(void **state)
{
    (void)state;
    struct rng a, b;
    rng_seed(&a, 1);
    rng_seed(&b, 2);
    unsigned same = 0;
    for (unsigned i = 0; i < 1000; i++)
        same += rng_below(&a, 16) == rng_below(&b, 16);
    assert_in_range(same, 20, 120); /* 62 by chance */
}

static void
below_is_even_over_its_range(void **state)
{
    (void)state;
    enum { BOUND = 7, DRAWS = 70000 };
    unsigned seen[BOUND] = {0};
    struct rng rng;
    rng_seed(&rng, 3);
    for (unsigned i = 0; i < DRAWS; i++) {
        uint32_t value = rng_below(&rng, BOUND);
        assert_true(value < BOUND);
        seen[value]++;
    }
    for (unsigned i = 0; i < BOUND; i++)
        assert_in_range(seen[i], DRAWS / BOUND * 95 / 100, DRAWS / BOUND * 105 / 100);
    for (unsigned i = 0; i < 100; i++)
        assert_int_equal(rng_below(&rng, 1), 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_seed_gives_the_same_numbers),
        cmocka_unit_test(no_seed_leads_to_the_stuck_state),
        cmocka_unit_test(neighbouring_seeds_share_no_start),
        cmocka_unit_test(below_is_even_over_its_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
