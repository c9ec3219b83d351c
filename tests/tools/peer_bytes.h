/*
 * Bytes of the try-out peers: reference counted bodies, and the reader of gRPC's length-prefixed
 * messages.
 *
 * Owns: struct peer_body. Does not own: sockets, streams. A body is filled by its only owner and
 * is read-only once a second reference exists; that is what lets a reply be sent without a copy.
 * Out of memory ends the program: these are test tools.
 */
#ifndef TOOLS_PEER_BYTES_H
#define TOOLS_PEER_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PEER_PREFIX_BYTES 5u

struct peer_body {
    unsigned refs;
    size_t len;
    size_t cap;
    uint8_t data[];
};

/* Aborts with a message: for what can only be a bug of these tools, or no memory. */
#define peer_check(cond) ((cond) ? (void)0 : peer_check_failed(#cond, __FILE__, __LINE__))
_Noreturn void peer_check_failed(const char *cond, const char *file, int line);

/* malloc that ends the program instead of returning NULL. */
void *peer_alloc(size_t bytes);

/* A body with one reference, no bytes and room for cap_bytes. */
struct peer_body *peer_body_new(size_t cap_bytes);
/* A body with one reference that holds a copy of the bytes. */
struct peer_body *peer_body_copy(const void *data, size_t len_bytes);
struct peer_body *peer_body_ref(struct peer_body *body);
/* Takes NULL too. */
void peer_body_unref(struct peer_body *body);
/* Appends to a body with a single reference; it may move, so use what is returned. */
struct peer_body *peer_body_append(struct peer_body *body, const void *data, size_t len_bytes);

/* One gRPC message, prefix included: flag byte, big-endian length, then the given bytes. */
struct peer_body *peer_body_message(bool compressed, const void *data, size_t len_bytes);
/* Writes flag and length into five bytes. */
void peer_prefix_write(uint8_t at[PEER_PREFIX_BYTES], bool compressed, size_t len_bytes);

/* The byte at an offset of the generated test payloads; fills a range that starts at offset. */
void peer_pattern_fill(uint8_t *at, size_t offset, size_t len_bytes);

/* Bytes that do not compress, the same in every run. */
void peer_random_fill(uint8_t *at, size_t len_bytes);

/* gzip both ways, level 1 (fastest) to 9. A new body with one reference; NULL if the input is not
 * gzip or would inflate to more than max_bytes. Zero input bytes inflate to zero bytes. */
struct peer_body *peer_gzip(const uint8_t *data, size_t len_bytes, int level);
struct peer_body *peer_gunzip(const uint8_t *data, size_t len_bytes, size_t max_bytes);

/* Cuts a byte stream into messages. Zero it before use; max_bytes bounds one message. */
struct peer_framer {
    size_t max_bytes;
    struct peer_body *body; /* the message under way, prefix included; NULL between messages */
    size_t want_bytes;      /* prefix and message; valid once body is not NULL */
    uint8_t prefix[PEER_PREFIX_BYTES];
    uint8_t prefix_len;
};

/*
 * Takes bytes from *data (advances it, lessens *len_bytes) up to the end of one message.
 * Returns 1 and hands over *message (one reference, prefix included) when one is complete, 0 when
 * more bytes are needed, -1 when the message is longer than max_bytes or its flag is not 0 or 1.
 */
int peer_framer_feed(struct peer_framer *framer, const uint8_t **data, size_t *len_bytes,
                     struct peer_body **message);
/* True between messages, when an end of stream cuts nothing off. */
bool peer_framer_at_rest(const struct peer_framer *framer);
void peer_framer_fini(struct peer_framer *framer);

#endif
