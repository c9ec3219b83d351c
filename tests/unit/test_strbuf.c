/* The text buffer and its two ways of quoting. */
#include "tests/unit/unit.h"

#include "proxy/base/mem.h"
#include "proxy/base/strbuf.h"

static void
empty_buffer_has_no_text_but_can_be_taken(void **state)
{
    (void)state;
    struct strbuf buf = STRBUF_INIT;
    assert_int_equal(strbuf_text(&buf).len, 0);
    char *string = strbuf_take(&buf);
    assert_string_equal(string, "");
    mem_free(string);
    strbuf_fini(&buf);
}

static void
grows_and_stays_terminated(void **state)
{
    (void)state;
    struct strbuf buf = STRBUF_INIT;
    for (unsigned i = 0; i < 5000; i++) {
        strbuf_add_char(&buf, (char)('a' + i % 26));
        assert_int_equal(buf.len, i + 1);
        assert_int_equal(buf.data[buf.len], 0);
    }
    for (unsigned i = 0; i < 5000; i++)
        assert_int_equal(buf.data[i], 'a' + i % 26);
    strbuf_fini(&buf);
    assert_null(buf.data);
}

static void
printf_of_any_length_is_whole(void **state)
{
    (void)state;
    struct strbuf buf = STRBUF_INIT;
    char text[3000];
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    for (int len = 0; len < (int)sizeof(text); len += 7) {
        strbuf_clear(&buf);
        strbuf_addf(&buf, "%d:%.*s!", 42, len, text);
        assert_int_equal(buf.len, (size_t)len + 4);
        assert_int_equal(strlen(buf.data), buf.len);
        assert_int_equal(buf.data[buf.len - 1], '!');
    }
    strbuf_fini(&buf);
}

static void
bytes_put_into_reserved_room_are_taken_terminated(void **state)
{
    (void)state;
    struct strbuf buf = STRBUF_INIT;
    strbuf_add_str(&buf, "ab");
    memcpy(strbuf_reserve(&buf, 300), "cd", 2);
    buf.len += 2;
    char *string = strbuf_take(&buf);
    assert_string_equal(string, "abcd");
    assert_null(buf.data);
    mem_free(string);
}

static void
expect_json(struct text text, const char *json)
{
    struct strbuf buf = STRBUF_INIT;
    strbuf_add_json(&buf, text);
    expect_text(strbuf_text(&buf), json);
    strbuf_fini(&buf);
}

static void
json_escapes_what_it_must(void **state)
{
    (void)state;
    expect_json(TEXT("plain"), "\"plain\"");
    expect_json(TEXT_NONE, "\"\"");
    expect_json(TEXT("a\"b\\c/"), "\"a\\\"b\\\\c/\"");
    expect_json(TEXT("\b\f\n\r\t"), "\"\\b\\f\\n\\r\\t\"");
    expect_json(TEXT("\0\x01\x1f\x7f"), "\"\\u0000\\u0001\\u001f\\u007f\"");
    expect_json(TEXT("ü€𝄞"), "\"ü€𝄞\"");
}

static void
json_replaces_what_is_not_utf8(void **state)
{
    (void)state;
#define R "\xef\xbf\xbd"
    expect_json(TEXT("a\xff"
                     "b"),
                "\"a" R "b\"");
    expect_json(TEXT("\xc3"), "\"" R "\"");                        /* cut short */
    expect_json(TEXT("\xe2\x82"), "\"" R R "\"");                  /* cut short */
    expect_json(TEXT("\xc0\xaf"), "\"" R R "\"");                  /* overlong */
    expect_json(TEXT("\xe0\x80\xaf"), "\"" R R R "\"");            /* overlong */
    expect_json(TEXT("\xf0\x80\x80\xaf"), "\"" R R R R "\"");      /* overlong */
    expect_json(TEXT("\xed\xa0\x80"), "\"" R R R "\"");            /* surrogate */
    expect_json(TEXT("\xf4\x90\x80\x80"), "\"" R R R R "\"");      /* over U+10FFFF */
    expect_json(TEXT("\xf4\x8f\xbf\xbf"), "\"\xf4\x8f\xbf\xbf\""); /* U+10FFFF */
    expect_json(TEXT("\xed\x9f\xbf\xee\x80\x80"), "\"\xed\x9f\xbf\xee\x80\x80\"");
    expect_json(TEXT("\xc3(\x80"), "\"" R "(" R "\"");
#undef R
}

static void
expect_logfmt(struct text text, const char *logfmt)
{
    struct strbuf buf = STRBUF_INIT;
    strbuf_add_logfmt(&buf, text);
    expect_text(strbuf_text(&buf), logfmt);
    strbuf_fini(&buf);
}

static void
logfmt_quotes_only_where_needed(void **state)
{
    (void)state;
    expect_logfmt(TEXT("127.0.0.1:17000"), "127.0.0.1:17000");
    expect_logfmt(TEXT("/greet.GreetService/Greet"), "/greet.GreetService/Greet");
    expect_logfmt(TEXT(""), "\"\"");
    expect_logfmt(TEXT("two words"), "\"two words\"");
    expect_logfmt(TEXT("a=b"), "\"a=b\"");
    expect_logfmt(TEXT("say \"hi\"\n"), "\"say \\\"hi\\\"\\n\"");
    expect_logfmt(TEXT("\xff"), "\"\xef\xbf\xbd\"");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(empty_buffer_has_no_text_but_can_be_taken),
        cmocka_unit_test(grows_and_stays_terminated),
        cmocka_unit_test(printf_of_any_length_is_whole),
        cmocka_unit_test(bytes_put_into_reserved_room_are_taken_terminated),
        cmocka_unit_test(json_escapes_what_it_must),
        cmocka_unit_test(json_replaces_what_is_not_utf8),
        cmocka_unit_test(logfmt_quotes_only_where_needed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
