/*
 * An HTTP/2 connection's life: opening, the events of its socket, draining, ending.
 *
 * Happy path: h2_*_open -> reads feed nghttp2 (h2_session.c) -> at the end of each turn fill()
 * takes what it has to send (h2_send.c) -> the peer, nghttp2 or the owner ends it -> h2_end() -> at
 * the end of that turn down(): streams reset, on_down, the socket closed after what is queued ->
 * on_closed, freed. Failure modes: a lost socket goes to down() at once. Whatever ends a connection
 * inside an nghttp2 callback only notes the reason (h2_end); nothing is torn down before the
 * callbacks have returned.
 */
#include "proxy/net/h2_private.h"

#include <stdlib.h>

#include "proxy/base/check.h"
#include "proxy/base/clock.h"

#define DRAIN_PING_NS NS_PER_S /* the second GOAWAY does not wait longer for the PING's ACK */

struct h2_block { /* one allocation */
    struct h2 h2;
    struct h2_private private;
};

static const uint8_t drain_ping[8] = "drain-01";
static const uint8_t owner_ping[8] = "owner-01";

static void
stop_timers(struct h2 *h2)
{
    timers_stop(&h2->ctx->timers, &h2->private->handshake);
    timers_stop(&h2->ctx->timers, &h2->private->drain);
}

static void
free_h2(struct h2 *h2)
{
    struct h2_private *private = h2->private;
    stop_timers(h2);
    list_unlink(&private->ending.node);
    list_unlink(&private->first.node);
    nghttp2_session_del(h2->session);
    mem_free(private->first_bytes);
    mem_free(container_of(h2, struct h2_block, h2));
}

/* Streams are reset, the owner is told; lost: the socket is of no use, else what is queued still
 * leaves. */
static void
down(struct h2 *h2, bool lost, int error, const char *text)
{
    if (h2->down)
        return;
    h2->down = true;
    stop_timers(h2);
    list_unlink(&h2->private->ending.node);
    if (!lost)
        h2_send_last(h2, h2->private->end_code);
    h2_stream_lose_all(h2, lost);
    if (h2->events->on_down)
        h2->events->on_down(h2, error, text);
    if (lost)
        conn_close(h2->conn);
    else if (h2->server)
        conn_close_after_flush(h2->conn);
    else /* a client owes its server nothing but the goodbye */
        conn_close_when_written(h2->conn);
}

static void
on_ending(struct deferred *deferred)
{
    struct h2_private *private = container_of(deferred, struct h2_private, ending);
    struct h2 *h2 = &container_of(private, struct h2_block, private)->h2;
    down(h2, false, private->end_error, private->end_text);
}

void
h2_end(struct h2 *h2, int error, const char *text)
{
    struct h2_private *private = h2->private;
    if (private->end_text || h2->down)
        return;
    private->end_error = error;
    private->end_text = text;
    ctx_defer(h2->ctx, &private->ending);
}

void
h2_terminate(struct h2 *h2, uint32_t h2_error, int error, const char *text)
{
    if (h2->private->end_text || h2->down)
        return;
    nghttp2_session_terminate_session(h2->session, h2_error);
    h2_end(h2, error, text);
}

void
h2_check_end(struct h2 *h2)
{
    if (h2->down || nghttp2_session_want_read(h2->session) ||
        nghttp2_session_want_write(h2->session))
        return;
    if (h2->draining)
        h2_end(h2, 0, "drained");
    else if (h2->goaway_sent)
        h2_end(h2, UV_EPROTO, h2_error_name(h2->private->goaway_code));
    else
        h2_end(h2, UV_EOF, "GOAWAY");
}

void
h2_wake(struct h2 *h2)
{
    if (!h2->down && nghttp2_session_want_write(h2->session))
        conn_dirty(h2->conn);
}

static void
feed_first(struct h2 *h2)
{
    struct h2_private *private = h2->private;
    uint8_t *bytes = private->first_bytes;
    if (!bytes)
        return;
    private->first_bytes = NULL;
    h2_session_feed(h2, bytes, private->first_len);
    mem_free(bytes);
}

static void
on_first(struct deferred *deferred)
{
    struct h2_private *private = container_of(deferred, struct h2_private, first);
    struct h2 *h2 = &container_of(private, struct h2_block, private)->h2;
    if (!h2->down)
        feed_first(h2);
}

static void
conn_read(struct conn *conn, const uint8_t *data, size_t len)
{
    struct h2 *h2 = conn->owner;
    h2->last_read_ns = h2->ctx->turn_ns;
    if (h2->down)
        return;
    feed_first(h2);
    if (!h2->private->end_text)
        h2_session_feed(h2, data, len);
}

static void
conn_lost(struct conn *conn, int error)
{
    down(conn->owner, true, error, error == UV_EOF ? "closed by the peer" : "connection lost");
}

static void
conn_fill(struct conn *conn)
{
    h2_send_fill(conn->owner);
}

static void
conn_closed(struct conn *conn)
{
    struct h2 *h2 = conn->owner;
    down(h2, true, UV_ECANCELED, "closed"); /* if somebody closed the socket without asking us */
    h2_stream_abandon_all(h2);
    if (h2->events->on_closed)
        h2->events->on_closed(h2);
    free_h2(h2);
}

static const struct conn_events h2_conn_events = {
    .on_read = conn_read,
    .on_lost = conn_lost,
    .fill = conn_fill,
    .on_closed = conn_closed,
};

