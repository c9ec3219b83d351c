/* http1: what the reader takes, on every split of the input, and what the writers write. */
#include "http1_story.h"

static void
a_request_with_length_is_read_up_to_its_end(void **state)
{
    (void)state;
    assert_story(request,
                 TEXT("POST /greet.GreetService/Greet HTTP/1.1\r\nHost: "
                      "h:1\r\nContent-Type:application/proto\r\n"
                      "Content-Length: 5\r\nX-A:  a b \t\r\nX-A:\r\n\r\nhelloPOST /next"),
                 "POST /greet.GreetService/Greet 1.1 | host: h:1 | content-type: application/proto "
                 "| content-length: 5 "
                 "| x-a: a b | x-a:  > keep 5 [hello] END",
                 10);
}

static void
a_request_without_length_has_no_body(void **state)
{
    (void)state;
    assert_story(request, TEXT("GET /stats?x=%20#y HTTP/1.1\r\nHost:\r\n\r\nG"),
                 "GET /stats?x=%20#y 1.1 | host:  > keep END", 1);
    assert_story(request, TEXT("GET * HTTP/1.0\r\n\r\n"), "GET * 1.0 > drop END", 0);
    assert_request(TEXT("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n"),
                   "POST / 1.1 | host: a | content-length: 0 > keep 0 END");
}

/* As dubbo-go's own client sends a unary call over HTTP/1.1. */
static void
a_captured_chunked_request_is_read(void **state)
{
    (void)state;
    assert_request(
        TEXT("POST /interop.InteropService/Echo HTTP/1.1\r\nHost: 127.0.0.1:9100\r\n"
             "User-Agent: triple-go/0.1.0 (go1.26.8)\r\nTransfer-Encoding: "
             "chunked\r\nAccept-Encoding: gzip\r\n"
             "Content-Type: application/proto\r\nTriple-Protocol-Version: 0.1.0\r\nX-Att: "
             "one\r\n\r\n"
             "15\r\n\n\x05hello\x1a\x05hello*\x05x-att\r\n0\r\n\r\n"),
        "POST /interop.InteropService/Echo 1.1 | host: 127.0.0.1:9100 | user-agent: "
        "triple-go/0.1.0 (go1.26.8) "
        "| transfer-encoding: chunked | accept-encoding: gzip | content-type: application/proto "
        "| triple-protocol-version: 0.1.0 | x-att: one > keep chunked "
        "[\n\x05hello\x1a\x05hello*\x05x-att] END");
}

/* As dubbo-go sent it. */
static void
a_captured_error_reply_is_read(void **state)
{
    (void)state;
    assert_response(
        TEXT("HTTP/1.1 408 Request Timeout\r\nAccept-Encoding: gzip\r\nContent-Type: "
             "application/json\r\n"
             "Trailer-X-Trailer-X-Att: one\r\nX-Echo-X-Att: one\r\nDate: Mon, 30 Nov 2026 17:39:00 "
             "GMT\r\n"
             "Content-Length: 48\r\n\r\n{\"code\":\"canceled\",\"message\":\"context canceled\"}"),
        "408 1.1 | accept-encoding: gzip | content-type: application/json | "
        "trailer-x-trailer-x-att: one "
        "| x-echo-x-att: one | date: Mon, 30 Nov 2026 17:39:00 GMT | content-length: 48 > keep 48 "
        "[{\"code\":\"canceled\",\"message\":\"context canceled\"}] END");
}

