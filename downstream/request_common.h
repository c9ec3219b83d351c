/*
 * What the server codecs share: reading the fields that mean the same in gRPC and Triple, and
 * passing metadata back.
 */
#ifndef TRIBUTARY_DOWNSTREAM_REQUEST_COMMON_H
#define TRIBUTARY_DOWNSTREAM_REQUEST_COMMON_H

#include "proxy/call/call.h"
#include "proxy/wire/header_class.h"

/*
 * Walks call->request.head: fills path (query cut off), authority (":authority", else Host),
 * content_length, tri-service-*, and puts custom fields into metadata in the client's order. Every
 * other field but the content-type, which was read before, goes to `special` (never HEADER_CUSTOM),
 * which may refuse the request by setting call->status and returning false.
 */
bool
request_common_read(struct call *call, bool (*special)(struct call *call, enum header_class class,
                                                       const struct field *field));
/* A request target without its query string. */
struct text request_common_path(struct text target);
/* Whether a reply or request field of this class passes through the proxy as metadata. */
bool request_common_passes(enum header_class class);

#endif