static void
on_handshake_due(struct timer *timer)
{
    struct h2_private *private = container_of(timer, struct h2_private, handshake);
    h2_terminate(&container_of(private, struct h2_block, private)->h2, NGHTTP2_SETTINGS_TIMEOUT,
                 UV_ETIMEDOUT, "no HTTP/2 preface in time");
}

/* RFC 9113 section 6.8: the first GOAWAY has had a round trip; what came in the meantime is served.
 */
static void
drain_finish(struct h2 *h2)
{
    timers_stop(&h2->ctx->timers, &h2->private->drain);
    h2->private->drain_pinging = false;
    nghttp2_submit_goaway(h2->session, NGHTTP2_FLAG_NONE,
                          nghttp2_session_get_last_proc_stream_id(h2->session), NGHTTP2_NO_ERROR,
                          NULL, 0);
    h2_wake(h2);
}

static void
on_drain_due(struct timer *timer)
{
    struct h2_private *private = container_of(timer, struct h2_private, drain);
    drain_finish(&container_of(private, struct h2_block, private)->h2);
}

void
h2_ponged(struct h2 *h2, const uint8_t *opaque)
{
    struct h2_private *private = h2->private;
    if (private->drain_pinging && memcmp(opaque, drain_ping, sizeof drain_ping) == 0) {
        drain_finish(h2);
    } else if (private->pinging && memcmp(opaque, owner_ping, sizeof owner_ping) == 0) {
        private->pinging = false;
        if (h2->events->on_ping_ack)
            h2->events->on_ping_ack(h2);
    }
}

static struct h2 *
open_h2(struct conn *conn, bool server, const struct h2_options *options,
        const struct h2_events *events, void *owner)
{
    struct h2_block *block = mem_new(struct h2_block);
    struct h2 *h2 = &block->h2;
    struct h2_private *private = &block->private;
    *h2 = (struct h2){
        .ctx = conn->ctx,
        .conn = conn,
        .server = server,
        .events = events,
        .owner = owner,
        .options = *options,
        .peer_max_streams = H2_DEFAULT_MAX_STREAMS,
        .last_read_ns = conn->ctx->turn_ns,
        .private = private,
    };
    list_init(&h2->streams);
    list_init(&private->pending);
    list_init(&private->ending.node);
    list_init(&private->first.node);
    private->ending.run = on_ending;
    private->first.run = on_first;
    private->handshake.on_due = on_handshake_due;
    private->drain.on_due = on_drain_due;
    h2_session_new(h2);
    conn_set_events(conn, &h2_conn_events, h2);
    if (options->handshake_timeout_ns)
        timers_start(&h2->ctx->timers, &private->handshake,
                     clock_now_ns() + options->handshake_timeout_ns);
    conn_start_read(conn);
    conn_dirty(conn);
    return h2;
}

struct h2 *
h2_server_open(struct conn *conn, const struct h2_options *options, const struct h2_events *events,
               void *owner, const uint8_t *first, size_t first_len)
{
    struct h2 *h2 = open_h2(conn, true, options, events, owner);
    h2->private->closed.skip = NGHTTP2_CLIENT_MAGIC_LEN;
    if (first_len > 0) { /* not now: the owner does not know us yet */
        h2->private->first_bytes = mem_alloc(first_len);
        h2->private->first_len = first_len;
        memcpy(h2->private->first_bytes, first, first_len);
        ctx_defer(h2->ctx, &h2->private->first);
    }
    return h2;
}

struct h2 *
h2_client_open(struct conn *conn, const struct h2_options *options, const struct h2_events *events,
               void *owner)
{
    return open_h2(conn, false, options, events, owner);
}

uint32_t
h2_capacity(const struct h2 *h2)
{
    if (h2->server || h2->down || h2->private->end_text || h2->draining || h2->goaway_seen ||
        h2->goaway_sent)
        return 0;
    if (h2->open_streams >= h2->peer_max_streams)
        return 0;
    uint32_t next_id = nghttp2_session_get_next_stream_id(h2->session);
    uint32_t ids_left = next_id > INT32_MAX ? 0 : (INT32_MAX - next_id) / 2 + 1;
    uint32_t room = h2->peer_max_streams - h2->open_streams;
    return room < ids_left ? room : ids_left;
}

void
h2_drain(struct h2 *h2)
{
    struct h2_private *private = h2->private;
    if (h2->down || h2->draining || private->end_text)
        return;
    h2->draining = true;
    if (!h2->server) {
        if (h2->open_streams == 0)
            h2_end(h2, 0, "drained");
        return;
    }
    private->drain_pinging = true;
    nghttp2_submit_shutdown_notice(h2->session);
    nghttp2_submit_ping(h2->session, NGHTTP2_FLAG_NONE, drain_ping);
    timers_start(&h2->ctx->timers, &private->drain, clock_now_ns() + DRAIN_PING_NS);
    h2_wake(h2);
}

void
h2_shutdown(struct h2 *h2, uint32_t h2_error)
{
    if (!h2->down && !h2->private->end_text)
        h2->private->end_code =
            h2_error; /* not h2_terminate: what calls have just said still goes */
    h2_end(h2, 0, "shut down");
}

void
h2_ping(struct h2 *h2)
{
    if (h2->down || h2->private->pinging)
        return;
    h2->private->pinging = true;
    nghttp2_submit_ping(h2->session, NGHTTP2_FLAG_NONE, owner_ping);
    h2_wake(h2);
}
