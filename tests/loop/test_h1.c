/* HTTP/1.1 connections, both roles, against raw sockets. */
#include "loop_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "proxy/base/clock.h"
#include "proxy/net/h1.h"

enum { MOST = 1 << 20, MOST_CALLS = 600 };

/* What a codec would be, for either side. */
struct call {
    struct stream *stream;
    struct rig *rig;
    struct arena arena;
    struct fields fields, trailer_fields;
    char *body;
    size_t body_len;
    char trailers[200];
    bool head, head_end, end, reset, flushed, has_trailers;
    uint32_t error;
    size_t sent;
};

enum behaviour {
    REPLY_ECHO,        /* the body back when the request has ended */
    REPLY_ECHO_LENGTH, /* likewise, with a content-length of its own */
    ANSWER_AT_HEAD,
    STREAM_BACK, /* head at once, each part of the body at once, trailers at the end */
    RESET_AT_HEAD,
    LIE_SHORT, /* promise 10 bytes, send 4 */
    LIE_LONG,
    KEEP_QUIET,
};

/* One h1 connection of ours and a raw peer. */
struct rig {
    struct loop_fixture *fixture;
    enum behaviour behaviour;
    int peer;
    struct conn *conn;
    struct h1 *h1;
    struct call calls[MOST_CALLS];
    unsigned count, closed_streams, idles;
    bool accepted, opened, down, closed, no_credit;
    bool may_fail; /* verbs may find the stream gone */
    int down_error;
    char down_text[80];
    struct h1_options options;
    uv_tcp_t listener;
    _Atomic uint64_t reads;
    const char *first; /* handed over as if sniffed */
};

/* ---- stream events ---- */

static void
add_text(struct rig *rig, struct slices *slices, const char *text, size_t len)
{
    assert_true(slices_append(slices, &rig->fixture->ctx.chunks, text, len, len));
}

static void
send_text(struct call *call, const char *text, size_t len, bool end)
{
    struct slices slices;
    slices_init(&slices);
    add_text(call->rig, &slices, text, len);
    stream_send_data(call->stream, &slices, end);
    assert_int_equal(slices.bytes, 0);
    slices_fini(&slices);
}

static int
send_head(struct call *call, const char *length, bool end)
{
    char memory[1024];
    struct arena arena;
    struct fields fields;
    arena_init(&arena, memory, sizeof memory);
    fields_init(&fields, &arena);
    fields_add(&fields, TEXT(":status"), TEXT("200"), 0);
    fields_add(&fields, TEXT("x-custom"), TEXT("yes"), 0);
    if (length)
        fields_add(&fields, TEXT("content-length"), text_of(length), 0);
    int error = stream_send_head(call->stream, &fields, end);
    arena_fini(&arena);
    return error;
}

static void
head_sent(struct call *call, int error)
{
    if (!call->rig->may_fail)
        assert_int_equal(error, 0);
}

static void
detach(struct call *call)
{
    stream_detach(call->stream);
    call->stream = NULL;
}

static void
answer(struct call *call)
{
    char length[20];
    snprintf(length, sizeof length, "%zu", call->body_len);
    switch (call->rig->behaviour) {
    case REPLY_ECHO:
        head_sent(call, send_head(call, NULL, false));
        send_text(call, call->body, call->body_len, true);
        break;
    case REPLY_ECHO_LENGTH:
        head_sent(call, send_head(call, length, call->body_len == 0));
        if (call->body_len > 0)
            send_text(call, call->body, call->body_len, true);
        break;
    case LIE_SHORT:
    case LIE_LONG:
        head_sent(call, send_head(call, call->rig->behaviour == LIE_SHORT ? "10" : "3", false));
        send_text(call, "four", 4, true);
        break;
    default:
        break;
    }
}

static void
on_head(struct stream *stream, bool end)
{
    struct call *call = stream->owner;
    assert_false(call->head);
    call->head = true;
    call->head_end = end;
    switch (call->rig->behaviour) {
    case ANSWER_AT_HEAD:
        head_sent(call, send_head(call, "5", false));
        send_text(call, "early", 5, true);
        break;
    case STREAM_BACK:
        head_sent(call, send_head(call, NULL, false));
        break;
    case RESET_AT_HEAD:
        stream_reset(stream, 8);
        call->stream = NULL;
        return;
    default:
        break;
    }
    if (end)
        answer(call);
}

static void
on_data(struct stream *stream, const uint8_t *data, size_t len)
{
    struct call *call = stream->owner;
    assert_true(call->head && !call->end);
    call->body = realloc(call->body, call->body_len + len);
    memcpy(call->body + call->body_len, data, len);
    call->body_len += len;
    if (call->rig->behaviour == STREAM_BACK)
        send_text(call, (const char *)data, len, false);
    if (!call->rig->no_credit)
        stream_credit(stream, len);
}

static void
on_end(struct stream *stream, const struct fields *trailers)
{
    struct call *call = stream->owner;
    assert_true(call->head && !call->head_end && !call->end);
    call->end = true;
    if (trailers) {
        call->has_trailers = true;
        fields_for_each (field, trailers) {
            size_t used = strlen(call->trailers);
            snprintf(call->trailers + used, sizeof call->trailers - used, "%.*s=%.*s;",
                     TEXT_ARGS(field->name), TEXT_ARGS(field->value));
        }
    }
    if (call->rig->behaviour == STREAM_BACK) {
        char memory[256];
        struct arena arena;
        struct fields fields;
        arena_init(&arena, memory, sizeof memory);
        fields_init(&fields, &arena);
        fields_add(&fields, TEXT("grpc-status"), TEXT("0"), 0);
        stream_send_trailers(stream, &fields);
        arena_fini(&arena);
    }
    answer(call);
}

static void
on_reset(struct stream *stream, uint32_t error)
{
    struct call *call = stream->owner;
    assert_false(call->reset);
    call->reset = true;
    call->error = error;
    detach(call);
}

