/*
 * The index over all matches of all routes: one hash table of keys, each with its routes in the
 * order in which they are asked.
 *
 * A match becomes a key by losing its star: "/pkg.Svc/Method" (exact), "/pkg.Svc/" (service),
 * "/pkg." (package), "" (all); the last byte tells the kinds apart, so they share one table. A
 * look-up asks for the exact path, its service, its packages from the longest down, and all, each
 * only where the configuration has such a key: at most one hash per dot of the service name, none
 * per route. Packages longer than the longest configured one are not asked for, so that a path full
 * of dots costs no more than the configuration allows.
 */
#include "proxy/call/routes.h"

#include "proxy/base/mem.h"

struct route_list {
    struct text key;
    uint64_t hash;
    const struct route **routes; /* more conditions first, then by the file */
    unsigned count;
    bool exact; /* the key is a whole path: "/Service/" as an exact path is not the service's key */
};

struct route_table {
    struct route_list *slots; /* open addressing; count 0: free */
    size_t mask;
    const struct route_list *all; /* for "*"; an empty list when there is none */
    size_t longest_package;       /* bytes of its key; 0: none */
    bool has_exact, has_service;
};

static struct route_list *
find_slot(const struct route_table *table, struct text key, uint64_t hash, bool exact)
{
    size_t at = hash & table->mask;
    for (;; at = (at + 1) & table->mask) {
        struct route_list *list = &table->slots[at];
        if (list->count == 0 ||
            (list->hash == hash && list->exact == exact && text_eq(list->key, key)))
            return list;
    }
}

static unsigned
conditions(const struct route *route)
{
    return (route->match_authority.len > 0) + (route->listener.len > 0) + route->match_header_count;
}

static bool
goes_before(const struct route *a, const struct route *b)
{
    unsigned more = conditions(a), fewer = conditions(b);
    return more != fewer ? more > fewer : a->index < b->index;
}

/* Insertion sort: lists are short, and routes come in the order of the file. */
static void
insert(struct route_list *list, const struct route *route)
{
    unsigned at = list->count++;
    for (; at > 0 && goes_before(route, list->routes[at - 1]); at--)
        list->routes[at] = list->routes[at - 1];
    list->routes[at] = route;
}

struct pending {
    struct text key;
    uint64_t hash;
    const struct route *route;
    bool exact;
};

static struct pending
pending_of(struct text match, const struct route *route)
{
    struct pending pending = {.key = match, .route = route, .exact = !text_ends(match, TEXT("*"))};
    if (!pending.exact)
        pending.key.len--;
    pending.hash = text_hash(pending.key);
    return pending;
}

/* Two passes: counting the routes of each key gives every list its room in the arena. */
static void
fill(struct snapshot *snapshot, struct route_table *table, const struct pending *all, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct route_list *list = find_slot(table, all[i].key, all[i].hash, all[i].exact);
        unsigned before = list->count;
        *list = (struct route_list){
            .key = all[i].key, .hash = all[i].hash, .count = before + 1, .exact = all[i].exact};
    }
    for (size_t i = 0; i <= table->mask; i++) {
        struct route_list *list = &table->slots[i];
        if (list->count)
            list->routes = arena_alloc(&snapshot->arena, list->count * sizeof(*list->routes));
    }
    /* By slot: how many of a list's routes are in it so far. */
    unsigned *filled = mem_zalloc((table->mask + 1) * sizeof(*filled));
    for (size_t i = 0; i < count; i++) {
        struct route_list *list = find_slot(table, all[i].key, all[i].hash, all[i].exact);
        size_t slot = (size_t)(list - table->slots);
        struct route_list part = *list;
        part.count = filled[slot];
        insert(&part, all[i].route);
        filled[slot] = part.count;
    }
    mem_free(filled);
}

/* What a look-up has to ask for at all. */
static void
note_kind(struct route_table *table, const struct pending *pending)
{
    struct text key = pending->key;
    if (pending->exact)
        table->has_exact = true;
    else if (text_ends(key, TEXT("/")))
        table->has_service = true;
    else if (key.len > table->longest_package)
        table->longest_package = key.len;
}

