/*
 * `--explain`: the routes that a path can take, in the order in which they are asked, and what
 * becomes of a call on each, in words (design.md, "How a call goes").
 *
 * Owns nothing; works on a snapshot loaded for the purpose. What only the running proxy knows
 * (which wire form an endpoint was found to take) is asked at `admin`. Failure modes: no route
 * takes the path (1); the running proxy does not answer, which is said and is no failure.
 */
#include "proxy/explain.h"

#include <string.h>

#include "proxy/base/clock.h"
#include "proxy/base/mem.h"
#include "proxy/call/routes.h"
#include "proxy/probe.h"

/* --- which routes --- */

enum kind { KIND_NONE, KIND_ALL, KIND_PACKAGE, KIND_SERVICE, KIND_EXACT };

/* How one match of a route takes the path; a longer package counts more. */
struct hit {
    enum kind kind;
    struct text match;
};

static size_t
service_len(struct text path)
{
    size_t len = path.len;
    while (len > 0 && path.ptr[len - 1] != '/')
        len--;
    return len > 1 ? len : 0;
}

static enum kind
kind_of(struct text match, struct text path)
{
    if (!text_ends(match, TEXT("*")))
        return text_eq(match, path) ? KIND_EXACT : KIND_NONE;
    struct text key = text_make(match.ptr, match.len - 1);
    size_t service = service_len(path);
    if (key.len == 0)
        return KIND_ALL;
    if (!text_starts(path, key) || key.len > service)
        return KIND_NONE;
    if (text_ends(key, TEXT("/")))
        return key.len == service ? KIND_SERVICE : KIND_NONE;
    return KIND_PACKAGE;
}

static bool
beats(struct hit a, struct hit b)
{
    return a.kind != b.kind ? a.kind > b.kind : a.match.len > b.match.len;
}

static struct hit
best_hit(const struct route *route, struct text path)
{
    struct hit best = {KIND_NONE, TEXT_NONE};
    for (unsigned i = 0; i < route->match_count; i++) {
        struct hit hit = {kind_of(route->matches[i], path), route->matches[i]};
        if (hit.kind != KIND_NONE && beats(hit, best))
            best = hit;
    }
    return best;
}

static unsigned
conditions(const struct route *route)
{
    return (route->match_authority.len > 0) + (route->listener.len > 0) + route->match_header_count;
}

struct candidate {
    const struct route *route;
    struct hit hit;
};

/* Whether a is asked before b. */
static bool
goes_before(const struct candidate *a, const struct candidate *b)
{
    if (beats(a->hit, b->hit) || beats(b->hit, a->hit))
        return beats(a->hit, b->hit);
    unsigned more = conditions(a->route), fewer = conditions(b->route);
    return more != fewer ? more > fewer : a->route->index < b->route->index;
}

/* The routes that take the path, in the order in which they are asked, up to the first without
 * conditions. */
static unsigned
find_candidates(const struct snapshot *snapshot, struct text path, struct candidate *found)
{
    unsigned count = 0;
    for (unsigned i = 0; i < snapshot->route_count; i++) {
        struct candidate next = {&snapshot->routes[i], best_hit(&snapshot->routes[i], path)};
        if (next.hit.kind == KIND_NONE)
            continue;
        unsigned at = count++;
        for (; at > 0 && goes_before(&next, &found[at - 1]); at--)
            found[at] = found[at - 1];
        found[at] = next;
    }
    for (unsigned i = 0; i < count; i++)
        if (conditions(found[i].route) == 0)
            return i + 1;
    return count;
}

/* --- in words --- */

static void
line(struct strbuf *out, const char *label)
{
    strbuf_addf(out, "  %-9s ", label);
}

static void
say_why(const struct candidate *candidate, struct strbuf *out)
{
    static const char *const words[] = {
        [KIND_NONE] = "",
        [KIND_ALL] = "takes every path",
        [KIND_PACKAGE] = "takes its package",
        [KIND_SERVICE] = "takes its service",
        [KIND_EXACT] = "is the path itself",
    };
    line(out, "why");
    strbuf_addf(out, "match %.*s %s; nothing more specific does\n", TEXT_ARGS(candidate->hit.match),
                words[candidate->hit.kind]);
}

static void
say_conditions(const struct route *route, struct strbuf *out)
{
    const char *separator = "";
    if (conditions(route) == 0)
        return;
    line(out, "only");
    if (route->listener.len) {
        strbuf_addf(out, "from listener %.*s", TEXT_ARGS(route->listener));
        separator = ", ";
    }
    if (route->match_authority.len) {
        strbuf_addf(out, "%sto authority %.*s", separator, TEXT_ARGS(route->match_authority));
        separator = ", ";
    }
    for (unsigned i = 0; i < route->match_header_count; i++, separator = ", ") {
        const struct header_condition *header = &route->match_headers[i];
        strbuf_addf(out, "%swith header %.*s%s%.*s", separator, TEXT_ARGS(header->name),
                    header->value.len ? ": " : "", TEXT_ARGS(header->value));
    }
    strbuf_add_char(out, '\n');
}

