/*
 * One HTTP exchange, either role, on HTTP/2 (a stream) or HTTP/1.1 (a message pair): head, data,
 * end in each direction. What server and client codecs work on without knowing the transport.
 *
 * Ownership: the stream belongs to its connection and dies after the transport is done with it,
 * which can be long after the call: the owner only detaches (stream_detach), after which no event
 * comes and what still arrives is credited and dropped. Sending never happens inside the call:
 * output is queued and leaves at the end of the turn.
 */
#ifndef TRIBUTARY_NET_STREAM_H
#define TRIBUTARY_NET_STREAM_H

#include "proxy/base/fields.h"
#include "proxy/net/conn.h"

struct stream;

struct stream_events {
    /* The head is in *stream->fields (with :method, :path, … or :status; 1xx heads are skipped).
     * end: nothing follows. */
    void (*on_head)(struct stream *stream, bool end);
    /* Body bytes, valid during the call: copy once. The stream window shrank by len (padding is
     * returned by itself). */
    void (*on_data)(struct stream *stream, const uint8_t *data, size_t len);
    /* The incoming side ended cleanly; trailers is NULL when there were none. Not called when
     * on_head had end. */
    void (*on_end)(struct stream *stream, const struct fields *trailers);
    /* The exchange broke before both sides ended: RST_STREAM's code, or one of STREAM_* below.
     * Final: detach follows. Not reported: on a client anything after a complete reply, on a server
     * NO_ERROR behind its own. */
    void (*on_reset)(struct stream *stream, uint32_t error);
    /* `bytes` of what was sent have left the stream for the connection's write queue: return the
     * other side's credit. */
    void (*on_sent)(struct stream *stream, size_t bytes);
    /* The last byte of the outgoing side is with the kernel. stalled_ns: how long it waited for the
     * peer's window or a full socket. */
    void (*on_flushed)(struct stream *stream, uint64_t now_ns, uint64_t stalled_ns);
};

/* Errors that are no RST_STREAM code; above 2^31 so that they never collide. */
enum {
    STREAM_LOST = 0x80000001u, /* the connection died; the peer may have processed it */
    /* Provably not: a GOAWAY below our id, REFUSED_STREAM, never written. */
    STREAM_NOT_PROCESSED = 0x80000002u,
    STREAM_MALFORMED = 0x80000003u, /* the peer broke HTTP on this stream; it was reset by us */
    /* Client: the reply's head or trailers are over the limit. (Server: fields_overflow.) */
    STREAM_HEADERS_TOO_LONG = 0x80000004u,
    STREAM_UNSENDABLE = 0x80000005u, /* our header block was too long for the transport */
};

enum stream_transport { STREAM_H2, STREAM_H1 };

struct stream {
    enum stream_transport transport;
    void *connection;                   /* struct h2 or struct h1 */
    const struct stream_events *events; /* NULL: detached */
    void *owner;
    struct fields *fields;         /* where incoming head fields go; set before the head comes */
    struct fields *trailer_fields; /* likewise for trailers; NULL: dropped */
    /* Server: the head was over max_header_list: fields are cut, answer RESOURCE_EXHAUSTED. */
    bool fields_overflow;
    int32_t id;       /* HTTP/2 stream id; HTTP/1.1: exchange number */
    uint64_t head_ns; /* turn_ns when the head was complete */
    /* outgoing */
    struct slices out;           /* body bytes that the transport has not taken */
    bool out_end;                /* END_STREAM follows `out` (or trailers do) */
    bool out_closed;             /* everything incl. END_STREAM was taken by the transport */
    struct fields *out_trailers; /* sent behind `out`; the transport's own copy */
    struct conn_mark mark;       /* end of the outgoing side, for on_flushed */
    uint64_t stalled_since_ns, stalled_ns;
    /* incoming */
    bool in_end;         /* END_STREAM was read */
    uint64_t uncredited; /* received, credit not yet returned */
};

/*
 * The transport-neutral verbs (transport.c picks HTTP/2 or HTTP/1.1). None calls back before it
 * returns. Fields' text must live until the end of the turn (it's copied when the frame is built),
 * FIELD_STATIC for good.
 */
/* Server: ":status" first in fields. Client: use h2_request / h1_request, which make the stream.
 * end: no body follows. 0 or a negative errno (stream already gone). */
int stream_send_head(struct stream *stream, const struct fields *fields, bool end);
void stream_send_data(struct stream *stream, struct slices *body, bool end); /* moves all of body */
/* Copied; ends the outgoing side. */
void stream_send_trailers(struct stream *stream, const struct fields *trailers);
void stream_credit(struct stream *stream, uint64_t bytes); /* return window for bytes received */
/* Send RST_STREAM (HTTP/1.1: close the connection) unless both sides are done; then detach. */
void stream_reset(struct stream *stream, uint32_t h2_error);
/* No more events; out continues to be sent, in is dropped and credited. */
void stream_detach(struct stream *stream);

#endif
