/* TLS connections of ours with each other, over a relay that can cut, and with peers that are none.
 */
#include "loop_fixture.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "proxy/base/clock.h"
#include "proxy/net/tls.h"
#include "tls_files.h"

enum { BIG = 3 << 20 };

static struct tls_files files;

/* One end. */
struct end {
    struct loop_fixture *fixture;
    struct conn *conn;
    bool opened, lost, closed;
    int open_error, lost_error;
    uint8_t *got;
    unsigned got_bytes;
    struct slices to_send;
    bool mark_fired, finish;
    struct conn_mark mark;
};

static void
on_open(struct conn *conn, int error)
{
    struct end *end = conn->owner;
    end->opened = true;
    end->open_error = error;
    if (error)
        conn_close(conn);
    else
        conn_start_read(conn);
}

static void
on_read(struct conn *conn, const uint8_t *data, size_t len)
{
    struct end *end = conn->owner;
    assert_true(end->got_bytes + len <= BIG);
    memcpy(end->got + end->got_bytes, data, len);
    end->got_bytes += (unsigned)len;
}

static void
on_lost(struct conn *conn, int error)
{
    struct end *end = conn->owner;
    end->lost = true;
    end->lost_error = error;
    conn_close(conn);
}

static void
on_fill(struct conn *conn)
{
    struct end *end = conn->owner;
    while (end->to_send.bytes > 0 && !conn_full(conn))
        conn_queue_slices(conn, &end->to_send,
                          end->to_send.bytes < 20000 ? end->to_send.bytes : 20000);
}

static void
on_closed(struct conn *conn)
{
    struct end *end = conn->owner;
    end->closed = true;
    end->conn = NULL;
}

static const struct conn_events events = {on_open, on_read, on_lost, on_fill, NULL, on_closed};

static void
on_flushed(struct conn_mark *mark, uint64_t now_ns, bool blocked)
{
    (void)now_ns, (void)blocked;
    container_of(mark, struct end, mark)->mark_fired = true;
}

/* Both ends, and what they are made with. */
struct pair {
    struct loop_fixture *fixture;
    struct tls_context *server_context, *client_context;
    struct end server, client;
    uv_tcp_t listener;
    struct address address;
    bool accepted;
};

static void
end_init(struct end *end, struct loop_fixture *fixture)
{
    end->fixture = fixture;
    end->got = malloc(BIG);
    end->mark.on_flushed = on_flushed;
    list_init(&end->mark.node);
    slices_init(&end->to_send);
}

static void
end_fini(struct end *end)
{
    if (end->conn) {
        conn_close(end->conn);
        loop_until(end->fixture, &end->closed);
    }
    slices_fini(&end->to_send);
    free(end->got);
}

static void
on_uv_connection(uv_stream_t *stream, int status)
{
    struct pair *pair = stream->data;
    assert_int_equal(status, 0);
    assert_int_equal(conn_accept(&pair->fixture->ctx, stream, pair->server_context, &events,
                                 &pair->server, &pair->server.conn),
                     0);
    conn_start_read(pair->server.conn);
    pair->accepted = true;
}

/* Contexts and a listener; client_ca: mutual. */
static struct pair *
pair_new(struct loop_fixture *fixture, const char *client_ca, const char *trusted, const char *cert,
         const char *key)
{
    struct pair *pair = calloc(1, sizeof *pair);
    struct strbuf error = STRBUF_INIT;
    int len = sizeof pair->address.storage;
    pair->fixture = fixture;
    end_init(&pair->server, fixture);
    end_init(&pair->client, fixture);
    assert_int_equal(tls_context_server(files.server_cert, files.server_key, client_ca,
                                        &pair->server_context, &error),
                     0);
    assert_int_equal(tls_context_client(trusted, cert, key, &pair->client_context, &error), 0);
    assert_int_equal(address_from_text(TEXT("127.0.0.1:0"), true, &pair->address), 0);
    uv_tcp_init(&fixture->loop, &pair->listener);
    pair->listener.data = pair;
    uv_tcp_bind(&pair->listener, (struct sockaddr *)&pair->address.storage, 0);
    assert_int_equal(uv_listen((uv_stream_t *)&pair->listener, 4, on_uv_connection), 0);
    uv_tcp_getsockname(&pair->listener, (struct sockaddr *)&pair->address.storage, &len);
    return pair;
}

static void
dial(struct pair *pair, const struct address *address, const char *name)
{
    assert_int_equal(conn_connect(&pair->fixture->ctx, address, 2 * NS_PER_S, pair->client_context,
                                  name, &events, &pair->client, &pair->client.conn),
                     0);
}

