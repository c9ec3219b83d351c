/*
 * As much of libuv as a worker needs, without a kernel: sockets are queues of bytes, no time passes
 * and no timer fires.
 *
 * The program that links this file before libuv gets these functions instead of libuv's. What a
 * test does to the worker goes through fake_*: each of those is one event of a loop's turn.
 */
#ifndef GATE_FAKE_UV_H
#define GATE_FAKE_UV_H

#include <stddef.h>
#include <stdint.h>
#include <uv.h>

/* One end of a connection: what the worker has written and the test has not taken yet. */
struct fake_socket {
    uv_stream_t *stream; /* the worker's handle */
    uint8_t *bytes;
    size_t len, cap;
};

/* The next connection for the listening handle number `listener` (from 0, as they were opened). */
struct fake_socket *fake_connect(unsigned listener);
/* The connection that the worker dialled next; NULL: it has dialled none since. */
struct fake_socket *fake_dialled(void);
/* The worker reads these bytes, as many reads as its buffer makes of them. */
void fake_feed(struct fake_socket *socket, const uint8_t *bytes, size_t len);
/* The end of a turn: async and close callbacks, then the prepare callback. */
void fake_turn(void);

#endif
