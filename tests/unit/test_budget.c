/* The budget: against a model of plain numbers, at its edges, and from several threads. */
#include "tests/unit/unit.h"

#include <pthread.h>

#include "proxy/base/budget.h"
#include "proxy/base/rng.h"

#define MIB ((uint64_t)1 << 20)

static void
whole_budget_can_be_taken_and_no_byte_more(void **state)
{
    (void)state;
    const uint64_t totals[] = {1, 63, 64, 65, 1000, 65536, MIB, 100 * MIB + 17};
    for (unsigned i = 0; i < sizeof(totals) / sizeof(totals[0]); i++) {
        struct budget budget;
        struct budget_lease lease;
        budget_init(&budget, totals[i]);
        budget_lease_init(&lease, &budget);
        assert_false(budget_take(&lease, totals[i] + 1));
        assert_int_equal(lease.used, 0);
        assert_true(budget_take(&lease, totals[i]));
        assert_false(budget_take(&lease, 1));
        assert_int_equal(lease.used, totals[i]);
        assert_int_equal(budget.leased, totals[i]);
        budget_give(&lease, totals[i]);
        budget_lease_fini(&lease);
        assert_int_equal(budget.leased, 0);
    }
}

static void
no_budget_at_all_refuses(void **state)
{
    (void)state;
    struct budget budget;
    struct budget_lease lease;
    budget_init(&budget, 0);
    budget_lease_init(&lease, &budget);
    assert_false(budget_take(&lease, 1));
    assert_true(budget_take(&lease, 0));
    assert_int_equal(budget_pressure(&lease), BUDGET_LAST);
    budget_lease_fini(&lease);
}

static void
small_takes_lease_a_step_once(void **state)
{
    (void)state;
    struct budget budget;
    struct budget_lease lease;
    budget_init(&budget, 256 * MIB);
    budget_lease_init(&lease, &budget);
    for (unsigned i = 0; i < 2048; i++) {
        assert_true(budget_take(&lease, 512));
        assert_int_equal(budget.leased, MIB);
    }
    assert_true(budget_take(&lease, 512));
    assert_int_equal(budget.leased, 2 * MIB);
    /* Back and forth over the edge of a step: the shared counter stays. */
    for (unsigned i = 0; i < 100; i++) {
        budget_give(&lease, 512);
        assert_int_equal(budget.leased, 2 * MIB);
        assert_true(budget_take(&lease, 512));
    }
    budget_give(&lease, 2049 * 512);
    budget_lease_fini(&lease);
}

static void
spare_steps_go_back(void **state)
{
    (void)state;
    struct budget budget;
    struct budget_lease lease;
    budget_init(&budget, 256 * MIB);
    budget_lease_init(&lease, &budget);
    assert_true(budget_take(&lease, 100 * MIB));
    budget_give(&lease, 100 * MIB - 1);
    assert_true(budget.leased <= 2 * MIB + 1);
    budget_lease_trim(&lease);
    assert_int_equal(budget.leased, 1);
    budget_give(&lease, 1);
    budget_lease_trim(&lease);
    assert_int_equal(budget.leased, 0);
    budget_lease_fini(&lease);
}

/* Counts how often the shared counter changes. */
static unsigned
give_all_in_small_parts(struct budget_lease *lease, uint64_t part)
{
    unsigned changes = 0;
    while (lease->used > 0) {
        uint64_t before = lease->budget->leased;
        budget_give(lease, part);
        changes += lease->budget->leased != before;
    }
    return changes;
}

static void
giving_and_taking_write_the_shared_counter_once_a_step(void **state)
{
    (void)state;
    struct budget budget;
    struct budget_lease lease;
    budget_init(&budget, 256 * MIB);
    budget_lease_init(&lease, &budget);
    for (unsigned i = 0; i < 4 * 2048; i++)
        assert_true(budget_take(&lease, 512));
    assert_int_equal(give_all_in_small_parts(&lease, 512), 3);
    assert_int_equal(budget.leased, MIB); /* a step stays for the next call */
    budget_lease_fini(&lease);
}

