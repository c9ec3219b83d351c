/*
 * Base64 with the standard alphabet: what -bin metadata, grpc-status-details-bin and error details
 * are written in.
 *
 * Not here: the URL alphabet, line breaks, comma-joined lists. Bits left over in the last group are
 * ignored, as the Go and Java peers do. Decoding never fails half-way: either all bytes or none.
 */
#include "proxy/wire/base64.h"

static const char letters[64] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/* Value of each byte with LETTER set; 0 for bytes outside the alphabet. */
enum { LETTER = 64 };
static const uint8_t values[256] = {
    ['A'] = LETTER | 0,  ['B'] = LETTER | 1,  ['C'] = LETTER | 2,  ['D'] = LETTER | 3,
    ['E'] = LETTER | 4,  ['F'] = LETTER | 5,  ['G'] = LETTER | 6,  ['H'] = LETTER | 7,
    ['I'] = LETTER | 8,  ['J'] = LETTER | 9,  ['K'] = LETTER | 10, ['L'] = LETTER | 11,
    ['M'] = LETTER | 12, ['N'] = LETTER | 13, ['O'] = LETTER | 14, ['P'] = LETTER | 15,
    ['Q'] = LETTER | 16, ['R'] = LETTER | 17, ['S'] = LETTER | 18, ['T'] = LETTER | 19,
    ['U'] = LETTER | 20, ['V'] = LETTER | 21, ['W'] = LETTER | 22, ['X'] = LETTER | 23,
    ['Y'] = LETTER | 24, ['Z'] = LETTER | 25, ['a'] = LETTER | 26, ['b'] = LETTER | 27,
    ['c'] = LETTER | 28, ['d'] = LETTER | 29, ['e'] = LETTER | 30, ['f'] = LETTER | 31,
    ['g'] = LETTER | 32, ['h'] = LETTER | 33, ['i'] = LETTER | 34, ['j'] = LETTER | 35,
    ['k'] = LETTER | 36, ['l'] = LETTER | 37, ['m'] = LETTER | 38, ['n'] = LETTER | 39,
    ['o'] = LETTER | 40, ['p'] = LETTER | 41, ['q'] = LETTER | 42, ['r'] = LETTER | 43,
    ['s'] = LETTER | 44, ['t'] = LETTER | 45, ['u'] = LETTER | 46, ['v'] = LETTER | 47,
    ['w'] = LETTER | 48, ['x'] = LETTER | 49, ['y'] = LETTER | 50, ['z'] = LETTER | 51,
    ['0'] = LETTER | 52, ['1'] = LETTER | 53, ['2'] = LETTER | 54, ['3'] = LETTER | 55,
    ['4'] = LETTER | 56, ['5'] = LETTER | 57, ['6'] = LETTER | 58, ['7'] = LETTER | 59,
    ['8'] = LETTER | 60, ['9'] = LETTER | 61, ['+'] = LETTER | 62, ['/'] = LETTER | 63,
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

/* The 24 bits of four letters, or of fewer and left-aligned; false on a byte outside the alphabet.
 */
static inline bool
group_of(const uint8_t *from, size_t count, uint32_t *group)
{
    uint32_t a = values[from[0]], b = values[from[1]];
    uint32_t c = count > 2 ? values[from[2]] : LETTER, d = count > 3 ? values[from[3]] : LETTER;

    *group = (a & 63) << 18 | (b & 63) << 12 | (c & 63) << 6 | (d & 63);
    return (a & b & c & d & LETTER) != 0;
}

bool
base64_decode(struct arena *arena, struct text encoded, struct text *bytes)
{
    if (!strip_padding(&encoded) || encoded.len % 4 == 1)
        return false;

    const uint8_t *from = (const uint8_t *)encoded.ptr;
    uint8_t *start = arena_alloc(arena, encoded.len / 4 * 3 + 3);
    uint8_t *to = start;
    size_t left = encoded.len;
    uint32_t group;

    for (; left >= 4; left -= 4, from += 4, to += 3) {
        if (!group_of(from, 4, &group))
            return false;
        to[0] = (uint8_t)(group >> 16);
        to[1] = (uint8_t)(group >> 8);
        to[2] = (uint8_t)group;
    }
    if (left > 0) { /* 2 or 3 */
        if (!group_of(from, left, &group))
            return false;
        *to++ = (uint8_t)(group >> 16);
        if (left == 3)
            *to++ = (uint8_t)(group >> 8);
    }
    *bytes = text_make(start, (size_t)(to - start));
    return true;
}
