/*
 * The table, and how to find and suggest keys in it. A new key is one line here plus the field it
 * fills; its documentation in conf/ is generated from here and checked by a test.
 */
#include "proxy/config/keys.h"

#include "proxy/base/clock.h"
#include "proxy/call/snapshot.h"

#define PROXY(field) .section = SECTION_PROXY, .offset = offsetof(struct proxy_conf, field)
#define LISTENER(field) .section = SECTION_LISTENER, .offset = offsetof(struct listener_conf, field)
#define UPSTREAM(field) .section = SECTION_UPSTREAM, .offset = offsetof(struct upstream_conf, field)
#define ROUTE(field) .section = SECTION_ROUTE, .offset = offsetof(struct route, field)
#define BESIDE(type, field) .count_offset = offsetof(struct type, field)
#define RANGE(low, high) .min = (low), .max = (high)

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)
#define DAYS (86400 * NS_PER_S)
#define WINDOW_MAX (((uint64_t)1 << 31) - 1) /* RFC 9113 section 6.9.1 */

static const char *const LOG_FORMATS[] = {"logfmt", "json", NULL};
static const char *const LOG_LEVELS[] = {"debug", "info", "warn", "error", NULL};
static const char *const DISCOVERIES[] = {"static", "dns", "file", "zookeeper", "nacos", NULL};
static const char *const DIALECTS[] = {"triple", "connect", NULL};
static const char *const WIRES[] = {"auto", "bare", "framed", NULL};
static const char *const TRANSPORTS[] = {"h2", "http1", NULL};
static const char *const LB_POLICIES[] = {"least_request", "round_robin", NULL};
static const char *const CALLS[] = {"auto", "unary", "stream", NULL};

