/*
 * Pools against scripted providers: when they dial, whom they give what, and how they find out that
 * a provider is gone. Time is the test's where seconds matter: pool_check() is told it.
 */
#include "loop_fixture.h"

#include <sys/resource.h>
#include <unistd.h>

#include "proxy/base/clock.h"
#include "upstream/pool_private.h"

enum { MAX_WAITERS = 600, PREFACE_BYTES = 24 };
enum { F_HEADERS = 1, F_RST = 3, F_SETTINGS = 4, F_PING = 6, F_GOAWAY = 7, F_WINDOW = 8 };
enum { ACK = 1, END_STREAM = 1, END_HEADERS = 4 };

struct rig;

/* A call as the pool sees it. */
struct asker {
    struct pool_waiter waiter;
    struct rig *rig;
    struct stream *stream;
    struct pool_conn *conn;
    struct arena arena;
    struct fields head, trailers;
    bool granted, failed, answered, reset;
    uint32_t reset_error;
};

struct rig {
    struct loop_fixture *fixture;
    struct worker worker;
    struct snapshot snapshot;
    struct upstream_conf conf;
    struct endpoint_cells cells;
    struct target target;
    struct pool pool;
    uint32_t waiting;
    unsigned changes, troubles;
    unsigned granted, failed, answered, resets;
    int listener;
    struct asker askers[MAX_WAITERS];
    unsigned asker_count;
};

static void
on_change(struct target *target)
{
    container_of(target, struct rig, target)->changes++;
}

static void
on_trouble(struct target *target)
{
    container_of(target, struct rig, target)->troubles++;
}

static void
leave(struct asker *asker, enum pool_end end)
{
    struct stream *stream = asker->stream;
    asker->stream = NULL;
    pool_release(asker->conn, stream, end, NGHTTP2_CANCEL);
}

static struct rig *
rig_open(void **state, bool http1)
{
    struct rig *rig = calloc(1, sizeof(*rig));
    rig->fixture = *state;
    assert_int_equal(ctx_init(&rig->worker.ctx, &rig->fixture->loop, 0, &rig->fixture->budget), 0);
    rig->snapshot.stream_window = 1 << 20;
    rig->worker.snapshot = &rig->snapshot;
    rig->conf = (struct upstream_conf){.connections = 1,
                                       .max_connections = 8,
                                       .max_connections_http1 = 4,
                                       .max_pending = 1000,
                                       .connect_timeout_ns = NS_PER_S};
    rig->target = (struct target){.worker = &rig->worker,
                                  .conf = &rig->conf,
                                  .upstream = "up",
                                  .name = TEXT("here"),
                                  .cells = &rig->cells,
                                  .waiting = &rig->waiting,
                                  .on_change = on_change,
                                  .on_trouble = on_trouble};
    rig->listener = raw_listen(&rig->target.address);
    pool_init(&rig->pool, &rig->target, http1);
    return rig;
}

static void
rig_close(struct rig *rig)
{
    for (unsigned i = 0; i < rig->asker_count; i++) {
        struct asker *asker = &rig->askers[i];
        if (asker->stream)
            leave(asker, POOL_END_RESET);
        pool_leave(&rig->pool, &asker->waiter);
        arena_fini(&asker->arena);
    }
    pool_close(&rig->pool);
    ctx_flush(&rig->worker.ctx);
    pool_abort(&rig->pool);
    for (int i = 0; i < 200 && !pool_idle(&rig->pool); i++)
        loop_run_ms(rig->fixture, 1);
    assert_true(pool_idle(&rig->pool));
    assert_int_equal(rig->waiting, 0);
    assert_int_equal(stats_get(&rig->cells.connections), 0);
    assert_int_equal(stats_get(&rig->cells.streams), 0);
    pool_fini(&rig->pool);
    ctx_close(&rig->worker.ctx);
    loop_run_ms(rig->fixture, 5);
    ctx_fini(&rig->worker.ctx);
    if (rig->listener >= 0)
        close(rig->listener);
    free(rig);
}

/* --- calls --- */

