/*
 * A configuration as the workers use it: immutable, reference counted, built whole by config/ and
 * swapped whole by the server. Plain data: what a key means is written in config/keys.c, what it
 * does in the code that reads it here.
 *
 * Owns all its memory (one arena). Header constants made from it (FIELD_STATIC) live as long as a
 * call holds a reference.
 */
#ifndef TRIBUTARY_CALL_SNAPSHOT_H
#define TRIBUTARY_CALL_SNAPSHOT_H

#include <stdatomic.h>

#include "proxy/base/arena.h"
#include "proxy/base/fields.h"
#include "proxy/base/log.h"
#include "proxy/stats/stats.h"
#include "proxy/wire/status.h"

struct tls_context;
struct filter_type;

enum route_call { CALL_AUTO, CALL_UNARY, CALL_STREAM };
enum upstream_wire { UPSTREAM_WIRE_AUTO, UPSTREAM_WIRE_BARE, UPSTREAM_WIRE_FRAMED };
enum upstream_transport { TRANSPORT_H2, TRANSPORT_HTTP1 };
enum upstream_discovery {
    DISCOVERY_STATIC,
    DISCOVERY_DNS,
    DISCOVERY_FILE,
    DISCOVERY_ZOOKEEPER,
    DISCOVERY_NACOS
};
enum lb_policy { LB_LEAST_REQUEST, LB_ROUND_ROBIN };

struct proxy_conf {
    unsigned workers;                      /* resolved, >= 1 */
    bool workers_auto, buffer_budget_auto; /* the file says "auto" (or nothing): printed so */
    struct text admin, probe;              /* empty: none */
    bool admin_public;
    struct text log, access_log; /* "stdout", "stderr", "off" (access), or a path */
    enum log_format log_format;
    enum log_level log_level;
    uint64_t drain_delay_ns, drain_timeout_ns;
    uint64_t buffer_budget_bytes; /* resolved */
    uint32_t stream_window;
    uint64_t max_message;
    bool merge_writes, watch;
};

struct listener_conf {
    struct text name;
    struct text *addresses;
    unsigned address_count;
    uint32_t max_connections, max_streams, max_header_list;
    uint32_t reset_limit; /* 0: none */
    uint64_t reset_window_ns, max_connection_age_ns;
    struct text tls_cert, tls_key, tls_client_ca;
    struct tls_context *tls; /* NULL: clear text; a reference */
    struct stats_entry *stats;
    uint32_t unix_mode; /* permission bits of unix sockets, 0660 unless set */
};

struct upstream_conf {
    struct text name;
    unsigned index;         /* in snapshot->upstreams */
    struct text *endpoints; /* as written: "host:port", "unix:/path", or the resolver's source */
    unsigned endpoint_count;
    enum upstream_discovery discovery;
    enum dialect dialect;
    enum upstream_wire wire;
    enum upstream_transport transport;
    bool forward_accept_encoding;
    enum lb_policy lb_policy;
    uint32_t connections, max_connections, max_connections_http1, max_pending;
    uint64_t connect_timeout_ns;
    bool tls_on;
    struct text tls_ca, tls_cert, tls_key, tls_server_name;
    struct tls_context *tls; /* NULL: clear text; a reference */
};

struct header_condition {
    struct text name, value; /* value empty: present is enough */
};

struct route {
    struct text name;
    unsigned index;       /* in snapshot->routes, the order of the file */
    struct text *matches; /* "/pkg.Svc/Method", "/pkg.Svc/ *" (without the blank), "/pkg.*", "*" */
    unsigned match_count;
    struct text match_authority; /* empty: any; "*.example.com" allowed */
    struct header_condition *match_headers;
    unsigned match_header_count;
    struct text listener;      /* empty: any */
    struct text upstream_name; /* as written; the next is found by it */
    const struct upstream_conf *upstream;
    enum route_call call;
    uint32_t fast_path_share; /* of 10000 calls: 10000 on, 0 off */
    uint64_t fast_path_max;
    bool content_length, replay, report;
    uint64_t timeout_ns;                             /* 0: none */
    struct text set_service, set_group, set_version; /* empty: as the client sent it */
    struct field *set_headers;                       /* FIELD_STATIC */
    unsigned set_header_count;
    struct text *filter_names;          /* as written; the two below are found by them */
    const struct filter_type **filters; /* in order, with their compiled settings beside */
    void **filter_settings;
    unsigned filter_count;
    struct stats_entry *stats;
    struct text where; /* "FILE:LINE" of its section, for messages */
};

struct filter_value;

/* One [filter NAME] section. Routes point to its type and settings; kept for printing. */
struct filter_conf {
    struct text name;
    const struct filter_type *type;
    void *settings;
    const struct filter_value *values;
    unsigned value_count;
};

struct route_table; /* routes.c: the index over all matches */

struct snapshot {
    _Atomic uint32_t refs;
    unsigned generation; /* 1, 2, … */
    struct arena arena;
    struct proxy_conf proxy;
    struct listener_conf *listeners;
    unsigned listener_count;
    struct upstream_conf *upstreams;
    unsigned upstream_count;
    struct route *routes;
    unsigned route_count;
    struct filter_conf *filters;
    unsigned filter_count;
    struct route_table *table;
    uint64_t max_message, stream_window; /* copies from proxy, at hand on the call path */
    struct text printed; /* the effective configuration as INI, secrets hidden: for /config */
};

struct snapshot *snapshot_new(void); /* zeroed, one reference, arena ready; any thread */
struct snapshot *snapshot_ref(struct snapshot *snapshot);
void snapshot_unref(struct snapshot *snapshot); /* the last one frees it, from any thread */

#endif