static void
on_sent(struct stream *stream, size_t bytes)
{
    struct call *call = stream->owner;
    call->sent += bytes;
}

static void
on_flushed(struct stream *stream, uint64_t now_ns, uint64_t stalled_ns)
{
    struct call *call = stream->owner;
    assert_true(now_ns > 0 && stalled_ns < now_ns);
    call->flushed = true;
}

static const struct stream_events stream_events = {on_head,  on_data, on_end,
                                                   on_reset, on_sent, on_flushed};

/* ---- connection events ---- */

static struct call *
call_new(struct rig *rig)
{
    struct call *call = &rig->calls[rig->count++];
    assert_true(rig->count <= MOST_CALLS);
    call->rig = rig;
    arena_init(&call->arena, NULL, 0);
    fields_init(&call->fields, &call->arena);
    fields_init(&call->trailer_fields, &call->arena);
    return call;
}

static void
on_stream(struct h1 *h1, struct stream *stream)
{
    struct rig *rig = h1_owner(h1);
    struct call *call = call_new(rig);
    call->stream = stream;
    stream->owner = call;
    stream->events = &stream_events;
    stream->fields = &call->fields;
    stream->trailer_fields = &call->trailer_fields;
}

static void
on_stream_closed(struct h1 *h1, struct stream *stream)
{
    struct rig *rig = h1_owner(h1);
    (void)stream;
    rig->closed_streams++;
}

static void
on_idle(struct h1 *h1)
{
    struct rig *rig = h1_owner(h1);
    assert_true(h1_usable(h1));
    rig->idles++;
}

static void
on_down(struct h1 *h1, int error, const char *text)
{
    struct rig *rig = h1_owner(h1);
    assert_false(rig->down);
    rig->down = true;
    rig->down_error = error;
    snprintf(rig->down_text, sizeof rig->down_text, "%s", text);
}

static void
on_closed(struct h1 *h1)
{
    struct rig *rig = h1_owner(h1);
    assert_true(rig->down);
    rig->closed = true;
    rig->h1 = NULL;
}

static const struct h1_events h1_events = {on_stream, on_stream_closed, on_idle, on_down,
                                           on_closed};

static struct rig *
rig_new(struct loop_fixture *fixture, enum behaviour behaviour)
{
    struct rig *rig = calloc(1, sizeof *rig);
    rig->fixture = fixture;
    rig->behaviour = behaviour;
    rig->options = (struct h1_options){.max_head = 4096};
    rig->peer = -1;
    return rig;
}

static void
detach_all(struct rig *rig)
{
    for (unsigned i = 0; i < rig->count; i++)
        if (rig->calls[i].stream)
            detach(&rig->calls[i]);
}

static void
rig_free(struct rig *rig)
{
    if (rig->peer >= 0)
        close(rig->peer);
    detach_all(rig);
    if (rig->h1) {
        loop_run_ms(rig->fixture, 5); /* h1_go_down_later, or EOF */
        if (rig->h1)
            h1_shutdown(rig->h1);
        loop_until(rig->fixture, &rig->closed);
    }
    detach_all(rig); /* pipelined requests that came up since */
    for (unsigned i = 0; i < rig->count; i++) {
        free(rig->calls[i].body);
        arena_fini(&rig->calls[i].arena);
    }
    assert_int_equal(rig->closed_streams, rig->count);
    free(rig);
}

/* ---- servers ---- */

static void
on_uv_connection(uv_stream_t *stream, int status)
{
    struct rig *rig = stream->data;
    static const struct conn_events none;
    assert_int_equal(status, 0);
    assert_int_equal(conn_accept(&rig->fixture->ctx, stream, NULL, &none, NULL, &rig->conn), 0);
    rig->h1 = h1_server_open(rig->conn, &rig->options, &h1_events, rig, (const uint8_t *)rig->first,
                             rig->first ? strlen(rig->first) : 0);
    assert_int_equal(rig->count, 0); /* nothing before it returns */
    rig->accepted = true;
    uv_close((uv_handle_t *)stream, NULL);
}

static void
serve(struct rig *rig)
{
    struct address address;
    int len = sizeof address.storage;
    assert_int_equal(address_from_text(TEXT("127.0.0.1:0"), true, &address), 0);
    uv_tcp_init(&rig->fixture->loop, &rig->listener);
    rig->listener.data = rig;
    uv_tcp_bind(&rig->listener, (struct sockaddr *)&address.storage, 0);
    assert_int_equal(uv_listen((uv_stream_t *)&rig->listener, 1, on_uv_connection), 0);
    uv_tcp_getsockname(&rig->listener, (struct sockaddr *)&address.storage, &len);
    rig->peer = raw_connect(&address);
    loop_until(rig->fixture, &rig->accepted);
}

static struct rig *
server(struct loop_fixture *fixture, enum behaviour behaviour)
{
    struct rig *rig = rig_new(fixture, behaviour);
    serve(rig);
    return rig;
}

static void
say(struct rig *rig, const char *text)
{
    raw_send(rig->fixture, rig->peer, text, strlen(text));
}

static void
expect(struct rig *rig, const char *text)
{
    char got[4096] = "";
    size_t len = strlen(text);
    assert_true(len < sizeof got);
    raw_recv(rig->fixture, rig->peer, got, len);
    assert_string_equal(got, text);
}

static void
expect_eof(struct rig *rig)
{
    char got[100];
    size_t len;
    assert_int_equal(raw_recv_all(rig->fixture, rig->peer, got, sizeof got, &len), 0);
    assert_int_equal(len, 0);
}

static const char *
field(struct call *call, const char *name)
{
    static char value[200];
    snprintf(value, sizeof value, "%.*s", TEXT_ARGS(fields_value(&call->fields, text_of(name))));
    return value;
}

#define CRLF "\r\n"
#define POST(fields) "POST /a/b?c HTTP/1.1" CRLF "Host: example:80" CRLF fields CRLF

