/*
 * The HTTP/1.1 reader: input to lines, lines to a head, then the body in one of its four forms.
 *
 * Owns the place in the message and the one line that may be split over inputs. Does not own the
 * input, the arena, or the grammar of the head (http1_head.c). Happy path: START → FIELDS → HEAD
 * event → LENGTH, CHUNK_* or CLOSE with BODY events → END, which repeats until
 * http1_reader_restart(). A 1xx head goes back to START.
 * Failure modes: BAD, which also repeats. Lines that are whole in the input are read there; only
 * split ones are collected, never more than their limit. The result does not depend on how the
 * input is split.
 */
#include "proxy/wire/http1.h"

#include "proxy/base/mem.h"
#include "proxy/wire/header_class.h"
#include "proxy/wire/http1_head.h"

enum state {
    START = 0,
    START_AGAIN, /* one empty line before a request was skipped (RFC 9112 section 2.2) */
    FIELDS,
    LENGTH, /* `remaining` bytes of body, then the end */
    CLOSE,  /* body until the connection ends */
    CHUNK_HEAD,
    CHUNK_DATA,
    CHUNK_END, /* the CRLF behind a chunk */
    TRAILERS,
    DONE,
    FAILED,
};

enum {
    CHUNK_LINE_MAX = 256,  /* size and extensions of a chunk; nobody needs longer ones */
    CHUNK_DIGITS_MAX = 15, /* hexadecimal; keeps the size under 2^60 */
    LINE_KEPT_MAX = 4096,  /* bytes of line buffer that stay with an idle reader */
    BAD_REQUEST = 400,
    FIELDS_TOO_LARGE = 431,
};

/* A view of the input that steps forward. */
struct input {
    const uint8_t *data;
    size_t len;
};

enum line_result { LINE_MORE, LINE_WHOLE, LINE_REFUSED };

static void
message_clear(struct http1_reader *reader)
{
    reader->method = reader->target = TEXT_NONE;
    reader->status = 0;
    reader->interim = false;
    reader->content_length = -1;
    reader->chunked = reader->until_close = reader->keep_alive = reader->expect_continue = false;
    reader->lengths = reader->codings = reader->hosts = 0;
    reader->close_asked = reader->keep_alive_asked = false;
    reader->remaining = 0;
    fields_init(&reader->fields, reader->arena);
}

void
http1_reader_init(struct http1_reader *reader, enum http1_role role, size_t max_head,
                  struct arena *arena)
{
    *reader = (struct http1_reader){.role = role, .max_head = max_head};
    http1_reader_restart(reader, arena);
}

void
http1_reader_fini(struct http1_reader *reader)
{
    mem_free(reader->line);
    reader->line = NULL;
    reader->line_cap = 0;
}

void
http1_reader_restart(struct http1_reader *reader, struct arena *arena)
{
    reader->arena = arena;
    message_clear(reader);
    fields_init(&reader->trailers, arena);
    reader->minor = 0;
    reader->error = NULL;
    reader->error_status = 0;
    reader->state = START;
    reader->line_len = reader->head_len = 0;
    reader->head_request_reply = false;
    if (reader->line_cap > LINE_KEPT_MAX)
        http1_reader_fini(reader);
}

void
http1_reader_expect_head(struct http1_reader *reader)
{
    reader->head_request_reply = true;
}

bool
http1_reader_idle(const struct http1_reader *reader)
{
    return reader->state <= START_AGAIN && reader->line_len == 0 && reader->status == 0;
}

static void
step(struct input *input, size_t bytes)
{
    input->data += bytes;
    input->len -= bytes;
}

static void
line_collect(struct http1_reader *reader, const uint8_t *bytes, size_t len)
{
    if (reader->line_len + len > reader->line_cap) {
        reader->line_cap = (reader->line_len + len) * 2;
        reader->line = mem_realloc(reader->line, reader->line_cap);
    }
    memcpy(reader->line + reader->line_len, bytes, len);
    reader->line_len += len;
}

/*
 * The next line without its CRLF, a view of the input or of the collected bytes, valid until the
 * next call. `limit` is for the line with its CRLF; *used is what the line took of it.
 */
