/* The life of a call: its phases in order, and every way out of each of them. */
#include "call_lab.h"

#include <string.h>

#include "proxy/base/clock.h"
#include "proxy/net/h2.h"

static void
finish(const char *story)
{
    lab_flushed();
    lab_expect(story);
    assert_int_equal(lab.call->phase, CALL_FINISHED);
}

static void
a_unary_call_is_held_whole_and_answered_whole(void **state)
{
    (void)state;
    lab_start(PROTOCOL_GRPC, 0);
    lab_send("hi");
    lab_expect("pick");
    assert_int_equal(lab.call->phase, CALL_DECIDING);
    lab_end();
    lab_expect("open head(bare) body(hi) end");
    assert_int_equal(lab.call->phase, CALL_SENT);
    lab_reply("yo", 0);
    lab_expect("HEAD learn(unary) BODY([2]yo) cancel(0) END(0)");
    assert_int_equal(lab.call->phase, CALL_ENDING);
    finish("DETACH");
    assert_int_equal(lab_status("OK"), 1);
    assert_int_equal(stats_get(&stats_route(lab.route.stats, 0)->path[PATH_FAST]), 1);
}

static void
a_stream_passes_piece_by_piece(void **state)
{
    (void)state;
    lab.route.call = CALL_STREAM;
    lab.reply_form = FORM_FRAMED;
    lab_start(PROTOCOL_GRPC, 0);
    lab_expect("pick open head(framed)");
    lab_send("a");
    lab_expect("body([1]a)");
    call_reply_head(lab.call, false);
    lab_expect("HEAD");
    lab_send("b");
    call_reply_data(lab.call, (const uint8_t *)"\0\0\0\0\1x", 6);
    lab_expect("body([1]b) BODY([1]x)");
    lab_end();
    call_reply_end(lab.call, NULL);
    lab_expect("end cancel(0) END(0)");
    finish("DETACH");
}

static void
auto_is_decided_at_the_end_of_the_turn(void **state)
{
    (void)state;
    lab.route.call = CALL_AUTO;
    lab_start(PROTOCOL_GRPC, 0);
    lab_send("hi");
    lab_expect("pick");
    lab_turn();
    lab_expect("open head(framed) body([2]hi)");
    call_downstream_gone(lab.call, NGHTTP2_CANCEL);
    lab_expect("cancel(8) DETACH");
}

static void
auto_with_its_end_in_the_same_turn_is_unary(void **state)
{
    (void)state;
    lab.route.call = CALL_AUTO;
    lab_start(PROTOCOL_GRPC, 0);
    lab_send("hi");
    lab_end();
    lab_expect("pick open head(bare) body(hi) end");
    lab_turn();
    lab_expect("");
    lab_reply("", 0);
    lab_flushed();
}

static void
auto_with_a_head_alone_is_a_stream_after_10_ms(void **state)
{
    (void)state;
    lab.route.call = CALL_AUTO;
    lab_start(PROTOCOL_GRPC, 0);
    lab_expect("pick"); /* not before a turn has passed; a busy machine may take long for one */
    lab_run_ms(15);
    lab_expect("open head(framed)");
    call_downstream_gone(lab.call, 8);
}

static void
auto_known_to_be_unary_is_waited_for_past_10_ms(void **state)
{
    (void)state;
    lab.route.call = CALL_AUTO;
    lab.facts.method_bare = lab.facts.method_unary = true;
    lab_start(PROTOCOL_GRPC, 0);
    lab_run_ms(30); /* the loop comes back: it does not ask about this call for ever */
    lab_expect("pick");
    lab_send("hi");
    lab_end();
    lab_expect("open head(bare) body(hi) end");
    lab_reply("", 0);
    lab_flushed();
}

static void
without_an_endpoint_the_call_ends_at_once(void **state)
{
    (void)state;
    lab.no_endpoint = true;
    lab_start(PROTOCOL_GRPC, 0);
    lab_expect("pick END(14)");
    lab_send("what still comes is credited and dropped");
    assert_int_equal(lab.down_credit, 45);
    lab_flushed();
    assert_int_equal(lab_status("UNAVAILABLE"), 1);
}

/* --- the client goes, in each phase --- */

static void
gone(const char *story)
{
    lab.story[0] = 0;
    call_downstream_gone(lab.call, NGHTTP2_CANCEL);
    lab_expect(story);
    call_downstream_gone(lab.call, NGHTTP2_CANCEL); /* idempotent */
    call_finish(lab.call);
    lab_expect("");
}

