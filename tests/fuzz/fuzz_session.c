/* Beside fuzz_session.h: the worker's life is that of proxy/workers.c, on the calling thread. */
#include "fuzz_session.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "proxy/base/log.h"
#include "proxy/call/call.h"
#include "proxy/call/module.h"
#include "proxy/config/config.h"

static const char CONFIG[] =
    "[proxy]\nbuffer_budget = 4M\nmax_message = 256K\n"
    "[listener main]\naddress = unix:%s\nmax_header_list = 16K\n"
    "[upstream up]\nendpoints = unix:%s\nconnect_timeout = 1s\n"
    "[route u]\nmatch = /u.S/*\nupstream = up\ncall = unary\n"
    "[route s]\nmatch = /s.S/*\nupstream = up\ncall = stream\n"
    "[route a]\nmatch = /a.S/*\nupstream = up\nfast_path_max = 64\nreport = on\n";

enum { CLOSING_TURNS = 2000 };

static struct {
    bool ready;
    char client_path[64], provider_path[64];
    int provider; /* listening */
    struct stats stats;
    struct budget budget;
    struct snapshot *snapshot;
    struct worker worker;
    uv_loop_t loop;
} world;

struct listen_set *module_listen_set;

static struct sockaddr_un
address_of(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    return address;
}

static void
remove_sockets(void)
{
    unlink(world.client_path);
    unlink(world.provider_path);
}

static void
load_config(void)
{
    char text[2048];
    struct config_result result;
    int len = snprintf(text, sizeof(text), CONFIG, world.client_path, world.provider_path);
    config_load_text("fuzz.ini", (struct text){text, (size_t)len}, NULL, &result, NULL);
    if (!result.snapshot)
        fprintf(stderr, "%s", strbuf_text(&result.errors).ptr);
    check(result.snapshot != NULL);
    world.snapshot = result.snapshot;
    config_result_fini(&result);
    struct snapshot *snapshot = world.snapshot;
    for (unsigned i = 0; i < snapshot->listener_count; i++)
        snapshot->listeners[i].stats =
            stats_register(&world.stats, STATS_LISTENER, snapshot->listeners[i].name, TEXT_NONE);
    for (unsigned i = 0; i < snapshot->route_count; i++)
        snapshot->routes[i].stats =
            stats_register(&world.stats, STATS_ROUTE, snapshot->routes[i].name, TEXT_NONE);
}

/* Once per process: what does not change between inputs. */
static void
make_world(void)
{
    if (world.ready)
        return;
    world.ready = true;
    signal(SIGPIPE, SIG_IGN);
    log_open("/dev/null", LOG_LOGFMT, LOG_LEVEL_ERROR);
    const char *folder = getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
    snprintf(world.client_path, sizeof(world.client_path), "%.30s/fuzz-c-%d", folder, getpid());
    snprintf(world.provider_path, sizeof(world.provider_path), "%.30s/fuzz-p-%d", folder, getpid());
    remove_sockets();
    atexit(remove_sockets);
    stats_init(&world.stats, 1);
    load_config();
    struct sockaddr_un address = address_of(world.provider_path);
    world.provider = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    check(bind(world.provider, (struct sockaddr *)&address, sizeof(address)) == 0);
    check(listen(world.provider, 128) == 0);
}

static void
start_worker(void)
{
    struct worker *worker = &world.worker;
    struct strbuf error = STRBUF_INIT;
    check(listen_set_open(&module_listen_set, world.snapshot, 1, &error) == 0);
    budget_init(&world.budget, world.snapshot->proxy.buffer_budget_bytes);
    *worker = (struct worker){.stats = &world.stats, .snapshot = snapshot_ref(world.snapshot)};
    check(uv_loop_init(&world.loop) == 0);
    check(ctx_init(&worker->ctx, &world.loop, 0, &world.budget) == 0);
    worker->ctx.owner = worker;
    worker->ctx.merge_writes = true;
    rng_seed(&worker->ctx.rng, 1);
    call_worker_init(worker);
    check(upstream_module.start(worker) == 0);
    check(downstream_module.start(worker) == 0);
}

void
session_begin(struct session *session, const struct session_provider *provider)
{
    make_world();
    start_worker();
    *session = (struct session){.provider = provider};
    struct sockaddr_un address = address_of(world.client_path);
    session->client = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    check(connect(session->client, (struct sockaddr *)&address, sizeof(address)) == 0);
    session_turn(session, 16);
}