static void
a_request_becomes_a_stream(void **state)
{
    struct rig *rig = server(*state, REPLY_ECHO);
    say(rig, POST("Content-Length: 5" CRLF "X-One: 1" CRLF "Connection: x-secret" CRLF
                  "X-Secret: s" CRLF) "hello");
    expect(rig, "HTTP/1.1 200 OK" CRLF "x-custom: yes" CRLF "content-length: 5" CRLF CRLF "hello");
    struct call *call = &rig->calls[0];
    assert_string_equal(field(call, ":method"), "POST");
    assert_string_equal(field(call, ":scheme"), "http");
    assert_string_equal(field(call, ":authority"), "example:80");
    assert_string_equal(field(call, ":path"), "/a/b?c");
    assert_string_equal(field(call, "x-one"), "1");
    assert_string_equal(field(call, "content-length"), "5");
    assert_null(fields_find(&call->fields, TEXT("host")));
    assert_null(fields_find(&call->fields, TEXT("connection")));
    assert_null(fields_find(&call->fields, TEXT("x-secret")));
    assert_true(call->flushed);
    assert_int_equal(call->sent, 5);
    assert_int_equal(rig->closed_streams, 1);
    assert_false(rig->down);
    rig_free(rig);
}

static void
byte_by_byte_is_the_same(void **state)
{
    struct rig *rig = server(*state, REPLY_ECHO);
    const char *request =
        POST("Transfer-Encoding: chunked" CRLF) "3" CRLF "abc" CRLF "2" CRLF "de" CRLF "0" CRLF
                                                "X-T: v" CRLF CRLF;
    for (const char *byte = request; *byte; byte++) {
        raw_send(rig->fixture, rig->peer, byte, 1);
        loop_turn(rig->fixture);
    }
    expect(rig, "HTTP/1.1 200 OK" CRLF "x-custom: yes" CRLF "content-length: 5" CRLF CRLF "abcde");
    assert_true(rig->calls[0].has_trailers);
    assert_string_equal(rig->calls[0].trailers, "x-t=v;");
    rig_free(rig);
}

static void
a_connection_is_kept_and_pipelined_requests_wait(void **state)
{
    struct rig *rig = server(*state, REPLY_ECHO_LENGTH);
    say(rig, POST("Content-Length: 2" CRLF) "ab" POST("Content-Length: 0" CRLF) POST("")
                 POST("Content-Length: 1" CRLF));
    expect(rig, "HTTP/1.1 200 OK" CRLF "x-custom: yes" CRLF "content-length: 2" CRLF CRLF "ab");
    expect(rig, "HTTP/1.1 200 OK" CRLF "x-custom: yes" CRLF "content-length: 0" CRLF CRLF);
    expect(rig, "HTTP/1.1 200 OK" CRLF "x-custom: yes" CRLF "content-length: 0" CRLF CRLF);
    assert_int_equal(rig->count, 4);
    assert_false(rig->calls[3].end);
    assert_true(rig->calls[1].head_end && rig->calls[2].head_end);
    say(rig, "z");
    expect(rig, "HTTP/1.1 200 OK" CRLF "x-custom: yes" CRLF "content-length: 1" CRLF CRLF "z");
    rig_free(rig);
}

static void
a_pipelined_flood_waits_in_the_socket(void **state)
{
    struct rig *rig = server(*state, KEEP_QUIET);
    static char flood[4 << 20];
    memset(flood, 'x', sizeof flood);
    say(rig, POST(""));
    loop_run_ms(rig->fixture, 5);
    size_t sent = 0;
    rig->conn->reads = &rig->reads;
    for (unsigned i = 0; i < 200; i++) {
        ssize_t part = send(rig->peer, flood, sizeof flood - sent, MSG_NOSIGNAL);
        sent += part > 0 ? (size_t)part : 0;
        loop_turn(rig->fixture);
    }
    assert_int_equal(rig->count, 1);
    assert_false(rig->conn->reading);
    assert_true(rig->reads >= 1 && rig->reads <= 3); /* the rest is in the socket */
    rig_free(rig);
}

static void
a_body_that_is_not_credited_waits_in_the_socket(void **state)
{
    struct rig *rig = rig_new(*state, KEEP_QUIET);
    rig->no_credit = true;
    serve(rig);
    say(rig, POST("Content-Length: 1000000" CRLF));
    char *body = calloc(1, 1000000);
    size_t sent = 0;
    for (unsigned i = 0; i < 100; i++) {
        ssize_t part = send(rig->peer, body + sent, 1000000 - sent, MSG_NOSIGNAL);
        sent += part > 0 ? (size_t)part : 0;
        loop_turn(rig->fixture);
    }
    struct call *call = &rig->calls[0];
    assert_true(call->body_len >= 256 * 1024 && call->body_len < 512 * 1024);
    rig->no_credit = false;
    stream_credit(call->stream, call->stream->uncredited);
    raw_send(rig->fixture, rig->peer, body + sent, 1000000 - sent);
    loop_until(rig->fixture, &call->end);
    assert_int_equal(call->body_len, 1000000);
    free(body);
    rig_free(rig);
}

static void
a_streamed_reply_is_chunked_with_trailers(void **state)
{
    struct rig *rig = server(*state, STREAM_BACK);
    say(rig, POST("Transfer-Encoding: chunked" CRLF) "3" CRLF "abc" CRLF);
    expect(rig, "HTTP/1.1 200 OK" CRLF "x-custom: yes" CRLF "transfer-encoding: chunked" CRLF CRLF
                "3" CRLF "abc" CRLF);
    say(rig, "1a" CRLF "abcdefghijklmnopqrstuvwxyz" CRLF "0" CRLF CRLF);
    expect(rig, "1a" CRLF "abcdefghijklmnopqrstuvwxyz" CRLF "0" CRLF "grpc-status: 0" CRLF CRLF);
    assert_false(rig->down);
    rig_free(rig);
}

