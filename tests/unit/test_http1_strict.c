/* http1: what the reader refuses, and with which status a server answers. Each also split at every
 * byte. */
#include "http1_story.h"

#define HOST "Host: h\r\n"
#define POST "POST / HTTP/1.1\r\n" HOST
#define CHUNKED POST "Transfer-Encoding: chunked\r\n\r\n"

static void
assert_all_refused(struct story_case how, const struct text *inputs, size_t count, int status)
{
    for (size_t i = 0; i < count; i++)
        assert_refused(how, inputs[i], status);
}

#define REFUSED(how, status, ...)                                                                  \
    do {                                                                                           \
        const struct text inputs[] = {__VA_ARGS__};                                                \
        assert_all_refused(how, inputs, COUNT(inputs), status);                                    \
    } while (0)

static void
two_lengths_are_refused(void **state)
{
    (void)state;
    REFUSED(request, 400, TEXT(POST "Content-Length: 5\r\nContent-Length: 5\r\n\r\n"),
            TEXT(POST "Content-Length: 5\r\nContent-Length: 6\r\n\r\n"),
            TEXT(POST "Content-Length: 5, 5\r\n\r\n"), TEXT(POST "Content-Length: 5,\r\n\r\n"));
    REFUSED(response, 400,
            TEXT("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n"));
}

static void
lengths_that_are_no_plain_number_are_refused(void **state)
{
    (void)state;
    REFUSED(request, 400, TEXT(POST "Content-Length: -1\r\n\r\n"),
            TEXT(POST "Content-Length: +1\r\n\r\n"), TEXT(POST "Content-Length: 0x10\r\n\r\n"),
            TEXT(POST "Content-Length: 1.0\r\n\r\n"), TEXT(POST "Content-Length:\r\n\r\n"),
            TEXT(POST "Content-Length: 1 2\r\n\r\n"),
            TEXT(POST "Content-Length: 9223372036854775808\r\n\r\n"),
            TEXT(POST "Content-Length: 18446744073709551616\r\n\r\n"),
            TEXT(POST "Content-Length: 5\x0b\r\n\r\n"));
}

static void
a_length_with_a_transfer_coding_is_refused(void **state)
{
    (void)state;
    REFUSED(request, 400, TEXT(POST "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"),
            TEXT(POST "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n"));
    REFUSED(response, 400,
            TEXT("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n"));
}

