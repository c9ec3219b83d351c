/* Further tries of a call: replays of what was not processed, the framed try after a refusal, and
 * what is learnt from both. */
#include "call_lab.h"

#include "proxy/net/h2.h"

static void
send_unary(enum call_protocol protocol)
{
    lab_start(protocol, 0);
    if (protocol == PROTOCOL_GRPC)
        lab_send("hi");
    else
        lab_send_bytes("hi", 2);
    lab_end();
    lab.story[0] = 0;
}

static void
refuse(enum call_refusal refusal, int http_status)
{
    lab.refusal = refusal;
    lab.http_status = http_status;
    lab.body_is_error = true;
    lab_reply("no", RPC_UNKNOWN);
    lab.refusal = REFUSAL_NONE;
    lab.http_status = 200;
    lab.body_is_error = false;
}

static uint64_t
retries(void)
{
    return stats_get(&stats_route(lab.route.stats, 0)->retries);
}

/* --- replays --- */

static void
what_was_not_processed_is_sent_again(void **state)
{
    (void)state;
    send_unary(PROTOCOL_GRPC);
    call_upstream_broken(lab.call, STREAM_NOT_PROCESSED);
    lab_expect("cancel(0) pick open head(bare) body(hi) end");
    lab_reply("yo", 0);
    lab_expect("HEAD learn(unary) BODY([2]yo) cancel(0) END(0)");
    lab_flushed();
    assert_int_equal(retries(), 1);
}

static void
five_tries_are_enough(void **state)
{
    (void)state;
    send_unary(PROTOCOL_GRPC);
    for (int i = 0; i < 4; i++)
        call_upstream_broken(lab.call, STREAM_NOT_PROCESSED);
    lab.story[0] = 0;
    call_upstream_broken(lab.call, STREAM_NOT_PROCESSED);
    lab_expect("cancel(8) END(14)");
    lab_flushed();
}

static void
replay_off_tries_once(void **state)
{
    (void)state;
    lab.route.replay = false;
    send_unary(PROTOCOL_GRPC);
    call_upstream_broken(lab.call, STREAM_NOT_PROCESSED);
    lab_expect("cancel(8) END(14)");
    lab_flushed();
}

static void
a_replay_without_an_endpoint_is_unavailable(void **state)
{
    (void)state;
    send_unary(PROTOCOL_GRPC);
    lab.no_endpoint = true;
    call_upstream_broken(lab.call, STREAM_NOT_PROCESSED);
    lab_expect("cancel(0) pick END(14)");
    lab_flushed();
}

static void
what_may_have_been_processed_is_not_sent_again(void **state)
{
    (void)state;
    send_unary(PROTOCOL_GRPC);
    call_upstream_broken(lab.call, STREAM_LOST);
    lab_expect("cancel(8) END(14)");
    lab_flushed();
    assert_int_equal(retries(), 0);
}

static void
nothing_is_sent_again_once_the_answer_has_begun(void **state)
{
    (void)state;
    send_unary(PROTOCOL_GRPC);
    call_reply_head(lab.call, false);
    lab.story[0] = 0;
    call_upstream_broken(lab.call, STREAM_NOT_PROCESSED);
    lab_expect("cancel(8) END(14)");
    lab_flushed();
}

static void
a_stream_is_sent_again_from_its_beginning(void **state)
{
    (void)state;
    lab.route.call = CALL_STREAM;
    lab_start(PROTOCOL_GRPC, 0);
    lab_send("a");
    lab.story[0] = 0;
    call_upstream_broken(lab.call, STREAM_NOT_PROCESSED);
    lab_expect("cancel(0) pick open head(framed) body([1]a)");
    lab_send("b");
    lab_end();
    lab_expect("body([1]b) end");
    call_downstream_gone(lab.call, 8);
}

static void
another_endpoint_may_be_one_that_takes_framing_only(void **state)
{
    (void)state;
    send_unary(PROTOCOL_GRPC);
    lab.facts.endpoint_framed = true;
    lab.reply_form = FORM_FRAMED;
    call_upstream_broken(lab.call, STREAM_NOT_PROCESSED);
    lab_expect("cancel(0) pick open head(framed) body([2]hi) end");
    call_reply_head(lab.call, false);
    call_reply_data(lab.call, (const uint8_t *)"\0\0\0\0\2yo", 7);
    call_reply_end(lab.call, NULL);
    lab_flushed();
    assert_int_equal(lab_status("OK"), 1);
    assert_int_equal(stats_get(&stats_route(lab.route.stats, 0)->path[PATH_FRAMED]), 1);
}

