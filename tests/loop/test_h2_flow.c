/* HTTP/2 flow control: credit, windows that are used up, what counts as stalled. */
#include "h2_lab.h"

static void
trailers_pass_an_exhausted_window(void **state)
{
    struct h2_lab *lab = h2_lab_server_silent(*state, NULL);
    lab_raw(lab, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 24);
    lab_settings(lab, (uint32_t[]){4, 5}, 1); /* INITIAL_WINDOW_SIZE 5 */
    lab_request(lab, 1, true);
    lab_send(lab);
    lab_reply_head(&lab->calls[0], false, ":status", "200", NULL);
    lab_say(&lab->calls[0], "hello", 5, false);
    lab_expect(lab, F_HEADERS, 1, END_HEADERS);
    lab_expect(lab, F_DATA, 1, 0);
    lab_trailers(&lab->calls[0], "grpc-status", "0", NULL);
    lab_expect(lab, F_HEADERS, 1, END_STREAM | END_HEADERS);
    h2_lab_close(lab);
}

static void
trailers_behind_blocked_data_outlive_their_owners_text(void **state)
{
    struct h2_lab *lab = h2_lab_server_silent(*state, NULL);
    lab_raw(lab, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 24);
    lab_settings(lab, (uint32_t[]){4, 2}, 1);
    lab_request(lab, 1, true);
    lab_send(lab);
    struct lab_call *call = &lab->calls[0];
    char *value = strdup("gone soon");
    lab_reply_head(call, false, ":status", "200", NULL);
    lab_say(call, "hello", 5, false);
    lab_trailers(call, "grpc-message", value, NULL);
    lab_expect(lab, F_HEADERS, 1, END_HEADERS);
    assert_int_equal(lab_expect(lab, F_DATA, 1, 0)->len, 2);
    assert_true(lab_quiet(lab));
    memset(value, 'X', 9); /* the turn is over: its text is the owner's again */
    free(value);
    lab_detach(call);
    lab_word(lab, F_WINDOW, 0, 1, 100);
    lab_send(lab);
    assert_int_equal(lab_expect(lab, F_DATA, 1, 0)->len, 3);
    assert_true(lab_has(lab_expect(lab, F_HEADERS, 1, END_STREAM | END_HEADERS),
                        "grpc-message: gone soon"));
    h2_lab_close(lab);
}

static void
stream_credit_returns_by_halves_and_never_after_the_end(void **state)
{
    struct h2_options options = lab_options;
    options.stream_window = 1000;
    struct h2_lab *lab = h2_lab_server(*state, &options);
    char bytes[1000] = {0};
    lab->keep_credit = true;
    lab_request(lab, 1, false);
    lab_frame(lab, F_DATA, 0, 1, bytes, 600);
    lab_send(lab);
    assert_true(lab_quiet(lab));
    h2_credit(lab->calls[0].stream, 499);
    assert_true(lab_quiet(lab));
    h2_credit(lab->calls[0].stream, 50);
    assert_int_equal(lab_expect(lab, F_WINDOW, 1, 0)->word, 549);
    h2_credit(lab->calls[0].stream, 1000000); /* only what was received counts */
    lab_frame(lab, F_DATA, END_STREAM, 1, bytes, 900);
    lab_send(lab);
    h2_credit(lab->calls[0].stream, 900);
    assert_true(lab_quiet(lab));
    assert_int_equal(lab->calls[0].body_bytes, 1500);
    assert_int_equal(lab->calls[0].ends, 1);
    h2_lab_close(lab);
}

static void
what_a_detached_stream_receives_is_credited(void **state)
{
    struct h2_options options = lab_options;
    options.stream_window = 1000;
    struct h2_lab *lab = h2_lab_server(*state, &options);
    char bytes[1000] = {0};
    lab->keep_credit = true;
    lab_request(lab, 1, false);
    lab_frame(lab, F_DATA, 0, 1, bytes, 400);
    lab_send(lab);
    lab_detach(&lab->calls[0]);
    lab_frame(lab, F_DATA, 0, 1, bytes, 200);
    lab_send(lab);
    assert_int_equal(lab_expect(lab, F_WINDOW, 1, 0)->word, 600);
    lab_frame(lab, F_DATA, END_STREAM, 1, bytes, 1000);
    lab_send(lab);
    assert_true(lab_quiet(lab));
    assert_int_equal(lab->calls[0].datas, 1);
    assert_int_equal(lab->calls[0].ends, 0);
    h2_lab_close(lab);
}

