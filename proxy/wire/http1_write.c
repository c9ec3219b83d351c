/*
 * Writing HTTP/1.1 heads and chunk sizes (RFC 9112).
 *
 * Owns the syntax on the way out, and that nothing which came in by another protocol can end a line
 * early: fields with illegal bytes are left out, targets are escaped. Does not own which fields a
 * message needs.
 */
#include "proxy/wire/header_class.h"
#include "proxy/wire/http1.h"

static char *
put(char *to, const char *bytes, size_t len)
{
    memcpy(to, bytes, len);
    return to + len;
}

static void
field_write(struct strbuf *out, const struct field *field)
{
    size_t len = field->name.len + field->value.len + 4;
    char *to;

    if (!header_name_valid(field->name) || !header_value_valid(field->value))
        return; /* pseudo fields too: ':' is no byte of a name */
    to = strbuf_reserve(out, len);
    to = put(to, field->name.ptr, field->name.len);
    to = put(to, ": ", 2);
    if (field->value.len > 0)
        to = put(to, field->value.ptr, field->value.len);
    put(to, "\r\n", 2);
    out->len += len;
}

static void
fields_write(struct strbuf *out, const struct fields *fields)
{
    fields_for_each (field, fields)
        field_write(out, field);
    strbuf_add(out, "\r\n", 2);
}

static void
target_write(struct strbuf *out, struct text target)
{
    size_t plain = 0;

    while (plain < target.len && target.ptr[plain] > ' ' && target.ptr[plain] <= '~')
        plain++;
    strbuf_add(out, target.ptr, plain);
    for (size_t i = plain; i < target.len; i++) {
        if (target.ptr[i] > ' ' && target.ptr[i] <= '~')
            strbuf_add_char(out, target.ptr[i]);
        else
            strbuf_addf(out, "%%%02X", (unsigned)(uint8_t)target.ptr[i]);
    }
}

void
http1_write_request(struct strbuf *out, struct text method, struct text target,
                    const struct fields *fields)
{
    strbuf_add_text(out, method);
    strbuf_add_char(out, ' ');
    target_write(out, target.len > 0 ? target : TEXT("/"));
    strbuf_add(out, " HTTP/1.1\r\n", 11);
    fields_write(out, fields);
}

void
http1_write_response(struct strbuf *out, int status, const struct fields *fields)
{
    strbuf_addf(out, "HTTP/1.1 %03d %s\r\n", status, http1_reason(status));
    fields_write(out, fields);
}

void
http1_write_chunk_head(struct strbuf *out, uint64_t bytes)
{
    char line[18];
    size_t from = sizeof(line);

    line[--from] = '\n';
    line[--from] = '\r';
    do {
        line[--from] = "0123456789abcdef"[bytes & 15];
        bytes >>= 4;
    } while (bytes > 0);
    strbuf_add(out, line + from, sizeof(line) - from);
}

const char *
http1_reason(int status)
{
    static const struct {
        int status;
        const char *reason;
    } reasons[] = {
        {200, "OK"},
        {100, "Continue"},
        {103, "Early Hints"},
        {201, "Created"},
        {202, "Accepted"},
        {204, "No Content"},
        {301, "Moved Permanently"},
        {302, "Found"},
        {304, "Not Modified"},
        {307, "Temporary Redirect"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {408, "Request Timeout"},
        {409, "Conflict"},
        {411, "Length Required"},
        {412, "Precondition Failed"},
        {413, "Content Too Large"},
        {414, "URI Too Long"},
        {415, "Unsupported Media Type"},
        {417, "Expectation Failed"},
        {426, "Upgrade Required"},
        {429, "Too Many Requests"},
        {431, "Request Header Fields Too Large"},
        {499, "Client Closed Request"},
        {500, "Internal Server Error"},
        {501, "Not Implemented"},
        {502, "Bad Gateway"},
        {503, "Service Unavailable"},
        {504, "Gateway Timeout"},
        {505, "HTTP Version Not Supported"},
    };

    for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++)
        if (reasons[i].status == status)
            return reasons[i].reason;
    return "";
}
