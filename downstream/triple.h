/* The Triple (and Connect) server codec: the bare form. */
#ifndef TRIBUTARY_DOWNSTREAM_TRIPLE_H
#define TRIBUTARY_DOWNSTREAM_TRIPLE_H

#include "proxy/call/codec.h"

extern const struct codec triple_codec;

#endif
