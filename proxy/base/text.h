/*
 * Byte strings with a length, not NUL-terminated, not owned: views into memory that outlives them.
 * Comparison without case is ASCII only, as RFC 9110 field names need it.
 */
#ifndef TRIBUTARY_BASE_TEXT_H
#define TRIBUTARY_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct text {
    const char *ptr; /* may be NULL when len is 0 */
    size_t len;
};

#define TEXT(literal) ((struct text){(literal), sizeof(literal) - 1})
#define TEXT_NONE ((struct text){NULL, 0})
/* For printf's "%.*s". */
#define TEXT_ARGS(text) (int)(text).len, (text).len ? (text).ptr : ""

static inline struct text
text_of(const char *string)
{
    return (struct text){string, string ? strlen(string) : 0};
}

static inline struct text
text_make(const void *ptr, size_t len)
{
    return (struct text){(const char *)ptr, len};
}

/* Constants go second: a comparison with a known length is no call of memcmp(). */
static inline bool
text_eq(struct text a, struct text b)
{
    return a.len == b.len &&
           (b.len == 0 || (a.ptr[0] == b.ptr[0] && memcmp(a.ptr, b.ptr, b.len) == 0));
}

static inline bool
text_starts(struct text text, struct text prefix)
{
    return text.len >= prefix.len &&
           (prefix.len == 0 || memcmp(text.ptr, prefix.ptr, prefix.len) == 0);
}

static inline bool
text_ends(struct text text, struct text suffix)
{
    return text.len >= suffix.len && (suffix.len == 0 || memcmp(text.ptr + text.len - suffix.len,
                                                                suffix.ptr, suffix.len) == 0);
}

/* The part from `offset` on; empty when offset is past the end. */
static inline struct text
text_from(struct text text, size_t offset)
{
    return offset >= text.len ? TEXT_NONE : (struct text){text.ptr + offset, text.len - offset};
}

bool text_starts_nocase(struct text a, struct text b); /* ASCII */
static inline bool
text_eq_nocase(struct text a, struct text b) /* ASCII; most are equal as they are */
{
    return text_eq(a, b) || (a.len == b.len && text_starts_nocase(a, b));
}
struct text text_trim(struct text text); /* spaces and tabs at both ends (OWS) */
/* Index of the first `byte` at or after `from`, or -1. */
ptrdiff_t text_find(struct text text, char byte, size_t from);
/* Split off the part before the next `separator` from *rest (trimmed); false when *rest is used up.
 * "a,,b" gives "a", "", "b"; nothing behind the last separator is not a part. */
bool text_next(struct text *rest, char separator, struct text *part);
/* Decimal digits only, no sign or blanks: true and *value, or false when empty, not digits or
 * over UINT64_MAX. */
bool text_to_u64(struct text text, uint64_t *value);
/* As a new NUL-terminated string, owned by the caller (mem_free). */
char *text_dup(struct text text);
/* For tables that no peer can fill. */
uint64_t text_hash(struct text text);
/* Edit distance (Levenshtein), for suggestions; bounded: lengths over 64 give 64. */
unsigned text_distance(struct text a, struct text b);

#endif
