/* HTTP/2 peers that break rules or vanish: what our side reports, and that others go on. */
#include "h2_lab.h"

#include <stdlib.h>
#include <unistd.h>

static void
malformed_requests_end_alone(void **state)
{
    struct h2_lab *lab = h2_lab_server(*state, NULL);
    lab_request(lab, 1, false);
    lab_headers(lab, 3, 0, LAB_REQUEST, "connection", "keep-alive", NULL);
    lab_headers(lab, 5, 0, LAB_REQUEST, "transfer-encoding", "chunked", NULL);
    lab_headers(lab, 7, 0, LAB_REQUEST, "X-Upper", "1", NULL);
    lab_headers(lab, 9, 0, LAB_REQUEST, "with space", "1", NULL);
    lab_headers(lab, 11, 0, LAB_REQUEST, "x-a", "trailing ", NULL);
    lab_headers(lab, 13, 0, LAB_REQUEST, "x-a", "cr\r\nlf", NULL);
    lab_headers(lab, 15, 0, LAB_REQUEST, ":path", "/again", NULL);
    lab_headers(lab, 17, 0, ":method", "POST", "x-a", "1", ":path", "/late", ":scheme", "http",
                NULL);
    lab_headers(lab, 19, 0, LAB_REQUEST, "te", "gzip", NULL);
    lab_headers(lab, 21, 0, ":method", "POST", ":scheme", "http", ":authority", "here", NULL);
    lab_headers(lab, 23, 0, LAB_REQUEST, "content-length", "x", NULL);
    lab_headers(lab, 25, 0, LAB_REQUEST, "grpc-message", "line\nfeed",
                NULL); /* forgiven to servers only */
    lab_send(lab);
    for (uint32_t id = 3; id <= 25; id += 2)
        assert_int_equal(lab_expect(lab, F_RST, id, 0)->word, NGHTTP2_PROTOCOL_ERROR);
    assert_int_equal(lab->server.opened, 13);
    assert_int_equal(lab->server.streams_closed, 12);
    for (int i = 1; i < 13; i++) {
        assert_int_equal(lab->calls[i].heads, 0);
        assert_int_equal(lab->calls[i].resets, 1);
        assert_int_equal(lab->calls[i].reset_error, STREAM_MALFORMED);
    }
    lab_frame(lab, F_DATA, END_STREAM, 1, "ask", 3);
    lab->on_end = lab_reply_unary;
    lab_send(lab);
    lab_expect(lab, F_HEADERS, 1, END_HEADERS);
    lab_expect(lab, F_DATA, 1, END_STREAM);
    h2_lab_close(lab);
}

static void
bodies_that_contradict_their_length_are_malformed(void **state)
{
    struct h2_lab *lab = h2_lab_server(*state, NULL);
    lab_headers(lab, 1, 0, LAB_REQUEST, "content-length", "9", NULL);
    lab_frame(lab, F_DATA, END_STREAM, 1, "twenty bytes, not 9!", 20);
    lab_headers(lab, 3, 0, LAB_REQUEST, "content-length", "9", NULL);
    lab_frame(lab, F_DATA, END_STREAM, 3, "short", 5);
    lab_headers(lab, 5, END_STREAM, LAB_REQUEST, "content-length", "9", NULL);
    lab_send(lab);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(lab_expect(lab, F_RST, 2 * i + 1, 0)->word, NGHTTP2_PROTOCOL_ERROR);
        assert_int_equal(lab->calls[i].reset_error, STREAM_MALFORMED);
        assert_int_equal(lab->calls[i].ends, 0);
    }
    lab_expect_served(lab, 7);
    h2_lab_close(lab);
}

static void
request_trailers_without_end_are_malformed(void **state)
{
    struct h2_lab *lab = h2_lab_server(*state, NULL);
    lab_request(lab, 1, false);
    lab_headers(lab, 1, 0, "x-trailer", "1", NULL);
    lab_request(lab, 3, false);
    lab_headers(lab, 3, END_STREAM, "x-trailer", "1", NULL);
    lab_send(lab);
    assert_int_equal(lab_expect(lab, F_RST, 1, 0)->word, NGHTTP2_PROTOCOL_ERROR);
    assert_int_equal(lab->calls[0].reset_error, STREAM_MALFORMED);
    assert_int_equal(lab->calls[1].ends, 1);
    assert_true(lab->calls[1].got_trailers);
    assert_true(text_eq(lab_value(&lab->calls[1].trailers, "x-trailer"), TEXT("1")));
    h2_lab_close(lab);
}

