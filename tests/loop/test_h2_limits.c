/* What one HTTP/2 peer may cost: limits on streams, fields, resets and frames that do nothing, and
 * our own. */
#include "h2_lab.h"

#include <errno.h>
#include <stdlib.h>

static void
a_flood_of_interim_heads_is_malformed(void **state)
{
    struct h2_lab *lab = h2_lab_client_asking(*state, NULL, 2);
    for (int i = 0; i < 1000; i++)
        lab_headers(lab, 1, 0, ":status", "103", NULL);
    lab_headers(lab, 3, END_STREAM, ":status", "200", NULL);
    lab_send(lab);
    loop_until_count(*state, &lab->calls[1].heads, 1);
    assert_int_equal(lab->calls[0].resets, 1);
    assert_int_equal(lab->calls[0].reset_error, STREAM_MALFORMED);
    assert_int_equal(lab_expect(lab, F_RST, 1, 0)->word, NGHTTP2_PROTOCOL_ERROR);
    assert_false(lab->client.down);
    h2_lab_close(lab);
}

static void
clients_over_the_stream_limit_are_refused_and_the_rest_goes_on(void **state)
{
    struct h2_options options = lab_options;
    enum { LIMIT = 10, TOO_MANY = 5000 };
    options.max_streams = LIMIT;
    struct h2_lab *lab = h2_lab_server(*state, &options);
    loop_run_ms(*state, 5); /* our SETTINGS are acknowledged */
    for (uint32_t i = 0; i < LIMIT + TOO_MANY; i++)
        lab_request(lab, 2 * i + 1, false);
    lab_send(lab);
    for (uint32_t i = LIMIT; i < LIMIT + TOO_MANY; i++)
        assert_int_equal(lab_expect(lab, F_RST, 2 * i + 1, 0)->word, NGHTTP2_REFUSED_STREAM);
    assert_int_equal(lab->server.opened, LIMIT);
    assert_int_equal(lab->server.h2->open_streams, LIMIT);
    lab->on_end = lab_reply_unary;
    for (uint32_t i = 0; i < LIMIT; i++)
        lab_frame(lab, F_DATA, END_STREAM, 2 * i + 1, "ask", 3);
    lab_send(lab);
    for (int i = 0; i < 2 * LIMIT; i++)
        assert_true(lab_next(lab)->type <= F_HEADERS);
    lab_expect_served(lab, 20001);
    h2_lab_close(lab);
}

/* A block of `fields` fields of `bytes` bytes behind a request's own, in HEADERS and CONTINUATION
 * frames. */
static void
send_large_block(struct h2_lab *lab, uint32_t id, uint8_t flags, bool request, unsigned fields,
                 size_t bytes)
{
    char *value = malloc(bytes);
    uint8_t *block = malloc((fields + 5) * (bytes + 64));
    size_t len = 0;
    memset(value, 'v', bytes);
    static const char *const heads[] = {":method", "POST", ":scheme",    "http",
                                        ":path",   "/s/m", ":authority", "here"};
    static const char *const reply[] = {":status", "200"};
    const char *const *head = request ? heads : reply;
    for (unsigned i = 0; i < (request ? 8 : 2); i += 2)
        len += lab_field(block + len, head[i], strlen(head[i]), head[i + 1], strlen(head[i + 1]));
    for (unsigned i = 0; i < fields; i++)
        len += lab_field(block + len, "x-long", 6, value, bytes);
    for (size_t at = 0; at < len; at += 16384) {
        size_t part = len - at < 16384 ? len - at : 16384;
        uint8_t last = at + part == len ? END_HEADERS : 0;
        lab_frame(lab, at ? F_CONT : F_HEADERS, (at ? 0 : flags) | last, id, block + at, part);
    }
    free(block);
    free(value);
}