static void
gone_while_deciding(void **state)
{
    (void)state;
    lab_start(PROTOCOL_GRPC, 0);
    lab_send("hi");
    gone("cancel(8) DETACH");
    assert_int_equal(lab_status("CANCELLED"), 1);
}

static void
gone_while_opening(void **state)
{
    (void)state;
    lab.wait = true;
    lab_start(PROTOCOL_GRPC, 0);
    lab_send("hi");
    lab_end();
    assert_int_equal(lab.call->phase, CALL_OPENING);
    gone("cancel(8) DETACH");
}

static void
gone_while_waiting_for_the_answer(void **state)
{
    (void)state;
    lab_start(PROTOCOL_GRPC, 0);
    lab_send("hi");
    lab_end();
    gone("cancel(8) DETACH");
}

static void
gone_while_replying(void **state)
{
    (void)state;
    lab_start(PROTOCOL_GRPC, 0);
    lab_send("hi");
    lab_end();
    call_reply_head(lab.call, false);
    call_reply_data(lab.call, (const uint8_t *)"part", 4);
    gone("cancel(8) DETACH");
}

static void
gone_while_ending_keeps_the_status(void **state)
{
    (void)state;
    lab_start(PROTOCOL_GRPC, 0);
    lab_send("hi");
    lab_end();
    lab_reply("yo", 0);
    gone("DETACH");
    assert_int_equal(lab_status("OK"), 1);
    assert_int_equal(lab_status("CANCELLED"), 0);
}

/* --- the deadline, in each phase --- */

static void
late(const char *story)
{
    lab.story[0] = 0;
    lab_run_ms(40);
    lab_expect(story);
    assert_int_equal(lab.call->phase, CALL_ENDING);
    lab_flushed();
    assert_int_equal(lab_status("DEADLINE_EXCEEDED"), 1);
}

static void
a_deadline_of_nothing_is_over_at_once(void **state)
{
    (void)state;
    lab.call->request.timeout_ns = 0;
    lab_start(PROTOCOL_GRPC, 0);
    lab_expect("END(4)");
    lab_flushed();
}

static void
a_deadline_while_deciding(void **state)
{
    (void)state;
    lab_start(PROTOCOL_GRPC, 20);
    late("cancel(8) END(4)");
}

static void
a_deadline_while_opening(void **state)
{
    (void)state;
    lab.wait = true;
    lab_start(PROTOCOL_GRPC, 20);
    lab_send("hi");
    lab_end();
    late("cancel(8) END(4)");
}

static void
a_deadline_while_waiting_for_the_answer(void **state)
{
    (void)state;
    lab_start(PROTOCOL_GRPC, 20);
    lab_send("hi");
    lab_end();
    late("cancel(8) END(4)");
}

static void
a_deadline_while_replying(void **state)
{
    (void)state;
    lab_start(PROTOCOL_GRPC, 20);
    lab_send("hi");
    lab_end();
    call_reply_head(lab.call, false);
    late("cancel(8) END(4)");
}

static void
an_answer_in_the_turn_of_its_deadline_leaves(void **state)
{
    (void)state;
    lab_start(PROTOCOL_GRPC, 20);
    lab_send("hi");
    lab_end();
    lab_reply("yo", 0);
    lab.story[0] = 0;
    lab_run_ms(40); /* the deadline passes before the kernel has the answer */
    lab_expect("");
    lab_flushed();
    assert_int_equal(lab_status("OK"), 1);
}

static void
an_answer_that_is_not_read_long_after_the_deadline_is_given_up(void **state)
{
    (void)state;
    lab_start(PROTOCOL_GRPC, 20);
    lab_send("hi");
    lab_end();
    lab_reply("yo", 0);
    lab.story[0] = 0;
    lab_run_ms(1100);
    lab_expect("RESET(8)"); /* and the call is in its grave */
    assert_int_equal(lab_status("DEADLINE_EXCEEDED"), 1);
}

static void
a_providers_idea_of_an_expired_deadline_does_not_stand(void **state)
{
    (void)state;
    lab_start(PROTOCOL_GRPC, 20);
    lab_send("hi");
    lab_end();
    lab.http_status = 500;
    lab.body_is_error = lab.has_code = true;
    uint64_t due = lab.call->deadline_ns;
    while (clock_now_ns() < due) /* without turning the loop: our own timer has not run yet */
        ;
    lab_reply("{}", RPC_BIZ);
    assert_int_equal(lab.call->status.code, RPC_DEADLINE_EXCEEDED);
    lab_flushed();
}

static void
the_routes_timeout_is_a_deadline(void **state)
{
    (void)state;
    lab.route.timeout_ns = 20 * NS_PER_MS;
    lab_start(PROTOCOL_GRPC, 60000);
    late("cancel(8) END(4)");
}

