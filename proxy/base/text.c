/*
 * Byte strings: comparing, splitting, numbers, edit distance. Pure functions over views; owns
 * nothing but the copy that text_dup() hands out.
 */
#include "proxy/base/text.h"

#include "proxy/base/mem.h"

/* The C library's tolower() follows the locale; field names are ASCII. */
static unsigned char
lower(char byte)
{
    unsigned char value = (unsigned char)byte;
    return value >= 'A' && value <= 'Z' ? (unsigned char)(value | 0x20) : value;
}

bool
text_starts_nocase(struct text a, struct text b)
{
    if (a.len < b.len)
        return false;
    for (size_t i = 0; i < b.len; i++)
        if (lower(a.ptr[i]) != lower(b.ptr[i]))
            return false;
    return true;
}

static bool
blank(char byte)
{
    return byte == ' ' || byte == '\t';
}

struct text
text_trim(struct text text)
{
    while (text.len && blank(text.ptr[0])) {
        text.ptr++;
        text.len--;
    }
    while (text.len && blank(text.ptr[text.len - 1]))
        text.len--;
    return text;
}

ptrdiff_t
text_find(struct text text, char byte, size_t from)
{
    if (from >= text.len)
        return -1;
    const char *found = memchr(text.ptr + from, byte, text.len - from);
    return found ? found - text.ptr : -1;
}

bool
text_next(struct text *rest, char separator, struct text *part)
{
    *rest = text_trim(*rest);
    if (rest->len == 0)
        return false;
    ptrdiff_t at = text_find(*rest, separator, 0);
    if (at < 0) {
        *part = *rest;
        *rest = TEXT_NONE;
        return true;
    }
    *part = text_trim(text_make(rest->ptr, (size_t)at));
    *rest = text_from(*rest, (size_t)at + 1);
    return true;
}

bool
text_to_u64(struct text text, uint64_t *value)
{
    uint64_t sum = 0;
    if (text.len == 0)
        return false;
    for (size_t i = 0; i < text.len; i++) {
        unsigned digit = (unsigned)(unsigned char)text.ptr[i] - '0';
        if (digit > 9 || __builtin_mul_overflow(sum, (uint64_t)10, &sum) ||
            __builtin_add_overflow(sum, (uint64_t)digit, &sum))
            return false;
    }
    *value = sum;
    return true;
}

static uint64_t
hash_word(uint64_t hash, const char *bytes, size_t len)
{
    uint64_t word = 0;
    memcpy(&word, bytes, len);
    hash = (hash ^ word) * 0x9e3779b97f4a7c15u; /* 2^64 / golden ratio */
    return hash ^ (hash >> 32);
}

uint64_t
text_hash(struct text text)
{
    enum { WORD = sizeof(uint64_t) };
    uint64_t hash = text.len;
    size_t at = 0;
    for (; at + WORD <= text.len; at += WORD)
        hash = hash_word(hash, text.ptr + at, WORD);
    if (at == text.len)
        return hash;
    /* The rest, with bytes before it where there are some: a copy of a known length. */
    return text.len < WORD ? hash_word(hash, text.ptr, text.len)
                           : hash_word(hash, text.ptr + text.len - WORD, WORD);
}

char *
text_dup(struct text text)
{
    return mem_strndup(text.ptr, text.len);
}

enum { DISTANCE_MAX = 64 };

static unsigned
least(unsigned a, unsigned b, unsigned c)
{
    unsigned ab = a < b ? a : b;
    return ab < c ? ab : c;
}

unsigned
text_distance(struct text a, struct text b)
{
    /* row[j]: distance of the first i bytes of a to the first j of b */
    unsigned row[DISTANCE_MAX + 1];
    if (a.len > DISTANCE_MAX || b.len > DISTANCE_MAX)
        return DISTANCE_MAX;
    for (unsigned j = 0; j <= b.len; j++)
        row[j] = j;
    for (unsigned i = 1; i <= a.len; i++) {
        unsigned diagonal = row[0];
        row[0] = i;
        for (unsigned j = 1; j <= b.len; j++) {
            unsigned replaced = diagonal + (a.ptr[i - 1] != b.ptr[j - 1]);
            diagonal = row[j];
            row[j] = least(row[j] + 1, row[j - 1] + 1, replaced);
        }
    }
    return row[b.len];
}