static void
on_head(struct stream *stream, bool end)
{
    struct asker *asker = stream->owner;
    pool_heard(asker->conn);
    asker->answered = true;
    asker->rig->answered++;
    if (end)
        leave(asker, POOL_END_OVER);
}

static void
on_data(struct stream *stream, const uint8_t *data, size_t len)
{
    (void)data;
    stream_credit(stream, len);
}

static void
on_end(struct stream *stream, const struct fields *trailers)
{
    struct asker *asker = stream->owner;
    (void)trailers;
    leave(asker, POOL_END_OVER);
}

static void
on_reset(struct stream *stream, uint32_t error)
{
    struct asker *asker = stream->owner;
    pool_broken(asker->conn);
    asker->reset = true;
    asker->reset_error = error;
    asker->rig->resets++;
    leave(asker, POOL_END_OVER);
}

static void
on_sent(struct stream *stream, size_t bytes)
{
    (void)stream;
    (void)bytes;
}

static void
on_flushed(struct stream *stream, uint64_t now_ns, uint64_t stalled_ns)
{
    (void)stream;
    (void)now_ns;
    (void)stalled_ns;
}

static const struct stream_events EVENTS = {
    .on_head = on_head,
    .on_data = on_data,
    .on_end = on_end,
    .on_reset = on_reset,
    .on_sent = on_sent,
    .on_flushed = on_flushed,
};

static void
on_granted(struct pool_waiter *waiter, struct pool_conn *conn)
{
    struct asker *asker = container_of(waiter, struct asker, waiter);
    struct fields fields;
    struct slices body;
    asker->granted = true;
    asker->rig->granted++;
    asker->conn = conn;
    fields_init(&fields, &asker->arena);
    fields_add(&fields, TEXT(":method"), TEXT("POST"), FIELD_STATIC);
    fields_add(&fields, TEXT(":scheme"), TEXT("http"), FIELD_STATIC);
    fields_add(&fields, TEXT(":path"), TEXT("/s/m"), FIELD_STATIC);
    fields_add(&fields, TEXT(":authority"), TEXT("here"), FIELD_STATIC);
    fields_add(&fields, TEXT("content-length"), TEXT("2"), FIELD_STATIC);
    asker->stream = pool_request(conn, &fields, &EVENTS, asker, &asker->head, &asker->trailers);
    if (!asker->stream)
        return;
    slices_init(&body);
    assert_true(slices_append(&body, &asker->rig->worker.ctx.chunks, (const uint8_t *)"hi", 2, 2));
    stream_send_data(asker->stream, &body, true);
}

static void
on_failed(struct pool_waiter *waiter)
{
    struct asker *asker = container_of(waiter, struct asker, waiter);
    asker->failed = true;
    asker->rig->failed++;
}

static struct asker *
ask(struct rig *rig)
{
    assert_true(rig->asker_count < MAX_WAITERS);
    struct asker *asker = &rig->askers[rig->asker_count++];
    asker->rig = rig;
    arena_init(&asker->arena, NULL, 0);
    fields_init(&asker->head, &asker->arena);
    fields_init(&asker->trailers, &asker->arena);
    list_init(&asker->waiter.node);
    asker->waiter.on_granted = on_granted;
    asker->waiter.on_failed = on_failed;
    assert_true(pool_enter(&rig->pool, &asker->waiter));
    return asker;
}

/* --- a provider on HTTP/2, frame by frame --- */

static void
put_frame(struct rig *rig, int fd, int type, int flags, uint32_t id, const void *payload,
          size_t len)
{
    uint8_t frame[9 + 64] = {0, 0, (uint8_t)len, (uint8_t)type, (uint8_t)flags};
    uint32_t be_id = htonl(id);
    assert_true(len <= 64);
    memcpy(frame + 5, &be_id, 4);
    if (len)
        memcpy(frame + 9, payload, len);
    raw_send(rig->fixture, fd, frame, 9 + len);
}

static void
put_settings(struct rig *rig, int fd, uint32_t max_streams)
{
    uint8_t payload[6] = {0, 3};
    uint32_t be = htonl(max_streams);
    memcpy(payload + 2, &be, 4);
    put_frame(rig, fd, F_SETTINGS, 0, 0, payload, sizeof(payload));
}

