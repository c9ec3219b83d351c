/*
 * Deadlines on the wire: grpc-timeout (1-8 digits + unit H M S m u n) and triple-timeout-ms /
 * connect-timeout-ms (1-10 digits). Overflow-safe; conversion to milliseconds rounds up.
 */
#ifndef TRIBUTARY_WIRE_TIMEOUT_H
#define TRIBUTARY_WIRE_TIMEOUT_H

#include <stdbool.h>
#include <stdint.h>

#include "proxy/base/arena.h"

/* True and *timeout_ns (0 is legal input meaning "already expired"; saturates at INT64_MAX), or
 * false: malformed. */
bool timeout_from_grpc(struct text value, uint64_t *timeout_ns);
/* Result of reading the *-timeout-ms field as dubbo-go reads it. An empty field is no limit: OK and
 * INT64_MAX. */
enum timeout_ms { TIMEOUT_MS_OK, TIMEOUT_MS_EXPIRED /* zero or negative */, TIMEOUT_MS_BAD };
enum timeout_ms timeout_from_ms(struct text value, uint64_t *timeout_ns);
/* The finest unit in which it fits 8 digits, rounded up so as never to be shorter, never 0:
 * "2999987u". */
struct text timeout_to_grpc(struct arena *arena, uint64_t timeout_ns);
/* Milliseconds rounded up, at least 1, at most 10 digits. */
struct text timeout_to_ms(struct arena *arena, uint64_t timeout_ns);

#endif
