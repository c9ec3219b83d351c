/*
 * One accepted connection. Owns the decision between HTTP/2 and HTTP/1.1, which the first bytes
 * make, and the connection's age.
 *
 * Happy path: accept → on_read (sniff: the HTTP/2 preface, or an HTTP/1.1 request line) → h2 or h1
 * takes over → streams.
 *
 * Failure modes: a peer that sends nothing or stops inside the preface is closed by a timeout; one
 * that speaks neither protocol gets a short HTTP/1.1 400 when its bytes look like text, else just
 * the end.
 */
#include "downstream/server_conn.h"

#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>

#include "downstream/listening.h"
#include "proxy/base/clock.h"
#include "proxy/base/strbuf.h"
#include "proxy/net/h1.h"
#include "proxy/net/h2.h"

static const struct text PREFACE = {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 24};
static const char REFUSAL[] =
    "HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\ncontent-length: 42\r\n"
    "connection: close\r\n\r\nthis port speaks HTTP/2 and HTTP/1.1 only\n";

enum { HANDSHAKE_S = 10, SNIFF_BYTES = 4 };

struct server_conn {
    struct list node; /* listener->connections */
    struct listener *listener;
    struct snapshot *snapshot; /* a reference: keeps the listener's settings and name */
    const struct listener_conf *conf;
    struct conn *conn; /* while sniffing; then h2 or h1 owns it */
    struct h2 *h2;
    struct h1 *h1;
    struct server_peer peer;
    struct timer handshake, age;
    struct strbuf seen; /* fewer than SNIFF_BYTES, when a peer sends its first bytes one by one */
    char address[128];
};

struct server_conn *
server_conn_of(struct list *node)
{
    return container_of(node, struct server_conn, node);
}

static struct timers *
timers_of(struct server_conn *self)
{
    return &self->listener->worker->ctx.timers;
}

static void
forget(struct server_conn *self)
{
    struct listener *listener = self->listener;
    timers_stop(timers_of(self), &self->handshake);
    timers_stop(timers_of(self), &self->age);
    list_unlink(&self->node);
    strbuf_fini(&self->seen);
    snapshot_unref(self->snapshot);
    slab_free(&listener->worker->ctx.slab, self);
    listener->on_connection_closed(listener);
}

/* --- HTTP/2 --- */

static void
on_h2_stream(struct h2 *h2, struct stream *stream)
{
    struct server_conn *self = h2->owner;
    stats_add(&self->listener->cells->streams, 1);
    server_stream_open(stream, &self->peer);
}

static void
on_h2_stream_closed(struct h2 *h2, struct stream *stream)
{
    struct server_conn *self = h2->owner;
    (void)stream;
    stats_sub(&self->listener->cells->streams, 1);
}

static void
on_h2_settings(struct h2 *h2)
{
    (void)h2;
}

static void
on_h2_goaway(struct h2 *h2, uint32_t error)
{
    (void)h2; /* a client's GOAWAY concerns streams that a server would push */
    (void)error;
}

static void
on_h2_down(struct h2 *h2, int error, const char *text)
{
    (void)h2;
    (void)error;
    (void)text;
}

static void
on_h2_closed(struct h2 *h2)
{
    forget(h2->owner);
}

