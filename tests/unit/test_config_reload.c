/* A reload: what it may change, what stays, and that a bad file leaves nothing behind. */
#include "tests/unit/config_test.h"

static struct snapshot *
reload(const char *text, const struct snapshot *old, const char *kept_lines)
{
    struct config_result result;
    struct strbuf kept = STRBUF_INIT;
    config_load_text("t.ini", text_of(text), old, &result, &kept);
    expect_text(strbuf_text(&result.errors), "");
    expect_text(strbuf_text(&kept), kept_lines);
    strbuf_fini(&kept);
    config_result_fini(&result);
    return result.snapshot;
}

static void
an_unchanged_file_keeps_nothing_and_counts_up(void **state)
{
    (void)state;
    struct snapshot *old = config_test_load(MINIMAL), *new = reload(MINIMAL, old, "");
    assert_int_equal(new->generation, 2);
    assert_true(text_eq(old->printed, new->printed));
    snapshot_unref(old);
    expect_text(new->routes[0].name, "greet"); /* shares nothing with the old one */
    snapshot_unref(new);
}

static void
what_sockets_and_threads_stand_on_keeps_its_old_value(void **state)
{
    (void)state;
    struct snapshot *old = config_test_load(
        "[proxy]\nworkers = 1\nadmin = 127.0.0.1:1\nprobe = 127.0.0.1:2\n" MINIMAL);
    struct snapshot *new = reload(
        "[proxy]\nworkers = 2\nprobe = 127.0.0.1:3\nmax_message = 2M\n"
        "[listener main]\naddress = 127.0.0.1:17001, 127.0.0.1:17002\nmax_streams = "
        "7\n" UPSTREAM_GREETER "[route greet]\nmatch = *\nupstream = greeter\n",
        old,
        "[proxy] workers: a reload can't change it, the old value stays until a restart\n"
        "[proxy] admin: a reload can't change it, the old value stays until a restart\n"
        "[proxy] probe: a reload can't change it, the old value stays until a restart\n"
        "[listener main] address: a reload can't change it, the old value stays until a restart\n");
    snapshot_unref(old);
    assert_int_equal(new->proxy.workers, 1);
    expect_text(new->proxy.admin, "127.0.0.1:1");
    expect_text(new->proxy.probe, "127.0.0.1:2");
    assert_int_equal(new->listeners[0].address_count, 1);
    expect_text(new->listeners[0].addresses[0], "127.0.0.1:17000");
    assert_int_equal(new->listeners[0].max_streams, 7);
    assert_int_equal(new->max_message, 2 << 20);
    assert_non_null(memmem(new->printed.ptr, new->printed.len, "admin = 127.0.0.1:1\n", 20));
    snapshot_unref(new);
}

static void
listeners_upstreams_and_routes_come_and_go(void **state)
{
    (void)state;
    struct snapshot *old = config_test_load(MINIMAL);
    struct snapshot *new =
        reload("[listener other]\naddress = 127.0.0.1:5\n[upstream u]\nendpoints = a:1\n"
               "[route a]\nmatch = *\nupstream = u\n[route b]\nmatch = /x.*\nupstream = u\n",
               old, "");
    assert_int_equal(new->listener_count, 1);
    expect_text(new->listeners[0].name, "other");
    assert_int_equal(new->route_count, 2);
    snapshot_unref(new);
    snapshot_unref(old);
}

static void
auto_that_gives_the_same_workers_is_no_change_to_tell(void **state)
{
    (void)state;
    struct snapshot *old = config_test_load("[proxy]\nworkers = auto\n" MINIMAL);
    char text[256];
    snprintf(text, sizeof(text), "[proxy]\nworkers = %u\n" MINIMAL, old->proxy.workers);
    struct snapshot *new = reload(text, old, "");
    assert_int_equal(new->proxy.workers, old->proxy.workers);
    snapshot_unref(new);
    snapshot_unref(old);
}

static void
a_bad_file_gives_no_snapshot_and_leaves_the_old_alone(void **state)
{
    struct config_result result;
    struct strbuf kept = STRBUF_INIT;
    (void)state;
    struct snapshot *old = config_test_load(MINIMAL);
    config_load_text("t.ini", TEXT("[proxy]\nworkers = 2\n[listener main]\naddress = x\n"), old,
                     &result, &kept);
    assert_null(result.snapshot);
    assert_int_equal(result.error_count, 1);
    assert_int_equal(kept.len, 0);
    config_result_fini(&result);
    assert_int_equal(atomic_load(&old->refs), 1);
    expect_text(old->listeners[0].addresses[0], "127.0.0.1:17000");
    snapshot_unref(old);
}

/* Cut anywhere before its routes, a file may still be a valid one. */
static void
a_file_that_has_lost_all_routes_is_refused(void **state)
{
    static const char BEGINNING[] = "[listener main]\naddress = 127.0.0.1:17000\n";
    struct config_result result;
    (void)state;
    struct snapshot *old = config_test_load(MINIMAL), *bare = config_test_load(BEGINNING);
    config_load_text("t.ini", text_of(BEGINNING), old, &result, NULL);
    assert_null(result.snapshot);
    expect_text(
        strbuf_text(&result.errors),
        "t.ini:1: no [route NAME] section is left, so every call would fail; a file that is "
        "cut short, or still being written?\n");
    config_result_fini(&result);
    snapshot_unref(reload(BEGINNING, bare, "")); /* there were none before */
    snapshot_unref(bare);
    snapshot_unref(old);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_unchanged_file_keeps_nothing_and_counts_up),
        cmocka_unit_test(what_sockets_and_threads_stand_on_keeps_its_old_value),
        cmocka_unit_test(listeners_upstreams_and_routes_come_and_go),
        cmocka_unit_test(auto_that_gives_the_same_workers_is_no_change_to_tell),
        cmocka_unit_test(a_bad_file_gives_no_snapshot_and_leaves_the_old_alone),
        cmocka_unit_test(a_file_that_has_lost_all_routes_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