static void
put_goaway(struct rig *rig, int fd, uint32_t last_id, uint32_t code)
{
    uint32_t payload[2] = {htonl(last_id), htonl(code)};
    put_frame(rig, fd, F_GOAWAY, 0, 0, payload, sizeof(payload));
}

/* ":status 200" from the static table. */
static void
put_reply(struct rig *rig, int fd, uint32_t id)
{
    put_frame(rig, fd, F_HEADERS, END_HEADERS | END_STREAM, id, "\x88", 1);
}

/* The next frame of this type, others skipped; its stream. payload: at least 16 bytes, or NULL. */
static uint32_t
await_frame(struct rig *rig, int fd, int type, uint8_t *flags, uint8_t *payload)
{
    for (;;) {
        uint8_t head[9], rest[65536];
        uint32_t be_id;
        raw_recv(rig->fixture, fd, head, sizeof(head));
        size_t len = (size_t)head[0] << 16 | (size_t)head[1] << 8 | head[2];
        assert_true(len <= sizeof(rest));
        raw_recv(rig->fixture, fd, rest, len);
        memcpy(&be_id, head + 5, 4);
        if (head[3] != type)
            continue;
        *flags = head[4];
        if (payload)
            memcpy(payload, rest, len < 16 ? len : 16);
        return ntohl(be_id);
    }
}

static uint32_t
await_request(struct rig *rig, int fd)
{
    uint8_t flags;
    return await_frame(rig, fd, F_HEADERS, &flags, NULL);
}

static int
accept_h2(struct rig *rig)
{
    char preface[PREFACE_BYTES];
    int fd = raw_accept(rig->fixture, rig->listener);
    raw_recv(rig->fixture, fd, preface, sizeof(preface));
    assert_memory_equal(preface, "PRI * HTTP/2.0", 14);
    return fd;
}

static bool
nobody_connects(struct rig *rig, unsigned ms)
{
    loop_run_ms(rig->fixture, ms);
    int fd = accept(rig->listener, NULL, NULL);
    if (fd >= 0)
        close(fd);
    return fd < 0;
}

/* How many connections come within that time; they are closed at once. */
static unsigned
count_dials(struct rig *rig, unsigned ms)
{
    unsigned count = 0;
    uint64_t end_ns = clock_now_ns() + ms * NS_PER_MS;
    while (clock_now_ns() < end_ns) {
        int fd = accept(rig->listener, NULL, NULL);
        if (fd >= 0) {
            count++;
            close(fd);
        }
        loop_run_ms(rig->fixture, 2);
    }
    return count;
}

static uint64_t
in_s(unsigned seconds)
{
    return clock_now_ns() + seconds * NS_PER_S;
}

/* One answered call: the connection has been of use. */
static int
used_connection(struct rig *rig)
{
    struct asker *asker = ask(rig);
    int fd = accept_h2(rig);
    put_settings(rig, fd, 100);
    put_reply(rig, fd, await_request(rig, fd));
    loop_until(rig->fixture, &asker->answered);
    loop_run_ms(rig->fixture, 2);
    return fd;
}

/* --- dialling --- */

static void
calls_wait_for_settings_before_another_connection_is_dialled(void **state)
{
    struct rig *rig = rig_open(state, false);
    for (int i = 0; i < 500; i++)
        ask(rig);
    int first = accept_h2(rig);
    assert_int_equal(await_request(rig, first), 1);
    assert_true(nobody_connects(rig, 50));
    assert_int_equal(rig->granted, 100); /* what RFC 9113 suggests before SETTINGS */
    put_settings(rig, first, 250);
    int second = accept_h2(rig);
    loop_until_count(rig->fixture, &rig->granted, 350);
    assert_true(nobody_connects(rig, 50));
    put_settings(rig, second, 250);
    loop_until_count(rig->fixture, &rig->granted, 500);
    assert_int_equal(rig->pool.connection_count, 2);
    close(first);
    close(second);
    rig_close(rig);
}

