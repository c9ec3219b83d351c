/* Windows and the budget: what is held is paid at once, what passes when it has left, and nothing
 * while the budget is tight. */
#include "call_lab.h"

#include <string.h>

static uint8_t part[60000];

static void
start_stream(void)
{
    lab.route.call = CALL_STREAM;
    lab.reply_form = FORM_FRAMED;
    lab_start(PROTOCOL_GRPC, 0);
    call_reply_head(lab.call, false);
}

static void
leave(void)
{
    call_downstream_gone(lab.call, 8);
}

/* A message's prefix so that `bytes` may follow. */
static void
prefix_of(uint32_t bytes, uint8_t *prefix)
{
    prefix_write(prefix, false, bytes);
}

static void
held_bytes_are_paid_on_receipt(void **state)
{
    (void)state;
    uint8_t prefix[PREFIX_BYTES];
    prefix_of(100000, prefix);
    lab_start(PROTOCOL_GRPC, 0);
    lab_send_bytes(prefix, sizeof(prefix));
    lab_send_bytes(part, 60000);
    assert_int_equal(lab.down_credit, 60005);
    leave();
}

static void
passing_bytes_are_paid_when_they_have_left(void **state)
{
    (void)state;
    uint8_t prefix[PREFIX_BYTES];
    prefix_of(60000, prefix);
    start_stream();
    lab_send_bytes(prefix, sizeof(prefix));
    lab_send_bytes(part, 1000);
    assert_int_equal(lab.down_credit, 0);
    call_upstream_sent(lab.call, 600);
    assert_int_equal(lab.down_credit, 600);
    call_upstream_sent(lab.call, 405);
    assert_int_equal(lab.down_credit, 1005);
    leave();
}

static void
passing_replies_are_paid_when_they_have_left(void **state)
{
    (void)state;
    uint8_t prefix[PREFIX_BYTES];
    prefix_of(60000, prefix);
    start_stream();
    call_reply_data(lab.call, prefix, sizeof(prefix));
    call_reply_data(lab.call, part, 1000);
    assert_int_equal(lab.up_credit, 0);
    call_downstream_sent(lab.call, 1005);
    assert_int_equal(lab.up_credit, 1005);
    leave();
}

static void
a_held_reply_is_paid_on_receipt(void **state)
{
    (void)state;
    lab_start(PROTOCOL_GRPC, 0);
    lab_send("hi");
    lab_end();
    call_reply_head(lab.call, false); /* bare, without a length: held for its prefix */
    call_reply_data(lab.call, part, 50000);
    assert_int_equal(lab.up_credit, 50000);
    leave();
}

static void
what_a_call_owes_is_paid_when_it_is_answered_early(void **state)
{
    (void)state;
    uint8_t prefix[PREFIX_BYTES];
    prefix_of(60000, prefix);
    start_stream();
    lab_send_bytes(prefix, sizeof(prefix));
    lab_send_bytes(part, 1000);
    call_reply_end(lab.call, NULL);
    assert_int_equal(lab.down_credit, 1005);
    lab_send_bytes(part, 500); /* too late: dropped */
    assert_int_equal(lab.down_credit, 1505);
    lab_flushed();
}

/* Chunks of others that fill the budget to `percent`. */
static struct chunk *filler[1000];
static unsigned fillers;

static void
fill_budget(unsigned percent)
{
    struct chunk_pool *pool = &lab.worker.ctx.chunks;
    for (fillers = 0; pool->lease.used * 100 < lab.budget.total * percent; fillers++) {
        filler[fillers] = chunk_get(pool, CHUNK_20K_CAP, CHUNK_20K_CAP);
        if (!filler[fillers])
            break; /* as full as it gets */
    }
}

static void
empty_budget(void)
{
    while (fillers > 0)
        chunk_put(filler[--fillers]);
}

static void
nothing_is_paid_while_the_budget_is_tight_and_all_when_it_is_free(void **state)
{
    (void)state;
    uint8_t prefix[PREFIX_BYTES];
    prefix_of(60000, prefix);
    start_stream();
    fill_budget(80);
    lab_send_bytes(prefix, sizeof(prefix));
    lab_send_bytes(part, 1000);
    call_upstream_sent(lab.call, 1005);
    lab_run_ms(20);
    assert_int_equal(lab.down_credit, 0);
    empty_budget();
    lab_run_ms(20);
    assert_int_equal(lab.down_credit, 1005);
    leave();
}