static void
http_1_0_gets_its_end_by_closing(void **state)
{
    struct rig *rig = server(*state, STREAM_BACK);
    say(rig, "POST / HTTP/1.0" CRLF "Content-Length: 3" CRLF CRLF "a");
    expect(rig, "HTTP/1.1 200 OK" CRLF "x-custom: yes" CRLF "connection: close" CRLF CRLF "a");
    say(rig, "bc");
    expect(rig, "bc");
    expect_eof(rig);
    assert_true(rig->calls[0].flushed);
    rig_free(rig);
}

static void
http_1_0_keep_alive_is_honoured(void **state)
{
    struct rig *rig = server(*state, REPLY_ECHO_LENGTH);
    say(rig, "GET / HTTP/1.0" CRLF "Connection: keep-alive" CRLF CRLF);
    expect(rig, "HTTP/1.1 200 OK" CRLF "x-custom: yes" CRLF "content-length: 0" CRLF
                "connection: keep-alive" CRLF CRLF);
    say(rig, "GET / HTTP/1.0" CRLF CRLF);
    expect(rig, "HTTP/1.1 200 OK" CRLF "x-custom: yes" CRLF "content-length: 0" CRLF
                "connection: close" CRLF CRLF);
    expect_eof(rig);
    rig_free(rig);
}

static void
connection_close_is_honoured(void **state)
{
    struct rig *rig = server(*state, REPLY_ECHO);
    say(rig, POST("Connection: close" CRLF));
    expect(rig, "HTTP/1.1 200 OK" CRLF "x-custom: yes" CRLF "content-length: 0" CRLF
                "connection: close" CRLF CRLF);
    expect_eof(rig);
    assert_int_equal(rig->down_error, 0);
    rig_free(rig);
}

static void
a_head_request_gets_no_body(void **state)
{
    struct rig *rig = server(*state, ANSWER_AT_HEAD);
    say(rig, "HEAD /x HTTP/1.1" CRLF "Host: a" CRLF CRLF);
    expect(rig, "HTTP/1.1 200 OK" CRLF "x-custom: yes" CRLF "content-length: 5" CRLF CRLF);
    say(rig, "GET /x HTTP/1.1" CRLF "Host: a" CRLF CRLF);
    expect(rig, "HTTP/1.1 200 OK" CRLF "x-custom: yes" CRLF "content-length: 5" CRLF CRLF "early");
    rig_free(rig);
}

static void
expect_100_continue_is_answered(void **state)
{
    struct rig *rig = server(*state, REPLY_ECHO);
    say(rig, POST("Expect: 100-continue" CRLF "Content-Length: 2" CRLF));
    expect(rig, "HTTP/1.1 100 Continue" CRLF CRLF);
    say(rig, "ok");
    expect(rig, "HTTP/1.1 200 OK" CRLF "x-custom: yes" CRLF "content-length: 2" CRLF CRLF "ok");
    rig_free(rig);
}

static void
an_answer_before_the_body_closes_and_is_not_lost(void **state)
{
    struct rig *rig = server(*state, ANSWER_AT_HEAD);
    char *body = calloc(1, 500000);
    say(rig, POST("Expect: 100-continue" CRLF "Content-Length: 500000" CRLF));
    raw_send(rig->fixture, rig->peer, body, 500000); /* did not wait; must not become a reset */
    expect(rig, "HTTP/1.1 200 OK" CRLF "x-custom: yes" CRLF "content-length: 5" CRLF
                "connection: close" CRLF CRLF "early");
    expect_eof(rig);
    assert_true(rig->calls[0].flushed);
    assert_false(rig->calls[0].reset);
    free(body);
    rig_free(rig);
}

static void
targets_in_absolute_form_are_taken(void **state)
{
    struct rig *rig = server(*state, REPLY_ECHO);
    say(rig, "GET http://other:1/p?q HTTP/1.1" CRLF "Host: ignored" CRLF CRLF);
    expect(rig, "HTTP/1.1 200 OK" CRLF "x-custom: yes" CRLF "content-length: 0" CRLF CRLF);
    assert_string_equal(field(&rig->calls[0], ":authority"), "other:1");
    assert_string_equal(field(&rig->calls[0], ":path"), "/p?q");
    rig_free(rig);
}

static void
malformed_requests_are_answered_and_closed(void **state)
{
    static char long_head[6000];
    static const struct {
        const char *request;
        int status;
        bool stream; /* a head was delivered before */
    } cases[] = {
        {POST("Content-Length: 1" CRLF "Content-Length: 1" CRLF), 400, false},
        {POST("Content-Length: 1" CRLF "Transfer-Encoding: chunked" CRLF), 400, false},
        {POST("Transfer-Encoding: gzip" CRLF), 501, false},
        {POST("X: a" CRLF " folded" CRLF), 400, false},
        {"GET / HTTP/2.0" CRLF CRLF, 505, false},
        {"GET / HTTP/1.1" CRLF CRLF, 400, false},
        {"CONNECT a:1 HTTP/1.1" CRLF "Host: a:1" CRLF CRLF, 501, false},
        {"GET nonsense HTTP/1.1" CRLF "Host: a" CRLF CRLF, 400, false},
        {"\x16\x03\x01\x02", 400, false},
        {POST("Transfer-Encoding: chunked" CRLF) "zz" CRLF, 400, true},
        {long_head, 431, false},
    };
    memset(long_head, 'x', sizeof long_head - 1);
    memcpy(long_head, "GET / HTTP/1.1\r\nX: ", 19);
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct rig *rig = server(*state, REPLY_ECHO);
        char got[2000], start[20];
        size_t len;
        say(rig, cases[i].request);
        assert_int_equal(raw_recv_all(rig->fixture, rig->peer, got, sizeof got - 1, &len), 0);
        got[len] = 0;
        snprintf(start, sizeof start, "HTTP/1.1 %d ", cases[i].status);
        if (strncmp(got, start, strlen(start)) != 0)
            fail_msg("case %u: %s", i, got);
        assert_non_null(strstr(got, CRLF "connection: close" CRLF));
        assert_int_equal(rig->count, cases[i].stream);
        if (cases[i].stream)
            assert_int_equal(rig->calls[0].error, STREAM_MALFORMED);
        rig_free(rig);
    }
}

