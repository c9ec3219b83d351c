/* The spellings of values: what is read, what is refused, and that what is written reads back the
 * same. */
#include "tests/unit/unit.h"

#include "proxy/base/clock.h"
#include "proxy/config/values.h"

#define COUNT(array) (sizeof(array) / sizeof(*(array)))

static void
numbers_are_strict(void **state)
{
    static const char *const WRONG[] = {"",
                                        "080",
                                        "-1",
                                        "+1",
                                        "1e3",
                                        " 1",
                                        "1 ",
                                        "0x10",
                                        "1.0",
                                        "00",
                                        "1,0",
                                        "١",
                                        "18446744073709551616"};
    uint64_t value = 7;
    (void)state;
    for (size_t i = 0; i < COUNT(WRONG); i++)
        assert_false(values_number(text_of(WRONG[i]), &value));
    assert_int_equal(value, 7);
    assert_true(values_number(TEXT("0"), &value) && value == 0);
    assert_true(values_number(TEXT("18446744073709551615"), &value) && value == UINT64_MAX);
}

static void
durations_need_a_unit(void **state)
{
    static const struct {
        const char *text;
        uint64_t ns;
    } RIGHT[] = {{"250ms", 250 * NS_PER_MS},
                 {"3s", 3 * NS_PER_S},
                 {"2m", 120 * NS_PER_S},
                 {"0s", 0},
                 {"5us", 5 * NS_PER_US},
                 {"1h", 3600 * NS_PER_S},
                 {"7ns", 7},
                 {"1500ms", 1500 * NS_PER_MS}};
    static const char *const WRONG[] = {"",
                                        "5",
                                        "s",
                                        "5 s",
                                        "-1s",
                                        "05s",
                                        "1.5s",
                                        "5S",
                                        "5sec",
                                        "1d",
                                        "1h30m",
                                        "1e3s",
                                        "99999999999999h"};
    uint64_t ns = 0;
    (void)state;
    for (size_t i = 0; i < COUNT(RIGHT); i++) {
        assert_true(values_duration(text_of(RIGHT[i].text), &ns));
        assert_int_equal(ns, RIGHT[i].ns);
    }
    for (size_t i = 0; i < COUNT(WRONG); i++)
        if (values_duration(text_of(WRONG[i]), &ns))
            fail_msg("'%s' was read as a duration", WRONG[i]);
}

static void
sizes_count_in_1024(void **state)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } RIGHT[] = {{"0", 0}, {"512", 512}, {"64K", 65536}, {"8M", 8 << 20}, {"1G", 1 << 30}};
    static const char *const WRONG[] = {
        "", "K", "64k", "64KB", "64KiB", "6 4", "64 K", "08", "-1", "1.5M", "18014398509481984K"};
    uint64_t bytes = 0;
    (void)state;
    for (size_t i = 0; i < COUNT(RIGHT); i++) {
        assert_true(values_size(text_of(RIGHT[i].text), &bytes));
        assert_int_equal(bytes, RIGHT[i].bytes);
    }
    for (size_t i = 0; i < COUNT(WRONG); i++)
        if (values_size(text_of(WRONG[i]), &bytes))
            fail_msg("'%s' was read as a size", WRONG[i]);
}

static void
booleans_are_on_and_off(void **state)
{
    bool on = false;
    (void)state;
    assert_true(values_bool(TEXT("on"), &on) && on);
    assert_true(values_bool(TEXT("off"), &on) && !on);
    assert_false(values_bool(TEXT("true"), &on));
    assert_false(values_bool(TEXT("On"), &on));
    assert_false(values_bool(TEXT(""), &on));
}

static void
rates_are_a_count_in_a_time(void **state)
{
    static const char *const WRONG[] = {"",     "2000", "2000/",  "/10s", "0/1s",
                                        "5/0s", "5/10", "5 / 1s", "05/1s"};
    uint64_t count = 0, ns = 0;
    (void)state;
    assert_true(values_rate(TEXT("2000/10s"), &count, &ns));
    assert_int_equal(count, 2000);
    assert_int_equal(ns, 10 * NS_PER_S);
    assert_true(values_rate(TEXT("off"), &count, &ns));
    assert_int_equal(count, 0);
    for (size_t i = 0; i < COUNT(WRONG); i++)
        if (values_rate(text_of(WRONG[i]), &count, &ns))
            fail_msg("'%s' was read as a rate", WRONG[i]);
}

