/*
 * The reader of gRPC's length-prefixed messages.
 *
 * Owns the place in the stream (inside a prefix, inside a message); never the message bytes, and no
 * limit on their length: the caller compares reader->current.length with its own before it takes
 * anything. Happy path: MESSAGE, BODY as often as input comes, DONE, and again. An empty message is
 * MESSAGE, DONE. Failure: a flag byte over 1 is reported at that byte, before the length is there,
 * and stays reported.
 */
#include "proxy/wire/prefix.h"

#include <string.h>

static uint32_t
big_endian_32(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

static enum prefix_event
message_begin(struct prefix_reader *reader, const uint8_t bytes[PREFIX_BYTES])
{
    reader->current.compressed = bytes[0] == 1;
    reader->current.length = big_endian_32(bytes + 1);
    reader->remaining = reader->current.length;
    reader->have = PREFIX_BYTES;
    reader->messages++;
    return PREFIX_MESSAGE;
}

static enum prefix_event
body_next(struct prefix_reader *reader, const uint8_t **data, size_t *len, const uint8_t **body,
          size_t *body_len)
{
    if (reader->remaining == 0) {
        reader->have = 0;
        return PREFIX_DONE;
    }
    if (*len == 0)
        return PREFIX_NEED_MORE;
    *body = *data;
    *body_len = *len < reader->remaining ? *len : reader->remaining;
    reader->remaining -= (uint32_t)*body_len;
    *data += *body_len;
    *len -= *body_len;
    return PREFIX_BODY;
}

/* The slow way, for a prefix that is split over inputs. */
static enum prefix_event
prefix_collect(struct prefix_reader *reader, const uint8_t **data, size_t *len)
{
    size_t missing = PREFIX_BYTES - (size_t)reader->have;
    size_t taken = *len < missing ? *len : missing;

    memcpy(reader->bytes + reader->have, *data, taken);
    reader->have = (uint8_t)(reader->have + taken);
    *data += taken;
    *len -= taken;
    if (reader->have < PREFIX_BYTES)
        return PREFIX_NEED_MORE;
    return message_begin(reader, reader->bytes);
}

enum prefix_event
prefix_next(struct prefix_reader *reader, const uint8_t **data, size_t *len, const uint8_t **body,
            size_t *body_len)
{
    if (reader->have == PREFIX_BYTES)
        return body_next(reader, data, len, body, body_len);
    if (reader->have > 0 && reader->bytes[0] > 1)
        return PREFIX_BAD_FLAG;
    if (*len == 0)
        return PREFIX_NEED_MORE;
    if (reader->have == 0 && **data > 1) {
        reader->bytes[0] = **data;
        reader->have = 1; /* remembered: no later input makes it good again */
        return PREFIX_BAD_FLAG;
    }
    if (reader->have == 0 && *len >= PREFIX_BYTES) {
        const uint8_t *prefix = *data;

        *data += PREFIX_BYTES;
        *len -= PREFIX_BYTES;
        return message_begin(reader, prefix);
    }
    return prefix_collect(reader, data, len);
}

bool
prefix_at_boundary(const struct prefix_reader *reader)
{
    return reader->have == 0;
}

void
prefix_write(uint8_t out[PREFIX_BYTES], bool compressed, uint32_t length)
{
    out[0] = compressed;
    out[1] = (uint8_t)(length >> 24);
    out[2] = (uint8_t)(length >> 16);
    out[3] = (uint8_t)(length >> 8);
    out[4] = (uint8_t)length;
}