static void
first_bytes_of_sniffing_are_read_first(void **state)
{
    struct rig *rig = rig_new(*state, REPLY_ECHO);
    rig->first = "POST /x HTT";
    serve(rig);
    say(rig, "P/1.1" CRLF "Host: a" CRLF "Content-Length: 1" CRLF CRLF "z");
    expect(rig, "HTTP/1.1 200 OK" CRLF "x-custom: yes" CRLF "content-length: 1" CRLF CRLF "z");
    rig_free(rig);
}

static void
a_client_that_goes_away_resets_the_stream(void **state)
{
    struct rig *rig = server(*state, KEEP_QUIET);
    say(rig, POST("Content-Length: 10" CRLF) "half");
    loop_run_ms(rig->fixture, 10);
    assert_int_equal(rig->calls[0].body_len, 4);
    close(rig->peer);
    rig->peer = -1;
    loop_until(rig->fixture, &rig->closed);
    assert_int_equal(rig->calls[0].error, STREAM_LOST);
    assert_false(rig->calls[0].end);
    assert_int_equal(rig->down_error, UV_EOF);
    rig_free(rig);
}

static void
a_reset_before_the_reply_closes(void **state)
{
    struct rig *rig = server(*state, RESET_AT_HEAD);
    say(rig, POST("Content-Length: 10" CRLF) "half");
    char got[100];
    size_t len;
    raw_recv_all(rig->fixture, rig->peer, got, sizeof got, &len); /* FIN or RST */
    assert_int_equal(len, 0);
    loop_until(rig->fixture, &rig->closed);
    rig_free(rig);
}

static void
lying_about_the_length_closes_instead_of_confusing(void **state)
{
    struct rig *rig = server(*state, LIE_SHORT);
    say(rig, POST(""));
    expect(rig, "HTTP/1.1 200 OK" CRLF "x-custom: yes" CRLF "content-length: 10" CRLF CRLF "four");
    expect_eof(rig);
    assert_true(rig->calls[0].reset);
    rig_free(rig);
    rig = server(*state, LIE_LONG);
    say(rig, POST(""));
    expect(rig, "HTTP/1.1 200 OK" CRLF "x-custom: yes" CRLF "content-length: 3" CRLF CRLF);
    expect_eof(rig);
    assert_true(rig->calls[0].reset);
    rig_free(rig);
}

static void
idle_and_slow_connections_are_closed(void **state)
{
    struct rig *rig = rig_new(*state, REPLY_ECHO);
    rig->options.idle_timeout_ns = 30 * NS_PER_MS;
    rig->options.head_timeout_ns = 60 * NS_PER_MS;
    serve(rig);
    expect_eof(rig);
    assert_string_equal(rig->down_text, "idle");
    rig_free(rig);

    rig = rig_new(*state, REPLY_ECHO);
    rig->options.idle_timeout_ns = 60 * NS_PER_S;
    rig->options.head_timeout_ns = 60 * NS_PER_MS;
    serve(rig);
    uint64_t start_ns = clock_now_ns();
    say(rig, "GET / ");
    for (unsigned i = 0; i < 3; i++) {
        loop_run_ms(rig->fixture, 10);
        say(rig, "x");
    }
    expect(rig, "HTTP/1.1 408 Request Timeout" CRLF);
    assert_true(clock_now_ns() - start_ns >= 60 * NS_PER_MS);
    loop_run_ms(rig->fixture, 5);
    rig_free(rig);

    rig = rig_new(*state, KEEP_QUIET); /* neither runs while a request is being served */
    rig->options.idle_timeout_ns = rig->options.head_timeout_ns = 20 * NS_PER_MS;
    serve(rig);
    say(rig, POST(""));
    loop_run_ms(rig->fixture, 60);
    assert_false(rig->down);
    rig_free(rig);
}

static void
draining_closes_idle_ones_and_lets_the_running_end(void **state)
{
    struct rig *rig = server(*state, REPLY_ECHO);
    loop_run_ms(rig->fixture, 5);
    h1_drain(rig->h1);
    expect_eof(rig);
    rig_free(rig);
    rig = server(*state, REPLY_ECHO);
    say(rig, POST("Content-Length: 2" CRLF) "a");
    loop_run_ms(rig->fixture, 5);
    h1_drain(rig->h1);
    say(rig, "b");
    expect(rig, "HTTP/1.1 200 OK" CRLF "x-custom: yes" CRLF "content-length: 2" CRLF
                "connection: close" CRLF CRLF "ab");
    expect_eof(rig);
    rig_free(rig);
}

/* ---- clients ---- */

static void
on_conn_open(struct conn *conn, int error)
{
    struct rig *rig = conn->owner;
    assert_int_equal(error, 0);
    rig->h1 = h1_client_open(conn, &rig->options, &h1_events, rig);
    rig->opened = true;
}

static struct rig *
client(struct loop_fixture *fixture)
{
    static const struct conn_events opening = {.on_open = on_conn_open};
    struct rig *rig = rig_new(fixture, KEEP_QUIET);
    struct address address;
    int listener = raw_listen(&address);
    assert_int_equal(
        conn_connect(&fixture->ctx, &address, NS_PER_S, NULL, NULL, &opening, rig, &rig->conn), 0);
    rig->peer = raw_accept(fixture, listener);
    close(listener);
    loop_until(fixture, &rig->opened);
    assert_true(h1_usable(rig->h1));
    assert_false(h1_used_before(rig->h1));
    return rig;
}

