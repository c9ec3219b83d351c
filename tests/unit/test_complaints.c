/* Error lines: their form, their order, their bound. */
#include "tests/unit/unit.h"

#include "proxy/config/complaints.h"

static void
a_line_names_file_line_section_and_key(void **state)
{
    struct complaints list = {.items = NULL};
    struct strbuf out = STRBUF_INIT;
    (void)state;
    complaints_add(&list, 3, TEXT("route a"), TEXT("match"), "'%s' is wrong", "x");
    complaints_add(&list, 4, TEXT("route a"), TEXT_NONE, "twice");
    complaints_add(&list, 5, TEXT_NONE, TEXT_NONE, "not understood");
    complaints_render(&list, "f.ini", &out);
    expect_text(strbuf_text(&out), "f.ini:3: [route a] match: 'x' is wrong\n"
                                   "f.ini:4: [route a] twice\n"
                                   "f.ini:5: not understood\n");
    strbuf_fini(&out);
    complaints_fini(&list);
}

static void
lines_come_in_the_order_of_the_file(void **state)
{
    struct complaints list = {.items = NULL};
    struct strbuf out = STRBUF_INIT;
    (void)state;
    complaints_add(&list, 9, TEXT_NONE, TEXT_NONE, "d");
    complaints_add(&list, 2, TEXT_NONE, TEXT_NONE, "b");
    complaints_add(&list, 2, TEXT_NONE, TEXT_NONE, "c");
    complaints_add(&list, 1, TEXT_NONE, TEXT_NONE, "a");
    complaints_render(&list, "f", &out);
    expect_text(strbuf_text(&out), "f:1: a\nf:2: b\nf:2: c\nf:9: d\n");
    strbuf_fini(&out);
    complaints_fini(&list);
}

static void
over_the_bound_they_are_counted_only(void **state)
{
    struct complaints list = {.items = NULL};
    struct strbuf out = STRBUF_INIT;
    (void)state;
    for (unsigned i = 0; i < COMPLAINTS_MAX + 7; i++)
        complaints_add(&list, i, TEXT_NONE, TEXT_NONE, "x");
    assert_int_equal(complaints_count(&list), COMPLAINTS_MAX + 7);
    complaints_render(&list, "f", &out);
    assert_true(text_ends(strbuf_text(&out), TEXT("f: and 7 more\n")));
    strbuf_fini(&out);
    complaints_fini(&list);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_names_file_line_section_and_key),
        cmocka_unit_test(lines_come_in_the_order_of_the_file),
        cmocka_unit_test(over_the_bound_they_are_counted_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
