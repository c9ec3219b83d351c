/* error_json: what providers and middleboxes send as errors, and what we write. */
#include "wire_test.h"

#include "proxy/base/strbuf.h"
#include "proxy/wire/error_json.h"

static struct rpc_status status;

static enum error_json
read_as(const char *body, int http_status, enum dialect dialect)
{
    return error_json_read(&arena, text_of(body), http_status, dialect, &status);
}

static void
assert_read(const char *body, int http_status, enum error_json result, int code,
            const char *message)
{
    assert_int_equal(read_as(body, http_status, DIALECT_TRIPLE), result);
    assert_int_equal(status.code, code);
    assert_str(status.message, message);
}

/* As dubbo-go v3.3.2 sent it over HTTP/1.1. */
static void
a_captured_error_with_details_is_read_whole(void **state)
{
    static const char body[] =
        "{\"code\":\"code_17\",\"message\":\"business "
        "error\",\"details\":[{\"type\":\"google.rpc.ErrorInfo\",\"value\":"
        "\"CgdJTlRFUk9QEg1wZWVycy5leGFtcGxlGgoKBGNvZGUSAjE3GgsKBmRldGFpbBIBMQ\",\"debug\":{\"@"
        "type\":"
        "\"type.googleapis.com/"
        "google.rpc.ErrorInfo\",\"reason\":\"INTEROP\",\"domain\":\"peers.example\",\"metadata\":"
        "{\"code\":\"17\",\"detail\":\"1\"}}}]}";

    (void)state;
    assert_read(body, 500, ERROR_JSON_OK, 17, "business error");
    assert_int_equal(status.detail_count, 1);
    assert_str(status.details[0].type_url, "type.googleapis.com/google.rpc.ErrorInfo");
    assert_text(status.details[0].value, TEXT("\x0a\x07INTEROP\x12\x0dpeers.example\x1a\x0a\x0a\x04"
                                              "code\x12\x02"
                                              "17"
                                              "\x1a\x0b\x0a\x06"
                                              "detail\x12\x01"
                                              "1"));
    assert_int_equal(read_as(body, 500, DIALECT_CONNECT), ERROR_JSON_BAD_CODE);
    assert_int_equal(status.code, RPC_UNKNOWN);
    assert_int_equal(status.detail_count, 1);
}

static void
the_json_code_wins_over_the_http_status(void **state)
{
    (void)state;
    assert_read("{\"code\":\"canceled\",\"message\":\"context canceled\"}", 408, ERROR_JSON_OK, 1,
                "context canceled");
    assert_read("{\"code\":\"deadline_exceeded\",\"message\":\"context deadline exceeded\"}", 408,
                ERROR_JSON_OK, 4, "context deadline exceeded");
    assert_read("{\"code\":\"not_found\"}", 503, ERROR_JSON_OK, 5, "");
    assert_read("{\"message\":\"parse timeout: \\\"1\\\" has \\u003e10 "
                "digits\",\"code\":\"invalid_argument\"}",
                400, ERROR_JSON_OK, 3, "parse timeout: \"1\" has >10 digits");
}

static void
illegal_codes_are_inferred_from_http_and_never_ok(void **state)
{
    static const char *const codes[] = {"\"code_0\"",
                                        "\"code_5\"",
                                        "\"code_99\"",
                                        "\"code_-1\"",
                                        "\"code_18446744073709551616\"",
                                        "\"CODE_17\"",
                                        "\"code_\"",
                                        "\"ok\"",
                                        "\"OK\"",
                                        "\"0\"",
                                        "0",
                                        "17",
                                        "5",
                                        "\"\"",
                                        "[]",
                                        "{}",
                                        "true",
                                        "1e3",
                                        "18446744073709551616"};
    char body[128];

    (void)state;
    for (size_t i = 0; i < COUNT(codes); i++) {
        snprintf(body, sizeof(body), "{\"code\":%s,\"message\":\"m\"}", codes[i]);
        assert_read(body, 500, ERROR_JSON_BAD_CODE, RPC_UNKNOWN, "m");
        assert_read(body, 503, ERROR_JSON_BAD_CODE, RPC_UNAVAILABLE, "m");
        assert_read(body, 200, ERROR_JSON_BAD_CODE, RPC_UNKNOWN, "m");
    }
}

