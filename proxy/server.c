/*
 * The process. Starts in this order: configuration, log, sockets, workers, admin; stops in the
 * reverse one.
 *
 * Signals: HUP reload, TERM drain (a second one: stop), INT stop, USR1 reopen logs.
 * Failure modes: what cannot start says so in one line and leaves exit code 1 (configuration) or 2
 * (anything else); a reload that fails leaves everything as it is and is reported in the log and in
 * /stats.
 */
#include "proxy/server.h"

#include "proxy/admin.h"
#include "proxy/base/check.h"
#include "proxy/base/clock.h"
#include "proxy/base/log.h"
#include "proxy/call/module.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>

enum { WATCH_MS = 250 };

struct listen_set *module_listen_set;

const char *
server_state_name(enum server_state state)
{
    static const char *const names[] = {"starting", "ready", "draining"};
    return names[state];
}

/* Names of the configuration get their cells; counters of names that were there before go on. */
static void
bind_statistics(struct server *server, struct snapshot *snapshot)
{
    for (unsigned i = 0; i < snapshot->listener_count; i++)
        snapshot->listeners[i].stats =
            stats_register(&server->stats, STATS_LISTENER, snapshot->listeners[i].name, TEXT_NONE);
    for (unsigned i = 0; i < snapshot->route_count; i++)
        snapshot->routes[i].stats =
            stats_register(&server->stats, STATS_ROUTE, snapshot->routes[i].name, TEXT_NONE);
}

/* --- reload --- */

static void
set_reload_error(struct server *server, const char *text)
{
    mem_free(server->reload_error);
    server->reload_error = text ? mem_strdup(text) : NULL;
}

static void
log_lines(enum log_level level, struct text text)
{
    struct text line;
    while (text_next(&text, '\n', &line))
        if (line.len > 0)
            log_line(level, "server", "%.*s", TEXT_ARGS(line));
}

/* Everything that can fail has succeeded: from here on it's the running configuration. */
static void
publish(struct server *server, struct snapshot *next)
{
    struct snapshot *old = server->snapshot;
    next->generation = old->generation + 1;
    server->snapshot = next;
    log_open(next->proxy.log.ptr, next->proxy.log_format, next->proxy.log_level);
    log_open_access(next->proxy.access_log.ptr);
    workers_apply(server->workers, next);
    listen_set_prune(module_listen_set, next);
    snapshot_unref(old);
    set_reload_error(server, NULL);
    log_info("server", "configuration %u is running", next->generation);
}

static void
reload(struct server *server, const char *why)
{
    if (server->state != SERVER_READY) {
        log_warn("server", "not reloading (%s): %s", why, server_state_name(server->state));
        return;
    }
    struct config_result result;
    struct strbuf kept = STRBUF_INIT, error = STRBUF_INIT;
    config_identify(server->file, &server->identity);
    config_load(server->file, server->snapshot, &result, &kept);
    if (!result.snapshot) {
        log_error("server", "reload (%s) failed, the running configuration stays", why);
        log_lines(LOG_LEVEL_ERROR, strbuf_text(&result.errors));
        set_reload_error(server, strbuf_text(&result.errors).ptr);
    } else if (listen_set_open(&module_listen_set, result.snapshot, result.snapshot->proxy.workers,
                               &error)) {
        log_error("server", "reload (%s) failed, the running configuration stays: %s", why,
                  strbuf_text(&error).ptr);
        set_reload_error(server, strbuf_text(&error).ptr);
        listen_set_prune(module_listen_set, server->snapshot);
        snapshot_unref(result.snapshot);
    } else {
        log_lines(LOG_LEVEL_WARN, strbuf_text(&kept));
        bind_statistics(server, result.snapshot);
        publish(server, result.snapshot);
    }
    config_result_fini(&result);
    strbuf_fini(&kept);
    strbuf_fini(&error);
}

static bool
same_identity(const struct config_identity *a, const struct config_identity *b)
{
    return memcmp(a, b, sizeof(*a)) == 0;
}

/* A change counts once it has been stable for one more look: editors write in pieces. */
static void
on_uv_watch(uv_timer_t *timer)
{
    struct server *server = timer->data;
    struct config_identity now;
    if (!server->snapshot->proxy.watch || !config_identify(server->file, &now) ||
        same_identity(&now, &server->identity)) {
        memset(&server->changing, 0, sizeof(server->changing));
        return;
    }
    if (same_identity(&now, &server->changing))
        reload(server, "file changed");
    else
        server->changing = now;
}

