/*
 * A reader's report of an input as one string, for comparing: the head, body bytes in brackets,
 * trailers, the end.
 *
 *   "POST /p 1.1 | host: h | content-length: 2 > keep 2 [hi] END"
 *   "200 1.1 | a: b > keep close …"  "BAD 400: reason"
 */
#ifndef TRIBUTARY_TESTS_UNIT_HTTP1_STORY_H
#define TRIBUTARY_TESTS_UNIT_HTTP1_STORY_H

#include "proxy/base/strbuf.h"
#include "proxy/wire/http1.h"
#include "wire_test.h"

static struct strbuf story;
static bool story_in_body;

static inline void
story_fields(const struct fields *fields)
{
    fields_for_each (field, fields)
        strbuf_addf(&story, "| %.*s: %.*s ", TEXT_ARGS(field->name), TEXT_ARGS(field->value));
}

static inline void
story_head(const struct http1_reader *reader)
{
    if (reader->role == HTTP1_REQUEST)
        strbuf_addf(&story, "%.*s %.*s 1.%d ", TEXT_ARGS(reader->method), TEXT_ARGS(reader->target),
                    reader->minor);
    else
        strbuf_addf(&story, "%d 1.%d ", reader->status, reader->minor);
    story_fields(&reader->fields);
    strbuf_add_char(&story, '>');
    strbuf_add_str(&story, reader->keep_alive ? " keep" : " drop");
    if (reader->content_length >= 0)
        strbuf_addf(&story, " %lld", (long long)reader->content_length);
    strbuf_add_str(&story, reader->chunked ? " chunked" : "");
    strbuf_add_str(&story, reader->until_close ? " until-close" : "");
    strbuf_add_str(&story, reader->interim ? " interim" : "");
    strbuf_add_str(&story, reader->expect_continue ? " expect" : "");
    strbuf_add_char(&story, ' ');
}

static inline void
story_body_end(void)
{
    if (story_in_body)
        strbuf_add_str(&story, "] ");
    story_in_body = false;
}

/* Tells one event; false when it was final. */
static inline bool
story_event(const struct http1_reader *reader, enum http1_event event, const uint8_t *body,
            size_t body_len)
{
    if (event == HTTP1_BODY) {
        assert_true(body_len > 0);
        if (!story_in_body)
            strbuf_add_char(&story, '[');
        story_in_body = true;
        strbuf_add(&story, body, body_len);
        return true;
    }
    if (event == HTTP1_NEED_MORE)
        return true;
    story_body_end();
    if (event == HTTP1_HEAD) {
        story_head(reader);
    } else if (event == HTTP1_END) {
        story_fields(&reader->trailers);
        strbuf_add_str(&story, "END");
    } else {
        strbuf_addf(&story, "BAD %d: %s", reader->error_status, reader->error);
    }
    return event == HTTP1_HEAD;
}

/* Feeds bytes; false after END or BAD. *used grows by what the reader took. */
static inline bool
story_feed(struct http1_reader *reader, const char *bytes, size_t len, size_t *used)
{
    /* A copy of exactly that size, so that the address sanitizer sees a read past the end. */
    uint8_t *copy = malloc(len ? len : 1);
    const uint8_t *data = copy, *body = NULL;
    size_t left = len, body_len = 0;
    enum http1_event event;
    bool going;

    memcpy(copy, bytes, len);
    do {
        event = http1_reader_next(reader, &data, &left, &body, &body_len);
        going = story_event(reader, event, body, body_len);
    } while (going && event != HTTP1_NEED_MORE);
    if (going)
        assert_int_equal(left, 0);
    *used += len - left;
    free(copy);
    return going;
}

struct story_case {
    enum http1_role role;
    size_t max_head;
    bool head_reply, eof;
};

/* The story of `input` fed in steps of `step` bytes, the first `first` bytes long. Gives how much
 * was used. */
static inline size_t
story_of(struct story_case how, struct text input, size_t first, size_t step)
{
    struct http1_reader reader;
    struct arena text_arena;
    bool going = true;
    size_t used = 0;

    strbuf_clear(&story);
    story_in_body = false;
    arena_init(&text_arena, NULL, 0);
    http1_reader_init(&reader, how.role, how.max_head, &text_arena);
    if (how.head_reply)
        http1_reader_expect_head(&reader);
    for (size_t at = 0; going && at < input.len;) {
        size_t len = at == 0 ? first : step;

        if (len > input.len - at)
            len = input.len - at;
        going = story_feed(&reader, input.ptr + at, len, &used);
        at += len;
    }
    if (going && how.eof)
        story_event(&reader, http1_reader_eof(&reader), NULL, 0);
    story_body_end();
    http1_reader_fini(&reader);
    arena_fini(&text_arena);
    return used;
}

/* Fed whole, at every single split and byte by byte, the same story comes out, and the same bytes
 * stay over. */
static inline void
assert_story(struct story_case how, struct text input, const char *expected, size_t left_over)
{
    for (size_t first = 1; first <= input.len; first++) {
        assert_int_equal(input.len - story_of(how, input, first, input.len), left_over);
        assert_str(strbuf_text(&story), expected);
    }
    assert_int_equal(input.len - story_of(how, input, 1, 1), left_over);
    assert_str(strbuf_text(&story), expected);
    strbuf_fini(&story);
}

static const struct story_case request = {.role = HTTP1_REQUEST, .max_head = 4096};
static const struct story_case response = {.role = HTTP1_RESPONSE, .max_head = 4096};

static inline void
assert_request(struct text input, const char *expected)
{
    assert_story(request, input, expected, 0);
}

static inline void
assert_response(struct text input, const char *expected)
{
    assert_story(response, input, expected, 0);
}

/* Refused with that status, whole and byte by byte; how much was read before is no matter. */
static inline void
assert_refused(struct story_case how, struct text input, int status)
{
    char expected[16];

    snprintf(expected, sizeof(expected), "BAD %d: ", status);
    for (size_t first = 1; first <= input.len; first++) {
        story_of(how, input, first, first == input.len - 1 ? 1 : input.len);
        if (story.len == 0 || strstr(story.data, expected) == NULL)
            fail_msg("not refused with %d but \"%s\": %.*s", status, story.data, TEXT_ARGS(input));
    }
    strbuf_fini(&story);
}

#endif
