/*
 * grpc-message: text to percent-encoded field value and back, always valid UTF-8 on the decoded
 * side.
 *
 * Owns the escape grammar and the repair of broken UTF-8. Does not own how long a message may be
 * (the caller cuts with percent_utf8_cut). Most messages are plain ASCII: those are returned as
 * they are, without a copy. Failure modes: none, every input has an output; what cannot be read
 * becomes U+FFFD or stays as it was written.
 */
#include "proxy/wire/percent.h"

#include "proxy/wire/swar.h"

static const char replacement[] = "\xef\xbf\xbd"; /* U+FFFD */

enum { REPLACEMENT_BYTES = 3 };

static inline bool
must_escape(uint8_t byte, bool escape_plus)
{
    return byte < 0x20 || byte > 0x7e || byte == '%' || (escape_plus && byte == '+');
}

static char *
escape_into(char *to, uint8_t byte)
{
    static const char hex[] = "0123456789ABCDEF";

    *to++ = '%';
    *to++ = hex[byte >> 4];
    *to++ = hex[byte & 15];
    return to;
}

/* How many bytes at the start need no escape; eight at a time, so maybe a few less. */
static size_t
plain_start(struct text message, bool escape_plus)
{
    size_t plain = 0;

    for (; message.len - plain >= SWAR_BYTES; plain += SWAR_BYTES) {
        uint64_t word = swar_load(message.ptr + plain);

        if (swar_has_high(word) || swar_has_less(word, 0x20) || swar_has(word, 0x7f) ||
            swar_has(word, '%') || (escape_plus && swar_has(word, '+')))
            break;
    }
    return plain;
}

struct text
percent_encode(struct arena *arena, struct text message, bool escape_plus)
{
    const uint8_t *from = (const uint8_t *)message.ptr;
    size_t escapes = 0;

    for (size_t i = plain_start(message, escape_plus); i < message.len; i++)
        escapes += must_escape(from[i], escape_plus);
    if (escapes == 0)
        return message;

    char *start = arena_alloc(arena, message.len + 2 * escapes);
    char *to = start;

    for (size_t i = 0; i < message.len; i++) {
        if (must_escape(from[i], escape_plus))
            to = escape_into(to, from[i]);
        else
            *to++ = (char)from[i];
    }
    return text_make(start, (size_t)(to - start));
}

static int
hex_value(uint8_t byte)
{
    if (byte >= '0' && byte <= '9')
        return byte - '0';
    byte |= 0x20;
    return byte >= 'a' && byte <= 'f' ? byte - 'a' + 10 : -1;
}

static struct text
unescape(struct arena *arena, struct text encoded)
{
    const uint8_t *from = (const uint8_t *)encoded.ptr;
    char *start = arena_alloc(arena, encoded.len);
    char *to = start;

    for (size_t i = 0; i < encoded.len; i++) {
        if (from[i] == '%' && encoded.len - i > 2) {
            int high = hex_value(from[i + 1]), low = hex_value(from[i + 2]);

            if (high >= 0 && low >= 0) {
                *to++ = (char)(high << 4 | low);
                i += 2;
                continue;
            }
        }
        *to++ = (char)from[i];
    }
    return text_make(start, (size_t)(to - start));
}

/* What may follow a leading byte: how many bytes, and the range of the first of them (Unicode,
 * table 3-7). */
struct utf8_lead {
    uint8_t following, low, high;
};

static struct utf8_lead
utf8_lead_of(uint8_t byte)
{
    if (byte < 0xc2 || byte > 0xf4)
        return (struct utf8_lead){0, 0, 0};
    if (byte < 0xe0)
        return (struct utf8_lead){1, 0x80, 0xbf};
    if (byte < 0xf0)
        return (struct utf8_lead){2, byte == 0xe0 ? 0xa0 : 0x80, byte == 0xed ? 0x9f : 0xbf};
    return (struct utf8_lead){3, byte == 0xf0 ? 0x90 : 0x80, byte == 0xf4 ? 0x8f : 0xbf};
}

/* Bytes of the sequence at `from`; *valid is false when they are only the start of one (or no start
 * at all). */
static size_t
utf8_sequence(const uint8_t *from, size_t len, bool *valid)
{
    *valid = true;
    if (from[0] < 0x80)
        return 1;

    struct utf8_lead lead = utf8_lead_of(from[0]);
    size_t have = 1;

    while (have <= lead.following && have < len) {
        uint8_t low = have == 1 ? lead.low : 0x80, high = have == 1 ? lead.high : 0xbf;

        if (from[have] < low || from[have] > high)
            break;
        have++;
    }
    *valid = lead.following > 0 && have == (size_t)lead.following + 1;
    return have;
}

/* How many sequences are broken. */
static size_t
utf8_broken(struct text text)
{
    const uint8_t *from = (const uint8_t *)text.ptr;
    size_t broken = 0;
    bool valid;

    for (size_t i = 0; i < text.len;) {
        if (text.len - i >= SWAR_BYTES && !swar_has_high(swar_load(from + i))) {
            i += SWAR_BYTES;
            continue;
        }
        i += utf8_sequence(from + i, text.len - i, &valid);
        broken += !valid;
    }
    return broken;
}

struct text
percent_utf8(struct arena *arena, struct text text)
{
    const uint8_t *from = (const uint8_t *)text.ptr;
    size_t broken = utf8_broken(text);

    if (broken == 0)
        return text;

    char *start = arena_alloc(arena, text.len + broken * (REPLACEMENT_BYTES - 1));
    char *to = start;
    bool valid;

    for (size_t i = 0; i < text.len;) {
        size_t len = utf8_sequence(from + i, text.len - i, &valid);

        memcpy(to, valid ? (const char *)from + i : replacement, valid ? len : REPLACEMENT_BYTES);
        to += valid ? len : REPLACEMENT_BYTES;
        i += len;
    }
    return text_make(start, (size_t)(to - start));
}

struct text
percent_decode(struct arena *arena, struct text encoded)
{
    if (text_find(encoded, '%', 0) >= 0)
        encoded = unescape(arena, encoded);
    return percent_utf8(arena, encoded);
}

size_t
percent_utf8_cut(struct text message, size_t max)
{
    if (message.len <= max)
        return message.len;

    size_t cut = max;

    /* A sequence has at most three continuation bytes; a longer row of them is broken anyway. */
    while (cut > 0 && max - cut < 4 && ((uint8_t)message.ptr[cut] & 0xc0) == 0x80)
        cut--;
    return max - cut < 4 ? cut : max;
}