static void
malformed_replies_end_alone(void **state)
{
    enum { BAD = 11 };
    struct h2_lab *lab = h2_lab_client_asking(*state, NULL, BAD + 1);
    lab_headers(lab, 1, 0, ":status", "200", "connection", "close", NULL);
    lab_headers(lab, 3, 0, "x-a", "no status", NULL);
    lab_headers(lab, 5, 0, ":status", "200", "X-Upper", "1", NULL);
    lab_headers(lab, 7, 0, ":status", "101", NULL);
    lab_headers(lab, 9, END_STREAM, ":status", "103", NULL);
    lab_headers(lab, 11, 0, ":status", "200", "content-length", "3", NULL);
    lab_frame(lab, F_DATA, END_STREAM, 11, "four", 4);
    lab_headers(lab, 13, 0, ":status", "200", NULL);
    lab_headers(lab, 13, END_STREAM, ":status", "200", NULL); /* a pseudo field among trailers */
    lab_headers(lab, 15, 0, ":status", "200", "x-a", "line\nfeed", NULL);
    lab_headers(lab, 17, 0, ":status", "200", ":status", "200", NULL);
    lab_headers(lab, 19, 0, ":status", "103", NULL);
    lab_frame(lab, F_DATA, END_STREAM, 19, "early", 5); /* before the head */
    lab_headers(lab, 21, 0, ":status", "200", NULL);
    lab_headers(lab, 21, 0, "x-a", "trailers that end nothing", NULL);
    lab_headers(lab, 23, END_STREAM, ":status", "200", NULL);
    lab_send(lab);
    for (uint32_t i = 0; i < BAD; i++) {
        loop_until_count(*state, &lab->calls[i].resets, 1);
        assert_int_equal(lab->calls[i].reset_error, STREAM_MALFORMED);
        assert_int_equal(lab_expect(lab, F_RST, 2 * i + 1, 0)->word, NGHTTP2_PROTOCOL_ERROR);
    }
    assert_int_equal(lab->calls[BAD].heads, 1);
    assert_false(lab->client.down);
    h2_lab_close(lab);
}

static void
a_raw_grpc_message_keeps_its_call(void **state)
{
    struct h2_lab *lab = h2_lab_client_asking(*state, NULL, 2);
    lab_headers(lab, 1, END_STREAM, ":status", "500", "grpc-status", "2", "grpc-message",
                "a\nb \xe9 100% +", "x-a", "1", NULL);
    lab_headers(lab, 3, 0, ":status", "200", NULL);
    lab_headers(lab, 3, END_STREAM, "grpc-message", "\tx\r\n ", "grpc-status", "2", NULL);
    lab_send(lab);
    loop_until_count(*state, &lab->calls[1].ends, 1);
    assert_int_equal(lab->calls[0].heads, 1);
    assert_true(
        text_eq(lab_value(&lab->calls[0].fields, "grpc-message"), TEXT("a\nb \xe9 100% +")));
    assert_true(text_eq(lab_value(&lab->calls[0].fields, "x-a"), TEXT("1")));
    assert_true(text_eq(lab_value(&lab->calls[1].trailers, "grpc-message"), TEXT("\tx\r\n ")));
    assert_true(lab_quiet(lab));
    h2_lab_close(lab);
}

static void
interim_heads_are_skipped(void **state)
{
    struct h2_lab *lab = h2_lab_client_asking(*state, NULL, 3);
    lab_headers(lab, 1, 0, ":status", "100", NULL);
    lab_headers(lab, 1, 0, ":status", "200", "x-final", "1", NULL);
    lab_frame(lab, F_DATA, END_STREAM, 1, "hello", 5);
    for (int i = 0; i < 3; i++)
        lab_headers(lab, 3, 0, ":status", "103", "link", "</a>", NULL);
    lab_headers(lab, 3, 0, ":status", "200", NULL);
    lab_headers(lab, 3, END_STREAM, "grpc-status", "0", NULL);
    lab_headers(lab, 5, 0, ":status", "200", NULL);
    lab_headers(lab, 5, 0, ":status", "100", NULL); /* too late */
    lab_send(lab);
    loop_until_count(*state, &lab->calls[2].resets, 1);
    assert_int_equal(lab->calls[0].ends, 1);
    assert_true(text_eq(lab_value(&lab->calls[0].fields, ":status"), TEXT("200")));
    assert_int_equal(lab->calls[0].fields.count, 2);
    assert_int_equal(lab->calls[1].ends, 1);
    assert_int_equal(lab->calls[1].fields.count, 1);
    assert_true(text_eq(lab_value(&lab->calls[1].trailers, "grpc-status"), TEXT("0")));
    assert_int_equal(lab->calls[2].reset_error, STREAM_MALFORMED);
    h2_lab_close(lab);
}