static void
a_known_limit_counts_for_the_next_connection_before_its_settings(void **state)
{
    struct rig *rig = rig_open(state, false);
    int first = used_connection(rig);
    put_settings(rig, first, 3);
    loop_run_ms(rig->fixture, 5);
    for (int i = 0; i < 10; i++)
        ask(rig);
    int second = accept_h2(rig);
    loop_run_ms(rig->fixture, 20);
    assert_int_equal(rig->granted, 1 + 3 + 3);
    close(first);
    close(second);
    rig_close(rig);
}

static void
dials_are_few_while_a_provider_refuses(void **state)
{
    struct rig *rig = rig_open(state, false);
    close(rig->listener);
    rig->listener = -1;
    ask(rig);
    loop_until_count(rig->fixture, &rig->failed, 1);
    assert_true(pool_in_backoff(&rig->pool));
    assert_false(pool_usable(&rig->pool));
    assert_string_equal(rig->pool.error, "connection refused");
    loop_run_ms(rig->fixture, 1000);
    uint64_t failures = stats_get(&rig->cells.failures);
    assert_in_range(failures, 4, 6); /* at 0, 50, 150, 350, 750 ms, with a fifth of jitter */
    assert_int_equal(rig->troubles, failures);
    rig_close(rig);
}

static void
dials_are_few_when_every_connection_is_reset(void **state)
{
    struct rig *rig = rig_open(state, false);
    ask(rig);
    unsigned dials = count_dials(rig, 1200);
    assert_in_range(dials, 4, 8);
    assert_int_equal(rig->pool.failures, dials);
    rig_close(rig);
}

static void
a_call_that_waits_after_a_failure_is_not_sent_before_settings(void **state)
{
    struct rig *rig = rig_open(state, false);
    ask(rig);
    int fd = accept_h2(rig);
    close(fd);
    while (rig->pool.failures == 0)
        loop_run_ms(rig->fixture, 1);
    fd = accept_h2(rig); /* dialled by itself when the backoff is over */
    struct asker *second = ask(rig);
    loop_run_ms(rig->fixture, 30);
    assert_false(second->granted);
    put_settings(rig, fd, 100);
    loop_until(rig->fixture, &second->granted);
    put_reply(rig, fd, await_request(rig, fd));
    loop_until(rig->fixture, &second->answered);
    assert_int_equal(rig->pool.failures, 0);
    assert_true(pool_healthy(&rig->pool));
    close(fd);
    rig_close(rig);
}

static void
no_descriptor_left_fails_the_call_at_once(void **state)
{
    struct rig *rig = rig_open(state, false);
    struct rlimit old, none;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    none = old;
    none.rlim_cur = 3;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    struct asker *asker = ask(rig);
    assert_true(asker->failed);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    assert_true(pool_in_backoff(&rig->pool));
    int fd = accept_h2(rig); /* it comes back by itself */
    close(fd);
    rig_close(rig);
}

static void
max_pending_calls_wait_and_no_more(void **state)
{
    struct rig *rig = rig_open(state, false);
    rig->conf.max_pending = 2;
    ask(rig);
    ask(rig);
    struct asker extra = {.waiter = {.on_granted = on_granted, .on_failed = on_failed}};
    list_init(&extra.waiter.node);
    assert_false(pool_enter(&rig->pool, &extra.waiter));
    pool_leave(&rig->pool, &rig->askers[0].waiter);
    assert_int_equal(rig->waiting, 1);
    rig_close(rig);
}

/* --- GOAWAY and exhausted ids --- */

static void
the_first_goaway_before_any_use_is_forgiven(void **state)
{
    struct rig *rig = rig_open(state, false);
    ask(rig);
    int fd = accept_h2(rig);
    put_settings(rig, fd, 100);
    await_request(rig, fd);
    put_goaway(rig, fd, 0, NGHTTP2_NO_ERROR);
    loop_until_count(rig->fixture, &rig->resets, 1);
    assert_int_equal(rig->askers[0].reset_error, STREAM_NOT_PROCESSED);
    ask(rig);
    int again = accept_h2(rig);
    assert_int_equal(stats_get(&rig->cells.failures), 0);
    await_request(rig, again);
    put_settings(rig, again, 100);
    put_goaway(rig, again, 0, NGHTTP2_NO_ERROR);
    loop_until_count(rig->fixture, &rig->resets, 2);
    loop_run_ms(rig->fixture, 5);
    assert_int_equal(stats_get(&rig->cells.failures), 1); /* the second in a row is not */
    close(fd);
    close(again);
    rig_close(rig);
}

