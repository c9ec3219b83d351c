/* percent: grpc-message both ways, broken UTF-8, cutting. */
#include "wire_test.h"

#include "proxy/wire/percent.h"

#define FFFD "\xef\xbf\xbd"

static void
plain_ascii_is_returned_without_a_copy(void **state)
{
    struct text message = TEXT("no such thing: a+b (\"x\") ~");

    (void)state;
    assert_ptr_equal(percent_encode(&arena, message, false).ptr, message.ptr);
    assert_ptr_equal(percent_decode(&arena, message).ptr, message.ptr);
    assert_int_equal(percent_encode(&arena, TEXT_NONE, true).len, 0);
    assert_int_equal(percent_decode(&arena, TEXT_NONE).len, 0);
}

static void
bytes_outside_printable_ascii_and_percent_are_escaped(void **state)
{
    (void)state;
    assert_str(percent_encode(&arena, TEXT("a%b\n\x7f\xc3\xa9\r"), false), "a%25b%0A%7F%C3%A9%0D");
    assert_str(percent_encode(&arena, TEXT("\0"), false), "%00");
    /* PROTOCOL-HTTP2.md's own interop case */
    assert_str(
        percent_encode(&arena,
                       TEXT("\t\ntest with whitespace\r\nand Unicode BMP \xe2\x98\xba and non-BMP "
                            "\xf0\x9f\x98\x88\t\n"),
                       false),
        "%09%0Atest with whitespace%0D%0Aand Unicode BMP %E2%98%BA and non-BMP %F0%9F%98%88%09%0A");
}

static void
plus_is_escaped_only_for_java_consumers(void **state)
{
    (void)state;
    assert_str(percent_encode(&arena, TEXT("a+b%"), false), "a+b%25");
    assert_str(percent_encode(&arena, TEXT("a+b%"), true), "a%2Bb%25");
}

static void
decoding_reverses_encoding_of_every_scalar_value_boundary(void **state)
{
    static const char *const texts[] = {"\x01",
                                        "%",
                                        "%%41",
                                        "\xc2\x80",
                                        "\xdf\xbf",
                                        "\xe0\xa0\x80",
                                        "\xed\x9f\xbf",
                                        "\xee\x80\x80",
                                        "\xef\xbf\xbf",
                                        "\xf0\x90\x80\x80",
                                        "\xf4\x8f\xbf\xbf",
                                        "+ +"};

    (void)state;
    for (size_t i = 0; i < COUNT(texts); i++)
        for (int plus = 0; plus < 2; plus++)
            assert_str(percent_decode(&arena, percent_encode(&arena, text_of(texts[i]), plus)),
                       texts[i]);
}

static void
invalid_escapes_stay_as_they_are(void **state)
{
    static const char *const texts[] = {"%", "%4", "100%", "%zz", "%4g", "%%", "a%-1b", "% 41"};

    (void)state;
    for (size_t i = 0; i < COUNT(texts); i++)
        assert_str(percent_decode(&arena, text_of(texts[i])), texts[i]);
    assert_str(percent_decode(&arena, TEXT("%41%6a%6A%")), "Ajj%");
    assert_str(percent_decode(&arena, TEXT("%%41")), "%A");
}

static void
broken_utf8_becomes_replacement_characters(void **state)
{
    static const char *const pairs[][2] = {
        {"\xe9t\xe9", FFFD "t" FFFD}, /* Latin-1, as dubbo-java 3.3 sends it */
        {"%ff%fe", FFFD FFFD},
        {"\xc3", FFFD},
        {"\xe2\x98", FFFD},
        {"\xe2\x98"
         "a",
         FFFD "a"},
        {"\xf0\x9f\x98", FFFD},
        {"\xc0\xaf", FFFD FFFD},
        {"\xe0\x80\xaf", FFFD FFFD FFFD},
        {"\xed\xa0\x80", FFFD FFFD FFFD},
        {"\xf4\x90\x80\x80", FFFD FFFD FFFD FFFD},
        {"\xf5\x80", FFFD FFFD},
        {"\x80", FFFD},
        {"a%C3%28", "a" FFFD "("},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(pairs); i++)
        assert_str(percent_decode(&arena, text_of(pairs[i][0])), pairs[i][1]);
}

/* Long texts are read eight bytes at a time: every byte at every place. */
static void
every_byte_is_escaped_or_not_anywhere_in_a_long_message(void **state)
{
    char message[26], expected[sizeof(message) + 3];

    (void)state;
    for (size_t at = 0; at < sizeof(message); at++)
        for (int byte = 0; byte < 256; byte++)
            for (int plus = 0; plus < 2; plus++) {
                bool escape = byte < 0x20 || byte > 0x7e || byte == '%' || (plus && byte == '+');
                struct text encoded;

                memset(message, 'x', sizeof(message));
                message[at] = (char)byte;
                snprintf(expected, sizeof(expected), escape ? "%.*s%%%02X%s" : "%.*s%c%s", (int)at,
                         "xxxxxxxxxxxxxxxxxxxxxxxxxx", byte, &"xxxxxxxxxxxxxxxxxxxxxxxxx"[at]);
                encoded = percent_encode(&arena, text_make(message, sizeof(message)), plus);
                assert_str(encoded, expected);
                if (byte < 0x80)
                    assert_text(percent_decode(&arena, encoded),
                                text_make(message, sizeof(message)));
            }
}

static void
a_broken_byte_is_replaced_anywhere_in_a_long_text(void **state)
{
    char text[24], expected[sizeof(text) + 3];

    (void)state;
    for (size_t at = 0; at < sizeof(text); at++) {
        memset(text, 'x', sizeof(text));
        text[at] = (char)0xe9;
        snprintf(expected, sizeof(expected), "%.*s" FFFD "%s", (int)at, "xxxxxxxxxxxxxxxxxxxxxxxx",
                 &"xxxxxxxxxxxxxxxxxxxxxxx"[at]);
        assert_str(percent_decode(&arena, text_make(text, sizeof(text))), expected);
    }
}

static void
a_cut_never_splits_a_sequence(void **state)
{
    struct text smile = TEXT("ab\xf0\x9f\x98\x88"
                             "c"); /* bytes 2 to 5 are one character */

    (void)state;
    assert_int_equal(percent_utf8_cut(smile, 100), 7);
    assert_int_equal(percent_utf8_cut(smile, 7), 7);
    assert_int_equal(percent_utf8_cut(smile, 6), 6);
    assert_int_equal(percent_utf8_cut(smile, 5), 2);
    assert_int_equal(percent_utf8_cut(smile, 3), 2);
    assert_int_equal(percent_utf8_cut(smile, 2), 2);
    assert_int_equal(percent_utf8_cut(smile, 0), 0);
    assert_int_equal(percent_utf8_cut(TEXT("\x80\x80\x80\x80\x80\x80\x80"), 6), 6);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(plain_ascii_is_returned_without_a_copy),
        TEST(bytes_outside_printable_ascii_and_percent_are_escaped),
        TEST(plus_is_escaped_only_for_java_consumers),
        TEST(decoding_reverses_encoding_of_every_scalar_value_boundary),
        TEST(invalid_escapes_stay_as_they_are),
        TEST(broken_utf8_becomes_replacement_characters),
        TEST(every_byte_is_escaped_or_not_anywhere_in_a_long_message),
        TEST(a_broken_byte_is_replaced_anywhere_in_a_long_text),
        TEST(a_cut_never_splits_a_sequence),
    };

    return cmocka_run_group_tests_name("percent", tests, NULL, NULL);
}