/* 1 byte of data and 255 of padding, 400 times on a window of 1000. */
static void
padding_is_credited_by_itself(void **state)
{
    struct h2_options options = lab_options;
    options.stream_window = 1000;
    struct h2_lab *lab = h2_lab_server(*state, &options);
    uint8_t payload[257] = {255, 'x'};
    uint64_t window = 1000;
    lab_request(lab, 1, false);
    for (int i = 0; i < 400; i++) {
        while (window < sizeof payload) {
            lab_send(lab);
            struct lab_frame *frame = lab_next(lab);
            assert_int_equal(frame->type, F_WINDOW);
            window += frame->word;
        }
        lab_frame(lab, F_DATA, PADDED, 1, payload, sizeof payload);
        window -= sizeof payload;
    }
    lab_frame(lab, F_DATA, PADDED | END_STREAM, 1, "\0", 1);
    lab_send(lab);
    loop_until_count(*state, &lab->calls[0].ends, 1);
    assert_int_equal(lab->calls[0].body_bytes, 400);
    h2_lab_close(lab);
}

static void
waiting_for_the_peers_window_is_measured_as_stalled(void **state)
{
    struct h2_lab *lab = h2_lab_server_silent(*state, NULL);
    lab_raw(lab, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 24);
    lab_settings(lab, (uint32_t[]){4, 2}, 1);
    lab_request(lab, 1, true);
    lab_request(lab, 3, true);
    lab_send(lab);
    struct lab_call *blocked = &lab->calls[0], *quick = &lab->calls[1];
    lab_reply_head(blocked, false, ":status", "200", NULL);
    lab_say(blocked, "hello", 5, true);
    lab_reply_head(quick, false, ":status", "200", NULL);
    lab_say(quick, "ok", 2, true);
    loop_until_count(*state, &quick->flushes, 1);
    assert_int_equal(quick->stalled_ns, 0);
    loop_run_ms(*state, 60);
    assert_int_equal(blocked->flushes, 0);
    assert_int_equal(blocked->sent, 2);
    lab_word(lab, F_WINDOW, 0, 1, 3);
    lab_send(lab);
    loop_until_count(*state, &blocked->flushes, 1);
    assert_true(blocked->stalled_ns >= 55 * NS_PER_MS && blocked->stalled_ns < 1000 * NS_PER_MS);
    h2_lab_close(lab);
}

/* Reads frames until stream `id` has ended; the lab's buffer stays small. Returns the bytes of its
 * body. */
static size_t
read_body(struct h2_lab *lab, uint32_t id)
{
    size_t got = 0;
    for (;;) {
        struct lab_frame *frame = lab_next(lab);
        bool ours = frame->id == id && frame->type == F_DATA;
        got += ours ? frame->len : 0;
        if (ours && (frame->flags & END_STREAM))
            return got;
        if (lab->in_at > (8 << 20)) {
            memmove(lab->in, lab->in + lab->in_at, lab->in_bytes - lab->in_at);
            lab->in_bytes -= lab->in_at;
            lab->in_at = 0;
        }
    }
}

/* A server whose raw client does not read: stream 1 has filled the socket with its body. */
static struct h2_lab *
server_with_full_socket(void **state, size_t body)
{
    struct h2_lab *lab = h2_lab_server_silent(*state, NULL);
    lab_raw(lab, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 24);
    lab_settings(lab, (uint32_t[]){4, 0x7fffffff, 5, 1 << 20}, 2);
    lab_word(lab, F_WINDOW, 0, 0, 0x7fff0000);
    lab_request(lab, 1, true);
    lab_request(lab, 3, true);
    lab_send(lab);
    loop_until_count(*state, &lab->server.opened, 2);
    lab_reply_head(&lab->calls[0], false, ":status", "200", NULL);
    lab_say_zeros(&lab->calls[0], body, true);
    loop_run_ms(*state, 60);
    assert_int_equal(lab->calls[0].flushes, 0);
    return lab;
}

static void
waiting_for_a_full_socket_is_measured_as_stalled(void **state)
{
    enum { BODY = 24 << 20 };
    struct h2_lab *lab = server_with_full_socket(state, BODY);
    struct lab_call *call = &lab->calls[0];
    assert_true(call->sent < BODY);
    assert_int_equal(read_body(lab, 1), BODY);
    assert_int_equal(call->sent, BODY);
    loop_until_count(*state, &call->flushes, 1);
    assert_true(call->stalled_ns >= 50 * NS_PER_MS);
    h2_lab_close(lab);
}