static enum line_result
line_next(struct http1_reader *reader, struct input *input, size_t limit, struct text *line,
          size_t *used)
{
    if (input->len == 0)
        return LINE_MORE;

    const uint8_t *end = memchr(input->data, '\n', input->len);
    size_t bytes = end != NULL ? (size_t)(end - input->data) + 1 : input->len;

    if (bytes > limit || reader->line_len > limit - bytes) {
        http1_head_refuse(reader, FIELDS_TOO_LARGE, "head too long");
        return LINE_REFUSED;
    }
    if (end == NULL || reader->line_len > 0)
        line_collect(reader, input->data, bytes);
    *line = text_make(input->data, bytes);
    step(input, bytes);
    if (end == NULL)
        return LINE_MORE;
    if (reader->line_len > 0)
        *line = text_make(reader->line, reader->line_len);
    *used = line->len;
    reader->line_len = 0;
    if (line->len < 2 || line->ptr[line->len - 2] != '\r') {
        http1_head_refuse(reader, BAD_REQUEST, "line feed without carriage return");
        return LINE_REFUSED;
    }
    line->len -= 2;
    return LINE_WHOLE;
}

/* A line that counts against max_head. */
static enum line_result
head_line_next(struct http1_reader *reader, struct input *input, struct text *line)
{
    size_t used = 0;
    enum line_result result =
        line_next(reader, input, reader->max_head - reader->head_len, line, &used);

    reader->head_len += used;
    return result;
}

static enum http1_event
fail(struct http1_reader *reader)
{
    reader->state = FAILED;
    return HTTP1_BAD;
}

static enum http1_event
refuse(struct http1_reader *reader, const char *error)
{
    http1_head_refuse(reader, BAD_REQUEST, error);
    return fail(reader);
}

static enum http1_event
done(struct http1_reader *reader)
{
    reader->state = DONE;
    return HTTP1_END;
}

/* Every state function returns an event, or GO_ON when the next state has to look at the input. */
enum { GO_ON = -1 };

static int
start_next(struct http1_reader *reader, struct input *input)
{
    struct text line;

    if (reader->line_len == 0 && input->len > 0) {
        bool empty_line =
            reader->role == HTTP1_REQUEST && reader->state == START && *input->data == '\r';

        if (!empty_line && !http1_head_can_start(reader->role, *input->data))
            return refuse(reader, "not HTTP/1");
    }
    if (input->len == 0)
        return HTTP1_NEED_MORE;
    switch (head_line_next(reader, input, &line)) {
    case LINE_MORE:
        return HTTP1_NEED_MORE;
    case LINE_REFUSED:
        return fail(reader);
    case LINE_WHOLE:
        break;
    }
    if (line.len == 0) {
        reader->state = START_AGAIN;
        return GO_ON;
    }
    if (reader->interim)
        message_clear(reader);
    if (!http1_head_start(reader, line))
        return fail(reader);
    reader->state = FIELDS;
    return GO_ON;
}

static enum state
state_after_head(const struct http1_reader *reader)
{
    if (reader->interim)
        return START;
    if (reader->chunked)
        return CHUNK_HEAD;
    return reader->until_close ? CLOSE : LENGTH;
}

static int
fields_next(struct http1_reader *reader, struct input *input)
{
    struct text line;

    for (;;) {
        switch (head_line_next(reader, input, &line)) {
        case LINE_MORE:
            return HTTP1_NEED_MORE;
        case LINE_REFUSED:
            return fail(reader);
        case LINE_WHOLE:
            break;
        }
        if (line.len == 0)
            break;
        if (!http1_head_field(reader, line))
            return fail(reader);
    }
    if (!http1_head_finish(reader))
        return fail(reader);
    reader->state = state_after_head(reader);
    return HTTP1_HEAD;
}

/* Body bytes from the input, at most `remaining`. */
static enum http1_event
body_take(struct http1_reader *reader, struct input *input, struct input *body)
{
    *body = *input;
    if (body->len > reader->remaining)
        body->len = (size_t)reader->remaining;
    reader->remaining -= body->len;
    step(input, body->len);
    return HTTP1_BODY;
}

static int
length_next(struct http1_reader *reader, struct input *input, struct input *body)
{
    if (reader->remaining == 0)
        return done(reader);
    return input->len > 0 ? body_take(reader, input, body) : HTTP1_NEED_MORE;
}

static int
close_next(struct input *input, struct input *body)
{
    if (input->len == 0)
        return HTTP1_NEED_MORE;
    *body = *input;
    step(input, input->len);
    return HTTP1_BODY;
}

static int
hex_value(char byte)
{
    if (byte >= '0' && byte <= '9')
        return byte - '0';
    byte |= 0x20;
    return byte >= 'a' && byte <= 'f' ? byte - 'a' + 10 : -1;
}

/* chunk-size [ BWS ";" … ]: extensions are skipped, but have to be lines of a head (RFC 9112
 * section 7.1.1). */
