/*
 * Rules between keys and sections. One function per rule or per section; each names the line to
 * change.
 *
 * A rule looks only at values that were read; a section that already has complaints may get more,
 * but none that only repeat the first (a reference that is empty is "missing", not also "unknown").
 */
#include "proxy/config/validate.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proxy/base/mem.h"
#include "proxy/config/overlaps.h"
#include "proxy/config/shapes.h"
#include "proxy/config/values.h"

static bool
given(const struct ini_section *section, const char *key)
{
    return section && ini_section_find(section, key);
}

/* [proxy] may be missing altogether: then all complaints are about keys of other sections. */
static const struct ini_section *
proxy_section(const struct draft *draft)
{
    static const struct ini_section NONE = {.label = {"proxy", 5}};
    return draft->proxy ? draft->proxy : &NONE;
}

/* Whether a log file can be opened or made, without making it. 0 or a negative errno. */
static int
can_append(const char *name)
{
    struct stat info;
    if (stat(name, &info) == 0 && S_ISDIR(info.st_mode))
        return -EISDIR;
    if (faccessat(AT_FDCWD, name, W_OK, AT_EACCESS) == 0)
        return 0;
    if (errno != ENOENT)
        return -errno;
    char *folder = mem_strdup(name);
    char *slash = strrchr(folder, '/');
    if (slash == folder)
        slash++;
    if (slash) /* assign.c: a path has one */
        *slash = '\0';
    int status = faccessat(AT_FDCWD, folder, W_OK | X_OK, AT_EACCESS) < 0 ? -errno : 0;
    mem_free(folder);
    return status;
}

static void
check_log(const struct draft *draft, const char *key, struct text target)
{
    if (text_find(target, '/', 0) < 0) /* stdout, stderr, off */
        return;
    char *name = text_dup(target);
    int status = can_append(name);
    if (status < 0)
        draft_complain(draft, proxy_section(draft), key,
                       "'%s' cannot be written: %s; name a file that can, or stderr", name,
                       strerror(-status));
    mem_free(name);
}

static void
check_proxy(const struct draft *draft)
{
    const struct proxy_conf *proxy = &draft->snapshot->proxy;
    if (proxy->admin.len && !proxy->admin_public && shapes_listen(proxy->admin) == NULL &&
        !shapes_is_loopback(proxy->admin))
        draft_complain(
            draft, proxy_section(draft), "admin",
            "'%.*s' is not loopback, and the stats endpoint can be read and reset without "
            "a password; use 127.0.0.1, or say admin_public = on",
            TEXT_ARGS(proxy->admin));
    check_log(draft, "log", proxy->log);
    check_log(draft, "access_log", proxy->access_log);
    if (proxy->drain_delay_ns > proxy->drain_timeout_ns)
        draft_complain(draft, proxy_section(draft), "drain_delay",
                       "longer than drain_timeout, which counts from TERM too; make it shorter");
}

/* An address that is used already, by whom: "[listener main]" or a key of [proxy]. */
struct place {
    struct text address;
    const struct ini_section *section;
    const char *key;
};

static void
claim(const struct draft *draft, struct place *places, unsigned *count, struct place place)
{
    if (place.address.len == 0 || shapes_port_zero(place.address))
        return;
    for (unsigned i = 0; i < *count; i++) {
        if (!text_eq(places[i].address, place.address))
            continue;
        draft_complain_item(draft, place.section, place.key, place.address,
                            "'%.*s' is taken by %s of [%.*s]; use another port",
                            TEXT_ARGS(place.address), places[i].key,
                            TEXT_ARGS(places[i].section->label));
        return;
    }
    places[(*count)++] = place;
}

static void
check_addresses(const struct draft *draft)
{
    const struct snapshot *snapshot = draft->snapshot;
    unsigned total = 2, count = 0;
    for (unsigned i = 0; i < snapshot->listener_count; i++)
        total += snapshot->listeners[i].address_count;
    struct place *places = mem_zalloc(total * sizeof(*places));
    const struct ini_section *proxy = proxy_section(draft);
    claim(draft, places, &count, (struct place){snapshot->proxy.admin, proxy, "admin"});
    claim(draft, places, &count, (struct place){snapshot->proxy.probe, proxy, "probe"});
    for (unsigned i = 0; i < snapshot->listener_count; i++)
        for (unsigned j = 0; j < snapshot->listeners[i].address_count; j++)
            claim(draft, places, &count,
                  (struct place){snapshot->listeners[i].addresses[j], draft->listeners[i],
                                 "address"});
    mem_free(places);
}

/* 0 or a negative errno. A FIFO or a device would make OpenSSL wait, or read for ever. */
static int
open_regular(const char *name)
{
    int fd = open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat info;
    if (fd < 0)
        return -errno;
    int status = fstat(fd, &info) < 0 ? -errno : S_ISREG(info.st_mode) ? 0 : -EINVAL;
    close(fd);
    return status;
}

