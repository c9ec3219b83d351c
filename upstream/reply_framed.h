/* Reading replies in gRPC framing: of the framed codec, and of providers that answer so although
 * asked in the bare form. */
#ifndef TRIBUTARY_UPSTREAM_REPLY_FRAMED_H
#define TRIBUTARY_UPSTREAM_REPLY_FRAMED_H

#include "proxy/call/call.h"

void reply_framed_read_head(struct call *call, bool end);                     /* codec.read_reply */
void reply_framed_read_end(struct call *call, const struct fields *trailers); /* codec.read_end */

#endif
