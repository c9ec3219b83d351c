/* What a well-behaved HTTP/2 connection puts on the wire, frame by frame. Flow control, ends and
 * faults have their own files. */
#include "h2_lab.h"

#include <stdlib.h>

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
    lab->on_end = lab_reply_unary;
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
request_trailers_wait_for_their_head(void **state)
{
    struct h2_lab *lab = h2_lab_client(*state, NULL);
    lab_trailers(lab_call_start(lab, false, NULL), "x-trailer", "1", NULL);
    lab_expect(lab, F_HEADERS, 1, END_HEADERS);
    assert_true(lab_has(lab_expect(lab, F_HEADERS, 1, END_STREAM | END_HEADERS), "x-trailer: 1"));
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
    assert_true(got->fields.items[0].flags &
                FIELD_STATIC); /* ":method: POST" is in HPACK's static table */
    arena_fini(&arena);
    h2_lab_close(lab);
}

static void
a_preface_cut_into_bytes_works(void **state)
{
    struct h2_lab *lab = h2_lab_server_silent(*state, NULL);
    lab->on_end = lab_reply_unary;
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
what_the_sniffing_read_comes_first(void **state)
{
    struct h2_lab *bytes = h2_lab_server_silent(*state, NULL); /* only to build them */
    lab_preface(bytes);
    lab_request(bytes, 1, true);
    size_t cut = bytes->out_bytes - 20;
    struct h2_lab *lab = h2_lab_server_sniffed(*state, bytes->out, cut);
    lab->on_end = lab_reply_unary;
    lab_raw(lab, bytes->out + cut, 20);
    lab_send(lab);
    lab_expect(lab, F_HEADERS, 1, END_HEADERS);
    lab_expect(lab, F_DATA, 1, END_STREAM);
    h2_lab_close(lab);
    h2_lab_close(bytes);
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
        loop_test(request_trailers_wait_for_their_head),
        loop_test(trailers_after_a_pause_come_by_themselves),
        loop_test(data_and_end_after_a_pause_come_by_themselves),
        loop_test(requests_of_one_turn_are_answered_with_one_write),
        loop_test(large_bodies_leave_in_the_largest_frames_that_the_peer_takes),
        loop_test(many_fields_and_long_values_pass),
        loop_test(a_preface_cut_into_bytes_works),
        loop_test(what_the_sniffing_read_comes_first),
        loop_test(error_codes_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