static void
a_used_connection_that_goes_away_is_no_failure(void **state)
{
    struct rig *rig = rig_open(state, false);
    int fd = used_connection(rig);
    put_goaway(rig, fd, 1, NGHTTP2_NO_ERROR);
    loop_run_ms(rig->fixture, 10);
    assert_int_equal(rig->pool.connection_count, 0);
    assert_int_equal(stats_get(&rig->cells.failures), 0);
    close(fd);
    fd = used_connection(rig);
    close(fd);
    rig_close(rig);
}

static void
streams_that_are_left_after_a_goaway_end(void **state)
{
    struct rig *rig = rig_open(state, false);
    int fd = used_connection(rig);
    struct asker *asker = ask(rig);
    uint32_t id = await_request(rig, fd);
    put_goaway(rig, fd, id, NGHTTP2_NO_ERROR);
    loop_run_ms(rig->fixture, 5);
    pool_check(&rig->pool, in_s(9));
    loop_run_ms(rig->fixture, 5);
    assert_false(asker->reset);
    pool_check(&rig->pool, in_s(11));
    loop_until(rig->fixture, &asker->reset);
    assert_int_equal(asker->reset_error, STREAM_LOST);
    assert_int_equal(stats_get(&rig->cells.failures), 0);
    close(fd);
    rig_close(rig);
}

static void
a_connection_whose_stream_ids_are_used_up_makes_room(void **state)
{
    struct rig *rig = rig_open(state, false);
    int fd = used_connection(rig);
    struct pool_conn *conn = pool_conn_of(rig->pool.connections.next);
    assert_int_equal(nghttp2_session_set_next_stream_id(conn->h2->session, INT32_MAX), 0);
    struct asker *last = ask(rig);
    assert_int_equal(await_request(rig, fd), INT32_MAX);
    assert_int_equal(rig->pool.connection_count, 0);
    struct asker *next = ask(rig);
    int fresh = accept_h2(rig);
    assert_int_equal(await_request(rig, fresh), 1);
    assert_true(next->granted);
    put_reply(rig, fd, INT32_MAX);
    loop_until(rig->fixture, &last->answered);
    loop_run_ms(rig->fixture, 5);
    assert_true(list_empty(&rig->pool.retired)); /* closed as it emptied */
    close(fd);
    close(fresh);
    rig_close(rig);
}

/* --- resets --- */

/* Reads what has come, without waiting: RST_STREAMs and whether a GOAWAY was among them. */
static unsigned
count_resets(struct rig *rig, int fd, bool *goaway)
{
    unsigned resets = 0;
    loop_run_ms(rig->fixture, 20);
    *goaway = false;
    for (;;) {
        uint8_t head[9], rest[1024];
        if (recv(fd, head, sizeof(head), 0) != sizeof(head))
            return resets;
        size_t len = (size_t)head[1] << 8 | head[2];
        assert_true(len <= sizeof(rest));
        if (len)
            assert_int_equal(recv(fd, rest, len, 0), len);
        resets += head[3] == F_RST;
        *goaway |= head[3] == F_GOAWAY;
    }
}

