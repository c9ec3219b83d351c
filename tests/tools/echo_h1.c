/* See echo_h1.h. */
#include "echo_h1.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "peer_text.h"

#define HEAD_MAX_BYTES (64u * 1024)
#define CHUNK_BYTES 16384u

void
echo_h1_init(struct echo_h1 *h1, struct peer_link *link, struct echo_provider *provider)
{
    *h1 = (struct echo_h1){.link = link, .provider = provider, .input = peer_body_new(4096)};
}

void
echo_h1_fini(struct echo_h1 *h1)
{
    if (h1->call)
        echo_call_free(h1->call);
    h1->call = NULL;
    peer_body_unref(h1->input);
    h1->input = NULL;
}

/* ---- replies ---- */

static void
put_text(struct echo_h1 *h1, const char *text)
{
    peer_link_put(h1->link, text, strlen(text));
}

static const char *
reason_of(const char *status)
{
    static const struct {
        const char *status, *reason;
    } reasons[] = {
        {"200", "OK"},
        {"400", "Bad Request"},
        {"404", "Not Found"},
        {"405", "Method Not Allowed"},
        {"408", "Request Timeout"},
        {"415", "Unsupported Media Type"},
        {"429", "Too Many Requests"},
        {"500", "Internal Server Error"},
        {"503", "Service Unavailable"},
    };
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
        if (strcmp(reasons[i].status, status) == 0)
            return reasons[i].reason;
    return "Status";
}

static void
put_chunks(struct echo_h1 *h1, struct peer_body *body)
{
    char head[16];
    for (size_t at = 0; at < body->len; at += CHUNK_BYTES) {
        size_t n = body->len - at < CHUNK_BYTES ? body->len - at : CHUNK_BYTES;
        snprintf(head, sizeof head, "%zx\r\n", n);
        put_text(h1, head);
        peer_link_put_body(h1->link, body, at, n);
        put_text(h1, "\r\n");
    }
    put_text(h1, "0\r\n\r\n");
}

void
echo_h1_reply(struct echo_h1 *h1, const nghttp2_nv *fields, size_t count, struct peer_body *body,
              bool chunked)
{
    char status[8];
    snprintf(status, sizeof status, "%.*s", (int)fields[0].valuelen, (char *)fields[0].value);
    struct peer_body *head = peer_body_new(512);
    head = peer_text_add(head, "HTTP/1.1 %s %s\r\n", status, reason_of(status));
    for (size_t i = 1; i < count; i++) {
        head = peer_body_append(head, fields[i].name, fields[i].namelen);
        head = peer_body_append(head, ": ", 2);
        head = peer_body_append(head, fields[i].value, fields[i].valuelen);
        head = peer_body_append(head, "\r\n", 2);
    }
    if (chunked)
        head = peer_text_add(head, "transfer-encoding: chunked\r\n");
    if (!h1->keep_alive)
        head = peer_text_add(head, "connection: close\r\n");
    head = peer_text_add(head, "\r\n");
    peer_link_put(h1->link, head->data, head->len);
    if (h1->provider->record) {
        peer_record_text(h1->provider->record, true, h1->link->number, "HEAD",
                         (const char *)head->data, head->len);
        peer_record_bytes(h1->provider->record, true, h1->link->number,
                          chunked ? "CHUNKED BODY" : "BODY", body->data, body->len);
    }
    peer_body_unref(head);
    if (chunked)
        put_chunks(h1, body);
    else
        peer_link_put_body(h1->link, body, 0, body->len);
    peer_body_unref(body);
    h1->state = h1->keep_alive ? ECHO_H1_HEAD : ECHO_H1_BROKEN;
    if (!h1->keep_alive) {
        peer_link_finish(h1->link);
        return;
    }
    peer_link_wake(h1->link);
    if (!h1->receiving) /* a request may have come while this one was delayed */
        echo_h1_receive(h1, NULL, 0);
}