void
routes_build(struct snapshot *snapshot)
{
    size_t count = 0, size = 8;
    for (unsigned i = 0; i < snapshot->route_count; i++)
        count += snapshot->routes[i].match_count;
    while (size < count * 2)
        size *= 2;
    struct route_table *table = arena_alloc(&snapshot->arena, sizeof(*table));
    *table = (struct route_table){.mask = size - 1};
    table->slots = arena_alloc(&snapshot->arena, size * sizeof(*table->slots));
    memset(table->slots, 0, size * sizeof(*table->slots));
    struct pending *all = mem_zalloc((count + 1) * sizeof(*all));
    count = 0;
    for (unsigned i = 0; i < snapshot->route_count; i++)
        for (unsigned j = 0; j < snapshot->routes[i].match_count; j++)
            all[count++] = pending_of(snapshot->routes[i].matches[j], &snapshot->routes[i]);
    fill(snapshot, table, all, count);
    for (size_t i = 0; i < count; i++)
        note_kind(table, &all[i]);
    table->all = find_slot(table, TEXT_NONE, text_hash(TEXT_NONE), false);
    mem_free(all);
    snapshot->table = table;
}

/* The host of "host:port", "[v6]:port" or without port; brackets stay. */
static struct text
without_port(struct text authority)
{
    size_t from = 0;
    if (authority.len && authority.ptr[0] == '[') {
        ptrdiff_t end = text_find(authority, ']', 0);
        from = end < 0 ? 0 : (size_t)end;
    }
    ptrdiff_t colon = text_find(authority, ':', from);
    return colon < 0 ? authority : text_make(authority.ptr, (size_t)colon);
}

static bool
authority_holds(struct text condition, struct text authority)
{
    if (without_port(condition).len == condition.len)
        authority = without_port(authority);
    if (!text_starts(condition, TEXT("*.")))
        return text_eq_nocase(condition, authority);
    struct text suffix = text_from(condition, 1); /* ".example.com": at least one label before it */
    return authority.len > suffix.len &&
           text_eq_nocase(text_from(authority, authority.len - suffix.len), suffix);
}

static bool
header_holds(const struct header_condition *condition, const struct fields *fields)
{
    if (!fields)
        return false;
    for (uint32_t i = 0; i < fields->count; i++)
        if (text_eq(fields->items[i].name, condition->name) &&
            (condition->value.len == 0 || text_eq(fields->items[i].value, condition->value)))
            return true;
    return false;
}

static bool
route_holds(const struct route *route, const struct route_query *query)
{
    if (route->listener.len && !text_eq(route->listener, query->listener))
        return false;
    if (route->match_authority.len && !authority_holds(route->match_authority, query->authority))
        return false;
    for (unsigned i = 0; i < route->match_header_count; i++)
        if (!header_holds(&route->match_headers[i], query->fields))
            return false;
    return true;
}

static const struct route *
first_that_holds(const struct route_list *list, const struct route_query *query)
{
    for (unsigned i = 0; i < list->count; i++)
        if (route_holds(list->routes[i], query))
            return list->routes[i];
    return NULL;
}

static const struct route *
ask(const struct route_table *table, struct text key, bool exact, const struct route_query *query)
{
    return first_that_holds(find_slot(table, key, text_hash(key), exact), query);
}

/* Up to the last slash, which is not the first byte; empty: the path has none. */
static struct text
service_of(struct text path)
{
    const char *slash = path.len > 1 ? memrchr(path.ptr + 1, '/', path.len - 1) : NULL;
    return slash ? text_make(path.ptr, (size_t)(slash - path.ptr) + 1) : TEXT_NONE;
}

/* From the longest down. Dots behind the last slash are the method's. */
static const struct route *
ask_packages(const struct route_table *table, struct text service, const struct route_query *query)
{
    size_t len = service.len < table->longest_package ? service.len : table->longest_package;
    const struct route *route = NULL;
    for (; len > 0 && !route; len--)
        if (service.ptr[len - 1] == '.')
            route = ask(table, text_make(service.ptr, len), false, query);
    return route;
}

const struct route *
routes_find(const struct snapshot *snapshot, const struct route_query *query)
{
    const struct route_table *table = snapshot->table;
    struct text path = query->path;
    ptrdiff_t question = text_find(path, '?', 0);
    if (question >= 0)
        path.len = (size_t)question;
    const struct route *route = table->has_exact ? ask(table, path, true, query) : NULL;
    if (route)
        return route;
    struct text service = service_of(path);
    if (table->has_service && service.len > 0)
        route = ask(table, service, false, query);
    if (!route)
        route = ask_packages(table, service, query);
    return route ? route : first_that_holds(table->all, query);
}