static struct call *
request(struct rig *rig, const char *method, const char *length, bool end)
{
    char memory[1024];
    struct arena arena;
    struct fields fields;
    struct call *call = call_new(rig);
    arena_init(&arena, memory, sizeof memory);
    fields_init(&fields, &arena);
    fields_add(&fields, TEXT(":method"), text_of(method), 0);
    fields_add(&fields, TEXT(":scheme"), TEXT("http"), 0);
    fields_add(&fields, TEXT(":path"), TEXT("/s/M"), 0);
    fields_add(&fields, TEXT(":authority"), TEXT("there"), 0);
    fields_add(&fields, TEXT("te"), TEXT("trailers"), 0);
    if (length)
        fields_add(&fields, TEXT("content-length"), text_of(length), 0);
    call->stream = h1_request(rig->h1, &fields, end, &stream_events, call, &call->fields,
                              &call->trailer_fields);
    arena_fini(&arena);
    if (call->stream)
        assert_false(h1_usable(rig->h1));
    return call;
}

static void
requests_go_one_after_the_other_on_one_connection(void **state)
{
    struct rig *rig = client(*state);
    struct call *first = request(rig, "POST", "5", false);
    send_text(first, "hello", 5, true);
    expect(rig, "POST /s/M HTTP/1.1" CRLF "host: there" CRLF "content-length: 5" CRLF CRLF "hello");
    assert_true(first->flushed);
    say(rig, "HTTP/1.1 103 Early Hints" CRLF "x: y" CRLF CRLF);
    say(rig, "HTTP/1.1 200 OK" CRLF "Content-Length: 3" CRLF "A: b" CRLF CRLF "yes");
    loop_until_count(rig->fixture, &rig->idles, 1);
    assert_string_equal(field(first, ":status"), "200");
    assert_string_equal(field(first, "a"), "b");
    assert_null(fields_find(&first->fields, TEXT("x")));
    assert_true(first->end);
    assert_memory_equal(first->body, "yes", 3);
    assert_true(h1_usable(rig->h1) && h1_used_before(rig->h1));
    struct call *second = request(rig, "GET", NULL, true);
    expect(rig, "GET /s/M HTTP/1.1" CRLF "host: there" CRLF CRLF);
    say(rig, "HTTP/1.1 404 Not Found" CRLF "Transfer-Encoding: chunked" CRLF CRLF "2" CRLF "no" CRLF
             "0" CRLF "T: u" CRLF CRLF);
    loop_until_count(rig->fixture, &rig->idles, 2);
    assert_string_equal(field(second, ":status"), "404");
    assert_memory_equal(second->body, "no", 2);
    assert_string_equal(second->trailers, "t=u;");
    struct call *third = request(rig, "POST", NULL, true);
    expect(rig, "POST /s/M HTTP/1.1" CRLF "host: there" CRLF "content-length: 0" CRLF CRLF);
    say(rig, "HTTP/1.1 204 No Content" CRLF CRLF);
    loop_until_count(rig->fixture, &rig->idles, 3);
    assert_true(third->head_end);
    rig_free(rig);
}

static void
a_request_body_of_unknown_length_is_chunked(void **state)
{
    struct rig *rig = client(*state);
    struct call *call = request(rig, "POST", NULL, false);
    send_text(call, "abc", 3, false);
    expect(rig, "POST /s/M HTTP/1.1" CRLF "host: there" CRLF "transfer-encoding: chunked" CRLF CRLF
                "3" CRLF "abc" CRLF);
    send_text(call, "de", 2, true);
    expect(rig, "2" CRLF "de" CRLF "0" CRLF CRLF);
    rig_free(rig);
    rig = client(*state); /* known by the end of the turn: told */
    call = request(rig, "POST", NULL, false);
    send_text(call, "abc", 3, true);
    expect(rig, "POST /s/M HTTP/1.1" CRLF "host: there" CRLF "content-length: 3" CRLF CRLF "abc");
    rig_free(rig);
}

static void
a_reply_until_close_ends_with_the_connection(void **state)
{
    struct rig *rig = client(*state);
    struct call *call = request(rig, "GET", NULL, true);
    expect(rig, "GET /s/M HTTP/1.1" CRLF "host: there" CRLF CRLF);
    say(rig, "HTTP/1.1 200 OK" CRLF CRLF "some");
    loop_run_ms(rig->fixture, 5);
    assert_false(call->end);
    close(rig->peer);
    rig->peer = -1;
    loop_until(rig->fixture, &rig->closed);
    assert_true(call->end);
    assert_false(call->reset);
    assert_int_equal(rig->idles, 0);
    rig_free(rig);
}

static void
connection_close_in_the_reply_ends_the_connection(void **state)
{
    struct rig *rig = client(*state);
    struct call *call = request(rig, "GET", NULL, true);
    expect(rig, "GET /s/M HTTP/1.1" CRLF "host: there" CRLF CRLF);
    say(rig, "HTTP/1.1 200 OK" CRLF "Content-Length: 1" CRLF "Connection: close" CRLF CRLF "x");
    loop_until(rig->fixture, &rig->closed);
    assert_true(call->end);
    assert_false(call->reset);
    assert_int_equal(rig->down_error, 0);
    rig_free(rig);
}

static void
a_truncated_reply_is_a_loss(void **state)
{
    struct rig *rig = client(*state);
    struct call *call = request(rig, "GET", NULL, true);
    expect(rig, "GET /s/M HTTP/1.1" CRLF "host: there" CRLF CRLF);
    say(rig, "HTTP/1.1 200 OK" CRLF "Content-Length: 10" CRLF CRLF "half");
    close(rig->peer);
    rig->peer = -1;
    loop_until(rig->fixture, &rig->closed);
    assert_false(call->end);
    assert_int_equal(call->error, STREAM_LOST);
    rig_free(rig);
}

