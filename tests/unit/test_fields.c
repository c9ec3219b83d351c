/* The field list: order, repetition, replacing, removing. */
#include "tests/unit/unit.h"

#include "proxy/base/fields.h"

struct fixture {
    struct arena arena;
    struct fields fields;
};

static int
setup(void **state)
{
    static struct fixture fixture;
    arena_init(&fixture.arena, NULL, 0);
    fields_init(&fixture.fields, &fixture.arena);
    *state = &fixture;
    return 0;
}

static int
teardown(void **state)
{
    arena_fini(&((struct fixture *)*state)->arena);
    return 0;
}

static struct fields *
list(void **state)
{
    return &((struct fixture *)*state)->fields;
}

/* "a=1 b=2" for comparison. */
static void
expect_fields(const struct fields *fields, const char *expected)
{
    char all[512] = "";
    size_t len = 0;
    fields_for_each (field, fields) {
        assert_true(len + field->name.len + field->value.len + 3 < sizeof(all));
        len += (size_t)snprintf(all + len, sizeof(all) - len, "%s%.*s=%.*s", len ? " " : "",
                                TEXT_ARGS(field->name), TEXT_ARGS(field->value));
    }
    assert_string_equal(all, expected);
}

static void
add(struct fields *fields, const char *name, const char *value)
{
    fields_add(fields, text_of(name), text_of(value), 0);
}

static void
empty_list_has_nothing(void **state)
{
    const struct fields *fields = list(state);
    assert_null(fields_find(fields, TEXT("a")));
    assert_null(fields_value(fields, TEXT("a")).ptr);
    assert_int_equal(fields_count(fields, TEXT("a")), 0);
    assert_int_equal(fields_list_size(fields), 0);
    expect_fields(fields, "");
    fields_remove(list(state), TEXT("a"));
}

static void
order_and_repetition_are_kept(void **state)
{
    struct fields *fields = list(state);
    add(fields, "b", "1");
    add(fields, "a", "2");
    add(fields, "b", "3");
    expect_fields(fields, "b=1 a=2 b=3");
    expect_text(fields_value(fields, TEXT("b")), "1");
    assert_int_equal(fields_count(fields, TEXT("b")), 2);
}

static void
names_compare_exactly(void **state)
{
    struct fields *fields = list(state);
    add(fields, "grpc-status", "0");
    assert_null(fields_find(fields, TEXT("grpc-statu")));
    assert_null(fields_find(fields, TEXT("grpc-status-x")));
    assert_null(fields_find(fields, TEXT("Grpc-Status")));
    assert_non_null(fields_find(fields, TEXT("grpc-status")));
}

static void
grows_past_any_first_size(void **state)
{
    struct fields *fields = list(state);
    char name[16];
    for (unsigned i = 0; i < 1000; i++) {
        snprintf(name, sizeof(name), "x-%u", i);
        fields_add_copy(fields, text_of(name), text_of(name), (uint8_t)(i % 8));
    }
    assert_int_equal(fields->count, 1000);
    for (unsigned i = 0; i < 1000; i++) {
        snprintf(name, sizeof(name), "x-%u", i);
        expect_text(fields->items[i].name, name);
        expect_text(fields_value(fields, text_of(name)), name);
        assert_int_equal(fields->items[i].flags, i % 8);
    }
}

static void
add_keeps_views_and_add_copy_copies(void **state)
{
    struct fields *fields = list(state);
    char value[] = "old";
    fields_add(fields, TEXT("view"), text_of(value), FIELD_STATIC);
    fields_add_copy(fields, TEXT("copy"), text_of(value), FIELD_NO_INDEX);
    memcpy(value, "new", 3);
    expect_fields(fields, "view=new copy=old");
    assert_int_equal(fields_find(fields, TEXT("view"))->flags, FIELD_STATIC);
    assert_int_equal(fields_find(fields, TEXT("copy"))->flags, FIELD_NO_INDEX);
}

static void
remove_takes_all_of_a_name_and_keeps_order(void **state)
{
    struct fields *fields = list(state);
    add(fields, "a", "1");
    add(fields, "b", "2");
    add(fields, "a", "3");
    add(fields, "c", "4");
    add(fields, "a", "5");
    fields_remove(fields, TEXT("a"));
    expect_fields(fields, "b=2 c=4");
    fields_remove(fields, TEXT("z"));
    expect_fields(fields, "b=2 c=4");
}

static void
remove_by_a_name_that_lies_in_the_list(void **state)
{
    struct fields *fields = list(state);
    add(fields, "a", "1");
    add(fields, "b", "2");
    add(fields, "a", "3");
    fields_remove(fields, fields->items[0].name);
    expect_fields(fields, "b=2");
}

static void
set_replaces_the_first_and_drops_the_others(void **state)
{
    struct fields *fields = list(state);
    add(fields, "x", "0");
    add(fields, "a", "1");
    add(fields, "b", "2");
    add(fields, "a", "3");
    fields_set(fields, TEXT("a"), TEXT("new"), FIELD_STATIC);
    expect_fields(fields, "x=0 a=new b=2");
    assert_int_equal(fields->items[1].flags, FIELD_STATIC);
    fields_set(fields, TEXT("c"), TEXT("4"), 0);
    expect_fields(fields, "x=0 a=new b=2 c=4");
}

static void
list_size_counts_32_a_field(void **state)
{
    struct fields *fields = list(state);
    add(fields, "name", "value");
    add(fields, "empty", "");
    assert_int_equal(fields_list_size(fields), 4 + 5 + 32 + 5 + 32);
}

int
main(void)
{
#define WITH_LIST(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
    const struct CMUnitTest tests[] = {
        WITH_LIST(empty_list_has_nothing),
        WITH_LIST(order_and_repetition_are_kept),
        WITH_LIST(names_compare_exactly),
        WITH_LIST(grows_past_any_first_size),
        WITH_LIST(add_keeps_views_and_add_copy_copies),
        WITH_LIST(remove_takes_all_of_a_name_and_keeps_order),
        WITH_LIST(remove_by_a_name_that_lies_in_the_list),
        WITH_LIST(set_replaces_the_first_and_drops_the_others),
        WITH_LIST(list_size_counts_32_a_field),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
