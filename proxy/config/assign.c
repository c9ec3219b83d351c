/*
 * Reading is one function per type, chosen by a table; a type that holds a list gets all values at
 * once, any other exactly one. Messages say what the value is not and show one that would be.
 */
#include "proxy/config/assign.h"

#include "proxy/call/snapshot.h"
#include "proxy/config/machine.h"
#include "proxy/config/shapes.h"
#include "proxy/config/values.h"

struct assignment {
    const struct config_key *key;
    const struct text *values;
    unsigned count;
    char *target;
    struct arena *arena;
    struct strbuf *why;
};

#define FIELD(assignment, type) ((type *)((assignment)->target + (assignment)->key->offset))
#define BESIDE(assignment, type) ((type *)((assignment)->target + (assignment)->key->count_offset))

enum { SHOWN_BYTES = 80 };

/* "'value' is not …": the value shortened, then what it should be. False, for returning. */
__attribute__((format(printf, 3, 4))) static bool
wrong(const struct assignment *to, struct text value, const char *format, ...)
{
    va_list args;
    bool longer = value.len > SHOWN_BYTES;
    strbuf_addf(to->why, "'%.*s%s' ", longer ? SHOWN_BYTES : (int)value.len, value.ptr,
                longer ? "…" : "");
    va_start(args, format);
    strbuf_vaddf(to->why, format, args);
    va_end(args);
    return false;
}

static bool
assign_text(const struct assignment *to)
{
    *FIELD(to, struct text) = to->values[0];
    return true;
}

static bool
assign_field_text(const struct assignment *to)
{
    if (!shapes_field_value(to->values[0]))
        return wrong(to, to->values[0], "cannot be a header's value; use printable ASCII");
    return assign_text(to);
}

static bool
assign_reference(const struct assignment *to)
{
    return assign_text(to); /* validate.c looks it up, and suggests */
}

static bool
assign_log(const struct assignment *to)
{
    struct text value = to->values[0];
    bool off = to->key->type == KEY_ACCESS_LOG && text_eq(value, TEXT("off"));
    if (!off && !text_eq(value, TEXT("stdout")) && !text_eq(value, TEXT("stderr")) &&
        text_find(value, '/', 0) < 0)
        return wrong(to, value, "is neither %sstdout, stderr nor a path; a path has a '/' in it",
                     to->key->type == KEY_ACCESS_LOG ? "off, " : "");
    return assign_text(to);
}

/* Listening needs addresses; the one name that is the same everywhere is taken for what it means.
 */
static struct text
listen_address(const struct assignment *to, struct text value)
{
    if (!text_starts(value, TEXT("localhost:")))
        return value;
    struct text port = text_from(value, TEXT("localhost:").len);
    return arena_printf(to->arena, "127.0.0.1:%.*s", TEXT_ARGS(port));
}

static bool
assign_listen(const struct assignment *to)
{
    struct text value = listen_address(to, to->values[0]);
    const char *problem = value.len ? shapes_listen(value) : NULL;
    if (!problem && value.len && shapes_port_zero(value))
        problem = "would be any free port, which nobody could find; write the port";
    if (problem)
        return wrong(to, value, "%s", problem);
    *FIELD(to, struct text) = value;
    return true;
}

static bool
assign_bool(const struct assignment *to)
{
    if (!values_bool(to->values[0], FIELD(to, bool)))
        return wrong(to, to->values[0], "is neither on nor off");
    return true;
}

static bool
in_range(const struct assignment *to, uint64_t value)
{
    return value >= to->key->min && value <= to->key->max;
}

static bool
assign_number(const struct assignment *to)
{
    uint64_t value;
    if (!values_number(to->values[0], &value) || !in_range(to, value))
        return wrong(to, to->values[0], "is not a number from %llu to %llu",
                     (unsigned long long)to->key->min, (unsigned long long)to->key->max);
    *FIELD(to, uint32_t) = (uint32_t)value;
    return true;
}

static bool
read_size(const struct assignment *to, uint64_t *value, const char *also)
{
    struct strbuf range = STRBUF_INIT;
    if (values_size(to->values[0], value) && in_range(to, *value))
        return true;
    values_add_size(&range, to->key->min);
    strbuf_add_str(&range, " to ");
    values_add_size(&range, to->key->max);
    wrong(to, to->values[0], "is not a size from %.*s; write bytes, 64K, 8M or 1G%s",
          TEXT_ARGS(strbuf_text(&range)), also);
    strbuf_fini(&range);
    return false;
}

static bool
assign_size(const struct assignment *to)
{
    return read_size(to, FIELD(to, uint64_t), "");
}

static bool
assign_size32(const struct assignment *to)
{
    uint64_t value;
    if (!read_size(to, &value, ""))
        return false;
    *FIELD(to, uint32_t) = (uint32_t)value;
    return true;
}

