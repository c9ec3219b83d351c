/*
 * A connection's life: accept or connect, reading, losing, closing. Writing is in conn_write.c.
 *
 * Happy path: conn_accept / conn_connect -> on_open (client) -> conn_start_read -> on_read … ->
 * on_lost or conn_close -> uv_close callback -> on_closed -> freed. Failure modes: connecting fails
 * or takes too long: on_open with the error; a socket error or EOF: on_lost, once. In both cases
 * the owner closes.
 */
#include "proxy/net/conn.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <unistd.h>

#include "proxy/base/check.h"
#include "proxy/base/clock.h"
#include "proxy/net/tls.h"

#define LINGER_NS NS_PER_S              /* for the peer's FIN after ours */
#define FINISH_STALL_NS (10 * NS_PER_S) /* for a peer that does not read what is left to send */

enum { CLEAR_BYTES = 16 * 1024 }; /* a TLS record's most */

void
conn_count(_Atomic uint64_t *cell)
{
    if (cell) /* one writer */
        atomic_store_explicit(cell, atomic_load_explicit(cell, memory_order_relaxed) + 1,
                              memory_order_relaxed);
}

static void
on_uv_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer)
{
    struct conn *conn = handle->data;
    size_t bytes;
    uint8_t *room = chunk_input(&conn->ctx->chunks, &bytes);
    (void)suggested;
    *buffer = uv_buf_init((char *)room, (unsigned)bytes);
}

static void
opened(struct conn *conn)
{
    timers_stop(&conn->ctx->timers, &conn->timer);
    conn->open = true;
    if (conn->events->on_open)
        conn->events->on_open(conn, 0);
    if (!conn->closing && conn->out.slices.bytes > 0)
        conn_dirty(conn);
}

static void
open_failed(struct conn *conn, int error)
{
    if (conn->lost || conn->closing)
        return;
    conn->lost = true;
    timers_stop(&conn->ctx->timers, &conn->timer);
    conn_stop_read(conn);
    conn->events->on_open(conn, error);
}

void
conn_lose(struct conn *conn, int error)
{
    if (conn->lost || conn->closing)
        return;
    if (conn->finishing) {
        conn_close(conn);
        return;
    }
    conn->lost = true;
    timers_stop(&conn->ctx->timers, &conn->timer);
    conn_stop_read(conn);
    conn_drop_output(conn);
    conn->events->on_lost(conn, error);
}

/* A client's handshake is over when its on_open has been called; a server's shows in its first
 * clear byte. */
static void
read_failed(struct conn *conn, int error)
{
    if (conn->finishing && error == UV_EOF) {
        conn->eof = true;
        uv_read_stop(&conn->stream);
        conn->reading = false;
        conn_finish_step(conn);
    } else if (!conn->open) {
        open_failed(conn, error == UV_EOF ? UV_ECONNRESET : error);
    } else {
        conn_lose(conn, conn->write_error ? conn->write_error : error);
    }
}

static void
deliver(struct conn *conn, const uint8_t *data, size_t len)
{
    if (!conn->finishing) /* else nobody wants it any more */
        conn->events->on_read(conn, data, len);
}

static void
read_tls(struct conn *conn, const uint8_t *data, size_t len)
{
    uint8_t clear[CLEAR_BYTES];
    ssize_t got;
    if (len > 0)
        tls_feed(conn->tls, data, len);
    do {
        got = tls_read(conn->tls, clear, sizeof clear);
        if (!conn->open && tls_ready(conn->tls))
            opened(conn);
        if (got > 0 && !conn->closing && !conn->lost)
            deliver(conn, clear, (size_t)got);
    } while (got > 0 && !conn->closing && !conn->lost);
    if (conn->closing || conn->lost)
        return;
    conn_write_now(conn); /* handshake records, alerts, key updates */
    if (got < 0)
        read_failed(conn, (int)got);
}

/* Too much in this turn to wait for its end. */
static bool
much_read(struct ctx *ctx, size_t bytes)
{
    ctx->unflushed += bytes;
    return ctx->unflushed >= CTX_FLUSH_BYTES || ctx->unflushed_heads >= CTX_FLUSH_HEADS;
}

static void
on_uv_read(uv_stream_t *stream, ssize_t got, const uv_buf_t *buffer)
{
    struct conn *conn = stream->data;
    struct ctx *ctx = conn->ctx;
    if (got == 0)
        return; /* EAGAIN */
    ctx_touch(ctx);
    conn_count(conn->reads);
    if (got < 0)
        read_failed(conn, (int)got);
    else if (conn->tls)
        read_tls(conn, (const uint8_t *)buffer->base, (size_t)got);
    else
        deliver(conn, (const uint8_t *)buffer->base, (size_t)got);
    if (got > 0)
        chunk_input_done(&ctx->chunks, (size_t)got);
    /* !merge_writes: for measuring, each event's output leaves by itself */
    if (!ctx->merge_writes || (got > 0 && much_read(ctx, (size_t)got)))
        conn_write_dirty(ctx);
}