/* Everything is queued in one turn, and only then does the socket turn out to be full. */
static void
waiting_in_the_write_queue_is_measured_as_stalled(void **state)
{
    struct h2_lab *lab = h2_lab_server_silent(*state, NULL);
    int bytes = 4096;
    uv_send_buffer_size(&lab->server.conn->handle, &bytes);
    lab_raw(lab, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 24);
    lab_settings(lab, (uint32_t[]){4, 0x7fffffff}, 1);
    lab_word(lab, F_WINDOW, 0, 0, 0x7fff0000);
    for (uint32_t i = 0; i < 50; i++)
        lab_request(lab, 2 * i + 1, true);
    lab_send(lab);
    loop_until_count(*state, &lab->server.opened, 50);
    unsigned last = 0;
    for (; !lab->server.conn->writing; last++) {
        assert_true(last < 50);
        lab_reply_head(&lab->calls[last], false, ":status", "200", NULL);
        lab_say_zeros(&lab->calls[last], 240000, true);
        loop_turn(*state);
    }
    struct lab_call *call = &lab->calls[last - 1];
    assert_int_equal(call->sent, 240000);
    assert_int_equal(call->flushes, 0);
    struct lab_call *other = &lab->calls[last]; /* gone before its bytes are: nothing is reported */
    lab_reply_head(other, true, ":status", "200", NULL);
    loop_run_ms(*state, 60);
    read_body(lab, 2 * last - 1);
    loop_until_count(*state, &call->flushes, 1);
    assert_true(call->stalled_ns >= 50 * NS_PER_MS);
    assert_true(call->stalled_ns < 2 * NS_PER_S);
    loop_until_count(*state, &other->flushes, 1);
    assert_true(other->stalled_ns >= 50 * NS_PER_MS);
    h2_lab_close(lab);
}

static void
streams_detached_before_their_bytes_left_are_not_told(void **state)
{
    struct h2_lab *lab = server_with_full_socket(state, 100 << 10 << 8);
    struct lab_call *call = &lab->calls[0];
    read_body(lab, 1);
    loop_until_count(*state, &call->flushes, 1);
    lab_reply_head(&lab->calls[1], false, ":status", "200", NULL);
    lab_say_zeros(&lab->calls[1], 200000, true);
    conn_flush(lab->server.conn);
    loop_turn(*state);
    unsigned flushes = lab->calls[1].flushes;
    lab_detach(&lab->calls[1]);
    read_body(lab, 3);
    loop_run_ms(*state, 5);
    assert_int_equal(lab->calls[1].flushes, flushes);
    assert_int_equal(lab->server.streams_closed, 1);
    h2_lab_close(lab);
}

/* Constants that live in a configuration are not copied, but they may be gone when the socket lets
 * the frame out. */
static void
constant_fields_survive_a_full_socket(void **state)
{
    struct h2_lab *lab = server_with_full_socket(state, 24 << 20);
    char *constant = strdup("in a snapshot");
    struct arena arena;
    struct fields fields;
    arena_init(&arena, NULL, 0);
    fields_init(&fields, &arena);
    fields_add(&fields, TEXT(":status"), TEXT("200"), FIELD_STATIC);
    fields_add(&fields, TEXT("x-constant"), text_of(constant), FIELD_STATIC);
    assert_int_equal(h2_send_head(lab->calls[1].stream, &fields, true), 0);
    arena_fini(&arena);
    loop_turn(*state);
    memset(constant, 'X', strlen(constant));
    free(constant);
    struct lab_frame *frame;
    do
        frame = lab_next(lab);
    while (frame->type != F_HEADERS || frame->id != 3);
    assert_true(lab_has(frame, "x-constant: in a snapshot"));
    h2_lab_close(lab);
}

/* The connection's window does not wait for the stream's credit: half of it and more is received.
 */
