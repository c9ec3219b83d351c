/* RFC 4648 section 4 (standard alphabet), padding optional when reading, never written. */
#ifndef TRIBUTARY_WIRE_BASE64_H
#define TRIBUTARY_WIRE_BASE64_H

#include "proxy/base/arena.h"

struct text base64_encode(struct arena *arena, struct text bytes); /* unpadded */
/* True and *bytes (in the arena), or false on a wrong alphabet, wrong padding or an impossible
 * length. */
bool base64_decode(struct arena *arena, struct text encoded, struct text *bytes);

#endif