static void
transfer_codings_other_than_one_chunked_are_refused(void **state)
{
    (void)state;
    REFUSED(request, 501, TEXT(POST "Transfer-Encoding: gzip, chunked\r\n\r\n"),
            TEXT(POST "Transfer-Encoding: chunked, identity\r\n\r\n"),
            TEXT(POST "Transfer-Encoding: identity\r\n\r\n"),
            TEXT(POST "Transfer-Encoding: xchunked\r\n\r\n"),
            TEXT(POST "Transfer-Encoding: chunked;q=1\r\n\r\n"),
            TEXT(POST "Transfer-Encoding: chunked, chunked\r\n\r\n"),
            TEXT(POST "Transfer-Encoding:\r\n\r\n"),
            TEXT(POST "Transfer-Encoding: \"chunked\"\r\n\r\n"));
    REFUSED(request, 400,
            TEXT(POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n"),
            TEXT("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"));
}

static void
spaces_before_a_colon_and_bad_names_are_refused(void **state)
{
    (void)state;
    REFUSED(request, 400, TEXT(POST "Content-Length : 5\r\n\r\n"),
            TEXT(POST "Transfer-Encoding\t: chunked\r\n\r\n"), TEXT(POST ": x\r\n\r\n"),
            TEXT(POST "no colon\r\n\r\n"), TEXT(POST "nocolon\r\n\r\n"),
            TEXT(POST "a(b: c\r\n\r\n"), TEXT(POST "a\0b: c\r\n\r\n"),
            TEXT(POST "\xc3\xa9: c\r\n\r\n"), TEXT(POST ":path: /x\r\n\r\n"));
}

static void
folded_lines_are_refused(void **state)
{
    (void)state;
    REFUSED(request, 400, TEXT(POST "A: b\r\n c\r\n\r\n"), TEXT(POST "A: b\r\n\tc: d\r\n\r\n"),
            TEXT("POST / HTTP/1.1\r\n Host: h\r\n\r\n"), TEXT(POST " \r\n\r\n"));
}

static void
line_ends_other_than_crlf_are_refused(void **state)
{
    (void)state;
    REFUSED(request, 400, TEXT("GET / HTTP/1.1\nHost: h\n\n"),
            TEXT("GET / HTTP/1.1\r\nHost: h\n\r\n"), TEXT("GET / HTTP/1.1\r\nHost: h\r\n\n"),
            TEXT("GET / HTTP/1.1\rHost: h\r\n\r\n"), TEXT(POST "A: b\rc\r\n\r\n"),
            TEXT(POST "A: b\r\r\n\r\n"), TEXT("\nGET / HTTP/1.1\r\n"),
            TEXT("\rGET / HTTP/1.1\r\n\r\n"), TEXT(POST "\r\r\n"));
}

static void
control_bytes_in_values_are_refused(void **state)
{
    (void)state;
    for (int byte = 0; byte < 0x20; byte++) {
        char input[] = POST "A: b?c\r\n\r\n";

        if (byte == '\t' || byte == '\n')
            continue;
        *strchr(input, '?') = (char)byte;
        assert_refused(request, text_make(input, sizeof(input) - 1), 400);
    }
    REFUSED(request, 400, TEXT(POST "A: b\x7f\r\n\r\n"));
}

static void
malformed_request_lines_are_refused(void **state)
{
    (void)state;
    REFUSED(
        request, 400, TEXT("GET  / HTTP/1.1\r\n" HOST "\r\n"),
        TEXT("GET / HTTP/1.1 \r\n" HOST "\r\n"), TEXT("GET /a b HTTP/1.1\r\n" HOST "\r\n"),
        TEXT("GET /\r\n" HOST "\r\n"), TEXT("GET\r\n\r\n"), TEXT(" GET / HTTP/1.1\r\n" HOST "\r\n"),
        TEXT("G\x01T / HTTP/1.1\r\n" HOST "\r\n"), TEXT("GET /\x7f HTTP/1.1\r\n" HOST "\r\n"),
        TEXT("GET /\xc3\xa9 HTTP/1.1\r\n" HOST "\r\n"), TEXT("GET /\t HTTP/1.1\r\n" HOST "\r\n"),
        TEXT("GET / http/1.1\r\n" HOST "\r\n"), TEXT("GET / HTTP/1.1x\r\n" HOST "\r\n"),
        TEXT("GET / HTTP/11\r\n" HOST "\r\n"), TEXT("GET / HTTP/1,1\r\n" HOST "\r\n"),
        TEXT("GET / HTTP/1.x\r\n" HOST "\r\n"), TEXT("GET / \r\n" HOST "\r\n"));
}

static void
other_versions_are_505(void **state)
{
    (void)state;
    REFUSED(request, 505, TEXT("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), TEXT("GET / HTTP/0.9\r\n\r\n"),
            TEXT("GET / HTTP/3.0\r\n\r\n"));
}

static void
what_cannot_be_http_is_refused_at_its_first_byte(void **state)
{
    (void)state;
    REFUSED(request, 400, TEXT("\x16\x03\x01"), TEXT("\0"), TEXT("{"), TEXT("\xff"), TEXT(" "));
    REFUSED(response, 400, TEXT("\x15\x03"), TEXT("\0\0\x12\4"), TEXT("<html>"), TEXT("S"),
            TEXT("h"));
}

static void
requests_need_exactly_one_host(void **state)
{
    (void)state;
    REFUSED(
        request, 400, TEXT("GET / HTTP/1.1\r\n\r\n"), TEXT("GET / HTTP/1.1\r\n" HOST HOST "\r\n"),
        TEXT("GET / HTTP/1.1\r\nHost: a b\r\n\r\n"), TEXT("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n"),
        TEXT("GET / HTTP/1.1\r\nHost: u@h\r\n\r\n"), TEXT("GET / HTTP/1.0\r\n" HOST HOST "\r\n"));
    assert_request(TEXT("GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n"),
                   "GET / 1.1 | host: [::1]:80 > keep END");
}

static void
malformed_status_lines_are_refused(void **state)
{
    (void)state;
    REFUSED(response, 400, TEXT("HTTP/1.1  200 OK\r\n\r\n"), TEXT("HTTP/1.1 20 OK\r\n\r\n"),
            TEXT("HTTP/1.1 2000 OK\r\n\r\n"), TEXT("HTTP/1.1 200OK\r\n\r\n"),
            TEXT("HTTP/1.1 099 x\r\n\r\n"), TEXT("HTTP/1.1 600 x\r\n\r\n"),
            TEXT("HTTP/1.1 2x0 x\r\n\r\n"), TEXT("HTTP/1.1 200 \x01\r\n\r\n"),
            TEXT("HTTP/1.1\r\n\r\n"), TEXT("HTTP/1.1 200 OK\n\n"),
            TEXT("HTTP/1.1 101 Switching Protocols\r\n\r\n"));
    REFUSED(response, 505, TEXT("HTTP/2.0 200 OK\r\n\r\n"));
}

static void
malformed_chunks_are_refused(void **state)
{
    (void)state;
    REFUSED(request, 400, TEXT(CHUNKED "\r\n"), TEXT(CHUNKED "x\r\n"), TEXT(CHUNKED "-1\r\n"),
            TEXT(CHUNKED "+1\r\n"), TEXT(CHUNKED "0x1\r\n"), TEXT(CHUNKED " 1\r\n"),
            TEXT(CHUNKED "1 \r\na\r\n"), TEXT(CHUNKED "1\n"), TEXT(CHUNKED "1 2\r\n"),
            TEXT(CHUNKED "1;\r\n"), TEXT(CHUNKED "1;a\x01\r\n"), TEXT(CHUNKED "1;a\rb\r\n"),
            TEXT(CHUNKED "1000000000000000\r\n"), TEXT(CHUNKED "ffffffffffffffffff\r\n"),
            TEXT(CHUNKED "0000000000000001\r\n"), TEXT(CHUNKED "1\r\nab\r\n"),
            TEXT(CHUNKED "1\r\na\n"), TEXT(CHUNKED "1\r\na\rx"),
            TEXT(CHUNKED "2\r\na\r\n0\r\n\r\n"));
}

static void
long_chunk_lines_are_refused(void **state)
{
    char input[sizeof(CHUNKED) + 300];

    (void)state;
    memset(input, 'a', sizeof(input));
    memcpy(input, CHUNKED "1;", sizeof(CHUNKED) + 1);
    assert_refused(request, text_make(input, sizeof(input)), 400);
}

static void
malformed_trailers_are_refused(void **state)
{
    (void)state;
    REFUSED(request, 400, TEXT(CHUNKED "0\r\na : b\r\n\r\n"), TEXT(CHUNKED "0\r\n a: b\r\n\r\n"),
            TEXT(CHUNKED "0\r\nGET / HTTP/1.1\r\n\r\n"), TEXT(CHUNKED "0\r\n\n"),
            TEXT(CHUNKED "0\r\na: b\x01\r\n\r\n"));
}

static void
long_trailers_are_431(void **state)
{
    struct strbuf input = STRBUF_INIT;

    (void)state;
    strbuf_add_str(&input, CHUNKED "0\r\n");
    for (int i = 0; i < 600; i++)
        strbuf_add_str(&input, "a: bcd\r\n");
    story_of(request, strbuf_text(&input), 50, 1000);
    assert_non_null(strstr(story.data, "BAD 431"));
    strbuf_fini(&input);
    strbuf_fini(&story);
}

static void
long_heads_are_431_and_take_no_more_memory(void **state)
{
    struct strbuf input = STRBUF_INIT;

    (void)state;
    strbuf_add_str(&input, "GET /");
    while (input.len < 100000)
        strbuf_add_char(&input, 'a');
    assert_int_equal(story_of(request, strbuf_text(&input), 100, 100), 4000);
    assert_non_null(strstr(story.data, "BAD 431"));
    assert_int_equal(story_of(request, strbuf_text(&input), input.len, 1), 0);
    assert_non_null(strstr(story.data, "BAD 431"));
    strbuf_fini(&input);
    strbuf_fini(&story);
}

static void
an_end_of_the_connection_inside_a_message_is_bad(void **state)
{
    static const struct text messages[] = {TEXT(POST "Content-Length: 3\r\n\r\nab"),
                                           TEXT(CHUNKED "1\r\na\r\n0\r\n\r")};
    struct story_case how = request;

    (void)state;
    how.eof = true;
    for (size_t i = 0; i < COUNT(messages); i++)
        for (size_t len = 1; len <= messages[i].len; len++) {
            story_of(how, text_make(messages[i].ptr, len), len, 1);
            assert_non_null(strstr(story.data, "BAD 400: connection closed inside a message"));
        }
    how.role = HTTP1_RESPONSE;
    story_of(how, TEXT("HTTP/1.1 100 Continue\r\n\r\n"), 100, 1);
    assert_non_null(strstr(story.data, "BAD 400: connection closed inside a message"));
    strbuf_fini(&story);
}

static void
an_end_of_the_connection_between_messages_is_clean(void **state)
{
    struct http1_reader reader;

    (void)state;
    http1_reader_init(&reader, HTTP1_REQUEST, 100, &arena);
    assert_int_equal(http1_reader_eof(&reader), HTTP1_NEED_MORE);
    http1_reader_fini(&reader);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(two_lengths_are_refused),
        TEST(lengths_that_are_no_plain_number_are_refused),
        TEST(a_length_with_a_transfer_coding_is_refused),
        TEST(transfer_codings_other_than_one_chunked_are_refused),
        TEST(spaces_before_a_colon_and_bad_names_are_refused),
        TEST(folded_lines_are_refused),
        TEST(line_ends_other_than_crlf_are_refused),
        TEST(control_bytes_in_values_are_refused),
        TEST(malformed_request_lines_are_refused),
        TEST(other_versions_are_505),
        TEST(what_cannot_be_http_is_refused_at_its_first_byte),
        TEST(requests_need_exactly_one_host),
        TEST(malformed_status_lines_are_refused),
        TEST(malformed_chunks_are_refused),
        TEST(long_chunk_lines_are_refused),
        TEST(malformed_trailers_are_refused),
        TEST(long_trailers_are_431),
        TEST(long_heads_are_431_and_take_no_more_memory),
        TEST(an_end_of_the_connection_inside_a_message_is_bad),
        TEST(an_end_of_the_connection_between_messages_is_clean),
    };

    return cmocka_run_group_tests_name("http1_strict", tests, NULL, NULL);
}