static void
a_request_with_too_long_a_head_comes_cut(void **state)
{
    struct h2_options options = lab_options;
    options.max_header_list = 4096;
    struct h2_lab *lab = h2_lab_server(*state, &options);
    send_large_block(lab, 1, END_STREAM, true, 10, 350);   /* just below */
    send_large_block(lab, 3, END_STREAM, true, 300, 1000); /* 300 KiB, in 19 CONTINUATION frames */
    lab_send(lab);
    loop_until_count(*state, &lab->server.opened, 2);
    loop_until_count(*state, &lab->calls[1].heads, 1);
    assert_int_equal(lab->calls[0].fields.count, 14);
    assert_false(lab->calls[0].stream->fields_overflow);
    assert_true(lab->calls[1].head_end);
    assert_true(lab->calls[1].stream->fields_overflow);
    assert_true(fields_list_size(&lab->calls[1].fields) <= 4096);
    assert_true(text_eq(lab_value(&lab->calls[1].fields, ":path"), TEXT("/s/m")));
    lab_expect_served(lab, 5);
    h2_lab_close(lab);
}

static void
a_reply_with_too_long_a_head_is_reset(void **state)
{
    struct h2_options options = lab_options;
    options.max_header_list = 4096;
    struct h2_lab *lab = h2_lab_client_asking(*state, &options, 2);
    send_large_block(lab, 1, 0, false, 30, 1000);
    lab_headers(lab, 3, END_STREAM, ":status", "200", NULL);
    lab_send(lab);
    loop_until_count(*state, &lab->calls[1].heads, 1);
    assert_int_equal(lab->calls[0].resets, 1);
    assert_int_equal(lab->calls[0].heads, 0);
    assert_int_equal(lab->calls[0].reset_error, STREAM_HEADERS_TOO_LONG);
    lab_expect(lab, F_RST, 1, 0);
    h2_lab_close(lab);
}

static void
a_header_bomb_ends_the_connection(void **state)
{
    struct h2_lab *lab = h2_lab_server(*state, NULL);
    static uint8_t block[16384];
    /* One field of 4000 bytes into the dynamic table, then a byte each for it again: 16384 * 4 KB
     * decoded a frame. */
    uint8_t value[4000];
    memset(value, 'b', sizeof value);
    size_t len = lab_field(block, "x-bomb", 6, value, sizeof value);
    block[0] = 0x40;
    memset(block + len, 0x80 | 62, sizeof block - len);
    lab_frame(lab, F_HEADERS, 0, 1, block, sizeof block);
    lab_send(lab);
    lab_expect_goaway(lab, NGHTTP2_ENHANCE_YOUR_CALM);
    lab_expect_eof(lab);
    assert_true(lab->server.down);
    h2_lab_close(lab);
}

static void
a_flood_of_continuations_ends_the_connection(void **state)
{
    struct h2_lab *lab = h2_lab_server(*state, NULL);
    lab_frame(lab, F_HEADERS, 0, 1, "\x82", 1);
    for (int i = 0; i < 5000; i++)
        lab_frame(lab, F_CONT, 0, 1, NULL, 0);
    lab_send(lab);
    lab_expect_goaway(lab, NGHTTP2_ENHANCE_YOUR_CALM);
    h2_lab_close(lab);
}

static void
a_field_over_64k_ends_the_connection(void **state)
{
    struct h2_lab *lab = h2_lab_server(*state, NULL);
    send_large_block(lab, 1, END_STREAM, true, 1, 70000);
    lab_send(lab);
    lab_expect_goaway(lab, NGHTTP2_COMPRESSION_ERROR);
    loop_until(*state, &lab->server.down);
    assert_int_equal(lab->server.down_error, UV_EPROTO);
    assert_string_equal(lab->server.down_text, "COMPRESSION_ERROR");
    h2_lab_close(lab);
}