static void
say_upstream(const struct upstream_conf *upstream, struct strbuf *out)
{
    static const char *const sources[] = {"", ", by DNS from", ", by file from",
                                          ", by ZooKeeper from", ", by Nacos from"};
    line(out, "upstream");
    strbuf_addf(out, "%.*s%s", TEXT_ARGS(upstream->name), sources[upstream->discovery]);
    for (unsigned i = 0; i < upstream->endpoint_count; i++)
        strbuf_addf(out, "%s%.*s", i == 0 ? " " : ", ", TEXT_ARGS(upstream->endpoints[i]));
    strbuf_addf(out, "; %s%s; %s\n",
                upstream->transport == TRANSPORT_H2
                    ? "HTTP/2"
                    : "HTTP/1.1 for bare unary calls, HTTP/2 for the rest",
                upstream->tls ? " over TLS" : "",
                upstream->lb_policy == LB_LEAST_REQUEST ? "the less busy of two random endpoints"
                                                        : "endpoints in turn");
}

/* Which wire form: the table, row by row. */
static void
say_form(const struct route *route, struct strbuf *out)
{
    static const char *const calls[] = {"auto", "unary", "stream"};
    static const char *const wires[] = {"auto", "bare", "framed"};
    enum upstream_wire wire = route->upstream->wire;
    line(out, "form");
    strbuf_addf(out, "call = %s, wire = %s: ", calls[route->call], wires[wire]);
    if (route->call == CALL_STREAM)
        strbuf_add_str(out, "framed, each message passed on as it comes\n");
    else if (wire == UPSTREAM_WIRE_FRAMED)
        strbuf_add_str(out, "framed\n");
    else if (route->call == CALL_UNARY && wire == UPSTREAM_WIRE_BARE)
        strbuf_add_str(out, "bare; a provider that refuses this ends the call UNKNOWN\n");
    else if (route->call == CALL_UNARY)
        strbuf_add_str(out, "bare where the provider is known to take it, or held until that is "
                            "known; framed where it is known to refuse\n");
    else
        strbuf_add_str(out,
                       "bare when one message and the end of the request come together, or the "
                       "method is known to be unary; framed when the provider is known to "
                       "refuse, and for everything else\n");
}

static void
add_size(struct strbuf *out, uint64_t bytes)
{
    if (bytes % (1 << 20) == 0)
        strbuf_addf(out, "%lluM", (unsigned long long)bytes >> 20);
    else if (bytes % 1024 == 0)
        strbuf_addf(out, "%lluK", (unsigned long long)bytes >> 10);
    else
        strbuf_addf(out, "%llu bytes", (unsigned long long)bytes);
}

static void
say_held(const struct route *route, struct strbuf *out)
{
    strbuf_add_str(out, "fast: held up to ");
    add_size(out, route->fast_path_max);
    strbuf_addf(out, ", sent in one piece%s; cut_through: longer ones go as they come%s",
                route->content_length ? " with Content-Length" : ", without length",
                route->content_length ? ", with Content-Length too" : "");
}

static void
say_not_held(const struct route *route, struct strbuf *out)
{
    if (route->call == CALL_UNARY && route->upstream->wire == UPSTREAM_WIRE_BARE)
        strbuf_add_str(out, "relay: bare as it comes, without length");
    else
        strbuf_add_str(out, "relay, bare as it comes, where the provider is known to take it; "
                            "else framed");
}

static void
say_path(const struct route *route, struct strbuf *out)
{
    uint32_t share = route->fast_path_share;
    line(out, "path");
    if (route->call == CALL_STREAM || route->upstream->wire == UPSTREAM_WIRE_FRAMED) {
        strbuf_add_str(out, "framed\n");
        return;
    }
    if (share > 0 && share < 10000)
        strbuf_addf(out, "%g%% of calls ", share / 100.0);
    if (share > 0)
        say_held(route, out);
    if (share > 0 && share < 10000)
        strbuf_add_str(out, "; the others ");
    if (share < 10000)
        say_not_held(route, out);
    strbuf_add_char(out, '\n');
    if (route->call == CALL_UNARY && route->upstream->wire == UPSTREAM_WIRE_BARE)
        return;
    line(out, "");
    strbuf_add_str(out, "fallback: a held call that is refused is sent again, framed\n");
}

