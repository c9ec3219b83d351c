/*
 * HTTP/2 connections under traffic that no test author thought of: random verbs between two ends of
 * ours, and a valid client's bytes with random damage. Seeds are fixed: a failure repeats. What
 * counts is that nothing aborts, leaks or is told twice (h2_lab.c checks the order of events).
 */
#include "h2_lab.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "proxy/base/rng.h"

enum { PAIR_ROUNDS = 40, PAIR_STEPS = 150, DAMAGE_ROUNDS = 250, MOST_CALLS = 200 };

static struct rng dice;
static unsigned lives; /* connections that served a call after the random ones */

static unsigned
roll(unsigned sides)
{
    return (unsigned)(rng_next(&dice) % sides);
}

static void
random_head(struct lab_call *call)
{
    if (call->stream->connection != call->lab->server.h2)
        return;
    switch (roll(8)) {
    case 0:
        lab_reset(call, NGHTTP2_CANCEL);
        break;
    case 1:
        lab_reply_head(call, true, ":status", "200", "grpc-status", "12", NULL);
        lab_reset(call, NGHTTP2_NO_ERROR);
        break;
    case 2:
        lab_reply_head(call, false, ":status", "200", NULL);
        lab_say_zeros(call, 1 + roll(50000), true);
        lab_reset(call, NGHTTP2_NO_ERROR);
        break;
    case 3:
        lab_detach(call);
        break;
    default:
        lab_reply_head(call, false, ":status", "200", NULL);
        break;
    }
}

static void
random_data(struct lab_call *call, const uint8_t *data, size_t len)
{
    if (roll(200) == 0)
        lab_reset(call, NGHTTP2_CANCEL);
    else if (call->stream->connection == call->lab->server.h2)
        lab_say(call, data, len, false);
}

static void
random_end(struct lab_call *call)
{
    bool server = call->stream->connection == call->lab->server.h2;
    if (server && roll(2))
        lab_trailers(call, "grpc-status", "0", NULL);
    else if (server)
        lab_say_zeros(call, 1 + roll(3000), true);
    else if (roll(2))
        lab_detach(call);
}

/* As a call that is sent again would: from within the callback, on the same connection. */
static void
random_reset(struct lab_call *call)
{
    struct h2_lab *lab = call->lab;
    bool client = call->stream->connection == lab->client.h2;
    if (roll(3))
        lab_detach(call); /* else when the test ends */
    if (client && roll(2) && lab->client.h2 && lab->call_count < MOST_CALLS)
        lab_call_start(lab, roll(2), NULL);
}

static void
random_step(struct h2_lab *lab)
{
    struct lab_call *call = lab->call_count ? &lab->calls[roll(lab->call_count)] : NULL;
    bool alive = call && call->stream && call->stream->connection;
    bool client = alive && call->stream->connection == lab->client.h2;
    switch (roll(12)) {
    case 0:
    case 1:
    case 2:
        if (lab->client.h2 && lab->call_count < MOST_CALLS)
            lab_call_start(lab, roll(3) == 0, "x-random", "1", NULL);
        break;
    case 3:
    case 4:
    case 5:
        if (client)
            lab_say_zeros(call, 1 + roll(roll(2) ? 100 : 100000), roll(4) == 0);
        break;
    case 6:
        if (client)
            lab_say(call, NULL, 0, true);
        break;
    case 7:
        if (client)
            lab_trailers(call, "x-trailer", "1", NULL);
        break;
    case 8:
        if (alive && roll(3) == 0)
            lab_reset(call, roll(2) ? NGHTTP2_CANCEL : NGHTTP2_NO_ERROR);
        break;
    case 9:
        if (alive && roll(3) == 0)
            lab_detach(call);
        break;
    default:
        loop_turn(lab->fixture);
        break;
    }
}

static void
random_end_of_connection(struct h2_lab *lab)
{
    switch (roll(6)) {
    case 0:
        if (lab->server.h2)
            h2_drain(lab->server.h2);
        break;
    case 1:
        if (lab->client.h2)
            h2_drain(lab->client.h2);
        break;
    case 2:
        if (lab->server.h2)
            h2_shutdown(lab->server.h2, NGHTTP2_INTERNAL_ERROR);
        break;
    case 3:
        if (lab->client.h2)
            conn_close(lab->client.conn);
        break;
    default:
        break;
    }
    for (unsigned i = 0; i < 20; i++)
        random_step(lab);
}

static void
serve_at_once(struct lab_call *call)
{
    if (call->stream->connection == call->lab->server.h2)
        lab_reply_unary(call);
}

/* After all that, a call is still served (or refused, where resets are still on their way). */
static void
expect_alive(struct h2_lab *lab)
{
    lab->on_head = serve_at_once;
    lab->on_data = NULL;
    lab->on_end = NULL;
    lab->on_reset = NULL;
    if (!lab->client.h2 || h2_capacity(lab->client.h2) == 0)
        return;
    struct lab_call *call = lab_call_start(lab, true, NULL);
    uint64_t end_ns = clock_now_ns() + 5 * NS_PER_S;
    while (call->ends + call->resets == 0) {
        assert_true(clock_now_ns() < end_ns);
        loop_run_ms(lab->fixture, 1);
    }
    lives += call->ends;
}

