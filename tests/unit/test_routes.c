/* Which route takes a call: the most specific match, then more conditions, then the first in the
 * file. */
#include "tests/unit/config_test.h"

#include "proxy/base/clock.h"
#include "proxy/call/routes.h"

static struct snapshot *snapshot;

static void
load(const char *routes)
{
    struct strbuf text = STRBUF_INIT;
    strbuf_add_str(&text, LISTENER_MAIN
                   "[listener other]\naddress = 127.0.0.1:5\n[upstream u]\nendpoints = a:1\n");
    /* "NAME: keys\n" per route, keys separated by '|'. */
    struct text rest = text_of(routes), line;
    while (text_next(&rest, '\n', &line)) {
        ptrdiff_t colon = text_find(line, ':', 0);
        struct text keys = text_from(line, (size_t)colon + 1), key;
        strbuf_addf(&text, "[route %.*s]\nupstream = u\n", (int)colon, line.ptr);
        while (text_next(&keys, '|', &key))
            strbuf_addf(&text, "%.*s\n", TEXT_ARGS(key));
    }
    snapshot = config_test_load(text.data);
    strbuf_fini(&text);
}

static void
unload(void)
{
    snapshot_unref(snapshot);
    snapshot = NULL;
}

static void
expect_query(struct route_query query, const char *name, int line)
{
    const struct route *route = routes_find(snapshot, &query);
    struct text found = route ? route->name : TEXT("(none)");
    expect_text_at(found, name, __FILE__, line);
}

#define expect_route(path_literal, name)                                                           \
    expect_query((struct route_query){.path = TEXT(path_literal)}, name, __LINE__)

static void
the_most_specific_match_wins_whatever_the_order(void **state)
{
    (void)state;
    load("all: match = *\npkg: match = /a.*\nsub: match = /a.b.*\nservice: match = "
         "/a.b.C/*\nexact: match = /a.b.C/M\n");
    expect_route("/a.b.C/M", "exact");
    expect_route("/a.b.C/N", "service");
    expect_route("/a.b.D/M", "sub");
    expect_route("/a.b.c.D/M", "sub");
    expect_route("/a.x.D/M", "pkg");
    expect_route("/a.D/M", "pkg");
    expect_route("/b.D/M", "all");
    expect_route("/ab.D/M", "all");
    expect_route("/D/M", "all");
    expect_route("*", "all");
    expect_route("", "all");
    unload();
}

static void
without_a_catch_all_nothing_may_match(void **state)
{
    (void)state;
    load("service: match = /a.B/*\nexact: match = /c.D/E\n");
    expect_route("/a.B/M", "service");
    expect_route("/a.B/", "service");
    expect_route("/a.B", "(none)");
    expect_route("/a.BB/M", "(none)");
    expect_route("/c.D/E", "exact");
    expect_route("/c.D/e", "(none)");
    expect_route("/c.D/E/", "(none)");
    expect_route("", "(none)");
    expect_route("/", "(none)");
    unload();
}

static void
a_query_string_is_ignored(void **state)
{
    (void)state;
    load("exact: match = /a.B/M\nall: match = *\n");
    expect_route("/a.B/M?x=/a.C/N", "exact");
    expect_route("/a.B/M?", "exact");
    unload();
}

static void
dots_of_the_method_are_no_package(void **state)
{
    (void)state;
    load("pkg: match = /a.*\nall: match = *\n");
    expect_route("/Svc/a.b", "all");
    expect_route("/a/b.c", "all");
    expect_route("/a.b", "all"); /* no service at all */
    unload();
}

static void
an_exact_path_that_looks_like_a_service_is_itself(void **state)
{
    (void)state;
    load("exact: match = /a.B/\nall: match = *\n");
    expect_route("/a.B/", "exact");
    expect_route("/a.B/M", "all");
    unload();
}

static void
a_service_below_a_prefix_path_is_its_last_part(void **state)
{
    (void)state;
    load("deep: match = /v1/a.B/*\nall: match = *\n");
    expect_route("/v1/a.B/M", "deep");
    expect_route("/v1/a.C/M", "all");
    unload();
}

static void
several_matches_lead_to_one_route(void **state)
{
    (void)state;
    load("r: match = /a.B/M, /c.D/*|match = /e.*\n");
    expect_route("/a.B/M", "r");
    expect_route("/c.D/X", "r");
    expect_route("/e.f.G/X", "r");
    expect_route("/a.B/N", "(none)");
    unload();
}

static void
more_conditions_win_then_the_file_s_order(void **state)
{
    struct arena arena;
    struct fields fields;
    (void)state;
    load("plain: match = *\nlistener: match = *|listener = main\n"
         "both: match = *|listener = main|match_header = x-env: blue\n"
         "header: match = *|match_header = x-env: blue\nauthority: match = *|match_authority = "
         "a.org\n");
    arena_init(&arena, NULL, 0);
    fields_init(&fields, &arena);
    fields_add(&fields, TEXT("x-env"), TEXT("green"), 0);
    fields_add(&fields, TEXT("x-env"), TEXT("blue"), 0);
    struct route_query query = {
        .path = TEXT("/a.B/C"), .listener = TEXT("main"), .fields = &fields};
    expect_query(query, "both", __LINE__);
    query.listener = TEXT("other");
    expect_query(query, "header", __LINE__);
    query.authority = TEXT("A.ORG:8080");
    expect_query(query, "header",
                 __LINE__); /* as many conditions as "authority", and first in the file */
    query.fields = NULL;
    expect_query(query, "authority", __LINE__);
    query.authority = TEXT("b.org");
    expect_query(query, "plain", __LINE__);
    query.listener = TEXT("main");
    expect_query(query, "listener", __LINE__);
    arena_fini(&arena);
    unload();
}

