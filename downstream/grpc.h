/* The gRPC server codec. */
#ifndef TRIBUTARY_DOWNSTREAM_GRPC_H
#define TRIBUTARY_DOWNSTREAM_GRPC_H

#include "proxy/call/codec.h"

extern const struct codec grpc_codec;

#endif
