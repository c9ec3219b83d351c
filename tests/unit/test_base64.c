/* base64: RFC 4648 section 10's vectors, padding, wrong alphabets. */
#include "wire_test.h"

#include "proxy/wire/base64.h"

static void
rfc_4648_vectors_in_both_directions(void **state)
{
    static const char *const vectors[][3] = {
        {"", "", ""},
        {"f", "Zg", "Zg=="},
        {"fo", "Zm8", "Zm8="},
        {"foo", "Zm9v", "Zm9v"},
        {"foob", "Zm9vYg", "Zm9vYg=="},
        {"fooba", "Zm9vYmE", "Zm9vYmE="},
        {"foobar", "Zm9vYmFy", "Zm9vYmFy"},
    };
    struct text bytes;

    (void)state;
    for (size_t i = 0; i < COUNT(vectors); i++) {
        assert_str(base64_encode(&arena, text_of(vectors[i][0])), vectors[i][1]);
        for (int padded = 1; padded <= 2; padded++) {
            assert_true(base64_decode(&arena, text_of(vectors[i][padded]), &bytes));
            assert_str(bytes, vectors[i][0]);
        }
    }
}

static void
all_byte_values_survive(void **state)
{
    char bytes[259];
    struct text back;

    (void)state;
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (char)(i * 7);
    for (size_t len = 0; len <= sizeof(bytes); len++) {
        struct text encoded = base64_encode(&arena, text_make(bytes, len));

        assert_int_equal(encoded.len, (len * 4 + 2) / 3);
        assert_true(base64_decode(&arena, encoded, &back));
        assert_text(back, text_make(bytes, len));
    }
}

static void
padded_and_unpadded_details_are_the_same_bytes(void **state)
{
    struct text bytes;

    (void)state;
    assert_true(base64_decode(&arena, TEXT("CgIIBQ"), &bytes));
    assert_text(bytes, TEXT("\x0a\x02\x08\x05"));
    assert_true(base64_decode(&arena, TEXT("CgIIBQ=="), &bytes));
    assert_text(bytes, TEXT("\x0a\x02\x08\x05"));
    assert_str(base64_encode(&arena, bytes), "CgIIBQ");
}

static void
wrong_alphabet_padding_and_length_are_refused(void **state)
{
    static const char *const bad[] = {"-_8",   "!!!",      "A",       "AAAAA",     "=",
                                      "==",    "====",     "A===",    "AA=",       "AAA==",
                                      "AAAA=", "AAAA==",   "AA=A",    "AA\n",      " AAA",
                                      "AA AA", "AA==AA==", "AQI,AwQ", "AQ\xc3\xa9"};
    struct text bytes;

    (void)state;
    for (size_t i = 0; i < COUNT(bad); i++)
        assert_false(base64_decode(&arena, text_of(bad[i]), &bytes));
    assert_false(base64_decode(&arena, TEXT("AA\0A"), &bytes));
}

static void
a_byte_outside_the_alphabet_is_found_anywhere(void **state)
{
    static const char alphabet[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char encoded[11];
    struct text bytes;

    (void)state;
    for (size_t len = 2; len <= sizeof(encoded); len++)
        for (size_t at = 0; at < len && len % 4 != 1; at++)
            for (int byte = 0; byte < 256; byte++) {
                bool legal = byte != 0 && strchr(alphabet, byte) != NULL;

                if (byte == '=')
                    continue; /* padding, at the end */
                memset(encoded, 'A', sizeof(encoded));
                encoded[at] = (char)byte;
                if (base64_decode(&arena, text_make(encoded, len), &bytes) != legal)
                    fail_msg("byte %d at %zu of %zu", byte, at, len);
            }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(rfc_4648_vectors_in_both_directions),
        TEST(all_byte_values_survive),
        TEST(padded_and_unpadded_details_are_the_same_bytes),
        TEST(a_byte_outside_the_alphabet_is_found_anywhere),
        TEST(wrong_alphabet_padding_and_length_are_refused),
    };

    return cmocka_run_group_tests_name("base64", tests, NULL, NULL);
}
