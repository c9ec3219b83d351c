/* path: every row of the table of how a call goes, and the rules below it. */
#include "unit.h"

#include "proxy/call/path.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

enum { WAIT = 100, WAIT_TURN }; /* beside enum stats_path */

/* How far the request has come. */
enum progress {
    HEAD,       /* nothing but the head */
    ALONE,      /* and nothing came for 10 ms */
    PREFIX,     /* the first prefix was read, not its message */
    MESSAGE,    /* one whole message, in the turn that read it */
    LATER,      /* the same, and that turn is over */
    SECOND,     /* a second message has begun */
    ENDED,      /* one message and END_STREAM */
    ENDED_NONE, /* END_STREAM without a message */
};

static void
set_progress(struct path_input *in, enum progress progress)
{
    in->head_alone = progress == ALONE;
    in->first_known = progress >= PREFIX && progress != ENDED_NONE;
    in->complete = progress >= MESSAGE && progress != ENDED_NONE;
    in->several = progress == SECOND;
    in->turn_over = progress == LATER || progress == SECOND;
    in->ended = progress >= ENDED;
    in->length = in->first_known ? 100 : -1;
}

struct row {
    const char *what;
    enum route_call call;
    enum upstream_wire wire;
    const char *facts; /* b: taken bare, u: and unary, m: method refused, e: endpoint refused */
    enum progress progress;
    unsigned result; /* enum stats_path, WAIT or WAIT_TURN */
    bool unary;
};

#define AUTO UPSTREAM_WIRE_AUTO
#define BARE UPSTREAM_WIRE_BARE
#define FRAMED UPSTREAM_WIRE_FRAMED

static const struct row ROWS[] = {
    /* stream: framed, at once, whatever is known */
    {"stream", CALL_STREAM, AUTO, "", HEAD, PATH_FRAMED, false},
    {"stream on bare", CALL_STREAM, BARE, "bu", HEAD, PATH_FRAMED, false},
    {"stream on framed", CALL_STREAM, FRAMED, "", ENDED, PATH_FRAMED, false},
    /* unary, bare: bare even where it is known to be refused */
    {"insists", CALL_UNARY, BARE, "e", ENDED, PATH_FAST, true},
    {"insists on the method", CALL_UNARY, BARE, "m", ENDED, PATH_FAST, true},
    {"insists, not yet whole", CALL_UNARY, BARE, "", MESSAGE, WAIT, true},
    /* unary, auto */
    {"unknown is held", CALL_UNARY, AUTO, "", PREFIX, WAIT, false},
    {"unknown is held to its end", CALL_UNARY, AUTO, "", MESSAGE, WAIT, false},
    {"unknown, whole", CALL_UNARY, AUTO, "", ENDED, PATH_FAST, true},
    {"taken, whole", CALL_UNARY, AUTO, "b", ENDED, PATH_FAST, true},
    {"taken, short, coming", CALL_UNARY, AUTO, "b", PREFIX, WAIT, false},
    {"method refused", CALL_UNARY, AUTO, "m", ENDED, PATH_FRAMED, true},
    {"endpoint refused", CALL_UNARY, AUTO, "e", ENDED, PATH_FRAMED, true},
    {"refused, short, coming", CALL_UNARY, AUTO, "e", MESSAGE, WAIT, false},
    {"refused after taken", CALL_UNARY, AUTO, "be", ENDED, PATH_FRAMED, true},
    {"no message", CALL_UNARY, AUTO, "", ENDED_NONE, PATH_FAST, true},
    /* unary, framed: held as well, so that it leaves in one frame */
    {"framed, coming", CALL_UNARY, FRAMED, "", MESSAGE, WAIT, false},
    {"framed, whole", CALL_UNARY, FRAMED, "", ENDED, PATH_FRAMED, true},
    {"framed, whatever is known", CALL_UNARY, FRAMED, "bu", ENDED, PATH_FRAMED, true},
    /* auto, on bare and auto */
    {"auto waits for a message", CALL_AUTO, AUTO, "", HEAD, WAIT, false},
    {"auto, nothing for 10 ms", CALL_AUTO, AUTO, "", ALONE, PATH_FRAMED, false},
    {"auto, a message is coming", CALL_AUTO, AUTO, "", PREFIX, WAIT, false},
    {"auto, whole in this turn", CALL_AUTO, AUTO, "", MESSAGE, WAIT_TURN, false},
    {"auto, no end by the turn's", CALL_AUTO, AUTO, "", LATER, PATH_FRAMED, false},
    {"auto, a second message", CALL_AUTO, AUTO, "", SECOND, PATH_FRAMED, false},
    {"auto, message and end", CALL_AUTO, AUTO, "", ENDED, PATH_FAST, true},
    {"auto, end alone", CALL_AUTO, AUTO, "", ENDED_NONE, PATH_FRAMED, false},
    {"auto, known to be unary", CALL_AUTO, AUTO, "bu", LATER, WAIT, false},
    {"auto, unary: waits however long", CALL_AUTO, AUTO, "bu", ALONE, WAIT, false},
    {"auto, unary, whole", CALL_AUTO, AUTO, "bu", ENDED, PATH_FAST, true},
    {"auto, taken but not known to be unary", CALL_AUTO, AUTO, "b", LATER, PATH_FRAMED, false},
    {"auto, method refused", CALL_AUTO, AUTO, "m", HEAD, PATH_FRAMED, false},
    {"auto, endpoint refused", CALL_AUTO, AUTO, "e", HEAD, PATH_FRAMED, false},
    {"auto on bare is no insisting", CALL_AUTO, BARE, "e", ENDED, PATH_FRAMED, false},
    {"auto on bare, message and end", CALL_AUTO, BARE, "", ENDED, PATH_FAST, true},
    {"auto on bare, no end", CALL_AUTO, BARE, "", LATER, PATH_FRAMED, false},
    /* auto, on framed */
    {"auto on framed", CALL_AUTO, FRAMED, "", HEAD, PATH_FRAMED, false},
    {"auto on framed, whole", CALL_AUTO, FRAMED, "bu", ENDED, PATH_FRAMED, false},
};

