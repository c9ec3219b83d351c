/* google.rpc.Status and google.rpc.ErrorInfo as protobuf bytes (protobuf-c), and
 * grpc-status-details-bin. */
#ifndef TRIBUTARY_WIRE_STATUS_PROTO_H
#define TRIBUTARY_WIRE_STATUS_PROTO_H

#include "proxy/base/arena.h"
#include "proxy/wire/status.h"

/* Serialized google.rpc.Status of code, message and details; then unpadded base64. */
struct text status_proto_details_bin(struct arena *arena, const struct rpc_status *status);
/* Fill status->details (and nothing else) from a grpc-status-details-bin value. False when it can't
 * be read. */
bool status_proto_read_details_bin(struct arena *arena, struct text details_bin,
                                   struct rpc_status *status);
/* The Status's own message. False, and *message untouched, when it can't be read. */
bool status_proto_read_details_message(struct arena *arena, struct text details_bin,
                                       struct text *message);
/* A detail "google.rpc.ErrorInfo"{reason, domain, metadata}: pairs is 2*n texts, key and value in
 * turn. */
struct rpc_detail
status_proto_error_info(struct arena *arena, struct text reason, struct text domain,
                        const struct text *pairs, unsigned pair_count);

#endif
