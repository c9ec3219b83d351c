/* Values as lines of an INI file: the other direction of assign.c, type by type. */
#include "proxy/call/snapshot.h"
#include "proxy/config/assign.h"
#include "proxy/config/values.h"

enum { JOINED_BYTES = 2000 }; /* a longer list goes on in another line of the same key */

#define FIELD(key, target, type) ((const type *)((const char *)(target) + (key)->offset))
#define BESIDE(key, target, type) ((const type *)((const char *)(target) + (key)->count_offset))

static void
start_line(const struct config_key *key, struct strbuf *out)
{
    strbuf_addf(out, "%s =", key->name);
}

static void
print_texts(const struct config_key *key, const void *target, struct strbuf *out)
{
    const struct text *items = *FIELD(key, target, struct text *);
    unsigned count = *BESIDE(key, target, unsigned);
    size_t start = out->len;
    start_line(key, out);
    for (unsigned i = 0; i < count; i++) {
        if (i && out->len - start > JOINED_BYTES) {
            strbuf_add_char(out, '\n');
            start = out->len;
            start_line(key, out);
        } else if (i) {
            strbuf_add_char(out, ',');
        }
        strbuf_add_char(out, ' ');
        strbuf_add_text(out, items[i]);
    }
    strbuf_add_char(out, '\n');
}

static void
print_header(const struct config_key *key, struct text name, struct text value, bool hide,
             struct strbuf *out)
{
    start_line(key, out);
    strbuf_addf(out, " %.*s", TEXT_ARGS(name));
    if (hide)
        strbuf_add_str(out, ": (hidden)");
    else if (value.len || key->type == KEY_FIELDS)
        strbuf_addf(out, ":%s%.*s", value.len ? " " : "", TEXT_ARGS(value));
    strbuf_add_char(out, '\n');
}

static void
print_fields(const struct config_key *key, const void *target, bool hide, struct strbuf *out)
{
    const struct field *fields = *FIELD(key, target, struct field *);
    for (unsigned i = 0; i < *BESIDE(key, target, unsigned); i++)
        print_header(key, fields[i].name, fields[i].value, hide, out);
}

static void
print_conditions(const struct config_key *key, const void *target, bool hide, struct strbuf *out)
{
    const struct header_condition *list = *FIELD(key, target, struct header_condition *);
    for (unsigned i = 0; i < *BESIDE(key, target, unsigned); i++)
        print_header(key, list[i].name, list[i].value, hide, out);
}

/* A value that "auto" stands for is told in a comment: it is the machine's, not the file's. */
static void
print_auto(const struct config_key *key, struct strbuf *number, struct strbuf *out)
{
    strbuf_addf(out, "; auto is %.*s here\n%s = auto\n", TEXT_ARGS(strbuf_text(number)), key->name);
}

static void
print_scalar(const struct config_key *key, const void *target, struct strbuf *out)
{
    switch (key->type) {
    case KEY_BOOL:
        strbuf_add_str(out, *FIELD(key, target, bool) ? "on" : "off");
        break;
    case KEY_NUMBER:
    case KEY_WORKERS:
        strbuf_addf(out, "%u", *FIELD(key, target, unsigned));
        break;
    case KEY_SIZE:
    case KEY_BUDGET:
        values_add_size(out, *FIELD(key, target, uint64_t));
        break;
    case KEY_SIZE32:
        values_add_size(out, *FIELD(key, target, uint32_t));
        break;
    case KEY_DURATION:
        values_add_duration(out, *FIELD(key, target, uint64_t));
        break;
    case KEY_RATE:
        values_add_rate(out, *FIELD(key, target, uint32_t), *BESIDE(key, target, uint64_t));
        break;
    case KEY_SHARE:
        values_add_share(out, *FIELD(key, target, uint32_t));
        break;
    case KEY_MODE:
        strbuf_addf(out, "%04o", *FIELD(key, target, uint32_t));
        break;
    case KEY_CHOICE:
        strbuf_add_str(out, key->choices[*FIELD(key, target, unsigned)]);
        break;
    default: /* all others are a struct text */
        strbuf_add_text(out, *FIELD(key, target, struct text));
        break;
    }
}

static bool
is_list(enum key_type type)
{
    return type == KEY_TEXTS || type == KEY_LISTENS || type == KEY_FIELDS || type == KEY_CONDITIONS;
}

static void
print_list(const struct config_key *key, const void *target, bool hide, struct strbuf *out)
{
    if (*BESIDE(key, target, unsigned) == 0)
        strbuf_addf(out, "%s =\n", key->name);
    else if (key->type == KEY_FIELDS)
        print_fields(key, target, hide, out);
    else if (key->type == KEY_CONDITIONS)
        print_conditions(key, target, hide, out);
    else
        print_texts(key, target, out);
}

void
assign_print(const struct config_key *key, const void *target, bool hide_secrets,
             struct strbuf *out)
{
    struct strbuf value = STRBUF_INIT;
    if (is_list(key->type)) {
        print_list(key, target, hide_secrets && (key->flags & KEY_SECRET), out);
        return;
    }
    print_scalar(key, target, &value);
    bool may_be_auto = key->type == KEY_WORKERS || key->type == KEY_BUDGET;
    if (may_be_auto && *BESIDE(key, target, bool))
        print_auto(key, &value, out);
    else
        strbuf_addf(out, "%s =%s%.*s\n", key->name, value.len ? " " : "",
                    TEXT_ARGS(strbuf_text(&value)));
    strbuf_fini(&value);
}
