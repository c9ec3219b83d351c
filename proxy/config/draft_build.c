/*
 * Sections into the snapshot, one by one: each key read, checked on its own and defaulted. Owns
 * nothing; draft.c keeps what is made.
 */
#include "proxy/config/draft_build.h"

#include "proxy/base/check.h"
#include "proxy/base/mem.h"
#include "proxy/config/assign.h"
#include "proxy/config/filter_sections.h"

static void *
zeroed(struct arena *arena, size_t count, size_t bytes)
{
    void *memory = arena_alloc(arena, count * bytes);
    memset(memory, 0, count * bytes);
    return memory;
}

static void
fill_default(const struct draft *draft, const struct config_key *key, void *target)
{
    struct text fallback = text_of(key->fallback);
    struct strbuf why = STRBUF_INIT;
    if (fallback.len) /* empty ones are the zeros that are there */
        check(assign(key, &fallback, 1, target, &draft->snapshot->arena, &why));
}

/* The entry at which reading a list goes wrong: the shortest start of `values` that is refused. */
static unsigned
first_refused(const struct draft *draft, const struct config_key *key, const struct text *values,
              unsigned count, void *target)
{
    struct strbuf why = STRBUF_INIT;
    unsigned length = 1;
    while (length < count && assign(key, values, length, target, &draft->snapshot->arena, &why))
        length++;
    strbuf_fini(&why);
    return length - 1;
}

static void
fill_key(const struct draft *draft, const struct ini_section *section, const struct config_key *key,
         void *target)
{
    unsigned count;
    struct strbuf why = STRBUF_INIT;
    struct text *values = draft_values(draft, section, key->name, &count);
    fill_default(draft, key, target);
    if (count == 0 && (key->flags & KEY_REQUIRED))
        draft_complain(draft, section, key->name, "missing; %s", key->help);
    /* A key that must not repeat is complained about elsewhere; its first value is taken. */
    if (count > 1 && !(key->flags & KEY_REPEATS))
        count = 1;
    if (values && count && !assign(key, values, count, target, &draft->snapshot->arena, &why))
        draft_complain_item(draft, section, key->name,
                            values[first_refused(draft, key, values, count, target)], "%.*s",
                            TEXT_ARGS(strbuf_text(&why)));
    strbuf_fini(&why);
}

/* Unknown keys, and keys that stand twice without being lists. */
static void
check_entries(const struct draft *draft, const struct ini_section *section, enum key_section kind)
{
    for (unsigned i = 0; i < section->count; i++) {
        const struct ini_entry *entry = &section->entries[i], *first;
        const struct config_key *key = keys_find(kind, entry->key);
        if (!key) {
            struct strbuf hint = STRBUF_INIT;
            keys_suggest(kind, entry->key, &hint);
            complaints_add(draft->complaints, entry->line, section->label, entry->key,
                           "no such key; %.*s", TEXT_ARGS(strbuf_text(&hint)));
            strbuf_fini(&hint);
            continue;
        }
        first = ini_section_find(section, key->name);
        if (first != entry && !(key->flags & KEY_REPEATS))
            complaints_add(draft->complaints, entry->line, section->label, entry->key,
                           "is there already, in line %u; keep one of the two", first->line);
    }
}

static void
fill(const struct draft *draft, const struct ini_section *section, enum key_section kind,
     void *target)
{
    check_entries(draft, section, kind);
    for (unsigned i = 0; i < keys_count; i++)
        if (keys_table[i].section == kind)
            fill_key(draft, section, &keys_table[i], target);
}

static void
fill_proxy(struct draft *draft, const struct ini_section *section)
{
    static const struct ini_section NONE = {.label = {"proxy", 5}};
    draft->proxy = section;
    fill(draft, section ? section : &NONE, SECTION_PROXY, &draft->snapshot->proxy);
}

static void
fill_listener(struct draft *draft, const struct ini_section *section)
{
    struct snapshot *snapshot = draft->snapshot;
    struct listener_conf *listener = &snapshot->listeners[snapshot->listener_count];
    draft->listeners[snapshot->listener_count++] = section;
    listener->name = arena_copy(&snapshot->arena, section->name);
    fill(draft, section, SECTION_LISTENER, listener);
}

static void
fill_upstream(struct draft *draft, const struct ini_section *section)
{
    struct snapshot *snapshot = draft->snapshot;
    struct upstream_conf *upstream = &snapshot->upstreams[snapshot->upstream_count];
    upstream->index = snapshot->upstream_count;
    draft->upstreams[snapshot->upstream_count++] = section;
    upstream->name = arena_copy(&snapshot->arena, section->name);
    fill(draft, section, SECTION_UPSTREAM, upstream);
}

