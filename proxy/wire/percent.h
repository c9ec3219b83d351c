/* Percent-encoding of grpc-message (PROTOCOL-HTTP2.md, "Status-Message"). */
#ifndef TRIBUTARY_WIRE_PERCENT_H
#define TRIBUTARY_WIRE_PERCENT_H

#include "proxy/base/arena.h"

/* Encoded copy in the arena (the input itself when nothing needs it). `escape_plus`: '+' too, for
 * dubbo-java consumers, which URL-decode. Bytes outside 0x20-0x7e and '%' are always escaped. */
struct text percent_encode(struct arena *arena, struct text message, bool escape_plus);
/* Decoded; a '%' that starts no valid escape stays as it is. Invalid UTF-8 becomes U+FFFD. */
struct text percent_decode(struct arena *arena, struct text encoded);
/* The text itself when it is valid UTF-8, else a copy in the arena with each broken sequence as one
 * U+FFFD. */
struct text percent_utf8(struct arena *arena, struct text text);
/* Length of a cut of `message` of at most `max` bytes that does not split a UTF-8 sequence. */
size_t percent_utf8_cut(struct text message, size_t max);

#endif
