/*
 * Base64 with the standard alphabet: what -bin metadata, grpc-status-details-bin and error details
 * are written in.
 *
 * Not here: the URL alphabet, line breaks, comma-joined lists. Bits left over in the last group are
 * ignored, as the Go and Java peers do. Decoding never fails half-way: either all bytes or none.
 */
#include "proxy/wire/base64.h"

static const char letters[64] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/* Value of each byte plus one; 0 for bytes outside the alphabet. */
static const uint8_t values[256] = {
    ['A'] = 1,  ['B'] = 2,  ['C'] = 3,  ['D'] = 4,  ['E'] = 5,  ['F'] = 6,  ['G'] = 7,  ['H'] = 8,
    ['I'] = 9,  ['J'] = 10, ['K'] = 11, ['L'] = 12, ['M'] = 13, ['N'] = 14, ['O'] = 15, ['P'] = 16,
    ['Q'] = 17, ['R'] = 18, ['S'] = 19, ['T'] = 20, ['U'] = 21, ['V'] = 22, ['W'] = 23, ['X'] = 24,
    ['Y'] = 25, ['Z'] = 26, ['a'] = 27, ['b'] = 28, ['c'] = 29, ['d'] = 30, ['e'] = 31, ['f'] = 32,
    ['g'] = 33, ['h'] = 34, ['i'] = 35, ['j'] = 36, ['k'] = 37, ['l'] = 38, ['m'] = 39, ['n'] = 40,
    ['o'] = 41, ['p'] = 42, ['q'] = 43, ['r'] = 44, ['s'] = 45, ['t'] = 46, ['u'] = 47, ['v'] = 48,
    ['w'] = 49, ['x'] = 50, ['y'] = 51, ['z'] = 52, ['0'] = 53, ['1'] = 54, ['2'] = 55, ['3'] = 56,
    ['4'] = 57, ['5'] = 58, ['6'] = 59, ['7'] = 60, ['8'] = 61, ['9'] = 62, ['+'] = 63, ['/'] = 64,
};

struct text
base64_encode(struct arena *arena, struct text bytes)
{
    const uint8_t *from = (const uint8_t *)bytes.ptr;
    char *start = arena_alloc(arena, bytes.len / 3 * 4 + 4);
    char *to = start;
    size_t left = bytes.len;

    for (; left >= 3; left -= 3, from += 3) {
        uint32_t group = (uint32_t)from[0] << 16 | (uint32_t)from[1] << 8 | from[2];

        *to++ = letters[group >> 18];
        *to++ = letters[group >> 12 & 63];
        *to++ = letters[group >> 6 & 63];
        *to++ = letters[group & 63];
    }
    if (left > 0) {
        uint32_t group = (uint32_t)from[0] << 16 | (left == 2 ? (uint32_t)from[1] << 8 : 0);

        *to++ = letters[group >> 18];
        *to++ = letters[group >> 12 & 63];
        if (left == 2)
            *to++ = letters[group >> 6 & 63];
    }
    return text_make(start, (size_t)(to - start));
}

/* Takes legal padding off; false when there is padding that does not fill the last group. */
static bool
strip_padding(struct text *encoded)
{
    size_t padding = 0;

    while (padding < encoded->len && encoded->ptr[encoded->len - 1 - padding] == '=')
        padding++;
    if (padding > 0 && (padding > 2 || encoded->len % 4 != 0))
        return false;
    encoded->len -= padding;
    return true;
}

/* The 24 bits of a group of `count` letters, left-aligned; false on a byte outside the alphabet. */
static inline bool
group_of(const uint8_t *from, size_t count, uint32_t *group)
{
    uint32_t bits = 0;

    for (size_t i = 0; i < 4; i++) {
        unsigned value = i < count ? values[from[i]] : 1;

        if (value == 0)
            return false;
        bits = bits << 6 | (value - 1);
    }
    *group = bits;
    return true;
}

bool
base64_decode(struct arena *arena, struct text encoded, struct text *bytes)
{
    if (!strip_padding(&encoded) || encoded.len % 4 == 1)
        return false;

    const uint8_t *from = (const uint8_t *)encoded.ptr;
    uint8_t *start = arena_alloc(arena, encoded.len / 4 * 3 + 3);
    uint8_t *to = start;
    uint32_t group;

    for (size_t left = encoded.len; left > 0;) {
        size_t count = left < 4 ? left : 4;

        if (!group_of(from, count, &group))
            return false;
        *to++ = (uint8_t)(group >> 16);
        if (count > 2)
            *to++ = (uint8_t)(group >> 8);
        if (count > 3)
            *to++ = (uint8_t)group;
        from += count;
        left -= count;
    }
    *bytes = text_make(start, (size_t)(to - start));
    return true;
}