static void
a_connection_with_many_counted_resets_is_retired_and_ended(void **state)
{
    struct rig *rig = rig_open(state, false);
    bool goaway;
    int fd = used_connection(rig);
    put_settings(rig, fd, 400);
    loop_run_ms(rig->fixture, 5);
    for (int i = 0; i < 300; i++)
        ask(rig);
    loop_run_ms(rig->fixture, 20);
    for (int i = 1; i <= 150; i++)
        leave(&rig->askers[i], POOL_END_RESET_COUNTED);
    assert_int_equal(rig->pool.connection_count, 0);
    struct asker *next = ask(rig);
    int fresh = accept_h2(rig);
    loop_until(rig->fixture, &next->granted); /* elsewhere */
    for (int i = 151; i < 300; i++)
        leave(&rig->askers[i], POOL_END_RESET_COUNTED);
    assert_int_equal(count_resets(rig, fd, &goaway), 190);
    assert_false(goaway); /* one call goes on */
    leave(&rig->askers[300], POOL_END_RESET_COUNTED);
    count_resets(rig, fd, &goaway);
    assert_true(goaway); /* nobody is left: what was not reset ends with the connection */
    assert_int_equal(stats_get(&rig->cells.failures), 0);
    close(fd);
    close(fresh);
    rig_close(rig);
}

static void
resets_that_nobody_counts_have_no_limit(void **state)
{
    struct rig *rig = rig_open(state, false);
    bool goaway;
    int fd = used_connection(rig);
    put_settings(rig, fd, 400);
    loop_run_ms(rig->fixture, 5);
    for (int i = 0; i < 300; i++)
        ask(rig);
    loop_run_ms(rig->fixture, 20);
    for (int i = 1; i <= 300; i++)
        leave(&rig->askers[i], POOL_END_RESET);
    assert_int_equal(count_resets(rig, fd, &goaway), 300);
    assert_int_equal(rig->pool.connection_count, 1);
    close(fd);
    rig_close(rig);
}

/* --- keepalive --- */

static void
a_provider_that_does_not_answer_a_ping_is_lost(void **state)
{
    struct rig *rig = rig_open(state, false);
    uint8_t flags, payload[16];
    int fd = used_connection(rig);
    struct asker *asker = ask(rig);
    await_request(rig, fd);
    pool_check(&rig->pool, in_s(9));
    pool_check(&rig->pool, in_s(11));
    await_frame(rig, fd, F_PING, &flags, payload);
    assert_int_equal(flags, 0);
    pool_check(&rig->pool, in_s(18));
    loop_run_ms(rig->fixture, 5);
    assert_false(asker->reset);
    pool_check(&rig->pool, in_s(20));
    loop_until(rig->fixture, &asker->reset);
    assert_int_equal(asker->reset_error, STREAM_LOST);
    loop_run_ms(rig->fixture, 2);
    assert_int_equal(stats_get(&rig->cells.failures), 1);
    assert_string_equal(rig->pool.error, "it does not answer PING");
    close(fd);
    rig_close(rig);
}

static void
an_idle_connection_is_not_pinged(void **state)
{
    struct rig *rig = rig_open(state, false);
    int fd = used_connection(rig);
    const struct pool_conn *conn = pool_conn_of(rig->pool.connections.next);
    for (unsigned s = 0; s < 1000; s += 5)
        pool_check(&rig->pool, in_s(s));
    assert_int_equal(conn->keepalive.last_ping_ns, 0);
    close(fd);
    rig_close(rig);
}

static void
a_call_after_a_long_idle_time_is_not_pinged_at_once(void **state)
{
    struct rig *rig = rig_open(state, false);
    int fd = used_connection(rig);
    struct pool_conn *conn = pool_conn_of(rig->pool.connections.next);
    conn->h2->last_read_ns -= 5 * NS_PER_S; /* idle since then */
    ask(rig);
    await_request(rig, fd);
    pool_check(&rig->pool, in_s(8));
    assert_int_equal(conn->keepalive.last_ping_ns, 0);
    close(fd);
    rig_close(rig);
}

/* What grpc's servers hold against a client (grpc-go, http2_server.go's rules in words): a PING
 * within five minutes of the last one is a strike, the third strike in a row ends the connection;
 * sending HEADERS or DATA wipes them. */
struct strict_server {
    uint64_t last_ping_ns;
    unsigned strikes, pings;
};

static void
strict_ping(struct strict_server *server, uint64_t now_ns)
{
    if (server->last_ping_ns && now_ns < server->last_ping_ns + 300 * NS_PER_S)
        server->strikes++;
    server->last_ping_ns = now_ns;
    server->pings++;
    assert_true(server->strikes <= 2);
}

