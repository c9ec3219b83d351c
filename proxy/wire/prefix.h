/*
 * gRPC length-prefixed messages: 1 byte compressed flag (0 or 1), 4 bytes big-endian length, the
 * message (PROTOCOL-HTTP2.md, "Length-Prefixed-Message"). An incremental reader that works on any
 * split of the bytes.
 */
#ifndef TRIBUTARY_WIRE_PREFIX_H
#define TRIBUTARY_WIRE_PREFIX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PREFIX_BYTES = 5 };

struct prefix {
    bool compressed;
    uint32_t length; /* bytes of the message that follows */
};

/* Reads prefixes out of a byte stream; holds no message bytes. All zero is the start state. */
struct prefix_reader {
    uint8_t bytes[PREFIX_BYTES];
    uint8_t have;          /* prefix bytes read so far, 0 … 5; 5 while inside a message */
    uint32_t remaining;    /* message bytes still to come */
    struct prefix current; /* valid while have == 5 */
    uint32_t messages;     /* messages begun so far */
};

enum prefix_event {
    PREFIX_NEED_MORE, /* all input used */
    PREFIX_MESSAGE,   /* a prefix is complete: reader->current says what follows */
    PREFIX_BODY,      /* *body and *body_len: bytes of the current message (never empty) */
    PREFIX_DONE, /* the current message is complete (also right after PREFIX_MESSAGE of length 0) */
    PREFIX_BAD_FLAG, /* flag byte neither 0 nor 1: final */
};

/* Step over input: *data and *len advance past what was used. Call until PREFIX_NEED_MORE or
 * PREFIX_BAD_FLAG. */
enum prefix_event prefix_next(struct prefix_reader *reader, const uint8_t **data, size_t *len,
                              const uint8_t **body, size_t *body_len);
/* True between messages: an end here is clean. */
bool prefix_at_boundary(const struct prefix_reader *reader);
void prefix_write(uint8_t out[PREFIX_BYTES], bool compressed, uint32_t length);

#endif
