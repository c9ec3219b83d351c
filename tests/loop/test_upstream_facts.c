/* What is learnt about endpoints: kept by codec and method, bounded, replaced by the contrary. */
#include "loop_fixture.h"

#include <stdio.h>

#include "upstream/facts.h"

static const struct text PROTO = {"proto", 5}, JSON = {"json", 4};

/* A table of its own for each test: they live as long as the process. */
static struct facts *
fresh(const char *test)
{
    return facts_of(TEXT("up"), text_of(test));
}

static struct upstream_facts
look(struct facts *facts, struct text codec, const char *path)
{
    struct upstream_facts found;
    facts_look_up(facts, codec, text_of(path), &found);
    return found;
}

static void
nothing_is_known_at_first(void **state)
{
    (void)state;
    struct facts *facts = fresh(__func__);
    struct upstream_facts found = look(facts, PROTO, "/s/m");
    assert_false(found.endpoint_framed || found.method_framed || found.method_bare ||
                 found.method_unary);
    assert_int_equal(facts_wire(facts), WIRE_UNKNOWN);
}

static void
a_table_is_found_again_by_upstream_and_address(void **state)
{
    (void)state;
    struct facts *facts = fresh(__func__);
    assert_ptr_equal(facts, fresh(__func__));
    assert_ptr_not_equal(facts, facts_of(TEXT("other"), text_of(__func__)));
}

static void
a_bare_reply_marks_the_method_unary(void **state)
{
    (void)state;
    struct facts *facts = fresh(__func__);
    facts_learn(facts, PROTO, TEXT("/s/m"), LESSON_METHOD_UNARY, 0);
    assert_true(look(facts, PROTO, "/s/m").method_unary);
    assert_true(look(facts, PROTO, "/s/m").method_bare);
    assert_false(look(facts, PROTO, "/s/other").method_bare);
    assert_false(look(facts, JSON, "/s/m").method_bare);
    assert_int_equal(facts_wire(facts), WIRE_BARE);
}

static void
a_refused_method_says_nothing_of_others(void **state)
{
    (void)state;
    struct facts *facts = fresh(__func__);
    facts_learn(facts, PROTO, TEXT("/s/m"), LESSON_METHOD_FRAMED, 415);
    assert_true(look(facts, PROTO, "/s/m").method_framed);
    assert_false(look(facts, PROTO, "/s/other").method_framed);
    assert_false(look(facts, PROTO, "/s/other").endpoint_framed);
}

static void
an_endpoint_that_refuses_a_codec_may_take_another(void **state)
{
    (void)state;
    struct facts *facts = fresh(__func__);
    facts_learn(facts, PROTO, TEXT("/s/m"), LESSON_ENDPOINT_FRAMED, 404);
    facts_learn(facts, JSON, TEXT("/s/m"), LESSON_METHOD_UNARY, 0);
    assert_true(look(facts, PROTO, "/s/other").endpoint_framed);
    assert_false(look(facts, JSON, "/s/m").endpoint_framed);
    assert_true(look(facts, JSON, "/s/m").method_bare);
}

static void
a_contrary_answer_replaces_what_was_learnt(void **state)
{
    (void)state;
    struct facts *facts = fresh(__func__);
    facts_learn(facts, PROTO, TEXT("/s/m"), LESSON_ENDPOINT_FRAMED, 404);
    facts_learn(facts, PROTO, TEXT("/s/m"), LESSON_METHOD_BARE, 0);
    assert_false(look(facts, PROTO, "/s/m").endpoint_framed);
    assert_true(look(facts, PROTO, "/s/m").method_bare);
    facts_learn(facts, PROTO, TEXT("/s/m"), LESSON_METHOD_FRAMED, 415);
    assert_true(look(facts, PROTO, "/s/m").method_framed);
    assert_false(look(facts, PROTO, "/s/m").method_bare);
}

static void
what_is_forgotten_leaves_other_methods_alone(void **state)
{
    (void)state;
    struct facts *facts = fresh(__func__);
    facts_learn(facts, PROTO, TEXT("/s/m"), LESSON_METHOD_UNARY, 0);
    facts_learn(facts, PROTO, TEXT("/s/other"), LESSON_METHOD_UNARY, 0);
    facts_learn(facts, PROTO, TEXT("/s/m"), LESSON_FORGET, 0);
    assert_false(look(facts, PROTO, "/s/m").method_bare);
    assert_true(look(facts, PROTO, "/s/other").method_bare);
}

static void
methods_are_bounded_and_the_endpoint_is_learnt_all_the_same(void **state)
{
    (void)state;
    struct facts *facts = fresh(__func__);
    char path[32];
    for (int i = 0; i < 5000; i++) {
        snprintf(path, sizeof(path), "/s/m%d", i);
        facts_learn(facts, PROTO, text_of(path), LESSON_METHOD_UNARY, 0);
    }
    assert_true(look(facts, PROTO, "/s/m0").method_unary);
    assert_true(look(facts, PROTO, "/s/m4095").method_unary);
    assert_false(look(facts, PROTO, "/s/m4096").method_unary);
    facts_learn(facts, JSON, TEXT("/s/m4999"), LESSON_ENDPOINT_FRAMED, 404);
    assert_true(look(facts, JSON, "/s/m1").endpoint_framed);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_known_at_first),
        cmocka_unit_test(a_table_is_found_again_by_upstream_and_address),
        cmocka_unit_test(a_bare_reply_marks_the_method_unary),
        cmocka_unit_test(a_refused_method_says_nothing_of_others),
        cmocka_unit_test(an_endpoint_that_refuses_a_codec_may_take_another),
        cmocka_unit_test(a_contrary_answer_replaces_what_was_learnt),
        cmocka_unit_test(what_is_forgotten_leaves_other_methods_alone),
        cmocka_unit_test(methods_are_bounded_and_the_endpoint_is_learnt_all_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