static struct path_input
input_of(const struct row *row)
{
    struct path_input in = {
        .call = row->call, .wire = row->wire, .fast_path_max = 1000, .fast_share = true};
    in.facts.method_bare = strchr(row->facts, 'b');
    in.facts.method_unary = strchr(row->facts, 'u');
    in.facts.method_framed = strchr(row->facts, 'm');
    in.facts.endpoint_framed = strchr(row->facts, 'e');
    set_progress(&in, row->progress);
    return in;
}

/* The path, or WAIT and WAIT_TURN; checks that the form is the path's. */
static unsigned
decide(const struct path_input *in, bool *unary)
{
    struct path_choice choice = {.path = PATH_COUNT};
    switch (path_decide(in, &choice)) {
    case PATH_WAIT:
        return WAIT;
    case PATH_WAIT_TURN:
        return WAIT_TURN;
    default:
        assert_int_equal(choice.form, choice.path == PATH_FRAMED ? FORM_FRAMED : FORM_BARE);
        *unary = choice.unary;
        return choice.path;
    }
}

static void
every_row_of_the_table(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(ROWS); i++) {
        const struct row *row = &ROWS[i];
        struct path_input in = input_of(row);
        bool unary = false;
        unsigned result = decide(&in, &unary);
        if (result != row->result || (result < WAIT && unary != row->unary))
            fail_msg("%s: %u, unary %d", row->what, result, unary);
    }
}

static struct path_input
unary_input(const char *facts, enum progress progress)
{
    struct row row = {"", CALL_UNARY, AUTO, facts, progress, 0, true};
    return input_of(&row);
}

static void
expect(const struct path_input *in, unsigned result)
{
    bool unary = true;
    assert_int_equal(decide(in, &unary), result);
    assert_true(unary);
}

static void
a_message_of_exactly_fast_path_max_is_held_and_a_longer_one_cut_through(void **state)
{
    (void)state;
    struct path_input in = unary_input("b", PREFIX);
    in.length = 1000;
    expect(&in, WAIT);
    in.length = 1001;
    expect(&in, PATH_CUT_THROUGH);
    in.ended = in.complete = true;
    expect(&in, PATH_FAST); /* it was whole by the time of asking */
}

static void
a_long_message_of_which_nothing_is_known_is_held_once(void **state)
{
    (void)state;
    struct path_input in = unary_input("", PREFIX);
    in.length = 100000;
    expect(&in, WAIT);
    in.ended = in.complete = true;
    expect(&in, PATH_FAST);
}

static void
a_long_message_to_a_provider_that_takes_framing_only_is_not_held(void **state)
{
    (void)state;
    struct path_input in = unary_input("e", PREFIX);
    in.length = 100000;
    expect(&in, PATH_FRAMED);
}