static void
fill_route(struct draft *draft, const struct ini_section *section)
{
    struct snapshot *snapshot = draft->snapshot;
    struct route *route = &snapshot->routes[snapshot->route_count];
    route->index = snapshot->route_count;
    draft->routes[snapshot->route_count++] = section;
    route->name = arena_copy(&snapshot->arena, section->name);
    route->where = arena_printf(&snapshot->arena, "%s:%u", draft->path, section->line);
    fill(draft, section, SECTION_ROUTE, route);
}

static void
fill_filter(struct draft *draft, const struct ini_section *section)
{
    struct snapshot *snapshot = draft->snapshot;
    struct filter_conf *filter = &snapshot->filters[snapshot->filter_count];
    draft->filters[snapshot->filter_count++] = section;
    filter->name = arena_copy(&snapshot->arena, section->name);
    filter_sections_fill(draft, section, filter);
}

static void (*const FILL[SECTION_COUNT])(struct draft *, const struct ini_section *) = {
    fill_proxy, fill_listener, fill_upstream, fill_route, fill_filter};

static void
complain_unknown_section(const struct draft *draft, const struct ini_section *section)
{
    const char *kinds[SECTION_COUNT];
    for (unsigned i = 0; i < SECTION_COUNT; i++)
        kinds[i] = keys_section_name((enum key_section)i);
    const char *near = keys_nearest(section->kind, kinds, SECTION_COUNT);
    if (near)
        complaints_add(draft->complaints, section->line, section->label, TEXT_NONE,
                       "no such section; did you mean [%s%s]?", near,
                       near == kinds[SECTION_PROXY] ? "" : " NAME");
    else
        complaints_add(draft->complaints, section->line, section->label, TEXT_NONE,
                       "no such section; known are [proxy], [listener NAME], [upstream NAME], "
                       "[route NAME] and [filter NAME]");
}

/* Its kind, or SECTION_COUNT with a complaint. */
static enum key_section
kind_of(const struct draft *draft, const struct ini_section *section)
{
    enum key_section kind = keys_section_of(section->kind);
    if (kind == SECTION_COUNT) {
        complain_unknown_section(draft, section);
        return SECTION_COUNT;
    }
    if ((kind == SECTION_PROXY) == (section->name.len == 0))
        return kind;
    complaints_add(draft->complaints, section->line, section->label, TEXT_NONE,
                   kind == SECTION_PROXY ? "takes no name; write [%s]"
                                         : "needs a name; write [%s NAME]",
                   keys_section_name(kind));
    return SECTION_COUNT;
}

static const struct ini_section **
sources(size_t count)
{
    return mem_zalloc((count ? count : 1) * sizeof(const struct ini_section *));
}

static void
make_arrays(struct draft *draft, const unsigned counts[SECTION_COUNT])
{
    struct snapshot *snapshot = draft->snapshot;
    struct arena *arena = &snapshot->arena;
    snapshot->listeners = zeroed(arena, counts[SECTION_LISTENER], sizeof(*snapshot->listeners));
    snapshot->upstreams = zeroed(arena, counts[SECTION_UPSTREAM], sizeof(*snapshot->upstreams));
    snapshot->routes = zeroed(arena, counts[SECTION_ROUTE], sizeof(*snapshot->routes));
    snapshot->filters = zeroed(arena, counts[SECTION_FILTER], sizeof(*snapshot->filters));
    draft->listeners = sources(counts[SECTION_LISTENER]);
    draft->upstreams = sources(counts[SECTION_UPSTREAM]);
    draft->routes = sources(counts[SECTION_ROUTE]);
    draft->filters = sources(counts[SECTION_FILTER]);
}

void
draft_build(struct draft *draft)
{
    const struct ini_file *file = draft->file;
    unsigned counts[SECTION_COUNT + 1] = {0};
    enum key_section *kinds = mem_zalloc((file->count + 1) * sizeof(*kinds));
    for (unsigned i = 0; i < file->count; i++)
        counts[kinds[i] = kind_of(draft, &file->sections[i])]++;
    make_arrays(draft, counts);
    if (counts[SECTION_PROXY] == 0)
        fill_proxy(draft, NULL);
    for (unsigned i = 0; i < file->count; i++)
        if (kinds[i] != SECTION_COUNT)
            FILL[kinds[i]](draft, &file->sections[i]);
    mem_free(kinds);
}
