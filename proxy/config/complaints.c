/*
 * Collects errors and renders them sorted by line: passes over the file find them in another
 * order than a reader wants them. A file that is no configuration at all (a binary) would give
 * one per line: over COMPLAINTS_MAX they are only counted.
 */
#include "proxy/config/complaints.h"

#include <stdlib.h>

#include "proxy/base/mem.h"

void
complaints_fini(struct complaints *complaints)
{
    for (unsigned i = 0; i < complaints->count; i++)
        mem_free(complaints->items[i].message);
    mem_free(complaints->items);
    *complaints = (struct complaints){.items = NULL};
}

static void
grow(struct complaints *complaints)
{
    if (complaints->count < complaints->cap)
        return;
    complaints->cap = complaints->cap ? complaints->cap * 2 : 8;
    complaints->items =
        mem_realloc(complaints->items, complaints->cap * sizeof(*complaints->items));
}

void
complaints_add(struct complaints *complaints, unsigned line, struct text section, struct text key,
               const char *format, ...)
{
    if (complaints->count >= COMPLAINTS_MAX) {
        complaints->dropped++;
        return;
    }
    struct strbuf message = STRBUF_INIT;
    if (section.len)
        strbuf_addf(&message, "[%.*s] ", TEXT_ARGS(section));
    if (key.len)
        strbuf_addf(&message, "%.*s: ", TEXT_ARGS(key));
    va_list args;
    va_start(args, format);
    strbuf_vaddf(&message, format, args);
    va_end(args);
    grow(complaints);
    complaints->items[complaints->count] = (struct complaint){
        .line = line, .order = complaints->count, .message = strbuf_take(&message)};
    complaints->count++;
}

unsigned
complaints_count(const struct complaints *complaints)
{
    return complaints->count + complaints->dropped;
}

static int
by_line(const void *left, const void *right)
{
    const struct complaint *a = left, *b = right;
    if (a->line != b->line)
        return a->line < b->line ? -1 : 1;
    return a->order < b->order ? -1 : 1;
}

void
complaints_render(struct complaints *complaints, const char *file, struct strbuf *out)
{
    if (complaints->count)
        qsort(complaints->items, complaints->count, sizeof(*complaints->items), by_line);
    for (unsigned i = 0; i < complaints->count; i++)
        strbuf_addf(out, "%s:%u: %s\n", file, complaints->items[i].line,
                    complaints->items[i].message);
    if (complaints->dropped)
        strbuf_addf(out, "%s: and %u more\n", file, complaints->dropped);
}