static void
resets_up_to_the_limit_are_served_and_one_more_is_not(void **state)
{
    struct h2_options options = lab_options;
    enum { LIMIT = 1500 }; /* above nghttp2's own burst of 1000 */
    options.reset_limit = LIMIT;
    struct h2_lab *lab = h2_lab_server(*state, &options);
    for (uint32_t i = 0; i < LIMIT; i++) {
        lab_request(lab, 2 * i + 1, false);
        lab_word(lab, F_RST, 0, 2 * i + 1, NGHTTP2_CANCEL);
    }
    lab_send(lab);
    loop_until_count(*state, &lab->server.streams_closed, LIMIT);
    assert_int_equal(lab->calls[LIMIT - 1].reset_error, NGHTTP2_CANCEL);
    lab_expect_served(lab, 10001);
    lab_request(lab, 10003, false);
    lab_word(lab, F_RST, 0, 10003, NGHTTP2_CANCEL);
    lab_send(lab);
    lab_expect_goaway(lab, NGHTTP2_ENHANCE_YOUR_CALM);
    lab_expect_eof(lab);
    assert_string_equal(lab->server.down_text, "too many resets");
    h2_lab_close(lab);
}

static void
streams_ended_for_the_clients_fault_count_as_resets(void **state)
{
    struct h2_options options = lab_options;
    options.reset_limit = 50;
    struct h2_lab *lab = h2_lab_server(*state, &options);
    for (uint32_t i = 0; i < 50; i++) {
        lab_headers(lab, 2 * i + 1, 0, LAB_REQUEST, "connection", "x", NULL);
        lab_send(lab);
    }
    for (uint32_t i = 0; i < 50; i++)
        lab_expect(lab, F_RST, 2 * i + 1, 0);
    lab_request(lab, 1001, false);
    lab_word(lab, F_WINDOW, 0, 1001, 0x7fffffff); /* over 2^31-1: a stream error */
    lab_send(lab);
    lab_expect_goaway(lab, NGHTTP2_ENHANCE_YOUR_CALM);
    h2_lab_close(lab);
}

/* Clients that are answered early often reset what they need not send any more. */
static void
resets_of_answered_streams_do_not_count(void **state)
{
    struct h2_options options = lab_options;
    options.reset_limit = 5;
    struct h2_lab *lab = h2_lab_server(*state, &options);
    lab->on_head = lab_reply_unary;
    for (uint32_t id = 1; id < 101; id += 2) {
        lab_request(lab, id, false);
        lab_send(lab);
        lab_expect(lab, F_HEADERS, id, END_HEADERS);
        lab_expect(lab, F_DATA, id, END_STREAM);
        lab_word(lab, F_RST, 0, id, NGHTTP2_CANCEL);
        lab_word(lab, F_RST, 0, id, NGHTTP2_CANCEL); /* twice does no harm */
    }
    lab_send(lab);
    lab->on_head = NULL;
    lab_expect_served(lab, 201);
    h2_lab_close(lab);
}

static void
old_resets_are_forgotten(void **state)
{
    struct h2_options options = lab_options;
    options.reset_limit = 10;
    options.reset_window_ns = 50 * NS_PER_MS;
    struct h2_lab *lab = h2_lab_server(*state, &options);
    uint32_t id = 1;
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 10; i++, id += 2) {
            lab_request(lab, id, false);
            lab_word(lab, F_RST, 0, id, NGHTTP2_CANCEL);
        }
        lab_send(lab);
        loop_run_ms(*state, 80);
    }
    lab_expect_served(lab, id);
    h2_lab_close(lab);
}

