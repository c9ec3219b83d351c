/*
 * RPC status: gRPC codes, their names, and the maps between gRPC code, Triple/Connect code name,
 * HTTP status and HTTP/2 error code. Tables, no logic of their own. Sources: gRPC statuscodes.md,
 * http-grpc-status-mapping.md, PROTOCOL-HTTP2.md "Errors"; Connect protocol; dubbo-go.
 */
#ifndef TRIBUTARY_WIRE_STATUS_H
#define TRIBUTARY_WIRE_STATUS_H

#include <stdbool.h>
#include <stdint.h>

#include "proxy/base/text.h"

enum rpc_code {
    RPC_OK = 0,
    RPC_CANCELLED = 1,
    RPC_UNKNOWN = 2,
    RPC_INVALID_ARGUMENT = 3,
    RPC_DEADLINE_EXCEEDED = 4,
    RPC_NOT_FOUND = 5,
    RPC_ALREADY_EXISTS = 6,
    RPC_PERMISSION_DENIED = 7,
    RPC_RESOURCE_EXHAUSTED = 8,
    RPC_FAILED_PRECONDITION = 9,
    RPC_ABORTED = 10,
    RPC_OUT_OF_RANGE = 11,
    RPC_UNIMPLEMENTED = 12,
    RPC_INTERNAL = 13,
    RPC_UNAVAILABLE = 14,
    RPC_DATA_LOSS = 15,
    RPC_UNAUTHENTICATED = 16,
    RPC_BIZ = 17, /* Triple's business error: an RpcException or plain error of a handler */
    RPC_CODES
};

enum dialect { DIALECT_TRIPLE, DIALECT_CONNECT };

/* One detail of google.rpc.Status: a packed message with its type. Views. */
struct rpc_detail {
    struct text
        type_url;      /* "type.googleapis.com/google.rpc.RetryInfo"; kept as received otherwise */
    struct text value; /* the message's bytes, opaque */
};

/* The outcome of a call. Views into the call's arena or constants. */
struct rpc_status {
    int code;            /* enum rpc_code; codes over 17 as received on a framed wire */
    struct text message; /* decoded UTF-8 text, not percent-encoded */
    const struct rpc_detail *details;
    unsigned detail_count;
    struct text details_bin; /* grpc-status-details-bin as received (undecoded base64), when it came
                                framed; else empty */
};

/* "OK", "NOT_FOUND", …; "CODE_17" for 17 as a stats key is "BIZ_ERROR"; others "UNKNOWN". Constant.
 */
struct text status_name(int code);
/* "not_found", "code_17", …: the JSON form. Constant; unknown codes give "unknown". */
struct text status_json_name(int code);
/* The reverse; -1 when it isn't one of the names of the dialect (code_17 only in Triple). */
int status_from_json_name(struct text name, enum dialect dialect);
/* The HTTP status of an error in the bare form. 200 for RPC_OK. */
int status_to_http(int code, enum dialect dialect);
/* gRPC code for an HTTP status without readable status information (bare form; never RPC_OK). */
int status_from_http(int http_status, enum dialect dialect);
/* The same for a framed reply without grpc-status: http-grpc-status-mapping.md; 200 gives UNKNOWN.
 */
int status_from_http_framed(int http_status);
/* gRPC code for an RST_STREAM error code (and 0x1f4, which dubbo-java sends when its pool is full).
 */
int status_from_h2_error(uint32_t h2_error);
/* grpc-status field value to code: 1-3 digits; -1 when malformed. */
int status_from_field(struct text value);
/* Code as a constant decimal text for 0 … 17; TEXT_NONE for others. */
struct text status_code_text(int code);

#endif
