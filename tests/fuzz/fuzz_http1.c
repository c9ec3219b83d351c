/*
 * The HTTP/1.1 reader, requests and responses. The first byte picks role, head limit, HEAD reply
 * and the split; the rest is the input. The same story however it is split; what was read as a
 * request is read back from what is written.
 */
#include "fuzz.h"

#include "proxy/base/strbuf.h"
#include "proxy/wire/header_class.h"
#include "proxy/wire/http1.h"

struct way {
    enum http1_role role;
    size_t max_head;
    bool head_reply;
};

/* What the reader said, body pieces joined. */
struct story {
    struct strbuf text;
    size_t used;
    struct http1_reader reader;
    struct arena arena;
};

static void
tell_fields(struct story *story, const struct fields *fields)
{
    fields_for_each (field, fields) {
        check(header_name_valid(field->name) && header_value_valid(field->value));
        strbuf_add_text(&story->text, field->name);
        strbuf_add_char(&story->text, ':');
        strbuf_add_text(&story->text, field->value);
        strbuf_add_char(&story->text, '\n');
    }
}

static void
tell_head(struct story *story)
{
    const struct http1_reader *reader = &story->reader;

    check(!(reader->chunked && reader->content_length >= 0));
    check(!(reader->until_close && (reader->chunked || reader->keep_alive)));
    check(reader->content_length >= -1 && reader->minor >= 0 && reader->minor <= 1);
    if (reader->role == HTTP1_RESPONSE)
        check(reader->status >= 100 && reader->status <= 599 &&
              reader->interim == (reader->status < 200));
    else
        check(reader->method.len > 0 && reader->target.len > 0);
    strbuf_addf(&story->text, "HEAD %.*s %.*s %d %d%d%d%d%d%d %lld\n", TEXT_ARGS(reader->method),
                TEXT_ARGS(reader->target), reader->status, reader->interim, reader->minor,
                reader->chunked, reader->until_close, reader->keep_alive, reader->expect_continue,
                (long long)reader->content_length);
    tell_fields(story, &reader->fields);
}

/* False after END or BAD. */
static bool
feed(struct story *story, const uint8_t *data, size_t len)
{
    struct http1_reader *reader = &story->reader;
    uint8_t *copy = fuzz_copy(data, len);
    const uint8_t *next = copy, *body = NULL;
    size_t left = len, body_len = 0;
    enum http1_event event;

    do {
        event = http1_reader_next(reader, &next, &left, &body, &body_len);
        check(left <= len && next == copy + (len - left));
        if (event == HTTP1_BODY) {
            check(body_len > 0 && body >= copy && body + body_len <= next);
            strbuf_add(&story->text, body, body_len);
        } else if (event == HTTP1_HEAD) {
            tell_head(story);
        }
    } while (event == HTTP1_BODY || event == HTTP1_HEAD);
    if (event == HTTP1_END)
        tell_fields(story, &reader->trailers);
    if (event == HTTP1_BAD)
        check(reader->error != NULL && reader->error_status >= 400 && reader->error_status <= 505);
    check(event != HTTP1_NEED_MORE || left == 0);
    if (event != HTTP1_NEED_MORE)
        strbuf_addf(&story->text, "event %d\n", event);
    story->used =
        event == HTTP1_BAD ? 0 : story->used + (len - left); /* after BAD it is no matter */
    free(copy);
    return event == HTTP1_NEED_MORE;
}

static void
story_begin(struct story *story, const struct way *way)
{
    *story = (struct story){.text = STRBUF_INIT};
    arena_init(&story->arena, NULL, 0);
    http1_reader_init(&story->reader, way->role, way->max_head, &story->arena);
    if (way->head_reply)
        http1_reader_expect_head(&story->reader);
}

static void
story_end(struct story *story)
{
    strbuf_fini(&story->text);
    http1_reader_fini(&story->reader);
    arena_fini(&story->arena);
}

static void
story_read(struct story *story, const struct way *way, const uint8_t *data, size_t size,
           size_t step)
{
    bool more = true;

    story_begin(story, way);
    check(http1_reader_idle(&story->reader));
    for (size_t at = 0; more && at < size; at += step)
        more = feed(story, data + at, size - at < step ? size - at : step);
    if (more)
        strbuf_addf(&story->text, "eof %d\n", http1_reader_eof(&story->reader));
}

static bool
head_is_complete(const struct story *story)
{
    return story->text.len > 5 && memcmp(story->text.data, "HEAD ", 5) == 0;
}

/* A request that was read is the same when it is written and read again. */
static void
check_written(const struct story *story)
{
    const struct http1_reader *read = &story->reader;
    struct way way = {.role = HTTP1_REQUEST, .max_head = 1 << 20};
    struct strbuf out = STRBUF_INIT;
    struct story again;

    http1_write_request(&out, read->method, read->target, &read->fields);
    story_begin(&again, &way);
    feed(&again, (const uint8_t *)out.data, out.len);
    if (read->minor == 1) { /* in 1.0 a host is not needed, in what is written it is */
        check(head_is_complete(&again));
        check(text_eq(again.reader.method, read->method) &&
              text_eq(again.reader.target, read->target));
        check(again.reader.fields.count == read->fields.count);
        check(again.reader.content_length == read->content_length &&
              again.reader.chunked == read->chunked);
    }
    story_end(&again);
    strbuf_fini(&out);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;

    struct way way = {.role = data[0] & 1 ? HTTP1_RESPONSE : HTTP1_REQUEST,
                      .max_head = data[0] & 2 ? 64 : 4096,
                      .head_reply = (data[0] & 5) == 5};
    size_t step = (size_t)(data[0] >> 3) + 2;
    struct story whole, bytes, split;

    data++;
    size--;
    story_read(&whole, &way, data, size, size ? size : 1);
    story_read(&bytes, &way, data, size, 1);
    story_read(&split, &way, data, size, step);
    check(text_eq(strbuf_text(&whole.text), strbuf_text(&bytes.text)) && whole.used == bytes.used);
    check(text_eq(strbuf_text(&whole.text), strbuf_text(&split.text)) && whole.used == split.used);
    if (way.role == HTTP1_REQUEST && head_is_complete(&whole))
        check_written(&whole);
    story_end(&whole);
    story_end(&bytes);
    story_end(&split);
    return 0;
}
