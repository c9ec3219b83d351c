/* A growing byte buffer for building text: logs, JSON, pages, messages. Not for bodies (those are
 * chunks). */
#ifndef TRIBUTARY_BASE_STRBUF_H
#define TRIBUTARY_BASE_STRBUF_H

#include <stdarg.h>
#include <stddef.h>

#include "proxy/base/text.h"

struct strbuf {
    char *data; /* owned, NUL-terminated once anything was added; NULL before */
    size_t len, cap;
};

#define STRBUF_INIT ((struct strbuf){NULL, 0, 0})

void strbuf_fini(struct strbuf *buf);  /* frees; the struct is empty and usable again */
void strbuf_clear(struct strbuf *buf); /* keeps the memory */
void strbuf_add(struct strbuf *buf, const void *bytes, size_t len);
void strbuf_add_text(struct strbuf *buf, struct text text);
void strbuf_add_str(struct strbuf *buf, const char *string);
void strbuf_add_char(struct strbuf *buf, char byte);
__attribute__((format(printf, 2, 3))) void strbuf_addf(struct strbuf *buf, const char *format, ...);
__attribute__((format(printf, 2, 0))) void
strbuf_vaddf(struct strbuf *buf, const char *format, va_list args);
/* Room for `len` more bytes at the end; the caller fills them and adds to buf->len. */
char *strbuf_reserve(struct strbuf *buf, size_t len);
/* As a JSON string with quotes; bytes that are not UTF-8 become U+FFFD. */
void strbuf_add_json(struct strbuf *buf, struct text text);
/* As a logfmt value: quoted and escaped only where needed. */
void strbuf_add_logfmt(struct strbuf *buf, struct text text);
struct text strbuf_text(const struct strbuf *buf);
/* The string, now the caller's (mem_free); the buffer is empty. Never NULL. */
char *strbuf_take(struct strbuf *buf);

#endif
