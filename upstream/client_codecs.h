/* The two client codecs. */
#ifndef TRIBUTARY_UPSTREAM_CLIENT_CODECS_H
#define TRIBUTARY_UPSTREAM_CLIENT_CODECS_H

#include "proxy/call/codec.h"

extern const struct codec bare_codec;
extern const struct codec framed_codec;

#endif
