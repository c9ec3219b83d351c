/* prefix: gRPC's length-prefixed messages, on every split of the bytes. */
#include "wire_test.h"

#include "proxy/base/strbuf.h"
#include "proxy/wire/prefix.h"

static struct strbuf
    story; /* what the reader reported: "M0:5 hello . " for a message, "!" for a bad flag */

static void
tell(struct prefix_reader *reader, const uint8_t *data, size_t len)
{
    const uint8_t *body;
    size_t body_len;

    for (;;) {
        switch (prefix_next(reader, &data, &len, &body, &body_len)) {
        case PREFIX_NEED_MORE:
            assert_int_equal(len, 0);
            return;
        case PREFIX_MESSAGE:
            strbuf_addf(&story, "M%d:%u ", reader->current.compressed, reader->current.length);
            break;
        case PREFIX_BODY:
            assert_true(body_len > 0);
            strbuf_add(&story, body, body_len);
            break;
        case PREFIX_DONE:
            strbuf_add_str(&story, " . ");
            break;
        case PREFIX_BAD_FLAG:
            strbuf_add_char(&story, '!');
            return;
        }
    }
}

/* Fed whole, byte by byte, and at every single split, the same story comes out. */
static void
assert_story(struct text bytes, const char *expected)
{
    for (size_t split = 0; split <= bytes.len + 1; split++) {
        struct prefix_reader reader = {.have = 0};

        strbuf_clear(&story);
        if (split <= bytes.len) {
            tell(&reader, (const uint8_t *)bytes.ptr, split);
            if (story.len == 0 || story.data[story.len - 1] != '!')
                tell(&reader, (const uint8_t *)bytes.ptr + split, bytes.len - split);
        } else {
            for (size_t i = 0;
                 i < bytes.len && (story.len == 0 || story.data[story.len - 1] != '!'); i++)
                tell(&reader, (const uint8_t *)bytes.ptr + i, 1);
        }
        assert_str(strbuf_text(&story), expected);
    }
    strbuf_fini(&story);
}

static void
messages_come_out_whole_on_every_split(void **state)
{
    (void)state;
    assert_story(TEXT("\0\0\0\0\x05hello\1\0\0\0\x02zz"), "M0:5 hello . M1:2 zz . ");
}

static void
empty_messages_are_messages(void **state)
{
    (void)state;
    assert_story(TEXT("\0\0\0\0\0"), "M0:0  . ");
    assert_story(TEXT("\1\0\0\0\0\0\0\0\0\0\0\0\0\0\1x"), "M1:0  . M0:0  . M0:1 x . ");
}

static void
a_flag_over_1_is_reported_and_stays(void **state)
{
    static const char *const bad[] = {"\x02\0\0\0\1x", "\xff", "\x10\0"};
    struct prefix_reader reader = {.have = 0};
    const uint8_t good[] = {0, 0, 0, 0, 0}, wrong[] = {2};
    const uint8_t *data = wrong, *body;
    size_t len = 1, body_len;

    (void)state;
    for (size_t i = 0; i < COUNT(bad); i++)
        assert_story(text_make(bad[i], i == 0 ? 6 : 1 + (i == 2)), "!");
    assert_story(TEXT("\0\0\0\0\1a\x03"), "M0:1 a . !");
    assert_int_equal(prefix_next(&reader, &data, &len, &body, &body_len), PREFIX_BAD_FLAG);
    data = good;
    len = sizeof(good);
    assert_int_equal(prefix_next(&reader, &data, &len, &body, &body_len), PREFIX_BAD_FLAG);
    assert_false(prefix_at_boundary(&reader));
}

static void
lengths_are_big_endian_and_may_be_4_gib(void **state)
{
    (void)state;
    assert_story(TEXT("\0\xff\xff\xff\xff"
                      "ab"),
                 "M0:4294967295 ab");
    assert_story(TEXT("\1\1\2\3\4"), "M1:16909060 ");
}

static void
only_the_place_between_messages_is_a_boundary(void **state)
{
    const uint8_t bytes[] = {0, 0, 0, 0, 2, 'h', 'i'};
    struct prefix_reader reader = {.have = 0};

    (void)state;
    assert_true(prefix_at_boundary(&reader));
    for (size_t i = 0; i < sizeof(bytes); i++) {
        tell(&reader, bytes + i, 1);
        assert_int_equal(prefix_at_boundary(&reader), i == sizeof(bytes) - 1);
    }
    assert_int_equal(reader.messages, 1);
    strbuf_fini(&story);
}

static void
written_prefixes_are_read_back(void **state)
{
    static const uint32_t lengths[] = {0, 1, 255, 256, 65536, 0x01020304, UINT32_MAX};
    uint8_t bytes[PREFIX_BYTES];

    (void)state;
    for (size_t i = 0; i < COUNT(lengths); i++)
        for (int flag = 0; flag < 2; flag++) {
            struct prefix_reader reader = {.have = 0};
            const uint8_t *data = bytes, *body;
            size_t len = sizeof(bytes), body_len;

            prefix_write(bytes, flag, lengths[i]);
            assert_int_equal(prefix_next(&reader, &data, &len, &body, &body_len), PREFIX_MESSAGE);
            assert_int_equal(reader.current.length, lengths[i]);
            assert_int_equal(reader.current.compressed, flag);
        }
    prefix_write(bytes, false, 5);
    assert_memory_equal(bytes, "\0\0\0\0\5", 5);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(messages_come_out_whole_on_every_split),
        TEST(empty_messages_are_messages),
        TEST(a_flag_over_1_is_reported_and_stays),
        TEST(lengths_are_big_endian_and_may_be_4_gib),
        TEST(only_the_place_between_messages_is_a_boundary),
        TEST(written_prefixes_are_read_back),
    };

    return cmocka_run_group_tests_name("prefix", tests, NULL, NULL);
}
