/* See peer_text.h. */
#include "peer_text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    int http;
} codes[] = {
    {"ok", 200},
    {"canceled", 408},
    {"unknown", 500},
    {"invalid_argument", 400},
    {"deadline_exceeded", 408},
    {"not_found", 404},
    {"already_exists", 409},
    {"permission_denied", 403},
    {"resource_exhausted", 429},
    {"failed_precondition", 412},
    {"aborted", 409},
    {"out_of_range", 400},
    {"unimplemented", 404},
    {"internal", 500},
    {"unavailable", 503},
    {"data_loss", 500},
    {"unauthenticated", 401},
    {"code_17", 500},
};
#define CODE_COUNT (int)(sizeof codes / sizeof *codes)

const char *
peer_code_name(int code)
{
    return codes[code >= 0 && code < CODE_COUNT ? code : 2].name;
}

int
peer_code_http(int code)
{
    return codes[code >= 0 && code < CODE_COUNT ? code : 2].http;
}

int
peer_code_of_name(const char *name, size_t len)
{
    for (int code = 1; code < CODE_COUNT; code++)
        if (strlen(codes[code].name) == len && memcmp(codes[code].name, name, len) == 0)
            return code;
    return -1;
}

struct peer_body *
peer_text_add(struct peer_body *out, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    peer_check(n >= 0 && (size_t)n < sizeof text);
    return peer_body_append(out, text, (size_t)n);
}

struct peer_body *
peer_text_json(struct peer_body *out, const char *text, size_t len)
{
    out = peer_body_append(out, "\"", 1);
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c == '"' || c == '\\')
            out = peer_text_add(out, "\\%c", c);
        else if (c < 0x20 || c == '<' || c == '>' || c == '&') /* as Go's encoder does */
            out = peer_text_add(out, "\\u%04x", c);
        else
            out = peer_body_append(out, &text[i], 1);
    }
    return peer_body_append(out, "\"", 1);
}

struct peer_body *
peer_text_base64(struct peer_body *out, const uint8_t *data, size_t len)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < len; i += 3) {
        size_t left = len - i;
        uint32_t group = (uint32_t)data[i] << 16 | (left > 1 ? (uint32_t)data[i + 1] << 8 : 0) |
                         (left > 2 ? data[i + 2] : 0);
        char text[4];
        for (int d = 0; d < 4; d++)
            text[d] = digits[group >> (18 - 6 * d) & 63];
        out = peer_body_append(out, text, left > 2 ? 4 : left + 1);
    }
    return out;
}

struct peer_body *
peer_text_percent(struct peer_body *out, const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c < 0x20 || c > 0x7e || c == '%')
            out = peer_text_add(out, "%%%02X", c);
        else
            out = peer_body_append(out, &text[i], 1);
    }
    return out;
}

int64_t
peer_text_grpc_timeout_ms(const char *text, size_t len)
{
    static const struct {
        char unit;
        int64_t ns;
    } units[] = {
        {'n', 1},          {'u', 1000},        {'m', 1000000},
        {'S', 1000000000}, {'M', 60000000000}, {'H', 3600000000000},
    };
    int64_t value = 0;
    if (len < 2 || len > 9)
        return -1;
    for (size_t i = 0; i + 1 < len; i++) {
        if (text[i] < '0' || text[i] > '9')
            return -1;
        value = value * 10 + (text[i] - '0');
    }
    for (size_t u = 0; u < sizeof units / sizeof *units; u++)
        if (units[u].unit == text[len - 1])
            return units[u].ns >= 1000000 ? value * (units[u].ns / 1000000)
                                          : (value * units[u].ns + 999999) / 1000000;
    return -1;
}

long
peer_text_number_of(const uint8_t *text, size_t len)
{
    long value = 0;
    if (len == 0 || len > 18)
        return -1;
    for (size_t i = 0; i < len; i++) {
        if (text[i] < '0' || text[i] > '9')
            return -1;
        value = value * 10 + (text[i] - '0');
    }
    return value;
}

bool
peer_text_option(const char *text, size_t len, const char *name, bool to_end, char *value,
                 size_t value_cap)
{
    size_t name_len = strlen(name);
    for (size_t i = 0; i + name_len < len; i++) {
        if ((i && text[i - 1] != ' ') || memcmp(text + i, name, name_len) != 0 ||
            text[i + name_len] != '=')
            continue;
        const char *from = text + i + name_len + 1;
        size_t left = len - i - name_len - 1;
        const char *space = to_end ? NULL : memchr(from, ' ', left);
        size_t n = space ? (size_t)(space - from) : left;
        n = n < value_cap - 1 ? n : value_cap - 1;
        memcpy(value, from, n);
        value[n] = '\0';
        return true;
    }
    return false;
}

long
peer_text_number(const char *text, size_t len, const char *name, long fallback)
{
    char value[24];
    char *end;
    if (!peer_text_option(text, len, name, false, value, sizeof value) || !value[0])
        return fallback;
    long number = strtol(value, &end, 10);
    return *end ? fallback : number;
}
