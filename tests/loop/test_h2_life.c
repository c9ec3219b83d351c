/* The ends of HTTP/2 connections and streams: draining, GOAWAY, limits that change, early replies,
 * resets. */
#include "h2_lab.h"

static void
reply_framed(struct lab_call *call)
{
    lab_reply_head(call, false, ":status", "200", NULL);
    lab_say(call, "hello", 5, false);
    lab_trailers(call, "grpc-status", "0", NULL);
}

static void
drain_serves_what_races_with_its_first_goaway(void **state)
{
    struct h2_lab *lab = h2_lab_server(*state, NULL);
    lab->on_end = lab_reply_unary;
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
    assert_true(took_ns >= 950 * NS_PER_MS && took_ns < 4000 * NS_PER_MS);
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
    lab_reply_unary(&lab->calls[1]);
    loop_until(*state, &lab->client.down);
    assert_int_equal(call->ends, 1);
    assert_int_equal(call->resets, 0);
    loop_until(*state, &lab->server.down);
    h2_lab_close(lab);
}

static void
an_idle_client_drains_at_once(void **state)
{
    struct h2_lab *lab = h2_lab_client_asking(*state, NULL, 0);
    h2_drain(lab->client.h2);
    lab_expect_goaway(lab, 0);
    lab_expect_eof(lab);
    assert_string_equal(lab->client.down_text, "drained");
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
    struct lab_call *first = lab_call_start(lab, true, NULL),
                    *second = lab_call_start(lab, true, NULL);
    lab_expect(lab, F_HEADERS, 1, END_STREAM | END_HEADERS);
    lab_expect(lab, F_HEADERS, 3, END_STREAM | END_HEADERS);
    lab_goaway(lab, 1, 0);
    lab_send(lab);
    loop_until_count(*state, &lab->client.goaways, 1);
    assert_int_equal(lab->client.resets_at_goaway, 1);
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

/* The bytes of grpc-go's client when it closes: its own stream id, and a reason. */
static void
a_clients_goodbye_is_no_protocol_error(void **state)
{
    struct h2_lab *lab = h2_lab_server(*state, NULL);
    lab_expect_served(lab, 1);
    lab_frame(lab, F_GOAWAY, 0, 0, "\0\0\0\1\0\0\0\0client transport closing", 32);
    lab_send(lab);
    loop_until(*state, &lab->server.down);
    assert_int_equal(lab->server.down_error, UV_EOF);
    assert_string_equal(lab->server.down_text, "GOAWAY");
    assert_int_equal(lab->calls[0].resets, 0);
    h2_lab_close(lab);

    lab = h2_lab_server(*state, NULL);
    lab_goaway(lab, 0, 0);
    lab_send(lab);
    loop_until(*state, &lab->server.down);
    assert_string_equal(lab->server.down_text, "GOAWAY");
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

/* dubbo-go and gRPC servers: a full reply, then RST_STREAM, in one segment, while we are still
 * sending. */
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
    lab->on_end = lab_reply_unary;
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
    struct lab_call *unsent =
        lab_call_start(lab, true, NULL); /* reset before its head left: nothing is sent */
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

#define loop_test(name) cmocka_unit_test_setup_teardown(name, loop_setup, loop_teardown)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        loop_test(drain_serves_what_races_with_its_first_goaway),
        loop_test(drain_does_not_wait_for_ever_for_the_ping),
        loop_test(draining_client_closes_when_its_last_stream_has_ended),
        loop_test(an_idle_client_drains_at_once),
        loop_test(pings_are_answered_and_ours_are_reported),
        loop_test(streams_above_a_goaways_last_id_were_not_processed),
        loop_test(a_clients_goodbye_is_no_protocol_error),
        loop_test(used_up_stream_ids_end_the_capacity),
        loop_test(lowered_stream_limits_hold_at_once),
        loop_test(an_early_reply_counts_before_the_reset_behind_it),
        loop_test(our_early_reply_leaves_whole_before_its_reset),
        loop_test(a_reset_drops_what_was_not_sent_and_detaches),
        loop_test(resets_of_the_peer_are_reported_with_their_code),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
