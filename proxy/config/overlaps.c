/*
 * Routes that take exactly the same calls: the later one would never be used. Matches are sorted,
 * so that only those with equal text are compared with one another.
 */
#include <stdlib.h>

#include "proxy/base/mem.h"
#include "proxy/config/overlaps.h"

struct claim {
    struct text match;
    const struct route *route;
};

static int
by_match(const void *left, const void *right)
{
    const struct claim *a = left, *b = right;
    size_t len = a->match.len < b->match.len ? a->match.len : b->match.len;
    int order = len ? memcmp(a->match.ptr, b->match.ptr, len) : 0;
    if (order == 0 && a->match.len != b->match.len)
        order = a->match.len < b->match.len ? -1 : 1;
    if (order == 0)
        order = a->route->index < b->route->index ? -1 : 1;
    return order;
}

static bool
has_condition(const struct route *route, const struct header_condition *wanted)
{
    for (unsigned i = 0; i < route->match_header_count; i++)
        if (text_eq(route->match_headers[i].name, wanted->name) &&
            text_eq(route->match_headers[i].value, wanted->value))
            return true;
    return false;
}

static bool
same_conditions(const struct route *a, const struct route *b)
{
    if (!text_eq(a->listener, b->listener) ||
        !text_eq_nocase(a->match_authority, b->match_authority) ||
        a->match_header_count != b->match_header_count)
        return false;
    for (unsigned i = 0; i < a->match_header_count; i++)
        if (!has_condition(b, &a->match_headers[i]))
            return false;
    return true;
}

static void
compare(const struct draft *draft, const struct claim *earlier, const struct claim *later)
{
    if (earlier->route == later->route || !same_conditions(earlier->route, later->route))
        return;
    draft_complain_item(
        draft, draft->routes[later->route->index], "match", later->match,
        "'%.*s' under the same conditions is taken by [route %.*s] in line %u; change "
        "one of the two",
        TEXT_ARGS(later->match), TEXT_ARGS(earlier->route->name),
        draft->routes[earlier->route->index]->line);
}

void
overlaps_check(const struct draft *draft)
{
    const struct snapshot *snapshot = draft->snapshot;
    size_t total = 0, count = 0;
    for (unsigned i = 0; i < snapshot->route_count; i++)
        total += snapshot->routes[i].match_count;
    struct claim *claims = mem_zalloc((total + 1) * sizeof(*claims));
    for (unsigned i = 0; i < snapshot->route_count; i++)
        for (unsigned j = 0; j < snapshot->routes[i].match_count; j++)
            claims[count++] = (struct claim){snapshot->routes[i].matches[j], &snapshot->routes[i]};
    qsort(claims, count, sizeof(*claims), by_match);
    for (size_t i = 0; i < count; i++)
        for (size_t j = i; j-- > 0 && text_eq(claims[j].match, claims[i].match);)
            compare(draft, &claims[j], &claims[i]);
    mem_free(claims);
}