static void
floods_are_answered_with_enhance_your_calm(void **state)
{
    static const uint8_t opaque[8] = {0};
    for (int kind = 0; kind < 3; kind++) {
        struct h2_lab *lab = h2_lab_server(*state, NULL);
        lab_request(lab, 1, false);
        for (int i = 0; i < 100000 && kind == 0; i++)
            lab_frame(lab, F_DATA, 0, 1, NULL, 0);
        for (int i = 0; i < 5000 && kind == 1; i++)
            lab_frame(lab, F_PING, 0, 0, opaque, 8);
        for (int i = 0; i < 10000 && kind == 2; i++)
            lab_settings(lab, NULL, 0);
        for (size_t at = 0; at < lab->out_bytes;
             at += 100000) { /* it may close before all is sent */
            size_t part = lab->out_bytes - at < 100000 ? lab->out_bytes - at : 100000;
            if (send(lab->fd, lab->out + at, part, MSG_NOSIGNAL) < 0)
                break;
            loop_turn(*state);
        }
        lab->out_bytes = 0;
        lab_expect_goaway(lab, NGHTTP2_ENHANCE_YOUR_CALM);
        loop_until(*state, &lab->server.down);
        assert_int_equal(lab->calls[0].reset_error, STREAM_LOST);
        h2_lab_close(lab);
    }
}

static void
empty_data_frames_between_others_are_harmless(void **state)
{
    struct h2_lab *lab = h2_lab_server(*state, NULL);
    lab_request(lab, 1, false);
    for (int i = 0; i < 3; i++) {
        for (int j = 0; j < 5000; j++)
            lab_frame(lab, F_DATA, 0, 1, NULL, 0);
        lab_frame(lab, F_DATA, 0, 1, "x", 1);
    }
    lab_frame(lab, F_DATA, END_STREAM, 1, NULL, 0);
    lab_send(lab);
    loop_until_count(*state, &lab->calls[0].ends, 1);
    assert_string_equal(lab->calls[0].body, "xxx");
    assert_int_equal(lab->calls[0].datas, 3);
    h2_lab_close(lab);
}

static void
without_a_reset_left_streams_are_drained_and_dropped(void **state)
{
    struct h2_options options = lab_options;
    options.rst_budget = 1;
    options.rst_window_ns = 10 * NS_PER_S;
    struct h2_lab *lab = h2_lab_client_asking(*state, &options, 2);
    struct lab_call *open = lab_call_start(lab, false, NULL);
    struct lab_call *promised = lab_call_start(lab, false, "content-length", "7", NULL);
    lab_expect(lab, F_HEADERS, 5, END_HEADERS);
    lab_expect(lab, F_HEADERS, 7, END_HEADERS);
    lab_reset(&lab->calls[0], NGHTTP2_CANCEL);
    assert_int_equal(lab_expect(lab, F_RST, 1, 0)->word, NGHTTP2_CANCEL);
    lab_reset(&lab->calls[1], NGHTTP2_CANCEL);
    assert_true(lab_quiet(lab));
    lab_say(open, "part", 4, false);
    lab_reset(open, NGHTTP2_CANCEL);
    assert_int_equal(lab_expect(lab, F_DATA, 5, END_STREAM)->len, 4);
    lab_say(promised, "part", 4, false);
    lab_reset(promised, NGHTTP2_CANCEL); /* ending it short would be worse */
    lab_expect(lab, F_RST, 7, 0);
    assert_int_equal(lab->client.h2->open_streams, 2);
    char bytes[16384] = {0};
    lab_headers(lab, 3, 0, ":status", "200", NULL);
    lab_headers(lab, 5, END_STREAM, ":status", "200", NULL);
    for (int i = 0; i < 40; i++)
        lab_frame(lab, F_DATA, 0, 3, bytes, sizeof bytes);
    lab_send(lab);
    assert_true(lab_expect(lab, F_WINDOW, 3, 0)->word >=
                1 << 19); /* a server's window must not run dry */
    lab_frame(lab, F_DATA, END_STREAM, 3, NULL, 0);
    lab_send(lab);
    loop_until_count(*state, &lab->client.streams_closed, 4);
    assert_int_equal(lab->client.h2->open_streams, 0);
    assert_int_equal(lab->calls[1].heads, 0);
    h2_lab_close(lab);
}