static void
what_is_kept_for_a_replay_is_given_up_while_others_wait_for_memory(void **state)
{
    (void)state;
    uint8_t prefix[PREFIX_BYTES];
    prefix_of(60000, prefix);
    lab.route.call = CALL_STREAM;
    lab_start(PROTOCOL_GRPC, 0);
    lab_send_bytes(prefix, sizeof(prefix));
    lab_send_bytes(part, 1000);
    assert_true(lab.call->request_flow.kept_whole);
    fill_budget(80);
    call_upstream_sent(lab.call, 1005);
    assert_false(lab.call->request_flow.kept_whole);
    assert_int_equal(lab.call->request_flow.body.bytes, 0);
    empty_budget();
    lab_run_ms(20);
    assert_int_equal(lab.down_credit, 1005);
    leave();
}

static void
a_request_without_budget_is_resource_exhausted_and_frees_its_chunks(void **state)
{
    (void)state;
    uint8_t prefix[PREFIX_BYTES];
    prefix_of(900000, prefix);
    lab_start(PROTOCOL_GRPC, 0);
    lab_send_bytes(prefix, sizeof(prefix));
    lab_send_bytes(part, 50000);
    fill_budget(92);
    uint64_t before = lab.worker.ctx.chunks.lease.used;
    for (int i = 0; i < 4 && lab.call->phase < CALL_ENDING; i++)
        lab_send_bytes(part, 60000);
    assert_int_equal(lab.call->status.code, RPC_RESOURCE_EXHAUSTED);
    assert_true(lab.worker.ctx.chunks.lease.used < before);
    uint64_t paid = lab.down_credit;
    lab_send_bytes(part, 60000);
    assert_int_equal(lab.down_credit, paid + 60000);
    empty_budget();
    lab_flushed();
    assert_int_equal(lab_status("RESOURCE_EXHAUSTED"), 1);
}

static void
a_reply_without_budget_is_resource_exhausted(void **state)
{
    (void)state;
    lab_start(PROTOCOL_GRPC, 0);
    lab_send("hi");
    lab_end();
    call_reply_head(lab.call, false);
    fill_budget(92);
    lab.story[0] = 0;
    for (int i = 0; i < 10 && lab.call->phase < CALL_ENDING; i++)
        call_reply_data(lab.call, part, sizeof(part));
    lab_expect("cancel(8) END(8)");
    empty_budget();
    lab_flushed();
}

static void
an_error_body_without_budget_leaves_the_http_status(void **state)
{
    (void)state;
    lab_start(PROTOCOL_GRPC, 0);
    lab_send("hi");
    lab_end();
    lab.body_is_error = true;
    lab.http_status = 503;
    fill_budget(100);
    lab.story[0] = 0;
    lab_reply("{\"code\":\"unavailable\"}", RPC_UNAVAILABLE);
    lab_expect("cancel(0) END(14)");
    empty_budget();
    lab_flushed();
}

static void
a_small_body_is_served_in_the_last_eighth(void **state)
{
    (void)state;
    fill_budget(92);
    lab_start(PROTOCOL_GRPC, 0);
    lab_send("hi");
    lab_end();
    lab_reply("yo", 0);
    assert_int_equal(lab.call->status.code, RPC_OK);
    empty_budget();
    lab_flushed();
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        LAB_TEST(held_bytes_are_paid_on_receipt),
        LAB_TEST(passing_bytes_are_paid_when_they_have_left),
        LAB_TEST(passing_replies_are_paid_when_they_have_left),
        LAB_TEST(a_held_reply_is_paid_on_receipt),
        LAB_TEST(what_a_call_owes_is_paid_when_it_is_answered_early),
        LAB_TEST(nothing_is_paid_while_the_budget_is_tight_and_all_when_it_is_free),
        LAB_TEST(what_is_kept_for_a_replay_is_given_up_while_others_wait_for_memory),
        LAB_TEST(a_request_without_budget_is_resource_exhausted_and_frees_its_chunks),
        LAB_TEST(a_reply_without_budget_is_resource_exhausted),
        LAB_TEST(an_error_body_without_budget_leaves_the_http_status),
        LAB_TEST(a_small_body_is_served_in_the_last_eighth),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
