/* The upstream end of one call: the endpoint it picked, its place in the queue, its stream.
 * Implements upstream_ops. */
#ifndef TRIBUTARY_UPSTREAM_UPSTREAM_CALL_H
#define TRIBUTARY_UPSTREAM_UPSTREAM_CALL_H

#include "upstream/client_conn.h"

struct upstream_call {
    struct list node; /* endpoint->waiting while it has no stream */
    struct call *call;
    struct endpoint *endpoint;
    struct client_conn *conn; /* granted, until the request is sent on it */
    struct stream *stream;    /* NULL before send_head and after the end */
    struct deferred
        lost; /* the connection had no stream after all: tell the call at the end of the turn */
    unsigned dials; /* endpoints that refused a connection for this call */
};

/* endpoint.c: a stream on `conn` is this call's. */
void upstream_call_grant(struct upstream_call *up, struct client_conn *conn);
/* endpoint.c: the endpoint cannot be reached; the call (off the waiting list) tries another, or
 * ends UNAVAILABLE. */
void upstream_call_endpoint_failed(struct upstream_call *up);

#endif
