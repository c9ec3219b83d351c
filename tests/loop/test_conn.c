/* Connections against raw sockets: one write a turn, back-pressure, marks, and every way in which a
 * peer goes away. */
#include "loop_fixture.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "proxy/base/clock.h"

enum { BIG = 3 << 20 };

/* What a protocol would be: records events, fills from `to_send`. */
struct probe {
    struct loop_fixture *fixture;
    struct conn *conn;
    bool opened, lost, closed, got_any;
    int open_error, lost_error;
    uint8_t *got;
    size_t got_bytes;
    struct slices to_send; /* taken by fill() in parts */
    unsigned fills, written;
    struct conn *relay_to;
    unsigned heads_per_read;
    bool close_on_read, close_on_lost, no_read;
    _Atomic uint64_t reads, writes;
};

static void
on_open(struct conn *conn, int error)
{
    struct probe *probe = conn->owner;
    assert_false(probe->opened);
    probe->opened = true;
    probe->open_error = error;
    if (error)
        conn_close(conn);
    else if (!probe->no_read)
        conn_start_read(conn);
}

static void
on_read(struct conn *conn, const uint8_t *data, size_t len)
{
    struct probe *probe = conn->owner;
    assert_false(probe->lost);
    assert_true(probe->got_bytes + len <= BIG);
    memcpy(probe->got + probe->got_bytes, data, len);
    probe->got_bytes += len;
    probe->got_any = true;
    for (unsigned i = 0; i < probe->heads_per_read; i++)
        ctx_head_read(&probe->fixture->ctx);
    if (probe->relay_to) {
        conn_queue(probe->relay_to, data, len);
        conn_dirty(probe->relay_to);
    }
    if (probe->close_on_read)
        conn_close(conn);
}

static void
on_lost(struct conn *conn, int error)
{
    struct probe *probe = conn->owner;
    assert_false(probe->lost); /* once */
    probe->lost = true;
    probe->lost_error = error;
    if (probe->close_on_lost)
        conn_close(conn);
}

static void
on_fill(struct conn *conn)
{
    struct probe *probe = conn->owner;
    probe->fills++;
    while (probe->to_send.bytes > 0 && !conn_full(conn)) {
        uint64_t part = probe->to_send.bytes < 16384 ? probe->to_send.bytes : 16384;
        conn_queue_slices(conn, &probe->to_send, part);
    }
}

static void
on_written(struct conn *conn)
{
    struct probe *probe = conn->owner;
    probe->written++;
}

static void
on_closed(struct conn *conn)
{
    struct probe *probe = conn->owner;
    assert_false(probe->closed);
    probe->closed = true;
    probe->conn = NULL;
}

static const struct conn_events events = {on_open, on_read,    on_lost,
                                          on_fill, on_written, on_closed};

struct mark_probe {
    struct conn_mark mark;
    struct conn *conn;
    uint64_t fired_ns;
    bool fired, blocked, closes;
};

static void
on_flushed(struct conn_mark *mark, uint64_t now_ns, bool blocked)
{
    struct mark_probe *probe = container_of(mark, struct mark_probe, mark);
    probe->fired = true;
    probe->fired_ns = now_ns;
    probe->blocked = blocked;
    if (probe->closes)
        conn_close(probe->conn);
}

static void
set_mark(struct conn *conn, struct mark_probe *probe)
{
    probe->conn = conn;
    probe->mark.on_flushed = on_flushed;
    list_init(&probe->mark.node);
    conn_mark(conn, &probe->mark);
}

static struct probe *
probe_new(struct loop_fixture *fixture)
{
    struct probe *probe = calloc(1, sizeof *probe);
    probe->fixture = fixture;
    probe->got = malloc(BIG);
    probe->close_on_lost = true;
    slices_init(&probe->to_send);
    return probe;
}

static void
probe_free(struct probe *probe)
{
    if (probe->conn) {
        conn_close(probe->conn);
        loop_until(probe->fixture, &probe->closed);
    }
    slices_fini(&probe->to_send);
    free(probe->got);
    free(probe);
}