/* --- stopping --- */

static void
close_main_handles(struct server *server)
{
    if (server->closing)
        return;
    server->closing = true;
    if (server->admin)
        admin_close(server->admin);
    if (server->probe)
        admin_close(server->probe);
    for (unsigned i = 0; i < 4; i++)
        uv_close((uv_handle_t *)&server->signals[i], NULL);
    uv_close((uv_handle_t *)&server->worker_exit, NULL);
    uv_close((uv_handle_t *)&server->drain_timer, NULL);
    uv_close((uv_handle_t *)&server->watch_timer, NULL);
}

static void
on_uv_worker_exit(uv_async_t *async)
{
    struct server *server = async->data;
    if (server->workers && !workers_running(server->workers))
        close_main_handles(server);
}

static void
on_worker_exit(void *arg)
{
    struct server *server = arg;
    uv_async_send(&server->worker_exit);
}

static void
stop_now(struct server *server, const char *why)
{
    log_info("server", "stopping now: %s", why);
    server->state = SERVER_DRAINING;
    uv_timer_stop(&server->drain_timer);
    workers_stop(server->workers);
}

static void
on_uv_drain_timeout(uv_timer_t *timer)
{
    stop_now(timer->data, "drain_timeout is over");
}

static void
on_uv_drain_begin(uv_timer_t *timer)
{
    struct server *server = timer->data;
    const struct proxy_conf *proxy = &server->snapshot->proxy;
    uint64_t spent = proxy->drain_delay_ns;
    uint64_t left = proxy->drain_timeout_ns > spent ? proxy->drain_timeout_ns - spent : 0;
    uv_timer_start(timer, on_uv_drain_timeout, left / NS_PER_MS, 0);
    workers_drain(server->workers);
}

static void
drain(struct server *server)
{
    server->state = SERVER_DRAINING;
    log_info("server", "draining");
    uv_timer_start(&server->drain_timer, on_uv_drain_begin,
                   server->snapshot->proxy.drain_delay_ns / NS_PER_MS, 0);
}

static void
on_uv_signal(uv_signal_t *handle, int number)
{
    struct server *server = handle->data;
    switch (number) {
    case SIGHUP:
        reload(server, "SIGHUP");
        break;
    case SIGUSR1:
        log_reopen();
        break;
    case SIGTERM:
        if (server->state != SERVER_DRAINING) {
            drain(server);
            break;
        } /* fallthrough */
    default:
        stop_now(server, number == SIGINT ? "SIGINT" : "second SIGTERM");
    }
}

/* --- starting --- */

static int
cannot_start(const char *what)
{
    fprintf(stderr, "tributary: %s\n", what);
    return EXIT_CANNOT_START;
}

static void
open_main_handles(struct server *server)
{
    static const int numbers[4] = {SIGHUP, SIGTERM, SIGINT, SIGUSR1};
    for (unsigned i = 0; i < 4; i++) {
        uv_signal_init(&server->loop, &server->signals[i]);
        server->signals[i].data = server;
        uv_signal_start(&server->signals[i], on_uv_signal, numbers[i]);
    }
    uv_async_init(&server->loop, &server->worker_exit, on_uv_worker_exit);
    server->worker_exit.data = server;
    uv_timer_init(&server->loop, &server->drain_timer);
    server->drain_timer.data = server;
    uv_timer_init(&server->loop, &server->watch_timer);
    server->watch_timer.data = server;
    uv_timer_start(&server->watch_timer, on_uv_watch, WATCH_MS, WATCH_MS);
}

/* As many descriptors as we may have: each connection takes one. */
static void
raise_descriptor_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static int
open_logs(const struct proxy_conf *proxy)
{
    char what[256];
    int error = log_open(proxy->log.ptr, proxy->log_format, proxy->log_level);
    const char *path = proxy->log.ptr;
    if (!error) {
        error = log_open_access(proxy->access_log.ptr);
        path = proxy->access_log.ptr;
    }
    if (!error)
        return 0;
    snprintf(what, sizeof(what), "cannot open log %s: %s", path, strerror(-error));
    return cannot_start(what);
}

