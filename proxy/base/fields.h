/*
 * Header and trailer fields: an ordered list of (name, value) views, order and repetition kept as
 * RFC 9110 section 5.3 needs. Names are lower case. The text belongs to the arena (or is constant,
 * FIELD_STATIC).
 */
#ifndef TRIBUTARY_BASE_FIELDS_H
#define TRIBUTARY_BASE_FIELDS_H

#include <stdbool.h>
#include <stdint.h>

#include "proxy/base/arena.h"
#include "proxy/base/text.h"

enum field_flag {
    /* Name and value outlive every frame (constants, snapshot memory): may be sent NO_COPY. */
    FIELD_STATIC = 1,
    /* Varies per call and never repeats: keep it out of the HPACK dynamic table. */
    FIELD_NO_INDEX = 2,
    /* Only the name outlives every frame. */
    FIELD_STATIC_NAME = 4,
};

struct field {
    struct text name, value;
    uint8_t flags; /* enum field_flag */
    uint8_t kind;  /* 0, or what the name means: wire/header_class.h */
};

struct fields {
    struct field *items; /* in the arena */
    uint32_t count, cap;
    struct arena *arena; /* not owned */
};

static inline void
fields_init(struct fields *fields, struct arena *home)
{
    *fields = (struct fields){.items = NULL, .arena = home};
}

void fields_grow(struct fields *fields); /* room for one more */
/* Views are kept, not copied. The new field, good until the next is added. */
static inline struct field *
fields_add(struct fields *fields, struct text name, struct text value, uint8_t flags)
{
    if (__builtin_expect(fields->count == fields->cap, 0))
        fields_grow(fields);
    struct field *field = &fields->items[fields->count++];
    field->name = name;
    field->value = value;
    field->flags = flags;
    field->kind = 0;
    return field;
}

/* Name and value are copied into the arena. */
void fields_add_copy(struct fields *fields, struct text name, struct text value, uint8_t flags);
void fields_remove(struct fields *fields, struct text name); /* all of that name */
/* Replaces the first of that name (removing the others), or adds. Views are kept. */
void fields_set(struct fields *fields, struct text name, struct text value, uint8_t flags);
/* Size as RFC 9113 section 6.5.2 counts MAX_HEADER_LIST_SIZE: names + values + 32 a field. */
size_t fields_list_size(const struct fields *fields);

/* An empty list has no items, and NULL + 0 is not C: hence the end by count. The body must not add
 * or remove. */
#define fields_for_each(field, fields)                                                             \
    for (const struct field *field = (fields)->items,                                              \
                            *field##_end = (fields)->count ? field + (fields)->count : field;      \
         field != field##_end; field++)

/* The first field of that name, or NULL. Names compare exactly (both lower case). */
static inline const struct field *
fields_find(const struct fields *fields, struct text name)
{
    fields_for_each (field, fields)
        if (text_eq(field->name, name))
            return field;
    return NULL;
}

/* Its value, or TEXT_NONE. */
static inline struct text
fields_value(const struct fields *fields, struct text name)
{
    const struct field *field = fields_find(fields, name);
    return field ? field->value : TEXT_NONE;
}

/* How often the name stands there. */
static inline unsigned
fields_count(const struct fields *fields, struct text name)
{
    unsigned count = 0;
    fields_for_each (field, fields)
        count += text_eq(field->name, name);
    return count;
}

#endif