static void
a_malformed_reply_says_so(void **state)
{
    static const struct {
        const char *reply;
        uint32_t error;
    } cases[] = {
        {"ICY 200 OK" CRLF CRLF, STREAM_MALFORMED},
        {"HTTP/1.1 200 OK" CRLF "Content-Length: 1" CRLF "Content-Length: 2" CRLF CRLF,
         STREAM_MALFORMED},
        {"HTTP/1.1 200 OK" CRLF "Transfer-Encoding: chunked" CRLF CRLF "-1" CRLF, STREAM_MALFORMED},
    };
    for (unsigned i = 0; i < 3; i++) {
        struct rig *rig = client(*state);
        struct call *call = request(rig, "GET", NULL, true);
        expect(rig, "GET /s/M HTTP/1.1" CRLF "host: there" CRLF CRLF);
        say(rig, cases[i].reply);
        loop_until(rig->fixture, &rig->closed);
        assert_int_equal(call->error, cases[i].error);
        assert_int_equal(rig->down_error, UV_EPROTO);
        rig_free(rig);
    }
}

static void
a_reply_head_over_the_limit_says_so(void **state)
{
    struct rig *rig = client(*state);
    static char reply[8000];
    struct call *call = request(rig, "GET", NULL, true);
    expect(rig, "GET /s/M HTTP/1.1" CRLF "host: there" CRLF CRLF);
    snprintf(reply, sizeof reply, "HTTP/1.1 200 OK\r\nx: %05000d\r\n\r\n", 1);
    say(rig, reply);
    loop_until(rig->fixture, &rig->closed);
    assert_int_equal(call->error, STREAM_HEADERS_TOO_LONG);
    rig_free(rig);
}

static void
an_idle_connection_that_the_peer_closes_goes_down_at_once(void **state)
{
    struct rig *rig = client(*state);
    close(rig->peer);
    rig->peer = -1;
    loop_until(rig->fixture, &rig->closed);
    assert_int_equal(rig->down_error, UV_EOF);
    rig_free(rig);
}

static void
a_request_on_a_connection_that_just_died_was_not_processed(void **state)
{
    struct rig *rig = client(*state);
    raw_reset(rig->peer);
    rig->peer = -1;
    struct call *call = request(rig, "POST", "1", false); /* before the loop has seen the reset */
    loop_until(rig->fixture, &rig->closed);
    assert_int_equal(call->error, STREAM_NOT_PROCESSED);
    rig_free(rig);
}

static void
bytes_that_nobody_asked_for_end_the_connection(void **state)
{
    struct rig *rig = client(*state);
    say(rig, "HTTP/1.1 408 Request Timeout" CRLF "Content-Length: 0" CRLF CRLF);
    loop_until(rig->fixture, &rig->closed);
    assert_int_equal(rig->down_error, UV_EPROTO);
    rig_free(rig);
    rig = client(*state); /* two replies to one request: the second must not answer the next one */
    struct call *call = request(rig, "GET", NULL, true);
    expect(rig, "GET /s/M HTTP/1.1" CRLF "host: there" CRLF CRLF);
    say(rig, "HTTP/1.1 200 OK" CRLF "Content-Length: 0" CRLF CRLF "HTTP/1.1 200 OK" CRLF
             "Content-Length: 0" CRLF CRLF);
    loop_until(rig->fixture, &rig->closed);
    assert_true(call->head_end);
    assert_int_equal(rig->idles, 0);
    rig_free(rig);
}

static void
an_early_reply_is_used_and_ends_the_connection(void **state)
{
    struct rig *rig = client(*state);
    struct call *call = request(rig, "POST", "1000000", false);
    send_text(call, "part", 4, false);
    expect(rig,
           "POST /s/M HTTP/1.1" CRLF "host: there" CRLF "content-length: 1000000" CRLF CRLF "part");
    say(rig, "HTTP/1.1 413 Content Too Large" CRLF "Content-Length: 2" CRLF CRLF "no");
    loop_until(rig->fixture, &rig->closed);
    assert_string_equal(field(call, ":status"), "413");
    assert_true(call->end);
    assert_false(call->reset);
    rig_free(rig);
}

static void
cancelling_closes_the_connection(void **state)
{
    struct rig *rig = client(*state);
    struct call *call = request(rig, "POST", "2", false);
    send_text(call, "ab", 2, true);
    expect(rig, "POST /s/M HTTP/1.1" CRLF "host: there" CRLF "content-length: 2" CRLF CRLF "ab");
    stream_reset(call->stream, 8);
    call->stream = NULL;
    assert_false(rig->down); /* no callback from inside a verb */
    assert_false(h1_usable(rig->h1));
    loop_until(rig->fixture, &rig->closed);
    assert_false(call->reset);
    expect_eof(rig);
    rig_free(rig);
}

static void
a_big_request_to_a_slow_peer_is_stalled_not_lost(void **state)
{
    struct rig *rig = client(*state);
    int size = 4096;
    uv_send_buffer_size(&rig->conn->handle, &size);
    char *body = calloc(1, MOST);
    struct call *call = request(rig, "POST", "1048576", false);
    send_text(call, body, MOST, true);
    loop_run_ms(rig->fixture, 20);
    char *got = malloc(MOST + 200);
    const char *head =
        "POST /s/M HTTP/1.1" CRLF "host: there" CRLF "content-length: 1048576" CRLF CRLF;
    raw_recv(rig->fixture, rig->peer, got, MOST + strlen(head));
    assert_memory_equal(got, head, strlen(head));
    loop_until(rig->fixture, &call->flushed);
    assert_int_equal(call->sent, MOST);
    assert_true(call->stream->stalled_ns >= 10 * NS_PER_MS);
    free(got);
    free(body);
    rig_free(rig);
}

/* ---- many, and at random ---- */

