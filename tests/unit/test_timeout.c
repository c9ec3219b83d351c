/* timeout: the three fields, rounding up, saturation. */
#include "wire_test.h"

#include "proxy/base/clock.h"
#include "proxy/wire/timeout.h"

static void
grpc_timeouts_are_digits_and_a_unit(void **state)
{
    static const struct {
        const char *value;
        uint64_t ns;
    } good[] = {
        {"1n", 1},
        {"999999n", 999999},
        {"999u", 999000},
        {"1500u", 1500000},
        {"2999987u", 2999987000},
        {"200m", 200 * NS_PER_MS},
        {"5S", 5 * NS_PER_S},
        {"2M", 120 * NS_PER_S},
        {"1H", 3600 * NS_PER_S},
        {"0m", 0},
        {"0H", 0},
        {"0n", 0},
        {"00000001S", NS_PER_S},
        {"99999999S", 99999999 * NS_PER_S},
        {"99999999M", 5999999940 * NS_PER_S},
        {"99999999H", INT64_MAX},
    };
    uint64_t ns;

    (void)state;
    for (size_t i = 0; i < COUNT(good); i++) {
        ns = UINT64_MAX;
        assert_true(timeout_from_grpc(text_of(good[i].value), &ns));
        assert_int_equal(ns, good[i].ns);
    }
}

static void
malformed_grpc_timeouts_are_refused(void **state)
{
    static const char *const bad[] = {"100000000n", "1",     "S",  "-1S",       "+5S",  "1s",
                                      "1 S",        "1.5S",  "",   "1SS",       "0x1S", " 1S",
                                      "1S ",        "1S,9S", "1h", "1\xc2\xb5", "n1"};
    char digits[4096];
    uint64_t ns;

    (void)state;
    for (size_t i = 0; i < COUNT(bad); i++)
        assert_false(timeout_from_grpc(text_of(bad[i]), &ns));
    memset(digits, '9', sizeof(digits));
    assert_false(timeout_from_grpc(text_make(digits, sizeof(digits)), &ns));
}

static void
ms_timeouts_are_read_as_dubbo_go_reads_them(void **state)
{
    static const struct {
        const char *value;
        enum timeout_ms result;
        uint64_t ns;
    } cases[] = {
        {"1000", TIMEOUT_MS_OK, NS_PER_S},
        {"299", TIMEOUT_MS_OK, 299 * NS_PER_MS},
        {"+5", TIMEOUT_MS_OK, 5 * NS_PER_MS},
        {"9999999999", TIMEOUT_MS_OK, 9999999999 * NS_PER_MS},
        {"", TIMEOUT_MS_OK, INT64_MAX},
        {"0", TIMEOUT_MS_EXPIRED, 0},
        {"-5", TIMEOUT_MS_EXPIRED, 0},
        {"-0", TIMEOUT_MS_EXPIRED, 0},
        {"-999999999", TIMEOUT_MS_EXPIRED, 0},
    };
    static const char *const bad[] = {"abc", "10000000000", "-1000000000000", "1.5", "1 ", " 1",
                                      "-",   "+",           "0x10",           "1_0", "--1"};
    uint64_t ns;

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        assert_int_equal(timeout_from_ms(text_of(cases[i].value), &ns), cases[i].result);
        assert_int_equal(ns, cases[i].ns);
    }
    for (size_t i = 0; i < COUNT(bad); i++)
        assert_int_equal(timeout_from_ms(text_of(bad[i]), &ns), TIMEOUT_MS_BAD);
}

static void
written_grpc_timeouts_use_the_finest_unit_of_eight_digits(void **state)
{
    static const struct {
        uint64_t ns;
        const char *value;
    } cases[] = {
        {0, "1n"},
        {1, "1n"},
        {99999999, "99999999n"},
        {100000000, "100000u"},
        {100000001, "100001u"},
        {2999987000, "2999987u"},
        {2999986001, "2999987u"},
        {3 * NS_PER_S, "3000000u"},
        {100 * NS_PER_S, "100000m"},
        {(uint64_t)INT64_MAX, "2562048H"},
        {UINT64_MAX, "5124096H"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++)
        assert_str(timeout_to_grpc(&arena, cases[i].ns), cases[i].value);
}

static void
milliseconds_are_rounded_up_and_never_zero(void **state)
{
    static const struct {
        uint64_t ns;
        const char *value;
    } cases[] = {
        {0, "1"},
        {1, "1"},
        {999000, "1"},
        {999999, "1"},
        {NS_PER_MS, "1"},
        {1500000, "2"},
        {2999987000, "3000"},
        {9999999999 * NS_PER_MS, "9999999999"},
        {(uint64_t)INT64_MAX, "9999999999"},
        {UINT64_MAX, "9999999999"},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++)
        assert_str(timeout_to_ms(&arena, cases[i].ns), cases[i].value);
}

static void
what_is_written_is_never_shorter_when_read_back(void **state)
{
    uint64_t ns, back;

    (void)state;
    for (ns = 1; ns < INT64_MAX / 3; ns = ns * 3 + 1) {
        assert_true(timeout_from_grpc(timeout_to_grpc(&arena, ns), &back));
        assert_true(back >= ns && (back - ns) <= ns / 1000);
        if (ns <= 9999999999 * NS_PER_MS) {
            assert_int_equal(timeout_from_ms(timeout_to_ms(&arena, ns), &back), TIMEOUT_MS_OK);
            assert_true(back >= ns && back - ns < NS_PER_MS);
        }
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(grpc_timeouts_are_digits_and_a_unit),
        TEST(malformed_grpc_timeouts_are_refused),
        TEST(ms_timeouts_are_read_as_dubbo_go_reads_them),
        TEST(written_grpc_timeouts_use_the_finest_unit_of_eight_digits),
        TEST(milliseconds_are_rounded_up_and_never_zero),
        TEST(what_is_written_is_never_shorter_when_read_back),
    };

    return cmocka_run_group_tests_name("timeout", tests, NULL, NULL);
}
