/*
 * One listener on one worker. Owns its listening handles (a copy of the descriptors that the main
 * thread bound) and the list of its connections.
 *
 * Failure modes: at the connection limit, and when descriptors run out, it stops accepting: clients
 * wait in the kernel's queue instead of being turned away, and no loop spins on a socket that
 * cannot be accepted from (design: descriptor exhaustion). A closed connection or a timer starts it
 * again.
 */
#include "downstream/listener.h"

#include <unistd.h>
#include <uv.h>

#include "downstream/server_conn.h"
#include "proxy/base/clock.h"
#include "proxy/base/log.h"
#include "proxy/call/module.h"

enum { RETRY_MS = 100 };

struct listener_socket {
    struct listener *listener;
    char *address;
    union {
        uv_handle_t handle;
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
    };
    bool waiting; /* uv said that a connection waits, and it was not accepted */
    bool closing;
};

static void pause_accepting(struct listener *listener);

static void
count_connection(struct listener *listener)
{
    listener->connection_count++;
    stats_add(&listener->cells->accepted, 1);
    stats_add(&listener->cells->connections, 1);
}

static void
accept_one(struct listener_socket *socket)
{
    struct listener *listener = socket->listener;
    if (listener->paused || listener->connection_count >= listener->connection_limit) {
        /* libuv stops polling a listening socket whose connection was not taken: that is the pause.
         */
        socket->waiting = true;
        return;
    }
    int error = server_conn_accept(listener, &socket->stream);
    if (error == 0) {
        count_connection(listener);
    } else if (error == UV_EMFILE || error == UV_ENFILE || error == UV_ENOMEM ||
               error == UV_ENOBUFS) {
        socket->waiting = true;
        pause_accepting(listener);
    }
}

static void
on_uv_connection(uv_stream_t *stream, int status)
{
    struct listener_socket *socket = stream->data;
    ctx_touch(&socket->listener->worker->ctx);
    if (status == 0) {
        accept_one(socket);
        return;
    }
    log_warn("listener", "%s: cannot accept: %s", socket->address, uv_strerror(status));
    if (status == UV_EMFILE || status == UV_ENFILE)
        pause_accepting(socket->listener);
}

static void
resume_accepting(struct listener *listener)
{
    for (unsigned i = 0; i < listener->socket_count && !listener->closing; i++) {
        struct listener_socket *socket = listener->sockets[i];
        if (!socket->waiting || listener->paused)
            continue;
        socket->waiting = false;
        accept_one(socket);
    }
}

static void
on_retry(struct timer *timer)
{
    struct listener *listener = container_of(timer, struct listener, retry);
    listener->paused = false;
    resume_accepting(listener);
}

static void
pause_accepting(struct listener *listener)
{
    listener->paused = true;
    log_warn("listener", "%s: out of descriptors, accepting again in %d ms", listener->name,
             RETRY_MS);
    timers_start(&listener->worker->ctx.timers, &listener->retry,
                 clock_now_ns() + RETRY_MS * NS_PER_MS);
}

static void
on_connection_closed(struct listener *listener)
{
    listener->connection_count--;
    stats_sub(&listener->cells->connections, 1);
    resume_accepting(listener);
}

/* --- sockets --- */

static void
on_uv_socket_closed(uv_handle_t *handle)
{
    struct listener_socket *socket = handle->data;
    struct listener *listener = socket->listener;
    for (unsigned i = 0; i < listener->socket_count; i++)
        if (listener->sockets[i] == socket)
            listener->sockets[i] = listener->sockets[--listener->socket_count];
    mem_free(socket->address);
    mem_free(socket);
}

static void
close_socket(struct listener_socket *socket)
{
    if (socket->closing)
        return;
    socket->closing = true;
    uv_close(&socket->handle, on_uv_socket_closed);
}

static int
open_handle(struct listener_socket *socket, int fd, bool is_unix)
{
    uv_loop_t *loop = socket->listener->worker->ctx.loop;
    int error;
    if (is_unix) {
        uv_pipe_init(loop, &socket->pipe, 0);
        error = uv_pipe_open(&socket->pipe, fd);
    } else {
        uv_tcp_init(loop, &socket->tcp);
        error = uv_tcp_open(&socket->tcp, fd);
    }
    socket->handle.data = socket;
    return error ? error : uv_listen(&socket->stream, LISTEN_BACKLOG, on_uv_connection);
}