static void
json_without_code_is_told_apart(void **state)
{
    (void)state;
    assert_read("{\"message\":\"Invoker not found\",\"status\":\"404\"}", 404, ERROR_JSON_NO_CODE,
                RPC_UNIMPLEMENTED, "Invoker not found");
    assert_read("{}", 404, ERROR_JSON_NO_CODE, RPC_UNIMPLEMENTED, "");
    assert_read("{\"code\":null,\"message\":5}", 401, ERROR_JSON_NO_CODE, RPC_UNAUTHENTICATED, "");
}

static void
what_is_not_a_json_object_is_unreadable(void **state)
{
    static const char *const bodies[] = {"",
                                         "404 page not found\n",
                                         "<html>",
                                         "[]",
                                         "\"x\"",
                                         "null",
                                         "{",
                                         "{\"code\":}",
                                         "{\"code\":\"not_found\"} x",
                                         "{\"code\":\"not_found\",}",
                                         "{'code':'x'}",
                                         "{\"message\":\"\xff\"}",
                                         "\xef\xbb\xbf{}",
                                         "{\"a\":1e999}"};
    struct strbuf deep = STRBUF_INIT;

    (void)state;
    for (size_t i = 0; i < COUNT(bodies); i++)
        assert_read(bodies[i], 502, ERROR_JSON_UNREADABLE, RPC_UNAVAILABLE, "");
    for (int i = 0; i < 100000; i++)
        strbuf_add_str(&deep, "{\"a\":[");
    assert_int_equal(error_json_read(&arena, strbuf_text(&deep), 404, DIALECT_TRIPLE, &status),
                     ERROR_JSON_UNREADABLE);
    strbuf_fini(&deep);
}

static void
a_body_cut_anywhere_is_unreadable(void **state)
{
    static const char body[] = "{\"code\":\"not_found\",\"message\":\"m\\u00e9\",\"details\":[{"
                               "\"type\":\"a.B\",\"value\":\"AA\"}]}";

    (void)state;
    for (size_t len = 0; len < sizeof(body) - 1; len++) {
        assert_int_equal(
            error_json_read(&arena, text_make(body, len), 400, DIALECT_TRIPLE, &status),
            ERROR_JSON_UNREADABLE);
        assert_int_equal(status.code, RPC_INVALID_ARGUMENT);
        assert_int_equal(status.detail_count, 0);
    }
    assert_read(body, 400, ERROR_JSON_OK, 5, "m\xc3\xa9");
}

static void
a_body_over_the_limit_is_unreadable(void **state)
{
    struct strbuf body = STRBUF_INIT;

    (void)state;
    strbuf_add_str(&body, "{\"code\":\"not_found\"}");
    while (body.len < ERROR_JSON_MAX_BYTES)
        strbuf_add_char(&body, ' ');
    assert_int_equal(error_json_read(&arena, strbuf_text(&body), 500, DIALECT_TRIPLE, &status),
                     ERROR_JSON_OK);
    strbuf_add_char(&body, ' ');
    assert_int_equal(error_json_read(&arena, strbuf_text(&body), 500, DIALECT_TRIPLE, &status),
                     ERROR_JSON_UNREADABLE);
    strbuf_fini(&body);
}

/* The number of details read when the only one has this value, as JSON. */
static unsigned
details_with_value(const char *value)
{
    char body[256];

    snprintf(
        body, sizeof(body),
        "{\"code\":\"invalid_argument\",\"message\":\"kept\",\"details\":[{\"type\":\"t.T\"%s}]}",
        value);
    assert_read(body, 400, ERROR_JSON_OK, RPC_INVALID_ARGUMENT, "kept");
    return status.detail_count;
}