static void
pair_free(struct pair *pair)
{
    uv_close((uv_handle_t *)&pair->listener, NULL);
    end_fini(&pair->client);
    end_fini(&pair->server);
    loop_turn(pair->fixture);
    tls_context_unref(
        pair->server_context); /* after the sessions: they hold references of their own */
    tls_context_unref(pair->client_context);
    free(pair);
}

static struct pair *
plain_pair(struct loop_fixture *fixture)
{
    return pair_new(fixture, NULL, files.ca, NULL, NULL);
}

static uint8_t
pattern(size_t i)
{
    return (uint8_t)(i * 13 + i / 509);
}

static void
give(struct end *end, size_t bytes)
{
    uint8_t *body = malloc(bytes);
    for (size_t i = 0; i < bytes; i++)
        body[i] = pattern(i);
    assert_true(slices_append(&end->to_send, &end->fixture->ctx.chunks, body, bytes, bytes));
    free(body);
    conn_dirty(end->conn);
}

static void
check_got(struct end *end, unsigned bytes)
{
    loop_until_count(end->fixture, &end->got_bytes, bytes);
    assert_int_equal(end->got_bytes, bytes);
    for (unsigned i = 0; i < bytes; i++)
        if (end->got[i] != pattern(i))
            fail_msg("byte %u", i);
}

static void
bodies_pass_both_ways_and_alpn_is_h2(void **state)
{
    struct pair *pair = plain_pair(*state);
    int size = 32768;
    dial(pair, &pair->address, "provider.test");
    loop_until(pair->fixture, &pair->client.opened);
    assert_int_equal(pair->client.open_error, 0);
    uv_send_buffer_size(&pair->client.conn->handle, &size); /* blocked writes, too */
    assert_string_equal(conn_protocol(pair->client.conn), "h2");
    give(&pair->client, BIG);
    loop_run_ms(pair->fixture, 2);
    give(&pair->server, BIG);
    conn_mark(pair->server.conn, &pair->server.mark);
    check_got(&pair->server, BIG);
    check_got(&pair->client, BIG);
    assert_string_equal(conn_protocol(pair->server.conn), "h2");
    assert_true(pair->server.mark_fired);
    assert_int_equal(atomic_load(&pair->fixture->ctx.chunks.lease.used), 0);
    pair_free(pair);
}

static void
http_1_1_can_be_offered_instead(void **state)
{
    struct pair *pair = plain_pair(*state);
    dial(pair, &pair->address, NULL); /* the certificate is for 127.0.0.1, too */
    conn_offer(pair->client.conn, "http/1.1");
    loop_until(pair->fixture, &pair->client.opened);
    assert_int_equal(pair->client.open_error, 0);
    assert_string_equal(conn_protocol(pair->client.conn), "http/1.1");
    pair_free(pair);
}

static void
a_protocol_that_nobody_speaks_is_refused(void **state)
{
    struct pair *pair = plain_pair(*state);
    dial(pair, &pair->address, "provider.test");
    conn_offer(pair->client.conn, "spdy/3");
    loop_until(pair->fixture, &pair->client.closed);
    assert_int_equal(pair->client.open_error, UV_EPROTO);
    loop_until(pair->fixture, &pair->server.closed);
    pair_free(pair);
}

static void
a_certificate_for_another_name_is_refused(void **state)
{
    struct pair *pair = plain_pair(*state);
    dial(pair, &pair->address, "elsewhere.test");
    loop_until(pair->fixture, &pair->client.closed);
    assert_int_equal(pair->client.open_error, UV_EACCES);
    loop_until(pair->fixture, &pair->server.closed); /* told by an alert */
    assert_int_equal(pair->server.lost_error, UV_EPROTO);
    pair_free(pair);
}

static void
a_certificate_of_another_ca_is_refused(void **state)
{
    struct pair *pair = pair_new(*state, NULL, files.other_ca, NULL, NULL);
    dial(pair, &pair->address, "provider.test");
    loop_until(pair->fixture, &pair->client.closed);
    assert_int_equal(pair->client.open_error, UV_EACCES);
    loop_until(pair->fixture, &pair->server.closed);
    pair_free(pair);
}

static void
a_client_certificate_is_asked_for_and_checked(void **state)
{
    struct pair *pair = pair_new(*state, files.ca, files.ca, files.client_cert, files.client_key);
    dial(pair, &pair->address, "provider.test");
    loop_until(pair->fixture, &pair->client.opened);
    give(&pair->client, 1000);
    check_got(&pair->server, 1000);
    pair_free(pair);

    pair = pair_new(*state, files.ca, files.ca, NULL, NULL); /* none */
    dial(pair, &pair->address, "provider.test");
    loop_until(pair->fixture, &pair->server.closed);
    assert_true(pair->server.lost_error < 0 && pair->server.lost_error != UV_EOF);
    loop_until(pair->fixture, &pair->client.closed);
    assert_true(pair->client.lost || pair->client.open_error < 0);
    pair_free(pair);

    pair = pair_new(*state, files.ca, files.ca, files.stranger_cert, files.stranger_key);
    dial(pair, &pair->address, "provider.test");
    loop_until(pair->fixture, &pair->server.closed);
    assert_int_equal(pair->server.lost_error, UV_EACCES);
    assert_int_equal(pair->server.got_bytes, 0);
    loop_until(pair->fixture, &pair->client.closed);
    pair_free(pair);
}