static void
hundreds_of_pipelined_requests_are_answered_in_order(void **state)
{
    struct rig *rig = server(*state, REPLY_ECHO_LENGTH);
    enum { COUNT = 500 };
    static char requests[COUNT * 80];
    size_t len = 0;
    for (unsigned i = 0; i < COUNT; i++)
        len += (size_t)snprintf(requests + len, sizeof requests - len,
                                "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n%03u", i);
    raw_send(rig->fixture, rig->peer, requests, len);
    for (unsigned i = 0; i < COUNT; i++) {
        char reply[100];
        snprintf(reply, sizeof reply,
                 "HTTP/1.1 200 OK\r\nx-custom: yes\r\ncontent-length: 3\r\n\r\n%03u", i);
        expect(rig, reply);
    }
    rig_free(rig);
}

static void
talk_at_random(struct rig *rig, struct rng *rng)
{
    static const char *const sayings[] = {
        POST("Content-Length: 5" CRLF) "hello",
        POST("Transfer-Encoding: chunked" CRLF) "3" CRLF "abc" CRLF "0" CRLF "T: v" CRLF CRLF,
        POST("Expect: 100-continue" CRLF "Content-Length: 3" CRLF) "abc",
        "GET /x HTTP/1.1" CRLF "Host: a" CRLF CRLF,
        "HEAD /x HTTP/1.1" CRLF "Host: a" CRLF CRLF,
        "POST / HTTP/1.0" CRLF "Content-Length: 1" CRLF CRLF "x",
        POST("Connection: close" CRLF),
        POST("Transfer-Encoding: chunked" CRLF) "zz" CRLF,
        "garbage" CRLF CRLF,
    };
    char text[4096] = "", sink[4096];
    unsigned known = rng_below(rng, 3) ? 5 : 9; /* mostly good requests */
    for (unsigned i = rng_below(rng, 8); i > 0; i--)
        strcat(text, sayings[rng_below(rng, known)]);
    size_t len = strlen(text);
    size_t stop =
        rng_below(rng, 2) ? len : rng_below(rng, (uint32_t)len + 1); /* gone in the middle */
    for (size_t at = 0; at < stop;) {
        size_t part = 1 + rng_below(rng, 60);
        part = part < stop - at ? part : stop - at;
        if (send(rig->peer, text + at, part, MSG_NOSIGNAL) < 0)
            break; /* closed by us, for good reason */
        at += part;
        if (rng_below(rng, 3))
            loop_turn(rig->fixture);
        if (rng_below(rng, 20) == 0 && rig->h1)
            h1_drain(rig->h1);
        while (recv(rig->peer, sink, sizeof sink, 0) > 0)
            ;
    }
    if (rng_below(rng, 2)) {
        raw_reset(rig->peer);
        rig->peer = -1;
    }
}

static void
random_traffic_leaves_nothing_behind(void **state)
{
    struct rng rng;
    rng_seed(&rng, 4711);
    for (unsigned i = 0; i < 200; i++) {
        struct rig *rig = rig_new(*state, (enum behaviour)rng_below(&rng, KEEP_QUIET + 1));
        rig->no_credit = rng_below(&rng, 2);
        rig->may_fail = true;
        serve(rig);
        talk_at_random(rig, &rng);
        rig_free(rig);
    }
}

#define LOOP_TEST(name) cmocka_unit_test_setup_teardown(name, loop_setup, loop_teardown)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        LOOP_TEST(a_request_becomes_a_stream),
        LOOP_TEST(byte_by_byte_is_the_same),
        LOOP_TEST(a_connection_is_kept_and_pipelined_requests_wait),
        LOOP_TEST(a_pipelined_flood_waits_in_the_socket),
        LOOP_TEST(a_body_that_is_not_credited_waits_in_the_socket),
        LOOP_TEST(a_streamed_reply_is_chunked_with_trailers),
        LOOP_TEST(http_1_0_gets_its_end_by_closing),
        LOOP_TEST(http_1_0_keep_alive_is_honoured),
        LOOP_TEST(connection_close_is_honoured),
        LOOP_TEST(a_head_request_gets_no_body),
        LOOP_TEST(expect_100_continue_is_answered),
        LOOP_TEST(an_answer_before_the_body_closes_and_is_not_lost),
        LOOP_TEST(targets_in_absolute_form_are_taken),
        LOOP_TEST(malformed_requests_are_answered_and_closed),
        LOOP_TEST(first_bytes_of_sniffing_are_read_first),
        LOOP_TEST(a_client_that_goes_away_resets_the_stream),
        LOOP_TEST(a_reset_before_the_reply_closes),
        LOOP_TEST(lying_about_the_length_closes_instead_of_confusing),
        LOOP_TEST(idle_and_slow_connections_are_closed),
        LOOP_TEST(draining_closes_idle_ones_and_lets_the_running_end),
        LOOP_TEST(requests_go_one_after_the_other_on_one_connection),
        LOOP_TEST(a_request_body_of_unknown_length_is_chunked),
        LOOP_TEST(a_reply_until_close_ends_with_the_connection),
        LOOP_TEST(connection_close_in_the_reply_ends_the_connection),
        LOOP_TEST(a_truncated_reply_is_a_loss),
        LOOP_TEST(a_malformed_reply_says_so),
        LOOP_TEST(a_reply_head_over_the_limit_says_so),
        LOOP_TEST(an_idle_connection_that_the_peer_closes_goes_down_at_once),
        LOOP_TEST(a_request_on_a_connection_that_just_died_was_not_processed),
        LOOP_TEST(bytes_that_nobody_asked_for_end_the_connection),
        LOOP_TEST(an_early_reply_is_used_and_ends_the_connection),
        LOOP_TEST(cancelling_closes_the_connection),
        LOOP_TEST(a_big_request_to_a_slow_peer_is_stalled_not_lost),
        LOOP_TEST(hundreds_of_pipelined_requests_are_answered_in_order),
        LOOP_TEST(random_traffic_leaves_nothing_behind),
    };
    return cmocka_run_group_tests_name("h1", tests, NULL, NULL);
}
