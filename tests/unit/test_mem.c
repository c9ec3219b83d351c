/* The heap's promises: never NULL, zeroed where it says so, strings that end. */
#include "tests/unit/unit.h"

#include "proxy/base/list.h"
#include "proxy/base/mem.h"

static void
nothing_asked_for_is_memory_all_the_same(void **state)
{
    (void)state;
    void *a = mem_alloc(0), *b = mem_zalloc(0);
    assert_non_null(a);
    assert_non_null(b);
    a = mem_realloc(a, 0);
    assert_non_null(a);
    mem_free(a);
    mem_free(b);
    mem_free(NULL);
}

static void
zalloc_is_zeroed(void **state)
{
    (void)state;
    unsigned char *bytes = mem_alloc(5000);
    memset(bytes, 0xff, 5000);
    mem_free(bytes); /* likely to come back */
    bytes = mem_zalloc(5000);
    for (unsigned i = 0; i < 5000; i++)
        assert_int_equal(bytes[i], 0);
    mem_free(bytes);
}

static void
realloc_keeps_what_was_there(void **state)
{
    (void)state;
    char *bytes = mem_realloc(NULL, 4);
    memcpy(bytes, "abc", 4);
    bytes = mem_realloc(bytes, 100000);
    assert_string_equal(bytes, "abc");
    mem_free(bytes);
}

static void
strings_are_copied_with_their_end(void **state)
{
    (void)state;
    char *whole = mem_strdup("abc"), *part = mem_strndup("abc", 2), *none = mem_strndup(NULL, 0);
    assert_string_equal(whole, "abc");
    assert_string_equal(part, "ab");
    assert_string_equal(none, "");
    mem_free(whole);
    mem_free(part);
    mem_free(none);
}

static void
container_is_found_from_its_member(void **state)
{
    (void)state;
    struct outer {
        int before;
        struct list node;
    } outer;
    assert_ptr_equal(container_of(&outer.node, struct outer, node), &outer);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_asked_for_is_memory_all_the_same),
        cmocka_unit_test(zalloc_is_zeroed),
        cmocka_unit_test(realloc_keeps_what_was_there),
        cmocka_unit_test(strings_are_copied_with_their_end),
        cmocka_unit_test(container_is_found_from_its_member),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
