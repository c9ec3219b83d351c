/* Byte strings: comparison, splitting, numbers, the distance that suggestions go by. */
#include "tests/unit/unit.h"

#include "proxy/base/mem.h"

static void
case_is_ignored_for_ascii_letters_only(void **state)
{
    (void)state;
    assert_true(text_eq_nocase(TEXT("Content-TYPE"), TEXT("content-type")));
    assert_false(text_eq_nocase(TEXT("content-type"), TEXT("content-typ")));
    assert_false(text_eq_nocase(TEXT("@"), TEXT("`"))); /* differ by 0x20, are no letters */
    assert_false(text_eq_nocase(TEXT("["), TEXT("{")));
    assert_false(text_eq_nocase(TEXT("\xc4"), TEXT("\xe4")));
    assert_true(text_eq_nocase(TEXT_NONE, TEXT("")));
}

static void
prefix_without_case(void **state)
{
    (void)state;
    assert_true(text_starts_nocase(TEXT("Application/GRPC+proto"), TEXT("application/grpc")));
    assert_true(text_starts_nocase(TEXT("x"), TEXT_NONE));
    assert_false(text_starts_nocase(TEXT("appl"), TEXT("application")));
}

static void
prefix_suffix_and_rest_stay_inside_the_text(void **state)
{
    (void)state;
    assert_true(text_starts(TEXT("abc"), TEXT("ab")));
    assert_false(text_starts(TEXT("ab"), TEXT("abc")));
    assert_true(text_ends(TEXT("abc"), TEXT("bc")));
    assert_false(text_ends(TEXT("bc"), TEXT("abc")));
    assert_true(text_ends(TEXT("abc"), TEXT_NONE));
    expect_text(text_from(TEXT("abc"), 1), "bc");
    expect_text(text_from(TEXT("abc"), 3), "");
    expect_text(text_from(TEXT("abc"), 99), "");
}

static void
trim_takes_spaces_and_tabs_only(void **state)
{
    (void)state;
    expect_text(text_trim(TEXT(" \t a b\t ")), "a b");
    expect_text(text_trim(TEXT("\na\n")), "\na\n");
    expect_text(text_trim(TEXT(" \t ")), "");
    expect_text(text_trim(TEXT_NONE), "");
}

static void
find_starts_where_it_is_told(void **state)
{
    (void)state;
    assert_int_equal(text_find(TEXT("a/b/c"), '/', 0), 1);
    assert_int_equal(text_find(TEXT("a/b/c"), '/', 2), 3);
    assert_int_equal(text_find(TEXT("a/b/c"), '/', 4), -1);
    assert_int_equal(text_find(TEXT("a/b/c"), '/', 50), -1);
    assert_int_equal(text_find(TEXT_NONE, '/', 0), -1);
}

static void
expect_parts(const char *list, const char *const *parts, unsigned count)
{
    struct text rest = text_of(list), part;
    for (unsigned i = 0; i < count; i++) {
        assert_true(text_next(&rest, ',', &part));
        expect_text(part, parts[i]);
    }
    assert_false(text_next(&rest, ',', &part));
}

static void
list_splits_into_trimmed_parts(void **state)
{
    (void)state;
    expect_parts("a,,b", (const char *[]){"a", "", "b"}, 3);
    expect_parts("  a b ,\tc  ", (const char *[]){"a b", "c"}, 2);
    expect_parts(",a", (const char *[]){"", "a"}, 2);
    expect_parts("a, ", (const char *[]){"a"}, 1);
    expect_parts("one", (const char *[]){"one"}, 1);
    expect_parts("", NULL, 0);
    expect_parts("   ", NULL, 0);
}

static void
number_is_digits_up_to_the_largest(void **state)
{
    (void)state;
    uint64_t value = 7;
    assert_true(text_to_u64(TEXT("0"), &value));
    assert_int_equal(value, 0);
    assert_true(text_to_u64(TEXT("18446744073709551615"), &value));
    assert_true(value == UINT64_MAX);
    assert_true(text_to_u64(TEXT("000000000000000000000000042"), &value));
    assert_int_equal(value, 42);
}

