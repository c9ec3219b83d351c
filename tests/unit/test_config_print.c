/* The printed configuration: as the documentation spells it, complete, and the same when read back.
 */
#include "tests/unit/config_test.h"

#include "proxy/base/mem.h"
#include "proxy/config/keys.h"

/* Prints `text`'s snapshot, loads that, prints again: both must be the same. */
static void
expect_round_trip(const char *text)
{
    struct snapshot *snapshot = config_test_load(text);
    char *first = config_test_print(snapshot, false);
    struct snapshot *again = config_test_load(first);
    char *second = config_test_print(again, false);
    assert_string_equal(first, second);
    snapshot_unref(snapshot);
    snapshot_unref(again);
    mem_free(first);
    mem_free(second);
}

static void
expect_prints(const char *text, const char *line)
{
    struct snapshot *snapshot = config_test_load(text);
    char *printed = config_test_print(snapshot, false);
    char *wanted = NULL;
    assert_true(asprintf(&wanted, "\n%s\n", line) > 0);
    if (!strstr(printed, wanted))
        fail_msg("no line '%s' in:\n%s", line, printed);
    free(wanted);
    mem_free(printed);
    snapshot_unref(snapshot);
}

static void
the_least_configuration_prints_every_key(void **state)
{
    (void)state;
    struct snapshot *snapshot = config_test_load(MINIMAL);
    char *printed = config_test_print(snapshot, false);
    for (unsigned i = 0; i < keys_count; i++) {
        char line[80];
        snprintf(line, sizeof(line), "\n%s =", keys_table[i].name);
        if (!strstr(printed, line))
            fail_msg("%s is not printed", keys_table[i].name);
    }
    mem_free(printed);
    snapshot_unref(snapshot);
}

static void
values_are_spelled_as_documented(void **state)
{
    (void)state;
    expect_prints(MINIMAL, "drain_timeout = 25s");
    expect_prints(MINIMAL, "stream_window = 1M");
    expect_prints(MINIMAL, "max_message = 8M");
    expect_prints(MINIMAL, "buffer_budget = auto");
    expect_prints(MINIMAL, "workers = 1");
    expect_prints(MINIMAL, "reset_limit = 2000/10s");
    expect_prints(MINIMAL, "max_header_list = 64K");
    expect_prints(MINIMAL, "unix_mode = 0660");
    expect_prints(MINIMAL, "fast_path = on");
    expect_prints(MINIMAL, "timeout = 0s");
    expect_prints(MINIMAL, "filters =");
    expect_prints(MINIMAL "fast_path = 10%\n", "fast_path = 10%");
    expect_prints(MINIMAL "timeout = 1500ms\n", "timeout = 1500ms");
    expect_prints(MINIMAL "timeout = 120s\n", "timeout = 2m");
    expect_prints("[proxy]\nworkers = auto\n" MINIMAL, "workers = auto");
    expect_prints("[proxy]\nmax_message = 1000\n" MINIMAL, "max_message = 1000");
    expect_prints("[listener a]\naddress = 127.0.0.1:1\naddress = [::1]:2\n",
                  "address = 127.0.0.1:1, [::1]:2");
    expect_prints(LISTENER_MAIN "reset_limit = off\n", "reset_limit = off");
}

static void
what_auto_means_here_stands_in_a_comment(void **state)
{
    (void)state;
    struct snapshot *snapshot = config_test_load("[proxy]\nworkers = auto\n" MINIMAL);
    char *printed = config_test_print(snapshot, false);
    char comment[64];
    snprintf(comment, sizeof(comment), "; auto is %u here\nworkers = auto\n",
             snapshot->proxy.workers);
    assert_non_null(strstr(printed, comment));
    mem_free(printed);
    snapshot_unref(snapshot);
}

static void
reading_it_back_gives_the_same(void **state)
{
    (void)state;
    expect_round_trip(MINIMAL);
    expect_round_trip(
        "[proxy]\nworkers = auto\nadmin = unix:/tmp/a.sock\nprobe = 0.0.0.0:9\nlog = ./x.log\n"
        "log_format = json\nbuffer_budget = 3M\nmax_message = 3000\nmerge_writes = off\n" MINIMAL);
    expect_round_trip(
        LISTENER_MAIN
        "[upstream u]\nendpoints = a:1, [::1]:2\nendpoints = unix:/x\ntransport = http1\n"
        "max_connections = 3\nlb_policy = round_robin\nconnect_timeout = 1500us\n"
        "[filter lim]\ntype = limit\nrate = 100/1s\nlabel = a, b\nlabel = c\n"
        "[route r]\nmatch = /a.B/C, *\nmatch_header = x: 1, 2\nmatch_header = y\n"
        "match_authority = *.x.org\nlistener = main\nupstream = u\nfast_path = 0.05%\n"
        "set_header = a: b;c #d\nset_header = e:\nfilters = lim\nset_group = g h\n");
    expect_round_trip("[proxy]\nmax_message = 64K\n" MINIMAL);
}

static void
the_environment_is_printed_as_what_it_gave(void **state)
{
    (void)state;
    setenv("TEST_HOST", "127.0.0.9", 1);
    expect_prints("[listener a]\naddress = ${TEST_HOST}:1\n", "address = 127.0.0.9:1");
}

/* One line may not be longer than what reads back. */
static void
long_lists_go_over_several_lines(void **state)
{
    struct strbuf text = STRBUF_INIT;
    (void)state;
    strbuf_add_str(&text, LISTENER_MAIN "[upstream u]\n");
    for (unsigned i = 1; i <= 6000; i++)
        strbuf_addf(&text, "endpoints = host-%u.example.com:20000\n", i);
    struct snapshot *snapshot = config_test_load(text.data);
    char *printed = config_test_print(snapshot, false);
    struct snapshot *again = config_test_load(printed);
    assert_int_equal(again->upstreams[0].endpoint_count, 6000);
    expect_text(again->upstreams[0].endpoints[5999], "host-6000.example.com:20000");
    snapshot_unref(again);
    snapshot_unref(snapshot);
    mem_free(printed);
    strbuf_fini(&text);
}

static void
secrets_are_hidden_where_asked(void **state)
{
    (void)state;
    struct snapshot *snapshot =
        config_test_load(MINIMAL "set_header = authorization: Bearer s3cret\n");
    char *hidden = config_test_print(snapshot, true), *shown = config_test_print(snapshot, false);
    assert_null(strstr(hidden, "s3cret"));
    assert_non_null(strstr(hidden, "set_header = authorization: (hidden)\n"));
    assert_non_null(strstr(shown, "set_header = authorization: Bearer s3cret\n"));
    assert_true(text_eq(snapshot->printed, text_of(hidden)));
    mem_free(hidden);
    mem_free(shown);
    snapshot_unref(snapshot);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_least_configuration_prints_every_key),
        cmocka_unit_test(values_are_spelled_as_documented),
        cmocka_unit_test(what_auto_means_here_stands_in_a_comment),
        cmocka_unit_test(reading_it_back_gives_the_same),
        cmocka_unit_test(the_environment_is_printed_as_what_it_gave),
        cmocka_unit_test(long_lists_go_over_several_lines),
        cmocka_unit_test(secrets_are_hidden_where_asked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