static void
too_long_a_block_of_ours_ends_the_stream_and_is_reported(void **state)
{
    struct h2_lab *lab = h2_lab_pair(*state, NULL, NULL);
    size_t bytes = 2 << 20;
    char *value = malloc(bytes + 1);
    memset(value, 'v', bytes);
    value[bytes] = 0;
    struct lab_call *call = lab_call_start(lab, true, "x-long", value, NULL);
    loop_until_count(*state, &call->resets, 1);
    assert_int_equal(call->reset_error, STREAM_UNSENDABLE);
    assert_int_equal(lab->server.opened, 0);
    call = lab_call_start(lab, true, NULL);
    loop_until_count(*state, &lab->server.opened, 1);
    struct lab_call *served = &lab->calls[2];
    lab_reply_head(served, false, ":status", "200", "x-long", value, NULL);
    lab_say(served, "hello", 5, true);
    loop_until_count(*state, &served->resets, 1);
    assert_int_equal(served->reset_error, STREAM_UNSENDABLE);
    loop_until_count(*state, &call->resets, 1);
    assert_int_equal(call->reset_error, NGHTTP2_INTERNAL_ERROR);
    free(value);
    h2_lab_close(lab);
}

static void
blocks_over_64k_are_sent(void **state)
{
    struct h2_options options = lab_options;
    options.max_header_list = 1 << 20;
    struct h2_lab *lab = h2_lab_pair(*state, &options, &options);
    char *value = malloc(60001);
    memset(value, '&', 60000); /* long in Huffman's code too */
    value[60000] = 0;
    struct lab_call *call =
        lab_call_start(lab, true, "x-1", value, "x-2", value, "x-3", value, NULL);
    loop_until_count(*state, &lab->server.opened, 1);
    loop_until_count(*state, &lab->calls[1].heads, 1);
    assert_int_equal(lab_value(&lab->calls[1].fields, "x-3").len, 60000);
    assert_int_equal(call->flushes, 1);
    free(value);
    h2_lab_close(lab);
}

static void
silent_peers_are_closed_in_time(void **state)
{
    struct h2_options options = lab_options;
    options.handshake_timeout_ns = 50 * NS_PER_MS;
    static const char *const parts[] = {"", "PRI * HTTP", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"};
    for (int i = 0; i < 3; i++) {
        struct h2_lab *lab = h2_lab_server_silent(*state, &options);
        lab_raw(lab, parts[i], strlen(parts[i]));
        lab_send(lab);
        uint64_t began_ns = clock_now_ns();
        loop_until(*state, &lab->server.down);
        assert_true(clock_now_ns() - began_ns < NS_PER_S);
        assert_int_equal(lab->server.down_error, UV_ETIMEDOUT);
        h2_lab_close(lab);
    }
    struct h2_lab *lab = h2_lab_server(*state, &options);
    loop_run_ms(*state, 100);
    assert_false(lab->server.down);
    lab_expect_served(lab, 1);
    h2_lab_close(lab);
}

#define loop_test(name) cmocka_unit_test_setup_teardown(name, loop_setup, loop_teardown)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        loop_test(a_flood_of_interim_heads_is_malformed),
        loop_test(clients_over_the_stream_limit_are_refused_and_the_rest_goes_on),
        loop_test(a_request_with_too_long_a_head_comes_cut),
        loop_test(a_reply_with_too_long_a_head_is_reset),
        loop_test(a_header_bomb_ends_the_connection),
        loop_test(a_flood_of_continuations_ends_the_connection),
        loop_test(a_field_over_64k_ends_the_connection),
        loop_test(resets_up_to_the_limit_are_served_and_one_more_is_not),
        loop_test(streams_ended_for_the_clients_fault_count_as_resets),
        loop_test(resets_of_answered_streams_do_not_count),
        loop_test(old_resets_are_forgotten),
        loop_test(floods_are_answered_with_enhance_your_calm),
        loop_test(empty_data_frames_between_others_are_harmless),
        loop_test(without_a_reset_left_streams_are_drained_and_dropped),
        loop_test(too_long_a_block_of_ours_ends_the_stream_and_is_reported),
        loop_test(blocks_over_64k_are_sent),
        loop_test(silent_peers_are_closed_in_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