static void
what_is_no_number_leaves_the_value(void **state)
{
    (void)state;
    const char *const wrong[] = {"",
                                 " 1",
                                 "1 ",
                                 "+1",
                                 "-1",
                                 "0x1",
                                 "1.0",
                                 "1k",
                                 "/",
                                 ":",
                                 "1:2",
                                 "١",
                                 "18446744073709551616",
                                 "99999999999999999999999999"};
    uint64_t value = 7;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_false(text_to_u64(text_of(wrong[i]), &value));
    assert_false(text_to_u64(TEXT_NONE, &value));
    assert_int_equal(value, 7);
}

static void
dup_ends_with_nul(void **state)
{
    (void)state;
    char *copy = text_dup(text_make("abcdef", 3));
    assert_string_equal(copy, "abc");
    mem_free(copy);
    copy = text_dup(TEXT_NONE);
    assert_string_equal(copy, "");
    mem_free(copy);
}

static void
distance_counts_edits(void **state)
{
    (void)state;
    assert_int_equal(text_distance(TEXT("timeout"), TEXT("timeout")), 0);
    assert_int_equal(text_distance(TEXT("tiemout"), TEXT("timeout")), 2);
    assert_int_equal(text_distance(TEXT("max_stream"), TEXT("max_streams")), 1);
    assert_int_equal(text_distance(TEXT("kitten"), TEXT("sitting")), 3);
    assert_int_equal(text_distance(TEXT(""), TEXT("abc")), 3);
    assert_int_equal(text_distance(TEXT("abc"), TEXT_NONE), 3);
    assert_int_equal(text_distance(TEXT("ab"), TEXT("ba")), 2);
}

static void
distance_prefers_the_key_that_was_meant(void **state)
{
    (void)state;
    struct text typed = TEXT("conect_timeout");
    unsigned meant = text_distance(typed, TEXT("connect_timeout"));
    assert_true(meant < text_distance(typed, TEXT("drain_timeout")));
    assert_true(meant < text_distance(typed, TEXT("connections")));
}

static void
distance_of_long_texts_is_the_bound(void **state)
{
    (void)state;
    char a[65], b[65];
    memset(a, 'a', sizeof(a));
    memset(b, 'b', sizeof(b));
    assert_int_equal(text_distance(text_make(a, 64), text_make(b, 64)), 64);
    assert_int_equal(text_distance(text_make(a, 65), text_make(a, 65)), 64);
    assert_int_equal(text_distance(text_make(a, 1), text_make(b, 65)), 64);
    assert_int_equal(text_distance(text_make(a, 64), text_make(a, 63)), 1);
}

static void
every_byte_and_the_length_change_the_hash(void **state)
{
    (void)state;
    char bytes[40];
    for (size_t len = 0; len <= sizeof(bytes); len++) {
        memset(bytes, 0, sizeof(bytes));
        uint64_t hash = text_hash(text_make(bytes, len));
        assert_true(len == sizeof(bytes) || hash != text_hash(text_make(bytes, len + 1)));
        for (size_t i = 0; i < len; i++) {
            bytes[i] = 1;
            assert_true(hash != text_hash(text_make(bytes, len)));
            bytes[i] = 0;
        }
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_byte_and_the_length_change_the_hash),
        cmocka_unit_test(case_is_ignored_for_ascii_letters_only),
        cmocka_unit_test(prefix_without_case),
        cmocka_unit_test(prefix_suffix_and_rest_stay_inside_the_text),
        cmocka_unit_test(trim_takes_spaces_and_tabs_only),
        cmocka_unit_test(find_starts_where_it_is_told),
        cmocka_unit_test(list_splits_into_trimmed_parts),
        cmocka_unit_test(number_is_digits_up_to_the_largest),
        cmocka_unit_test(what_is_no_number_leaves_the_value),
        cmocka_unit_test(dup_ends_with_nul),
        cmocka_unit_test(distance_counts_edits),
        cmocka_unit_test(distance_prefers_the_key_that_was_meant),
        cmocka_unit_test(distance_of_long_texts_is_the_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