/* Lets that many seconds pass, one by one, each PING answered. `every`: a request is sent so often;
 * 0: never. */
static void
live_on(struct rig *rig, int fd, struct strict_server *server, unsigned seconds, unsigned every)
{
    uint64_t start_ns = clock_now_ns();
    const struct pool_conn *conn = pool_conn_of(rig->pool.connections.next);
    for (unsigned s = 1; s <= seconds; s++) {
        uint64_t now_ns = start_ns + s * NS_PER_S, before = conn->keepalive.last_ping_ns;
        uint8_t flags, payload[16];
        if (every && s % every == 0)
            ask(rig);
        pool_check(&rig->pool, now_ns);
        if (conn->keepalive.last_ping_ns == before)
            continue;
        strict_ping(server, now_ns);
        await_frame(rig, fd, F_PING, &flags, payload);
        put_frame(rig, fd, F_PING, ACK, 0, payload, 8);
        for (int i = 0; i < 100 && conn->keepalive.pinged_ns; i++)
            loop_run_ms(rig->fixture, 1);
        assert_int_equal(conn->keepalive.pinged_ns, 0);
    }
}

static void
a_silent_stream_does_not_annoy_a_strict_server(void **state)
{
    struct rig *rig = rig_open(state, false);
    struct strict_server server = {0};
    int fd = used_connection(rig);
    ask(rig);
    await_request(rig, fd);
    live_on(rig, fd, &server, 3600, 0);
    assert_in_range(server.pings, 10, 13);
    close(fd);
    rig_close(rig);
}

static void
slow_calls_on_a_silent_connection_do_not_either(void **state)
{
    struct rig *rig = rig_open(state, false);
    struct strict_server server = {0};
    int fd = used_connection(rig);
    ask(rig);
    await_request(rig, fd);
    live_on(rig, fd, &server, 1500, 15);
    assert_in_range(server.pings, 3, 15);
    close(fd);
    rig_close(rig);
}

static void
a_provider_that_finds_it_too_much_gets_fewer_pings(void **state)
{
    struct rig *rig = rig_open(state, false);
    int fd = used_connection(rig);
    uint64_t before = rig->pool.keepalive_ns;
    put_goaway(rig, fd, 1, NGHTTP2_ENHANCE_YOUR_CALM);
    loop_run_ms(rig->fixture, 10);
    assert_int_equal(rig->pool.keepalive_ns, before * 2);
    close(fd);
    rig_close(rig);
}

/* --- HTTP/1.1 --- */

static void
reply_h1(struct rig *rig, int fd)
{
    char head[64], *at = head;
    for (*at = 0; !strstr(head, "\r\n\r\nhi");) { /* the last of it is enough */
        char byte;
        raw_recv(rig->fixture, fd, &byte, 1);
        if (at == head + sizeof(head) - 1)
            memmove(head, head + 1, (size_t)(--at - head));
        *at++ = byte;
        *at = 0;
    }
    static const char reply[] = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
    raw_send(rig->fixture, fd, reply, sizeof(reply) - 1);
}

static void
an_http1_connection_is_kept_and_closed_when_it_was_idle_for_long(void **state)
{
    struct rig *rig = rig_open(state, true);
    ask(rig);
    int fd = raw_accept(rig->fixture, rig->listener);
    reply_h1(rig, fd);
    loop_until_count(rig->fixture, &rig->answered, 1);
    loop_run_ms(rig->fixture, 2);
    pool_check(&rig->pool, in_s(29));
    ask(rig);
    reply_h1(rig, fd);
    loop_until_count(rig->fixture, &rig->answered, 2);
    loop_run_ms(rig->fixture, 2);
    pool_check(&rig->pool, in_s(31));
    char byte;
    size_t got;
    assert_int_equal(raw_recv_all(rig->fixture, fd, &byte, 1, &got), 0);
    assert_int_equal(stats_get(&rig->cells.failures), 0);
    assert_int_equal(stats_get(&rig->cells.opened), 1);
    close(fd);
    rig_close(rig);
}