static bool
chunk_size(struct text line, uint64_t *size)
{
    size_t digits = 0;

    *size = 0;
    for (; digits < line.len && hex_value(line.ptr[digits]) >= 0; digits++) {
        if (digits == CHUNK_DIGITS_MAX)
            return false;
        *size = *size << 4 | (uint64_t)hex_value(line.ptr[digits]);
    }
    if (digits == 0)
        return false;
    if (digits == line.len)
        return true;

    struct text extensions = text_trim(text_from(line, digits));

    return extensions.len > 1 && extensions.ptr[0] == ';' && header_value_valid(extensions);
}

static int
chunk_head_next(struct http1_reader *reader, struct input *input)
{
    struct text line;
    size_t used;

    if (input->len == 0)
        return HTTP1_NEED_MORE;
    switch (line_next(reader, input, CHUNK_LINE_MAX, &line, &used)) {
    case LINE_MORE:
        return HTTP1_NEED_MORE;
    case LINE_REFUSED:
        return refuse(reader, "not a chunk size");
    case LINE_WHOLE:
        break;
    }
    if (!chunk_size(line, &reader->remaining))
        return refuse(reader, "not a chunk size");
    reader->head_len = 0; /* trailers have max_head of their own */
    reader->state = reader->remaining > 0 ? CHUNK_DATA : TRAILERS;
    return GO_ON;
}

static int
chunk_data_next(struct http1_reader *reader, struct input *input, struct input *body)
{
    if (input->len == 0)
        return HTTP1_NEED_MORE;
    body_take(reader, input, body);
    if (reader->remaining == 0)
        reader->state = CHUNK_END;
    return HTTP1_BODY;
}

/* Exactly CRLF; line_len counts how much of it has been seen. */
static int
chunk_end_next(struct http1_reader *reader, struct input *input)
{
    static const char line_end[2] = "\r\n";

    for (; input->len > 0 && reader->line_len < sizeof(line_end); step(input, 1))
        if (*input->data != (uint8_t)line_end[reader->line_len++])
            return refuse(reader, "chunk longer than its size");
    if (reader->line_len < sizeof(line_end))
        return HTTP1_NEED_MORE;
    reader->line_len = 0;
    reader->state = CHUNK_HEAD;
    return GO_ON;
}

static int
trailers_next(struct http1_reader *reader, struct input *input)
{
    struct text line;

    for (;;) {
        switch (head_line_next(reader, input, &line)) {
        case LINE_MORE:
            return HTTP1_NEED_MORE;
        case LINE_REFUSED:
            return fail(reader);
        case LINE_WHOLE:
            break;
        }
        if (line.len == 0)
            return done(reader);
        if (!http1_head_trailer(reader, line))
            return fail(reader);
    }
}

static int
state_next(struct http1_reader *reader, struct input *input, struct input *body)
{
    switch ((enum state)reader->state) {
    case START:
    case START_AGAIN:
        return start_next(reader, input);
    case FIELDS:
        return fields_next(reader, input);
    case LENGTH:
        return length_next(reader, input, body);
    case CLOSE:
        return close_next(input, body);
    case CHUNK_HEAD:
        return chunk_head_next(reader, input);
    case CHUNK_DATA:
        return chunk_data_next(reader, input, body);
    case CHUNK_END:
        return chunk_end_next(reader, input);
    case TRAILERS:
        return trailers_next(reader, input);
    case DONE:
        return HTTP1_END;
    case FAILED:
        break;
    }
    return HTTP1_BAD;
}

enum http1_event
http1_reader_next(struct http1_reader *reader, const uint8_t **data, size_t *len,
                  const uint8_t **body, size_t *body_len)
{
    struct input input = {*data, *len}, part = {NULL, 0};
    int event;

    do
        event = state_next(reader, &input, &part);
    while (event == GO_ON);
    *data = input.data;
    *len = input.len;
    if (event == HTTP1_BODY) {
        *body = part.data;
        *body_len = part.len;
    }
    return (enum http1_event)event;
}

enum http1_event
http1_reader_eof(struct http1_reader *reader)
{
    if (http1_reader_idle(reader))
        return HTTP1_NEED_MORE;
    switch ((enum state)reader->state) {
    case CLOSE:
        return done(reader);
    case LENGTH:
        if (reader->remaining == 0)
            return done(reader);
        break;
    case DONE:
        return HTTP1_END;
    case FAILED:
        return HTTP1_BAD;
    default:
        break;
    }
    return refuse(reader, "connection closed inside a message");
}
