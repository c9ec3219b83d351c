/*
 * Whether what comes in on a stream is a well-formed HTTP message: RFC 9113 section 8.
 *
 * nghttp2 could check this itself, and is told not to: it would look up what each name means once
 * more, and test every byte of names that stand in a table. With the class that a field's name
 * needs in any case little is left to test: 2000 of 33 000 instructions of a small call were saved.
 * What a malformed message does to its stream is h2_session.c's business.
 */
#ifndef TRIBUTARY_NET_H2_MESSAGE_H
#define TRIBUTARY_NET_H2_MESSAGE_H

#include "proxy/wire/header_class.h"

/* The incoming message of one stream. All zero: nothing has come. */
struct h2_message {
    uint64_t length;   /* content-length, where H2_SEEN_LENGTH */
    uint64_t received; /* bytes of DATA, without padding */
    uint16_t status;   /* of a response; 0 until :status */
    uint16_t seen;     /* enum h2_seen */
};

enum h2_seen {
    H2_SEEN_METHOD = 1,
    H2_SEEN_SCHEME = 2,
    H2_SEEN_PATH = 4,
    H2_SEEN_AUTHORITY = 8,
    H2_SEEN_HOST = 16,
    H2_SEEN_LENGTH = 32,
    H2_SEEN_REGULAR = 64, /* no pseudo-header field may follow */
    H2_SEEN_CONNECT = 128,
    H2_SEEN_OPTIONS = 256,
    H2_SEEN_ASTERISK = 512, /* the path is "*" */
};

/* Whose words a header block is: which pseudo-header fields it may have. */
enum h2_message_block {
    H2_MESSAGE_REQUEST,
    H2_MESSAGE_REQUEST_TRAILERS,
    H2_MESSAGE_RESPONSE,
    H2_MESSAGE_RESPONSE_TRAILERS,
};

/* A field as it came. */
struct h2_message_field {
    struct text name, value;
    enum header_class class;            /* of the name */
    bool constant_name, constant_value; /* they are from HPACK's static table */
};

/* In the order of the block; false: the message is malformed. */
bool h2_message_take(struct h2_message *message, enum h2_message_block block,
                     const struct h2_message_field *field);
/* The head is complete; false: something is missing. */
bool h2_message_head(struct h2_message *message, enum h2_message_block block);
/* A 1xx head has begun. */
static inline bool
h2_message_is_interim(const struct h2_message *message)
{
    return message->status > 0 && message->status < 200;
}
/* It is over: the next block is a head again. */
void h2_message_interim(struct h2_message *message);
/* So many bytes of DATA more; false: over content-length. */
bool h2_message_data(struct h2_message *message, uint64_t bytes);
/* END_STREAM has come; false: there was less than content-length. */
bool h2_message_whole(const struct h2_message *message);

#endif