/* A client connection of ours to a raw peer; *peer is the peer's descriptor. */
static struct probe *
connected_with(struct loop_fixture *fixture, int *peer, bool no_read)
{
    struct address address;
    int listener = raw_listen(&address);
    struct probe *probe = probe_new(fixture);
    probe->no_read = no_read;
    assert_int_equal(
        conn_connect(&fixture->ctx, &address, NS_PER_S, NULL, NULL, &events, probe, &probe->conn),
        0);
    probe->conn->reads = &probe->reads;
    probe->conn->writes = &probe->writes;
    assert_false(probe->opened);
    *peer = raw_accept(fixture, listener);
    close(listener);
    loop_until(fixture, &probe->opened);
    assert_int_equal(probe->open_error, 0);
    return probe;
}

static struct probe *
connected(struct loop_fixture *fixture, int *peer)
{
    return connected_with(fixture, peer, false);
}

static uint8_t
pattern(size_t i)
{
    return (uint8_t)(i * 31 + i / 251);
}

static void
give_big_body(struct probe *probe)
{
    uint8_t *bytes = malloc(BIG);
    for (size_t i = 0; i < BIG; i++)
        bytes[i] = pattern(i);
    assert_true(slices_append(&probe->to_send, &probe->fixture->ctx.chunks, bytes, BIG, BIG));
    free(bytes);
}

static void
many_small_pieces_leave_in_one_write(void **state)
{
    struct loop_fixture *fixture = *state;
    int peer;
    struct probe *probe = connected(fixture, &peer);
    char expected[64 * 100 + 1] = "", got[64 * 100];
    struct mark_probe mark = {.fired = false};
    for (unsigned i = 0; i < 640; i++) {
        char piece[11];
        snprintf(piece, sizeof piece, "piece %03u;", i);
        conn_queue(probe->conn, piece, 10);
        memcpy(expected + 10 * i, piece, 10);
        conn_dirty(probe->conn);
    }
    assert_true(probe->conn->out.slices.count <= 2); /* 6400 bytes in two blocks: two iovecs */
    set_mark(probe->conn, &mark);
    uint64_t before_ns = clock_now_ns();
    assert_false(mark.fired);
    raw_recv(fixture, peer, got, 6400);
    assert_memory_equal(got, expected, 6400);
    assert_int_equal(probe->writes, 1);
    assert_int_equal(probe->fills, 1);
    assert_true(mark.fired);
    assert_false(mark.blocked);
    assert_true(mark.fired_ns >= before_ns);
    close(peer);
    probe_free(probe);
}

static void
pieces_and_chunk_references_keep_their_order(void **state)
{
    struct loop_fixture *fixture = *state;
    int peer;
    struct probe *probe = connected(fixture, &peer);
    uint8_t body[700], expected[40 * 800], got[40 * 800];
    size_t len = 0;
    for (unsigned i = 0; i < 40; i++) {
        size_t body_bytes = i % 2 ? 700 : 100; /* referred to, copied */
        struct slices slices;
        slices_init(&slices);
        memset(body, (int)i, sizeof body);
        assert_true(slices_append(&slices, &fixture->ctx.chunks, body, body_bytes, 0));
        conn_queue(probe->conn, "frame", 5);
        memcpy(expected + len, "frame", 5);
        conn_queue_slices(probe->conn, &slices, body_bytes);
        assert_int_equal(slices.bytes, 0);
        memcpy(expected + len + 5, body, body_bytes);
        len += 5 + body_bytes;
        slices_fini(&slices);
    }
    conn_dirty(probe->conn);
    raw_recv(fixture, peer, got, len);
    assert_memory_equal(got, expected, len);
    assert_int_equal(probe->writes, 1);
    assert_int_equal(atomic_load(&fixture->ctx.chunks.lease.used),
                     0); /* the queue let go of them */
    close(peer);
    probe_free(probe);
}