static void
open_socket(struct listener *listener, struct text address)
{
    int fd =
        listen_set_take(module_listen_set, listener->conf->name, address, listener->worker->index);
    if (fd < 0) {
        log_error("listener", "%s: no socket for %.*s", listener->name, TEXT_ARGS(address));
        return;
    }
    struct listener_socket *socket = mem_new(struct listener_socket);
    socket->listener = listener;
    socket->address = text_dup(address);
    listener->sockets =
        mem_realloc(listener->sockets, (listener->socket_count + 1) * sizeof(*listener->sockets));
    listener->sockets[listener->socket_count++] = socket;
    int error = open_handle(socket, fd, text_starts(address, TEXT("unix:")));
    if (error) {
        log_error("listener", "%s: cannot listen on %s: %s", listener->name, socket->address,
                  uv_strerror(error));
        close_socket(socket);
    }
}

static bool
names_address(const struct listener_conf *conf, const char *address)
{
    for (unsigned i = 0; i < conf->address_count; i++)
        if (text_eq(conf->addresses[i], text_of(address)))
            return true;
    return false;
}

static bool
has_socket(const struct listener *listener, struct text address)
{
    for (unsigned i = 0; i < listener->socket_count; i++)
        if (!listener->sockets[i]->closing &&
            text_eq(text_of(listener->sockets[i]->address), address))
            return true;
    return false;
}

/* --- life --- */

void
listener_update(struct listener *listener, const struct listener_conf *conf)
{
    struct worker *worker = listener->worker;
    struct snapshot *old = listener->snapshot;
    listener->snapshot = snapshot_ref(worker->snapshot);
    listener->conf = conf;
    listener->cells = stats_listener(conf->stats, worker->index);
    unsigned workers = worker->snapshot->proxy.workers;
    listener->connection_limit = (conf->max_connections + workers - 1 - worker->index) / workers;
    if (listener->connection_limit == 0)
        listener->connection_limit = 1;
    for (unsigned i = 0; i < listener->socket_count; i++)
        if (!names_address(conf, listener->sockets[i]->address))
            close_socket(listener->sockets[i]);
    for (unsigned i = 0; i < conf->address_count; i++)
        if (!has_socket(listener, conf->addresses[i]))
            open_socket(listener, conf->addresses[i]);
    if (old)
        snapshot_unref(old);
    resume_accepting(listener);
}

struct listener *
listener_open(struct worker *worker, const struct listener_conf *conf)
{
    struct listener *listener = mem_new(struct listener);
    listener->worker = worker;
    listener->name = text_dup(conf->name);
    listener->retry.on_due = on_retry;
    listener->on_connection_closed = on_connection_closed;
    list_init(&listener->node);
    list_init(&listener->connections);
    listener_update(listener, conf);
    return listener;
}

/*
 * What the kernel has queued is accepted first, over the limit too: closing a socket resets those
 * connections. The one that libuv holds comes by uv_accept, the others from the descriptor. At most
 * a backlog of them, or a flood of new clients would keep us here.
 */
static void
accept_queued(struct listener_socket *socket)
{
    struct listener *listener = socket->listener;
    bool is_unix = socket->handle.type == UV_NAMED_PIPE;
    uv_os_fd_t fd;
    if (server_conn_accept(listener, &socket->stream) == 0)
        count_connection(listener);
    if (uv_fileno(&socket->handle, &fd) != 0)
        return;
    for (int i = 0; i < LISTEN_BACKLOG && server_conn_accept_queued(listener, fd, is_unix) == 0;
         i++)
        count_connection(listener);
}

void
listener_stop_accepting(struct listener *listener)
{
    if (listener->closing)
        return;
    listener->closing = true;
    timers_stop(&listener->worker->ctx.timers, &listener->retry);
    for (unsigned i = 0; i < listener->socket_count; i++)
        if (!listener->sockets[i]->closing)
            accept_queued(listener->sockets[i]);
    for (unsigned i = 0; i < listener->socket_count; i++)
        close_socket(listener->sockets[i]);
}

void
listener_drain(struct listener *listener)
{
    list_for_each_safe (node, &listener->connections)
        server_conn_drain(server_conn_of(node));
}

void
listener_close(struct listener *listener)
{
    listener->closing = true;
    timers_stop(&listener->worker->ctx.timers, &listener->retry);
    for (unsigned i = 0; i < listener->socket_count; i++)
        close_socket(listener->sockets[i]);
    list_for_each_safe (node, &listener->connections)
        server_conn_close(server_conn_of(node));
}

bool
listener_idle(const struct listener *listener)
{
    return listener->closing && listener->socket_count == 0 && list_empty(&listener->connections);
}

void
listener_free(struct listener *listener)
{
    snapshot_unref(listener->snapshot);
    mem_free(listener->sockets);
    mem_free(listener->name);
    mem_free(listener);
}