static void
start_uv_read(struct conn *conn)
{
    if (conn->reading || conn->lost || conn->closing || conn->eof)
        return;
    conn->reading = true;
    check(uv_read_start(&conn->stream, on_uv_alloc, on_uv_read) == 0);
}

void
conn_start_read(struct conn *conn)
{
    if (conn->open || conn->tls)
        start_uv_read(conn);
}

void
conn_stop_read(struct conn *conn)
{
    if (!conn->reading)
        return;
    conn->reading = false;
    uv_read_stop(&conn->stream);
}

static void
on_timer(struct timer *timer)
{
    struct conn *conn = container_of(timer, struct conn, timer);
    if (conn->finishing)
        conn_close(conn);
    else if (!conn->open)
        open_failed(conn, UV_ETIMEDOUT);
    else
        conn_lose(conn, conn->write_error ? conn->write_error : UV_ETIMEDOUT);
}

static int
conn_new(struct ctx *ctx, bool pipe, const struct conn_events *events, void *owner,
         struct conn **out)
{
    struct conn *conn = slab_zalloc(&ctx->slab, sizeof *conn);
    conn->ctx = ctx;
    conn->events = events;
    conn->owner = owner;
    conn->timer.on_due = on_timer;
    list_init(&conn->dirty_node);
    list_init(&conn->marks);
    outbuf_init(&conn->out, &ctx->slab);
    int error = pipe ? uv_pipe_init(ctx->loop, &conn->pipe, 0) : uv_tcp_init(ctx->loop, &conn->tcp);
    if (error) {
        slab_free(&ctx->slab, conn);
        return error;
    }
    conn->handle.data = conn;
    *out = conn;
    return 0;
}

static void
conn_free(struct conn *conn)
{
    outbuf_clear(&conn->out);
    tls_session_free(conn->tls);
    slab_free(&conn->ctx->slab, conn);
}

static void
on_uv_discarded(uv_handle_t *handle)
{
    conn_free(handle->data);
}

/* Its owner has never seen it: no on_closed. */
static void
conn_discard(struct conn *conn)
{
    conn->closing = true;
    timers_stop(&conn->ctx->timers, &conn->timer);
    uv_close(&conn->handle, on_uv_discarded);
}

/*
 * A path without a network has no congestion to control: a sidecar's provider, and clients in the
 * same pod. Where the host's default is BBR it paces each burst by a timer, which costs a third of
 * the CPU of a 1 MiB call. Reno is in every kernel and allowed to everybody.
 */
static void
spare_loopback(struct conn *conn, const struct sockaddr_storage *peer)
{
    static const char reno[] = "reno";
    struct address address = {.storage = *peer};
    uv_os_fd_t fd;
    if (address_is_loopback(&address) && uv_fileno(&conn->handle, &fd) == 0)
        setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, reno, sizeof reno - 1);
}

static void
set_peer(struct conn *conn)
{
    struct sockaddr_storage name = {.ss_family = AF_UNSPEC};
    int bytes = sizeof name;
    if (conn->handle.type == UV_NAMED_PIPE)
        name.ss_family = AF_UNIX;
    else if (uv_tcp_getpeername(&conn->tcp, (struct sockaddr *)&name, &bytes) == 0) {
        uv_tcp_nodelay(&conn->tcp, 1);
        spare_loopback(conn, &name);
    }
    if (!conn->peer[0])
        address_format((struct sockaddr *)&name, conn->peer, sizeof conn->peer);
}

static void
start_server(struct conn *conn, struct tls_context *tls)
{
    set_peer(conn);
    if (tls)
        conn->tls = tls_session_new(tls, NULL, &conn->ctx->slab);
    conn->open = true;
}

int
conn_accept(struct ctx *ctx, uv_stream_t *server, struct tls_context *tls,
            const struct conn_events *events, void *owner, struct conn **out)
{
    struct conn *conn;
    int error = conn_new(ctx, server->type == UV_NAMED_PIPE, events, owner, &conn);
    if (error)
        return error;
    error = uv_accept(server, &conn->stream);
    if (error) {
        conn_discard(conn);
        return error;
    }
    start_server(conn, tls);
    *out = conn;
    return 0;
}

int
conn_adopt(struct ctx *ctx, int fd, bool is_unix, struct tls_context *tls,
           const struct conn_events *events, void *owner, struct conn **out)
{
    struct conn *conn;
    int error = conn_new(ctx, is_unix, events, owner, &conn);
    if (error) {
        close(fd);
        return error;
    }
    error = is_unix ? uv_pipe_open(&conn->pipe, fd) : uv_tcp_open(&conn->tcp, fd);
    if (error) {
        close(fd);
        conn_discard(conn);
        return error;
    }
    start_server(conn, tls);
    *out = conn;
    return 0;
}