/* Between the client and the server: each byte by itself. */
static void
records_may_come_byte_by_byte(void **state)
{
    struct pair *pair = plain_pair(*state);
    struct address middle;
    int listener = raw_listen(&middle);
    dial(pair, &middle, "provider.test");
    int near = raw_accept(pair->fixture, listener);
    int far = raw_connect(&pair->address);
    close(listener);
    for (unsigned i = 0; i < 60000 && pair->server.got_bytes < 300; i++) {
        uint8_t byte;
        bool idle = true;
        if (recv(near, &byte, 1, 0) == 1) {
            assert_int_equal(send(far, &byte, 1, MSG_NOSIGNAL), 1);
            idle = false;
        }
        if (recv(far, &byte, 1, 0) == 1) {
            assert_int_equal(send(near, &byte, 1, MSG_NOSIGNAL), 1);
            idle = false;
        }
        if (pair->client.opened && pair->client.to_send.bytes == 0 && !pair->client.finish) {
            give(&pair->client, 300);
            pair->client.finish = true;
        }
        if (idle)
            loop_run_ms(pair->fixture, 1);
        else
            loop_turn(pair->fixture);
    }
    check_got(&pair->server, 300);
    close(near);
    close(far);
    pair_free(pair);
}

static void
close_after_flush_sends_everything(void **state)
{
    struct pair *pair = plain_pair(*state);
    dial(pair, &pair->address, "provider.test");
    loop_until(pair->fixture, &pair->client.opened);
    give(&pair->client, 500000);
    conn_close_after_flush(pair->client.conn);
    check_got(&pair->server, 500000);
    loop_until(pair->fixture, &pair->server.closed);
    assert_int_equal(pair->server.lost_error, UV_EOF);
    uint64_t start_ns = clock_now_ns();
    loop_until(pair->fixture, &pair->client.closed);
    assert_true(clock_now_ns() - start_ns < NS_PER_S / 2);
    pair_free(pair);
}

static void
clear_text_to_a_tls_server_is_an_error(void **state)
{
    struct pair *pair = plain_pair(*state);
    int peer = raw_connect(&pair->address);
    raw_send(pair->fixture, peer, "GET / HTTP/1.1\r\n\r\n", 18);
    loop_until(pair->fixture, &pair->server.closed);
    assert_int_equal(pair->server.lost_error, UV_EPROTO);
    assert_int_equal(pair->server.got_bytes, 0);
    close(peer);
    pair_free(pair);
}

static void
clear_text_from_a_server_is_an_error(void **state)
{
    struct pair *pair = plain_pair(*state);
    struct address address;
    int listener = raw_listen(&address);
    dial(pair, &address, "provider.test");
    int peer = raw_accept(pair->fixture, listener);
    raw_send(pair->fixture, peer, "HTTP/1.1 400 Bad Request\r\n\r\n", 28);
    loop_until(pair->fixture, &pair->client.closed);
    assert_int_equal(pair->client.open_error, UV_EPROTO);
    close(peer);
    close(listener);
    pair_free(pair);
}

static void
a_server_that_closes_in_the_handshake_is_told_by_on_open(void **state)
{
    struct pair *pair = plain_pair(*state);
    struct address address;
    int listener = raw_listen(&address);
    char hello[5];
    dial(pair, &address, "provider.test");
    int peer = raw_accept(pair->fixture, listener);
    raw_recv(pair->fixture, peer, hello, sizeof hello);
    assert_int_equal(hello[0], 0x16);
    close(peer);
    loop_until(pair->fixture, &pair->client.closed);
    assert_int_equal(pair->client.open_error, UV_ECONNRESET);
    close(listener);
    pair_free(pair);
}

static void
a_silent_server_times_out(void **state)
{
    struct pair *pair = plain_pair(*state);
    struct address address;
    int listener = raw_listen(&address);
    assert_int_equal(conn_connect(&pair->fixture->ctx, &address, 50 * NS_PER_MS,
                                  pair->client_context, NULL, &events, &pair->client,
                                  &pair->client.conn),
                     0);
    loop_until(pair->fixture, &pair->client.closed);
    assert_int_equal(pair->client.open_error, UV_ETIMEDOUT);
    close(listener);
    pair_free(pair);
}

