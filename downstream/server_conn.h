/* One accepted connection: finds out which protocol it speaks and hands its requests to
 * server_stream. */
#ifndef TRIBUTARY_DOWNSTREAM_SERVER_CONN_H
#define TRIBUTARY_DOWNSTREAM_SERVER_CONN_H

#include "downstream/server_stream.h"

struct listener;

struct server_conn;

/* Accept from `server` (a listening handle that has a connection waiting). 0 or a negative errno.
 * On success the connection is on listener->connections until its on_closed. */
int server_conn_accept(struct listener *listener, uv_stream_t *server);
/* Accept from the listening descriptor itself: what the kernel has queued behind the one connection
 * that libuv took. 0, UV_EAGAIN when the queue is empty, or another negative errno. */
int server_conn_accept_queued(struct listener *listener, int fd, bool is_unix);
void
server_conn_drain(struct server_conn *conn); /* no new requests; closes when the last has ended */
void server_conn_close(struct server_conn *conn);      /* now */
struct server_conn *server_conn_of(struct list *node); /* member of listener->connections */

#endif