static void
a_specific_route_whose_conditions_fail_leaves_the_call_to_others(void **state)
{
    (void)state;
    load("all: match = *\nexact: match = /a.B/C|match_header = x-env: blue\nservice: match = "
         "/a.B/*|listener = other\n"
         "pkg: match = /a.*\n");
    expect_route("/a.B/C", "pkg");
    expect_query((struct route_query){.path = TEXT("/a.B/C"), .listener = TEXT("other")}, "service",
                 __LINE__);
    unload();
}

static void
a_header_s_presence_may_be_enough(void **state)
{
    struct arena arena;
    struct fields fields;
    (void)state;
    load("any: match = *|match_header = X-Debug\n");
    arena_init(&arena, NULL, 0);
    fields_init(&fields, &arena);
    struct route_query query = {.path = TEXT("/a.B/C"), .fields = &fields};
    expect_query(query, "(none)", __LINE__);
    fields_add(&fields, TEXT("x-debug"), TEXT(""), 0);
    expect_query(query, "any", __LINE__);
    arena_fini(&arena);
    unload();
}

static void
expect_authority(const char *authority, const char *name, int line)
{
    expect_query((struct route_query){.path = TEXT("/a.B/C"), .authority = text_of(authority)},
                 name, line);
}

static void
authorities_with_and_without_ports_and_stars(void **state)
{
    (void)state;
    load("port: match = *|match_authority = a.org:81\nhost: match = *|match_authority = a.org\n"
         "wild: match = *|match_authority = *.b.org\nsix: match = *|match_authority = [::1]\n");
    expect_authority("a.org:81", "port", __LINE__);
    expect_authority("a.org:82", "host", __LINE__);
    expect_authority("a.org", "host", __LINE__);
    expect_authority("x.a.org", "(none)", __LINE__);
    expect_authority("x.b.org:9", "wild", __LINE__);
    expect_authority("x.y.B.org", "wild", __LINE__);
    expect_authority("b.org", "(none)", __LINE__);
    expect_authority("xb.org", "(none)", __LINE__);
    expect_authority("[::1]:80", "six", __LINE__);
    expect_authority("[::1]", "six", __LINE__);
    expect_authority("[::1", "(none)", __LINE__);
    expect_authority("", "(none)", __LINE__);
    unload();
}

/* Every route is found among thousands, and no other. */
static void
many_routes_are_all_found(void **state)
{
    enum { COUNT = 5000 };
    struct strbuf text = STRBUF_INIT;
    char path[64], name[32];
    (void)state;
    for (unsigned i = 0; i < COUNT; i++)
        strbuf_addf(&text, "r%u: match = /p%u.S/%s\n", i, i, i % 2 ? "*" : "M");
    load(text.data);
    for (unsigned i = 0; i < COUNT; i++) {
        snprintf(path, sizeof(path), "/p%u.S/M", i);
        snprintf(name, sizeof(name), "r%u", i);
        expect_query((struct route_query){.path = text_of(path)}, name, __LINE__);
        snprintf(path, sizeof(path), "/p%u.S/N", i);
        expect_query((struct route_query){.path = text_of(path)}, i % 2 ? name : "(none)",
                     __LINE__);
    }
    unload();
    strbuf_fini(&text);
}

/* A path of nothing but dots must not cost a look-up of its whole length per dot. */
static void
a_path_full_of_dots_is_cheap(void **state)
{
    enum { LEN = 60000, ROUNDS = 100 };
    static char path[LEN];
    (void)state;
    load("pkg: match = /a.*|match = /a.b.*\n");
    memset(path, '.', LEN);
    path[0] = '/';
    path[LEN - 2] = '/';
    uint64_t start = clock_now_ns();
    for (unsigned i = 0; i < ROUNDS; i++)
        expect_query((struct route_query){.path = text_make(path, LEN)}, "(none)", __LINE__);
    /* One pass: far below a second even under the sanitizers; quadratic would be minutes. */
    assert_true(clock_now_ns() - start < 10 * NS_PER_S);
    unload();
}

static void
a_snapshot_without_routes_takes_nothing(void **state)
{
    (void)state;
    snapshot = config_test_load(LISTENER_MAIN);
    expect_route("/a.B/C", "(none)");
    unload();
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_most_specific_match_wins_whatever_the_order),
        cmocka_unit_test(without_a_catch_all_nothing_may_match),
        cmocka_unit_test(a_query_string_is_ignored),
        cmocka_unit_test(dots_of_the_method_are_no_package),
        cmocka_unit_test(an_exact_path_that_looks_like_a_service_is_itself),
        cmocka_unit_test(a_service_below_a_prefix_path_is_its_last_part),
        cmocka_unit_test(several_matches_lead_to_one_route),
        cmocka_unit_test(more_conditions_win_then_the_file_s_order),
        cmocka_unit_test(a_specific_route_whose_conditions_fail_leaves_the_call_to_others),
        cmocka_unit_test(a_header_s_presence_may_be_enough),
        cmocka_unit_test(authorities_with_and_without_ports_and_stars),
        cmocka_unit_test(many_routes_are_all_found),
        cmocka_unit_test(a_path_full_of_dots_is_cheap),
        cmocka_unit_test(a_snapshot_without_routes_takes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
