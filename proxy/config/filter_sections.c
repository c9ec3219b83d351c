/*
 * Filter sections, driven by each type's own key list as the other sections are by the key table.
 * A value keeps its text as written, so printing needs no spelling of its own.
 */
#include "proxy/config/filter_sections.h"

#include "proxy/call/filter.h"
#include "proxy/call/module.h"
#include "proxy/config/values.h"

enum { NAMES_MAX = 64 };

static const struct filter_type *
find_type(struct text name)
{
    for (unsigned i = 0; filter_types[i]; i++)
        if (text_eq(name, text_of(filter_types[i]->name)))
            return filter_types[i];
    return NULL;
}

static void
suggest(struct text name, const char *const *names, unsigned count, struct strbuf *out)
{
    const char *near = keys_nearest(name, names, count);
    if (near) {
        strbuf_addf(out, "did you mean '%s'?", near);
        return;
    }
    strbuf_add_str(out, count ? "known here:" : "there are none");
    for (unsigned i = 0; i < count; i++)
        strbuf_addf(out, "%s %s", i ? "," : "", names[i]);
}

static const struct filter_type *
type_of(const struct draft *draft, const struct ini_section *section)
{
    const char *names[NAMES_MAX];
    unsigned count, known = 0;
    struct text *values = draft_values(draft, section, "type", &count);
    for (; filter_types[known] && known < NAMES_MAX; known++)
        names[known] = filter_types[known]->name;
    const struct filter_type *type = values && count ? find_type(values[0]) : NULL;
    if (type || (!values && count))
        return type;
    struct strbuf hint = STRBUF_INIT;
    suggest(count ? values[0] : TEXT_NONE, names, known, &hint);
    draft_complain(draft, section, "type", "%s%.*s%s; %.*s", count ? "'" : "missing",
                   TEXT_ARGS(count ? values[0] : TEXT_NONE), count ? "' is no type of filter" : "",
                   TEXT_ARGS(strbuf_text(&hint)));
    strbuf_fini(&hint);
    return NULL;
}

static const struct filter_key *
find_key(const struct filter_type *type, struct text name)
{
    for (const struct filter_key *key = type->keys; key && key->name; key++)
        if (text_eq(name, text_of(key->name)))
            return key;
    return NULL;
}

static void
complain_unknown(const struct draft *draft, const struct ini_section *section,
                 const struct filter_type *type, const struct ini_entry *entry)
{
    const char *names[NAMES_MAX] = {"type"};
    unsigned count = 1;
    struct strbuf hint = STRBUF_INIT;
    for (const struct filter_key *key = type->keys; key && key->name && count < NAMES_MAX; key++)
        names[count++] = key->name;
    suggest(entry->key, names, count, &hint);
    complaints_add(draft->complaints, entry->line, section->label, entry->key,
                   "no such key of a filter of type %s; %.*s", type->name,
                   TEXT_ARGS(strbuf_text(&hint)));
    strbuf_fini(&hint);
}

static void
check_entries(const struct draft *draft, const struct ini_section *section,
              const struct filter_type *type)
{
    for (unsigned i = 0; i < section->count; i++) {
        const struct ini_entry *entry = &section->entries[i];
        const struct filter_key *key = find_key(type, entry->key);
        bool is_type = text_eq(entry->key, TEXT("type"));
        char name[64];
        if (!key && !is_type) {
            complain_unknown(draft, section, type, entry);
            continue;
        }
        snprintf(name, sizeof(name), "%s", key ? key->name : "type");
        const struct ini_entry *first = ini_section_find(section, name);
        if (first != entry && !(key && key->repeats))
            complaints_add(draft->complaints, entry->line, section->label, entry->key,
                           "is there already, in line %u; keep one of the two", first->line);
    }
}

