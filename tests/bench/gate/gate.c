/*
 * Fixed batches of calls through a worker's real call path, in memory: what callgrind counts for
 * test_gate.py.
 *
 * Owns: one worker (context, snapshot, both modules), its clients and its provider, all in one
 * thread. The worker's side is everything below into_worker(): callgrind counts only there, so what
 * the clients and the provider cost is left out. No socket, no clock, no chance: two runs take the
 * same instructions.
 *
 *   gate CASE BATCHES      CASE: a name of CASES below
 *
 * A batch is CONNECTIONS × IN_FLIGHT calls: the clients write their requests, the worker reads
 * them connection by connection in one turn, the provider answers all, the worker reads the
 * answers. A missing reply, one of another length, or another status than 0 fails the run.
 */
#include <nghttp2/nghttp2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_uv.h"
#include "proxy/base/check.h"
#include "proxy/base/mem.h"
#include "proxy/call/call.h"
#include "proxy/call/module.h"
#include "proxy/config/config.h"

enum { CONNECTIONS = 10, IN_FLIGHT = 10, PREFIX = 5, WINDOW = 1 << 30 };

struct gate_case {
    const char *name;
    size_t size;
    bool bare_client;
    const char *upstream, *route; /* further lines of the configuration */
};

static const struct gate_case CASES[] = {
    {"grpc_to_bare_128", 128, false, "", "call = unary"},
    {"grpc_to_bare_auto_128", 128, false, "", ""},
    {"grpc_to_bare_16k", 16384, false, "", "call = unary"},
    {"grpc_to_framed_128", 128, false, "wire = framed", "call = unary"},
    {"triple_to_bare_128", 128, true, "", "call = unary"},
};

/* --- the worker --- */

struct listen_set *module_listen_set;

static struct worker worker;
static struct stats stats;
static struct budget budget;

static struct snapshot *
load(const struct gate_case *which)
{
    char text[512];
    struct config_result result;
    snprintf(text, sizeof(text),
             "[listener main]\naddress = 127.0.0.1:0\n[upstream echo]\n"
             "endpoints = 127.0.0.1:9\n%s\n[route all]\nmatch = *\nupstream = echo\n%s\n",
             which->upstream, which->route);
    config_load_text("gate.ini", text_of(text), NULL, &result, NULL);
    if (!result.snapshot) {
        fprintf(stderr, "%s", strbuf_text(&result.errors).ptr);
        exit(2);
    }
    struct snapshot *snapshot = result.snapshot;
    config_result_fini(&result);
    snapshot->listeners[0].stats =
        stats_register(&stats, STATS_LISTENER, snapshot->listeners[0].name, TEXT_NONE);
    snapshot->routes[0].stats =
        stats_register(&stats, STATS_ROUTE, snapshot->routes[0].name, TEXT_NONE);
    return snapshot;
}

static void
start_worker(const struct gate_case *which)
{
    static uv_loop_t loop;
    struct strbuf error = STRBUF_INIT;
    stats_init(&stats, 1);
    worker.snapshot = load(which);
    worker.stats = &stats;
    budget_init(&budget, worker.snapshot->proxy.buffer_budget_bytes);
    check(listen_set_open(&module_listen_set, worker.snapshot, 1, &error) == 0);
    check(ctx_init(&worker.ctx, &loop, 0, &budget) == 0);
    worker.ctx.owner = &worker;
    call_worker_init(&worker);
    check(upstream_module.start(&worker) == 0 && downstream_module.start(&worker) == 0);
}

/* Where callgrind counts (--toggle-collect): the worker reads `len` bytes; then a turn ends when
 * socket is NULL. */
__attribute__((noinline, noclone)) void
into_worker(struct fake_socket *socket, const uint8_t *bytes, size_t len);
void
into_worker(struct fake_socket *socket, const uint8_t *bytes, size_t len)
{
    if (socket)
        fake_feed(socket, bytes, len);
    else
        fake_turn();
}

/* --- peers: an nghttp2 session at the other end of a fake socket --- */

/* A session's user data is not NULL when its bodies are bare. */
struct peer {
    struct fake_socket *socket;
    nghttp2_session *session;
};

static const struct gate_case *the_case;
static uint8_t message[PREFIX + 65536]; /* framed; bare behind the prefix */
static unsigned long replies, failures, reply_bytes;

