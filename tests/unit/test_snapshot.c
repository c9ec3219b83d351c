/* Reference counts of configurations, across threads. */
#include "tests/unit/config_test.h"

#include <pthread.h>

static void
the_last_reference_frees(void **state)
{
    (void)state;
    struct snapshot *snapshot = snapshot_new();
    assert_int_equal(atomic_load(&snapshot->refs), 1);
    assert_ptr_equal(snapshot_ref(snapshot), snapshot);
    assert_int_equal(atomic_load(&snapshot->refs), 2);
    snapshot_unref(snapshot);
    assert_int_equal(atomic_load(&snapshot->refs), 1);
    snapshot_unref(snapshot); /* a leak, or a use after free, is the sanitizer's to tell */
}

static void *
take_and_give(void *user)
{
    struct snapshot *snapshot = user;
    for (unsigned i = 0; i < 10000; i++)
        snapshot_unref(snapshot_ref(snapshot));
    snapshot_unref(snapshot);
    return NULL;
}

static void
threads_share_one(void **state)
{
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    (void)state;
    struct snapshot *snapshot = config_test_load(MINIMAL);
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, take_and_give, snapshot_ref(snapshot)),
                         0);
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&snapshot->refs), 1);
    expect_text(snapshot->routes[0].name, "greet");
    snapshot_unref(snapshot);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_reference_frees),
        cmocka_unit_test(threads_share_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
