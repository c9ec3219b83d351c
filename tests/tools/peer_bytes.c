/* See peer_bytes.h. */
#include "peer_bytes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

void
peer_check_failed(const char *cond, const char *file, int line)
{
    fprintf(stderr, "%s:%d: check failed: %s\n", file, line, cond);
    abort();
}

void *
peer_alloc(size_t bytes)
{
    void *at = malloc(bytes);
    peer_check(at);
    return at;
}

struct peer_body *
peer_body_new(size_t cap_bytes)
{
    struct peer_body *body = peer_alloc(sizeof *body + cap_bytes);
    body->refs = 1;
    body->len = 0;
    body->cap = cap_bytes;
    return body;
}

struct peer_body *
peer_body_copy(const void *data, size_t len_bytes)
{
    return peer_body_append(peer_body_new(len_bytes), data, len_bytes);
}

struct peer_body *
peer_body_ref(struct peer_body *body)
{
    body->refs++;
    return body;
}

void
peer_body_unref(struct peer_body *body)
{
    if (body && --body->refs == 0)
        free(body);
}

struct peer_body *
peer_body_append(struct peer_body *body, const void *data, size_t len_bytes)
{
    peer_check(body->refs == 1);
    if (len_bytes > body->cap - body->len) {
        size_t cap = body->cap * 2 > body->len + len_bytes ? body->cap * 2 : body->len + len_bytes;
        body = realloc(body, sizeof *body + cap);
        peer_check(body);
        body->cap = cap;
    }
    if (len_bytes)
        memcpy(body->data + body->len, data, len_bytes);
    body->len += len_bytes;
    return body;
}

void
peer_prefix_write(uint8_t at[PEER_PREFIX_BYTES], bool compressed, size_t len_bytes)
{
    at[0] = compressed ? 1 : 0;
    at[1] = (uint8_t)(len_bytes >> 24);
    at[2] = (uint8_t)(len_bytes >> 16);
    at[3] = (uint8_t)(len_bytes >> 8);
    at[4] = (uint8_t)len_bytes;
}

struct peer_body *
peer_body_message(bool compressed, const void *data, size_t len_bytes)
{
    struct peer_body *body = peer_body_new(PEER_PREFIX_BYTES + len_bytes);
    peer_prefix_write(body->data, compressed, len_bytes);
    body->len = PEER_PREFIX_BYTES;
    return peer_body_append(body, data, len_bytes);
}

/* A period of 251 bytes, prime to every power of two, so that a chunk which lands at the wrong
 * place of a body is seen. */
void
peer_pattern_fill(uint8_t *at, size_t offset, size_t len_bytes)
{
    unsigned value = (unsigned)(offset % 251);
    for (size_t i = 0; i < len_bytes; i++) {
        at[i] = (uint8_t)value;
        value = value == 250 ? 0 : value + 1;
    }
}

void
peer_random_fill(uint8_t *at, size_t len_bytes)
{
    uint64_t state = 0x9e3779b97f4a7c15u;
    for (size_t i = 0; i < len_bytes; i++) {
        state ^= state << 13; /* xorshift64 */
        state ^= state >> 7;
        state ^= state << 17;
        at[i] = (uint8_t)(state >> 32);
    }
}

#define GZIP_WINDOW_BITS (15 + 16) /* zlib's way to ask for the gzip container */

struct peer_body *
peer_gzip(const uint8_t *data, size_t len_bytes, int level)
{
    z_stream z = {.next_in = (Bytef *)data, .avail_in = (uInt)len_bytes};
    peer_check(deflateInit2(&z, level, Z_DEFLATED, GZIP_WINDOW_BITS, 8, Z_DEFAULT_STRATEGY) ==
               Z_OK);
    struct peer_body *out = peer_body_new(deflateBound(&z, (uLong)len_bytes));
    z.next_out = out->data;
    z.avail_out = (uInt)out->cap;
    peer_check(deflate(&z, Z_FINISH) == Z_STREAM_END);
    out->len = z.total_out;
    deflateEnd(&z);
    return out;
}

struct peer_body *
peer_gunzip(const uint8_t *data, size_t len_bytes, size_t max_bytes)
{
    struct peer_body *out = peer_body_new(len_bytes * 4);
    if (len_bytes == 0)
        return out;
    z_stream z = {.next_in = (Bytef *)data, .avail_in = (uInt)len_bytes};
    peer_check(inflateInit2(&z, GZIP_WINDOW_BITS) == Z_OK);
    uint8_t step[16384];
    int rv = Z_OK;
    while (rv == Z_OK && out->len <= max_bytes) {
        z.next_out = step;
        z.avail_out = sizeof step;
        rv = inflate(&z, Z_NO_FLUSH);
        out = peer_body_append(out, step, sizeof step - z.avail_out);
    }
    bool whole = rv == Z_STREAM_END && z.avail_in == 0 && out->len <= max_bytes;
    inflateEnd(&z);
    if (whole)
        return out;
    peer_body_unref(out);
    return NULL;
}

static bool
take_prefix(struct peer_framer *framer, const uint8_t **data, size_t *len_bytes)
{
    while (framer->prefix_len < PEER_PREFIX_BYTES && *len_bytes) {
        framer->prefix[framer->prefix_len++] = *(*data)++;
        --*len_bytes;
    }
    return framer->prefix_len == PEER_PREFIX_BYTES;
}

static int
start_message(struct peer_framer *framer)
{
    const uint8_t *p = framer->prefix;
    size_t len = (size_t)p[1] << 24 | (size_t)p[2] << 16 | (size_t)p[3] << 8 | p[4];
    if (p[0] > 1 || len > framer->max_bytes)
        return -1;
    framer->want_bytes = PEER_PREFIX_BYTES + len;
    framer->body = peer_body_new(framer->want_bytes);
    framer->body = peer_body_append(framer->body, p, PEER_PREFIX_BYTES);
    return 0;
}

int
peer_framer_feed(struct peer_framer *framer, const uint8_t **data, size_t *len_bytes,
                 struct peer_body **message)
{
    if (!framer->body) {
        if (!take_prefix(framer, data, len_bytes))
            return 0;
        if (start_message(framer) < 0)
            return -1;
    }
    size_t lacking = framer->want_bytes - framer->body->len;
    size_t take = *len_bytes < lacking ? *len_bytes : lacking;
    framer->body = peer_body_append(framer->body, *data, take);
    *data += take;
    *len_bytes -= take;
    if (take < lacking)
        return 0;
    *message = framer->body;
    framer->body = NULL;
    framer->prefix_len = 0;
    return 1;
}

bool
peer_framer_at_rest(const struct peer_framer *framer)
{
    return !framer->body && framer->prefix_len == 0;
}

void
peer_framer_fini(struct peer_framer *framer)
{
    peer_body_unref(framer->body);
    framer->body = NULL;
}