static void
chunks_with_extensions_and_trailers_are_decoded(void **state)
{
    (void)state;
    assert_response(TEXT("HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n"
                         "4\r\nWiki\r\n5;a=b;c=\"d e\"\r\npedia\r\nA \t; x\r\n0123456789\r\n"
                         "000;last\r\nX-Cost: 9\r\nx-cost:  10 \r\n\r\n"),
                    "200 1.1 | transfer-encoding: Chunked > keep chunked [Wikipedia0123456789] "
                    "| x-cost: 9 | x-cost: 10 END");
    assert_response(TEXT("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
                    "200 1.1 | transfer-encoding: chunked > keep chunked END");
    assert_response(
        TEXT("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n\r\n\r\r\n0\r\n\r\n"),
        "200 1.1 | transfer-encoding: chunked > keep chunked [\r\n\r] END");
}

static void
a_reply_without_length_ends_with_the_connection(void **state)
{
    struct story_case until_close = response;

    (void)state;
    until_close.eof = true;
    assert_story(until_close, TEXT("HTTP/1.1 200 OK\r\nA: b\r\n\r\nall of it\r\n"),
                 "200 1.1 | a: b > drop until-close [all of it\r\n] END", 0);
    assert_story(until_close, TEXT("HTTP/1.0 200 OK\r\n\r\n"), "200 1.0 > drop until-close END", 0);
}

static void
replies_that_have_no_body_end_with_their_head(void **state)
{
    struct story_case head_reply = response;

    (void)state;
    head_reply.head_reply = true;
    assert_story(response, TEXT("HTTP/1.1 204 No Content\r\n\r\nx"), "204 1.1 > keep END", 1);
    assert_story(response, TEXT("HTTP/1.1 204 \r\nContent-Length: 3\r\n\r\nabc"),
                 "204 1.1 | content-length: 3 > drop 3 END", 3);
    assert_story(response, TEXT("HTTP/1.1 304 Not Modified\r\nContent-Length: 3\r\n\r\n"),
                 "304 1.1 | content-length: 3 > keep 3 END", 0);
    assert_story(head_reply, TEXT("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nHTTP"),
                 "200 1.1 | content-length: 3 > keep 3 END", 4);
    assert_story(head_reply, TEXT("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"),
                 "200 1.1 | transfer-encoding: chunked > keep END", 0);
    assert_story(head_reply, TEXT("HTTP/1.1 404 Not Found\r\n\r\n"), "404 1.1 > keep END", 0);
}

static void
interim_replies_are_told_and_the_final_one_follows(void **state)
{
    (void)state;
    assert_response(TEXT("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
                         "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"),
                    "100 1.1 > keep interim 103 1.1 | link: x > keep interim 200 1.1 | "
                    "content-length: 2 > keep 2 [hi] END");
    /* close in an interim head says nothing about the final one */
    assert_response(
        TEXT("HTTP/1.1 102 Processing\r\nConnection: close\r\n\r\nHTTP/1.1 200 "
             "OK\r\nContent-Length: 0\r\n\r\n"),
        "102 1.1 | connection: close > drop interim 200 1.1 | content-length: 0 > keep 0 END");
}

static void
a_flood_of_interim_replies_is_bounded_by_the_head_limit(void **state)
{
    struct strbuf flood = STRBUF_INIT;
    struct story_case how = response;

    (void)state;
    for (int i = 0; i < 1000; i++)
        strbuf_add_str(&flood, "HTTP/1.1 103 Early Hints\r\n\r\n");
    assert_true(story_of(how, strbuf_text(&flood), flood.len, 1) <= how.max_head);
    assert_non_null(strstr(story.data, "BAD 431"));
    strbuf_fini(&flood);
    strbuf_fini(&story);
}

static void
connection_options_decide_about_reuse(void **state)
{
    (void)state;
    assert_request(TEXT("GET / HTTP/1.1\r\nHost: h\r\nConnection: foo, Close\r\n\r\n"),
                   "GET / 1.1 | host: h | connection: foo, Close > drop END");
    assert_request(TEXT("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n"),
                   "GET / 1.0 | connection: Keep-Alive > keep END");
    assert_request(TEXT("GET / HTTP/1.0\r\nConnection: keep-alive\r\nConnection: close\r\n\r\n"),
                   "GET / 1.0 | connection: keep-alive | connection: close > drop END");
    assert_request(TEXT("GET / HTTP/1.1\r\nHost: h\r\nConnection: closed\r\n\r\n"),
                   "GET / 1.1 | host: h | connection: closed > keep END");
}

static void
expectations_are_read_from_http_1_1_requests(void **state)
{
    (void)state;
    assert_request(
        TEXT("PUT / HTTP/1.1\r\nHost: h\r\nExpect: 100-Continue\r\nContent-Length: 1\r\n\r\nx"),
        "PUT / 1.1 | host: h | expect: 100-Continue | content-length: 1 > keep 1 expect [x] END");
    assert_request(TEXT("PUT / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\nx"),
                   "PUT / 1.0 | expect: 100-continue | content-length: 1 > drop 1 [x] END");
}

static void
a_later_minor_version_is_read_as_1_1(void **state)
{
    (void)state;
    assert_request(TEXT("GET / HTTP/1.2\r\nHost: h\r\n\r\n"), "GET / 1.1 | host: h > keep END");
    assert_response(TEXT("HTTP/1.9 200\r\nContent-Length: 0\r\n\r\n"),
                    "200 1.1 | content-length: 0 > keep 0 END");
}

static void
one_empty_line_before_a_request_is_skipped(void **state)
{
    (void)state;
    assert_request(TEXT("\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n"), "GET / 1.1 | host: h > keep END");
    assert_refused(request, TEXT("\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n"), 400);
    assert_refused(response, TEXT("\r\nHTTP/1.1 200 OK\r\n\r\n"), 400);
}

static void
a_head_of_exactly_the_limit_passes(void **state)
{
    static const char head[] = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";
    struct story_case how = {.role = HTTP1_REQUEST, .max_head = sizeof(head) - 1};

    (void)state;
    assert_story(how, TEXT(head), "GET / 1.1 | host: h > keep END", 0);
    how.max_head--;
    assert_refused(how, TEXT(head), 431);
    how.max_head = 1;
    assert_refused(how, TEXT(head), 431);
}

static void
trailers_have_a_limit_of_their_own(void **state)
{
    static const char head[] = "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
    static const char trailers[] = "a: 0123456789012345678901234567890123456789012345\r\n\r\n";
    struct story_case how = {.role = HTTP1_REQUEST, .max_head = sizeof(head) - 1};
    struct strbuf input = STRBUF_INIT;

    (void)state;
    assert_true(sizeof(trailers) <= sizeof(head));
    strbuf_add_str(&input, head);
    strbuf_addf(&input, "1\r\nx\r\n0\r\n%s", trailers);
    story_of(how, strbuf_text(&input), input.len, 1);
    assert_non_null(
        strstr(story.data, "[x] | a: 0123456789012345678901234567890123456789012345 END"));
    strbuf_fini(&input);
    strbuf_fini(&story);
}

static void
one_reader_reads_one_message_after_another(void **state)
{
    static const char input[] = "POST /1 HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\na"
                                "POST /2 HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: "
                                "chunked\r\n\r\n1\r\nb\r\n0\r\nt: u\r\n\r\n"
                                "GET /3 HTTP/1.0\r\n\r\n";
    struct http1_reader reader;
    struct arena arenas[4];
    size_t at = 0;

    (void)state;
    arena_init(&arenas[0], NULL, 0);
    http1_reader_init(&reader, HTTP1_REQUEST, 1000, &arenas[0]);
    for (int i = 1; i <= 3; i++) {
        assert_true(http1_reader_idle(&reader));
        strbuf_clear(&story);
        story_in_body = false;
        assert_false(story_feed(&reader, input + at, sizeof(input) - 1 - at, &at));
        assert_false(http1_reader_idle(&reader));
        assert_str(
            strbuf_text(&story),
            i == 1 ? "POST /1 1.1 | host: h | content-length: 1 > keep 1 [a] END"
            : i == 2
                ? "POST /2 1.1 | host: h | transfer-encoding: chunked > keep chunked [b] | t: u END"
                : "GET /3 1.0 > drop END");
        assert_int_equal(http1_reader_eof(&reader), HTTP1_END);
        arena_init(&arenas[i], NULL, 0);
        http1_reader_restart(&reader, &arenas[i]);
        arena_fini(&arenas[i - 1]);
    }
    assert_int_equal(at, sizeof(input) - 1);
    arena_fini(&arenas[3]);
    http1_reader_fini(&reader);
    strbuf_fini(&story);
}

static void
end_and_bad_repeat_without_using_input(void **state)
{
    static const char *const inputs[] = {"GET / HTTP/1.0\r\n\r\n", "G(T / HTTP/1.0\r\n\r\n"};
    static const enum http1_event events[] = {HTTP1_END, HTTP1_BAD};

    (void)state;
    for (size_t i = 0; i < COUNT(inputs); i++) {
        const uint8_t *data = (const uint8_t *)inputs[i], *body;
        size_t len = strlen(inputs[i]), body_len;
        struct http1_reader reader;
        enum http1_event event;

        http1_reader_init(&reader, HTTP1_REQUEST, 1000, &arena);
        do
            event = http1_reader_next(&reader, &data, &len, &body, &body_len);
        while (event == HTTP1_HEAD);
        assert_int_equal(event, events[i]);
        for (int again = 0; again < 3; again++) {
            const uint8_t *more = (const uint8_t *)"GET";
            size_t more_len = 3;

            assert_int_equal(http1_reader_next(&reader, &more, &more_len, &body, &body_len),
                             events[i]);
            assert_int_equal(more_len, 3);
            assert_int_equal(http1_reader_eof(&reader), events[i]);
        }
        http1_reader_fini(&reader);
    }
}

static void
fields_are_written_but_not_what_would_break_the_message(void **state)
{
    struct strbuf out = STRBUF_INIT;
    struct fields fields;

    (void)state;
    fields_init(&fields, &arena);
    fields_add(&fields, TEXT(":path"), TEXT("/x"), 0);
    fields_add(&fields, TEXT("host"), TEXT("h"), 0);
    fields_add(&fields, TEXT("x-a"), TEXT("b\r\nevil: 1"), 0);
    fields_add(&fields, TEXT("x\nb"), TEXT("b"), 0);
    fields_add(&fields, TEXT("X-C"), TEXT("b"), 0);
    fields_add(&fields, TEXT(""), TEXT("b"), 0);
    fields_add(&fields, TEXT("x-d"), TEXT(""), 0);
    fields_add(&fields, TEXT("x-e"), TEXT("\xc3\xa9\t1"), 0);
    http1_write_request(&out, TEXT("POST"), TEXT("/a/b?c d\r\n\xc3"), &fields);
    assert_str(strbuf_text(&out),
               "POST /a/b?c%20d%0D%0A%C3 HTTP/1.1\r\nhost: h\r\nx-d: \r\nx-e: \xc3\xa9\t1\r\n\r\n");
    strbuf_clear(&out);
    fields.count = 0;
    http1_write_response(&out, 404, &fields);
    http1_write_response(&out, 299, &fields);
    assert_str(strbuf_text(&out), "HTTP/1.1 404 Not Found\r\n\r\nHTTP/1.1 299 \r\n\r\n");
    strbuf_fini(&out);
}

static void
chunk_heads_are_lower_case_hex(void **state)
{
    struct strbuf out = STRBUF_INIT;

    (void)state;
    http1_write_chunk_head(&out, 0);
    http1_write_chunk_head(&out, 31);
    http1_write_chunk_head(&out, 0xabcdef0123456789);
    assert_str(strbuf_text(&out), "0\r\n1f\r\nabcdef0123456789\r\n");
    strbuf_fini(&out);
}

static void
reasons_of_the_statuses_we_send_are_known(void **state)
{
    static const int statuses[] = {200, 400, 404, 405, 408, 415, 426,
                                   429, 431, 500, 501, 502, 503, 505};

    (void)state;
    for (size_t i = 0; i < COUNT(statuses); i++)
        assert_true(strlen(http1_reason(statuses[i])) > 1);
    assert_string_equal(http1_reason(404), "Not Found");
    assert_string_equal(http1_reason(299), "");
}

static void
written_requests_are_read_back(void **state)
{
    struct strbuf out = STRBUF_INIT;
    struct fields fields;

    (void)state;
    fields_init(&fields, &arena);
    fields_add(&fields, TEXT("host"), TEXT("h"), 0);
    fields_add(&fields, TEXT("transfer-encoding"), TEXT("chunked"), 0);
    http1_write_request(&out, TEXT("POST"), TEXT("/s/M"), &fields);
    http1_write_chunk_head(&out, 16);
    strbuf_add_str(&out, "0123456789abcdef\r\n");
    http1_write_chunk_head(&out, 0);
    strbuf_add_str(&out, "\r\n");
    assert_request(strbuf_text(&out), "POST /s/M 1.1 | host: h | transfer-encoding: chunked > keep "
                                      "chunked [0123456789abcdef] END");
    strbuf_fini(&out);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_request_with_length_is_read_up_to_its_end),
        TEST(a_request_without_length_has_no_body),
        TEST(a_captured_chunked_request_is_read),
        TEST(a_captured_error_reply_is_read),
        TEST(chunks_with_extensions_and_trailers_are_decoded),
        TEST(a_reply_without_length_ends_with_the_connection),
        TEST(replies_that_have_no_body_end_with_their_head),
        TEST(interim_replies_are_told_and_the_final_one_follows),
        TEST(a_flood_of_interim_replies_is_bounded_by_the_head_limit),
        TEST(connection_options_decide_about_reuse),
        TEST(expectations_are_read_from_http_1_1_requests),
        TEST(a_later_minor_version_is_read_as_1_1),
        TEST(one_empty_line_before_a_request_is_skipped),
        TEST(a_head_of_exactly_the_limit_passes),
        TEST(trailers_have_a_limit_of_their_own),
        TEST(one_reader_reads_one_message_after_another),
        TEST(end_and_bad_repeat_without_using_input),
        TEST(fields_are_written_but_not_what_would_break_the_message),
        TEST(chunk_heads_are_lower_case_hex),
        TEST(reasons_of_the_statuses_we_send_are_known),
        TEST(written_requests_are_read_back),
    };

    return cmocka_run_group_tests_name("http1", tests, NULL, NULL);
}
