/* See h2_lab.h: the raw peer, whose frames are written and read by hand. */
#include "h2_lab.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void
lab_raw(struct h2_lab *lab, const void *bytes, size_t len)
{
    if (lab->out_bytes + len > lab->out_cap) {
        lab->out_cap = (lab->out_bytes + len) * 2;
        lab->out = realloc(lab->out, lab->out_cap);
    }
    if (len)
        memcpy(lab->out + lab->out_bytes, bytes, len);
    lab->out_bytes += len;
}

static void
put_u32(uint8_t *into, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        into[i] = (uint8_t)(value >> (24 - 8 * i));
}

static uint32_t
get_u32(const uint8_t *from)
{
    return (uint32_t)from[0] << 24 | (uint32_t)from[1] << 16 | (uint32_t)from[2] << 8 | from[3];
}

void
lab_frame(struct h2_lab *lab, uint8_t type, uint8_t flags, uint32_t id, const void *payload,
          size_t len)
{
    uint8_t head[9] = {(uint8_t)(len >> 16), (uint8_t)(len >> 8), (uint8_t)len, type, flags};
    put_u32(head + 5, id);
    lab_raw(lab, head, sizeof head);
    lab_raw(lab, payload, len);
}

void
lab_word(struct h2_lab *lab, uint8_t type, uint8_t flags, uint32_t id, uint32_t word)
{
    uint8_t payload[4];
    put_u32(payload, word);
    lab_frame(lab, type, flags, id, payload, sizeof payload);
}

void
lab_goaway(struct h2_lab *lab, uint32_t last_id, uint32_t code)
{
    uint8_t payload[8];
    put_u32(payload, last_id);
    put_u32(payload + 4, code);
    lab_frame(lab, F_GOAWAY, 0, 0, payload, sizeof payload);
}

void
lab_settings(struct h2_lab *lab, const uint32_t *pairs, size_t count)
{
    uint8_t payload[64];
    for (size_t i = 0; i < count; i++) {
        payload[6 * i] = 0;
        payload[6 * i + 1] = (uint8_t)pairs[2 * i];
        put_u32(payload + 6 * i + 2, pairs[2 * i + 1]);
    }
    lab_frame(lab, F_SETTINGS, 0, 0, payload, 6 * count);
}

static size_t
put_length(uint8_t *into, size_t len)
{
    if (len < 127) {
        into[0] = (uint8_t)len;
        return 1;
    }
    size_t at = 0;
    into[at++] = 127;
    for (len -= 127; len >= 128; len /= 128)
        into[at++] = (uint8_t)(len % 128 + 128);
    into[at++] = (uint8_t)len;
    return at;
}

/* RFC 7541 section 6.2.2, not Huffman coded. */
size_t
lab_field(uint8_t *into, const void *name, size_t name_len, const void *value, size_t value_len)
{
    size_t at = 0;
    into[at++] = 0;
    at += put_length(into + at, name_len);
    memcpy(into + at, name, name_len);
    at += name_len;
    at += put_length(into + at, value_len);
    memcpy(into + at, value, value_len);
    return at + value_len;
}

void
lab_headers(struct h2_lab *lab, uint32_t id, uint8_t flags, ...)
{
    uint8_t block[16384];
    size_t len = 0;
    va_list args;
    va_start(args, flags);
    for (const char *name; (name = va_arg(args, const char *));) {
        const char *value = va_arg(args, const char *);
        len += lab_field(block + len, name, strlen(name), value, strlen(value));
    }
    va_end(args);
    lab_frame(lab, F_HEADERS, flags | END_HEADERS, id, block, len);
}

void
lab_request(struct h2_lab *lab, uint32_t id, bool end)
{
    lab_headers(lab, id, end ? END_STREAM : 0, ":method", "POST", ":scheme", "http", ":path",
                "/s/m", ":authority", "here", "content-type", "application/proto", NULL);
}

void
lab_preface(struct h2_lab *lab)
{
    lab_raw(lab, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 24);
    lab_settings(lab, NULL, 0);
}

void
lab_send(struct h2_lab *lab)
{
    raw_send(lab->fixture, lab->fd, lab->out, lab->out_bytes);
    lab->out_bytes = 0;
    loop_turn(lab->fixture);
}

/* --- the raw peer: receiving --- */

/* Reads until so many bytes of the next frame are there; false at EOF or after max_ms. */
static bool
need(struct h2_lab *lab, size_t bytes, unsigned max_ms)
{
    uint64_t end_ns = clock_now_ns() + max_ms * NS_PER_MS;
    while (lab->in_bytes - lab->in_at < bytes) {
        if (lab->in_cap < lab->in_at + bytes + 65536) {
            lab->in_cap = lab->in_at + bytes + (1 << 20);
            lab->in = realloc(lab->in, lab->in_cap);
        }
        ssize_t got = read(lab->fd, lab->in + lab->in_bytes, lab->in_cap - lab->in_bytes);
        if (got > 0) {
            lab->in_bytes += (size_t)got;
            continue;
        }
        if (got == 0 || errno != EAGAIN || clock_now_ns() > end_ns)
            return false;
        loop_run_ms(lab->fixture, 1);
    }
    return true;
}