static void
protocol_bytes_need_no_budget(void **state)
{
    struct loop_fixture *fixture = *state;
    int peer;
    char got[5000], bytes[5000];
    struct probe *probe = connected(fixture, &peer);
    struct budget_lease hog;
    budget_lease_init(&hog, &fixture->budget);
    assert_true(budget_take(&hog, fixture->budget.total));
    memset(bytes, 'x', sizeof bytes);
    conn_queue(probe->conn, bytes, sizeof bytes);
    conn_dirty(probe->conn);
    raw_recv(fixture, peer, got, sizeof got);
    assert_memory_equal(got, bytes, sizeof got);
    budget_give(&hog, fixture->budget.total);
    budget_lease_fini(&hog);
    close(peer);
    probe_free(probe);
}

static void
a_full_socket_blocks_filling_and_marks_say_so(void **state)
{
    struct loop_fixture *fixture = *state;
    int peer, size = 32768;
    struct probe *probe = connected(fixture, &peer);
    uv_send_buffer_size(&probe->conn->handle, &size);
    give_big_body(probe);
    conn_dirty(probe->conn);
    loop_turn(fixture);
    loop_turn(fixture);
    assert_true(probe->conn->writing);
    assert_true(conn_full(probe->conn));
    unsigned fills = probe->fills;
    struct mark_probe mark = {.fired = false};
    set_mark(probe->conn, &mark);
    loop_run_ms(fixture, 20);
    assert_int_equal(probe->fills, fills); /* nothing is filled in while the peer does not read */
    assert_false(mark.fired);
    assert_true(probe->to_send.bytes > 0);
    uint8_t *got = malloc(BIG);
    raw_recv(fixture, peer, got, BIG);
    for (size_t i = 0; i < BIG; i++)
        if (got[i] != pattern(i))
            fail_msg("byte %zu", i);
    free(got);
    loop_run_ms(fixture, 5);
    assert_true(mark.fired);
    assert_true(mark.blocked);
    assert_true(probe->written > 0);
    assert_int_equal(probe->to_send.bytes, 0);
    assert_int_equal(atomic_load(&fixture->ctx.chunks.lease.used), 0);
    close(peer);
    probe_free(probe);
}

static void
closing_with_a_write_in_flight_drops_it(void **state)
{
    struct loop_fixture *fixture = *state;
    int peer, size = 32768;
    struct probe *probe = connected(fixture, &peer);
    uv_send_buffer_size(&probe->conn->handle, &size);
    give_big_body(probe);
    conn_dirty(probe->conn);
    struct mark_probe mark = {.fired = false};
    set_mark(probe->conn, &mark);
    probe->conn->out.queued += BIG; /* the mark lies behind everything */
    mark.mark.position = probe->conn->out.queued;
    probe->conn->out.queued -= BIG;
    loop_turn(fixture);
    loop_turn(fixture);
    assert_true(probe->conn->writing);
    conn_close(probe->conn);
    conn_close(probe->conn); /* again: harmless */
    assert_false(list_linked(&mark.mark.node));
    loop_until(fixture, &probe->closed);
    assert_false(mark.fired);
    assert_false(probe->lost);
    slices_clear(&probe->to_send);
    assert_int_equal(atomic_load(&fixture->ctx.chunks.lease.used), 0);
    close(peer);
    probe_free(probe);
}

static void
a_mark_may_close_its_connection(void **state)
{
    struct loop_fixture *fixture = *state;
    int peer;
    struct probe *probe = connected(fixture, &peer);
    struct mark_probe first = {.closes = true}, second = {.fired = false};
    conn_queue(probe->conn, "x", 1);
    set_mark(probe->conn, &first);
    set_mark(probe->conn, &second);
    loop_until(fixture, &probe->closed);
    assert_true(first.fired);
    assert_false(second.fired);
    close(peer);
    probe_free(probe);
}

static void
reading_delivers_and_eof_is_reported_once(void **state)
{
    struct loop_fixture *fixture = *state;
    int peer;
    struct probe *probe = connected(fixture, &peer);
    uint8_t *bytes = malloc(BIG);
    for (size_t i = 0; i < BIG; i++)
        bytes[i] = pattern(i);
    raw_send(fixture, peer, bytes, BIG - 7);
    raw_send(fixture, peer, bytes + BIG - 7, 7);
    close(peer);
    loop_until(fixture, &probe->lost);
    assert_int_equal(probe->lost_error, UV_EOF);
    assert_int_equal(probe->got_bytes, BIG);
    assert_memory_equal(probe->got, bytes, BIG);
    loop_until(fixture, &probe->closed);
    free(bytes);
    probe_free(probe);
}

