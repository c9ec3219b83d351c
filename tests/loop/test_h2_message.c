/* h2_message: which header blocks and bodies are well-formed, by RFC 9113 sections 8.1 to 8.3. */
#include "h2_lab.h"

#include "proxy/net/h2_message.h"

enum { MOST_FIELDS = 8 };

struct block_case {
    const char *what;
    const char *fields[2 * MOST_FIELDS + 1]; /* name, value, …, NULL */
};

/* Whether message takes these fields, and after a head says that it is complete. */
static bool
takes(struct h2_message *message, enum h2_message_block block, const char *const *fields)
{
    for (; *fields; fields += 2) {
        struct h2_message_field field = {.name = text_of(fields[0]), .value = text_of(fields[1])};
        field.class = header_class_of(field.name);
        if (!h2_message_take(message, block, &field))
            return false;
    }
    return block == H2_MESSAGE_REQUEST_TRAILERS || block == H2_MESSAGE_RESPONSE_TRAILERS ||
           h2_message_head(message, block);
}

static void
expect(enum h2_message_block block, const struct block_case *cases, bool good)
{
    for (; cases->what; cases++) {
        struct h2_message message = {0};
        if (takes(&message, block, cases->fields) != good)
            fail_msg("%s", cases->what);
    }
}

#define TARGET ":method", "POST", ":scheme", "http", ":path", "/a.B/C"
#define REQUEST TARGET, ":authority", "here:80"

static void
requests_that_are_well_formed(void **state)
{
    static const struct block_case cases[] = {
        {"the usual", {REQUEST, "te", "trailers", "content-type", "application/grpc"}},
        {"te in capitals", {REQUEST, "te", "Trailers"}},
        {"host for authority", {TARGET, "host", "here"}},
        {"host beside authority", {REQUEST, "host", "elsewhere"}},
        {"IPv6 authority", {TARGET, ":authority", "[::1]:80"}},
        {"a scheme of its own",
         {":method", "POST", ":scheme", "a+b.c-1", ":path", "/", "host", "h"}},
        {"an empty value", {REQUEST, "x-a", ""}},
        {"bytes over 127", {REQUEST, "x-a", "\xc3\xa9"}},
        {"a tab inside", {REQUEST, "x-a", "a\tb"}},
        {"CONNECT", {":method", "CONNECT", ":authority", "here:80"}},
        {"OPTIONS *", {":method", "OPTIONS", ":scheme", "http", ":path", "*", "host", "h"}},
        {NULL, {NULL}},
    };
    (void)state;
    expect(H2_MESSAGE_REQUEST, cases, true);
}

static void
requests_that_are_malformed(void **state)
{
    static const struct block_case cases[] = {
        {"nothing", {NULL}},
        {"no method", {":scheme", "http", ":path", "/", ":authority", "h"}},
        {"no scheme", {":method", "POST", ":path", "/", ":authority", "h"}},
        {"no path", {":method", "POST", ":scheme", "http", ":authority", "h"}},
        {"neither authority nor host", {TARGET, "x-a", "1"}},
        {"an empty path", {":method", "POST", ":scheme", "http", ":path", "", ":authority", "h"}},
        {"a path without /",
         {":method", "POST", ":scheme", "http", ":path", "a", ":authority", "h"}},
        {"a space in the path",
         {":method", "POST", ":scheme", "http", ":path", "/a b", ":authority", "h"}},
        {"* for POST", {":method", "POST", ":scheme", "http", ":path", "*", ":authority", "h"}},
        {"a method with a space",
         {":method", "PO ST", ":scheme", "http", ":path", "/", ":authority", "h"}},
        {"a scheme with a slash",
         {":method", "POST", ":scheme", "http/", ":path", "/", ":authority", "h"}},
        {"a scheme that begins with a digit",
         {":method", "POST", ":scheme", "1a", ":path", "/", ":authority", "h"}},
        {"a slash in the authority", {TARGET, ":authority", "here/there"}},
        {"an empty authority", {TARGET, ":authority", ""}},
        {"a slash in host", {TARGET, "host", "here/there"}},
        {"two methods", {REQUEST, ":method", "POST"}},
        {"two paths", {REQUEST, ":path", "/a.B/C"}},
        {"two hosts", {TARGET, "host", "h", "host", "h"}},
        {"a response's field", {REQUEST, ":status", "200"}},
        {"an unknown pseudo-header field", {REQUEST, ":protocol", "websocket"}},
        {"a pseudo-header field behind a regular one",
         {":method", "POST", ":scheme", "http", "x-a", "1", ":path", "/", ":authority", "h"}},
        {"CONNECT with a path", {":method", "CONNECT", ":authority", "h", ":path", "/"}},
        {"CONNECT without authority", {":method", "CONNECT"}},
        {"a capital", {REQUEST, "x-A", "1"}},
        {"a space in a name", {REQUEST, "x a", "1"}},
        {"an empty name", {REQUEST, "", "1"}},
        {"a space before a value", {REQUEST, "x-a", " 1"}},
        {"a space behind a value", {REQUEST, "user-agent", "me "}},
        {"a line feed in a value", {REQUEST, "x-a", "1\n2"}},
        {"a line feed in grpc-message", {REQUEST, "grpc-message", "1\n2"}},
        {"connection", {REQUEST, "connection", "close"}},
        {"keep-alive", {REQUEST, "keep-alive", "1"}},
        {"proxy-connection", {REQUEST, "proxy-connection", "close"}},
        {"transfer-encoding", {REQUEST, "transfer-encoding", "chunked"}},
        {"upgrade", {REQUEST, "upgrade", "h2c"}},
        {"te that wants more", {REQUEST, "te", "trailers, gzip"}},
        {"a length that is no number", {REQUEST, "content-length", "1a"}},
        {"an empty length", {REQUEST, "content-length", ""}},
        {"a negative length", {REQUEST, "content-length", "-1"}},
        {"a length over 2^63", {REQUEST, "content-length", "9223372036854775808"}},
        {"two lengths", {REQUEST, "content-length", "1", "content-length", "1"}},
        {NULL, {NULL}},
    };
    (void)state;
    expect(H2_MESSAGE_REQUEST, cases, false);
}

