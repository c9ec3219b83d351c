/* The downstream end of one call: an HTTP request stream on one side, struct call on the other. */
#ifndef TRIBUTARY_DOWNSTREAM_SERVER_STREAM_H
#define TRIBUTARY_DOWNSTREAM_SERVER_STREAM_H

#include "proxy/call/call.h"

/* What a stream needs to know of its connection; embedded there, outlives all its streams. */
struct server_peer {
    struct worker *worker;
    struct text listener; /* name; snapshot memory that the connection references */
    const char *address;  /* the client's, as text */
};

/* A request began on `stream`: makes the call and sets the stream's events, owner and fields. */
void server_stream_open(struct stream *stream, const struct server_peer *peer);

#endif