/* clang-format off */
const struct config_key keys_table[] = {
    {PROXY(workers), BESIDE(proxy_conf, workers_auto), .name = "workers", .type = KEY_WORKERS, .fallback = "1",
     RANGE(1, STATS_MAX_WORKERS), .flags = KEY_RESTART,
     .help = "threads, each with its own loop, listeners and pools; auto = cores by affinity and cgroup quota"},
    {PROXY(admin), .name = "admin", .type = KEY_LISTEN, .fallback = "", .flags = KEY_RESTART,
     .help = "stats endpoint, for example 127.0.0.1:17010; empty = none"},
    {PROXY(admin_public), .name = "admin_public", .type = KEY_BOOL, .fallback = "off",
     .help = "on = admin may be an address that is not loopback"},
    {PROXY(probe), .name = "probe", .type = KEY_LISTEN, .fallback = "", .flags = KEY_RESTART,
     .help = "read-only /live, /ready and /metrics for kubelet and Prometheus, for example 0.0.0.0:17020; empty = none"},
    {PROXY(log), .name = "log", .type = KEY_LOG, .fallback = "stderr", .help = "stdout, stderr or a file"},
    {PROXY(log_format), .name = "log_format", .type = KEY_CHOICE, .fallback = "logfmt", .choices = LOG_FORMATS,
     .help = "of the log and the access log"},
    {PROXY(log_level), .name = "log_level", .type = KEY_CHOICE, .fallback = "info", .choices = LOG_LEVELS,
     .help = "the least serious lines that are written"},
    {PROXY(access_log), .name = "access_log", .type = KEY_ACCESS_LOG, .fallback = "off",
     .help = "a line for each call: off, stdout, stderr or a file"},
    {PROXY(drain_delay_ns), .name = "drain_delay", .type = KEY_DURATION, .fallback = "0s", RANGE(0, DAYS),
     .help = "after TERM everything is served this long while /ready already says no"},
    {PROXY(drain_timeout_ns), .name = "drain_timeout", .type = KEY_DURATION, .fallback = "25s", RANGE(0, DAYS),
     .help = "counted from TERM; calls that still run then end UNAVAILABLE (Kubernetes waits 30 s)"},
    {PROXY(buffer_budget_bytes), BESIDE(proxy_conf, buffer_budget_auto), .name = "buffer_budget", .type = KEY_BUDGET,
     .fallback = "auto", RANGE(64 * KIB, 1024 * GIB),
     .help = "bytes of bodies in memory, held or passing, all workers; auto = a quarter of the cgroup's memory, at most 256M"},
    {PROXY(stream_window), .name = "stream_window", .type = KEY_SIZE32, .fallback = "1M", RANGE(KIB, WINDOW_MAX),
     .help = "HTTP/2 window per stream, both sides"},
    {PROXY(max_message), .name = "max_message", .type = KEY_SIZE, .fallback = "8M", RANGE(1, 4 * GIB - 1),
     .help = "longest message: decoded size where the proxy decodes, wire size where it only relays"},
    {PROXY(merge_writes), .name = "merge_writes", .type = KEY_BOOL, .fallback = "on",
     .help = "off = a write per event, for measuring what merging saves"},
    {PROXY(watch), .name = "watch", .type = KEY_BOOL, .fallback = "on",
     .help = "reload when the file, or the directory entry behind it (ConfigMap), changes"},

    {LISTENER(addresses), BESIDE(listener_conf, address_count), .name = "address", .type = KEY_LISTENS, .fallback = "",
     .flags = KEY_REQUIRED | KEY_REPEATS | KEY_RESTART,
     .help = "host:port, [v6]:port or unix:/path, for example 127.0.0.1:17000"},
    {LISTENER(max_connections), .name = "max_connections", .type = KEY_NUMBER, .fallback = "10000", RANGE(1, 1000000),
     .help = "split between workers"},
    {LISTENER(max_streams), .name = "max_streams", .type = KEY_NUMBER, .fallback = "1000", RANGE(1, 1000000),
     .help = "calls at once per connection; more get REFUSED_STREAM"},
    {LISTENER(max_header_list), .name = "max_header_list", .type = KEY_SIZE32, .fallback = "64K", RANGE(KIB, 16 * MIB),
     .help = "decoded size of a call's header list; a call over it ends RESOURCE_EXHAUSTED"},
    {LISTENER(reset_limit), BESIDE(listener_conf, reset_window_ns), .name = "reset_limit", .type = KEY_RATE,
     .fallback = "2000/10s", RANGE(1, 1000000000),
     .help = "resets, and streams ended for the client's fault, before GOAWAY(ENHANCE_YOUR_CALM); off = no limit"},
    {LISTENER(max_connection_age_ns), .name = "max_connection_age", .type = KEY_DURATION, .fallback = "0s",
     RANGE(0, 3650 * DAYS), .help = "GOAWAY after this long; 0s = never"},
    {LISTENER(unix_mode), .name = "unix_mode", .type = KEY_MODE, .fallback = "0660",
     .help = "permissions of unix sockets"},
    {LISTENER(tls_cert), .name = "tls_cert", .type = KEY_FILE, .fallback = "",
     .help = "PEM file, certificate first, then its chain; turns TLS on"},
    {LISTENER(tls_key), .name = "tls_key", .type = KEY_FILE, .fallback = "", .help = "PEM file, the key of tls_cert"},
    {LISTENER(tls_client_ca), .name = "tls_client_ca", .type = KEY_FILE, .fallback = "",
     .help = "PEM file; clients must show a certificate signed by one of these"},

    {UPSTREAM(endpoints), BESIDE(upstream_conf, endpoint_count), .name = "endpoints", .type = KEY_TEXTS, .fallback = "",
     .flags = KEY_REQUIRED | KEY_REPEATS,
     .help = "host:port, [v6]:port or unix:/path; with another discovery its source, for example a file's path"},
    {UPSTREAM(discovery), .name = "discovery", .type = KEY_CHOICE, .fallback = "static", .choices = DISCOVERIES,
     .help = "where the list of endpoints comes from"},
    {UPSTREAM(dialect), .name = "dialect", .type = KEY_CHOICE, .fallback = "triple", .choices = DIALECTS,
     .help = "header names, status tables and codes of the bare form"},
    {UPSTREAM(wire), .name = "wire", .type = KEY_CHOICE, .fallback = "auto", .choices = WIRES,
     .help = "form of unary calls; auto learns whether the provider takes the bare form"},
    {UPSTREAM(transport), .name = "transport", .type = KEY_CHOICE, .fallback = "h2", .choices = TRANSPORTS,
     .help = "http1 = bare unary calls over kept HTTP/1.1 connections, everything else on h2"},
    {UPSTREAM(forward_accept_encoding), .name = "forward_accept_encoding", .type = KEY_BOOL, .fallback = "off",
     .help = "on = pass the client's gzip offer on; off saves a dubbo-go provider a third of its time"},
    {UPSTREAM(lb_policy), .name = "lb_policy", .type = KEY_CHOICE, .fallback = "least_request", .choices = LB_POLICIES,
     .help = "least_request picks the less busy of two random endpoints"},
    {UPSTREAM(connections), .name = "connections", .type = KEY_NUMBER, .fallback = "1", RANGE(1, 65536),
     .help = "per worker and endpoint; more are opened when streams run out"},
    {UPSTREAM(max_connections), .name = "max_connections", .type = KEY_NUMBER, .fallback = "8", RANGE(1, 65536),
     .help = "the most connections per worker and endpoint; with transport = http1 also the most of those"},
    {UPSTREAM(max_connections_http1), .name = "max_connections_http1", .type = KEY_NUMBER, .fallback = "256",
     RANGE(1, 65536), .help = "the most HTTP/1.1 connections per worker and endpoint; max_connections if only that is given"},
    {UPSTREAM(max_pending), .name = "max_pending", .type = KEY_NUMBER, .fallback = "1000", RANGE(0, 10000000),
     .help = "per worker: calls that wait for a connection or stream; over it RESOURCE_EXHAUSTED"},
    {UPSTREAM(connect_timeout_ns), .name = "connect_timeout", .type = KEY_DURATION, .fallback = "1s",
     RANGE(NS_PER_MS, 3600 * NS_PER_S), .help = "until the connection is usable, TLS included"},
    {UPSTREAM(tls_on), .name = "tls", .type = KEY_BOOL, .fallback = "off", .help = "on = TLS towards the endpoints"},
    {UPSTREAM(tls_ca), .name = "tls_ca", .type = KEY_FILE, .fallback = "",
     .help = "PEM file of the authorities to trust; empty = the system's"},
    {UPSTREAM(tls_cert), .name = "tls_cert", .type = KEY_FILE, .fallback = "", .help = "PEM file, our own certificate"},
    {UPSTREAM(tls_key), .name = "tls_key", .type = KEY_FILE, .fallback = "", .help = "PEM file, the key of tls_cert"},
    {UPSTREAM(tls_server_name), .name = "tls_server_name", .type = KEY_TEXT, .fallback = "",
     .help = "name to ask for and to check; empty = the endpoint's host"},

    {ROUTE(matches), BESIDE(route, match_count), .name = "match", .type = KEY_TEXTS, .fallback = "",
     .flags = KEY_REQUIRED | KEY_REPEATS,
     .help = "exact path, /Service/*, /package.*, or *; the most specific wins"},
    {ROUTE(match_authority), .name = "match_authority", .type = KEY_TEXT, .fallback = "",
     .help = "only calls to this :authority, for example greet.example.com or *.example.com"},
    {ROUTE(match_headers), BESIDE(route, match_header_count), .name = "match_header", .type = KEY_CONDITIONS,
     .fallback = "", .flags = KEY_REPEATS, .help = "name: value, or name alone for any value; all of them must hold"},
    {ROUTE(listener), .name = "listener", .type = KEY_REFERENCE, .fallback = "", .help = "only calls from this listener"},
    {ROUTE(upstream_name), .name = "upstream", .type = KEY_REFERENCE, .fallback = "", .flags = KEY_REQUIRED,
     .help = "where the calls go"},
    {ROUTE(call), .name = "call", .type = KEY_CHOICE, .fallback = "auto", .choices = CALLS,
     .help = "unary, stream, or auto = by what the client sends"},
    {ROUTE(fast_path_share), .name = "fast_path", .type = KEY_SHARE, .fallback = "on",
     .help = "on, off or a share of calls such as 10%; off = the relay path"},
    {ROUTE(fast_path_max), .name = "fast_path_max", .type = KEY_SIZE, .fallback = "64K", RANGE(0, 4 * GIB - 1),
     .help = "a longer message is not held: it goes as it comes, still with Content-Length"},
    {ROUTE(content_length), .name = "content_length", .type = KEY_BOOL, .fallback = "on",
     .help = "off = no Content-Length towards the provider, for comparing"},
    {ROUTE(replay), .name = "replay", .type = KEY_BOOL, .fallback = "on",
     .help = "a held body may be sent again when it provably was not processed"},
    {ROUTE(timeout_ns), .name = "timeout", .type = KEY_DURATION, .fallback = "0s", RANGE(0, 365 * DAYS),
     .help = "upper bound, for streams too; 0s = none; the client's own deadline wins when shorter"},
    {ROUTE(set_service), .name = "set_service", .type = KEY_TEXT, .fallback = "",
     .help = "service name in :path towards the provider"},
    {ROUTE(set_group), .name = "set_group", .type = KEY_FIELD_TEXT, .fallback = "", .help = "sets tri-service-group"},
    {ROUTE(set_version), .name = "set_version", .type = KEY_FIELD_TEXT, .fallback = "",
     .help = "sets tri-service-version"},
    {ROUTE(set_headers), BESIDE(route, set_header_count), .name = "set_header", .type = KEY_FIELDS, .fallback = "",
     .flags = KEY_REPEATS | KEY_SECRET, .help = "name: value, a request header; replaces what the client sent"},
    {ROUTE(report), .name = "report", .type = KEY_BOOL, .fallback = "off",
     .help = "on = trailers tributary-path and tributary-overhead-us on each call"},
    {ROUTE(filter_names), BESIDE(route, filter_count), .name = "filters", .type = KEY_TEXTS, .fallback = "",
     .flags = KEY_REPEATS, .help = "names of [filter NAME] sections, in order"},
};
/* clang-format on */
const unsigned keys_count = sizeof(keys_table) / sizeof(*keys_table);

