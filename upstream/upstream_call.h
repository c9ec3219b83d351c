/* The upstream end of one call: the endpoint it picked, its place in the queue, its stream.
 * Implements upstream_ops. */
#ifndef TRIBUTARY_UPSTREAM_UPSTREAM_CALL_H
#define TRIBUTARY_UPSTREAM_UPSTREAM_CALL_H

#include "proxy/call/call.h"
#include "upstream/endpoint.h"

struct upstream_call {
    struct call *call;
    struct endpoint *endpoint;
    struct pool *pool;         /* where it waits or has its stream; NULL before open */
    struct pool_waiter waiter; /* in pool while it has no stream */
    struct pool_conn *conn;    /* granted: where its stream is */
    struct stream *stream;     /* NULL before send_head and after the end */
    struct deferred
        lost;    /* the connection had no stream after all: tell the call at the end of the turn */
    bool broken; /* the stream was reset, by whom ever */
    unsigned moves; /* endpoints that had no connection for this call */
};

#endif
