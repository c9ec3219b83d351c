/* header_class: reserved names, prefixes, what a name and a value may be made of. */
#include "wire_test.h"

#include "proxy/wire/header_class.h"

static const struct {
    const char *name;
    enum header_class class;
} names[] = {
    {"connection", HEADER_HOP},
    {"keep-alive", HEADER_HOP},
    {"proxy-connection", HEADER_HOP},
    {"transfer-encoding", HEADER_HOP},
    {"upgrade", HEADER_HOP},
    {"te", HEADER_TE},
    {"host", HEADER_HOST},
    {"content-type", HEADER_CONTENT_TYPE},
    {"content-length", HEADER_CONTENT_LENGTH},
    {"content-encoding", HEADER_CONTENT_ENCODING},
    {"accept-encoding", HEADER_ACCEPT_ENCODING},
    {"expect", HEADER_EXPECT},
    {"trailer", HEADER_TRAILER},
    {"grpc-timeout", HEADER_GRPC_TIMEOUT},
    {"grpc-encoding", HEADER_GRPC_ENCODING},
    {"grpc-accept-encoding", HEADER_GRPC_ACCEPT_ENCODING},
    {"grpc-status", HEADER_GRPC_STATUS},
    {"grpc-message", HEADER_GRPC_MESSAGE},
    {"grpc-status-details-bin", HEADER_GRPC_STATUS_DETAILS},
    {"grpc-foo", HEADER_GRPC_OTHER},
    {"grpc-trace-bin", HEADER_GRPC_OTHER},
    {"grpc-tags-bin", HEADER_GRPC_OTHER},
    {"grpc-previous-rpc-attempts", HEADER_GRPC_OTHER},
    {"grpc-", HEADER_GRPC_OTHER},
    {"triple-protocol-version", HEADER_TRIPLE_VERSION},
    {"triple-timeout-ms", HEADER_TRIPLE_TIMEOUT},
    {"connect-protocol-version", HEADER_CONNECT_VERSION},
    {"connect-timeout-ms", HEADER_CONNECT_TIMEOUT},
    {"tri-service-group", HEADER_TRI_SERVICE_GROUP},
    {"tri-service-version", HEADER_TRI_SERVICE_VERSION},
    {"tri-status-code", HEADER_TRI_STATUS_CODE},
    {"trailer-x-cost", HEADER_TRAILER_PREFIXED},
    {"trailer-a", HEADER_TRAILER_PREFIXED},
    {"trailer-grpc-status", HEADER_TRAILER_PREFIXED},
    {"trailer-", HEADER_TRAILER_EMPTY},
    {"accept", HEADER_ACCEPT},
    {"user-agent", HEADER_USER_AGENT},
    {"alt-svc", HEADER_DATE_SERVER_NOISE},
    {"accept-post", HEADER_DATE_SERVER_NOISE},
    {"date", HEADER_DATE_SERVER_NOISE},
    {"server", HEADER_DATE_SERVER_NOISE},
    {"allow", HEADER_DATE_SERVER_NOISE},
    {":method", HEADER_METHOD},
    {":scheme", HEADER_SCHEME},
    {":path", HEADER_PATH},
    {":authority", HEADER_AUTHORITY},
    {":status", HEADER_STATUS},
    {":protocol", HEADER_PSEUDO_OTHER},
    {":", HEADER_PSEUDO_OTHER},
    {"trailers-x", HEADER_CUSTOM},
    {"trailers", HEADER_CUSTOM},
    {"x-att", HEADER_CUSTOM},
    {"authorization", HEADER_CUSTOM},
    {"traceparent", HEADER_CUSTOM},
    {"cookie", HEADER_CUSTOM},
    {"tri-consumer-appname", HEADER_CUSTOM},
    {"grpc", HEADER_CUSTOM},
    {"xgrpc-status", HEADER_CUSTOM},
    {"accept-language", HEADER_CUSTOM},
    {"t", HEADER_CUSTOM},
    {"", HEADER_CUSTOM},
    {"a-metadata-name-of-more-than-twenty-four-bytes", HEADER_CUSTOM},
};

static void
every_reserved_name_has_its_class_and_others_are_custom(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(names); i++)
        if (header_class_of(text_of(names[i].name)) != names[i].class)
            fail_msg("%s", names[i].name);
}