static void
a_lost_connection_tells_what_the_peer_cannot_have_seen(void **state)
{
    struct h2_lab *lab = h2_lab_client_asking(*state, NULL, 2);
    lab_headers(lab, 3, END_STREAM, ":status", "200", NULL);
    lab_send(lab);
    loop_until_count(*state, &lab->calls[1].heads, 1);
    raw_reset(lab->fd);
    lab->fd = -1;
    while (!lab->client.down) {
        if (lab->call_count == 2) /* in the turn in which the loss is read */
            assert_non_null(lab_call_start(lab, true, NULL));
        uv_run(&((struct loop_fixture *)*state)->loop, UV_RUN_ONCE);
    }
    assert_int_equal(lab->calls[0].resets, 1);
    assert_int_equal(lab->calls[0].reset_error, STREAM_LOST);
    assert_int_equal(lab->calls[1].resets, 0); /* its reply was complete */
    assert_int_equal(lab->calls[2].resets, 1);
    assert_int_equal(lab->calls[2].reset_error, STREAM_NOT_PROCESSED);
    lab_detach(&lab->calls[1]);
    h2_lab_close(lab);
}

static void
requests_behind_a_full_socket_were_not_processed(void **state)
{
    struct h2_lab *lab = h2_lab_client(*state, NULL);
    lab_settings(lab, (uint32_t[]){4, 0x7fffffff}, 1);
    lab_word(lab, F_WINDOW, 0, 0, 0x7fff0000);
    lab_send(lab);
    loop_until_count(*state, &lab->client.settings, 1);
    struct lab_call *big = lab_call_start(lab, false, NULL);
    lab_say_zeros(big, 24 << 20, true);
    loop_run_ms(*state, 50);
    struct lab_call *late = lab_call_start(lab, true, NULL);
    loop_run_ms(*state, 20);
    close(lab->fd);
    lab->fd = -1;
    loop_until(*state, &lab->client.down);
    assert_int_equal(big->reset_error, STREAM_LOST);
    assert_int_equal(late->reset_error, STREAM_NOT_PROCESSED);
    h2_lab_close(lab);
}

static void
ask_behind_the_body(struct lab_call *call)
{
    if (call->lab->call_count == 1 && call->sent == 240000)
        assert_non_null(lab_call_start(call->lab, true, NULL));
}