static bool
assign_duration(const struct assignment *to)
{
    uint64_t value;
    struct strbuf range = STRBUF_INIT;
    if (values_duration(to->values[0], &value) && in_range(to, value)) {
        *FIELD(to, uint64_t) = value;
        return true;
    }
    values_add_duration(&range, to->key->min);
    strbuf_add_str(&range, " to ");
    values_add_duration(&range, to->key->max);
    wrong(to, to->values[0],
          "is not a duration from %.*s; write 250ms, 3s, 2m or 1h, without blanks",
          TEXT_ARGS(strbuf_text(&range)));
    strbuf_fini(&range);
    return false;
}

static bool
assign_rate(const struct assignment *to)
{
    uint64_t count;
    if (!values_rate(to->values[0], &count, BESIDE(to, uint64_t)) || count > to->key->max)
        return wrong(to, to->values[0], "is not a rate; write for example 2000/10s, or off");
    *FIELD(to, uint32_t) = (uint32_t)count;
    return true;
}

static bool
assign_share(const struct assignment *to)
{
    if (!values_share(to->values[0], FIELD(to, uint32_t)))
        return wrong(to, to->values[0], "is neither on, off nor a share such as 10%%");
    return true;
}

static bool
assign_mode(const struct assignment *to)
{
    if (!values_mode(to->values[0], FIELD(to, uint32_t)))
        return wrong(to, to->values[0], "are no permissions; write for example 0660");
    return true;
}

static bool
assign_choice(const struct assignment *to)
{
    unsigned count = 0;
    for (; to->key->choices[count]; count++) {
        if (text_eq(to->values[0], text_of(to->key->choices[count]))) {
            *FIELD(to, unsigned) = count; /* enums of ours are unsigned */
            return true;
        }
    }
    wrong(to, to->values[0], "is none of");
    for (unsigned i = 0; i < count; i++)
        strbuf_addf(to->why, "%s %s", i ? "," : "", to->key->choices[i]);
    const char *near = keys_nearest(to->values[0], to->key->choices, count);
    if (near)
        strbuf_addf(to->why, "; did you mean '%s'?", near);
    return false;
}

static bool
takes_auto(const struct assignment *to)
{
    return *BESIDE(to, bool) = text_eq(to->values[0], TEXT("auto"));
}

static bool
assign_workers(const struct assignment *to)
{
    uint64_t value;
    if (takes_auto(to)) {
        unsigned cores = machine_cores("");
        *FIELD(to, unsigned) = cores < to->key->max ? cores : (unsigned)to->key->max;
        return true;
    }
    if (!values_number(to->values[0], &value) || !in_range(to, value))
        return wrong(to, to->values[0], "is neither auto nor a number from %llu to %llu",
                     (unsigned long long)to->key->min, (unsigned long long)to->key->max);
    *FIELD(to, unsigned) = (unsigned)value;
    return true;
}

static bool
assign_budget(const struct assignment *to)
{
    if (takes_auto(to)) {
        *FIELD(to, uint64_t) = machine_buffer_budget("");
        return true;
    }
    return read_size(to, FIELD(to, uint64_t), ", or auto");
}

static unsigned
count_items(const struct assignment *to)
{
    unsigned count = 0;
    for (unsigned i = 0; i < to->count; i++) {
        struct text rest = to->values[i], item;
        while (text_next(&rest, ',', &item))
            count++;
    }
    return count;
}

static bool
item_ok(const struct assignment *to, const struct text *items, unsigned at)
{
    const char *problem = to->key->type == KEY_LISTENS ? shapes_listen(items[at]) : NULL;
    if (items[at].len == 0) {
        strbuf_add_str(to->why, "nothing between two commas");
        return false;
    }
    if (problem)
        return wrong(to, items[at], "%s", problem);
    for (unsigned i = 0; i < at; i++)
        if (text_eq(items[i], items[at]))
            return wrong(to, items[at], "stands there twice; once is enough");
    return true;
}

static bool
assign_texts(const struct assignment *to)
{
    unsigned count = 0, room = count_items(to);
    struct text *items = arena_alloc(to->arena, room * sizeof(*items));
    for (unsigned i = 0; i < to->count; i++) {
        struct text rest = to->values[i];
        while (text_next(&rest, ',', &items[count])) {
            if (to->key->type == KEY_LISTENS)
                items[count] = listen_address(to, items[count]);
            if (!item_ok(to, items, count))
                return false;
            count++;
        }
    }
    *FIELD(to, struct text *) = items;
    *BESIDE(to, unsigned) = count;
    return true;
}

