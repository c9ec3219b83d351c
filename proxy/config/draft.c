/*
 * Sections to structures, one key of the table after the other.
 *
 * Steps: count the sections of each kind, make the arrays in the snapshot's arena, then fill each
 * structure: for every key the section may have, its entries are substituted and assigned, or the
 * table's default is. Entries that no key claims are unknown keys. A section with errors is filled
 * as far as it goes, so that one run reports all.
 */
#include "proxy/config/draft.h"

#include "proxy/base/mem.h"
#include "proxy/config/substitute.h"

static bool
holds(struct text value, struct text item)
{
    return item.len && memmem(value.ptr, value.len, item.ptr, item.len) != NULL;
}

/* Where `key` stands (with `item` in it, when there are several); the section's own line when
 * nowhere. */
static unsigned
line_of(const struct ini_section *section, struct text key, struct text item)
{
    unsigned first = 0;
    for (unsigned i = 0; i < section->count; i++) {
        const struct ini_entry *entry = &section->entries[i];
        if (!text_eq(entry->key, key))
            continue;
        if (holds(entry->value, item))
            return entry->line;
        first = first ? first : entry->line;
    }
    return first ? first : section->line;
}

__attribute__((format(printf, 5, 0))) static void
complain(const struct draft *draft, const struct ini_section *section, const char *key,
         struct text item, const char *format, va_list args)
{
    struct strbuf message = STRBUF_INIT;
    strbuf_vaddf(&message, format, args);
    complaints_add(draft->complaints, line_of(section, text_of(key), item), section->label,
                   text_of(key), "%.*s", TEXT_ARGS(strbuf_text(&message)));
    strbuf_fini(&message);
}

void
draft_complain(const struct draft *draft, const struct ini_section *section, const char *key,
               const char *format, ...)
{
    va_list args;
    va_start(args, format);
    complain(draft, section, key, TEXT_NONE, format, args);
    va_end(args);
}

void
draft_complain_item(const struct draft *draft, const struct ini_section *section, const char *key,
                    struct text item, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    complain(draft, section, key, item, format, args);
    va_end(args);
}

struct text *
draft_values(const struct draft *draft, const struct ini_section *section, const char *key,
             unsigned *count)
{
    struct strbuf why = STRBUF_INIT;
    struct text *values = arena_alloc(&draft->snapshot->arena, section->count * sizeof(*values));
    bool ok = true;
    *count = 0;
    for (unsigned i = 0; i < section->count; i++) {
        const struct ini_entry *entry = &section->entries[i];
        if (!text_eq(entry->key, text_of(key)))
            continue;
        if (!substitute(&draft->snapshot->arena, entry->value, &values[(*count)++], &why)) {
            complaints_add(draft->complaints, entry->line, section->label, entry->key, "%.*s",
                           TEXT_ARGS(strbuf_text(&why)));
            strbuf_clear(&why);
            ok = false;
        }
    }
    strbuf_fini(&why);
    return ok ? values : NULL;
}

void
draft_fini(struct draft *draft)
{
    mem_free(draft->listeners);
    mem_free(draft->upstreams);
    mem_free(draft->routes);
    mem_free(draft->filters);
}