static void
refuse(struct echo_h1 *h1)
{
    put_text(h1, "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    h1->state = ECHO_H1_BROKEN;
    peer_link_finish(h1->link);
}

/* ---- heads ---- */

/* Cuts a line off [*at, end). False when there is none, or when it holds a bare CR or a NUL. */
static bool
next_line(char **at, char *end, char **line, size_t *len)
{
    char *lf = memchr(*at, '\n', (size_t)(end - *at));
    if (!lf || lf == *at || lf[-1] != '\r')
        return false;
    *line = *at;
    *len = (size_t)(lf - 1 - *at);
    *at = lf + 1;
    return !memchr(*line, '\0', *len) && !memchr(*line, '\r', *len);
}

static bool
take_request_line(struct echo_h1 *h1, char *line, size_t len)
{
    char *verb_end = memchr(line, ' ', len);
    char *target = verb_end ? verb_end + 1 : NULL;
    char *target_end = target ? memchr(target, ' ', len - (size_t)(target - line)) : NULL;
    if (!target_end || len - (size_t)(target_end - line) != 9 ||
        memcmp(target_end, " HTTP/1.", 8) != 0)
        return false;
    h1->keep_alive = target_end[8] == '1';
    echo_call_field(h1->call, (const uint8_t *)":method", 7, (uint8_t *)line,
                    (size_t)(verb_end - line));
    echo_call_field(h1->call, (const uint8_t *)":path", 5, (uint8_t *)target,
                    (size_t)(target_end - target));
    return true;
}

static bool
equals(const char *text, size_t len, const char *literal)
{
    return strlen(literal) == len && strncasecmp(text, literal, len) == 0;
}

/* One field: to the call, and what rules the connection to h1. */
static bool
take_field(struct echo_h1 *h1, char *line, size_t len)
{
    char *colon = memchr(line, ':', len);
    if (!colon || colon == line || isspace((unsigned char)colon[-1]) ||
        isspace((unsigned char)line[0]))
        return false;
    size_t name_len = (size_t)(colon - line);
    for (size_t i = 0; i < name_len; i++)
        line[i] = (char)tolower((unsigned char)line[i]);
    char *value = colon + 1;
    size_t value_len = len - name_len - 1;
    while (value_len && (*value == ' ' || *value == '\t')) {
        value++;
        value_len--;
    }
    while (value_len && (value[value_len - 1] == ' ' || value[value_len - 1] == '\t'))
        value_len--;
    if (equals(line, name_len, "transfer-encoding")) {
        if (!equals(value, value_len, "chunked"))
            return false;
        h1->state = ECHO_H1_CHUNK_SIZE;
    } else if (equals(line, name_len, "connection") && equals(value, value_len, "close")) {
        h1->keep_alive = false;
    } else if (equals(line, name_len, "expect") && equals(value, value_len, "100-continue")) {
        put_text(h1, "HTTP/1.1 100 Continue\r\n\r\n");
        peer_link_wake(h1->link);
    }
    echo_call_field(h1->call, (uint8_t *)line, name_len, (uint8_t *)value, value_len);
    return true;
}

static bool
take_head(struct echo_h1 *h1, char *at, char *end)
{
    char *line;
    size_t len;
    if (h1->call)
        echo_call_free(h1->call);
    h1->call = echo_call_new(h1->provider, h1);
    h1->state = ECHO_H1_BODY;
    if (!next_line(&at, end, &line, &len) || !take_request_line(h1, line, len))
        return false;
    while (at < end) {
        if (!next_line(&at, end, &line, &len))
            return false;
        if (len && !take_field(h1, line, len))
            return false;
    }
    bool chunked = h1->state == ECHO_H1_CHUNK_SIZE;
    if (chunked && h1->call->content_length >= 0) /* both: a smuggling attempt or a bug */
        return false;
    h1->left_bytes = h1->call->content_length > 0 ? (uint64_t)h1->call->content_length : 0;
    echo_call_head(h1->call);
    return true;
}

/* ---- input ---- */

static void
end_request(struct echo_h1 *h1)
{
    h1->state = ECHO_H1_BUSY;
    if (h1->provider->record && h1->call->request)
        peer_record_bytes(h1->provider->record, false, h1->link->number, "BODY",
                          h1->call->request->data, h1->call->request->len);
    echo_call_end(h1->call);
}

/* The steps below look at the unconsumed input, return how much they consumed; 0: need more. */

static size_t
step_head(struct echo_h1 *h1, uint8_t *data, size_t len)
{
    uint8_t *end = memmem(data, len, "\r\n\r\n", 4);
    if (!end) {
        if (len > HEAD_MAX_BYTES)
            refuse(h1);
        return 0;
    }
    size_t head_len = (size_t)(end + 4 - data);
    if (h1->provider->record)
        peer_record_text(h1->provider->record, false, h1->link->number, "HEAD", (const char *)data,
                         head_len);
    if (!take_head(h1, (char *)data, (char *)data + head_len))
        refuse(h1);
    else if (h1->state == ECHO_H1_BODY && h1->left_bytes == 0)
        end_request(h1);
    return head_len;
}

static size_t
step_bytes(struct echo_h1 *h1, uint8_t *data, size_t len)
{
    size_t take = len < h1->left_bytes ? len : (size_t)h1->left_bytes;
    echo_call_data(h1->call, data, take);
    h1->left_bytes -= take;
    if (h1->left_bytes == 0) {
        if (h1->state == ECHO_H1_CHUNK)
            h1->state = ECHO_H1_CHUNK_END;
        else
            end_request(h1);
    }
    return take;
}

static size_t
step_line(struct echo_h1 *h1, uint8_t *data, size_t len)
{
    char *at = (char *)data, *line, *end;
    size_t line_len;
    if (!memchr(data, '\n', len)) {
        if (len > 1024)
            refuse(h1);
        return 0;
    }
    if (!next_line(&at, (char *)data + len, &line, &line_len)) {
        refuse(h1);
        return 0;
    }
    if (h1->state == ECHO_H1_CHUNK_END && line_len == 0) {
        h1->state = ECHO_H1_CHUNK_SIZE;
    } else if (h1->state == ECHO_H1_CHUNK_SIZE && line_len && isxdigit((unsigned char)line[0])) {
        h1->left_bytes = strtoull(line, &end, 16);
        if (*end != '\r' && *end != ';')
            refuse(h1);
        else
            h1->state = h1->left_bytes ? ECHO_H1_CHUNK : ECHO_H1_TRAILERS;
    } else if (h1->state != ECHO_H1_TRAILERS) {
        refuse(h1);
    } else if (line_len == 0) {
        end_request(h1);
    }
    return (size_t)(at - (char *)data);
}

void
echo_h1_receive(struct echo_h1 *h1, const uint8_t *data, size_t len_bytes)
{
    if (h1->input_at == h1->input->len)
        h1->input->len = h1->input_at = 0;
    h1->input = peer_body_append(h1->input, data, len_bytes);
    h1->receiving = true;
    while (h1->input_at < h1->input->len && h1->state < ECHO_H1_BUSY) {
        uint8_t *from = h1->input->data + h1->input_at;
        size_t len = h1->input->len - h1->input_at;
        size_t used;
        if (h1->state == ECHO_H1_HEAD)
            used = step_head(h1, from, len);
        else if (h1->state == ECHO_H1_BODY || h1->state == ECHO_H1_CHUNK)
            used = step_bytes(h1, from, len);
        else
            used = step_line(h1, from, len);
        if (used == 0)
            break;
        h1->input_at += used;
    }
    h1->receiving = false;
}
