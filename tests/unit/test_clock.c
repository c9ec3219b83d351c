/* Time. */
#include "tests/unit/unit.h"

#include <time.h>

#include "proxy/base/clock.h"

static void
monotonic_time_never_goes_back_and_is_never_zero(void **state)
{
    (void)state;
    uint64_t last = clock_now_ns();
    for (unsigned i = 0; i < 100000; i++) {
        uint64_t now = clock_now_ns();
        assert_true(now >= last && now > 0);
        last = now;
    }
}

static void
monotonic_time_is_in_nanoseconds(void **state)
{
    (void)state;
    uint64_t before = clock_now_ns();
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    uint64_t took = clock_now_ns() - before;
    assert_true(took >= 20 * NS_PER_MS && took < 10 * NS_PER_S);
}

static void
wall_time_is_rfc3339_in_utc_with_milliseconds(void **state)
{
    (void)state;
    char text[25];
    struct tm utc = {0};
    unsigned ms = 1000;
    time_t before = time(NULL);
    clock_wall(text, sizeof(text));
    time_t after = time(NULL);
    assert_int_equal(strlen(text), 24);
    char *rest = strptime(text, "%Y-%m-%dT%H:%M:%S", &utc);
    assert_non_null(rest);
    assert_int_equal(sscanf(rest, ".%3uZ", &ms), 1);
    assert_true(ms < 1000);
    assert_int_equal(text[23], 'Z');
    time_t told = timegm(&utc);
    assert_true(told >= before - 1 && told <= after);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(monotonic_time_never_goes_back_and_is_never_zero),
        cmocka_unit_test(monotonic_time_is_in_nanoseconds),
        cmocka_unit_test(wall_time_is_rfc3339_in_utc_with_milliseconds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
