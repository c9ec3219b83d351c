/* The histogram against exact percentiles, and at the edges of its cells. */
#include "tests/unit/unit.h"

#include <math.h>
#include <stdlib.h>

#include "proxy/base/histogram.h"
#include "proxy/base/rng.h"

static struct histogram histogram;

static int
setup(void **state)
{
    (void)state;
    memset(&histogram, 0, sizeof(histogram));
    return 0;
}

static int
by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void
expect_near(double actual_us, uint64_t exact_ns)
{
    double exact_us = (double)exact_ns / 1000;
    /* An eighth, or a cell of 8 ns. */
    if (fabs(actual_us - exact_us) > exact_us * 0.125 + 0.008)
        fail_msg("%f us, exactly %f us", actual_us, exact_us);
}

static void
expect_exact_percentiles(uint64_t *values, size_t count)
{
    struct histogram_summary summary;
    double sum = 0;
    for (size_t i = 0; i < count; i++) {
        histogram_record(&histogram, values[i]);
        sum += (double)values[i];
    }
    qsort(values, count, sizeof(*values), by_value);
    histogram_summarize(&histogram, &summary);
    assert_int_equal(summary.count, count);
    expect_near(summary.p50_us, values[(count * 500 + 999) / 1000 - 1]);
    expect_near(summary.p90_us, values[(count * 900 + 999) / 1000 - 1]);
    expect_near(summary.p99_us, values[(count * 990 + 999) / 1000 - 1]);
    expect_near(summary.p999_us, values[(count * 999 + 999) / 1000 - 1]);
    assert_true(fabs(summary.max_us - (double)values[count - 1] / 1000) < 0.001);
    assert_true(fabs(summary.mean_us - sum / (double)count / 1000) <= summary.mean_us * 1e-9);
    assert_true(summary.p50_us <= summary.p90_us && summary.p90_us <= summary.p99_us);
    assert_true(summary.p99_us <= summary.p999_us && summary.p999_us <= summary.max_us);
}

static void
percentiles_are_within_an_eighth_of_exact(void **state)
{
    (void)state;
    enum { COUNT = 20000 };
    static uint64_t values[COUNT];
    struct rng rng;
    rng_seed(&rng, 1);
    for (unsigned shape = 0; shape < 4; shape++) {
        setup(NULL);
        for (unsigned i = 0; i < COUNT; i++) {
            uint64_t random = rng_next(&rng);
            values[i] = shape == 0   ? random % 200000                      /* even */
                        : shape == 1 ? random >> (24 + rng_below(&rng, 40)) /* over all powers */
                        : shape == 2 ? 50000 + random % 1000                /* narrow */
                        : i % 1000   ? 1000 + random % 100                  /* two far humps */
                                     : 1000000000 + random % 1000;
        }
        expect_exact_percentiles(values, COUNT);
    }
}

static void
few_values_give_nearest_ranks(void **state)
{
    (void)state;
    uint64_t one[] = {12345}, two[] = {1000, 900000}, three[] = {10, 2000, 300000};
    expect_exact_percentiles(one, 1);
    setup(NULL);
    expect_exact_percentiles(two, 2);
    setup(NULL);
    expect_exact_percentiles(three, 3);
}

static void
empty_histogram_is_zeros(void **state)
{
    (void)state;
    struct histogram_summary summary;
    memset(&summary, 0xff, sizeof(summary));
    histogram_summarize(&histogram, &summary);
    assert_int_equal(summary.count, 0);
    assert_true(summary.mean_us == 0 && summary.p50_us == 0 && summary.p90_us == 0);
    assert_true(summary.p99_us == 0 && summary.p999_us == 0 && summary.max_us == 0);
    assert_int_equal(histogram_count_below(&histogram, UINT64_MAX), 0);
}