/* --- stopping --- */

static void
stopping_ends_a_call_in_whatever_phase(void **state)
{
    (void)state;
    lab_start(PROTOCOL_GRPC, 0);
    lab_send("hi");
    lab.story[0] = 0;
    call_end_all(&lab.worker);
    lab_expect("cancel(8) END(14)");
    call_end_all(&lab.worker); /* what is answered waits for the kernel */
    lab_expect("");
    assert_int_equal(lab.worker.call_count, 1);
    lab_flushed();
    assert_int_equal(lab_status("UNAVAILABLE"), 1);
}

static void
stopping_resets_a_call_whose_head_is_not_complete(void **state)
{
    (void)state;
    call_end_all(&lab.worker);
    lab_expect("RESET(7)");
    assert_int_equal(lab.call->phase, CALL_FINISHED);
}

/* --- filters --- */

static unsigned asked, told, over;
static unsigned refuses; /* which one does, from 1; 0: none */

static bool
filter_request(struct call *call, void *settings, struct rpc_status *status)
{
    (void)call, (void)settings;
    asked++;
    status->code = asked == refuses ? RPC_RESOURCE_EXHAUSTED : RPC_OK;
    return asked != refuses;
}

static void
filter_response(struct call *call, void *settings)
{
    (void)call, (void)settings;
    told++;
}

static void
filter_done(struct call *call, void *settings)
{
    (void)settings;
    assert_int_equal(call->phase, CALL_FINISHED);
    over++;
}

static const struct filter_type FILTER = {
    .name = "f", .request = filter_request, .response = filter_response, .done = filter_done};

static void
begin_with_filters(void)
{
    asked = told = over = 0;
    lab.filters[0] = lab.filters[1] = &FILTER;
    lab.route.filter_count = 2;
    lab_start(PROTOCOL_GRPC, 0);
}

static void
filters_hear_of_a_call_three_times(void **state)
{
    (void)state;
    refuses = 0;
    begin_with_filters();
    lab_send("hi");
    lab_end();
    assert_int_equal(asked, 2);
    assert_int_equal(told, 0);
    lab_reply("yo", 0);
    assert_int_equal(told, 2);
    lab_flushed();
    assert_int_equal(told, 2);
    assert_int_equal(over, 2);
}

static void
a_filter_that_refuses_ends_the_call_and_hears_no_more_of_it(void **state)
{
    for (refuses = 1; refuses <= 2; refuses++) {
        begin_with_filters();
        lab_expect("END(8)");
        lab_flushed();
        assert_int_equal(asked, refuses);
        assert_int_equal(told, refuses - 1); /* those before it hear of its end */
        assert_int_equal(over, refuses - 1);
        lab_teardown(state);
        lab_setup(state);
    }
    call_end_all(&lab.worker);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        LAB_TEST(a_unary_call_is_held_whole_and_answered_whole),
        LAB_TEST(a_stream_passes_piece_by_piece),
        LAB_TEST(auto_is_decided_at_the_end_of_the_turn),
        LAB_TEST(auto_with_its_end_in_the_same_turn_is_unary),
        LAB_TEST(auto_with_a_head_alone_is_a_stream_after_10_ms),
        LAB_TEST(auto_known_to_be_unary_is_waited_for_past_10_ms),
        LAB_TEST(without_an_endpoint_the_call_ends_at_once),
        LAB_TEST(gone_while_deciding),
        LAB_TEST(gone_while_opening),
        LAB_TEST(gone_while_waiting_for_the_answer),
        LAB_TEST(gone_while_replying),
        LAB_TEST(gone_while_ending_keeps_the_status),
        LAB_TEST(a_deadline_of_nothing_is_over_at_once),
        LAB_TEST(a_deadline_while_deciding),
        LAB_TEST(a_deadline_while_opening),
        LAB_TEST(a_deadline_while_waiting_for_the_answer),
        LAB_TEST(a_deadline_while_replying),
        LAB_TEST(an_answer_in_the_turn_of_its_deadline_leaves),
        LAB_TEST(an_answer_that_is_not_read_long_after_the_deadline_is_given_up),
        LAB_TEST(a_providers_idea_of_an_expired_deadline_does_not_stand),
        LAB_TEST(the_routes_timeout_is_a_deadline),
        LAB_TEST(stopping_ends_a_call_in_whatever_phase),
        LAB_TEST(stopping_resets_a_call_whose_head_is_not_complete),
        LAB_TEST(filters_hear_of_a_call_three_times),
        LAB_TEST(a_filter_that_refuses_ends_the_call_and_hears_no_more_of_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