static uint8_t *
body_of(bool bare, size_t *len)
{
    *len = the_case->size + (bare ? 0 : PREFIX);
    return message + (bare ? PREFIX : 0);
}

/* What the worker wrote to this peer, and what the peer has to say to it. */
static void
exchange(struct peer *peer)
{
    struct fake_socket *socket = peer->socket;
    const uint8_t *bytes;
    ssize_t len;
    check(nghttp2_session_mem_recv(peer->session, socket->bytes, socket->len) ==
          (ssize_t)socket->len);
    socket->len = 0;
    uint8_t *out = NULL;
    size_t out_len = 0;
    while ((len = nghttp2_session_mem_send(peer->session, &bytes)) > 0) {
        out = mem_realloc(out, out_len + (size_t)len);
        memcpy(out + out_len, bytes, (size_t)len);
        out_len += (size_t)len;
    }
    if (out_len > 0)
        into_worker(socket, out, out_len);
    mem_free(out);
}

static ssize_t
on_ng_body(nghttp2_session *session, int32_t id, uint8_t *to, size_t room, uint32_t *flags,
           nghttp2_data_source *source, void *user_data)
{
    size_t len, *sent = source->ptr;
    bool client = !nghttp2_session_check_server_session(session);
    bool bare = user_data != NULL;
    const uint8_t *body = body_of(bare, &len);
    len -= *sent;
    if (len > room)
        len = room;
    else
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    memcpy(to, body + *sent, len);
    *sent += len;
    if (!(*flags & NGHTTP2_DATA_FLAG_EOF))
        return (ssize_t)len;
    mem_free(sent);
    if (client || bare)
        return (ssize_t)len;
    *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
    nghttp2_nv status = {(uint8_t *)"grpc-status", (uint8_t *)"0", 11, 1, NGHTTP2_NV_FLAG_NONE};
    nghttp2_submit_trailer(session, id, &status, 1);
    return (ssize_t)len;
}

static nghttp2_nv
nv(const char *name, const char *value)
{
    return (nghttp2_nv){(uint8_t *)name, (uint8_t *)value, strlen(name), strlen(value),
                        NGHTTP2_NV_FLAG_NONE};
}

/* --- the provider: echoes in the form that it is asked in --- */

static bool provider_bare;

static int
on_ng_request(nghttp2_session *session, const nghttp2_frame *frame, void *user_data)
{
    (void)user_data;
    if (!(frame->hd.flags & NGHTTP2_FLAG_END_STREAM) || frame->hd.type > NGHTTP2_HEADERS)
        return 0;
    char length[24];
    snprintf(length, sizeof(length), "%zu", the_case->size);
    nghttp2_nv bare[] = {nv(":status", "200"), nv("content-type", "application/proto"),
                         nv("content-length", length)};
    nghttp2_nv framed[] = {nv(":status", "200"), nv("content-type", "application/grpc+proto")};
    nghttp2_data_provider body = {.source.ptr = mem_zalloc(sizeof(size_t)),
                                  .read_callback = on_ng_body};
    return nghttp2_submit_response(session, frame->hd.stream_id, provider_bare ? bare : framed,
                                   provider_bare ? 3 : 2, &body);
}

/* --- the clients --- */

static int
on_ng_reply_field(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                  size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                  void *user_data)
{
    (void)session, (void)frame, (void)flags, (void)user_data;
    if (name_len == 11 && memcmp(name, "grpc-status", 11) == 0)
        failures += value_len != 1 || value[0] != '0';
    if (name_len == 7 && memcmp(name, ":status", 7) == 0)
        failures += value_len != 3 || memcmp(value, "200", 3) != 0;
    return 0;
}

static int
on_ng_reply_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *data,
                 size_t len, void *user_data)
{
    (void)session, (void)flags, (void)id, (void)data, (void)user_data;
    reply_bytes += len;
    return 0;
}

static int
on_ng_reply_closed(nghttp2_session *session, int32_t id, uint32_t error, void *user_data)
{
    (void)session, (void)id, (void)user_data;
    replies++;
    failures += error != 0;
    return 0;
}