/* One changed byte in a reserved name makes it custom (or merely reserved by its prefix). */
static void
near_misses_of_reserved_names_are_not_taken_for_them(void **state)
{
    char near[64];

    (void)state;
    for (size_t i = 0; i < COUNT(names); i++) {
        size_t len = strlen(names[i].name);

        if (names[i].class == HEADER_CUSTOM)
            continue;
        memcpy(near, names[i].name, len);
        near[0] = 'z';
        assert_int_equal(header_class_of(text_make(near, len)), HEADER_CUSTOM);
    }
}

static void
field_names_are_lower_case_tokens(void **state)
{
    static const char *const good[] = {"a", "x-att",          "x_y.z", "grpc-status-details-bin",
                                       "1", "!#$%&'*+-.^_`|~"};
    static const char *const bad[] = {"",    "X-A",      "a b",  "a:",  ":path", "a\n",
                                      "a\t", "\xc3\xa9", "a(b)", "a/b", "a\"",   "{a}"};

    (void)state;
    for (size_t i = 0; i < COUNT(good); i++)
        assert_true(header_name_valid(text_of(good[i])));
    for (size_t i = 0; i < COUNT(bad); i++)
        assert_false(header_name_valid(text_of(bad[i])));
    assert_false(header_name_valid(TEXT("a\0b")));
}

static void
field_values_have_no_line_ends_or_control_bytes(void **state)
{
    (void)state;
    for (int byte = 0; byte < 256; byte++) {
        char value[3] = {'a', (char)byte, 'b'};
        bool legal = byte == '\t' || (byte >= 0x20 && byte != 0x7f);

        assert_int_equal(header_value_valid(text_make(value, 3)), legal);
    }
    assert_true(header_value_valid(TEXT_NONE));
}

/* Values are read eight bytes at a time: every byte at every place of every length. */
static void
an_illegal_byte_is_found_anywhere_in_a_value(void **state)
{
    enum { LONGEST = 27 };
    char value[LONGEST];

    (void)state;
    for (size_t len = 1; len <= LONGEST; len++)
        for (size_t at = 0; at < len; at++)
            for (int byte = 0; byte < 256; byte++) {
                bool legal = byte == '\t' || (byte >= 0x20 && byte != 0x7f);

                memset(value, 'x', sizeof(value));
                value[(at + 5) % len] = '\t';
                value[(at + 11) % len] = (char)0xff;
                value[at] = (char)byte;
                if (header_value_valid(text_make(value, len)) != legal)
                    fail_msg("byte %d at %zu of %zu", byte, at, len);
            }
}

static void
visible_text_has_neither_space_nor_control_byte_anywhere(void **state)
{
    enum { LONGEST = 19 };
    char text[LONGEST];

    (void)state;
    for (size_t len = 1; len <= LONGEST; len++)
        for (size_t at = 0; at < len; at++)
            for (int byte = 0; byte < 256; byte++) {
                memset(text, '~', sizeof(text));
                text[at] = (char)byte;
                if (header_visible(text_make(text, len)) != (byte > 0x20 && byte != 0x7f))
                    fail_msg("byte %d at %zu of %zu", byte, at, len);
            }
}

static void
tokens_may_have_capitals(void **state)
{
    (void)state;
    assert_true(header_token_valid(TEXT("POST")));
    assert_true(header_token_valid(TEXT("M-SEARCH")));
    assert_false(header_token_valid(TEXT("")));
    assert_false(header_token_valid(TEXT("PO ST")));
    assert_false(header_token_valid(TEXT("P\xc3\xb6ST")));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_reserved_name_has_its_class_and_others_are_custom),
        TEST(near_misses_of_reserved_names_are_not_taken_for_them),
        TEST(field_names_are_lower_case_tokens),
        TEST(field_values_have_no_line_ends_or_control_bytes),
        TEST(an_illegal_byte_is_found_anywhere_in_a_value),
        TEST(visible_text_has_neither_space_nor_control_byte_anywhere),
        TEST(tokens_may_have_capitals),
    };

    return cmocka_run_group_tests_name("header_class", tests, NULL, NULL);
}
