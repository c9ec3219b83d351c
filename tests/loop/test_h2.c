/* HTTP/2 connections that behave: frames on the wire, flow control, draining, ends of streams. Faults are in test_h2_faults.c. */
#include "h2_lab.h"

#include <stdlib.h>

static void
reply_unary(struct lab_call *call)
{
    lab_reply_head(call, false, ":status", "200", "content-type", "application/proto", NULL);
    lab_say(call, "hello", 5, true);
}

static void
reply_framed(struct lab_call *call)
{
    lab_reply_head(call, false, ":status", "200", NULL);
    lab_say(call, "hello", 5, false);
    lab_trailers(call, "grpc-status", "0", NULL);
}

static void
server_announces_its_limits_and_a_large_connection_window(void **state)
{
    struct h2_options options = lab_options;
    options.max_streams = 7;
    options.stream_window = 123456;
    struct h2_lab *lab = h2_lab_server(*state, &options);
    struct lab_frame *frame = lab_next_any(lab);
    static const uint8_t settings[] = {0, 3, 0, 0, 0, 7, 0, 4, 0, 1, 0xe2, 0x40, 0, 6, 0, 1, 0, 0};
    assert_int_equal(frame->type, F_SETTINGS);
    assert_int_equal(frame->len, sizeof settings);
    assert_memory_equal(frame->payload, settings, sizeof settings);
    for (int i = 0; i < 2; i++) { /* the ACK of the client's SETTINGS overtakes */
        frame = lab_next_any(lab);
        if (frame->type == F_WINDOW)
            break;
    }
    assert_int_equal(frame->type, F_WINDOW);
    assert_int_equal(frame->id, 0);
    assert_int_equal(frame->word, LAB_CONN_WINDOW - 65535);
    h2_lab_close(lab);
}

static void
client_turns_push_off_and_may_ask_at_once(void **state)
{
    struct h2_lab *lab = h2_lab_client(*state, NULL);
    static const uint8_t settings[] = {0, 2, 0, 0, 0, 0, 0, 4, 0, 0x10, 0, 0, 0, 6, 0, 1, 0, 0};
    assert_int_equal(h2_capacity(lab->client.h2), 100);
    assert_non_null(lab_call_start(lab, true, NULL));
    struct lab_frame *frame = lab_next_any(lab);
    assert_int_equal(frame->type, F_SETTINGS);
    assert_int_equal(frame->len, sizeof settings);
    assert_memory_equal(frame->payload, settings, sizeof settings);
    lab_expect(lab, F_HEADERS, 1, END_STREAM | END_HEADERS);
    h2_lab_close(lab);
}

static void
unary_reply_is_head_and_one_data_frame(void **state)
{
    struct h2_lab *lab = h2_lab_server(*state, NULL);
    lab->on_end = reply_unary;
    lab_request(lab, 1, false);
    lab_frame(lab, F_DATA, END_STREAM, 1, "ask", 3);
    lab_send(lab);
    struct lab_frame *frame = lab_expect(lab, F_HEADERS, 1, END_HEADERS);
    assert_true(lab_has(frame, ":status: 200"));
    assert_true(lab_has(frame, "content-type: application/proto"));
    frame = lab_expect(lab, F_DATA, 1, END_STREAM);
    assert_int_equal(frame->len, 5);
    assert_memory_equal(frame->payload, "hello", 5);
    assert_true(lab_quiet(lab));
    struct lab_call *call = &lab->calls[0];
    assert_int_equal(call->ends, 1);
    assert_string_equal(call->body, "ask");
    assert_true(text_eq(lab_value(&call->fields, ":path"), TEXT("/s/m")));
    assert_true(text_eq(lab_value(&call->fields, ":authority"), TEXT("here")));
    assert_int_equal(call->sent, 5);
    assert_int_equal(call->flushes, 1);
    assert_int_equal(call->resets, 0);
    h2_lab_close(lab);
}

static void
data_with_trailers_has_no_empty_data_frame(void **state)
{
    struct h2_lab *lab = h2_lab_server(*state, NULL);
    lab->on_end = reply_framed;
    lab_request(lab, 1, true);
    lab_send(lab);
    lab_expect(lab, F_HEADERS, 1, END_HEADERS);
    assert_int_equal(lab_expect(lab, F_DATA, 1, 0)->len, 5);
    assert_true(lab_has(lab_expect(lab, F_HEADERS, 1, END_STREAM | END_HEADERS), "grpc-status: 0"));
    assert_true(lab_quiet(lab));
    assert_int_equal(lab->calls[0].flushes, 1);
    h2_lab_close(lab);
}