static void
a_broken_record_ends_the_connection(void **state)
{
    struct pair *pair = plain_pair(*state);
    struct address middle;
    int listener = raw_listen(&middle);
    uint8_t bytes[65536];
    dial(pair, &middle, "provider.test");
    int near = raw_accept(pair->fixture, listener);
    int far = raw_connect(&pair->address);
    close(listener);
    for (unsigned i = 0; i < 2000 && !pair->server.closed; i++) {
        ssize_t got = recv(near, bytes, sizeof bytes, 0);
        if (got > 0 && pair->client.finish)
            bytes[got - 1] ^= 1; /* a bit of the first application record */
        if (got > 0)
            raw_send(pair->fixture, far, bytes, (size_t)got);
        got = recv(far, bytes, sizeof bytes, 0);
        if (got > 0)
            raw_send(pair->fixture, near, bytes, (size_t)got);
        loop_run_ms(pair->fixture, 1);
        if (pair->client.opened && !pair->client.finish && i > 20) {
            give(&pair->client, 300);
            pair->client.finish = true;
        }
    }
    assert_true(pair->server.closed);
    assert_int_equal(pair->server.lost_error, UV_EPROTO);
    assert_int_equal(pair->server.got_bytes, 0);
    close(near);
    close(far);
    pair_free(pair);
}

static void
files_that_cannot_be_used_are_named(void **state)
{
    const struct {
        const char *cert, *key, *ca, *says;
        int error;
    } cases[] = {
        {"/nonexistent.pem", files.server_key, NULL,
         "tls_cert /nonexistent.pem: No such file or directory", -ENOENT},
        {files.server_cert, "/nonexistent.pem", NULL,
         "tls_key /nonexistent.pem: No such file or directory", -ENOENT},
        {files.server_cert, files.server_key, "/nonexistent.pem",
         "tls_client_ca /nonexistent.pem: No such file", -ENOENT},
        {files.server_key, files.server_key, NULL, "holds nothing of that kind", -EINVAL},
        {files.server_cert, files.server_cert, NULL, "holds nothing of that kind", -EINVAL},
        {files.server_cert, files.client_key, NULL, "key values mismatch", -EINVAL},
        {files.server_cert, files.locked_key, NULL,
         "locked_key.pem: ", -EINVAL}, /* and no prompt */
        {files.server_cert, NULL, NULL, "tls_cert without tls_key", -EINVAL},
        {NULL, NULL, NULL, "needs tls_cert and tls_key", -EINVAL},
    };
    (void)state;
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tls_context *context = (void *)1;
        struct strbuf error = STRBUF_INIT;
        int code = tls_context_server(cases[i].cert, cases[i].key, cases[i].ca, &context, &error);
        if (!error.data || !strstr(error.data, cases[i].says))
            fail_msg("case %u: %s", i, error.data ? error.data : "(no text)");
        assert_int_equal(code, cases[i].error);
        assert_null(context);
        strbuf_fini(&error);
    }
    struct tls_context *context;
    struct strbuf error = STRBUF_INIT;
    assert_int_equal(tls_context_client(files.server_key, NULL, NULL, &context, &error), -EINVAL);
    assert_non_null(strstr(error.data, "tls_ca"));
    strbuf_fini(&error);
    assert_int_equal(tls_context_client(NULL, NULL, NULL, &context, &error), 0); /* the system's */
    tls_context_unref(tls_context_ref(context));
    tls_context_unref(context);
}

static int
make_files(void **state)
{
    (void)state;
    tls_files_make(&files);
    return 0;
}

static int
remove_files(void **state)
{
    (void)state;
    tls_files_remove(&files);
    return 0;
}

#define LOOP_TEST(name) cmocka_unit_test_setup_teardown(name, loop_setup, loop_teardown)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        LOOP_TEST(bodies_pass_both_ways_and_alpn_is_h2),
        LOOP_TEST(http_1_1_can_be_offered_instead),
        LOOP_TEST(a_protocol_that_nobody_speaks_is_refused),
        LOOP_TEST(a_certificate_for_another_name_is_refused),
        LOOP_TEST(a_certificate_of_another_ca_is_refused),
        LOOP_TEST(a_client_certificate_is_asked_for_and_checked),
        LOOP_TEST(records_may_come_byte_by_byte),
        LOOP_TEST(close_after_flush_sends_everything),
        LOOP_TEST(clear_text_to_a_tls_server_is_an_error),
        LOOP_TEST(clear_text_from_a_server_is_an_error),
        LOOP_TEST(a_server_that_closes_in_the_handshake_is_told_by_on_open),
        LOOP_TEST(a_silent_server_times_out),
        LOOP_TEST(a_broken_record_ends_the_connection),
        LOOP_TEST(files_that_cannot_be_used_are_named),
    };
    return cmocka_run_group_tests_name("tls", tests, make_files, remove_files);
}
