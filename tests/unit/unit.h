/* What every unit test includes: cmocka with the headers it needs, and comparisons in our own
 * types. */
#ifndef TRIBUTARY_TESTS_UNIT_H
#define TRIBUTARY_TESTS_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proxy/base/text.h"

/* Fails with both texts shown; `expected` is a C string. */
static inline void
expect_text_at(struct text actual, const char *expected, const char *file, int line)
{
    if (text_eq(actual, text_of(expected)))
        return;
    print_error("\"%.*s\" is not \"%s\"\n", TEXT_ARGS(actual), expected);
    _fail(file, line);
}

#define expect_text(actual, expected) expect_text_at(actual, expected, __FILE__, __LINE__)

#endif