static void
on_uv_connected(uv_connect_t *request, int status)
{
    struct conn *conn = request->data;
    if (conn->closing || conn->lost)
        return;
    ctx_touch(conn->ctx);
    if (status < 0) {
        open_failed(conn, status);
        return;
    }
    set_peer(conn);
    if (!conn->tls) {
        opened(conn);
        return;
    }
    start_uv_read(conn);
    read_tls(conn, NULL, 0); /* the client speaks first */
}

/* Without a name the certificate has to be for the IP address: never for just anybody. (A unix
 * socket has neither.) */
static void
client_session(struct conn *conn, struct tls_context *tls, const char *server_name)
{
    char ip[sizeof conn->peer];
    if (!server_name && conn->handle.type == UV_TCP) {
        snprintf(ip, sizeof ip, "%s", conn->peer[0] == '[' ? conn->peer + 1 : conn->peer);
        *strrchr(ip, ':') = 0;
        if (ip[strlen(ip) - 1] == ']')
            ip[strlen(ip) - 1] = 0;
        server_name = ip;
    }
    conn->tls = tls_session_new(tls, server_name, &conn->ctx->slab);
}

int
conn_connect(struct ctx *ctx, const struct address *address, uint64_t timeout_ns,
             struct tls_context *tls, const char *server_name, const struct conn_events *events,
             void *owner, struct conn **out)
{
    struct conn *conn;
    const struct sockaddr *sockaddr = (const struct sockaddr *)&address->storage;
    bool is_unix = sockaddr->sa_family == AF_UNIX;
    int error = conn_new(ctx, is_unix, events, owner, &conn);
    if (error)
        return error;
    conn->connect.data = conn;
    address_format(sockaddr, conn->peer, sizeof conn->peer);
    if (is_unix)
        uv_pipe_connect(&conn->connect, &conn->pipe, conn->peer + 5,
                        on_uv_connected); /* behind "unix:" */
    else
        error = uv_tcp_connect(&conn->connect, &conn->tcp, sockaddr, on_uv_connected);
    if (error) {
        conn_discard(conn);
        return error;
    }
    if (tls)
        client_session(conn, tls, server_name);
    if (timeout_ns)
        timers_start(&ctx->timers, &conn->timer, clock_now_ns() + timeout_ns);
    *out = conn;
    return 0;
}

void
conn_limit_unacked(struct conn *conn, unsigned timeout_ms)
{
    uv_os_fd_t fd;
    if (conn->handle.type == UV_TCP && uv_fileno(&conn->handle, &fd) == 0)
        setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof timeout_ms);
}

void
conn_offer(struct conn *conn, const char *protocol)
{
    if (conn->tls)
        tls_offer(conn->tls, protocol);
}

const char *
conn_protocol(struct conn *conn)
{
    return conn->tls ? tls_alpn(conn->tls) : "";
}

void
conn_set_events(struct conn *conn, const struct conn_events *events, void *owner)
{
    conn->events = events;
    conn->owner = owner;
}

static void
on_uv_closed(uv_handle_t *handle)
{
    struct conn *conn = handle->data;
    if (conn->events->on_closed)
        conn->events->on_closed(conn);
    conn_free(conn);
}

void
conn_close(struct conn *conn)
{
    if (conn->closing)
        return;
    conn->closing = true;
    timers_stop(&conn->ctx->timers, &conn->timer);
    conn_drop_output(conn);
    list_unlink(&conn->dirty_node);
    uv_close(&conn->handle, on_uv_closed);
}

static void
on_uv_shut_down(uv_shutdown_t *request, int status)
{
    struct conn *conn = request->data;
    if (conn->closing)
        return;
    if (status < 0 || conn->eof)
        conn_close(conn);
}

void
conn_finish_step(struct conn *conn)
{
    if (!conn->finishing || conn->closing || list_linked(&conn->dirty_node) || !conn_drained(conn))
        return;
    if (conn->finished) {
        if (conn->eof)
            conn_close(conn);
        return;
    }
    conn->finished = true;
    if (conn->tls) {
        tls_say_goodbye(conn->tls);
        conn_write_now(conn);
        if (conn->closing)
            return;
    }
    if (conn->hasty) {
        conn_close(conn);
        return;
    }
    timers_start(&conn->ctx->timers, &conn->timer, clock_now_ns() + LINGER_NS);
    conn->shutdown.data = conn;
    if (uv_shutdown(&conn->shutdown, &conn->stream, on_uv_shut_down) != 0)
        conn_close(conn);
}

void
conn_close_after_flush(struct conn *conn)
{
    if (conn->closing || conn->finishing)
        return;
    if (conn->lost || !conn->open || conn->write_error) {
        conn_close(conn);
        return;
    }
    conn->finishing = true;
    timers_start(&conn->ctx->timers, &conn->timer, clock_now_ns() + FINISH_STALL_NS);
    start_uv_read(conn); /* to see its FIN; what else comes is dropped */
    conn_dirty(conn);
}

void
conn_close_when_written(struct conn *conn)
{
    conn->hasty = true;
    conn_close_after_flush(conn);
}
