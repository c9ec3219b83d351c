/*
 * The head of an HTTP/1.1 message, line by line (RFC 9112 sections 3 to 6).
 *
 * Owns the grammar of start lines and fields and the decision how long the body is. Does not own
 * where lines come from (http1_reader.c), nor what fields mean beyond the framing. Happy path:
 * start line, fields one by one (those that matter for framing are noted as they pass), finish.
 * Failure modes: each refusal sets a constant reason and the status that a server answers. Two ways
 * to read a length are always a refusal: that is what request smuggling is made of.
 */
#include "proxy/wire/http1_head.h"

#include "proxy/wire/header_class.h"

enum { BAD_REQUEST = 400, NOT_IMPLEMENTED = 501, VERSION_NOT_SUPPORTED = 505 };

/* Each byte of a token (RFC 9110 section 5.6.2) to its lower case, everything else to 0. */
static const char token_lower[256] = {
    ['!'] = '!', ['#'] = '#', ['$'] = '$', ['%'] = '%', ['&'] = '&', ['\''] = '\'', ['*'] = '*',
    ['+'] = '+', ['-'] = '-', ['.'] = '.', ['^'] = '^', ['_'] = '_', ['`'] = '`',   ['|'] = '|',
    ['~'] = '~', ['0'] = '0', ['1'] = '1', ['2'] = '2', ['3'] = '3', ['4'] = '4',   ['5'] = '5',
    ['6'] = '6', ['7'] = '7', ['8'] = '8', ['9'] = '9', ['a'] = 'a', ['b'] = 'b',   ['c'] = 'c',
    ['d'] = 'd', ['e'] = 'e', ['f'] = 'f', ['g'] = 'g', ['h'] = 'h', ['i'] = 'i',   ['j'] = 'j',
    ['k'] = 'k', ['l'] = 'l', ['m'] = 'm', ['n'] = 'n', ['o'] = 'o', ['p'] = 'p',   ['q'] = 'q',
    ['r'] = 'r', ['s'] = 's', ['t'] = 't', ['u'] = 'u', ['v'] = 'v', ['w'] = 'w',   ['x'] = 'x',
    ['y'] = 'y', ['z'] = 'z', ['A'] = 'a', ['B'] = 'b', ['C'] = 'c', ['D'] = 'd',   ['E'] = 'e',
    ['F'] = 'f', ['G'] = 'g', ['H'] = 'h', ['I'] = 'i', ['J'] = 'j', ['K'] = 'k',   ['L'] = 'l',
    ['M'] = 'm', ['N'] = 'n', ['O'] = 'o', ['P'] = 'p', ['Q'] = 'q', ['R'] = 'r',   ['S'] = 's',
    ['T'] = 't', ['U'] = 'u', ['V'] = 'v', ['W'] = 'w', ['X'] = 'x', ['Y'] = 'y',   ['Z'] = 'z',
};

bool
http1_head_refuse(struct http1_reader *reader, int status, const char *error)
{
    reader->error = error;
    reader->error_status = status;
    return false;
}

bool
http1_head_can_start(enum http1_role role, uint8_t byte)
{
    return role == HTTP1_RESPONSE ? byte == 'H' : token_lower[byte] != 0;
}

static bool
is_digit(char byte)
{
    return byte >= '0' && byte <= '9';
}

/* Visible ASCII only (RFC 9112 section 3.2 takes no more); what form it has is the caller's to
 * judge. */
static bool
is_target(struct text text)
{
    for (size_t i = 0; i < text.len; i++)
        if (text.ptr[i] <= ' ' || text.ptr[i] > '~')
            return false;
    return text.len > 0;
}

/* "HTTP/1.1": HTTP/1.x for x over 1 is read as 1.1 (RFC 9110 section 2.5). */
static bool
version_read(struct http1_reader *reader, struct text version)
{
    if (version.len != 8 || !text_starts(version, TEXT("HTTP/")) || !is_digit(version.ptr[5]) ||
        version.ptr[6] != '.' || !is_digit(version.ptr[7]))
        return http1_head_refuse(reader, BAD_REQUEST, "not an HTTP version");
    if (version.ptr[5] != '1')
        return http1_head_refuse(reader, VERSION_NOT_SUPPORTED, "not HTTP/1");
    reader->minor = version.ptr[7] != '0';
    return true;
}

