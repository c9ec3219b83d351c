/*
 * One HTTP/2 connection of the try-out peers, either role: an nghttp2 session over a peer_link.
 *
 * Owns: the session, each stream's queue of outgoing bodies. Does not own: what a stream means
 * (struct peer_stream is embedded in the provider's or the caller's call, which is freed in
 * events->closed). Happy path: peer_h2_receive() feeds nghttp2, its callbacks become events;
 * what they submit is packed in peer_h2_fill(), once per loop turn, without copying bodies.
 * Failure: a broken connection or a protocol error closes the link; peer_h2_fini() then ends
 * every stream with events->closed.
 *
 * Stream windows are given back by peer_stream_credit(), so that a consumer that wants to be slow
 * can be; the connection window is given back at once.
 */
#ifndef TOOLS_PEER_H2_H
#define TOOLS_PEER_H2_H

#include "peer_link.h"
#include "peer_record.h"

struct peer_h2;
struct peer_stream;

struct peer_piece {
    struct peer_piece *next;
    struct peer_body *body;
    size_t offset;
};

struct peer_stream {
    struct peer_h2 *h2;       /* NULL: not on HTTP/2 */
    struct peer_stream *prev; /* in h2->streams */
    struct peer_stream *next;
    int32_t id;
    uint8_t inline_len; /* bytes of inline_data, sent before the first piece */
    uint8_t inline_off;
    bool ended;    /* no further piece will come */
    bool trailers; /* events->trailers is asked for the end instead of END_STREAM on DATA */
    bool deferred; /* nghttp2 waits for peer_stream_push or peer_stream_end */
    bool closed;   /* events->closed has come */
    uint8_t inline_data[40];
    struct peer_piece *first;
    struct peer_piece *last;
    size_t queued_bytes;
    /* Called when the queue is empty and not ended: may push. NULL: nothing to ask. */
    void (*more)(struct peer_stream *stream);
};

struct peer_h2_events {
    /* Server: a request begins. Returns the embedded stream, NULL to refuse it. */
    struct peer_stream *(*opened)(struct peer_h2 *h2);
    void (*field)(struct peer_stream *stream, const uint8_t *name, size_t name_len,
                  const uint8_t *value, size_t value_len);
    /* A header block is complete (for a client also trailers). */
    void (*head)(struct peer_stream *stream, bool end);
    void (*data)(struct peer_stream *stream, const uint8_t *data, size_t len_bytes);
    /* The peer ended its direction; after head or data. */
    void (*end)(struct peer_stream *stream);
    /* END_STREAM of ours has been packed. May be NULL. */
    void (*sent)(struct peer_stream *stream);
    /* Submits the trailers with nghttp2_submit_trailer. */
    void (*trailers)(struct peer_stream *stream);
    /* Last event: free it. error_code is an HTTP/2 code, 0 for a stream that ended in order, or
     * PEER_H2_LOST. */
    void (*closed)(struct peer_stream *stream, uint32_t error_code);
    /* GOAWAY received: no new streams. May be NULL. */
    void (*goaway)(struct peer_h2 *h2);
};

struct peer_h2_options {
    uint32_t max_streams; /* announced by a server */
    uint32_t stream_window_bytes;
    int32_t connection_window_bytes;
    uint32_t max_frame_bytes;
    struct peer_record *record; /* NULL: none */
};

struct peer_h2 {
    nghttp2_session *session;
    struct peer_link *link;
    const struct peer_h2_events *events;
    struct peer_record *record;
    struct peer_stream *streams; /* all that have no closed event yet, unsent ones included */
    unsigned stream_count;
    /* only while recording: the block and data that are being received */
    nghttp2_nv *seen;
    size_t seen_count;
    size_t seen_cap;
    uint8_t seen_data[PEER_RECORD_DATA_BYTES];
    size_t seen_data_len;
};

/* Of a stream's closed event: its connection is gone, or never came about. */
#define PEER_H2_LOST UINT32_MAX

#define PEER_NV_STATIC (NGHTTP2_NV_FLAG_NO_COPY_NAME | NGHTTP2_NV_FLAG_NO_COPY_VALUE)
/* A header field of constants. */
#define PEER_NV(n, v)                                                                              \
    {                                                                                              \
        (uint8_t *)(n), (uint8_t *)(v), sizeof(n) - 1, sizeof(v) - 1, PEER_NV_STATIC               \
    }

/* Submits SETTINGS and the connection window. 0, or a negative errno. */
int peer_h2_init(struct peer_h2 *h2, struct peer_link *link, bool server,
                 const struct peer_h2_events *events, const struct peer_h2_options *options);
/* Ends all streams (events->closed, PEER_H2_LOST) and frees the session. From the link's
 * closed event. */
void peer_h2_fini(struct peer_h2 *h2);
/* Feeds bytes that were read. Closes the link on a protocol error. */
void peer_h2_receive(struct peer_h2 *h2, const uint8_t *data, size_t len_bytes);
/* Packs frames into the link's queue while it wants more. */
void peer_h2_fill(struct peer_h2 *h2);

/* Sends a head. has_body: pieces follow; else END_STREAM is on the head. */
void peer_stream_respond(struct peer_stream *stream, const nghttp2_nv *fields, size_t count,
                         bool has_body);
/* Client: opens the stream. 0, or a negative errno when none can be opened any more. */
int peer_stream_request(struct peer_stream *stream, struct peer_h2 *h2, const nghttp2_nv *fields,
                        size_t count, bool has_body);
/* Queues a body from offset on; takes over one reference. */
void peer_stream_push(struct peer_stream *stream, struct peer_body *body, size_t offset);
/* Nothing follows. */
void peer_stream_end(struct peer_stream *stream, bool trailers);
/* Gives len_bytes of stream window back. */
void peer_stream_credit(struct peer_stream *stream, size_t len_bytes);
void peer_stream_reset(struct peer_stream *stream, uint32_t error_code);
/* Frees what is queued; for the owner, in closed. */
void peer_stream_fini(struct peer_stream *stream);

#endif