static void
bad_base64_drops_the_detail_and_keeps_the_error(void **state)
{
    (void)state;
    assert_int_equal(details_with_value(",\"value\":\"CgIIBQ\""), 1);
    assert_text(status.details[0].value, TEXT("\x0a\x02\x08\x05"));
    assert_int_equal(details_with_value(",\"value\":\"CgIIBQ==\""), 1);
    assert_text(status.details[0].value, TEXT("\x0a\x02\x08\x05"));
    assert_int_equal(details_with_value(",\"value\":\"\""), 1);
    assert_int_equal(status.details[0].value.len, 0);
    assert_int_equal(details_with_value(""), 1);
    assert_int_equal(details_with_value(",\"value\":\"-_8\""), 0);
    assert_int_equal(details_with_value(",\"value\":\"!!!\""), 0);
    assert_int_equal(details_with_value(",\"value\":\"A\""), 0);
    assert_int_equal(details_with_value(",\"value\":7"), 0);
    assert_int_equal(details_with_value(",\"value\":null"), 0);
}

static void
a_megabyte_of_base64_is_read(void **state)
{
    struct strbuf body = STRBUF_INIT;

    (void)state;
    strbuf_add_str(&body,
                   "{\"code\":\"invalid_argument\",\"details\":[{\"type\":\"t.T\",\"value\":\"");
    memset(strbuf_reserve(&body, 1 << 20), 'A', 1 << 20);
    body.len += 1 << 20;
    strbuf_add_str(&body, "\"}]}");
    assert_int_equal(error_json_read(&arena, strbuf_text(&body), 400, DIALECT_TRIPLE, &status),
                     ERROR_JSON_OK);
    assert_int_equal(status.detail_count, 1);
    assert_int_equal(status.details[0].value.len, (1 << 20) / 4 * 3);
    strbuf_fini(&body);
}

static void
details_keep_order_and_types_and_ignore_debug(void **state)
{
    (void)state;
    assert_read(
        "{\"code\":\"failed_precondition\",\"extra\":[1,{\"x\":18446744073709551616}],\"message\":"
        "\"\",\"details\":["
        "{\"type\":\"acme.v1.Unknown\",\"value\":\"AQ\",\"debug\":{\"a\":{\"b\":{\"c\":[[[[]]]]}}}}"
        ","
        "{\"type\":\"type.googleapis.com/"
        "google.rpc.RetryInfo\",\"value\":\"Ag\",\"debug\":\"\\u0000\"},"
        "{\"value\":\"BQ\"},17,null,{\"type\":\"\",\"value\":\"BQ\"},{\"type\":5,\"value\":\"BQ\"},"
        "{\"type\":\"example.com/"
        "x.Y\",\"value\":\"Aw\"},{\"type\":\"acme.v1.Unknown\",\"value\":\"BA\"}]}",
        412, ERROR_JSON_OK, 9, "");
    assert_int_equal(status.detail_count, 4);
    assert_str(status.details[0].type_url, "type.googleapis.com/acme.v1.Unknown");
    assert_str(status.details[1].type_url, "type.googleapis.com/google.rpc.RetryInfo");
    assert_str(status.details[2].type_url, "example.com/x.Y");
    assert_str(status.details[3].type_url, "type.googleapis.com/acme.v1.Unknown");
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(status.details[i].value.ptr[0], i + 1);
}

static void
details_that_are_no_array_are_ignored(void **state)
{
    (void)state;
    assert_read("{\"code\":\"internal\",\"details\":{\"type\":\"x\"}}", 500, ERROR_JSON_OK, 13, "");
    assert_int_equal(status.detail_count, 0);
    assert_read("{\"code\":\"internal\",\"details\":\"x\"}", 500, ERROR_JSON_OK, 13, "");
    assert_read("{\"code\":\"internal\",\"details\":[]}", 500, ERROR_JSON_OK, 13, "");
    assert_int_equal(status.detail_count, 0);
}