static bool
request_line(struct http1_reader *reader, struct text line)
{
    ptrdiff_t first = text_find(line, ' ', 0);
    ptrdiff_t second = first < 0 ? -1 : text_find(line, ' ', (size_t)first + 1);

    if (second < 0)
        return http1_head_refuse(reader, BAD_REQUEST, "not a request line");
    line = arena_copy(reader->arena, line);
    reader->method = text_make(line.ptr, (size_t)first);
    reader->target = text_make(line.ptr + first + 1, (size_t)(second - first - 1));
    if (!header_token_valid(reader->method))
        return http1_head_refuse(reader, BAD_REQUEST, "not a method");
    if (!is_target(reader->target))
        return http1_head_refuse(reader, BAD_REQUEST, "not a request target");
    return version_read(reader, text_from(line, (size_t)second + 1));
}

/* "HTTP/1.1 200 OK"; the space before an empty reason is often left out, and nothing depends on it.
 */
static bool
status_line(struct http1_reader *reader, struct text line)
{
    if (line.len < 12 || line.ptr[8] != ' ' || (line.len > 12 && line.ptr[12] != ' '))
        return http1_head_refuse(reader, BAD_REQUEST, "not a status line");
    if (!version_read(reader, text_make(line.ptr, 8)))
        return false;

    const char *digits = line.ptr + 9;

    if (digits[0] < '1' || digits[0] > '5' || !is_digit(digits[1]) || !is_digit(digits[2]))
        return http1_head_refuse(reader, BAD_REQUEST, "not a status code");
    if (!header_value_valid(text_from(line, 12)))
        return http1_head_refuse(reader, BAD_REQUEST, "control byte in the reason");
    reader->status = (digits[0] - '0') * 100 + (digits[1] - '0') * 10 + (digits[2] - '0');
    reader->interim = reader->status < 200;
    if (reader->status == 101)
        return http1_head_refuse(reader, BAD_REQUEST, "a protocol switch that was not asked for");
    return true;
}

bool
http1_head_start(struct http1_reader *reader, struct text line)
{
    return reader->role == HTTP1_REQUEST ? request_line(reader, line) : status_line(reader, line);
}

/* Copies a field line into the arena and cuts it; the name in lower case. */
static bool
field_split(struct http1_reader *reader, struct text line, struct text *name, struct text *value)
{
    char *copy = arena_alloc(reader->arena, line.len);
    size_t len = 0;

    if (line.ptr[0] == ' ' || line.ptr[0] == '\t')
        return http1_head_refuse(reader, BAD_REQUEST, "folded line");
    for (; len < line.len && token_lower[(uint8_t)line.ptr[len]] != 0; len++)
        copy[len] = token_lower[(uint8_t)line.ptr[len]];
    if (len == 0 || len == line.len || line.ptr[len] != ':')
        return http1_head_refuse(reader, BAD_REQUEST, "not a field name");
    memcpy(copy + len, line.ptr + len, line.len - len);
    *name = text_make(copy, len);
    *value = text_trim(text_make(copy + len + 1, line.len - len - 1));
    if (!header_value_valid(*value))
        return http1_head_refuse(reader, BAD_REQUEST, "control byte in a field value");
    return true;
}

static void
count_up(uint8_t *count)
{
    if (*count < UINT8_MAX)
        (*count)++;
}

static bool
length_read(struct http1_reader *reader, struct text value)
{
    uint64_t length;

    count_up(&reader->lengths);
    /* A list, even of equal numbers, is two lengths. */
    if (reader->lengths > 1 || !text_to_u64(value, &length) || length > INT64_MAX)
        return http1_head_refuse(reader, BAD_REQUEST, "not one content-length");
    reader->content_length = (int64_t)length;
    return true;
}