static const char *const SECTION_NAMES[SECTION_COUNT] = {"proxy", "listener", "upstream", "route",
                                                         "filter"};

const char *
keys_section_name(enum key_section section)
{
    return SECTION_NAMES[section];
}

enum key_section
keys_section_of(struct text kind)
{
    unsigned i = 0;
    while (i < SECTION_COUNT && !text_eq(kind, text_of(SECTION_NAMES[i])))
        i++;
    return (enum key_section)i;
}

const struct config_key *
keys_find(enum key_section section, struct text name)
{
    for (unsigned i = 0; i < keys_count; i++)
        if (keys_table[i].section == section && text_eq(name, text_of(keys_table[i].name)))
            return &keys_table[i];
    return NULL;
}

const char *
keys_nearest(struct text name, const char *const *names, unsigned count)
{
    const char *nearest = NULL;
    unsigned limit = name.len <= 2 ? 1 : name.len <= 8 ? 2 : 3, least = limit + 1;
    for (unsigned i = 0; i < count; i++) {
        unsigned distance = text_distance(name, text_of(names[i]));
        if (distance < least) {
            least = distance;
            nearest = names[i];
        }
    }
    return nearest;
}

static unsigned
names_of(enum key_section section, const char **names)
{
    unsigned count = 0;
    for (unsigned i = 0; i < keys_count; i++)
        if (keys_table[i].section == section)
            names[count++] = keys_table[i].name;
    return count;
}

void
keys_suggest(enum key_section section, struct text name, struct strbuf *out)
{
    const char *names[sizeof(keys_table) / sizeof(*keys_table)];
    unsigned count = names_of(section, names);
    const char *nearest = keys_nearest(name, names, count);
    if (nearest) {
        strbuf_addf(out, "did you mean '%s'?", nearest);
        return;
    }
    for (unsigned other = 0; other < SECTION_FILTER; other++) {
        if (keys_find((enum key_section)other, name)) {
            strbuf_addf(out, "that key belongs into [%s%s]", SECTION_NAMES[other],
                        other == SECTION_PROXY ? "" : " NAME");
            return;
        }
    }
    strbuf_add_str(out, "known here:");
    for (unsigned i = 0; i < count; i++)
        strbuf_addf(out, "%s %s", i ? "," : "", names[i]);
}