static void
random_verbs_break_nothing(void **state)
{
    for (uint64_t seed = 1; seed <= PAIR_ROUNDS; seed++) {
        struct h2_options options = lab_options;
        rng_seed(&dice, seed);
        options.stream_window = 1000 + roll(100000);
        options.max_streams = 5 + roll(50);
        options.rst_budget = roll(3);
        options.rst_window_ns = NS_PER_S;
        struct h2_lab *lab = h2_lab_pair(*state, &options, &options);
        int small = 4096;
        if (roll(2)) /* full sockets are met too */
            uv_send_buffer_size(&lab->server.conn->handle, &small);
        if (roll(2))
            uv_send_buffer_size(&lab->client.conn->handle, &small);
        ((struct loop_fixture *)*state)->ctx.merge_writes = roll(4) != 0;
        lab->on_head = random_head;
        lab->on_data = random_data;
        lab->on_end = random_end;
        lab->on_reset = random_reset;
        lab->keep_credit = roll(5) == 0;
        for (unsigned i = 0; i < PAIR_STEPS; i++)
            random_step(lab);
        expect_alive(lab);
        random_end_of_connection(lab);
        h2_lab_close(lab);
    }
    assert_true(lives > PAIR_ROUNDS / 4);
}

static void
valid_traffic(struct h2_lab *lab)
{
    static const uint8_t opaque[8] = "opaque";
    lab_preface(lab);
    lab_request(lab, 1, false);
    lab_frame(lab, F_DATA, 0, 1, "\0\0\0\0\5hello", 10);
    lab_frame(lab, F_PING, 0, 0, opaque, 8);
    lab_frame(lab, F_DATA, PADDED | END_STREAM, 1, "\4data\0\0\0\0", 9);
    lab_request(lab, 3, true);
    lab_word(lab, F_WINDOW, 0, 3, 1000);
    lab_word(lab, F_RST, 0, 3, NGHTTP2_CANCEL);
    lab_frame(lab, F_PRIORITY, 0, 5, "\0\0\0\0\x10", 5);
    lab_headers(lab, 5, 0, ":method", "POST", ":scheme", "http", ":path", "/s/m", "host", "here",
                "content-length", "3", NULL);
    lab_frame(lab, F_DATA, 0, 5, "abc", 3);
    lab_headers(lab, 5, END_STREAM, "x-trailer", "1", NULL);
    lab_settings(lab, (uint32_t[]){1, 0, 4, 100, 5, 20000}, 3);
    lab_frame(lab, F_SETTINGS, ACK, 0, NULL, 0);
    lab_goaway(lab, 0, 0);
}

static void
damage(struct h2_lab *lab)
{
    for (unsigned i = roll(4) + 1; i > 0; i--) {
        size_t at = (roll(3) ? 24 : 0) + roll((unsigned)lab->out_bytes - 24);
        switch (roll(3)) {
        case 0:
            lab->out[at] = (uint8_t)roll(256);
            break;
        case 1:
            lab->out[at] ^= (uint8_t)(1 << roll(8));
            break;
        default: /* a piece is missing */
            memmove(lab->out + at, lab->out + at + 1, lab->out_bytes - at - 1);
            lab->out_bytes--;
            break;
        }
    }
}

/* In pieces; the other side may have enough of it before the end. */
static void
send_in_pieces(struct h2_lab *lab)
{
    for (size_t at = 0; at < lab->out_bytes;) {
        size_t part = 1 + roll(200);
        part = part < lab->out_bytes - at ? part : lab->out_bytes - at;
        if (send(lab->fd, lab->out + at, part, MSG_NOSIGNAL) < 0)
            return;
        at += part;
        loop_turn(lab->fixture);
    }
}

static void
damaged_requests_break_nothing(void **state)
{
    for (uint64_t seed = 1; seed <= DAMAGE_ROUNDS; seed++) {
        struct h2_lab *lab = h2_lab_server_silent(*state, NULL);
        rng_seed(&dice, seed);
        lab->on_head = random_head;
        lab->on_data = random_data;
        lab->on_end = random_end;
        valid_traffic(lab);
        damage(lab);
        send_in_pieces(lab);
        h2_lab_close(lab);
    }
}

static void
valid_replies(struct h2_lab *lab)
{
    lab_settings(lab, (uint32_t[]){3, 100, 4, 70000, 1, 0}, 3);
    lab_headers(lab, 1, 0, ":status", "100", NULL);
    lab_headers(lab, 1, 0, ":status", "200", "content-type", "application/grpc", NULL);
    lab_frame(lab, F_DATA, 0, 1, "\0\0\0\0\5hello", 10);
    lab_frame(lab, F_DATA, PADDED, 1, "\4data\0\0\0\0", 9);
    lab_headers(lab, 1, END_STREAM, "grpc-status", "2", "grpc-message", "two\nlines", NULL);
    lab_headers(lab, 3, 0, ":status", "200", "content-length", "5", NULL);
    lab_word(lab, F_WINDOW, 0, 5, 100000);
    lab_frame(lab, F_DATA, END_STREAM, 3, "hello", 5);
    lab_word(lab, F_RST, 0, 3, NGHTTP2_NO_ERROR);
    lab_frame(lab, F_SETTINGS, ACK, 0, NULL, 0);
    lab_goaway(lab, 5, 0);
    lab_word(lab, F_RST, 0, 5, NGHTTP2_REFUSED_STREAM);
}

static void
damaged_replies_break_nothing(void **state)
{
    for (uint64_t seed = 1; seed <= DAMAGE_ROUNDS; seed++) {
        struct h2_lab *lab = h2_lab_client(*state, NULL);
        rng_seed(&dice, seed);
        lab->on_data = random_data;
        lab->on_end = random_end;
        lab->on_reset = random_reset;
        for (unsigned i = 0; i < 3; i++)
            lab_say_zeros(lab_call_start(lab, false, NULL), 1 + roll(100000), roll(2));
        valid_replies(lab);
        damage(lab);
        send_in_pieces(lab);
        h2_lab_close(lab);
    }
}

#define loop_test(name) cmocka_unit_test_setup_teardown(name, loop_setup, loop_teardown)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        loop_test(random_verbs_break_nothing),
        loop_test(damaged_requests_break_nothing),
        loop_test(damaged_replies_break_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