static void
decode_fields(struct h2_lab *lab, struct lab_frame *frame)
{
    const uint8_t *in = frame->payload;
    size_t left = frame->len, at = 0;
    for (;;) {
        nghttp2_nv nv;
        int flags = 0;
        ssize_t taken = nghttp2_hd_inflate_hd2(lab->inflater, &nv, &flags, in, left,
                                               frame->flags & END_HEADERS);
        assert_true(taken >= 0);
        in += taken;
        left -= (size_t)taken;
        if (flags & NGHTTP2_HD_INFLATE_EMIT &&
            at + nv.namelen + nv.valuelen + 4 < sizeof frame->fields)
            at += (size_t)snprintf(frame->fields + at, sizeof frame->fields - at, "%.*s: %.*s\n",
                                   (int)nv.namelen, (char *)nv.name, (int)nv.valuelen,
                                   (char *)nv.value);
        if (flags & NGHTTP2_HD_INFLATE_FINAL) {
            nghttp2_hd_inflate_end_headers(lab->inflater);
            return;
        }
        if (!(flags & NGHTTP2_HD_INFLATE_EMIT) && left == 0)
            return;
    }
}

static struct lab_frame *
read_frame(struct h2_lab *lab, unsigned max_ms)
{
    struct lab_frame *frame = &lab->frame;
    if (!need(lab, 9, max_ms))
        return NULL;
    const uint8_t *head = lab->in + lab->in_at;
    size_t len = (size_t)head[0] << 16 | (size_t)head[1] << 8 | head[2];
    if (!need(lab, 9 + len, 5000))
        return NULL;
    head = lab->in + lab->in_at;
    *frame =
        (struct lab_frame){.type = head[3], .flags = head[4], .id = get_u32(head + 5), .len = len};
    frame->payload = lab->in + lab->in_at + 9;
    frame->word = len >= 4 ? get_u32(frame->payload) : 0;
    frame->word2 = len >= 8 ? get_u32(frame->payload + 4) : 0;
    lab->in_at += 9 + len;
    if (frame->type == F_HEADERS || frame->type == F_CONT)
        decode_fields(lab, frame);
    return frame;
}

struct lab_frame *
lab_next_any(struct h2_lab *lab)
{
    struct lab_frame *frame = read_frame(lab, 5000);
    if (!frame)
        fail_msg("no frame came");
    return frame;
}

static bool
skipped(struct h2_lab *lab, const struct lab_frame *frame)
{
    bool window = frame->type == F_WINDOW && frame->id == 0;
    lab->window_updates += window;
    return window || frame->type == F_SETTINGS;
}

struct lab_frame *
lab_next(struct h2_lab *lab)
{
    struct lab_frame *frame;
    do
        frame = lab_next_any(lab);
    while (skipped(lab, frame));
    return frame;
}

struct lab_frame *
lab_expect(struct h2_lab *lab, uint8_t type, uint32_t id, uint8_t flags)
{
    struct lab_frame *frame = lab_next(lab);
    if (frame->type != type || frame->id != id || frame->flags != flags)
        fail_msg("frame type %u stream %u flags %u len %zu word %u, not type %u stream %u flags %u",
                 frame->type, frame->id, frame->flags, frame->len, frame->word, type, id, flags);
    return frame;
}

void
lab_expect_goaway(struct h2_lab *lab, uint32_t code)
{
    struct lab_frame *frame;
    do
        frame = lab_next(lab);
    while (frame->type != F_GOAWAY);
    assert_int_equal(frame->word2, code);
}

void
lab_expect_eof(struct h2_lab *lab)
{
    size_t len;
    static uint8_t rest[65536];
    assert_int_equal(raw_recv_all(lab->fixture, lab->fd, rest, sizeof rest, &len), 0);
    assert_int_equal(len, 0);
    close(lab->fd);
    lab->fd = -1;
}

bool
lab_quiet(struct h2_lab *lab)
{
    struct lab_frame *frame;
    do
        frame = read_frame(lab, 30);
    while (frame && skipped(lab, frame));
    return !frame;
}

bool
lab_has(const struct lab_frame *frame, const char *line)
{
    size_t len = strlen(line);
    for (const char *at = frame->fields; *at; at = strchr(at, '\n') + 1)
        if (strncmp(at, line, len) == 0 && at[len] == '\n')
            return true;
    return false;
}