/* Its head stands behind a body in the write that the socket took in part: it may be there. */
static void
requests_in_a_blocked_write_may_have_been_processed(void **state)
{
    struct h2_lab *lab = h2_lab_client(*state, NULL);
    int bytes = 4096;
    uv_send_buffer_size(&lab->client.conn->handle, &bytes);
    setsockopt(lab->fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
    lab_settings(lab, (uint32_t[]){4, 0x7fffffff}, 1);
    lab_word(lab, F_WINDOW, 0, 0, 0x7fff0000);
    lab_send(lab);
    loop_until_count(*state, &lab->client.settings, 1);
    struct lab_call *big = lab_call_start(lab, false, NULL);
    lab->on_sent = ask_behind_the_body;
    lab_say_zeros(big, 240000, false);
    loop_turn(*state);
    assert_true(lab->client.conn->writing);
    assert_int_equal(lab->call_count, 2);
    close(lab->fd);
    lab->fd = -1;
    loop_until(*state, &lab->client.down);
    assert_int_equal(lab->calls[1].reset_error, STREAM_LOST);
    h2_lab_close(lab);
}

static void
stay_attached(struct lab_call *call)
{
    (void)call;
}

static void
a_stream_that_outlives_its_connection_is_harmless(void **state)
{
    struct h2_lab *lab = h2_lab_client_asking(*state, NULL, 1);
    lab->on_reset = stay_attached;
    struct lab_call *call = &lab->calls[0];
    close(lab->fd);
    lab->fd = -1;
    loop_until(*state, &lab->client.closed);
    assert_int_equal(call->resets, 1);
    lab_say(call, "late", 4, false);
    lab_trailers(call, "x", "y", NULL);
    h2_credit(call->stream, 5);
    assert_int_equal(lab_reply_head(call, true, ":status", "200", NULL), -EPIPE);
    lab_reset(call, NGHTTP2_CANCEL);
    assert_int_equal(lab->client.streams_closed, 1);
    h2_lab_close(lab);
}

static void
pushed_streams_end_the_connection(void **state)
{
    struct h2_lab *lab = h2_lab_client_asking(*state, NULL, 1);
    uint8_t promise[] = {0, 0, 0, 2, 0x82};
    loop_run_ms(*state, 5);
    lab_frame(lab, F_PUSH, END_HEADERS, 1, promise, sizeof promise);
    lab_send(lab);
    lab_expect_goaway(lab, NGHTTP2_PROTOCOL_ERROR);
    loop_until(*state, &lab->client.down);
    assert_int_equal(lab->calls[0].reset_error, STREAM_LOST);
    h2_lab_close(lab);
    lab = h2_lab_server(*state, NULL);
    lab_request(lab, 1, false);
    lab_frame(lab, F_PUSH, END_HEADERS, 1, promise, sizeof promise);
    lab_send(lab);
    lab_expect_goaway(lab, NGHTTP2_PROTOCOL_ERROR);
    h2_lab_close(lab);
}

static void
a_push_before_our_settings_are_acknowledged_is_refused(void **state)
{
    struct h2_lab *lab = h2_lab_client(*state, NULL);
    uint8_t promise[] = {0, 0, 0, 2, 0x82, 0x86, 0x84, 0x01, 1, 'a'};
    lab_call_start(lab, true, NULL);
    lab_expect(lab, F_HEADERS, 1, END_STREAM | END_HEADERS);
    lab_settings(lab, NULL, 0);
    lab_frame(lab, F_PUSH, END_HEADERS, 1, promise, sizeof promise);
    lab_headers(lab, 2, 0, ":status", "200", NULL);
    lab_frame(lab, F_DATA, END_STREAM, 2, "pushed", 6);
    lab_headers(lab, 1, END_STREAM, ":status", "200", NULL);
    lab_send(lab);
    loop_until_count(*state, &lab->calls[0].heads, 1);
    lab_expect(lab, F_RST, 2, 0);
    assert_false(lab->client.down);
    h2_lab_close(lab);
}

static void
what_is_not_http2_is_closed(void **state)
{
    struct h2_lab *lab = h2_lab_server_silent(*state, NULL);
    lab_raw(lab, "GET / HTTP/1.1\r\nHost: x\r\n\r\n", 27);
    lab_send(lab);
    loop_until(*state, &lab->server.down);
    assert_string_equal(lab->server.down_text, "not HTTP/2");
    h2_lab_close(lab);

    lab = h2_lab_server_silent(*state, NULL); /* SETTINGS of length 5 */
    lab_raw(lab, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 24);
    lab_frame(lab, F_SETTINGS, 0, 0, "12345", 5);
    lab_send(lab);
    lab_expect_goaway(lab, NGHTTP2_FRAME_SIZE_ERROR);
    lab_expect_eof(lab);
    h2_lab_close(lab);

    lab = h2_lab_server_silent(*state, NULL); /* unknown settings are ignored */
    lab_raw(lab, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 24);
    lab_settings(lab, (uint32_t[]){0x7f, 1, 0x55, 9}, 2);
    lab_expect_served(lab, 1);
    h2_lab_close(lab);

    lab = h2_lab_client(*state, NULL);
    lab_call_start(lab, true, NULL);
    lab_raw(lab, "HTTP/1.1 400 Bad Request\r\n\r\n", 28);
    lab_send(lab);
    loop_until(*state, &lab->client.down);
    assert_int_equal(lab->calls[0].resets, 1);
    h2_lab_close(lab);
}

static void
protocol_errors_say_goaway_and_close(void **state)
{
    struct h2_lab *lab = h2_lab_server(*state, NULL);
    uint8_t padding[] = {9, 'x'};
    lab_request(lab, 1, false);
    lab_frame(lab, F_DATA, PADDED, 1, padding, sizeof padding);
    lab_send(lab);
    lab_expect_goaway(lab, NGHTTP2_PROTOCOL_ERROR);
    lab_expect_eof(lab);
    assert_int_equal(lab->calls[0].reset_error, STREAM_LOST);
    assert_string_equal(lab->server.down_text, "PROTOCOL_ERROR");
    h2_lab_close(lab);
}

static void
shut_down_in_a_callback(struct lab_call *call)
{
    h2_shutdown(call->lab->server.h2, NGHTTP2_INTERNAL_ERROR);
    h2_shutdown(call->lab->server.h2, NGHTTP2_NO_ERROR); /* the first counts */
}

static void
a_connection_may_be_shut_down_from_its_own_callbacks(void **state)
{
    struct h2_lab *lab = h2_lab_server(*state, NULL);
    lab->on_head = shut_down_in_a_callback;
    lab_request(lab, 1, false);
    lab_request(lab, 3, false);
    lab_frame(lab, F_DATA, END_STREAM, 1, "x", 1);
    lab_send(lab);
    lab_expect_goaway(lab, NGHTTP2_INTERNAL_ERROR);
    lab_expect_eof(lab);
    assert_string_equal(lab->server.down_text, "shut down");
    assert_int_equal(lab->calls[0].reset_error, STREAM_LOST);
    h2_lab_close(lab);
}

static void
a_socket_closed_by_others_is_reported(void **state)
{
    struct h2_lab *lab = h2_lab_client_asking(*state, NULL, 1);
    conn_close(lab->client.conn);
    loop_until(*state, &lab->client.closed);
    assert_true(lab->client.down);
    assert_int_equal(lab->client.down_error, UV_ECANCELED);
    assert_int_equal(lab->calls[0].reset_error, STREAM_LOST);
    h2_lab_close(lab);
}

static void
replies_that_were_queued_leave_before_a_shutdown(void **state)
{
    struct h2_lab *lab = h2_lab_server(*state, NULL);
    lab->on_end = lab_reply_unary;
    lab_request(lab, 1, true);
    lab_send(lab);
    loop_until_count(*state, &lab->calls[0].flushes, 1);
    h2_shutdown(lab->server.h2, NGHTTP2_NO_ERROR);
    lab_expect(lab, F_HEADERS, 1, END_HEADERS);
    lab_expect(lab, F_DATA, 1, END_STREAM);
    lab_expect_goaway(lab, NGHTTP2_NO_ERROR);
    assert_int_equal(lab->calls[0].resets, 0);
    h2_lab_close(lab);
}

static void
what_calls_say_in_their_last_turn_leaves_before_a_shutdown(void **state)
{
    struct h2_lab *lab = h2_lab_server(*state, NULL);
    lab_request(lab, 1, false);
    lab_request(lab, 3, false);
    lab_send(lab);
    loop_until_count(*state, &lab->server.opened, 2);
    lab_reply_head(&lab->calls[0], true, ":status", "200", "grpc-status", "14", NULL);
    lab_reply_head(&lab->calls[1], false, ":status", "200", NULL);
    lab_say(&lab->calls[1], "hello", 5, false);
    lab_trailers(&lab->calls[1], "grpc-status", "14", NULL);
    h2_shutdown(lab->server.h2, NGHTTP2_NO_ERROR);
    lab_expect(lab, F_HEADERS, 1, END_STREAM | END_HEADERS);
    lab_expect(lab, F_HEADERS, 3, END_HEADERS);
    lab_expect(lab, F_DATA, 3, 0);
    lab_expect(lab, F_HEADERS, 3, END_STREAM | END_HEADERS);
    lab_expect_goaway(lab, NGHTTP2_NO_ERROR);
    lab_expect_eof(lab);
    h2_lab_close(lab);
}

#define loop_test(name) cmocka_unit_test_setup_teardown(name, loop_setup, loop_teardown)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        loop_test(malformed_requests_end_alone),
        loop_test(bodies_that_contradict_their_length_are_malformed),
        loop_test(request_trailers_without_end_are_malformed),
        loop_test(malformed_replies_end_alone),
        loop_test(a_raw_grpc_message_keeps_its_call),
        loop_test(interim_heads_are_skipped),
        loop_test(a_lost_connection_tells_what_the_peer_cannot_have_seen),
        loop_test(requests_behind_a_full_socket_were_not_processed),
        loop_test(requests_in_a_blocked_write_may_have_been_processed),
        loop_test(a_stream_that_outlives_its_connection_is_harmless),
        loop_test(pushed_streams_end_the_connection),
        loop_test(a_push_before_our_settings_are_acknowledged_is_refused),
        loop_test(what_is_not_http2_is_closed),
        loop_test(protocol_errors_say_goaway_and_close),
        loop_test(a_connection_may_be_shut_down_from_its_own_callbacks),
        loop_test(a_socket_closed_by_others_is_reported),
        loop_test(what_calls_say_in_their_last_turn_leaves_before_a_shutdown),
        loop_test(replies_that_were_queued_leave_before_a_shutdown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