static void
print_banner(const struct server *server)
{
    const struct snapshot *snapshot = server->snapshot;
    char name[160];
    log_info("server", "tributary %s, %u worker(s), configuration %s", TRIBUTARY_VERSION,
             snapshot->proxy.workers, server->file);
    for (unsigned i = 0; i < snapshot->listener_count; i++)
        for (unsigned a = 0; a < snapshot->listeners[i].address_count; a++)
            log_info("server", "listener %.*s on %s", TEXT_ARGS(snapshot->listeners[i].name),
                     listen_set_name(module_listen_set, snapshot->listeners[i].name,
                                     snapshot->listeners[i].addresses[a], name, sizeof(name)));
    for (unsigned i = 0; i < snapshot->route_count; i++) {
        const struct route *route = &snapshot->routes[i];
        log_info("server", "route %.*s: %.*s%s to upstream %.*s", TEXT_ARGS(route->name),
                 TEXT_ARGS(route->matches[0]), route->match_count > 1 ? ", …" : "",
                 TEXT_ARGS(route->upstream->name));
    }
    if (snapshot->proxy.admin.len)
        log_info("server", "admin on %.*s", TEXT_ARGS(snapshot->proxy.admin));
    if (snapshot->proxy.probe.len)
        log_info("server", "probe on %.*s", TEXT_ARGS(snapshot->proxy.probe));
}

static int
open_endpoints(struct server *server, struct strbuf *error)
{
    const struct proxy_conf *proxy = &server->snapshot->proxy;
    int result = 0;
    if (proxy->admin.len)
        result = admin_open(&server->admin, server, proxy->admin, false, error);
    if (!result && proxy->probe.len)
        result = admin_open(&server->probe, server, proxy->probe, true, error);
    return result;
}

static int
start(struct server *server)
{
    struct strbuf error = STRBUF_INIT;
    int result = listen_set_open(&module_listen_set, server->snapshot,
                                 server->snapshot->proxy.workers, &error);
    if (!result)
        result = open_endpoints(server, &error);
    if (!result) {
        struct workers_options options = {
            .count = server->snapshot->proxy.workers,
            .budget = &server->budget,
            .stats = &server->stats,
            .snapshot = server->snapshot,
            .on_exit = on_worker_exit,
            .arg = server,
        };
        result = workers_start(&server->workers, &options);
        if (result)
            strbuf_addf(&error, "cannot start the workers: %s", uv_strerror(result));
    }
    if (result)
        result = cannot_start(error.len ? strbuf_text(&error).ptr : uv_strerror(result));
    strbuf_fini(&error);
    return result;
}

static void
clean_up(struct server *server)
{
    uv_run(&server->loop, UV_RUN_DEFAULT);
    if (server->workers)
        workers_join(server->workers);
    uv_loop_close(&server->loop);
    if (module_listen_set)
        listen_set_free(module_listen_set);
    snapshot_unref(server->snapshot);
    stats_fini(&server->stats);
    mem_free(server->reload_error);
    log_close();
}

int
server_run(const char *file)
{
    struct config_result result;
    config_load(file, NULL, &result, NULL);
    if (!result.snapshot) {
        fprintf(stderr, "%s", strbuf_text(&result.errors).ptr);
        config_result_fini(&result);
        return EXIT_BAD_CONFIG;
    }
    struct server server = {
        .file = file, .snapshot = result.snapshot, .started_ns = clock_now_ns()};
    config_result_fini(&result);
    int exit_code = open_logs(&server.snapshot->proxy);
    if (exit_code) {
        snapshot_unref(server.snapshot);
        return exit_code;
    }
    server.snapshot->generation = 1;
    config_identify(file, &server.identity);
    raise_descriptor_limit();
    signal(SIGPIPE, SIG_IGN);
    /* As PID 1 of a container orphans become ours: ignored, the kernel reaps them. We start none.
     */
    signal(SIGCHLD, SIG_IGN);
    stats_init(&server.stats, server.snapshot->proxy.workers);
    budget_init(&server.budget, server.snapshot->proxy.buffer_budget_bytes);
    bind_statistics(&server, server.snapshot);
    check(uv_loop_init(&server.loop) == 0);
    open_main_handles(&server);
    exit_code = start(&server);
    if (exit_code) {
        close_main_handles(&server);
    } else {
        server.state = SERVER_READY;
        print_banner(&server);
        uv_run(&server.loop, UV_RUN_DEFAULT);
        log_info("server", "stopped");
    }
    clean_up(&server);
    return exit_code;
}
