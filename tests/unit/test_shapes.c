/* What addresses, header names, matches and authorities must look like. */
#include "tests/unit/unit.h"

#include "proxy/config/shapes.h"

static void
expect_all(const char *(*shape)(struct text), const char *const *right, const char *const *wrong)
{
    for (; *right; right++)
        if (shape(text_of(*right)))
            fail_msg("'%s' %s", *right, shape(text_of(*right)));
    for (; *wrong; wrong++)
        if (!shape(text_of(*wrong)))
            fail_msg("'%s' was taken", *wrong);
}

static void
listen_addresses(void **state)
{
    static const char *const RIGHT[] = {"127.0.0.1:17000", "0.0.0.0:0",        "[::1]:17000",
                                        "[::]:65535",      "unix:/run/t.sock", NULL};
    static const char *const WRONG[] = {"localhost:17000",
                                        ":17000",
                                        "17000",
                                        "127.0.0.1",
                                        "127.0.0.1:65536",
                                        "127.0.0.1:080",
                                        "127.0.0.1:-1",
                                        "127.0.0.1:1e3",
                                        "::1:17000",
                                        "[::1]17000",
                                        "unix:",
                                        "127.0.0.1: 80",
                                        "1.2.3:80",
                                        "127.0.0.1:80 ",
                                        "",
                                        NULL};
    (void)state;
    expect_all(shapes_listen, RIGHT, WRONG);
    assert_non_null(strstr(shapes_listen(TEXT("localhost:1")), "IP address"));
    assert_non_null(strstr(shapes_listen(TEXT(":1")), "0.0.0.0:PORT"));
}

static void
endpoints_may_be_names_and_need_a_port(void **state)
{
    static const char *const RIGHT[] = {"127.0.0.1:20000",           "greeter:20000",
                                        "greet.svc.cluster.local:1", "[fe80::1]:80",
                                        "unix:/run/p.sock",          NULL};
    static const char *const WRONG[] = {"greeter",     "greeter:0", "greeter:65536",
                                        "greeter:080", "a:1;b:2",   "http://greeter:80",
                                        "gr eeter:80", NULL};
    (void)state;
    expect_all(shapes_endpoint, RIGHT, WRONG);
}

static void
matches_have_four_forms(void **state)
{
    static const char *const RIGHT[] = {"*",    "/a.b.C/M", "/a.b.C/*", "/a.b.*",
                                        "/a.*", "/C/M",     "/a/b/C/*", NULL};
    static const char *const WRONG[] = {"",       "/",        "a.b.C/M", "/a.b.C/M*", "/a.*.C/*",
                                        "/*",     "/a*",      "**",      "/.*",       "/a/b.*",
                                        "/a b/*", "/a/M?x=1", "//*/",    NULL};
    (void)state;
    expect_all(shapes_match, RIGHT, WRONG);
}

static void
authorities(void **state)
{
    static const char *const RIGHT[] = {"a.example.com", "a:8080", "*.example.com",
                                        "[::1]:80",      "[::1]",  NULL};
    static const char *const WRONG[] = {"*", "*.", "a.*.com", "http://a", "a, b", "a b", NULL};
    (void)state;
    expect_all(shapes_authority, RIGHT, WRONG);
}

static void
headers_that_the_codecs_own_cannot_be_set(void **state)
{
    static const char *const RIGHT[] = {
        "authorization",  "x-a", "user-agent", "traceparent", "tri-consumer-appname",
        "grpc-trace-bin", NULL};
    static const char *const WRONG[] = {"content-type",
                                        "content-length",
                                        "te",
                                        "host",
                                        "connection",
                                        "grpc-timeout",
                                        "triple-timeout-ms",
                                        "tri-service-group",
                                        "tri-service-version",
                                        NULL};
    (void)state;
    expect_all(shapes_settable, RIGHT, WRONG);
    assert_non_null(strstr(shapes_settable(TEXT("tri-service-group")), "set_group"));
}

static void
field_names_are_lower_case_tokens(void **state)
{
    (void)state;
    assert_true(shapes_field_name(TEXT("x-a_b.c")));
    assert_false(shapes_field_name(TEXT("X-A")));
    assert_false(shapes_field_name(TEXT(":path")));
    assert_false(shapes_field_name(TEXT("a b")));
    assert_false(shapes_field_name(TEXT("")));
    assert_false(shapes_field_name(text_make("a\0b", 3)));
    assert_true(shapes_field_value(TEXT("a\tb~ c")));
    assert_true(shapes_field_value(TEXT("")));
    assert_false(shapes_field_value(TEXT("a\nb")));
    assert_false(shapes_field_value(TEXT("gr\xc3\xbc")));
}

static void
loopback_and_free_ports(void **state)
{
    (void)state;
    assert_true(shapes_is_loopback(TEXT("127.0.0.1:1")));
    assert_true(shapes_is_loopback(TEXT("127.9.9.9:1")));
    assert_true(shapes_is_loopback(TEXT("[::1]:1")));
    assert_true(shapes_is_loopback(TEXT("unix:/x")));
    assert_false(shapes_is_loopback(TEXT("0.0.0.0:1")));
    assert_false(shapes_is_loopback(TEXT("[::]:1")));
    assert_true(shapes_port_zero(TEXT("127.0.0.1:0")));
    assert_false(shapes_port_zero(TEXT("127.0.0.1:10")));
    assert_false(shapes_port_zero(TEXT("unix:/x:0")));
}

static void
services_have_no_slash(void **state)
{
    static const char *const RIGHT[] = {"", "org.example.GreetService", NULL};
    static const char *const WRONG[] = {"/a.B", "a.B/", "a b", "a?b", "a.*", NULL};
    (void)state;
    expect_all(shapes_service, RIGHT, WRONG);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(listen_addresses),
        cmocka_unit_test(endpoints_may_be_names_and_need_a_port),
        cmocka_unit_test(matches_have_four_forms),
        cmocka_unit_test(authorities),
        cmocka_unit_test(headers_that_the_codecs_own_cannot_be_set),
        cmocka_unit_test(field_names_are_lower_case_tokens),
        cmocka_unit_test(loopback_and_free_ports),
        cmocka_unit_test(services_have_no_slash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