/* NULL, or what the text is not. */
static const char *
parse(const struct filter_key *key, struct text text, struct filter_value *value)
{
    bool on = false;
    *value = (struct filter_value){.key = key, .text = text};
    switch (key->kind) {
    case FILTER_KEY_TEXT:
        return NULL;
    case FILTER_KEY_NUMBER:
        return values_number(text, &value->number) ? NULL : "is not a number";
    case FILTER_KEY_DURATION:
        return values_duration(text, &value->number) ? NULL
                                                     : "is not a duration; write 250ms, 3s or 2m";
    case FILTER_KEY_SIZE:
        return values_size(text, &value->number) ? NULL : "is not a size; write 64K, 8M or 1G";
    case FILTER_KEY_RATE:
        return values_rate(text, &value->number, &value->window_ns)
                   ? NULL
                   : "is not a rate; write for example 100/1s, or off";
    case FILTER_KEY_BOOL:
        if (!values_bool(text, &on))
            return "is neither on nor off";
        value->number = on;
        return NULL;
    }
    return "is of a kind that is not known";
}

/* The values of one section, growing in the snapshot's arena. */
struct gathered {
    struct filter_value *items;
    unsigned count, cap;
};

static struct filter_value *
next_value(struct arena *arena, struct gathered *values)
{
    if (values->count == values->cap) {
        unsigned cap = values->cap ? values->cap * 2 : 8;
        struct filter_value *items = arena_alloc(arena, cap * sizeof(*items));
        if (values->count)
            memcpy(items, values->items, values->count * sizeof(*items));
        values->items = items;
        values->cap = cap;
    }
    return &values->items[values->count++];
}

static bool
add_value(const struct draft *draft, const struct ini_section *section,
          const struct filter_key *key, struct text text, struct gathered *values)
{
    const char *problem = parse(key, text, next_value(&draft->snapshot->arena, values));
    if (problem)
        draft_complain_item(draft, section, key->name, text, "'%.*s' %s", TEXT_ARGS(text), problem);
    return !problem;
}

/* One line of a key: a list where the key may repeat, as everywhere. */
static bool
add_line(const struct draft *draft, const struct ini_section *section, const struct filter_key *key,
         struct text line, struct gathered *values)
{
    struct text item;
    bool ok = true;
    if (!key->repeats)
        return add_value(draft, section, key, line, values);
    while (text_next(&line, ',', &item))
        ok &= add_value(draft, section, key, item, values);
    return ok;
}

/* Adds the values of one key, or its default; false when something was wrong. */
static bool
add_key(const struct draft *draft, const struct ini_section *section, const struct filter_key *key,
        struct gathered *values)
{
    unsigned given;
    bool ok = true;
    struct text *texts = draft_values(draft, section, key->name, &given);
    if (given == 0 && key->fallback)
        return add_line(draft, section, key, text_of(key->fallback), values);
    if (given == 0)
        draft_complain(draft, section, key->name, "missing; %s", key->help);
    for (unsigned i = 0; texts && i < given; i++)
        ok &= add_line(draft, section, key, texts[i], values);
    return ok && texts && given;
}

void
filter_sections_fill(const struct draft *draft, const struct ini_section *section,
                     struct filter_conf *filter)
{
    struct arena *arena = &draft->snapshot->arena;
    struct strbuf why = STRBUF_INIT;
    const struct filter_type *type = type_of(draft, section);
    if (!type)
        return;
    check_entries(draft, section, type);
    struct gathered values = {.items = NULL};
    bool ok = true;
    for (const struct filter_key *key = type->keys; key && key->name; key++)
        ok &= add_key(draft, section, key, &values);
    filter->type = type;
    filter->values = values.items;
    filter->value_count = values.count;
    if (!ok)
        return;
    filter->settings =
        type->compile ? type->compile(arena, values.items, values.count, &why) : NULL;
    if (type->compile && !filter->settings)
        draft_complain(draft, section, "type", "%s: %.*s", type->name,
                       TEXT_ARGS(strbuf_text(&why)));
    strbuf_fini(&why);
}

void
filter_sections_print(const struct filter_conf *filter, struct strbuf *out)
{
    strbuf_addf(out, "type = %s\n", filter->type->name);
    for (const struct filter_key *key = filter->type->keys; key && key->name; key++) {
        size_t before = out->len;
        for (unsigned i = 0; i < filter->value_count; i++)
            if (filter->values[i].key == key)
                strbuf_addf(out, "%s =%s%.*s\n", key->name, filter->values[i].text.len ? " " : "",
                            TEXT_ARGS(filter->values[i].text));
        if (out->len == before)
            strbuf_addf(out, "%s =\n", key->name);
    }
}