static void
idle_worker_holds_nothing_after_a_trim(void **state)
{
    (void)state;
    struct budget budget;
    struct budget_lease a, b;
    budget_init(&budget, 64 * 1024);
    budget_lease_init(&a, &budget);
    budget_lease_init(&b, &budget);
    assert_true(budget_take(&a, 100));
    budget_give(&a, 100);
    assert_false(budget_take(&b, 64 * 1024)); /* a keeps a step */
    budget_lease_trim(&a);
    assert_true(budget_take(&b, 64 * 1024));
    budget_give(&b, 64 * 1024);
    budget_lease_fini(&a);
    budget_lease_fini(&b);
}

static void
peak_is_the_most_that_was_used(void **state)
{
    (void)state;
    struct budget budget;
    struct budget_lease lease;
    budget_init(&budget, MIB);
    budget_lease_init(&lease, &budget);
    assert_true(budget_take(&lease, 300));
    budget_give(&lease, 200);
    assert_true(budget_take(&lease, 100));
    assert_int_equal(lease.peak, 300);
    budget_give(&lease, 200);
    budget_lease_fini(&lease);
}

static void
pressure_rises_at_a_quarter_three_quarters_and_seven_eighths(void **state)
{
    (void)state;
    struct budget budget;
    struct budget_lease lease;
    budget_init(&budget, 800);
    budget_lease_init(&lease, &budget);
    assert_int_equal(budget_pressure(&lease), BUDGET_ROOMY);
    assert_true(budget_take(&lease, 199));
    assert_int_equal(budget_pressure(&lease), BUDGET_ROOMY);
    assert_true(budget_take(&lease, 1));
    assert_int_equal(budget_pressure(&lease), BUDGET_FREE);
    assert_true(budget_take(&lease, 399));
    assert_int_equal(budget_pressure(&lease), BUDGET_FREE);
    assert_false(lease.scarce);
    assert_true(budget_take(&lease, 1));
    assert_int_equal(budget_pressure(&lease), BUDGET_TIGHT);
    assert_true(budget_take(&lease, 99));
    assert_int_equal(budget_pressure(&lease), BUDGET_TIGHT);
    assert_true(budget_take(&lease, 1));
    assert_int_equal(budget_pressure(&lease), BUDGET_LAST);
    budget_give(&lease, 101);
    assert_int_equal(budget_pressure(&lease), BUDGET_FREE);
    budget_give(&lease, 599);
    budget_lease_fini(&lease);
}

static void
pressure_of_one_worker_is_seen_by_all(void **state)
{
    (void)state;
    struct budget budget;
    struct budget_lease busy, idle;
    budget_init(&budget, 256 * MIB);
    budget_lease_init(&busy, &budget);
    budget_lease_init(&idle, &budget);
    assert_true(budget_take(&busy, 225 * MIB));
    assert_int_equal(budget_pressure(&idle), BUDGET_LAST);
    budget_give(&busy, 225 * MIB);
    assert_int_equal(budget_pressure(&idle), BUDGET_ROOMY);
    budget_lease_fini(&busy);
    budget_lease_fini(&idle);
}

static void
who_asks_for_more_of_the_last_quarter_is_told_that_it_is_scarce(void **state)
{
    (void)state;
    struct budget budget;
    struct budget_lease lease;
    budget_init(&budget, 6400);
    budget_lease_init(&lease, &budget); /* in steps of 100 */
    assert_true(budget_take(&lease, 4700));
    assert_false(lease.scarce);
    assert_true(budget_take(&lease, 150));
    assert_true(lease.scarce);
    lease.scarce = false;
    assert_true(budget_take(&lease, 50)); /* what is leased already */
    assert_false(lease.scarce);
    assert_false(budget_take(&lease, 2000));
    assert_true(lease.scarce);
    budget_give(&lease, 4900);
    budget_lease_fini(&lease);
}

/* Random takes and gives of several leases: nothing is refused that the others' spare bytes leave
 * room for. */
