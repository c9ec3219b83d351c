/* What the wire tests share: cmocka's headers in the order it wants, an arena per test, comparisons
 * of texts. */
#ifndef TRIBUTARY_TESTS_UNIT_WIRE_TEST_H
#define TRIBUTARY_TESTS_UNIT_WIRE_TEST_H

#include "proxy/base/arena.h"
#include "unit.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static struct arena arena;

static inline int
arena_setup(void **state)
{
    (void)state;
    arena_init(&arena, NULL, 0);
    return 0;
}

static inline int
arena_teardown(void **state)
{
    (void)state;
    arena_fini(&arena);
    return 0;
}

static inline void
assert_text(struct text actual, struct text expected)
{
    if (!text_eq(actual, expected))
        fail_msg("\"%.*s\" is not \"%.*s\"", TEXT_ARGS(actual), TEXT_ARGS(expected));
}

static inline void
assert_str(struct text actual, const char *expected)
{
    assert_text(actual, text_of(expected));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, arena_setup, arena_teardown)

#endif
