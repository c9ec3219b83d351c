/*
 * A growing buffer for text, and the two ways our text is quoted (JSON, logfmt).
 *
 * Owns its memory, which doubles as it fills; one byte behind `len` is always kept for the NUL.
 * Failure: none (out of memory aborts); input that is not UTF-8 is replaced, never passed on.
 */
#include "proxy/base/strbuf.h"

#include <stdint.h>
#include <stdio.h>

#include "proxy/base/check.h"
#include "proxy/base/mem.h"

enum { STRBUF_FIRST = 128 };

void
strbuf_fini(struct strbuf *buf)
{
    mem_free(buf->data);
    *buf = STRBUF_INIT;
}

void
strbuf_clear(struct strbuf *buf)
{
    buf->len = 0;
    if (buf->data)
        buf->data[0] = '\0';
}

char *
strbuf_reserve(struct strbuf *buf, size_t len)
{
    check(len < SIZE_MAX / 4);
    size_t need = buf->len + len + 1;
    if (need > buf->cap) {
        size_t cap = buf->cap ? buf->cap * 2 : STRBUF_FIRST;
        buf->cap = cap > need ? cap : need;
        buf->data = mem_realloc(buf->data, buf->cap);
    }
    return buf->data + buf->len;
}

void
strbuf_add(struct strbuf *buf, const void *bytes, size_t len)
{
    char *end = strbuf_reserve(buf, len);
    if (len)
        memcpy(end, bytes, len);
    end[len] = '\0';
    buf->len += len;
}

void
strbuf_add_text(struct strbuf *buf, struct text text)
{
    strbuf_add(buf, text.ptr, text.len);
}

void
strbuf_add_str(struct strbuf *buf, const char *string)
{
    strbuf_add(buf, string, strlen(string));
}

void
strbuf_add_char(struct strbuf *buf, char byte)
{
    strbuf_add(buf, &byte, 1);
}

void
strbuf_addf(struct strbuf *buf, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    strbuf_vaddf(buf, format, args);
    va_end(args);
}

void
strbuf_vaddf(struct strbuf *buf, const char *format, va_list args)
{
    va_list again;
    va_copy(again, args);
    char *end = strbuf_reserve(buf, 64);
    size_t room = buf->cap - buf->len;
    int len = vsnprintf(end, room, format, args);
    check(len >= 0);
    if ((size_t)len >= room) {
        end = strbuf_reserve(buf, (size_t)len);
        vsnprintf(end, (size_t)len + 1, format, again);
    }
    va_end(again);
    buf->len += (size_t)len;
}

static bool
continues(unsigned char byte)
{
    return (byte & 0xc0) == 0x80;
}

/*
 * Bytes of the well-formed UTF-8 sequence at `at` (Unicode 15, table 3-7: no overlong forms, no
 * surrogates, nothing over U+10FFFF), or 0.
 */
static size_t
utf8_len(const unsigned char *at, size_t left)
{
    if (at[0] < 0x80)
        return 1;
    if (at[0] < 0xc2 || at[0] > 0xf4)
        return 0;
    size_t len = at[0] < 0xe0 ? 2 : at[0] < 0xf0 ? 3 : 4;
    if (left < len)
        return 0;
    for (size_t i = 1; i < len; i++)
        if (!continues(at[i]))
            return 0;
    if ((at[0] == 0xe0 && at[1] < 0xa0) || (at[0] == 0xed && at[1] > 0x9f) ||
        (at[0] == 0xf0 && at[1] < 0x90) || (at[0] == 0xf4 && at[1] > 0x8f))
        return 0;
    return len;
}

static bool
plain_json(unsigned char byte)
{
    return byte >= 0x20 && byte < 0x7f && byte != '"' && byte != '\\';
}

/* One byte that JSON does not take as it is. */
static void
add_escaped(struct strbuf *buf, unsigned char byte)
{
    static const char short_form[] = "\"\"\\\\\bb\ff\nn\rr\tt"; /* pairs: the byte, its letter */
    for (size_t i = 0; i < sizeof(short_form) - 1; i += 2) {
        if (byte == (unsigned char)short_form[i]) {
            strbuf_add(buf, (const char[]){'\\', short_form[i + 1]}, 2);
            return;
        }
    }
    strbuf_addf(buf, "\\u%04x", byte);
}

void
strbuf_add_json(struct strbuf *buf, struct text text)
{
    const unsigned char *bytes = (const unsigned char *)text.ptr;
    strbuf_add_char(buf, '"');
    for (size_t at = 0; at < text.len;) {
        size_t run = at;
        while (run < text.len && plain_json(bytes[run]))
            run++;
        strbuf_add(buf, bytes + at, run - at);
        at = run;
        if (at == text.len)
            break;
        size_t len = utf8_len(bytes + at, text.len - at);
        if (len == 0)
            strbuf_add_str(buf, "\xef\xbf\xbd");
        else if (len == 1)
            add_escaped(buf, bytes[at]);
        else
            strbuf_add(buf, bytes + at, len);
        at += len ? len : 1;
    }
    strbuf_add_char(buf, '"');
}

void
strbuf_add_logfmt(struct strbuf *buf, struct text text)
{
    bool plain = text.len > 0;
    for (size_t i = 0; i < text.len && plain; i++)
        plain = plain_json((unsigned char)text.ptr[i]) && text.ptr[i] != ' ' && text.ptr[i] != '=';
    if (plain)
        strbuf_add_text(buf, text);
    else
        strbuf_add_json(buf, text);
}

struct text
strbuf_text(const struct strbuf *buf)
{
    return text_make(buf->data, buf->len);
}

char *
strbuf_take(struct strbuf *buf)
{
    char *string = strbuf_reserve(buf, 0) - buf->len;
    string[buf->len] = '\0'; /* the last bytes may have come through strbuf_reserve() */
    *buf = STRBUF_INIT;
    return string;
}