static void
the_connection_window_is_replenished_on_receipt(void **state)
{
    enum { FRAME = 16384, FRAMES = 64, ROUNDS = 513 };
    struct h2_options options = lab_options;
    options.stream_window = 0x7fffffff;
    struct h2_lab *lab = h2_lab_server(*state, &options);
    static uint8_t bytes[FRAME];
    lab->keep_credit = true;
    lab_request(lab, 1, false);
    lab_send(lab);
    for (int i = 0; i < FRAMES; i++)
        lab_frame(lab, F_DATA, 0, 1, bytes, sizeof bytes);
    for (int i = 0; i < ROUNDS; i++)
        raw_send(*state, lab->fd, lab->out, lab->out_bytes);
    lab->out_bytes = 0;
    loop_run_ms(*state, 20);
    assert_int_equal(lab->calls[0].body_bytes, (size_t)ROUNDS * FRAMES * FRAME);
    assert_true(lab_quiet(lab));
    assert_int_equal(lab->window_updates, 2); /* the first widens it */
    h2_lab_close(lab);
}

/* Between the head and the data it is not the peer that everybody waits for. */
static void
only_the_wait_of_a_blocked_head_is_stalled(void **state)
{
    struct h2_lab *lab = server_with_full_socket(state, 24 << 20);
    struct lab_call *call = &lab->calls[1];
    lab_reply_head(call, false, ":status", "200", NULL);
    loop_run_ms(*state, 60);
    read_body(lab, 1);
    loop_run_ms(*state, 900);
    lab_say(call, "hello", 5, true);
    loop_until_count(*state, &call->flushes, 1);
    assert_true(call->stalled_ns >= 50 * NS_PER_MS);
    assert_true(call->stalled_ns < 900 * NS_PER_MS);
    h2_lab_close(lab);
}

static void
echo_data(struct lab_call *call, const uint8_t *data, size_t len)
{
    if (call->stream->id % 2 && call->lab->server.h2 == call->stream->connection)
        lab_say(call, data, len, false);
}

static void
echo_head(struct lab_call *call)
{
    if (call->stream->connection == call->lab->server.h2)
        lab_reply_head(call, false, ":status", "200", NULL);
}

static void
echo_end(struct lab_call *call)
{
    if (call->stream->connection == call->lab->server.h2)
        lab_trailers(call, "grpc-status", "0", NULL);
}

static void
both_ends_echo_bodies_larger_than_all_windows(void **state)
{
    struct h2_options options = lab_options;
    options.stream_window = 70000;
    struct h2_lab *lab = h2_lab_pair(*state, &options, &options);
    enum { CALLS = 20, BODY = 300000 };
    lab->on_head = echo_head;
    lab->on_data = echo_data;
    lab->on_end = echo_end;
    struct lab_call *calls[CALLS];
    for (int i = 0; i < CALLS; i++) {
        calls[i] = lab_call_start(lab, false, "x-number", "1", NULL);
        assert_non_null(calls[i]);
        lab_say_zeros(calls[i], BODY, true);
    }
    for (int i = 0; i < CALLS; i++) {
        loop_until_count(*state, &calls[i]->ends, 1);
        assert_int_equal(calls[i]->body_bytes, BODY);
        assert_true(text_eq(lab_value(&calls[i]->trailers, "grpc-status"), TEXT("0")));
        assert_int_equal(calls[i]->flushes, 1);
        assert_int_equal(calls[i]->resets, 0);
        lab_detach(calls[i]);
    }
    loop_run_ms(*state, 5);
    assert_int_equal(lab->client.h2->open_streams, 0);
    assert_int_equal(lab->server.h2->open_streams, 0);
    assert_int_equal(lab->client.streams_closed, CALLS);
    h2_lab_close(lab);
}

#define loop_test(name) cmocka_unit_test_setup_teardown(name, loop_setup, loop_teardown)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        loop_test(trailers_pass_an_exhausted_window),
        loop_test(trailers_behind_blocked_data_outlive_their_owners_text),
        loop_test(stream_credit_returns_by_halves_and_never_after_the_end),
        loop_test(what_a_detached_stream_receives_is_credited),
        loop_test(padding_is_credited_by_itself),
        loop_test(waiting_for_the_peers_window_is_measured_as_stalled),
        loop_test(waiting_for_a_full_socket_is_measured_as_stalled),
        loop_test(waiting_in_the_write_queue_is_measured_as_stalled),
        loop_test(streams_detached_before_their_bytes_left_are_not_told),
        loop_test(constant_fields_survive_a_full_socket),
        loop_test(the_connection_window_is_replenished_on_receipt),
        loop_test(only_the_wait_of_a_blocked_head_is_stalled),
        loop_test(both_ends_echo_bodies_larger_than_all_windows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