/* Only `key =`, which stands for an empty list; among other values it is a mistake. */
static bool
is_empty_list(const struct assignment *to)
{
    return to->count == 1 && to->values[0].len == 0;
}

static struct text
lower_case(struct arena *arena, struct text text)
{
    char *copy = arena_alloc(arena, text.len + 1);
    for (size_t i = 0; i < text.len; i++)
        copy[i] =
            text.ptr[i] >= 'A' && text.ptr[i] <= 'Z' ? (char)(text.ptr[i] | 0x20) : text.ptr[i];
    copy[text.len] = '\0';
    return text_make(copy, text.len);
}

/* "name: value" or "name"; the name in lower case. */
static bool
split_header(const struct assignment *to, struct text line, struct text *name, struct text *value)
{
    ptrdiff_t colon = text_find(line, ':', 0);
    struct text before = colon < 0 ? line : text_trim(text_make(line.ptr, (size_t)colon));
    *value = colon < 0 ? TEXT_NONE : text_trim(text_from(line, (size_t)colon + 1));
    *name = lower_case(to->arena, before);
    if (!shapes_field_name(*name))
        return wrong(to, line, "does not start with a header's name; write name: value");
    if (!shapes_field_value(*value))
        return wrong(to, line, "has a value that no header can carry; use printable ASCII");
    return true;
}

static bool
assign_fields(const struct assignment *to)
{
    unsigned count = is_empty_list(to) ? 0 : to->count;
    struct field *fields = arena_alloc(to->arena, count * sizeof(*fields));
    for (unsigned i = 0; i < count; i++) {
        fields[i] = (struct field){.flags = FIELD_STATIC};
        if (!split_header(to, to->values[i], &fields[i].name, &fields[i].value))
            return false;
        const char *problem = shapes_settable(fields[i].name);
        if (text_find(to->values[i], ':', 0) < 0)
            problem = "has no value; write name: value";
        if (problem)
            return wrong(to, fields[i].name, "%s", problem);
        for (unsigned other = 0; other < i; other++)
            if (text_eq(fields[other].name, fields[i].name))
                return wrong(to, fields[i].name, "is set twice; the value replaces, so give one");
    }
    *FIELD(to, struct field *) = fields;
    *BESIDE(to, unsigned) = count;
    return true;
}

static bool
assign_conditions(const struct assignment *to)
{
    unsigned count = is_empty_list(to) ? 0 : to->count;
    struct header_condition *list = arena_alloc(to->arena, count * sizeof(*list));
    for (unsigned i = 0; i < count; i++) {
        if (!split_header(to, to->values[i], &list[i].name, &list[i].value))
            return false;
        for (unsigned other = 0; other < i; other++)
            if (text_eq(list[other].name, list[i].name) &&
                text_eq(list[other].value, list[i].value))
                return wrong(to, to->values[i], "is there twice; once is enough");
    }
    *FIELD(to, struct header_condition *) = list;
    *BESIDE(to, unsigned) = count;
    return true;
}

static bool (*const ASSIGN[])(const struct assignment *to) = {
    [KEY_TEXT] = assign_text,       [KEY_FIELD_TEXT] = assign_field_text,
    [KEY_LOG] = assign_log,         [KEY_ACCESS_LOG] = assign_log,
    [KEY_FILE] = assign_text,       [KEY_REFERENCE] = assign_reference,
    [KEY_LISTEN] = assign_listen,   [KEY_BOOL] = assign_bool,
    [KEY_NUMBER] = assign_number,   [KEY_SIZE] = assign_size,
    [KEY_SIZE32] = assign_size32,   [KEY_DURATION] = assign_duration,
    [KEY_RATE] = assign_rate,       [KEY_SHARE] = assign_share,
    [KEY_MODE] = assign_mode,       [KEY_CHOICE] = assign_choice,
    [KEY_WORKERS] = assign_workers, [KEY_BUDGET] = assign_budget,
    [KEY_TEXTS] = assign_texts,     [KEY_LISTENS] = assign_texts,
    [KEY_FIELDS] = assign_fields,   [KEY_CONDITIONS] = assign_conditions,
};

bool
assign(const struct config_key *key, const struct text *values, unsigned count, void *target,
       struct arena *arena, struct strbuf *why)
{
    struct assignment to = {
        .key = key, .values = values, .count = count, .target = target, .arena = arena, .why = why};
    bool may_be_empty = key->fallback[0] == '\0' && !(key->flags & KEY_REQUIRED);
    for (unsigned i = 0; i < count; i++) {
        if (values[i].len || (may_be_empty && count == 1))
            continue;
        strbuf_add_str(why, "has no value");
        if (key->fallback[0])
            strbuf_addf(why, "; leave the line out for the default, %s", key->fallback);
        return false;
    }
    return ASSIGN[key->type](&to);
}