static void
accept_providers(struct session *session)
{
    for (;;) {
        int fd = accept4(world.provider, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0)
            return;
        if (session->fd_count == SESSION_PROVIDERS) {
            close(fd);
            continue;
        }
        session->fds[session->fd_count++] = fd;
    }
}

void
session_hang_up(struct session *session, unsigned index)
{
    if (session->fds[index] < 0)
        return;
    close(session->fds[index]);
    session->fds[index] = -1;
    session->provider->on_closed(session, index);
}

void
session_reply(struct session *session, unsigned index, const uint8_t *bytes, size_t len)
{
    if (session->fds[index] >= 0 && len > 0)
        (void)!send(session->fds[index], bytes, len, MSG_NOSIGNAL);
}

/* Whatever came on the peers' sockets; whether anything did. */
static bool
read_peers(struct session *session)
{
    static uint8_t bytes[65536];
    bool moved = false;
    accept_providers(session);
    for (unsigned i = 0; i < session->fd_count; i++) {
        ssize_t len = session->fds[i] < 0 ? -1 : recv(session->fds[i], bytes, sizeof(bytes), 0);
        moved |= len >= 0;
        if (len == 0)
            session_hang_up(session, i);
        else if (len > 0)
            session->provider->on_bytes(session, i, bytes, (size_t)len);
    }
    ssize_t len = session->client < 0 ? -1 : recv(session->client, bytes, sizeof(bytes), 0);
    if (len == 0) {
        close(session->client);
        session->client = -1;
    }
    return moved || len >= 0;
}

void
session_turn(struct session *session, unsigned most)
{
    unsigned quiet = 0;
    while (most-- > 0 && quiet < 3) {
        uv_run(&world.loop, UV_RUN_NOWAIT);
        ctx_flush(&world.worker.ctx);
        quiet = read_peers(session) ? 0 : quiet + 1;
    }
}

void
session_send(struct session *session, const uint8_t *bytes, size_t len)
{
    if (session->client >= 0 && len > 0)
        (void)!send(session->client, bytes, len, MSG_NOSIGNAL);
    session_turn(session, 64);
}

static void
check_at_rest(void)
{
    check(atomic_load(&world.worker.ctx.chunks.lease.used) == 0);
    check(world.worker.call_count == 0);
    for (struct stats_entry *entry = stats_next(&world.stats, NULL); entry;
         entry = stats_next(&world.stats, entry)) {
        if (entry->kind == STATS_ROUTE) {
            struct route_cells *cells = stats_route(entry, 0);
            check(stats_get(&cells->started) == stats_get(&cells->calls));
        } else if (entry->kind == STATS_LISTENER) {
            struct listener_cells *cells = stats_listener(entry, 0);
            check(stats_get(&cells->streams) == 0 && stats_get(&cells->connections) == 0);
        } else {
            struct endpoint_cells *cells = stats_endpoint(entry, 0);
            check(stats_get(&cells->streams) == 0 && stats_get(&cells->connections) == 0);
        }
    }
}

static void
stop_worker(struct session *session)
{
    struct worker *worker = &world.worker;
    ctx_rest(&worker->ctx);
    call_end_all(worker);
    ctx_flush(&worker->ctx);
    downstream_module.stop(worker);
    upstream_module.stop(worker);
    ctx_flush(&worker->ctx);
    call_worker_fini(worker);
    ctx_close(&worker->ctx);
    for (unsigned turns = 0; uv_run(&world.loop, UV_RUN_NOWAIT) != 0; turns++) {
        check(turns < CLOSING_TURNS); /* nothing may keep the loop */
        read_peers(session);
    }
    check_at_rest();
    downstream_module.free(worker);
    upstream_module.free(worker);
    ctx_fini(&worker->ctx);
    check(uv_loop_close(&world.loop) == 0);
    check(world.budget.leased == 0);
    snapshot_unref(worker->snapshot);
    listen_set_free(module_listen_set);
    module_listen_set = NULL;
}

void
session_end(struct session *session)
{
    if (session->client >= 0)
        close(session->client);
    session->client = -1;
    session_turn(session, 64);
    check(world.worker.call_count == 0); /* nobody is there to wait for an answer */
    stop_worker(session);
    accept_providers(session);
    for (unsigned i = 0; i < session->fd_count; i++)
        session_hang_up(session, i);
}
