/* ${NAME} and ${NAME:-default}: what they become, and what is refused. */
#include "tests/unit/unit.h"

#include "proxy/config/substitute.h"

static void
expect_becomes(const char *value, const char *expected)
{
    struct arena arena;
    struct strbuf why = STRBUF_INIT;
    struct text out = TEXT_NONE;
    arena_init(&arena, NULL, 0);
    assert_true(substitute(&arena, text_of(value), &out, &why));
    expect_text(out, expected);
    assert_int_equal(why.len, 0);
    arena_fini(&arena);
}

static void
expect_refused(const char *value, const char *reason)
{
    struct arena arena;
    struct strbuf why = STRBUF_INIT;
    struct text out = TEXT_NONE;
    arena_init(&arena, NULL, 0);
    assert_false(substitute(&arena, text_of(value), &out, &why));
    expect_text(strbuf_text(&why), reason);
    strbuf_fini(&why);
    arena_fini(&arena);
}

static void
variables_come_from_the_environment(void **state)
{
    (void)state;
    setenv("TEST_IP", "10.0.0.7", 1);
    setenv("TEST_PORT_1", "80", 1);
    expect_becomes("${TEST_IP}:${TEST_PORT_1}", "10.0.0.7:80");
    expect_becomes("a ${TEST_IP} b", "a 10.0.0.7 b");
    expect_becomes("plain $5 {x} $", "plain $5 {x} $");
    expect_becomes("", "");
}

static void
a_default_serves_where_a_variable_has_no_value(void **state)
{
    (void)state;
    unsetenv("TEST_NONE");
    setenv("TEST_EMPTY", "", 1);
    setenv("TEST_IP", "10.0.0.7", 1);
    expect_becomes("${TEST_NONE:-127.0.0.1}:1", "127.0.0.1:1");
    expect_becomes("${TEST_EMPTY:-x}", "x");
    expect_becomes("${TEST_IP:-x}", "10.0.0.7");
    expect_becomes("${TEST_NONE:-}", "");
    expect_becomes("${TEST_NONE:-a:-b}", "a:-b");
}

static void
no_value_and_no_default_is_an_error(void **state)
{
    (void)state;
    unsetenv("TEST_NONE");
    setenv("TEST_EMPTY", "", 1);
    expect_refused("${TEST_NONE}", "${TEST_NONE} has no value in the environment; set it or write "
                                   "${TEST_NONE:-default}");
    expect_refused("${TEST_EMPTY}",
                   "${TEST_EMPTY} has no value in the environment; set it or write "
                   "${TEST_EMPTY:-default}");
}

static void
malformed_variables_are_errors(void **state)
{
    (void)state;
    expect_refused("${", "'${' without '}'; write ${NAME} or ${NAME:-default}");
    expect_refused("a${TEST_IP", "'${' without '}'; write ${NAME} or ${NAME:-default}");
    expect_refused("${}", "'${}' names no variable; write ${NAME} or ${NAME:-default}");
    expect_refused("${1A}", "'${1A}' names no variable; write ${NAME} or ${NAME:-default}");
    expect_refused("${A-b}", "'${A-b}' names no variable; write ${NAME} or ${NAME:-default}");
    expect_refused("${A:b}", "'${A:b}' names no variable; write ${NAME} or ${NAME:-default}");
}

static void
values_that_the_file_could_not_spell_are_errors(void **state)
{
    static const char WHY[] = "the value holds a control character, '${', or a ';' that starts a "
                              "comment; this file cannot spell such a value";
    (void)state;
    setenv("TEST_ODD", "a\nworkers = 9", 1);
    expect_refused("${TEST_ODD}", WHY);
    setenv("TEST_ODD", "a ; b", 1);
    expect_refused("${TEST_ODD}", WHY);
    setenv("TEST_ODD", "${HOME}", 1);
    expect_refused("${TEST_ODD}", WHY);
    expect_refused(";x", WHY);
    setenv("TEST_ODD", "  a;b  ", 1);
    expect_becomes("${TEST_ODD}", "a;b");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(variables_come_from_the_environment),
        cmocka_unit_test(a_default_serves_where_a_variable_has_no_value),
        cmocka_unit_test(no_value_and_no_default_is_an_error),
        cmocka_unit_test(malformed_variables_are_errors),
        cmocka_unit_test(values_that_the_file_could_not_spell_are_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
