/*
 * One HTTP/2 connection to an endpoint: dial, serve streams, notice death.
 *
 * Happy path: open → connected → h2_client_open; calls may be sent at once (100 streams are assumed
 * until the peer's SETTINGS say more or less) → SETTINGS → … → GOAWAY or loss.
 *
 * Failure modes: dial refused or timed out, and a peer that closes before its SETTINGS:
 * endpoint_failed (backoff). A peer that is silent while calls wait for it gets a PING after
 * KEEPALIVE_S, and another KEEPALIVE_S to answer before the connection counts as lost: frozen
 * hosts, and networks that drop packets, are found that way.
 */
#include "upstream/client_conn.h"

#include <stdio.h>

#include "proxy/base/clock.h"
#include "proxy/base/log.h"
#include "proxy/net/h2.h"
#include "upstream/cluster.h"

enum {
    KEEPALIVE_S = 10,
    GOAWAY_SILENCE_S = 10,
    RST_BUDGET = 150,
    RST_WINDOW_S = 30,
    MAX_REPLY_HEADERS = 256 * 1024
};

struct client_conn {
    struct list node; /* endpoint->connections or retired */
    struct endpoint *endpoint;
    struct conn *conn;  /* while dialling */
    struct h2 *h2;      /* once connected */
    uint64_t pinged_ns; /* when the unanswered PING was sent; 0: none */
    bool retired, proved;
};

struct client_conn *
client_conn_of(struct list *node)
{
    return container_of(node, struct client_conn, node);
}

static struct ctx *
ctx_of(const struct client_conn *self)
{
    return &self->endpoint->cluster->worker->ctx;
}

/* Off the list of those that get streams. */
static void
retire(struct client_conn *self)
{
    if (self->retired)
        return;
    struct endpoint *endpoint = self->endpoint;
    self->retired = true;
    endpoint->connection_count--;
    if (!self->h2)
        endpoint->connecting--;
    list_unlink(&self->node);
    list_push_back(&endpoint->retired, &self->node);
}

static void
forget(struct client_conn *self)
{
    struct endpoint *endpoint = self->endpoint;
    retire(self);
    list_unlink(&self->node);
    stats_sub(&endpoint->cells->connections, 1);
    slab_free(&ctx_of(self)->slab, self);
    cluster_sweep_later(endpoint->cluster);
}

/* --- HTTP/2 --- */

static void
on_h2_stream_closed(struct h2 *h2, struct stream *stream)
{
    struct client_conn *self = h2->owner;
    (void)stream;
    stats_sub(&self->endpoint->cells->streams, 1);
    if (!self->retired)
        cluster_serve_later(self->endpoint->cluster);
}

static void
on_h2_settings(struct h2 *h2)
{
    struct client_conn *self = h2->owner;
    if (!self->proved)
        endpoint_proved(self->endpoint);
    self->proved = true;
    if (!self->retired)
        endpoint_serve(self->endpoint);
}

static void
on_h2_goaway(struct h2 *h2, uint32_t error)
{
    struct client_conn *self = h2->owner;
    if (error != NGHTTP2_NO_ERROR)
        log_warn("client_conn", "upstream %s: %s sent GOAWAY %s", self->endpoint->cluster->name,
                 self->endpoint->name, h2_error_name(error));
    retire(self);
    h2_drain(h2);
    cluster_serve_later(self->endpoint->cluster);
}

static void
on_h2_down(struct h2 *h2, int error, const char *text)
{
    struct client_conn *self = h2->owner;
    struct endpoint *endpoint = self->endpoint;
    bool unproved = !self->proved;
    retire(self);
    if (unproved) {
        char what[128];
        snprintf(what, sizeof(what), "%s", text ? text : uv_strerror(error));
        endpoint_failed(endpoint, what);
    } else {
        endpoint_show_state(endpoint);
        cluster_serve_later(endpoint->cluster);
    }
}

static void
on_h2_closed(struct h2 *h2)
{
    forget(h2->owner);
}

static void
on_h2_ping_ack(struct h2 *h2)
{
    struct client_conn *self = h2->owner;
    self->pinged_ns = 0;
}

static void
on_h2_stream(struct h2 *h2, struct stream *stream)
{
    (void)h2; /* servers do not open streams to us: push is off */
    (void)stream;
}

static const struct h2_events H2_EVENTS = {
    .on_stream = on_h2_stream,
    .on_stream_closed = on_h2_stream_closed,
    .on_settings = on_h2_settings,
    .on_goaway = on_h2_goaway,
    .on_down = on_h2_down,
    .on_closed = on_h2_closed,
    .on_ping_ack = on_h2_ping_ack,
};