static void
stopped_reading_reads_nothing(void **state)
{
    struct loop_fixture *fixture = *state;
    int peer;
    struct probe *probe = connected(fixture, &peer);
    conn_stop_read(probe->conn);
    raw_send(fixture, peer, "hello", 5);
    loop_run_ms(fixture, 20);
    assert_int_equal(probe->got_bytes, 0);
    conn_start_read(probe->conn);
    loop_until(fixture, &probe->got_any);
    assert_memory_equal(probe->got, "hello", 5);
    close(peer);
    probe_free(probe);
}

static void
a_reset_is_a_loss_with_its_error(void **state)
{
    struct loop_fixture *fixture = *state;
    int peer;
    struct probe *probe = connected(fixture, &peer);
    raw_reset(peer);
    loop_until(fixture, &probe->lost);
    assert_int_equal(probe->lost_error, UV_ECONNRESET);
    loop_until(fixture, &probe->closed);
    probe_free(probe);
}

static void
what_the_peer_said_before_it_closed_is_read_although_writing_fails(void **state)
{
    struct loop_fixture *fixture = *state;
    int peer;
    struct probe *probe = connected(fixture, &peer);
    conn_stop_read(probe->conn);
    raw_send(fixture, peer, "early reply", 11);
    close(peer); /* FIN; our next bytes draw a RST */
    conn_queue(probe->conn, "x", 1);
    conn_dirty(probe->conn);
    loop_run_ms(fixture, 20);
    conn_start_read(probe->conn);
    conn_queue(probe->conn, "y", 1);
    conn_dirty(probe->conn);
    loop_until(fixture, &probe->lost);
    assert_int_equal(probe->got_bytes, 11);
    assert_memory_equal(probe->got, "early reply", 11);
    loop_until(fixture, &probe->closed);
    probe_free(probe);
}

static void
a_write_error_without_reading_is_a_loss(void **state)
{
    struct loop_fixture *fixture = *state;
    int peer;
    struct probe *probe = connected_with(fixture, &peer, true);
    raw_reset(peer);
    loop_run_ms(fixture, 10);
    assert_false(probe->lost);
    conn_queue(probe->conn, "x", 1);
    conn_dirty(probe->conn);
    loop_until(fixture, &probe->lost);
    assert_true(probe->lost_error == UV_EPIPE || probe->lost_error == UV_ECONNRESET);
    loop_until(fixture, &probe->closed);
    probe_free(probe);
}

static void
closing_inside_on_read_is_fine(void **state)
{
    struct loop_fixture *fixture = *state;
    int peer;
    struct probe *probe = connected(fixture, &peer);
    probe->close_on_read = true;
    raw_send(fixture, peer, "x", 1);
    loop_until(fixture, &probe->closed);
    assert_false(probe->lost);
    close(peer);
    probe_free(probe);
}

static void
a_refused_connection_is_told_by_on_open(void **state)
{
    struct loop_fixture *fixture = *state;
    struct address address;
    close(raw_listen(&address)); /* a port that was just free */
    struct probe *probe = probe_new(fixture);
    assert_int_equal(
        conn_connect(&fixture->ctx, &address, NS_PER_S, NULL, NULL, &events, probe, &probe->conn),
        0);
    loop_until(fixture, &probe->closed);
    assert_int_equal(probe->open_error, UV_ECONNREFUSED);
    assert_false(probe->lost);
    probe_free(probe);
}