static void
leases_agree_with_a_model_of_plain_numbers(void **state)
{
    (void)state;
    enum { LEASES = 4, ROUNDS = 200000 };
    struct budget budget;
    struct budget_lease leases[LEASES];
    uint64_t used[LEASES] = {0}, total = 40 * MIB;
    struct rng rng;
    unsigned refused = 0;
    rng_seed(&rng, 5);
    budget_init(&budget, total);
    for (unsigned i = 0; i < LEASES; i++)
        budget_lease_init(&leases[i], &budget);
    uint64_t step = total / 64;
    for (unsigned round = 0; round < ROUNDS; round++) {
        unsigned who = rng_below(&rng, LEASES);
        uint64_t sum_leased = 0, sum_used = 0, spare = 0;
        if (rng_below(&rng, 100) == 0)
            budget_lease_trim(&leases[who]);
        if (rng_below(&rng, 20) < (round / 2000 % 2 ? 9u : 11u)) {
            uint64_t bytes = rng_below(&rng, rng_below(&rng, 10) ? 65536 : 4 * MIB);
            for (unsigned i = 0; i < LEASES; i++)
                spare += i == who ? 0 : leases[i].leased - used[i];
            for (unsigned i = 0; i < LEASES; i++)
                sum_used += used[i];
            bool fits = sum_used + spare + bytes <= total;
            assert_int_equal(budget_take(&leases[who], bytes), fits);
            used[who] += fits ? bytes : 0;
            refused += !fits;
        } else if (used[who]) {
            uint64_t bytes = rng_below(&rng, rng_below(&rng, 10) ? 65536 : 4 * MIB);
            bytes = bytes < used[who] ? bytes : used[who];
            budget_give(&leases[who], bytes);
            used[who] -= bytes;
            assert_true(leases[who].leased - used[who] < 2 * step);
        }
        for (unsigned i = 0; i < LEASES; i++) {
            assert_int_equal(leases[i].used, used[i]);
            assert_true(leases[i].leased >= used[i]);
            sum_leased += leases[i].leased;
        }
        assert_int_equal(budget.leased, sum_leased);
        assert_true(sum_leased <= total);
    }
    assert_true(refused > 100); /* else the edge was never met */
    for (unsigned i = 0; i < LEASES; i++) {
        budget_give(&leases[i], used[i]);
        budget_lease_fini(&leases[i]);
    }
    assert_int_equal(budget.leased, 0);
}

static struct budget shared;
static _Atomic uint64_t over;

static void *
take_and_give(void *seed)
{
    struct budget_lease lease;
    struct rng rng;
    uint64_t used = 0;
    rng_seed(&rng, (uintptr_t)seed);
    budget_lease_init(&lease, &shared);
    for (unsigned i = 0; i < 400000; i++) {
        uint64_t bytes = rng_below(&rng, 256 * 1024); /* some steps of 64K: leases all the time */
        if (rng_below(&rng, 2) && budget_take(&lease, bytes)) {
            used += bytes;
        } else if (bytes <= used) {
            budget_give(&lease, bytes);
            used -= bytes;
        }
        over += atomic_load(&shared.leased) > shared.total;
    }
    budget_give(&lease, used);
    budget_lease_fini(&lease);
    return NULL;
}

static void
threads_together_never_exceed_the_total(void **state)
{
    (void)state;
    pthread_t threads[4];
    budget_init(&shared, 4 * MIB);
    for (uintptr_t i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, take_and_give, (void *)(i + 1)), 0);
    for (unsigned i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(over, 0);
    assert_int_equal(shared.leased, 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_budget_can_be_taken_and_no_byte_more),
        cmocka_unit_test(no_budget_at_all_refuses),
        cmocka_unit_test(small_takes_lease_a_step_once),
        cmocka_unit_test(spare_steps_go_back),
        cmocka_unit_test(giving_and_taking_write_the_shared_counter_once_a_step),
        cmocka_unit_test(idle_worker_holds_nothing_after_a_trim),
        cmocka_unit_test(peak_is_the_most_that_was_used),
        cmocka_unit_test(pressure_rises_at_a_quarter_three_quarters_and_seven_eighths),
        cmocka_unit_test(pressure_of_one_worker_is_seen_by_all),
        cmocka_unit_test(who_asks_for_more_of_the_last_quarter_is_told_that_it_is_scarce),
        cmocka_unit_test(leases_agree_with_a_model_of_plain_numbers),
        cmocka_unit_test(threads_together_never_exceed_the_total),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
