/*
 * The bare form's error body:
 * {"code":"not_found","message":"…","details":[{"type":"…","value":"base64"}]} (Connect protocol,
 * "Error end"; Triple adds code_17). Read and written with jansson.
 */
#ifndef TRIBUTARY_WIRE_ERROR_JSON_H
#define TRIBUTARY_WIRE_ERROR_JSON_H

#include "proxy/base/arena.h"
#include "proxy/wire/status.h"

#define ERROR_JSON_MAX_BYTES ((size_t)4 << 20) /* longer bodies are not parsed */

enum error_json {
    ERROR_JSON_OK,       /* *status is the error, its texts and details in the arena */
    ERROR_JSON_NO_CODE,  /* a JSON object without `code`: dubbo-java's "Invoker not found" and REST
                            errors */
    ERROR_JSON_BAD_CODE, /* has a `code` that is no known name: *status has the code inferred from
                            HTTP, message and details kept */
    ERROR_JSON_UNREADABLE, /* not JSON, not an object, too deep or too long */
};

/*
 * *status is filled in every case: without a readable code it is status_from_http(). A `code` of
 * "ok"-like names never gives RPC_OK. Bad base64 or a detail without a type drops that detail only.
 * Bare type names get "type.googleapis.com/"; names with '/' stay. `debug` and unknown members are
 * ignored. Message is cut nowhere.
 */
enum error_json error_json_read(struct arena *arena, struct text body, int http_status,
                                enum dialect dialect, struct rpc_status *status);
/* The body for a status (code never RPC_OK), empty members left out, type.googleapis.com/ stripped,
 * base64 unpadded. */
struct text error_json_write(struct arena *arena, const struct rpc_status *status);

#endif
