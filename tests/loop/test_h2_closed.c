/* Frames on streams that are over: what the peer gets for them, and that nobody else does. */
#include "h2_lab.h"

static void
data_behind_the_end_of_a_finished_stream_is_stream_closed(void **state)
{
    struct h2_lab *lab = h2_lab_server(*state, NULL);
    lab_expect_served(lab, 1);
    lab_frame(lab, F_DATA, END_STREAM, 1, "late", 4);
    lab_send(lab);
    assert_int_equal(lab_expect(lab, F_RST, 1, 0)->word, NGHTTP2_STREAM_CLOSED);
    lab_expect_served(lab, 3);
    h2_lab_close(lab);
}

static void
data_behind_the_peers_reset_is_stream_closed(void **state)
{
    struct h2_lab *lab = h2_lab_server(*state, NULL);
    lab_request(lab, 1, false);
    lab_word(lab, F_RST, 0, 1, NGHTTP2_CANCEL);
    lab_frame(lab, F_DATA, 0, 1, "late", 4);
    lab_send(lab);
    assert_int_equal(lab_expect(lab, F_RST, 1, 0)->word, NGHTTP2_STREAM_CLOSED);
    lab_expect_served(lab, 3);
    h2_lab_close(lab);
}

static void
headers_on_a_finished_stream_end_the_connection(void **state)
{
    struct h2_lab *lab = h2_lab_server(*state, NULL);
    lab_expect_served(lab, 1);
    lab_request(lab, 1, true);
    lab_send(lab);
    lab_expect_goaway(lab, NGHTTP2_STREAM_CLOSED);
    lab_expect_eof(lab);
    h2_lab_close(lab);
}

static void
an_id_that_was_passed_over_ends_the_connection(void **state)
{
    struct h2_lab *lab = h2_lab_server(*state, NULL);
    lab_expect_served(lab, 5);
    lab_request(lab, 3, true);
    lab_send(lab);
    lab_expect_goaway(lab, NGHTTP2_PROTOCOL_ERROR);
    h2_lab_close(lab);
}

static void
requests_before_the_faulty_frame_are_served(void **state)
{
    struct h2_lab *lab = h2_lab_server(*state, NULL);
    lab_expect_served(lab, 1);
    lab->on_end = lab_reply_unary;
    lab_request(lab, 3, true);
    lab_frame(lab, F_DATA, 0, 1, "late", 4);
    lab_request(lab, 5, true);
    lab_send(lab); /* one segment */
    for (int i = 0; i < 5; i++) {
        struct lab_frame *frame = lab_next(lab);
        if (frame->type == F_RST)
            assert_int_equal(frame->id, 1);
        else
            assert_true(frame->id == 3 || frame->id == 5);
    }
    assert_true(lab_quiet(lab));
    h2_lab_close(lab);
}

static void
refuse(struct lab_call *call)
{
    lab_reset(call, NGHTTP2_CANCEL);
}

/* They may have been on their way. */
static void
frames_behind_our_own_reset_are_dropped(void **state)
{
    struct h2_lab *lab = h2_lab_server(*state, NULL);
    lab->on_head = refuse;
    lab_request(lab, 1, false);
    lab_send(lab);
    lab_expect(lab, F_RST, 1, 0);
    lab->on_head = NULL;
    lab_frame(lab, F_DATA, 0, 1, "on its way", 10);
    lab_headers(lab, 1, END_STREAM, "x-trailer", "1", NULL);
    lab_send(lab);
    assert_true(lab_quiet(lab));
    lab_expect_served(lab, 3);
    h2_lab_close(lab);
}

static void
trailers_of_an_open_stream_are_no_fault(void **state)
{
    struct h2_lab *lab = h2_lab_server(*state, NULL);
    lab->on_end = lab_reply_unary;
    lab_request(lab, 1, false);
    lab_request(lab, 3, false);
    lab_headers(lab, 1, END_STREAM, "x-trailer", "1", NULL);
    lab_send(lab);
    lab_expect(lab, F_HEADERS, 1, END_HEADERS);
    lab_expect(lab, F_DATA, 1, END_STREAM);
    assert_true(lab_quiet(lab));
    h2_lab_close(lab);
}

/* 64 streams later nobody remembers, and the frame is dropped. */
static void
long_forgotten_streams_cost_nothing(void **state)
{
    struct h2_lab *lab = h2_lab_server(*state, NULL);
    for (uint32_t id = 1; id <= 1 + 2 * 64; id += 2)
        lab_expect_served(lab, id);
    lab_frame(lab, F_DATA, 0, 1, "late", 4);
    lab_request(lab, 1, true);
    lab_send(lab);
    assert_true(lab_quiet(lab));
    lab_frame(lab, F_DATA, 0, 3, "late", 4); /* the oldest that is remembered */
    lab_send(lab);
    assert_int_equal(lab_expect(lab, F_RST, 3, 0)->word, NGHTTP2_STREAM_CLOSED);
    h2_lab_close(lab);
}

/* Frame heads that come in pieces, from the preface on. */
static void
faults_are_found_one_byte_at_a_time(void **state)
{
    struct h2_lab *lab = h2_lab_server_silent(*state, NULL);
    lab->on_end = lab_reply_unary;
    lab_preface(lab);
    lab_request(lab, 1, false);
    lab_frame(lab, F_DATA, END_STREAM, 1, "ask", 3);
    uint8_t bytes[512];
    size_t count = lab->out_bytes;
    assert_true(count < sizeof bytes);
    memcpy(bytes, lab->out, count);
    lab->out_bytes = 0;
    for (size_t i = 0; i < count; i++) {
        lab_raw(lab, bytes + i, 1);
        lab_send(lab);
        loop_run_ms(*state, 1);
    }
    lab_expect(lab, F_HEADERS, 1, END_HEADERS);
    lab_expect(lab, F_DATA, 1, END_STREAM);
    lab_raw(lab, "\0\0\1\0\1\0\0", 7); /* DATA, END_STREAM, stream 1 … */
    lab_send(lab);
    loop_run_ms(*state, 1);
    lab_raw(lab, "\0\1x", 3);
    lab_send(lab);
    assert_int_equal(lab_expect(lab, F_RST, 1, 0)->word, NGHTTP2_STREAM_CLOSED);
    lab_expect_served(lab, 3);
    h2_lab_close(lab);
}

static void
faults_are_counted(void **state)
{
    struct h2_options few = lab_options;
    few.reset_limit = 10;
    few.reset_window_ns = 10 * NS_PER_S;
    struct h2_lab *lab = h2_lab_server(*state, &few);
    lab_expect_served(lab, 1);
    for (int i = 0; i < 11; i++)
        lab_frame(lab, F_DATA, 0, 1, "late", 4);
    lab_send(lab);
    lab_expect_goaway(lab, NGHTTP2_ENHANCE_YOUR_CALM);
    h2_lab_close(lab);
}

#define loop_test(name) cmocka_unit_test_setup_teardown(name, loop_setup, loop_teardown)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        loop_test(data_behind_the_end_of_a_finished_stream_is_stream_closed),
        loop_test(data_behind_the_peers_reset_is_stream_closed),
        loop_test(headers_on_a_finished_stream_end_the_connection),
        loop_test(an_id_that_was_passed_over_ends_the_connection),
        loop_test(requests_before_the_faulty_frame_are_served),
        loop_test(frames_behind_our_own_reset_are_dropped),
        loop_test(trailers_of_an_open_stream_are_no_fault),
        loop_test(long_forgotten_streams_cost_nothing),
        loop_test(faults_are_found_one_byte_at_a_time),
        loop_test(faults_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