/* The first and last value of each eighth of each power of two, as the header promises. */
static void
cells_have_the_promised_edges(void **state)
{
    (void)state;
    for (unsigned power = 6; power < 42; power++) {
        for (unsigned eighth = 0; eighth < 8; eighth++) {
            uint64_t width = (uint64_t)1 << (power - 3);
            uint64_t first = ((uint64_t)1 << power) + eighth * width;
            setup(NULL);
            histogram_record(&histogram, first - 1);
            histogram_record(&histogram, first);
            histogram_record(&histogram, first + width - 1);
            histogram_record(&histogram, first + width);
            assert_int_equal(histogram_count_below(&histogram, first), 1);
            assert_int_equal(histogram_count_below(&histogram, first + width - 1), 1);
            assert_int_equal(histogram_count_below(&histogram, first + width),
                             first + width < (uint64_t)1 << 42 ? 3 : 4);
        }
    }
}

static void
values_past_the_end_count_in_the_last_cell(void **state)
{
    (void)state;
    struct histogram_summary summary;
    histogram_record(&histogram, UINT64_MAX / 4);
    histogram_record(&histogram, 0);
    histogram_summarize(&histogram, &summary);
    assert_int_equal(summary.count, 2);
    assert_true(summary.max_us > 4e15);
    assert_true(summary.p99_us > 3.5e9 && summary.p99_us <= 4398046512.0);
    assert_int_equal(histogram_count_below(&histogram, UINT64_MAX), 2);
    assert_int_equal(histogram_count_below(&histogram, 8), 1);
    assert_int_equal(histogram_count_below(&histogram, 0), 0);
}

static void
percentile_never_exceeds_max(void **state)
{
    (void)state;
    struct histogram_summary summary;
    for (uint64_t value = 1; value < 1000000; value = value * 9 / 8 + 1) {
        setup(NULL);
        histogram_record(&histogram, value);
        histogram_record(&histogram, value);
        histogram_summarize(&histogram, &summary);
        assert_true(summary.p50_us <= summary.max_us && summary.p999_us <= summary.max_us);
    }
}

static void
merging_is_recording_both(void **state)
{
    (void)state;
    static struct histogram a, b, sum;
    struct rng rng;
    rng_seed(&rng, 4);
    for (unsigned i = 0; i < 5000; i++) {
        uint64_t value = rng_next(&rng) >> (20 + rng_below(&rng, 40));
        histogram_record(i % 3 ? &a : &b, value);
        histogram_record(&histogram, value);
    }
    histogram_merge(&sum, &a);
    histogram_merge(&sum, &b);
    assert_memory_equal(&sum, &histogram, sizeof(sum));
}

static void
subtracting_what_was_copied_leaves_what_came_after(void **state)
{
    (void)state;
    static struct histogram before, after;
    histogram_record(&histogram, 500);
    histogram_record(&histogram, 70000);
    histogram_copy(&before, &histogram);
    assert_memory_equal(&before, &histogram, sizeof(before));
    for (unsigned i = 0; i < 3; i++) {
        histogram_record(&histogram, 70000 + i);
        histogram_record(&after, 70000 + i);
    }
    histogram_subtract(&histogram, &before);
    assert_memory_equal(&after, &histogram, sizeof(after));
    histogram_subtract(&histogram, &before); /* more than there is: zero, not 2^64 */
    histogram_subtract(&histogram, &before);
    assert_int_equal(histogram_count(&histogram), 1); /* of the three at 70 us: the rest is gone */
}

static void
reset_forgets_all(void **state)
{
    (void)state;
    static const struct histogram zero;
    for (uint64_t value = 1; value < (uint64_t)1 << 50; value *= 2)
        histogram_record(&histogram, value);
    histogram_reset(&histogram);
    assert_memory_equal(&histogram, &zero, sizeof(zero));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(percentiles_are_within_an_eighth_of_exact, setup),
        cmocka_unit_test_setup(few_values_give_nearest_ranks, setup),
        cmocka_unit_test_setup(empty_histogram_is_zeros, setup),
        cmocka_unit_test_setup(cells_have_the_promised_edges, setup),
        cmocka_unit_test_setup(values_past_the_end_count_in_the_last_cell, setup),
        cmocka_unit_test_setup(percentile_never_exceeds_max, setup),
        cmocka_unit_test_setup(merging_is_recording_both, setup),
        cmocka_unit_test_setup(subtracting_what_was_copied_leaves_what_came_after, setup),
        cmocka_unit_test_setup(reset_forgets_all, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