static void
ask(struct peer *client)
{
    bool bare = the_case->bare_client;
    char length[24];
    snprintf(length, sizeof(length), "%zu", the_case->size);
    nghttp2_nv framed[] = {
        nv(":method", "POST"),
        nv(":scheme", "http"),
        nv(":path", "/tributary.demo.Echo/Say"),
        nv(":authority", "127.0.0.1:17000"),
        nv("content-type", "application/grpc"),
        nv("te", "trailers"),
        nv("user-agent", "gate/1"),
    };
    nghttp2_nv triple[] = {
        nv(":method", "POST"),
        nv(":scheme", "http"),
        nv(":path", "/tributary.demo.Echo/Say"),
        nv(":authority", "127.0.0.1:17000"),
        nv("content-type", "application/proto"),
        nv("triple-protocol-version", "0.1.0"),
        nv("content-length", length),
    };
    nghttp2_data_provider body = {.source.ptr = mem_zalloc(sizeof(size_t)),
                                  .read_callback = on_ng_body};
    check(nghttp2_submit_request(client->session, NULL, bare ? triple : framed, 7, &body, NULL) >
          0);
}

static void
open_peer(struct peer *peer, struct fake_socket *socket, bool server, bool bare)
{
    nghttp2_session_callbacks *callbacks;
    nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, CONNECTIONS * IN_FLIGHT},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, WINDOW},
    };
    void *form = bare ? peer : NULL;
    peer->socket = socket;
    nghttp2_session_callbacks_new(&callbacks);
    if (server) {
        nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_ng_request);
        nghttp2_session_server_new(&peer->session, callbacks, form);
    } else {
        nghttp2_session_callbacks_set_on_header_callback(callbacks, on_ng_reply_field);
        nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_ng_reply_data);
        nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_ng_reply_closed);
        nghttp2_session_client_new(&peer->session, callbacks, form);
    }
    nghttp2_session_callbacks_del(callbacks);
    nghttp2_submit_settings(peer->session, NGHTTP2_FLAG_NONE, settings, 2);
    nghttp2_session_set_local_window_size(peer->session, NGHTTP2_FLAG_NONE, 0, WINDOW);
}

/* --- batches --- */

static struct peer clients[CONNECTIONS], provider;

static void
turn(void)
{
    into_worker(NULL, NULL, 0);
}

static void
batch(unsigned calls_each)
{
    unsigned long due = replies + (unsigned long)CONNECTIONS * calls_each;
    for (unsigned i = 0; i < CONNECTIONS; i++)
        for (unsigned call = 0; call < calls_each; call++)
            ask(&clients[i]);
    for (unsigned turns = 0; replies < due && turns < 100; turns++) {
        for (unsigned i = 0; i < CONNECTIONS; i++)
            exchange(&clients[i]);
        turn();
        if (!provider.socket) {
            struct fake_socket *socket = fake_dialled();
            if (socket)
                open_peer(&provider, socket, true, provider_bare);
        }
        if (provider.socket)
            exchange(&provider);
        turn();
    }
    size_t body;
    body_of(the_case->bare_client, &body);
    failures += reply_bytes != replies * body;
    if (replies != due || failures > 0) {
        fprintf(stderr, "gate: %lu replies of %lu, %lu wrong\n", replies, due, failures);
        exit(1);
    }
}

static const struct gate_case *
find_case(const char *name)
{
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++)
        if (strcmp(CASES[i].name, name) == 0)
            return &CASES[i];
    return NULL;
}

/* gate without arguments: the names of the cases. */
static int
list_cases(void)
{
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++)
        puts(CASES[i].name);
    return 0;
}

int
main(int argc, char **argv)
{
    if (argc == 1)
        return list_cases();
    the_case = find_case(argv[1]);
    if (argc != 3 || !the_case) {
        fprintf(stderr, "usage: gate [CASE BATCHES]\n");
        return 2;
    }
    provider_bare = the_case->upstream[0] == 0;
    uint32_t size = (uint32_t)the_case->size;
    memset(message, 'm', sizeof(message));
    for (int i = 0; i < PREFIX; i++)
        message[i] = i == 0 ? 0 : (uint8_t)(size >> (32 - 8 * i));
    start_worker(the_case);
    for (unsigned i = 0; i < CONNECTIONS; i++)
        open_peer(&clients[i], fake_connect(0), false, the_case->bare_client);
    batch(1); /* connects, learns */
    for (long left = strtol(argv[2], NULL, 10); left > 0; left--)
        batch(IN_FLIGHT);
    printf("%s: %lu calls, all answered\n", the_case->name, replies);
    return 0;
}