/* What the provider sees other than the client sent it. */
static void
say_changes(const struct route *route, struct text path, struct strbuf *out)
{
    size_t service = service_len(path);
    if (route->set_service.len && service) {
        line(out, "sent to");
        strbuf_addf(out, "/%.*s/%.*s\n", TEXT_ARGS(route->set_service),
                    TEXT_ARGS(text_from(path, service)));
    }
    if (route->set_group.len || route->set_version.len) {
        line(out, "with");
        strbuf_addf(out, "group \"%.*s\", version \"%.*s\"\n", TEXT_ARGS(route->set_group),
                    TEXT_ARGS(route->set_version));
    }
    for (unsigned i = 0; i < route->filter_count; i++) {
        line(out, i == 0 ? "filters" : "");
        strbuf_addf(out, "%.*s\n", TEXT_ARGS(route->filter_names[i]));
    }
    if (route->timeout_ns) {
        line(out, "timeout");
        strbuf_addf(out, "%g s at most, less when the client says so\n",
                    (double)route->timeout_ns / (double)NS_PER_S);
    }
}

/* --- what has been learnt --- */

/* As the value of a query key: everything but the plainest bytes is escaped. */
static void
add_escaped(struct strbuf *out, struct text value)
{
    static const char plain[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789/._-";
    for (size_t i = 0; i < value.len; i++) {
        unsigned char byte = (unsigned char)value.ptr[i];
        if (byte && strchr(plain, byte))
            strbuf_add_char(out, (char)byte);
        else
            strbuf_addf(out, "%%%02X", byte);
    }
}

/* The report of the running proxy, or a line that says why there is none. */
static void
ask(const struct snapshot *snapshot, struct text path, struct strbuf *report)
{
    struct text admin = snapshot->proxy.admin;
    struct strbuf target = STRBUF_INIT;
    if (admin.len == 0) {
        strbuf_add_str(report, "cannot be asked: [proxy] has no admin\n");
        return;
    }
    strbuf_add_str(&target, "/explain?path=");
    add_escaped(&target, path);
    int status = probe_get(admin, target.data, report);
    strbuf_fini(&target);
    if (status == 200)
        return;
    strbuf_clear(report);
    if (status < 0)
        strbuf_addf(report, "cannot be asked: no answer at %.*s (%s)\n", TEXT_ARGS(admin),
                    strerror(-status));
    else
        strbuf_addf(report, "cannot be asked: %.*s answers %d\n", TEXT_ARGS(admin), status);
}

/* Whether a line of the report opens the part about that upstream; *rest is what it says. */
static bool
names_upstream(struct text part, struct text name, struct text *rest)
{
    part = text_from(part, strlen("upstream "));
    if (!text_starts(part, name) || part.len == name.len || part.ptr[name.len] != ' ')
        return false;
    *rest = text_from(part, name.len + 1);
    return true;
}

/* "upstream NAME …" opens a part of the report; lines before the first are about the asking itself.
 */
static void
say_learnt(const struct upstream_conf *upstream, struct text report, struct strbuf *out)
{
    struct text part;
    bool ours = true, said = false;
    while (text_next(&report, '\n', &part)) {
        if (text_starts(part, TEXT("upstream ")))
            ours = names_upstream(part, upstream->name, &part);
        if (!ours)
            continue;
        line(out, said ? "" : "learnt");
        strbuf_addf(out, "%.*s\n", TEXT_ARGS(part));
        said = true;
    }
    if (said)
        return;
    line(out, "learnt");
    strbuf_add_str(out, "nothing: the running proxy has no endpoint of this upstream\n");
}

static void
say_no_route(const struct snapshot *snapshot, struct text path, struct strbuf *out)
{
    strbuf_addf(out, "%.*s\n  no route takes it: the call ends UNIMPLEMENTED\n", TEXT_ARGS(path));
    for (unsigned i = 0; i < snapshot->route_count; i++) {
        const struct route *route = &snapshot->routes[i];
        for (unsigned j = 0; j < route->match_count; j++)
            strbuf_addf(out, "  route %.*s (%.*s) takes %.*s\n", TEXT_ARGS(route->name),
                        TEXT_ARGS(route->where), TEXT_ARGS(route->matches[j]));
    }
}

int
explain_call(const struct snapshot *snapshot, struct text path, struct strbuf *out)
{
    struct candidate *found = mem_zalloc((snapshot->route_count + 1) * sizeof(*found));
    ptrdiff_t question = text_find(path, '?', 0);
    if (question >= 0)
        path.len = (size_t)question;
    unsigned count = find_candidates(snapshot, path, found);
    struct strbuf report = STRBUF_INIT;
    if (count > 0)
        ask(snapshot, path, &report);
    else
        say_no_route(snapshot, path, out);
    for (unsigned i = 0; i < count; i++) {
        const struct route *route = found[i].route;
        strbuf_addf(out, "%.*s\n", TEXT_ARGS(path));
        line(out, i == 0 ? "route" : "else");
        strbuf_addf(out, "%.*s (%.*s)\n", TEXT_ARGS(route->name), TEXT_ARGS(route->where));
        say_why(&found[i], out);
        say_conditions(route, out);
        say_upstream(route->upstream, out);
        say_form(route, out);
        say_path(route, out);
        say_changes(route, path, out);
        say_learnt(route->upstream, strbuf_text(&report), out);
    }
    strbuf_fini(&report);
    mem_free(found);
    return count > 0 ? 0 : 1;
}