static void
on_h2_ping_ack(struct h2 *h2)
{
    (void)h2;
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

static void
speak_h2(struct server_conn *self, const uint8_t *first, size_t len)
{
    const struct listener_conf *conf = self->conf;
    struct h2_options options = {
        .stream_window = (uint32_t)self->snapshot->stream_window,
        .max_streams = conf->max_streams,
        .max_header_list = conf->max_header_list,
        .reset_limit = conf->reset_limit,
        .reset_window_ns = conf->reset_window_ns,
        .handshake_timeout_ns = HANDSHAKE_S * NS_PER_S,
    };
    struct conn *conn = self->conn;
    self->conn = NULL;
    self->h2 = h2_server_open(conn, &options, &H2_EVENTS, self, first, len);
}

/* --- HTTP/1.1 --- */

static void
on_h1_stream(struct h1 *h1, struct stream *stream)
{
    struct server_conn *self = h1_owner(h1);
    stats_add(&self->listener->cells->streams, 1);
    server_stream_open(stream, &self->peer);
}

static void
on_h1_stream_closed(struct h1 *h1, struct stream *stream)
{
    (void)stream;
    struct server_conn *self = h1_owner(h1);
    stats_sub(&self->listener->cells->streams, 1);
}

static void
on_h1_idle(struct h1 *h1)
{
    (void)h1;
}

static void
on_h1_down(struct h1 *h1, int error, const char *text)
{
    (void)h1;
    (void)error;
    (void)text;
}

static void
on_h1_closed(struct h1 *h1)
{
    forget(h1_owner(h1));
}

static const struct h1_events H1_EVENTS = {
    .on_stream = on_h1_stream,
    .on_stream_closed = on_h1_stream_closed,
    .on_idle = on_h1_idle,
    .on_down = on_h1_down,
    .on_closed = on_h1_closed,
};

static void
speak_h1(struct server_conn *self, const uint8_t *first, size_t len)
{
    struct h1_options options = {
        .max_head = self->conf->max_header_list,
        .head_timeout_ns = HANDSHAKE_S * NS_PER_S,
    };
    struct conn *conn = self->conn;
    self->conn = NULL;
    self->h1 = h1_server_open(conn, &options, &H1_EVENTS, self, first, len);
}

/* --- sniffing --- */

static void on_conn_read(struct conn *conn, const uint8_t *data, size_t len);

static void
on_conn_lost(struct conn *conn, int error)
{
    (void)error;
    conn_close(conn);
}

static void
on_conn_closed(struct conn *conn)
{
    forget(conn->owner);
}

static void
on_conn_fill(struct conn *conn)
{
    (void)conn;
}

static void
on_conn_written(struct conn *conn)
{
    (void)conn;
}

static const struct conn_events SNIFF_EVENTS = {
    .on_read = on_conn_read,
    .on_lost = on_conn_lost,
    .fill = on_conn_fill,
    .on_written = on_conn_written,
    .on_closed = on_conn_closed,
};

/* An HTTP/1.1 request line begins with a method: capital letters, then a blank. */
static bool
looks_like_http1(const uint8_t *bytes, size_t len)
{
    size_t i = 0;
    while (i < len && bytes[i] >= 'A' && bytes[i] <= 'Z')
        i++;
    return i > 0 && (i == len || bytes[i] == ' ');
}

/* A whole first line without a slash names neither a version of HTTP nor a path: there is nobody
 * who would understand an answer (h2spec 3.5/2). */
static bool
speaks_no_http(const uint8_t *bytes, size_t len)
{
    const uint8_t *end = memchr(bytes, '\n', len);
    return end && !memchr(bytes, '/', (size_t)(end - bytes));
}

/* Text of some kind gets words, TLS and binary protocols get none. */
static void
refuse(struct server_conn *self, const uint8_t *bytes, size_t len)
{
    if (bytes[0] >= 0x20 && bytes[0] < 0x7f && !speaks_no_http(bytes, len))
        conn_queue(self->conn, REFUSAL, sizeof(REFUSAL) - 1);
    conn_close_after_flush(self->conn);
}

/* Four bytes tell the protocols apart: "PRI " is no method of HTTP/1.1. Whoever takes over gets all
 * that was read. */
static void
decide(struct server_conn *self, const uint8_t *bytes, size_t len)
{
    timers_stop(timers_of(self), &self->handshake);
    if (memcmp(bytes, PREFACE.ptr, SNIFF_BYTES) == 0)
        speak_h2(self, bytes, len);
    else if (looks_like_http1(bytes, len) && !speaks_no_http(bytes, len))
        speak_h1(self, bytes, len);
    else
        refuse(self, bytes, len);
    if (self->listener->closing)
        server_conn_drain(self);
}

static void
on_conn_read(struct conn *conn, const uint8_t *data, size_t len)
{
    struct server_conn *self = conn->owner;
    if (self->seen.len == 0 && len >= SNIFF_BYTES) {
        decide(self, data, len);
        return;
    }
    strbuf_add(&self->seen, data, len);
    if (self->seen.len < SNIFF_BYTES)
        return;
    struct strbuf seen = self->seen;
    self->seen = STRBUF_INIT;
    decide(self, (const uint8_t *)seen.data, seen.len);
    strbuf_fini(&seen);
}

static void
on_handshake_timeout(struct timer *timer)
{
    struct server_conn *self = container_of(timer, struct server_conn, handshake);
    if (self->conn)
        conn_close(self->conn);
}

/* --- life --- */

static void
on_age(struct timer *timer)
{
    server_conn_drain(container_of(timer, struct server_conn, age));
}

static void
start_timers(struct server_conn *self)
{
    struct worker *worker = self->listener->worker;
    uint64_t now = worker->ctx.turn_ns, age = self->conf->max_connection_age_ns;
    self->handshake.on_due = on_handshake_timeout;
    self->age.on_due = on_age;
    timers_start(timers_of(self), &self->handshake, now + HANDSHAKE_S * NS_PER_S);
    if (age == 0)
        return;
    /* A tenth of jitter, so that connections of one deploy do not all leave at once. */
    age += rng_below(&worker->ctx.rng, (uint32_t)(age / NS_PER_MS / 10) + 1) * NS_PER_MS;
    timers_start(timers_of(self), &self->age, now + age);
}

static struct server_conn *
new_conn(struct listener *listener)
{
    struct server_conn *self = slab_zalloc(&listener->worker->ctx.slab, sizeof(*self));
    self->listener = listener;
    self->conf = listener->conf;
    list_init(&self->node);
    return self;
}

/* Self's connection is open, or `error` says why not. */
static int
begin(struct server_conn *self, int error)
{
    struct listener *listener = self->listener;
    struct worker *worker = listener->worker;
    if (error) {
        slab_free(&worker->ctx.slab, self);
        return error;
    }
    self->snapshot = snapshot_ref(listener->snapshot);
    snprintf(self->address, sizeof(self->address), "%s", self->conn->peer);
    self->peer = (struct server_peer){worker, self->conf->name, self->address};
    self->conn->reads = &listener->cells->reads;
    self->conn->writes = &listener->cells->writes;
    list_push_back(&listener->connections, &self->node);
    start_timers(self);
    conn_start_read(self->conn);
    return 0;
}

int
server_conn_accept(struct listener *listener, uv_stream_t *server)
{
    struct server_conn *self = new_conn(listener);
    return begin(self, conn_accept(&listener->worker->ctx, server, self->conf->tls, &SNIFF_EVENTS,
                                   self, &self->conn));
}

int
server_conn_accept_queued(struct listener *listener, int fd, bool is_unix)
{
    int accepted = accept4(fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (accepted < 0)
        return -errno;
    struct server_conn *self = new_conn(listener);
    return begin(self, conn_adopt(&listener->worker->ctx, accepted, is_unix, self->conf->tls,
                                  &SNIFF_EVENTS, self, &self->conn));
}

void
server_conn_drain(struct server_conn *self)
{
    if (self->h2)
        h2_drain(self->h2);
    else if (self->h1)
        h1_drain(self->h1);
    else if (self->conn) /* has asked for nothing yet: a client that has just connected gets a
                            moment */
        timers_start(timers_of(self), &self->handshake,
                     self->listener->worker->ctx.turn_ns + NS_PER_S);
}

void
server_conn_close(struct server_conn *self)
{
    if (self->h2)
        h2_shutdown(self->h2, NGHTTP2_NO_ERROR);
    else if (self->h1)
        h1_shutdown(self->h1);
    else if (self->conn)
        conn_close(self->conn);
}