static void
a_nul_in_a_message_is_no_end(void **state)
{
    (void)state;
    assert_int_equal(
        read_as("{\"code\":\"internal\",\"message\":\"a\\u0000b\"}", 500, DIALECT_TRIPLE),
        ERROR_JSON_OK);
    assert_text(status.message, TEXT("a\0b"));
    assert_str(error_json_write(&arena, &status),
               "{\"code\":\"internal\",\"message\":\"a\\u0000b\"}");
}

static void
written_errors_leave_out_what_is_empty(void **state)
{
    struct rpc_detail details[] = {
        {TEXT("type.googleapis.com/google.rpc.ErrorInfo"), TEXT("\x0a\x02\x08\x05")},
        {TEXT("example.com/x.Y"), TEXT_NONE}};
    struct rpc_status plain = {.code = RPC_NOT_FOUND};
    struct rpc_status full = {
        .code = RPC_BIZ, .message = TEXT("a \"b\" <\n"), .details = details, .detail_count = 2};

    (void)state;
    assert_str(error_json_write(&arena, &plain), "{\"code\":\"not_found\"}");
    assert_str(error_json_write(&arena, &full),
               "{\"code\":\"code_17\",\"message\":\"a \\\"b\\\" "
               "<\\n\",\"details\":[{\"type\":\"google.rpc.ErrorInfo\","
               "\"value\":\"CgIIBQ\"},{\"type\":\"example.com/x.Y\",\"value\":\"\"}]}");
}

static void
types_are_shortened_only_where_a_reader_restores_them(void **state)
{
    struct rpc_detail details[] = {{TEXT("type.googleapis.com/a.B"), TEXT_NONE},
                                   {TEXT("type.googleapis.com/a/b"), TEXT_NONE},
                                   {TEXT("type.googleapis.com/"), TEXT_NONE}};
    struct rpc_status written = {
        .code = RPC_ABORTED, .details = details, .detail_count = COUNT(details)};
    struct text body = error_json_write(&arena, &written);

    (void)state;
    assert_int_equal(error_json_read(&arena, body, 500, DIALECT_TRIPLE, &status), ERROR_JSON_OK);
    assert_int_equal(status.detail_count, COUNT(details));
    for (size_t i = 0; i < COUNT(details); i++)
        assert_text(status.details[i].type_url, details[i].type_url);
}

static void
broken_utf8_in_a_message_is_repaired_on_writing(void **state)
{
    struct rpc_status broken = {.code = RPC_INTERNAL, .message = TEXT("x\xe9")};

    (void)state;
    assert_str(error_json_write(&arena, &broken),
               "{\"code\":\"internal\",\"message\":\"x\xef\xbf\xbd\"}");
}

static void
every_code_is_read_back_as_written(void **state)
{
    (void)state;
    for (int code = 1; code < RPC_CODES; code++) {
        struct rpc_status written = {.code = code, .message = TEXT("m")};
        struct text body = error_json_write(&arena, &written);

        assert_int_equal(error_json_read(&arena, body, 500, DIALECT_TRIPLE, &status),
                         ERROR_JSON_OK);
        assert_int_equal(status.code, code);
        assert_str(status.message, "m");
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_captured_error_with_details_is_read_whole),
        TEST(the_json_code_wins_over_the_http_status),
        TEST(illegal_codes_are_inferred_from_http_and_never_ok),
        TEST(json_without_code_is_told_apart),
        TEST(what_is_not_a_json_object_is_unreadable),
        TEST(a_body_cut_anywhere_is_unreadable),
        TEST(a_body_over_the_limit_is_unreadable),
        TEST(bad_base64_drops_the_detail_and_keeps_the_error),
        TEST(a_megabyte_of_base64_is_read),
        TEST(details_keep_order_and_types_and_ignore_debug),
        TEST(details_that_are_no_array_are_ignored),
        TEST(a_nul_in_a_message_is_no_end),
        TEST(written_errors_leave_out_what_is_empty),
        TEST(types_are_shortened_only_where_a_reader_restores_them),
        TEST(broken_utf8_in_a_message_is_repaired_on_writing),
        TEST(every_code_is_read_back_as_written),
    };

    return cmocka_run_group_tests_name("error_json", tests, NULL, NULL);
}
