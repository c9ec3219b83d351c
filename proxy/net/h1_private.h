/*
 * What h1*.c share and nobody else sees.
 *
 * h1_conn.c    opening, ending; the connection's events
 * h1_read.c    what comes in, and what has to wait
 * h1_server.c  requests from their head to the answer to a malformed one; idle and head timeouts
 * h1_client.c  requests out, replies in
 * h1_send.c    heads, bodies and trailers out
 * h1_stream.c  stream objects from birth to death
 *
 * A stream object dies when the transport is done with it (its exchange is over and its last byte
 * with the kernel, or the connection is gone) and its owner has detached; between the two it is an
 * orphan (h1 NULL) on which all verbs do nothing.
 */
#ifndef TRIBUTARY_NET_H1_PRIVATE_H
#define TRIBUTARY_NET_H1_PRIVATE_H

#include "proxy/base/strbuf.h"
#include "proxy/net/h1.h"
#include "proxy/wire/http1.h"

enum {
    H1_STASH_BYTES = 64 * 1024, /* pipelined input that is kept before reading stops */
    H1_WINDOW = 256 * 1024,     /* body bytes that may wait for credit before reading stops */
    H1_PART_BYTES = 64 * 1024,  /* one chunk's most, one step of filling */
};

/* How the outgoing body's end is told. */
enum h1_framing {
    H1_UNDECIDED, /* the head has no content-length and is not queued yet */
    H1_LENGTH,    /* length_left bytes are still to be sent */
    H1_CHUNKED,
    H1_UNTIL_CLOSE, /* to HTTP/1.0 clients */
    H1_NO_BODY,     /* HEAD, 204, 304: what the owner sends is dropped */
};

struct h1_stream {
    struct stream stream; /* first: what the owner sees */
    struct ctx *ctx;
    struct h1 *h1;    /* NULL: orphan */
    struct list node; /* h1->streams */
    struct grave grave;
    struct strbuf trailers; /* as lines, for the end of a chunked body */
    uint64_t length_left;
    uint64_t start;     /* position in the write queue before its head */
    uint64_t marked_ns; /* when the outgoing side was complete in the write queue */
    enum h1_framing framing;
    bool head_given; /* h1->head holds its head */
    bool head_queued;
    bool no_body;    /* outgoing: see H1_NO_BODY */
    bool plain_end;  /* client: a method for which "no length" means "no body" */
    bool head_ended; /* incoming: on_head had end */
    bool flushed;    /* the mark has fired, or never will */
    bool told;       /* on_reset was called */
};

struct h1 {
    struct ctx *ctx;
    struct conn *conn;
    const struct h1_events *events;
    void *owner;
    struct h1_options options;
    bool server;
    struct http1_reader reader;
    struct arena arena;       /* text of the running message's head */
    struct h1_stream *stream; /* the running exchange; NULL between */
    struct list streams;      /* struct h1_stream: the running one and those not yet flushed */
    /* outgoing head without its last lines, until fill() decides about them */
    struct strbuf head;
    /* input that came too early: pipelined, or what sniffing had read */
    struct strbuf stash;
    size_t stash_at;        /* bytes at its front that have been read meanwhile */
    struct deferred again;  /* feeds the stash */
    struct deferred ending; /* h1_go_down at the end of the turn */
    struct timer timer;     /* server: idle or head timeout */
    int32_t exchanges;      /* begun */
    int32_t completed;
    int ending_error;
    const char *ending_text;
    bool head_timing; /* the timer is the head timeout */
    bool keep;        /* the running exchange leaves the connection open */
    bool draining;
    bool down;         /* on_down was called */
    char memory[1024]; /* the arena's first */
};

/* h1_conn.c */
/* now: streams are lost, the socket closes */
void h1_go_down(struct h1 *h1, int error, const char *text);
/* at the end of the turn, for verbs */
void h1_go_down_later(struct h1 *h1, int error, const char *text);
/* politely: what is queued leaves first; no new exchange */
void h1_leave(struct h1 *h1, const char *text);
/* the peer can't have seen a byte of the request */
bool h1_never_written(const struct h1_stream *exchange);
void h1_next_message(struct h1 *h1); /* reader and arena are ready for another message */
struct h1 *h1_new(struct conn *conn, bool server, const struct h1_options *options,
                  const struct h1_events *events, void *owner);

/* h1_read.c */
void h1_read(struct conn *conn, const uint8_t *data, size_t len); /* the connection's on_read */
void h1_read_again(struct deferred *deferred);                    /* h1->again: what was stashed */
void h1_read_on(struct h1 *h1); /* unless too much waits to be taken or credited */
/* end-to-end fields, into its arena */
void h1_copy_fields(struct fields *into, const struct fields *from);

/* h1_server.c */
void h1_server_head(struct h1 *h1); /* the reader has a request's head */
void h1_server_step(struct h1 *h1); /* something ended: is the exchange over? */
void h1_server_refuse(struct h1 *h1, int status, const char *text); /* answer and close */
void h1_server_wait(struct h1 *h1); /* the right timer for a connection between requests */
void h1_server_on_timer(struct timer *timer);

/* h1_client.c */
void h1_client_head(struct h1 *h1); /* the reader has a reply's head */
void h1_client_step(struct h1 *h1);

/* h1_send.c */
void h1_fill(struct conn *conn);
void h1_give_head(struct h1_stream *exchange, const struct fields *fields, bool end);

/* h1_stream.c */
struct h1_stream *h1_stream_new(struct h1 *h1);
/* on_reset unless complete or told; then an orphan */
void h1_stream_lose(struct h1_stream *exchange, uint32_t error);
/* let go of if its exchange is over and flushed */
void h1_stream_release(struct h1_stream *exchange);
void h1_stream_data(struct h1_stream *exchange, const uint8_t *data, size_t len);
void h1_stream_end(struct h1_stream *exchange); /* the incoming message is complete */

#endif