static bool
coding_read(struct http1_reader *reader, struct text value)
{
    count_up(&reader->codings);
    if (reader->codings > 1)
        return http1_head_refuse(reader, BAD_REQUEST, "more than one transfer-encoding");
    if (!text_eq_nocase(value, TEXT("chunked")))
        return http1_head_refuse(reader, NOT_IMPLEMENTED, "a transfer-encoding other than chunked");
    reader->chunked = true;
    return true;
}

static void
connection_read(struct http1_reader *reader, struct text value)
{
    struct text token;

    while (text_next(&value, ',', &token)) {
        reader->close_asked |= text_eq_nocase(token, TEXT("close"));
        reader->keep_alive_asked |= text_eq_nocase(token, TEXT("keep-alive"));
    }
}

/* uri-host [":" port] by its bytes (RFC 9110 section 7.2); empty is legal. */
static bool
host_read(struct http1_reader *reader, struct text value)
{
    count_up(&reader->hosts);
    if (reader->hosts > 1)
        return http1_head_refuse(reader, BAD_REQUEST, "more than one host");
    for (size_t i = 0; i < value.len; i++)
        if (value.ptr[i] <= ' ' || value.ptr[i] > '~' || strchr("\"#/<>?@\\^`{|}", value.ptr[i]))
            return http1_head_refuse(reader, BAD_REQUEST, "not a host");
    return true;
}

bool
http1_head_field(struct http1_reader *reader, struct text line)
{
    struct text name, value;

    if (!field_split(reader, line, &name, &value))
        return false;
    enum header_class class = header_class_of(name);
    header_class_keep(fields_add(&reader->fields, name, value, 0), class);
    switch (class) {
    case HEADER_CONTENT_LENGTH:
        return length_read(reader, value);
    case HEADER_HOST:
        return host_read(reader, value);
    case HEADER_EXPECT:
        reader->expect_continue |= text_eq_nocase(value, TEXT("100-continue"));
        return true;
    case HEADER_HOP:
        if (text_eq(name, TEXT("transfer-encoding")))
            return coding_read(reader, value);
        if (text_eq(name, TEXT("connection")))
            connection_read(reader, value);
        return true;
    default:
        return true;
    }
}

bool
http1_head_trailer(struct http1_reader *reader, struct text line)
{
    struct text name, value;

    if (!field_split(reader, line, &name, &value))
        return false;
    fields_add(&reader->trailers, name, value, 0);
    return true;
}

/* RFC 9112 section 6.3, rules 1 and 2: these never have a body, whatever their fields say. */
static bool
has_no_body(const struct http1_reader *reader)
{
    if (reader->role == HTTP1_REQUEST)
        return false;
    return reader->head_request_reply || reader->interim || reader->status == 204 ||
           reader->status == 304;
}

static void
body_decide(struct http1_reader *reader)
{
    bool says_body = reader->chunked || reader->content_length > 0;

    reader->keep_alive = !reader->close_asked && (reader->minor > 0 || reader->keep_alive_asked);
    if (has_no_body(reader)) {
        /* A peer that means it would go on with a body: what follows can't be trusted. */
        if (says_body && !reader->head_request_reply && reader->status != 304)
            reader->keep_alive = false;
        reader->chunked = false;
        reader->remaining = 0;
        return;
    }
    reader->until_close =
        reader->role == HTTP1_RESPONSE && !reader->chunked && reader->content_length < 0;
    reader->keep_alive &= !reader->until_close;
    reader->remaining = reader->content_length > 0 ? (uint64_t)reader->content_length : 0;
}

bool
http1_head_finish(struct http1_reader *reader)
{
    if (reader->chunked && reader->lengths > 0)
        return http1_head_refuse(reader, BAD_REQUEST, "content-length with transfer-encoding");
    if (reader->chunked && reader->minor == 0)
        return http1_head_refuse(reader, BAD_REQUEST, "transfer-encoding in HTTP/1.0");
    if (reader->role == HTTP1_REQUEST && reader->minor > 0 && reader->hosts == 0)
        return http1_head_refuse(reader, BAD_REQUEST, "no host");
    reader->expect_continue &= reader->role == HTTP1_REQUEST && reader->minor > 0;
    body_decide(reader);
    return true;
}