static void
an_http1_connection_that_closes_while_idle_is_noticed(void **state)
{
    struct rig *rig = rig_open(state, true);
    ask(rig);
    int fd = raw_accept(rig->fixture, rig->listener);
    reply_h1(rig, fd);
    loop_until_count(rig->fixture, &rig->answered, 1);
    close(fd);
    loop_run_ms(rig->fixture, 20);
    assert_int_equal(rig->pool.connection_count, 0);
    assert_int_equal(stats_get(&rig->cells.failures), 0);
    rig_close(rig);
}

static void
http1_dials_as_many_as_wait_up_to_the_most(void **state)
{
    struct rig *rig = rig_open(state, true);
    int fds[4];
    ask(rig);
    ask(rig);
    assert_int_equal(rig->pool.connecting, 2);
    for (int i = 0; i < 6; i++)
        ask(rig);
    assert_int_equal(rig->pool.connection_count, 4);
    for (int i = 0; i < 4; i++)
        fds[i] = raw_accept(rig->fixture, rig->listener);
    loop_until_count(rig->fixture, &rig->granted, 4);
    reply_h1(rig, fds[0]);
    loop_until_count(rig->fixture, &rig->granted, 5); /* the next goes where one is done */
    assert_true(nobody_connects(rig, 20));
    for (int i = 0; i < 4; i++)
        close(fds[i]);
    rig_close(rig);
}

static void
http1_dials_are_few_when_every_connection_is_closed(void **state)
{
    struct rig *rig = rig_open(state, true);
    ask(rig);
    assert_in_range(count_dials(rig, 1200), 4, 8);
    rig_close(rig);
}

/* --- stopping --- */

static void
closing_says_goodbye_and_waits_for_nobody(void **state)
{
    struct rig *rig = rig_open(state, false);
    uint8_t flags, payload[16];
    int fd = used_connection(rig);
    pool_close(&rig->pool);
    ctx_flush(&rig->worker.ctx);
    loop_turn(rig->fixture);
    loop_turn(rig->fixture);
    assert_true(pool_idle(&rig->pool));
    await_frame(rig, fd, F_GOAWAY, &flags, payload);
    close(fd);
    rig_close(rig);
}

static void
closing_fails_those_who_wait(void **state)
{
    struct rig *rig = rig_open(state, false);
    struct asker *asker = ask(rig);
    pool_close(&rig->pool);
    assert_true(asker->failed);
    rig_close(rig);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, loop_setup, loop_teardown)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(calls_wait_for_settings_before_another_connection_is_dialled),
        TEST(a_known_limit_counts_for_the_next_connection_before_its_settings),
        TEST(dials_are_few_while_a_provider_refuses),
        TEST(dials_are_few_when_every_connection_is_reset),
        TEST(a_call_that_waits_after_a_failure_is_not_sent_before_settings),
        TEST(no_descriptor_left_fails_the_call_at_once),
        TEST(max_pending_calls_wait_and_no_more),
        TEST(the_first_goaway_before_any_use_is_forgiven),
        TEST(a_used_connection_that_goes_away_is_no_failure),
        TEST(streams_that_are_left_after_a_goaway_end),
        TEST(a_connection_whose_stream_ids_are_used_up_makes_room),
        TEST(a_connection_with_many_counted_resets_is_retired_and_ended),
        TEST(resets_that_nobody_counts_have_no_limit),
        TEST(a_provider_that_does_not_answer_a_ping_is_lost),
        TEST(an_idle_connection_is_not_pinged),
        TEST(a_call_after_a_long_idle_time_is_not_pinged_at_once),
        TEST(a_silent_stream_does_not_annoy_a_strict_server),
        TEST(slow_calls_on_a_silent_connection_do_not_either),
        TEST(a_provider_that_finds_it_too_much_gets_fewer_pings),
        TEST(an_http1_connection_is_kept_and_closed_when_it_was_idle_for_long),
        TEST(an_http1_connection_that_closes_while_idle_is_noticed),
        TEST(http1_dials_as_many_as_wait_up_to_the_most),
        TEST(http1_dials_are_few_when_every_connection_is_closed),
        TEST(closing_says_goodbye_and_waits_for_nobody),
        TEST(closing_fails_those_who_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