static void
shares_are_percentages_of_two_decimals(void **state)
{
    static const struct {
        const char *text;
        uint32_t share;
    } RIGHT[] = {{"on", 10000},   {"off", 0},   {"10%", 1000}, {"0%", 0},
                 {"100%", 10000}, {"0.5%", 50}, {"0.05%", 5},  {"12.34%", 1234}};
    static const char *const WRONG[] = {"",       "%",   "10",  "101%", "100.01%", "-1%",
                                        "1.234%", ".5%", "5.%", "010%", "10 %"};
    uint32_t share = 0;
    (void)state;
    for (size_t i = 0; i < COUNT(RIGHT); i++) {
        assert_true(values_share(text_of(RIGHT[i].text), &share));
        assert_int_equal(share, RIGHT[i].share);
    }
    for (size_t i = 0; i < COUNT(WRONG); i++)
        if (values_share(text_of(WRONG[i]), &share))
            fail_msg("'%s' was read as a share", WRONG[i]);
}

static void
modes_are_octal(void **state)
{
    uint32_t mode = 0;
    (void)state;
    assert_true(values_mode(TEXT("0660"), &mode) && mode == 0660);
    assert_true(values_mode(TEXT("777"), &mode) && mode == 0777);
    assert_false(values_mode(TEXT("0888"), &mode));
    assert_false(values_mode(TEXT("1777"), &mode));
    assert_false(values_mode(TEXT("66"), &mode));
    assert_false(values_mode(TEXT("rw-"), &mode));
}

/* Every value that can be stored must be spelled so that it reads back: unit edges and their
 * neighbours. */
static void
what_is_written_reads_back(void **state)
{
    static const uint64_t NUMBERS[] = {
        0,       1,       999,        1000,          1001,        1023,
        1024,    1025,    65536,      999999,        1000000,     60000000000,
        1048576, 1048577, 1073741824, 3600000000000, 90000000000, 5400000000000};
    struct strbuf out = STRBUF_INIT;
    uint64_t value, window;
    uint32_t share;
    (void)state;
    for (size_t i = 0; i < COUNT(NUMBERS); i++) {
        strbuf_clear(&out);
        values_add_duration(&out, NUMBERS[i]);
        assert_true(values_duration(strbuf_text(&out), &value) && value == NUMBERS[i]);
        strbuf_clear(&out);
        values_add_size(&out, NUMBERS[i]);
        assert_true(values_size(strbuf_text(&out), &value) && value == NUMBERS[i]);
        strbuf_clear(&out);
        values_add_rate(&out, NUMBERS[i], 10 * NS_PER_S);
        assert_true(values_rate(strbuf_text(&out), &value, &window) && value == NUMBERS[i]);
    }
    for (uint32_t i = 0; i <= VALUES_SHARE_ALL; i++) {
        strbuf_clear(&out);
        values_add_share(&out, i);
        assert_true(values_share(strbuf_text(&out), &share) && share == i);
    }
    strbuf_fini(&out);
}

static void
the_largest_unit_is_written(void **state)
{
    struct strbuf out = STRBUF_INIT;
    (void)state;
    values_add_duration(&out, 25 * NS_PER_S);
    strbuf_add_char(&out, ' ');
    values_add_duration(&out, 0);
    strbuf_add_char(&out, ' ');
    values_add_duration(&out, 90 * NS_PER_S);
    strbuf_add_char(&out, ' ');
    values_add_size(&out, 65536);
    strbuf_add_char(&out, ' ');
    values_add_size(&out, 8 << 20);
    strbuf_add_char(&out, ' ');
    values_add_rate(&out, 2000, 10 * NS_PER_S);
    strbuf_add_char(&out, ' ');
    values_add_share(&out, 1000);
    expect_text(strbuf_text(&out), "25s 0s 90s 64K 8M 2000/10s 10%");
    strbuf_fini(&out);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_strict),
        cmocka_unit_test(durations_need_a_unit),
        cmocka_unit_test(sizes_count_in_1024),
        cmocka_unit_test(booleans_are_on_and_off),
        cmocka_unit_test(rates_are_a_count_in_a_time),
        cmocka_unit_test(shares_are_percentages_of_two_decimals),
        cmocka_unit_test(modes_are_octal),
        cmocka_unit_test(what_is_written_reads_back),
        cmocka_unit_test(the_largest_unit_is_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
