/* Addresses from and to text. */
#include "loop_fixture.h"

static void
texts_are_told_apart(void **state)
{
    static const struct {
        const char *text;
        bool allow_zero;
        enum address_kind kind;
        const char *host;
        uint16_t port;
    } cases[] = {
        {"127.0.0.1:80", false, ADDRESS_IP, "127.0.0.1", 80},
        {"0.0.0.0:0", true, ADDRESS_IP, "0.0.0.0", 0},
        {"0.0.0.0:0", false, ADDRESS_BAD, NULL, 0},
        {"[::1]:65535", false, ADDRESS_IP, "::1", 65535},
        {"[::1]", false, ADDRESS_BAD, NULL, 0},
        {"[::1]x80", false, ADDRESS_BAD, NULL, 0},
        {"[127.0.0.1]:80", false, ADDRESS_BAD, NULL, 0},
        {"[]:80", false, ADDRESS_BAD, NULL, 0},
        {"::1:80", false, ADDRESS_BAD, NULL, 0},
        {"localhost:1", false, ADDRESS_NAME, "localhost", 1},
        {"my_svc.ns.svc.cluster.local:20000", false, ADDRESS_NAME, "my_svc.ns.svc.cluster.local",
         20000},
        {"256.0.0.1:80", false, ADDRESS_BAD, NULL, 0},
        {"1.2.3:80", false, ADDRESS_BAD, NULL, 0},
        {"a..b:80", false, ADDRESS_BAD, NULL, 0},
        {"-a:80", false, ADDRESS_BAD, NULL, 0},
        {"a b:80", false, ADDRESS_BAD, NULL, 0},
        {"host", false, ADDRESS_BAD, NULL, 0},
        {"host:", false, ADDRESS_BAD, NULL, 0},
        {":80", false, ADDRESS_BAD, NULL, 0},
        {"host:65536", false, ADDRESS_BAD, NULL, 0},
        {"host:-1", false, ADDRESS_BAD, NULL, 0},
        {"host:80x", false, ADDRESS_BAD, NULL, 0},
        {"", false, ADDRESS_BAD, NULL, 0},
        {"unix:/run/s", false, ADDRESS_UNIX, "/run/s", 0},
        {"unix:", false, ADDRESS_BAD, NULL, 0},
    };
    (void)state;
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct text host = TEXT_NONE;
        uint16_t port = 1;
        enum address_kind kind =
            address_parse(text_of(cases[i].text), cases[i].allow_zero, &host, &port);
        if (kind != cases[i].kind)
            fail_msg("%s: kind %d", cases[i].text, kind);
        if (kind == ADDRESS_BAD)
            continue;
        if (!text_eq(host, text_of(cases[i].host)) || port != cases[i].port)
            fail_msg("%s: %.*s %u", cases[i].text, TEXT_ARGS(host), port);
    }
}

static void
addresses_survive_the_way_to_text_and_back(void **state)
{
    static const char *texts[] = {"127.0.0.1:20000", "[::1]:20000", "[2001:db8::5]:1",
                                  "unix:/run/x.sock"};
    (void)state;
    for (unsigned i = 0; i < 4; i++) {
        struct address address;
        char out[128];
        assert_int_equal(address_from_text(text_of(texts[i]), false, &address), 0);
        assert_string_equal(address_format((struct sockaddr *)&address.storage, out, sizeof out),
                            texts[i]);
    }
}

static void
names_and_too_long_paths_are_no_addresses(void **state)
{
    struct address address;
    char path[5 + 109] = "unix:/";
    (void)state;
    assert_int_equal(address_from_text(TEXT("localhost:80"), false, &address), UV_EINVAL);
    memset(path + 6, 'x', sizeof path - 7);
    path[sizeof path - 1] = 0; /* 108 bytes of path: no room for the NUL */
    assert_int_equal(address_from_text(text_of(path), false, &address), UV_EINVAL);
    path[sizeof path - 2] = 0;
    assert_int_equal(address_from_text(text_of(path), false, &address), 0);
    assert_int_equal(address_from_text(text_make("unix:/a\0b", 9), false, &address), UV_EINVAL);
}

static void
loopback_is_recognised(void **state)
{
    static const struct {
        const char *text;
        bool loopback;
    } cases[] = {{"127.0.0.1:1", true},
                 {"127.9.9.9:1", true},
                 {"128.0.0.1:1", false},
                 {"0.0.0.0:1", false},
                 {"[::1]:1", true},
                 {"[::]:1", false},
                 {"[::ffff:127.0.0.1]:1", true},
                 {"[::ffff:10.0.0.1]:1", false},
                 {"unix:/x", true}};
    (void)state;
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct address address;
        assert_int_equal(address_from_text(text_of(cases[i].text), false, &address), 0);
        if (address_is_loopback(&address) != cases[i].loopback)
            fail_msg("%s", cases[i].text);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_are_told_apart),
        cmocka_unit_test(addresses_survive_the_way_to_text_and_back),
        cmocka_unit_test(names_and_too_long_paths_are_no_addresses),
        cmocka_unit_test(loopback_is_recognised),
    };
    return cmocka_run_group_tests_name("address", tests, NULL, NULL);
}