static void
check_file(const struct draft *draft, const struct ini_section *section, const char *key,
           struct text path)
{
    if (path.len == 0)
        return;
    char *name = text_dup(path);
    int status = open_regular(name);
    if (status < 0)
        draft_complain(draft, section, key, "'%s' cannot be read: %s; name a PEM file", name,
                       status == -EINVAL ? "not a regular file" : strerror(-status));
    mem_free(name);
}

static void
check_pair(const struct draft *draft, const struct ini_section *section, struct text cert,
           struct text key)
{
    if (cert.len && !key.len)
        draft_complain(draft, section, "tls_cert", "needs tls_key, the file of its key");
    if (key.len && !cert.len)
        draft_complain(draft, section, "tls_key", "needs tls_cert, the file of its certificate");
    check_file(draft, section, "tls_cert", cert);
    check_file(draft, section, "tls_key", key);
}

static void
check_listener(const struct draft *draft, unsigned i)
{
    const struct listener_conf *listener = &draft->snapshot->listeners[i];
    check_pair(draft, draft->listeners[i], listener->tls_cert, listener->tls_key);
    check_file(draft, draft->listeners[i], "tls_client_ca", listener->tls_client_ca);
    if (listener->tls_client_ca.len && !listener->tls_cert.len)
        draft_complain(draft, draft->listeners[i], "tls_client_ca",
                       "needs tls_cert and tls_key; without them this listener speaks no TLS");
}

static void
check_upstream_tls(const struct draft *draft, const struct ini_section *section,
                   const struct upstream_conf *upstream)
{
    static const char *const KEYS[] = {"tls_ca", "tls_cert", "tls_key", "tls_server_name"};
    const struct text values[] = {upstream->tls_ca, upstream->tls_cert, upstream->tls_key,
                                  upstream->tls_server_name};
    for (unsigned i = 0; !upstream->tls_on && i < sizeof(KEYS) / sizeof(*KEYS); i++)
        if (values[i].len)
            draft_complain(draft, section, KEYS[i], "has no effect without tls = on; add that");
    check_pair(draft, section, upstream->tls_cert, upstream->tls_key);
    check_file(draft, section, "tls_ca", upstream->tls_ca);
}

/* host:port, with a path behind it for sources that have one. */
static const char *
source_problem(struct text source)
{
    ptrdiff_t slash = text_find(source, '/', 0);
    return shapes_endpoint(slash < 0 ? source : text_make(source.ptr, (size_t)slash));
}

static const char *
endpoint_problem(const struct upstream_conf *upstream, struct text endpoint)
{
    switch (upstream->discovery) {
    case DISCOVERY_STATIC:
        return shapes_endpoint(endpoint);
    case DISCOVERY_DNS:
        return text_starts(endpoint, TEXT("unix:")) ? "is no name to look up; write name:20000"
                                                    : shapes_endpoint(endpoint);
    case DISCOVERY_FILE:
        return text_find(endpoint, '/', 0) < 0
                   ? "is no path; write the path of the file that lists "
                     "the endpoints, with a '/' in it"
                   : NULL;
    case DISCOVERY_ZOOKEEPER:
    case DISCOVERY_NACOS:
        return source_problem(endpoint);
    }
    return NULL;
}

static void
check_upstream(const struct draft *draft, unsigned i)
{
    struct upstream_conf *upstream = &draft->snapshot->upstreams[i];
    const struct ini_section *section = draft->upstreams[i];
    for (unsigned j = 0; j < upstream->endpoint_count; j++) {
        const char *problem = endpoint_problem(upstream, upstream->endpoints[j]);
        if (problem)
            draft_complain_item(draft, section, "endpoints", upstream->endpoints[j], "'%.*s' %s",
                                TEXT_ARGS(upstream->endpoints[j]), problem);
    }
    if (upstream->connections > upstream->max_connections && !given(section, "max_connections"))
        upstream->max_connections = upstream->connections; /* the default follows */
    if (upstream->connections > upstream->max_connections)
        draft_complain(draft, section, "connections",
                       "more than max_connections, which is %u; raise that or make this smaller",
                       upstream->max_connections);
    if (upstream->transport == TRANSPORT_HTTP1 && given(section, "max_connections") &&
        !given(section, "max_connections_http1"))
        upstream->max_connections_http1 = upstream->max_connections;
    check_upstream_tls(draft, section, upstream);
}

/* Names of a kind of section, for suggestions; NUL-terminated copies live in the snapshot's arena.
 */
static void
suggest_name(const struct draft *draft, const struct ini_section *section, const char *key,
             struct text wanted, const char *kind, const struct ini_section *const *sources,
             unsigned count)
{
    const char **names = mem_zalloc((count + 1) * sizeof(*names));
    for (unsigned i = 0; i < count; i++)
        names[i] = sources[i]->name.ptr;
    const char *near = keys_nearest(wanted, names, count);
    if (near)
        draft_complain_item(draft, section, key, wanted,
                            "there is no [%s %.*s]; did you mean '%s'?", kind, TEXT_ARGS(wanted),
                            near);
    else
        draft_complain_item(draft, section, key, wanted, "there is no [%s %.*s]; add it%s%s%s",
                            kind, TEXT_ARGS(wanted), count ? ", or use for example '" : "",
                            count ? names[0] : "", count ? "'" : "");
    mem_free(names);
}

