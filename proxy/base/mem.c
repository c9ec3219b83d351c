/*
 * The heap, never NULL. Owns no memory itself. Failure: out of memory aborts with a message,
 * because no caller could do better and sizes from peers are bounded before they come here.
 */
#include "proxy/base/mem.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "proxy/base/check.h"

static void *
or_abort(void *memory)
{
    if (__builtin_expect(memory == NULL, 0))
        check_failed(__FILE__, __LINE__, "out of memory");
    return memory;
}

/* malloc(0) may be NULL; one byte keeps the promise. */
static size_t
at_least_one(size_t bytes)
{
    return bytes + !bytes;
}

void *
mem_alloc(size_t bytes)
{
    return or_abort(malloc(at_least_one(bytes)));
}

void *
mem_zalloc(size_t bytes)
{
    return or_abort(calloc(1, at_least_one(bytes)));
}

void *
mem_realloc(void *memory, size_t bytes)
{
    return or_abort(realloc(memory, at_least_one(bytes)));
}

char *
mem_strdup(const char *text)
{
    return mem_strndup(text, strlen(text));
}

char *
mem_strndup(const char *text, size_t bytes)
{
    char *copy = mem_alloc(bytes + 1);
    if (bytes)
        memcpy(copy, text, bytes);
    copy[bytes] = '\0';
    return copy;
}

void
mem_free(void *memory)
{
    free(memory);
}

void
mem_trim(void)
{
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}
