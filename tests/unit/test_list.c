/* The intrusive ring. */
#include "tests/unit/unit.h"

#include "proxy/base/list.h"

struct item {
    int number;
    struct list node;
};

static struct item items[5];
static struct list head;

static int
setup(void **state)
{
    (void)state;
    list_init(&head);
    for (int i = 0; i < 5; i++) {
        items[i].number = i;
        list_init(&items[i].node);
    }
    return 0;
}

static void
expect_list(const struct list *ring, const char *digits)
{
    char forward[16] = "";
    size_t len = 0;
    list_for_each (node, ring) {
        assert_ptr_equal(node->next->prev, node);
        forward[len++] = (char)('0' + list_entry(node, struct item, node)->number);
    }
    assert_string_equal(forward, digits);
}

static void
pushes_at_both_ends(void **state)
{
    (void)state;
    assert_true(list_empty(&head));
    assert_false(list_linked(&items[0].node));
    list_push_back(&head, &items[1].node);
    list_push_back(&head, &items[2].node);
    list_push_front(&head, &items[0].node);
    expect_list(&head, "012");
    assert_true(list_linked(&items[0].node));
    assert_false(list_empty(&head));
    assert_ptr_equal(list_first(&head, struct item, node), &items[0]);
}

static void
unlinking_twice_is_safe(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++)
        list_push_back(&head, &items[i].node);
    list_unlink(&items[1].node);
    list_unlink(&items[1].node);
    expect_list(&head, "02");
    assert_false(list_linked(&items[1].node));
}

static void
walk_may_unlink_its_node(void **state)
{
    (void)state;
    for (int i = 0; i < 5; i++)
        list_push_back(&head, &items[i].node);
    list_for_each_safe (node, &head)
        if (list_entry(node, struct item, node)->number % 2 == 0)
            list_unlink(node);
    expect_list(&head, "13");
}

static void
splice_moves_all_to_the_end(void **state)
{
    (void)state;
    struct list other;
    list_init(&other);
    list_push_back(&head, &items[0].node);
    list_push_back(&other, &items[1].node);
    list_push_back(&other, &items[2].node);
    list_splice(&head, &other);
    expect_list(&head, "012");
    assert_true(list_empty(&other));
    list_splice(&head, &other);
    expect_list(&head, "012");
    list_splice(&other, &head);
    expect_list(&other, "012");
    assert_true(list_empty(&head));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(pushes_at_both_ends, setup),
        cmocka_unit_test_setup(unlinking_twice_is_safe, setup),
        cmocka_unit_test_setup(walk_may_unlink_its_node, setup),
        cmocka_unit_test_setup(splice_moves_all_to_the_end, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