static void
find_upstream(const struct draft *draft, struct route *route, const struct ini_section *section)
{
    const struct snapshot *snapshot = draft->snapshot;
    for (unsigned i = 0; i < snapshot->upstream_count; i++)
        if (text_eq(snapshot->upstreams[i].name, route->upstream_name))
            route->upstream = &snapshot->upstreams[i];
    if (route->upstream_name.len && !route->upstream)
        suggest_name(draft, section, "upstream", route->upstream_name, "upstream", draft->upstreams,
                     snapshot->upstream_count);
}

static void
find_listener(const struct draft *draft, const struct route *route,
              const struct ini_section *section)
{
    const struct snapshot *snapshot = draft->snapshot;
    bool found = route->listener.len == 0;
    for (unsigned i = 0; i < snapshot->listener_count; i++)
        found = found || text_eq(snapshot->listeners[i].name, route->listener);
    if (!found)
        suggest_name(draft, section, "listener", route->listener, "listener", draft->listeners,
                     snapshot->listener_count);
}

static void
find_filters(const struct draft *draft, struct route *route, const struct ini_section *section)
{
    struct snapshot *snapshot = draft->snapshot;
    size_t count = route->filter_count;
    route->filters = arena_alloc(&snapshot->arena, count * sizeof(*route->filters));
    route->filter_settings = arena_alloc(&snapshot->arena, count * sizeof(*route->filter_settings));
    for (unsigned i = 0; i < route->filter_count; i++) {
        const struct filter_conf *filter = NULL;
        for (unsigned j = 0; j < snapshot->filter_count; j++)
            if (text_eq(snapshot->filters[j].name, route->filter_names[i]))
                filter = &snapshot->filters[j];
        route->filters[i] = filter ? filter->type : NULL;
        route->filter_settings[i] = filter ? filter->settings : NULL;
        if (!filter)
            suggest_name(draft, section, "filters", route->filter_names[i], "filter",
                         draft->filters, snapshot->filter_count);
    }
}

static void
check_route_shapes(const struct draft *draft, const struct route *route,
                   const struct ini_section *section)
{
    for (unsigned i = 0; i < route->match_count; i++) {
        const char *problem = shapes_match(route->matches[i]);
        if (problem)
            draft_complain_item(draft, section, "match", route->matches[i], "'%.*s' %s",
                                TEXT_ARGS(route->matches[i]), problem);
    }
    const char *problem =
        route->match_authority.len ? shapes_authority(route->match_authority) : NULL;
    if (problem)
        draft_complain(draft, section, "match_authority", "'%.*s' %s",
                       TEXT_ARGS(route->match_authority), problem);
    problem = shapes_service(route->set_service);
    if (problem)
        draft_complain(draft, section, "set_service", "'%.*s' %s", TEXT_ARGS(route->set_service),
                       problem);
}

static void
check_fast_path_max(const struct draft *draft, struct route *route,
                    const struct ini_section *section)
{
    struct strbuf limit = STRBUF_INIT;
    uint64_t max_message = draft->snapshot->proxy.max_message;
    if (route->fast_path_max <= max_message)
        return;
    if (!given(section, "fast_path_max")) {
        route->fast_path_max = max_message; /* the default follows a smaller max_message */
        return;
    }
    values_add_size(&limit, max_message);
    draft_complain(draft, section, "fast_path_max",
                   "more than max_message, which is %.*s; make it smaller",
                   TEXT_ARGS(strbuf_text(&limit)));
    strbuf_fini(&limit);
}

static void
check_route(const struct draft *draft, unsigned i)
{
    struct route *route = &draft->snapshot->routes[i];
    const struct ini_section *section = draft->routes[i];
    find_upstream(draft, route, section);
    find_listener(draft, route, section);
    find_filters(draft, route, section);
    check_route_shapes(draft, route, section);
    check_fast_path_max(draft, route, section);
}

void
validate(const struct draft *draft)
{
    const struct snapshot *snapshot = draft->snapshot;
    if (snapshot->listener_count == 0)
        complaints_add(draft->complaints, 1, TEXT_NONE, TEXT_NONE,
                       "no [listener NAME] section, so nothing could be served; add one with for "
                       "example address = 127.0.0.1:17000");
    check_proxy(draft);
    check_addresses(draft);
    for (unsigned i = 0; i < snapshot->listener_count; i++)
        check_listener(draft, i);
    for (unsigned i = 0; i < snapshot->upstream_count; i++)
        check_upstream(draft, i);
    for (unsigned i = 0; i < snapshot->route_count; i++)
        check_route(draft, i);
    overlaps_check(draft);
}