static void
without_descriptors_connecting_fails_at_once_and_leaves_nothing(void **state)
{
    struct loop_fixture *fixture = *state;
    struct address address;
    struct rlimit limit, none;
    int listener = raw_listen(&address);
    struct probe *probe = probe_new(fixture);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none = (struct rlimit){.rlim_cur = 3, .rlim_max = limit.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    int error =
        conn_connect(&fixture->ctx, &address, NS_PER_S, NULL, NULL, &events, probe, &probe->conn);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(error, UV_EMFILE);
    assert_null(probe->conn);
    loop_run_ms(fixture, 5);
    assert_false(probe->opened || probe->closed);
    close(listener);
    probe_free(probe);
}

static void
a_connection_that_is_not_answered_times_out(void **state)
{
    struct loop_fixture *fixture = *state;
    struct address address;
    int listener = raw_listen(&address), fillers[4];
    assert_int_equal(listen(listener, 0), 0); /* a backlog of one: later SYNs are dropped */
    for (unsigned i = 0; i < 4; i++) {
        fillers[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        (void)!connect(fillers[i], (struct sockaddr *)&address.storage, address.len);
    }
    struct probe *probe = probe_new(fixture);
    uint64_t start_ns = clock_now_ns();
    assert_int_equal(conn_connect(&fixture->ctx, &address, 60 * NS_PER_MS, NULL, NULL, &events,
                                  probe, &probe->conn),
                     0);
    loop_until(fixture, &probe->closed);
    assert_int_equal(probe->open_error, UV_ETIMEDOUT);
    assert_true(clock_now_ns() - start_ns >= 60 * NS_PER_MS);
    for (unsigned i = 0; i < 4; i++)
        close(fillers[i]);
    close(listener);
    probe_free(probe);
}

static void
closing_while_connecting_is_silent(void **state)
{
    struct loop_fixture *fixture = *state;
    struct address address;
    int listener = raw_listen(&address);
    struct probe *probe = probe_new(fixture);
    assert_int_equal(
        conn_connect(&fixture->ctx, &address, NS_PER_S, NULL, NULL, &events, probe, &probe->conn),
        0);
    conn_close(probe->conn);
    loop_until(fixture, &probe->closed);
    assert_false(probe->opened);
    close(listener);
    probe_free(probe);
}

/* ---- accepting, TCP and unix ---- */

struct acceptor {
    union {
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
    };
    struct probe *probe;
    bool accepted;
};

static void
on_uv_connection(uv_stream_t *stream, int status)
{
    struct acceptor *acceptor = stream->data;
    struct probe *probe = acceptor->probe;
    assert_int_equal(status, 0);
    assert_int_equal(conn_accept(&probe->fixture->ctx, stream, NULL, &events, probe, &probe->conn),
                     0);
    conn_start_read(probe->conn);
    acceptor->accepted = true;
}

static void
echo_over(struct loop_fixture *fixture, struct acceptor *acceptor, int peer)
{
    char got[5];
    loop_until(fixture, &acceptor->accepted);
    raw_send(fixture, peer, "hello", 5);
    loop_until(fixture, &acceptor->probe->got_any);
    conn_queue(acceptor->probe->conn, "again", 5);
    conn_dirty(acceptor->probe->conn);
    raw_recv(fixture, peer, got, 5);
    assert_memory_equal(got, "again", 5);
    uv_close((uv_handle_t *)&acceptor->stream, NULL);
    close(peer);
    loop_until(fixture, &acceptor->probe->closed);
    assert_int_equal(acceptor->probe->lost_error, UV_EOF);
}

/* A raw client whose connection the acceptor's probe has. */
static int
accepted(struct loop_fixture *fixture, struct acceptor *acceptor)
{
    struct address address;
    int len = sizeof address.storage;
    assert_int_equal(address_from_text(TEXT("127.0.0.1:0"), true, &address), 0);
    uv_tcp_init(&fixture->loop, &acceptor->tcp);
    acceptor->stream.data = acceptor;
    uv_tcp_bind(&acceptor->tcp, (struct sockaddr *)&address.storage, 0);
    assert_int_equal(uv_listen(&acceptor->stream, 16, on_uv_connection), 0);
    uv_tcp_getsockname(&acceptor->tcp, (struct sockaddr *)&address.storage, &len);
    int peer = raw_connect(&address);
    loop_until(fixture, &acceptor->accepted);
    return peer;
}

static void
accepts_tcp(void **state)
{
    struct loop_fixture *fixture = *state;
    struct acceptor acceptor = {.probe = probe_new(fixture)};
    int peer = accepted(fixture, &acceptor);
    assert_int_equal(strncmp(acceptor.probe->conn->peer, "127.0.0.1:", 10), 0);
    echo_over(fixture, &acceptor, peer);
    probe_free(acceptor.probe);
}

static void
accepts_and_connects_unix(void **state)
{
    struct loop_fixture *fixture = *state;
    struct acceptor acceptor = {.probe = probe_new(fixture)};
    char path[] = "/tmp/tributary-test-XXXXXX", text[64];
    struct address address;
    assert_non_null(mkdtemp(path));
    snprintf(text, sizeof text, "unix:%s/s", path);
    assert_int_equal(address_from_text(text_of(text), false, &address), 0);
    uv_pipe_init(&fixture->loop, &acceptor.pipe, 0);
    acceptor.stream.data = &acceptor;
    assert_int_equal(uv_pipe_bind(&acceptor.pipe, text + 5), 0);
    assert_int_equal(uv_listen(&acceptor.stream, 16, on_uv_connection), 0);
    struct probe *client = probe_new(fixture);
    assert_int_equal(
        conn_connect(&fixture->ctx, &address, NS_PER_S, NULL, NULL, &events, client, &client->conn),
        0);
    loop_until(fixture, &client->opened);
    assert_int_equal(client->open_error, 0);
    assert_string_equal(client->conn->peer, text);
    loop_until(fixture, &acceptor.accepted);
    conn_close(client->conn);
    loop_until(fixture, &client->closed);
    loop_until(fixture, &acceptor.probe->closed);
    probe_free(acceptor.probe);
    probe_free(client);
    acceptor.probe = probe_new(fixture);
    acceptor.accepted = false;
    echo_over(fixture, &acceptor, raw_connect(&address));
    probe_free(acceptor.probe);
    unlink(text + 5);
    rmdir(path);
}

static void
a_missing_unix_socket_is_told_by_on_open(void **state)
{
    struct loop_fixture *fixture = *state;
    struct address address;
    assert_int_equal(address_from_text(TEXT("unix:/nonexistent/socket"), false, &address), 0);
    struct probe *probe = probe_new(fixture);
    assert_int_equal(
        conn_connect(&fixture->ctx, &address, NS_PER_S, NULL, NULL, &events, probe, &probe->conn),
        0);
    loop_until(fixture, &probe->closed);
    assert_int_equal(probe->open_error, UV_ENOENT);
    probe_free(probe);
}

/* ---- conn_close_after_flush ---- */

static void
close_after_flush_sends_all_then_waits_for_fin(void **state)
{
    struct loop_fixture *fixture = *state;
    int peer, size = 32768;
    size_t len;
    struct probe *probe = connected(fixture, &peer);
    uv_send_buffer_size(&probe->conn->handle, &size);
    give_big_body(probe);
    conn_dirty(probe->conn);
    conn_close_after_flush(probe->conn);
    raw_send(fixture, peer, "unread by anyone",
             16); /* must not turn into a reset that eats the reply */
    uint8_t *got = malloc(BIG + 1);
    assert_int_equal(raw_recv_all(fixture, peer, got, BIG + 1, &len), 0);
    assert_int_equal(len, BIG);
    free(got);
    assert_false(probe->closed);
    assert_int_equal(probe->got_bytes, 0);
    uint64_t start_ns = clock_now_ns();
    close(peer);
    loop_until(fixture, &probe->closed);
    assert_true(clock_now_ns() - start_ns < NS_PER_S / 2);
    assert_false(probe->lost);
    probe_free(probe);
}

static void
close_after_flush_does_not_wait_for_ever(void **state)
{
    struct loop_fixture *fixture = *state;
    int peer;
    char byte;
    struct probe *probe = connected(fixture, &peer);
    uint64_t start_ns = clock_now_ns();
    conn_queue(probe->conn, "x", 1);
    conn_close_after_flush(probe->conn);
    raw_recv(fixture, peer, &byte, 1);
    loop_until(fixture, &probe->closed); /* the peer never closes */
    assert_true(clock_now_ns() - start_ns >= NS_PER_S * 9 / 10);
    assert_true(clock_now_ns() - start_ns < NS_PER_S * 3);
    close(peer);
    probe_free(probe);
}

static void
close_after_flush_after_the_peers_fin_still_sends(void **state)
{
    struct loop_fixture *fixture = *state;
    int peer, size = 32768;
    size_t len;
    struct probe *probe = connected(fixture, &peer);
    uv_send_buffer_size(&probe->conn->handle, &size);
    give_big_body(probe);
    conn_close_after_flush(probe->conn);
    shutdown(peer, SHUT_WR);
    loop_run_ms(fixture, 5);
    uint8_t *got = malloc(BIG + 1);
    assert_int_equal(raw_recv_all(fixture, peer, got, BIG + 1, &len), 0);
    assert_int_equal(len, BIG);
    free(got);
    loop_until(fixture, &probe->closed);
    close(peer);
    probe_free(probe);
}

static void
close_after_flush_ends_on_a_reset(void **state)
{
    struct loop_fixture *fixture = *state;
    int peer, size = 32768;
    struct probe *probe = connected(fixture, &peer);
    uv_send_buffer_size(&probe->conn->handle, &size);
    give_big_body(probe);
    conn_close_after_flush(probe->conn);
    loop_run_ms(fixture, 5);
    raw_reset(peer);
    loop_until(fixture, &probe->closed);
    assert_false(probe->lost);
    probe_free(probe);
}

/* What two connections read in one turn goes out on a third: merged, or each by itself. */
static void
merging_makes_one_write_of_what_several_connections_read(void **state)
{
    struct loop_fixture *fixture = *state;
    for (unsigned merge = 0; merge < 2; merge++) {
        int peers[2], sink_peer;
        char got[2];
        struct probe *sources[2], *sink = connected(fixture, &sink_peer);
        fixture->ctx.merge_writes = merge;
        for (unsigned i = 0; i < 2; i++) {
            sources[i] = connected(fixture, &peers[i]);
            sources[i]->relay_to = sink->conn;
        }
        for (unsigned i = 0; i < 2; i++)
            assert_int_equal(send(peers[i], "x", 1, 0), 1);
        raw_recv(fixture, sink_peer, got, 2);
        assert_int_equal(sink->writes, merge ? 1 : 2);
        for (unsigned i = 0; i < 2; i++) {
            close(peers[i]);
            probe_free(sources[i]);
        }
        close(sink_peer);
        probe_free(sink);
    }
}

/* More than CTX_FLUSH_BYTES is read in one turn (the reads follow each other while they fill their
 * buffers): it does not wait for the turn's end. */
static void
much_that_is_read_leaves_before_the_turn_is_over(void **state)
{
    struct loop_fixture *fixture = *state;
    enum { BYTES = 2 * CTX_FLUSH_BYTES };
    static uint8_t sent[BYTES], got[BYTES];
    int peer, sink_peer, buffer = 4 * BYTES;
    struct probe *source = connected(fixture, &peer), *sink = connected(fixture, &sink_peer);
    source->relay_to = sink->conn;
    setsockopt(peer, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer);
    size_t at = 0;
    for (ssize_t part; at < BYTES && (part = send(peer, sent + at, BYTES - at, MSG_DONTWAIT)) > 0;)
        at += (size_t)part;
    assert_true(at > CTX_FLUSH_BYTES);
    raw_recv(fixture, sink_peer, got, at);
    assert_true(sink->writes > 1);
    assert_true(source->reads > sink->writes); /* and yet not after each read */
    close(peer);
    close(sink_peer);
    probe_free(source);
    probe_free(sink);
}

/* Three connections are readable in the same turn, each read counts as half of CTX_FLUSH_HEADS:
 * what the first two gave leaves together, before the third is read. */
static void
many_heads_leave_before_the_turn_is_over(void **state)
{
    struct loop_fixture *fixture = *state;
    enum { SOURCES = 3 };
    int peers[SOURCES], sink_peer;
    char got[SOURCES];
    struct probe *sources[SOURCES], *sink = connected(fixture, &sink_peer);
    for (unsigned i = 0; i < SOURCES; i++) {
        sources[i] = connected(fixture, &peers[i]);
        sources[i]->relay_to = sink->conn;
        sources[i]->heads_per_read = CTX_FLUSH_HEADS / 2;
    }
    for (unsigned i = 0; i < SOURCES; i++)
        assert_int_equal(send(peers[i], "x", 1, 0), 1);
    raw_recv(fixture, sink_peer, got, SOURCES);
    assert_int_equal(sink->writes, 2);
    assert_int_equal(fixture->ctx.unflushed_heads, 0);
    for (unsigned i = 0; i < SOURCES; i++) {
        close(peers[i]);
        probe_free(sources[i]);
    }
    close(sink_peer);
    probe_free(sink);
}

static void
a_connection_over_loopback_is_not_paced(void **state)
{
    struct loop_fixture *fixture = *state;
    struct acceptor acceptor = {.probe = probe_new(fixture)};
    int peer = accepted(fixture, &acceptor);
    char name[16] = "";
    socklen_t len = sizeof name;
    uv_os_fd_t fd;
    assert_int_equal(uv_fileno(&acceptor.probe->conn->handle, &fd), 0);
    assert_int_equal(getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &len), 0);
    assert_string_equal(name, "reno");
    echo_over(fixture, &acceptor, peer);
    probe_free(acceptor.probe);
}

static void
flushing_by_hand_needs_no_turn(void **state)
{
    struct loop_fixture *fixture = *state;
    int peer;
    char got[2];
    struct probe *probe = connected(fixture, &peer);
    conn_queue(probe->conn, "ab", 2);
    conn_dirty(probe->conn);
    conn_flush(probe->conn);
    assert_int_equal(probe->writes, 1);
    assert_int_equal(recv(peer, got, 2, 0), 2);
    close(peer);
    probe_free(probe);
}

#define LOOP_TEST(name) cmocka_unit_test_setup_teardown(name, loop_setup, loop_teardown)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        LOOP_TEST(many_small_pieces_leave_in_one_write),
        LOOP_TEST(pieces_and_chunk_references_keep_their_order),
        LOOP_TEST(protocol_bytes_need_no_budget),
        LOOP_TEST(a_full_socket_blocks_filling_and_marks_say_so),
        LOOP_TEST(closing_with_a_write_in_flight_drops_it),
        LOOP_TEST(a_mark_may_close_its_connection),
        LOOP_TEST(reading_delivers_and_eof_is_reported_once),
        LOOP_TEST(stopped_reading_reads_nothing),
        LOOP_TEST(a_reset_is_a_loss_with_its_error),
        LOOP_TEST(what_the_peer_said_before_it_closed_is_read_although_writing_fails),
        LOOP_TEST(a_write_error_without_reading_is_a_loss),
        LOOP_TEST(closing_inside_on_read_is_fine),
        LOOP_TEST(a_refused_connection_is_told_by_on_open),
        LOOP_TEST(without_descriptors_connecting_fails_at_once_and_leaves_nothing),
        LOOP_TEST(a_connection_that_is_not_answered_times_out),
        LOOP_TEST(closing_while_connecting_is_silent),
        LOOP_TEST(accepts_tcp),
        LOOP_TEST(accepts_and_connects_unix),
        LOOP_TEST(a_missing_unix_socket_is_told_by_on_open),
        LOOP_TEST(close_after_flush_sends_all_then_waits_for_fin),
        LOOP_TEST(close_after_flush_does_not_wait_for_ever),
        LOOP_TEST(close_after_flush_after_the_peers_fin_still_sends),
        LOOP_TEST(close_after_flush_ends_on_a_reset),
        LOOP_TEST(merging_makes_one_write_of_what_several_connections_read),
        LOOP_TEST(much_that_is_read_leaves_before_the_turn_is_over),
        LOOP_TEST(many_heads_leave_before_the_turn_is_over),
        LOOP_TEST(a_connection_over_loopback_is_not_paced),
        LOOP_TEST(flushing_by_hand_needs_no_turn),
    };
    return cmocka_run_group_tests_name("conn", tests, NULL, NULL);
}