/* --- dialling --- */

static void
speak_h2(struct client_conn *self)
{
    struct cluster *cluster = self->endpoint->cluster;
    struct conn *conn = self->conn;
    struct h2_options options = {
        .stream_window = (uint32_t)cluster->worker->snapshot->stream_window,
        .max_header_list = MAX_REPLY_HEADERS,
        /* dubbo-java closes a connection that resets more than 200 streams in 30 s. */
        .rst_budget = RST_BUDGET,
        .rst_window_ns = RST_WINDOW_S * NS_PER_S,
    };
    self->conn = NULL;
    self->endpoint->connecting--;
    self->h2 = h2_client_open(conn, &options, &H2_EVENTS, self);
    endpoint_connected(self->endpoint);
}

static void
on_conn_open(struct conn *conn, int error)
{
    struct client_conn *self = conn->owner;
    if (error == 0) {
        speak_h2(self);
        return;
    }
    struct endpoint *endpoint = self->endpoint;
    retire(self);
    conn_close(conn);
    endpoint_failed(endpoint, uv_strerror(error));
}

static void
on_conn_lost(struct conn *conn, int error)
{
    on_conn_open(conn, error);
}

static void
on_conn_closed(struct conn *conn)
{
    forget(conn->owner);
}

static const struct conn_events DIAL_EVENTS = {
    .on_open = on_conn_open,
    .on_lost = on_conn_lost,
    .on_closed = on_conn_closed,
};

bool
client_conn_open(struct endpoint *endpoint)
{
    const struct upstream_conf *conf = endpoint->cluster->conf;
    struct ctx *ctx = &endpoint->cluster->worker->ctx;
    struct client_conn *self = slab_zalloc(&ctx->slab, sizeof(*self));
    self->endpoint = endpoint;
    int error = conn_connect(ctx, &endpoint->address, conf->connect_timeout_ns, conf->tls,
                             conf->tls_server_name.len ? conf->tls_server_name.ptr : NULL,
                             &DIAL_EVENTS, self, &self->conn);
    if (error) {
        slab_free(&ctx->slab, self);
        endpoint_failed(endpoint, uv_strerror(error));
        return false;
    }
    self->conn->reads = &endpoint->cells->reads;
    self->conn->writes = &endpoint->cells->writes;
    stats_add(&endpoint->cells->connections, 1);
    stats_add(&endpoint->cells->opened, 1);
    endpoint->connection_count++;
    endpoint->connecting++;
    list_push_back(&endpoint->connections, &self->node);
    return true;
}

/* --- streams --- */

uint32_t
client_conn_capacity(const struct client_conn *self)
{
    return self->h2 && !self->retired ? h2_capacity(self->h2) : 0;
}

struct stream *
client_conn_request(struct client_conn *self, const struct fields *fields,
                    const struct stream_events *events, void *owner, struct fields *reply_fields,
                    struct fields *reply_trailers)
{
    struct stream *stream =
        h2_request(self->h2, fields, false, events, owner, reply_fields, reply_trailers);
    if (stream)
        stats_add(&self->endpoint->cells->streams, 1);
    return stream;
}

void
client_conn_drain(struct client_conn *self)
{
    retire(self);
    if (self->h2)
        h2_drain(self->h2);
    else
        conn_close(self->conn);
}

void
client_conn_close(struct client_conn *self)
{
    retire(self);
    if (self->h2)
        h2_shutdown(self->h2, NGHTTP2_NO_ERROR);
    else
        conn_close(self->conn);
}

void
client_conn_check(struct client_conn *self, uint64_t now_ns)
{
    if (!self->h2 || self->h2->down || self->h2->open_streams == 0) {
        self->pinged_ns = 0;
        return;
    }
    uint64_t silent_ns = now_ns > self->h2->last_read_ns ? now_ns - self->h2->last_read_ns : 0;
    bool stuck = self->h2->goaway_seen && silent_ns > GOAWAY_SILENCE_S * NS_PER_S;
    bool dead = self->pinged_ns != 0 && now_ns - self->pinged_ns > KEEPALIVE_S * NS_PER_S;
    if (stuck || dead) {
        log_warn("client_conn", "upstream %s: %s is silent, closing its connection",
                 self->endpoint->cluster->name, self->endpoint->name);
        client_conn_close(self);
    } else if (silent_ns > KEEPALIVE_S * NS_PER_S && self->pinged_ns == 0) {
        self->pinged_ns = now_ns;
        h2_ping(self->h2);
    }
}
