/*
 * What the fuzz targets share. A target is one function over arbitrary bytes that checks
 * properties; it is built with libFuzzer (TRIBUTARY_FUZZ=ON) or with replay.c, which runs the
 * corpus in every test run.
 */
#ifndef TRIBUTARY_TESTS_FUZZ_H
#define TRIBUTARY_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "proxy/base/check.h"
#include "proxy/base/text.h"

/* Returns 0; a property that does not hold aborts. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A copy of exactly that size on the heap (free), so that the address sanitizer sees a read past
 * its end. */
static inline uint8_t *
fuzz_copy(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size ? size : 1);

    check(copy != NULL);
    if (size > 0)
        memcpy(copy, data, size);
    return copy;
}

#endif
