/*
 * One HTTP/1.1 connection, server or client, on the strict reader of wire/http1. One exchange at a
 * time (pipelined requests wait in the socket). Same stream events as h2.h, so that codecs do not
 * know the transport.
 *
 * A body without content-length leaves as chunked (HTTP/1.0 peers: until close). Trailers on a
 * chunked body. Server: malformed input is answered 400/431/501/505 with a short text and closed;
 * Expect: 100-continue is answered.
 */
#ifndef TRIBUTARY_NET_H1_H
#define TRIBUTARY_NET_H1_H

#include "proxy/net/stream.h"

struct h1;

struct h1_events {
    /* Server: a request's head is about to be read: set stream->owner, events, fields. */
    void (*on_stream)(struct h1 *h1, struct stream *stream);
    void (*on_stream_closed)(struct h1 *h1, struct stream *stream);
    /* client: the exchange is over and the connection may be used again */
    void (*on_idle)(struct h1 *h1);
    void (*on_down)(struct h1 *h1, int error, const char *text);
    void (*on_closed)(struct h1 *h1);
};

struct h1_options {
    uint32_t max_head;        /* bytes of start line and fields */
    uint64_t idle_timeout_ns; /* server: between requests; 0: none */
    uint64_t head_timeout_ns; /* server: a begun head must be complete by then; 0: none */
};

struct h1 *
h1_server_open(struct conn *conn, const struct h1_options *options, const struct h1_events *events,
               void *owner, const uint8_t *first, size_t first_len);
struct h1 *h1_client_open(struct conn *conn, const struct h1_options *options,
                          const struct h1_events *events, void *owner);
/* Client: pseudo-headers in fields become the request line and Host. NULL when busy or closing. */
struct stream *
h1_request(struct h1 *h1, const struct fields *fields, bool end, const struct stream_events *events,
           void *owner, struct fields *reply_fields, struct fields *reply_trailers);
void *h1_owner(const struct h1 *h1);
struct conn *h1_conn(const struct h1 *h1); /* valid until on_closed begins */
bool h1_usable(const struct h1 *h1);       /* client: idle, open, kept alive */
/* client: at least one exchange ended on it: a loss may be an idle close */
bool h1_used_before(const struct h1 *h1);
int h1_send_head(struct stream *stream, const struct fields *fields, bool end);
void h1_send_data(struct stream *stream, struct slices *body, bool end);
void h1_send_trailers(struct stream *stream, const struct fields *trailers);
void h1_credit(struct stream *stream, uint64_t bytes);
void h1_reset(struct stream *stream, uint32_t h2_error);
void h1_detach(struct stream *stream);
/* "connection: close" on the running exchange's reply, or close now when idle */
void h1_drain(struct h1 *h1);
void h1_shutdown(struct h1 *h1); /* close now */

#endif
