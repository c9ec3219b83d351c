/* One HTTP/2 connection to an endpoint. Dies by itself: it unlinks from the endpoint when it is
 * down and is freed when closed. */
#ifndef TRIBUTARY_UPSTREAM_CLIENT_CONN_H
#define TRIBUTARY_UPSTREAM_CLIENT_CONN_H

#include "upstream/endpoint.h"

/* Start dialling; on endpoint->connections from now on. False: failed at once (endpoint_failed was
 * called). */
bool client_conn_open(struct endpoint *endpoint);
uint32_t client_conn_capacity(
    const struct client_conn *conn); /* streams that may be opened now; 0 while connecting */
struct client_conn *client_conn_of(struct list *node);
/* A request on it, or NULL. */
struct stream *client_conn_request(struct client_conn *conn, const struct fields *fields,
                                   const struct stream_events *events, void *owner,
                                   struct fields *reply_fields, struct fields *reply_trailers);
void client_conn_drain(struct client_conn *conn);
void client_conn_close(struct client_conn *conn);
void client_conn_check(struct client_conn *conn,
                       uint64_t now_ns); /* once a second: keepalive, stuck after GOAWAY */

#endif