/* --- resets --- */

struct break_row {
    uint32_t error;
    int code;
};

static const struct break_row BREAKS[] = {
    {NGHTTP2_NO_ERROR, 13},
    {NGHTTP2_CANCEL, 1},
    {NGHTTP2_ENHANCE_YOUR_CALM, 8},
    {NGHTTP2_INADEQUATE_SECURITY, 7},
    {0x1f4, 8},
    {0xff, 13},
    {STREAM_MALFORMED, 13},
    {STREAM_HEADERS_TOO_LONG, 8},
    {STREAM_UNSENDABLE, 8},
};

static void
each_way_of_breaking_has_its_code(void **state)
{
    for (size_t i = 0; i < sizeof(BREAKS) / sizeof(BREAKS[0]); i++) {
        send_unary(PROTOCOL_GRPC);
        call_upstream_broken(lab.call, BREAKS[i].error);
        assert_int_equal(lab.call->status.code, BREAKS[i].code);
        lab_flushed();
        lab_teardown(state);
        lab_setup(state);
    }
    call_end_all(&lab.worker);
}

static void
cancel_of_an_endpoint_that_takes_framing_only_is_its_full_pool(void **state)
{
    (void)state;
    lab.facts.endpoint_framed = true;
    send_unary(PROTOCOL_GRPC);
    call_upstream_broken(lab.call, NGHTTP2_CANCEL);
    assert_int_equal(lab.call->status.code, RPC_RESOURCE_EXHAUSTED);
    lab_flushed();
}

/* --- refusals --- */

static void
expect_fallback(enum call_refusal refusal, int http_status, int code, const char *lesson)
{
    send_unary(PROTOCOL_GRPC);
    refuse(refusal, http_status);
    lab_expect("cancel(0,keep) open head(framed) body([2]hi) end");
    lab.reply_form = FORM_FRAMED;
    lab_reply("", code);
    char story[128];
    snprintf(story, sizeof(story), "HEAD %s%scancel(0) END(%d)", lesson, lesson[0] ? " " : "",
             code);
    lab_expect(story);
    lab_flushed();
    assert_int_equal(retries(), 0);
    assert_int_equal(stats_get(&stats_route(lab.route.stats, 0)->path[PATH_FALLBACK]), 1);
}

static void
a_415_of_a_method_teaches_about_the_method(void **state)
{
    (void)state;
    expect_fallback(REFUSAL_METHOD, 415, RPC_NOT_FOUND, "learn(method-framed)");
}

static void
a_refusal_of_java_teaches_about_the_endpoint(void **state)
{
    (void)state;
    expect_fallback(REFUSAL_ENDPOINT, 404, RPC_NOT_FOUND, "learn(endpoint-framed)");
}

static void
a_framed_try_that_is_unimplemented_teaches_nothing(void **state)
{
    (void)state;
    expect_fallback(REFUSAL_METHOD, 415, RPC_UNIMPLEMENTED, "");
}

static void
a_refusal_where_bare_is_insisted_on_is_the_answer(void **state)
{
    (void)state;
    lab.upstream.wire = UPSTREAM_WIRE_BARE;
    send_unary(PROTOCOL_GRPC);
    refuse(REFUSAL_METHOD, 415);
    lab_expect("cancel(0) END(2)");
    lab_flushed();
}

static void
a_refused_call_that_is_not_held_forgets_the_fact(void **state)
{
    (void)state;
    static uint8_t part[40000];
    lab.facts.method_bare = true;
    lab_start(PROTOCOL_GRPC, 0);
    uint8_t prefix[PREFIX_BYTES];
    prefix_write(prefix, false, 400000);
    lab_send_bytes(prefix, sizeof(prefix));
    lab_send_bytes(part, sizeof(part));
    lab_send_bytes(part, sizeof(part)); /* more than a replay keeps */
    lab.story[0] = 0;
    refuse(REFUSAL_ENDPOINT, 404);
    lab_expect("learn(forget) cancel(0) END(14)");
    lab_flushed();
}

