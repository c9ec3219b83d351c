/*
 * One HTTP/2 connection over nghttp2, server or client. Owns the session and its streams, flow
 * control and abuse limits.
 *
 * Happy path: on_read feeds nghttp2; frames become stream events; what calls submit stays in
 * nghttp2 until the end of the turn, when fill() takes it with mem_send, DATA going out as chunk
 * references (NO_COPY). The connection window is 1 GiB at once and replenished at once:
 * some peers' connections die when it reaches 0. Back-pressure is stream credit only.
 *
 * Failure modes: protocol errors end the connection with GOAWAY (peers that flood:
 * ENHANCE_YOUR_CALM); a lost socket resets every stream with STREAM_LOST or STREAM_NOT_PROCESSED;
 * on_down comes once, then on_closed when the object is about to be freed.
 */
#ifndef TRIBUTARY_NET_H2_H
#define TRIBUTARY_NET_H2_H

#include "proxy/net/stream.h"

struct h2;

struct h2_events {
    /* Server: a new request stream began; set stream->owner, events and fields (fields before the
     * first header arrives). */
    void (*on_stream)(struct h2 *h2, struct stream *stream);
    /* A stream object is about to die (also detached ones): for gauges. */
    void (*on_stream_closed)(struct h2 *h2, struct stream *stream);
    /* Client: the peer's SETTINGS came (first, or again): h2_capacity() may have changed. */
    void (*on_settings)(struct h2 *h2);
    /* The peer sent GOAWAY: no new streams here. Those above its last id were reset with
     * STREAM_NOT_PROCESSED. */
    void (*on_goaway)(struct h2 *h2, uint32_t error);
    /* The connection is of no more use; streams have been reset. error: negative errno, UV_EOF, or
     * 0 when we ended it; text: constant reason. Streams that their owners keep longer stay valid.
     */
    void (*on_down)(struct h2 *h2, int error, const char *text);
    void (*on_closed)(struct h2 *h2);   /* freed after this */
    void (*on_ping_ack)(struct h2 *h2); /* answer to h2_ping */
};

struct h2_options {
    uint32_t stream_window;   /* bytes, SETTINGS_INITIAL_WINDOW_SIZE, always sent */
    uint32_t max_streams;     /* server: announced; clients over it are refused per stream */
    uint32_t max_header_list; /* announced and counted, decoded size */
    uint32_t reset_limit; /* server: resets and faulty streams before ENHANCE_YOUR_CALM; 0: none */
    uint64_t reset_window_ns;
    /* Client: RST_STREAMs that we may send per rst_window_ns; once spent, streams are drained and
     * dropped. 0: no limit. */
    uint32_t rst_budget;
    uint64_t rst_window_ns;
    uint64_t handshake_timeout_ns; /* server: preface and SETTINGS must be here by then; 0: none */
};

struct h2 {
    struct ctx *ctx;
    struct conn *conn;
    nghttp2_session *session;
    bool server;
    const struct h2_events *events;
    void *owner;
    struct h2_options options;
    uint32_t open_streams;     /* streams that count against the peer's or our limit */
    uint32_t peer_max_streams; /* client: MAX_CONCURRENT_STREAMS; 100 until the peer's SETTINGS */
    bool settings_seen, goaway_seen, goaway_sent, down, draining;
    struct list streams;        /* all living stream objects (private node) */
    uint64_t last_read_ns;      /* turn_ns of the last byte read */
    struct h2_private *private; /* h2_private.h */
};

/* Server: speak HTTP/2 on an accepted connection; `first` bytes were already read from it
 * (sniffing). */
struct h2 *
h2_server_open(struct conn *conn, const struct h2_options *options, const struct h2_events *events,
               void *owner, const uint8_t *first, size_t first_len);
/* Client: on a connected conn (after its on_open). The preface and SETTINGS leave at the end of the
 * turn; requests may be made at once. */
struct h2 *h2_client_open(struct conn *conn, const struct h2_options *options,
                          const struct h2_events *events, void *owner);
/*
 * Client: a new request. fields: pseudo-headers first. end: no body. The stream has events and
 * owner set and is returned, or NULL when this connection takes no new stream (limit, goaway, ids
 * used up): use another.
 */
struct stream *
h2_request(struct h2 *h2, const struct fields *fields, bool end, const struct stream_events *events,
           void *owner, struct fields *reply_fields, struct fields *reply_trailers);
/* Client: how many more streams may be opened now (0 after GOAWAY). */
uint32_t h2_capacity(const struct h2 *h2);
/* The transport's side of stream.h. */
int h2_send_head(struct stream *stream, const struct fields *fields, bool end);
void h2_send_data(struct stream *stream, struct slices *body, bool end);
void h2_send_trailers(struct stream *stream, const struct fields *trailers);
void h2_credit(struct stream *stream, uint64_t bytes);
void h2_reset(struct stream *stream, uint32_t h2_error);
void h2_detach(struct stream *stream);
/* Server: GOAWAY(2^31-1), then on the PING's ACK or after 1 s GOAWAY(last); closes when the last
 * stream has ended. Client: no new streams, closes when empty. */
void h2_drain(struct h2 *h2);
/* At the end of this turn: what has been said, GOAWAY with this code, then close. Streams are reset
 * with STREAM_LOST, or STREAM_NOT_PROCESSED where the request never left; on_down follows. */
void h2_shutdown(struct h2 *h2, uint32_t h2_error);
void h2_ping(struct h2 *h2);                  /* on_ping_ack follows; one at a time */
const char *h2_error_name(uint32_t h2_error); /* "CANCEL"; constant */

#endif