static void
trailers_only_is_one_headers_frame(void **state)
{
    struct h2_lab *lab = h2_lab_server(*state, NULL);
    lab_request(lab, 1, true);
    lab_send(lab);
    lab_reply_head(&lab->calls[0], true, ":status", "200", "grpc-status", "12", NULL);
    lab_expect(lab, F_HEADERS, 1, END_STREAM | END_HEADERS);
    assert_true(lab_quiet(lab));
    assert_int_equal(lab->calls[0].flushes, 1);
    h2_lab_close(lab);
}

static void
trailers_right_after_the_head_have_no_data_between(void **state)
{
    struct h2_lab *lab = h2_lab_server(*state, NULL);
    lab_request(lab, 1, true);
    lab_send(lab);
    lab_reply_head(&lab->calls[0], false, ":status", "200", NULL);
    lab_trailers(&lab->calls[0], "grpc-status", "5", NULL);
    lab_expect(lab, F_HEADERS, 1, END_HEADERS);
    lab_expect(lab, F_HEADERS, 1, END_STREAM | END_HEADERS);
    assert_true(lab_quiet(lab));
    h2_lab_close(lab);
}

static void
trailers_after_a_pause_come_by_themselves(void **state)
{
    struct h2_lab *lab = h2_lab_server(*state, NULL);
    for (uint32_t id = 1; id < 40; id += 2)
        lab_request(lab, id, true);
    lab_send(lab);
    for (unsigned i = 0; i < lab->call_count; i++) {
        lab_reply_head(&lab->calls[i], false, ":status", "200", NULL);
        if (i % 2)
            lab_say(&lab->calls[i], "x", 1, false);
    }
    for (unsigned i = 0; i < lab->call_count; i++) {
        lab_expect(lab, F_HEADERS, 2 * i + 1, END_HEADERS);
    }
    for (unsigned i = 1; i < lab->call_count; i += 2)
        assert_int_equal(lab_next(lab)->type, F_DATA);
    assert_true(lab_quiet(lab));
    for (unsigned i = 0; i < lab->call_count; i++)
        lab_trailers(&lab->calls[i], "grpc-status", "0", NULL);
    for (unsigned i = 0; i < lab->call_count; i++)
        lab_expect(lab, F_HEADERS, 2 * i + 1, END_STREAM | END_HEADERS);
    assert_true(lab_quiet(lab));
    h2_lab_close(lab);
}

static void
data_and_end_after_a_pause_come_by_themselves(void **state)
{
    struct h2_lab *lab = h2_lab_client(*state, NULL);
    struct lab_call *call = lab_call_start(lab, false, NULL);
    lab_expect(lab, F_HEADERS, 1, END_HEADERS);
    assert_true(lab_quiet(lab));
    lab_say(call, "one", 3, false);
    assert_int_equal(lab_expect(lab, F_DATA, 1, 0)->len, 3);
    lab_say(call, NULL, 0, true);
    assert_int_equal(lab_expect(lab, F_DATA, 1, END_STREAM)->len, 0);
    assert_int_equal(call->flushes, 1);
    h2_lab_close(lab);
}

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
    assert_true(lab_has(lab_expect(lab, F_HEADERS, 1, END_STREAM | END_HEADERS), "grpc-message: gone soon"));
    h2_lab_close(lab);
}