static void
responses_that_are_well_formed(void **state)
{
    static const struct block_case cases[] = {
        {"the usual", {":status", "200", "content-type", "application/proto"}},
        {"interim", {":status", "103", "link", "</a>"}},
        {"a raw grpc-message", {":status", "200", "grpc-message", " 100%\nof it "}},
        {"a length", {":status", "200", "content-length", "0"}},
        {NULL, {NULL}},
    };
    (void)state;
    expect(H2_MESSAGE_RESPONSE, cases, true);
}

static void
responses_that_are_malformed(void **state)
{
    static const struct block_case cases[] = {
        {"no status", {"x-a", "1"}},
        {"two digits", {":status", "20"}},
        {"four digits", {":status", "2000"}},
        {"a letter", {":status", "20x"}},
        {"000", {":status", "000"}},
        {"a status under 100", {":status", "099"}},
        {"switching protocols", {":status", "101"}},
        {"two statuses", {":status", "200", ":status", "200"}},
        {"a request's field", {":status", "200", ":path", "/"}},
        {"status behind a regular field", {"x-a", "1", ":status", "200"}},
        {"connection", {":status", "200", "connection", "close"}},
        {"a line feed", {":status", "200", "x-a", "1\r\n2"}},
        {NULL, {NULL}},
    };
    (void)state;
    expect(H2_MESSAGE_RESPONSE, cases, false);
}

static void
trailers_have_no_pseudo_header_fields(void **state)
{
    static const struct block_case good[] = {
        {"the usual", {"grpc-status", "0", "x-a", "1"}},
        {NULL, {NULL}},
    };
    static const struct block_case bad[] = {
        {"a status", {":status", "200"}},
        {"a path", {":path", "/"}},
        {"a capital", {"X-a", "1"}},
        {"connection", {"connection", "close"}},
        {NULL, {NULL}},
    };
    static const struct block_case raw[] = {
        {"a raw message", {"grpc-message", "1\n2"}},
        {NULL, {NULL}},
    };
    (void)state;
    expect(H2_MESSAGE_REQUEST_TRAILERS, good, true);
    expect(H2_MESSAGE_RESPONSE_TRAILERS, good, true);
    expect(H2_MESSAGE_REQUEST_TRAILERS, bad, false);
    expect(H2_MESSAGE_RESPONSE_TRAILERS, bad, false);
    expect(H2_MESSAGE_REQUEST_TRAILERS, raw, false);
    expect(H2_MESSAGE_RESPONSE_TRAILERS, raw, true); /* dubbo-java's */
}

static void
bodies_are_as_long_as_their_length_says(void **state)
{
    const char *const head[] = {":status", "200", "content-length", "10", NULL};
    struct h2_message message = {0}, none = {0};
    (void)state;
    assert_true(takes(&message, H2_MESSAGE_RESPONSE, head));
    assert_false(h2_message_whole(&message));
    assert_true(h2_message_data(&message, 9));
    assert_false(h2_message_whole(&message));
    assert_true(h2_message_data(&message, 1));
    assert_true(h2_message_whole(&message));
    assert_false(h2_message_data(&message, 1));
    assert_true(h2_message_data(&none, 1 << 30)); /* no length, any body */
    assert_true(h2_message_whole(&none));
}

static void
replies_without_content_have_none(void **state)
{
    static const char *const heads[][5] = {
        {":status", "204", NULL},
        {":status", "304", "content-length", "10", NULL},
    };
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct h2_message message = {0};
        assert_true(takes(&message, H2_MESSAGE_RESPONSE, heads[i]));
        assert_true(h2_message_whole(&message));
        assert_false(h2_message_data(&message, 1));
    }
}

static void
a_head_may_follow_an_interim_one(void **state)
{
    const char *const interim[] = {":status", "103", "x-a", "1", "content-length", "5", NULL};
    const char *const head[] = {":status", "200", "content-length", "2", NULL};
    struct h2_message message = {0};
    (void)state;
    assert_true(takes(&message, H2_MESSAGE_RESPONSE, interim));
    h2_message_interim(&message);
    assert_true(takes(&message, H2_MESSAGE_RESPONSE, head));
    assert_int_equal(message.length, 2);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_that_are_well_formed),
        cmocka_unit_test(requests_that_are_malformed),
        cmocka_unit_test(responses_that_are_well_formed),
        cmocka_unit_test(responses_that_are_malformed),
        cmocka_unit_test(trailers_have_no_pseudo_header_fields),
        cmocka_unit_test(bodies_are_as_long_as_their_length_says),
        cmocka_unit_test(replies_without_content_have_none),
        cmocka_unit_test(a_head_may_follow_an_interim_one),
    };
    return cmocka_run_group_tests_name("h2_message", tests, NULL, NULL);
}
