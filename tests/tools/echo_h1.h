/*
 * The echo provider's HTTP/1.1 connection: bare unary calls, kept alive, one at a time (further
 * requests that arrive early wait in the input).
 *
 * Owns: the input buffer, the call under way. Happy path: bytes are gathered until the head is
 * whole, its fields go to the call, then the body (content-length or chunked), then the reply.
 * Failure: anything malformed is answered 400 and the connection is closed.
 */
#ifndef TOOLS_ECHO_H1_H
#define TOOLS_ECHO_H1_H

#include "echo_call.h"

enum echo_h1_state {
    ECHO_H1_HEAD,
    ECHO_H1_BODY,
    ECHO_H1_CHUNK_SIZE,
    ECHO_H1_CHUNK,
    ECHO_H1_CHUNK_END,
    ECHO_H1_TRAILERS,
    ECHO_H1_BUSY, /* the reply is not written yet */
    ECHO_H1_BROKEN,
};

struct echo_h1 {
    struct peer_link *link;
    struct echo_provider *provider;
    struct echo_call *call;  /* NULL between requests */
    struct peer_body *input; /* what is not consumed yet, from input_at on */
    size_t input_at;
    uint64_t left_bytes; /* of the body or the chunk */
    enum echo_h1_state state;
    bool keep_alive;
    bool receiving; /* echo_h1_receive is on the stack: it goes on by itself */
};

void echo_h1_init(struct echo_h1 *h1, struct peer_link *link, struct echo_provider *provider);
/* Frees the call and the buffer; from the link's closed event. */
void echo_h1_fini(struct echo_h1 *h1);
void echo_h1_receive(struct echo_h1 *h1, const uint8_t *data, size_t len_bytes);
/* Sends a whole reply; takes the reference. Fields as for HTTP/2, :status first. */
void echo_h1_reply(struct echo_h1 *h1, const nghttp2_nv *fields, size_t count,
                   struct peer_body *body, bool chunked);

#endif