static void
a_tight_budget_cuts_through_what_may_be(void **state)
{
    (void)state;
    struct path_input in = unary_input("b", PREFIX);
    in.budget_tight = true;
    expect(&in, PATH_CUT_THROUGH);
    in = unary_input("", PREFIX);
    in.budget_tight = true;
    expect(&in, WAIT); /* a refusal would have to be answered with a framed try */
    in = unary_input("e", PREFIX);
    in.budget_tight = true;
    expect(&in, PATH_FRAMED);
}

static void
fast_path_off_is_relay_where_the_form_is_certain_else_framed(void **state)
{
    (void)state;
    struct path_input in = unary_input("b", PREFIX);
    in.fast_share = false;
    expect(&in, PATH_RELAY);
    in = unary_input("", PREFIX);
    in.fast_share = false;
    expect(&in, PATH_FRAMED);
    in.wire = BARE;
    expect(&in, PATH_RELAY);
    in = unary_input("", HEAD);
    in.fast_share = false;
    expect(&in, WAIT); /* nothing to pass on yet */
}

static void
fast_path_off_with_auto_is_framed_unless_known_to_be_unary_and_taken(void **state)
{
    (void)state;
    struct row row = {"", CALL_AUTO, AUTO, "", ENDED, 0, false};
    struct path_input in = input_of(&row);
    bool unary = true;
    in.fast_share = false;
    assert_int_equal(decide(&in, &unary), PATH_FRAMED);
    assert_false(unary);
    row.facts = "bu";
    row.progress = PREFIX;
    in = input_of(&row);
    in.fast_share = false;
    assert_int_equal(decide(&in, &unary), PATH_RELAY);
}

/* A bare request: unary by definition, its prefix is no question. */
static struct path_input
bare_input(const char *facts, int64_t length, bool ended)
{
    struct path_input in = unary_input(facts, ended ? ENDED : HEAD);
    in.call = CALL_STREAM; /* whatever the route says */
    in.source_bare = in.first_known = true;
    in.length = length;
    return in;
}

static void
a_bare_request_counts_as_unary(void **state)
{
    (void)state;
    struct path_input in = bare_input("", 100, false);
    expect(&in, WAIT);
    in = bare_input("", 100, true);
    expect(&in, PATH_FAST);
    in = bare_input("b", 5000, false);
    expect(&in, PATH_CUT_THROUGH);
    in = bare_input("e", 5000, false);
    expect(&in, PATH_FRAMED);
}

static void
a_bare_request_without_length_is_held_only_if_it_must_be_prefixed(void **state)
{
    (void)state;
    struct path_input in = bare_input("b", -1, false);
    expect(&in, PATH_RELAY);
    in = bare_input("e", -1, false);
    expect(&in, WAIT);
    in = bare_input("e", 100, true);
    expect(&in, PATH_FRAMED);
    in = bare_input("", -1, false);
    expect(&in, WAIT);
}

static void
a_bare_request_that_must_be_decompressed_is_held_always(void **state)
{
    (void)state;
    struct path_input in = bare_input("e", 5000, false);
    in.must_inflate = true;
    expect(&in, WAIT);
    in.fast_share = false;
    expect(&in, WAIT);
    in.budget_tight = true;
    expect(&in, WAIT);
    in.ended = true;
    expect(&in, PATH_FRAMED);
}

static void
only_unary_with_bare_insists_on_the_bare_form(void **state)
{
    (void)state;
    assert_false(path_may_fall_back(CALL_UNARY, BARE));
    assert_true(path_may_fall_back(CALL_AUTO, BARE));
    assert_true(path_may_fall_back(CALL_UNARY, AUTO));
    assert_true(path_may_fall_back(CALL_AUTO, AUTO));
    assert_false(path_may_fall_back(CALL_UNARY, FRAMED));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_of_the_table),
        cmocka_unit_test(a_message_of_exactly_fast_path_max_is_held_and_a_longer_one_cut_through),
        cmocka_unit_test(a_long_message_of_which_nothing_is_known_is_held_once),
        cmocka_unit_test(a_long_message_to_a_provider_that_takes_framing_only_is_not_held),
        cmocka_unit_test(a_tight_budget_cuts_through_what_may_be),
        cmocka_unit_test(fast_path_off_is_relay_where_the_form_is_certain_else_framed),
        cmocka_unit_test(fast_path_off_with_auto_is_framed_unless_known_to_be_unary_and_taken),
        cmocka_unit_test(a_bare_request_counts_as_unary),
        cmocka_unit_test(a_bare_request_without_length_is_held_only_if_it_must_be_prefixed),
        cmocka_unit_test(a_bare_request_that_must_be_decompressed_is_held_always),
        cmocka_unit_test(only_unary_with_bare_insists_on_the_bare_form),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
