/*
 * A listening address of ours for people and machines that watch the proxy: `admin`, or `probe`.
 *
 * Owns the listening socket and, on the main loop, a context (net/ctx.h) of its own with a small
 * private budget, so that nothing here is taken from calls. Sessions are admin_session.c's.
 *
 * Happy path: admin_open → listening → sessions; admin_close → socket and sessions close → the
 * context's handles close → freed. Failure modes: an address that cannot be had is told by
 * admin_open, and everything is undone by the loop; at SESSIONS_MAX the longest idle session makes
 * room, or newcomers wait in the kernel's queue.
 */
#include "proxy/admin.h"

#include <errno.h>
#include <sys/un.h>

#include "proxy/admin_session.h"
#include "proxy/base/clock.h"
#include "proxy/base/log.h"
#include "proxy/net/address.h"

enum {
    SESSIONS_MAX = 64,
    BACKLOG = 128,
    RETRY_MS = 100,
    CLOSING_TURNS = 2 /* of the loop, until handles that are being closed are gone */
};
#define BUDGET_BYTES ((uint64_t)64 << 20) /* answers on their way out, all sessions */

struct admin {
    struct admin_sessions sessions;
    struct ctx ctx;
    struct budget budget;
    union {
        uv_handle_t handle;
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
    } listening;
    uv_idle_t last; /* counts the turns after which all other handles are gone */
    unsigned turns;
    struct timer retry;
    bool listening_open; /* the handle exists */
    bool waiting;        /* somebody is at the door */
    bool closing, ending;
};

/* --- the end --- */

static void
on_uv_last_closed(uv_handle_t *handle)
{
    struct admin *admin = handle->data;
    ctx_fini(&admin->ctx);
    mem_free(admin);
}

/* Handles are gone by the end of the turn in which they were closed: a full turn later at most. */
static void
on_uv_last(uv_idle_t *idle)
{
    struct admin *admin = idle->data;
    if (++admin->turns == CLOSING_TURNS)
        uv_close((uv_handle_t *)idle, on_uv_last_closed);
}

static void
end_when_empty(struct admin *admin)
{
    if (!admin->closing || admin->ending || admin->listening_open || admin->sessions.count > 0)
        return;
    admin->ending = true;
    ctx_close(&admin->ctx);
    uv_idle_init(admin->ctx.loop, &admin->last);
    admin->last.data = admin;
    uv_idle_start(&admin->last, on_uv_last);
}

static void
on_uv_listening_closed(uv_handle_t *handle)
{
    struct admin *admin = handle->data;
    admin->listening_open = false;
    end_when_empty(admin);
}

void
admin_close(struct admin *admin)
{
    if (admin->closing)
        return;
    admin->closing = true;
    timers_stop(&admin->ctx.timers, &admin->retry);
    if (admin->listening_open)
        uv_close(&admin->listening.handle, on_uv_listening_closed);
    admin_session_end_all(&admin->sessions);
    end_when_empty(admin);
}

/* --- accepting --- */

static void
accept_waiting(struct admin *admin)
{
    if (!admin->waiting || admin->closing || timer_running(&admin->retry))
        return;
    if (admin->sessions.count >= SESSIONS_MAX) {
        admin_session_end_idle(&admin->sessions); /* its end is a change */
        return;
    }
    admin->waiting = false;
    int error = admin_session_open(&admin->sessions, &admin->listening.stream);
    if (error == 0 || error == UV_EAGAIN)
        return;
    log_warn("admin", "cannot accept: %s", uv_strerror(error));
    admin->waiting = true;
    timers_start(&admin->ctx.timers, &admin->retry, admin->ctx.turn_ns + RETRY_MS * NS_PER_MS);
}

static void
on_retry(struct timer *timer)
{
    accept_waiting(container_of(timer, struct admin, retry));
}

/* Room for whoever waits is made in a turn of its own, not inside a session's callback. */
static void
on_session_change(struct admin_sessions *sessions)
{
    struct admin *admin = container_of(sessions, struct admin, sessions);
    if (admin->waiting && !admin->closing && !timer_running(&admin->retry))
        timers_start(&admin->ctx.timers, &admin->retry, admin->ctx.turn_ns);
    end_when_empty(admin);
}

/* libuv does not poll a listening socket whose connection was not taken: waiting is the pause. */
static void
on_uv_connection(uv_stream_t *stream, int status)
{
    struct admin *admin = stream->data;
    ctx_touch(&admin->ctx);
    if (status < 0) {
        log_warn("admin", "cannot accept: %s", uv_strerror(status));
        return;
    }
    admin->waiting = true;
    accept_waiting(admin);
}

/* --- the beginning --- */

static int
bind_unix(struct admin *admin, const struct address *address)
{
    int error = address_clear_path(address);
    if (error)
        return error;
    uv_pipe_init(admin->ctx.loop, &admin->listening.pipe, 0);
    admin->listening_open = true;
    error = uv_pipe_bind(&admin->listening.pipe,
                         ((const struct sockaddr_un *)&address->storage)->sun_path);
    return error ? error : uv_pipe_chmod(&admin->listening.pipe, UV_READABLE | UV_WRITABLE);
}

static int
bind_tcp(struct admin *admin, const struct address *address)
{
    bool v6 = address->storage.ss_family == AF_INET6;
    uv_tcp_init(admin->ctx.loop, &admin->listening.tcp);
    admin->listening_open = true;
    return uv_tcp_bind(&admin->listening.tcp, (const struct sockaddr *)&address->storage,
                       v6 ? UV_TCP_IPV6ONLY : 0);
}

static int
listen_at(struct admin *admin, struct text text)
{
    struct address address;
    int error = address_from_text(text, false, &address);
    if (!error)
        error = address.storage.ss_family == AF_UNIX ? bind_unix(admin, &address)
                                                     : bind_tcp(admin, &address);
    if (error)
        return error;
    admin->listening.handle.data = admin;
    return uv_listen(&admin->listening.stream, BACKLOG, on_uv_connection);
}

int
admin_open(struct admin **out, struct server *server, struct text address, bool probe_only,
           struct strbuf *error)
{
    struct admin *admin = mem_new(struct admin);
    budget_init(&admin->budget, BUDGET_BYTES);
    int result = ctx_init(&admin->ctx, &server->loop, 0, &admin->budget);
    if (result) {
        mem_free(admin);
        return result;
    }
    admin->retry.on_due = on_retry;
    admin->sessions.ctx = &admin->ctx;
    admin->sessions.server = server;
    admin->sessions.probe_only = probe_only;
    admin->sessions.on_change = on_session_change;
    admin_session_init(&admin->sessions);
    result = listen_at(admin, address);
    if (!result) {
        *out = admin;
        return 0;
    }
    admin->listening.handle.data = admin;
    strbuf_addf(error, "%s: cannot listen on %.*s: %s", probe_only ? "probe" : "admin",
                TEXT_ARGS(address), uv_strerror(result));
    admin_close(admin); /* the loop frees it */
    return result;
}
