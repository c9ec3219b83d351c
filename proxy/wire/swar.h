/*
 * Eight bytes at a time in a 64-bit word: whether any byte is small, high or a given one. Exact as
 * yes or no; which byte it is stays open. For the checks that run over every header value of a
 * call.
 */
#ifndef TRIBUTARY_WIRE_SWAR_H
#define TRIBUTARY_WIRE_SWAR_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define SWAR_ONES (~(uint64_t)0 / 255)
#define SWAR_HIGH (SWAR_ONES * 128)

enum { SWAR_BYTES = 8 };

static inline uint64_t
swar_load(const void *bytes)
{
    uint64_t word;

    memcpy(&word, bytes, sizeof(word));
    return word;
}

/* Fewer than eight bytes in any order, some of them twice, the rest '!'. */
static inline uint64_t
swar_load_short(const char *bytes, size_t len)
{
    if (len >= 4) {
        uint32_t first, last;

        memcpy(&first, bytes, sizeof(first));
        memcpy(&last, bytes + len - sizeof(last), sizeof(last));
        return (uint64_t)last << 32 | first;
    }
    uint64_t word = SWAR_ONES * '!';
    for (size_t i = 0; i < len; i++)
        word = word << 8 | (uint8_t)bytes[i];
    return word;
}

/* Any byte under `bound` (at most 128). */
static inline bool
swar_has_less(uint64_t word, uint8_t bound)
{
    return ((word - SWAR_ONES * bound) & ~word & SWAR_HIGH) != 0;
}

static inline bool
swar_has(uint64_t word, uint8_t byte)
{
    return swar_has_less(word ^ SWAR_ONES * byte, 1);
}

/* Any byte over 127. */
static inline bool
swar_has_high(uint64_t word)
{
    return (word & SWAR_HIGH) != 0;
}

#endif