static void
requests_of_one_turn_are_answered_with_one_write(void **state)
{
    struct h2_lab *lab = h2_lab_server(*state, NULL);
    loop_run_ms(*state, 5);
    lab->on_end = reply_framed;
    for (uint32_t id = 1; id < 129; id += 2) {
        lab_request(lab, id, false);
        lab_frame(lab, F_DATA, END_STREAM, id, "ask", 3);
    }
    uint64_t writes = lab->server.writes;
    lab_send(lab);
    loop_run_ms(*state, 5);
    assert_int_equal(lab->call_count, 64);
    assert_int_equal(lab->server.writes - writes, 1);
    unsigned ends = 0;
    for (int i = 0; i < 3 * 64; i++)
        ends += lab_next(lab)->flags == (END_STREAM | END_HEADERS);
    assert_int_equal(ends, 64);
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
large_bodies_leave_in_the_largest_frames_that_the_peer_takes(void **state)
{
    struct h2_lab *lab = h2_lab_server_silent(*state, NULL);
    lab_raw(lab, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 24);
    lab_settings(lab, (uint32_t[]){4, 1 << 20, 5, 1 << 20}, 2);
    lab_word(lab, F_WINDOW, 0, 0, 1 << 20);
    lab_request(lab, 1, true);
    lab_send(lab);
    lab_reply_head(&lab->calls[0], false, ":status", "200", NULL);
    lab_say_zeros(&lab->calls[0], 150000, true);
    lab_expect(lab, F_HEADERS, 1, END_HEADERS);
    assert_int_equal(lab_expect(lab, F_DATA, 1, 0)->len, 65536);
    assert_int_equal(lab_expect(lab, F_DATA, 1, 0)->len, 65536);
    assert_int_equal(lab_expect(lab, F_DATA, 1, END_STREAM)->len, 150000 - 2 * 65536);
    lab_settings(lab, (uint32_t[]){5, 16384}, 1);
    lab_request(lab, 3, true);
    lab_send(lab);
    lab_reply_head(&lab->calls[1], false, ":status", "200", NULL);
    lab_say_zeros(&lab->calls[1], 16385, true);
    lab_expect(lab, F_HEADERS, 3, END_HEADERS);
    assert_int_equal(lab_expect(lab, F_DATA, 3, 0)->len, 16384);
    assert_int_equal(lab_expect(lab, F_DATA, 3, END_STREAM)->len, 1);
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

/* Reads frames until stream `id` has ended; the lab's buffer stays small. Returns the bytes of its body. */
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

/* Between the head and the data it is not the peer that everybody waits for. */
static void
only_the_wait_of_a_blocked_head_is_stalled(void **state)
{
    struct h2_lab *lab = server_with_full_socket(state, 24 << 20);
    struct lab_call *call = &lab->calls[1];
    lab_reply_head(call, false, ":status", "200", NULL);
    loop_run_ms(*state, 60);
    read_body(lab, 1);
    loop_run_ms(*state, 300);
    lab_say(call, "hello", 5, true);
    loop_until_count(*state, &call->flushes, 1);
    assert_true(call->stalled_ns >= 50 * NS_PER_MS);
    assert_true(call->stalled_ns < 300 * NS_PER_MS);
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

static void
many_fields_and_long_values_pass(void **state)
{
    struct h2_options options = lab_options;
    options.max_header_list = 1 << 20;
    struct h2_lab *lab = h2_lab_pair(*state, &options, &options);
    struct lab_call *call = lab_call_start(lab, true, NULL);
    lab_detach(call);
    struct arena arena;
    struct fields fields;
    arena_init(&arena, NULL, 0);
    fields_init(&fields, &arena);
    fields_add(&fields, TEXT(":method"), TEXT("POST"), FIELD_STATIC);
    fields_add(&fields, TEXT(":scheme"), TEXT("http"), FIELD_STATIC);
    fields_add(&fields, TEXT(":path"), TEXT("/s/m"), FIELD_STATIC_NAME | FIELD_NO_INDEX);
    fields_add(&fields, TEXT(":authority"), TEXT("there"), 0);
    struct text value = arena_printf(&arena, "%02000d", 7);
    for (int i = 0; i < 150; i++)
        fields_add(&fields, arena_printf(&arena, "x-%d", i), value, i % 2 ? FIELD_NO_INDEX : 0);
    static const struct stream_events none;
    struct stream *stream = h2_request(lab->client.h2, &fields, true, &none, NULL, NULL, NULL);
    assert_non_null(stream);
    h2_detach(stream);
    loop_until_count(*state, &lab->server.opened, 2);
    loop_run_ms(*state, 5);
    struct lab_call *got = &lab->calls[2];
    assert_int_equal(got->heads, 1);
    assert_int_equal(got->fields.count, 154);
    assert_true(text_eq(lab_value(&got->fields, "x-149"), value));
    assert_true(got->fields.items[0].flags & FIELD_STATIC); /* ":method: POST" is in HPACK's static table */
    arena_fini(&arena);
    h2_lab_close(lab);
}

static void
drain_serves_what_races_with_its_first_goaway(void **state)
{
    struct h2_lab *lab = h2_lab_server(*state, NULL);
    lab->on_end = reply_unary;
    lab_request(lab, 1, false);
    lab_send(lab);
    h2_drain(lab->server.h2);
    h2_drain(lab->server.h2); /* harmless */
    struct lab_frame *frame = lab_next(lab);
    uint8_t opaque[8] = {0};
    for (int i = 0; i < 2; i++, frame = i < 2 ? lab_next(lab) : frame) {
        if (frame->type == F_PING) {
            assert_int_equal(frame->flags, 0);
            memcpy(opaque, frame->payload, 8);
        } else {
            assert_int_equal(frame->type, F_GOAWAY);
            assert_int_equal(frame->word, 0x7fffffff);
            assert_int_equal(frame->word2, 0);
        }
    }
    lab_request(lab, 3, true);
    lab_frame(lab, F_PING, ACK, 0, opaque, 8);
    lab_send(lab);
    frame = lab_next(lab);
    for (int i = 0; i < 3 && frame->type != F_GOAWAY; i++)
        frame = lab_next(lab);
    assert_int_equal(frame->type, F_GOAWAY);
    assert_int_equal(frame->word, 3);
    assert_int_equal(lab->calls[1].heads, 1);
    lab_request(lab, 5, true); /* too late: ignored */
    lab_frame(lab, F_DATA, END_STREAM, 1, "ask", 3);
    assert_false(lab->server.down);
    lab_send(lab);
    loop_until(*state, &lab->server.down);
    assert_int_equal(lab->server.down_error, 0);
    assert_string_equal(lab->server.down_text, "drained");
    assert_int_equal(lab->call_count, 2);
    assert_int_equal(lab->calls[0].flushes, 1);
    h2_lab_close(lab);
}

static void
drain_does_not_wait_for_ever_for_the_ping(void **state)
{
    struct h2_lab *lab = h2_lab_server(*state, NULL);
    loop_run_ms(*state, 5);
    uint64_t began_ns = clock_now_ns();
    h2_drain(lab->server.h2);
    lab_expect_goaway(lab, 0);
    lab_expect_goaway(lab, 0);
    uint64_t took_ns = clock_now_ns() - began_ns;
    assert_true(took_ns >= 950 * NS_PER_MS && took_ns < 1500 * NS_PER_MS);
    lab_expect_eof(lab);
    h2_lab_close(lab);
}

static void
draining_client_closes_when_its_last_stream_has_ended(void **state)
{
    struct h2_lab *lab = h2_lab_pair(*state, NULL, NULL);
    struct lab_call *call = lab_call_start(lab, true, NULL);
    loop_until_count(*state, &lab->server.opened, 1);
    h2_drain(lab->client.h2);
    assert_int_equal(h2_capacity(lab->client.h2), 0);
    assert_null(lab_call_start(lab, true, NULL));
    loop_run_ms(*state, 20);
    assert_false(lab->client.down);
    reply_unary(&lab->calls[1]);
    loop_until(*state, &lab->client.down);
    assert_int_equal(call->ends, 1);
    assert_int_equal(call->resets, 0);
    loop_until(*state, &lab->server.down);
    h2_lab_close(lab);
}

static void
pings_are_answered_and_ours_are_reported(void **state)
{
    struct h2_lab *lab = h2_lab_pair(*state, NULL, NULL);
    h2_ping(lab->client.h2);
    h2_ping(lab->client.h2); /* one at a time */
    loop_until_count(*state, &lab->client.pongs, 1);
    loop_run_ms(*state, 10);
    assert_int_equal(lab->client.pongs, 1);
    h2_ping(lab->server.h2);
    loop_until_count(*state, &lab->server.pongs, 1);
    h2_lab_close(lab);
}

static void
streams_above_a_goaways_last_id_were_not_processed(void **state)
{
    struct h2_lab *lab = h2_lab_client(*state, NULL);
    lab_settings(lab, NULL, 0);
    lab_send(lab);
    struct lab_call *first = lab_call_start(lab, true, NULL), *second = lab_call_start(lab, true, NULL);
    lab_expect(lab, F_HEADERS, 1, END_STREAM | END_HEADERS);
    lab_expect(lab, F_HEADERS, 3, END_STREAM | END_HEADERS);
    lab_goaway(lab, 1, 0);
    lab_send(lab);
    loop_until_count(*state, &lab->client.goaways, 1);
    assert_int_equal(second->resets, 1);
    assert_int_equal(second->reset_error, STREAM_NOT_PROCESSED);
    assert_int_equal(first->resets, 0);
    assert_int_equal(h2_capacity(lab->client.h2), 0);
    assert_false(lab->client.down);
    lab_headers(lab, 1, END_STREAM, ":status", "200", NULL);
    lab_send(lab);
    loop_until_count(*state, &first->heads, 1);
    loop_until(*state, &lab->client.down);
    assert_int_equal(first->resets, 0);
    h2_lab_close(lab);
}

static void
used_up_stream_ids_end_the_capacity(void **state)
{
    struct h2_lab *lab = h2_lab_client(*state, NULL);
    assert_int_equal(nghttp2_session_set_next_stream_id(lab->client.h2->session, INT32_MAX - 2), 0);
    assert_int_equal(h2_capacity(lab->client.h2), 2);
    assert_non_null(lab_call_start(lab, true, NULL));
    assert_non_null(lab_call_start(lab, true, NULL));
    assert_int_equal(h2_capacity(lab->client.h2), 0);
    assert_null(lab_call_start(lab, true, NULL));
    lab_expect(lab, F_HEADERS, INT32_MAX - 2, END_STREAM | END_HEADERS);
    lab_expect(lab, F_HEADERS, INT32_MAX, END_STREAM | END_HEADERS);
    h2_lab_close(lab);
}

static void
lowered_stream_limits_hold_at_once(void **state)
{
    struct h2_lab *lab = h2_lab_client(*state, NULL);
    lab_settings(lab, (uint32_t[]){3, 10}, 1);
    lab_send(lab);
    loop_until_count(*state, &lab->client.settings, 1);
    assert_int_equal(h2_capacity(lab->client.h2), 10);
    struct lab_call *calls[3];
    for (int i = 0; i < 3; i++)
        calls[i] = lab_call_start(lab, true, NULL);
    assert_int_equal(h2_capacity(lab->client.h2), 7);
    lab_settings(lab, (uint32_t[]){3, 1}, 1);
    lab_send(lab);
    loop_until_count(*state, &lab->client.settings, 2);
    assert_int_equal(h2_capacity(lab->client.h2), 0);
    assert_null(lab_call_start(lab, true, NULL));
    for (uint32_t i = 0; i < 3; i++)
        lab_headers(lab, 2 * i + 1, END_STREAM, ":status", "200", NULL);
    lab_settings(lab, (uint32_t[]){3, 0}, 1);
    lab_send(lab);
    loop_until_count(*state, &lab->client.settings, 3);
    assert_int_equal(calls[2]->heads, 1);
    assert_int_equal(h2_capacity(lab->client.h2), 0);
    loop_run_ms(*state, 10); /* the ACK of the SETTINGS */
    uint64_t writes = lab->client.writes;
    loop_run_ms(*state, 30);
    assert_int_equal(lab->client.writes, writes); /* nothing spins */
    lab_settings(lab, (uint32_t[]){3, 50}, 1);
    lab_send(lab);
    loop_until_count(*state, &lab->client.settings, 4);
    assert_int_equal(h2_capacity(lab->client.h2), 50);
    h2_lab_close(lab);
}

/* dubbo-go and gRPC servers: a full reply, then RST_STREAM, in one segment, while we are still sending. */
static void
an_early_reply_counts_before_the_reset_behind_it(void **state)
{
    static const uint32_t codes[] = {NGHTTP2_NO_ERROR, NGHTTP2_CANCEL};
    struct h2_lab *lab = h2_lab_client(*state, NULL);
    lab_settings(lab, NULL, 0);
    lab_send(lab);
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t id = 2 * i + 1;
        struct lab_call *call = lab_call_start(lab, false, NULL);
        lab_expect(lab, F_HEADERS, id, END_HEADERS);
        lab_headers(lab, id, 0, ":status", "200", NULL);
        lab_frame(lab, F_DATA, 0, id, "hello", 5);
        lab_headers(lab, id, END_STREAM, "grpc-status", "8", NULL);
        lab_word(lab, F_RST, 0, id, codes[i]);
        lab_send(lab);
        loop_run_ms(*state, 5);
        assert_int_equal(call->ends, 1);
        assert_string_equal(call->body, "hello");
        assert_true(text_eq(lab_value(&call->trailers, "grpc-status"), TEXT("8")));
        assert_int_equal(call->resets, 0);
        lab_say(call, "late", 4, true); /* dropped */
        lab_detach(call);
    }
    assert_true(lab_quiet(lab));
    h2_lab_close(lab);
}

static void
reply_then_reset(struct lab_call *call)
{
    reply_framed(call);
    lab_reset(call, NGHTTP2_NO_ERROR);
}

static void
our_early_reply_leaves_whole_before_its_reset(void **state)
{
    struct h2_lab *lab = h2_lab_server(*state, NULL);
    char bytes[16384] = {0};
    lab->on_head = reply_then_reset;
    lab_request(lab, 1, false);
    lab_send(lab);
    lab_expect(lab, F_HEADERS, 1, END_HEADERS);
    lab_expect(lab, F_DATA, 1, 0);
    lab_expect(lab, F_HEADERS, 1, END_STREAM | END_HEADERS);
    assert_int_equal(lab_expect(lab, F_RST, 1, 0)->word, NGHTTP2_NO_ERROR);
    for (int i = 0; i < 64; i++) /* the client goes on for 1 MiB: absorbed */
        lab_frame(lab, F_DATA, 0, 1, bytes, sizeof bytes);
    lab_send(lab);
    assert_true(lab_quiet(lab));
    lab->on_head = NULL;
    lab->on_end = reply_unary;
    lab_request(lab, 3, true);
    lab_send(lab);
    lab_expect(lab, F_HEADERS, 3, END_HEADERS);
    h2_lab_close(lab);
}

static void
a_reset_drops_what_was_not_sent_and_detaches(void **state)
{
    struct h2_lab *lab = h2_lab_client(*state, NULL);
    lab_settings(lab, NULL, 0);
    lab_send(lab);
    struct lab_call *call = lab_call_start(lab, false, NULL);
    lab_say_zeros(call, 200000, false);
    loop_run_ms(*state, 5);
    lab_reset(call, NGHTTP2_CANCEL);
    loop_run_ms(*state, 5);
    assert_int_equal(lab->client.streams_closed, 1);
    assert_int_equal(lab->client.h2->open_streams, 0);
    struct lab_frame *frame = lab_expect(lab, F_HEADERS, 1, END_HEADERS);
    size_t got = 0;
    for (frame = lab_next(lab); frame->type == F_DATA; frame = lab_next(lab))
        got += frame->len;
    assert_int_equal(got, 65535);
    assert_int_equal(frame->type, F_RST);
    assert_int_equal(frame->word, NGHTTP2_CANCEL);
    /* An upload that an early reply made useless ends at once, whatever the code. */
    lab_settings(lab, (uint32_t[]){4, 10}, 1);
    lab_word(lab, F_WINDOW, 0, 0, 1000);
    lab_send(lab);
    loop_until_count(*state, &lab->client.settings, 2);
    call = lab_call_start(lab, false, NULL);
    lab_say_zeros(call, 200, true);
    lab_expect(lab, F_HEADERS, 3, END_HEADERS);
    lab_expect(lab, F_DATA, 3, 0);
    lab_headers(lab, 3, END_STREAM, ":status", "200", NULL);
    lab_send(lab);
    loop_until_count(*state, &call->heads, 1);
    lab_reset(call, NGHTTP2_NO_ERROR);
    assert_int_equal(lab_expect(lab, F_RST, 3, 0)->word, NGHTTP2_NO_ERROR);
    struct lab_call *unsent = lab_call_start(lab, true, NULL); /* reset before its head left: nothing is sent */
    lab_reset(unsent, NGHTTP2_CANCEL);
    assert_true(lab_quiet(lab));
    assert_int_equal(lab->client.streams_closed, 3);
    h2_lab_close(lab);
}

static void
resets_of_the_peer_are_reported_with_their_code(void **state)
{
    struct h2_lab *lab = h2_lab_client(*state, NULL);
    static const uint32_t codes[] = {0, 1, 2, 8, 11, 0x1f4, NGHTTP2_REFUSED_STREAM};
    lab_settings(lab, NULL, 0);
    lab_send(lab);
    for (uint32_t i = 0; i < 7; i++) {
        struct lab_call *call = lab_call_start(lab, true, NULL);
        lab_expect(lab, F_HEADERS, 2 * i + 1, END_STREAM | END_HEADERS);
        if (i % 2)
            lab_headers(lab, 2 * i + 1, 0, ":status", "200", NULL);
        lab_word(lab, F_RST, 0, 2 * i + 1, codes[i]);
        lab_send(lab);
        loop_until_count(*state, &call->resets, 1);
        assert_int_equal(call->reset_error, i == 6 ? STREAM_NOT_PROCESSED : codes[i]);
    }
    h2_lab_close(lab);
}

static void
a_preface_cut_into_bytes_works(void **state)
{
    struct h2_lab *lab = h2_lab_server_silent(*state, NULL);
    lab->on_end = reply_unary;
    lab_preface(lab);
    lab_request(lab, 1, true);
    for (size_t i = 0; i < lab->out_bytes; i++) {
        raw_send(*state, lab->fd, lab->out + i, 1);
        loop_turn(*state);
    }
    lab->out_bytes = 0;
    lab_expect(lab, F_HEADERS, 1, END_HEADERS);
    lab_expect(lab, F_DATA, 1, END_STREAM);
    h2_lab_close(lab);
}

static void
error_codes_have_names(void **state)
{
    (void)state;
    assert_string_equal(h2_error_name(0), "NO_ERROR");
    assert_string_equal(h2_error_name(8), "CANCEL");
    assert_string_equal(h2_error_name(13), "HTTP_1_1_REQUIRED");
    assert_string_equal(h2_error_name(14), "unknown error");
    assert_string_equal(h2_error_name(STREAM_UNSENDABLE), "headers unsendable");
    assert_string_equal(h2_error_name(STREAM_UNSENDABLE + 1), "unknown error");
}

#define loop_test(name) cmocka_unit_test_setup_teardown(name, loop_setup, loop_teardown)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        loop_test(server_announces_its_limits_and_a_large_connection_window),
        loop_test(client_turns_push_off_and_may_ask_at_once),
        loop_test(unary_reply_is_head_and_one_data_frame),
        loop_test(data_with_trailers_has_no_empty_data_frame),
        loop_test(trailers_only_is_one_headers_frame),
        loop_test(trailers_right_after_the_head_have_no_data_between),
        loop_test(trailers_after_a_pause_come_by_themselves),
        loop_test(data_and_end_after_a_pause_come_by_themselves),
        loop_test(trailers_pass_an_exhausted_window),
        loop_test(trailers_behind_blocked_data_outlive_their_owners_text),
        loop_test(requests_of_one_turn_are_answered_with_one_write),
        loop_test(stream_credit_returns_by_halves_and_never_after_the_end),
        loop_test(what_a_detached_stream_receives_is_credited),
        loop_test(padding_is_credited_by_itself),
        loop_test(large_bodies_leave_in_the_largest_frames_that_the_peer_takes),
        loop_test(waiting_for_the_peers_window_is_measured_as_stalled),
        loop_test(waiting_for_a_full_socket_is_measured_as_stalled),
        loop_test(only_the_wait_of_a_blocked_head_is_stalled),
        loop_test(both_ends_echo_bodies_larger_than_all_windows),
        loop_test(many_fields_and_long_values_pass),
        loop_test(drain_serves_what_races_with_its_first_goaway),
        loop_test(drain_does_not_wait_for_ever_for_the_ping),
        loop_test(draining_client_closes_when_its_last_stream_has_ended),
        loop_test(pings_are_answered_and_ours_are_reported),
        loop_test(streams_above_a_goaways_last_id_were_not_processed),
        loop_test(used_up_stream_ids_end_the_capacity),
        loop_test(lowered_stream_limits_hold_at_once),
        loop_test(an_early_reply_counts_before_the_reset_behind_it),
        loop_test(our_early_reply_leaves_whole_before_its_reset),
        loop_test(a_reset_drops_what_was_not_sent_and_detaches),
        loop_test(resets_of_the_peer_are_reported_with_their_code),
        loop_test(a_preface_cut_into_bytes_works),
        loop_test(error_codes_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
