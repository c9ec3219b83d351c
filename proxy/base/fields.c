/*
 * An ordered list of header fields in an arena.
 *
 * Owns no memory: items and copied text are the arena's and go with it; a list that grows leaves
 * its old items behind there. Lists are short (a request has ten to thirty fields), so finding is a
 * walk that compares lengths before bytes.
 */
#include "proxy/base/fields.h"

enum { FIELDS_FIRST = 8, FIELD_OVERHEAD = 32 /* RFC 9113 section 6.5.2 */ };

static void
double_room(struct fields *fields)
{
    uint32_t cap = fields->cap * 2;
    struct field *items = arena_alloc(fields->arena, cap * sizeof(*items));
    memcpy(items, fields->items, fields->count * sizeof(*items));
    fields->items = items;
    fields->cap = cap;
}

void
fields_grow(struct fields *fields)
{
    if (fields->cap > 0) {
        double_room(fields);
        return;
    }
    fields->items = arena_alloc(fields->arena, FIELDS_FIRST * sizeof(struct field));
    fields->cap = FIELDS_FIRST;
}

void
fields_add_copy(struct fields *fields, struct text name, struct text value, uint8_t flags)
{
    name = arena_copy(fields->arena, name);
    value = arena_copy(fields->arena, value);
    fields_add(fields, name, value, flags);
}

/* Removes all of that name from index `from` on; order is kept. */
static void
remove_from(struct fields *fields, uint32_t from, struct text name)
{
    uint32_t kept = from;
    for (uint32_t i = from; i < fields->count; i++)
        if (!text_eq(fields->items[i].name, name))
            fields->items[kept++] = fields->items[i];
    fields->count = kept;
}

void
fields_remove(struct fields *fields, struct text name)
{
    remove_from(fields, 0, name);
}

void
fields_set(struct fields *fields, struct text name, struct text value, uint8_t flags)
{
    const struct field *first = fields_find(fields, name);
    if (!first) {
        fields_add(fields, name, value, flags);
        return;
    }
    uint32_t at = (uint32_t)(first - fields->items);
    fields->items[at] = (struct field){.name = name, .value = value, .flags = flags};
    remove_from(fields, at + 1, name);
}

size_t
fields_list_size(const struct fields *fields)
{
    size_t size = (size_t)fields->count * FIELD_OVERHEAD;
    fields_for_each (field, fields)
        size += field->name.len + field->value.len;
    return size;
}