static void
start_bare(bool with_length, bool gzip)
{
    lab.facts.method_bare = true;
    lab.route.fast_path_max = 1;
    lab.call->request.content_length = with_length ? 100 : -1;
    lab.call->request.encoding = gzip ? ENCODING_GZIP : ENCODING_IDENTITY;
    lab_start(PROTOCOL_TRIPLE, 0);
    lab_send_bytes("part", 4);
    lab_expect("pick open head(bare) body(part)");
    refuse(REFUSAL_ENDPOINT, 404);
}

static void
a_bare_body_that_goes_on_is_framed_only_where_its_length_is_known(void **state)
{
    (void)state;
    start_bare(true, false);
    lab_expect("cancel(0,keep) open head(framed) body([100]part)");
    call_downstream_gone(lab.call, 8);
    lab_teardown(state);
    lab_setup(state);
    start_bare(false, false);
    lab_expect("learn(forget) cancel(0) END(14)");
    lab_flushed();
}

static void
a_bare_body_that_goes_on_is_not_inflated(void **state)
{
    (void)state;
    start_bare(true, true);
    lab_expect("learn(forget) cancel(0) END(14)");
    lab_flushed();
}

static void
a_refusal_of_the_framed_try_is_an_error(void **state)
{
    (void)state;
    send_unary(PROTOCOL_GRPC);
    refuse(REFUSAL_METHOD, 415);
    lab.reply_form = FORM_FRAMED;
    lab.story[0] = 0;
    lab.http_status = 415;
    lab.body_is_error = true;
    lab_reply("", RPC_UNKNOWN);
    lab_expect("cancel(0) END(2)");
    lab_flushed();
}

/* --- lessons of answers --- */

static void
an_error_with_a_code_shows_that_the_method_is_taken_bare(void **state)
{
    (void)state;
    send_unary(PROTOCOL_GRPC);
    lab.http_status = 404;
    lab.body_is_error = lab.has_code = true;
    lab_reply("{}", RPC_NOT_FOUND);
    lab_expect("learn(bare) cancel(0) END(5)");
    lab_flushed();
}

static void
nothing_is_taught_twice(void **state)
{
    (void)state;
    lab.facts.method_bare = lab.facts.method_unary = true;
    send_unary(PROTOCOL_GRPC);
    lab_reply("yo", 0);
    lab_expect("HEAD BODY([2]yo) cancel(0) END(0)");
    lab_flushed();
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        LAB_TEST(what_was_not_processed_is_sent_again),
        LAB_TEST(five_tries_are_enough),
        LAB_TEST(replay_off_tries_once),
        LAB_TEST(a_replay_without_an_endpoint_is_unavailable),
        LAB_TEST(what_may_have_been_processed_is_not_sent_again),
        LAB_TEST(nothing_is_sent_again_once_the_answer_has_begun),
        LAB_TEST(a_stream_is_sent_again_from_its_beginning),
        LAB_TEST(another_endpoint_may_be_one_that_takes_framing_only),
        LAB_TEST(each_way_of_breaking_has_its_code),
        LAB_TEST(cancel_of_an_endpoint_that_takes_framing_only_is_its_full_pool),
        LAB_TEST(a_415_of_a_method_teaches_about_the_method),
        LAB_TEST(a_refusal_of_java_teaches_about_the_endpoint),
        LAB_TEST(a_framed_try_that_is_unimplemented_teaches_nothing),
        LAB_TEST(a_refusal_where_bare_is_insisted_on_is_the_answer),
        LAB_TEST(a_refused_call_that_is_not_held_forgets_the_fact),
        LAB_TEST(a_bare_body_that_goes_on_is_framed_only_where_its_length_is_known),
        LAB_TEST(a_bare_body_that_goes_on_is_not_inflated),
        LAB_TEST(a_refusal_of_the_framed_try_is_an_error),
        LAB_TEST(an_error_with_a_code_shows_that_the_method_is_taken_bare),
        LAB_TEST(nothing_is_taught_twice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
