/*
 * The end of every failed check(). Owns nothing; must work with a broken heap, so it neither
 * allocates nor goes through the log.
 */
#include "proxy/base/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void
check_failed(const char *file, int line, const char *what)
{
    char message[512];
    int len = snprintf(message, sizeof(message), "%s:%d: check failed: %s\n", file, line, what);
    if (len >= (int)sizeof(message))
        len = (int)sizeof(message) - 1;
    /* Nothing is left to do when stderr is gone. */
    if (len > 0 && write(STDERR_FILENO, message, (size_t)len) < 0)
        abort();
    abort();
}
