/*
 * Environment substitution. What comes in must be spellable as a value of the file, so that
 * --print-config reads back the same: a variable that holds a line feed, " ;" or "${" is refused
 * instead of being cut later.
 */
#include "proxy/config/substitute.h"

#include <stdlib.h>

#include "proxy/base/mem.h"

static bool
is_name(struct text text)
{
    for (size_t i = 0; i < text.len; i++) {
        char byte = text.ptr[i];
        bool letter = (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || byte == '_';
        if (!letter && (i == 0 || byte < '0' || byte > '9'))
            return false;
    }
    return text.len > 0;
}

/* What could not stand in the file as it is. */
static bool
unspellable(struct text value)
{
    for (size_t i = 0; i < value.len; i++) {
        unsigned char byte = (unsigned char)value.ptr[i];
        if ((byte < 0x20 && byte != '\t') || byte == 0x7f)
            return true;
        if (byte == ';' && i > 0 && (value.ptr[i - 1] == ' ' || value.ptr[i - 1] == '\t'))
            return true;
        if (byte == '{' && i > 0 && value.ptr[i - 1] == '$')
            return true;
    }
    return false;
}

/* `inside`: what stands between "${" and "}". */
static bool
add_variable(struct strbuf *result, struct text inside, struct strbuf *why)
{
    struct text name = inside, fallback = TEXT_NONE;
    ptrdiff_t colon = text_find(inside, ':', 0);
    bool has_fallback = colon >= 0 && text_starts(text_from(inside, (size_t)colon), TEXT(":-"));
    if (has_fallback) {
        name.len = (size_t)colon;
        fallback = text_from(inside, (size_t)colon + 2);
    }
    if (!is_name(name)) {
        strbuf_addf(why, "'${%.*s}' names no variable; write ${NAME} or ${NAME:-default}",
                    TEXT_ARGS(inside));
        return false;
    }
    char *zero_ended = text_dup(name);
    struct text value = text_of(getenv(zero_ended));
    mem_free(zero_ended);
    if (value.len == 0 && !has_fallback) {
        strbuf_addf(why,
                    "${%.*s} has no value in the environment; set it or write ${%.*s:-default}",
                    TEXT_ARGS(name), TEXT_ARGS(name));
        return false;
    }
    strbuf_add_text(result, value.len ? value : fallback);
    return true;
}

static bool
expand(struct strbuf *result, struct text value, struct strbuf *why)
{
    size_t at = 0;
    while (at < value.len) {
        if (!text_starts(text_from(value, at), TEXT("${"))) {
            strbuf_add_char(result, value.ptr[at++]);
            continue;
        }
        ptrdiff_t end = text_find(value, '}', at);
        if (end < 0) {
            strbuf_add_str(why, "'${' without '}'; write ${NAME} or ${NAME:-default}");
            return false;
        }
        if (!add_variable(result, text_make(value.ptr + at + 2, (size_t)end - at - 2), why))
            return false;
        at = (size_t)end + 1;
    }
    return true;
}

bool
substitute(struct arena *arena, struct text value, struct text *out, struct strbuf *why)
{
    struct strbuf result = STRBUF_INIT;
    bool ok = expand(&result, value, why);
    struct text trimmed = text_trim(strbuf_text(&result));
    if (ok && (unspellable(trimmed) || (trimmed.len && trimmed.ptr[0] == ';'))) {
        strbuf_add_str(why, "the value holds a control character, '${', or a ';' that starts a "
                            "comment; this file cannot spell such a value");
        ok = false;
    }
    if (ok)
        *out = arena_copy(arena, trimmed);
    strbuf_fini(&result);
    return ok;
}
