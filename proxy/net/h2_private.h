/*
 * What h2*.c share and nobody else sees: the connection's private state, the stream object, and the
 * calls between the files.
 *
 * h2_conn.c     opening, ending, draining; the connection's events
 * h2_session.c  the nghttp2 session: its settings, and its callbacks for what comes in
 * h2_send.c     its callbacks for what goes out; heads, data, trailers; filling the write queue
 * h2_stream.c   stream objects from birth to death; requests, credit, reset, detach
 * h2_message.c  whether what comes in is a well-formed HTTP message
 * h2_closed.c   frames on streams that are over
 * h2_limits.c   what a peer may cost us; names of error codes
 *
 * nghttp2 must not be entered twice: inside its callbacks frames are only submitted (fill() checks
 * in_session), and the session dies in the connection's last callback, never in one of its own.
 */
#ifndef TRIBUTARY_NET_H2_PRIVATE_H
#define TRIBUTARY_NET_H2_PRIVATE_H

#include <nghttp2/nghttp2.h>

#include "proxy/net/h2.h"
#include "proxy/net/h2_message.h"

enum {
    /* dubbo-java's connection breaks when this window reaches 0, and at 2^31-1 */
    H2_CONNECTION_WINDOW = 1 << 30,
    H2_MAX_SEND_HEADERS = 1 << 20, /* one outgoing header block; over it STREAM_UNSENDABLE */
    H2_MAX_HEADER_BOMB = 4 << 20,  /* one incoming block, decoded; over it the connection ends */
    H2_MAX_CONTINUATIONS = 1024,   /* as nghttp2 counts: several for one that comes in pieces */
    H2_MAX_EMPTY_DATA = 10000,     /* empty DATA frames in a row, without END_STREAM */
    H2_MAX_INTERIM = 100,          /* 1xx heads of one stream */
    H2_SPARE_STREAMS = 16384,      /* more refused streams than one read can carry */
    H2_DEFAULT_MAX_STREAMS = 100,  /* what a client assumes until SETTINGS came */
    H2_FRAME_HEAD = 9,
    H2_DATA_FRAME = 16384,         /* usual payload of DATA */
    H2_MAX_DATA_FRAME = 64 * 1024, /* where the peer takes more; nghttp2 keeps such a buffer */
    H2_NV_INLINE = 64,             /* fields of a block that is built on the stack */
    H2_FOUND = 16,                 /* streams that are found without a look-up; a power of two */
    H2_CLOSED_SLOTS = 64,          /* streams that a server remembers; a power of two */
};

/* So many events per window; the window begins with the first of them. */
struct h2_limiter {
    uint64_t began_ns;
    uint32_t count;
};

struct h2_stream {
    struct stream stream; /* first: what the owner sees */
    struct ctx *ctx;
    struct list node;    /* h2->streams */
    struct list pending; /* private->pending while output was added since the last fill */
    struct grave grave;
    /* What out_trailers points to: the owner's text this turn, then copies in trailer_arena. */
    struct fields trailers;
    struct arena *trailer_arena; /* owned; NULL: none copied */
    uint64_t head_end;  /* write queue's position behind the request's HEADERS; 0 until queued */
    uint64_t marked_ns; /* when the outgoing side was complete in the write queue */
    uint32_t interims;  /* 1xx heads so far */
    struct h2_message message; /* what has come in */
    bool ng_open;              /* nghttp2 knows the stream: its close callback is still to come */
    bool marked;               /* stream.mark waits for the kernel: the object must stay */
    bool dying;                /* in the graveyard */
    bool head_queued;          /* outgoing HEADERS are in the write queue */
    bool head_done;            /* incoming head is complete: the next block is trailers */
    bool malformed;            /* what comes in is ignored: its reset is on the way */
    bool last_data;            /* the DATA frame being read has END_STREAM */
    bool deferred;             /* nghttp2 waits for resume_data */
    bool has_length;           /* request: content-length was sent */
    bool has_trailers, trailers_submitted;
    bool peer_reset;      /* the peer's RST_STREAM is being handled */
    bool own_reset;       /* we reset it */
    bool told;            /* on_reset was called */
    bool reset_after_end; /* RST_STREAM(NO_ERROR) once END_STREAM is in the write queue */
    bool unsendable;      /* our header block was too long */
};

/* What a server remembers of streams that were opened, and where in the bytes it is. */
struct h2_closed {
    uint32_t last_id;                /* the highest id used so far */
    uint32_t slots[H2_CLOSED_SLOTS]; /* by id: the last one opened there, with a bit: peer done */
    uint32_t skip;                   /* bytes of preface or payload until the next frame head */
    uint8_t head[H2_FRAME_HEAD];
    uint8_t head_len;
};

struct h2_closed_fault {
    uint32_t h2_error;  /* 0: none */
    uint32_t stream_id; /* 0: the connection's fault */
};

struct h2_private {
    struct h2_stream
        *found[H2_FOUND];      /* by id, what h2_stream_find() found; NULL: none, or closed */
    struct list pending;       /* struct h2_stream: output was added since the last fill */
    struct h2_stream *to_mark; /* its last HEADERS are the bytes that mem_send is about to return */
    struct h2_stream *to_place; /* likewise for a request's head */
    struct deferred ending;     /* runs h2_down at the end of the turn */
    struct deferred first;      /* feeds first_bytes */
    struct timer handshake, drain;
    uint8_t *first_bytes; /* owned: what the sniffing read before us */
    size_t first_len;
    struct h2_closed closed;        /* server */
    struct h2_limiter resets;       /* server: from the peer, and its faults */
    struct h2_limiter rsts;         /* client: sent by us */
    uint32_t empty_data;            /* empty DATA frames in a row */
    uint32_t block_bytes;           /* decoded size of the header block being read */
    struct h2_stream *block_stream; /* whose block it is; NULL: nobody's any more */
    uint32_t goaway_code;           /* of the last GOAWAY sent or received */
    int end_error;
    uint32_t end_code;    /* of our GOAWAY, when the owner ends it */
    const char *end_text; /* NULL until something ends the connection */
    bool in_session;      /* inside mem_recv or mem_send */
    bool paused;          /* mem_send stopped because the write queue is full */
    bool broken;          /* mem_send failed: it must not be called again */
    bool patch_settings;  /* our SETTINGS are still to come by: put the real MAX_CONCURRENT_STREAMS
                             in */
    bool tell_goaway; /* on_goaway is to be called when nghttp2 has dropped the streams above its
                         last id */
    bool pinging, drain_pinging;
};

static inline struct h2_stream *
h2_stream_of(struct stream *stream)
{
    return (struct h2_stream *)stream;
}

static inline struct h2 *
h2_of(const struct h2_stream *hs)
{
    return hs->stream.connection;
}

static inline struct h2_stream **
h2_found_slot(struct h2_private *private, int32_t id)
{
    return &private->found[(uint32_t)id / 2 % H2_FOUND];
}

/* Frames of one stream follow each other, each with several callbacks. */
static inline struct h2_stream *
h2_stream_find(struct h2 *h2, int32_t id)
{
    struct h2_stream **slot = h2_found_slot(h2->private, id), *found = *slot;
    if (found && found->stream.id == id)
        return found;
    found = nghttp2_session_get_stream_user_data(h2->session, id);
    if (found)
        *slot = found;
    return found;
}

/* nghttp2 has closed the stream. */
static inline void
h2_stream_unfind(struct h2_stream *hs)
{
    struct h2_stream **slot = h2_found_slot(h2_of(hs)->private, hs->stream.id);
    if (*slot == hs)
        *slot = NULL;
    hs->ng_open = false;
}

/* h2_conn.c */
/* The connection ends after this turn's callbacks; the first reason counts. error: 0 when nothing
 * went wrong. */
void h2_end(struct h2 *h2, int error, const char *text);
/* GOAWAY with this code, then h2_end. */
void h2_terminate(struct h2 *h2, uint32_t h2_error, int error, const char *text);
/* Ends the connection if nghttp2 has nothing more to read or write. */
void h2_check_end(struct h2 *h2);
void h2_wake(struct h2 *h2); /* flush at the end of the turn if nghttp2 has something to send */
void h2_ponged(struct h2 *h2, const uint8_t *opaque); /* the peer acknowledged a PING of ours */

/* h2_session.c */
void h2_session_new(struct h2 *h2); /* makes h2->session and submits the preface */
void h2_session_feed(struct h2 *h2, const uint8_t *data, size_t len);

/* h2_send.c */
void h2_send_callbacks(nghttp2_session_callbacks *callbacks);
void h2_send_fill(struct h2 *h2);
/* Before the connection closes: what fits into the queue, then GOAWAY with this code. */
void h2_send_last(struct h2 *h2, uint32_t h2_error);
int32_t h2_send_request(struct h2_stream *hs, const struct fields *fields,
                        bool end); /* stream id or a negative errno */
void h2_send_resume(struct h2_stream *hs);
void h2_send_forget(struct h2_stream *hs); /* drops what was not sent */

/* h2_stream.c */
struct h2_stream *h2_stream_new(struct h2 *h2);
void h2_stream_release(struct h2_stream *hs); /* buries it if nobody needs it any more */
void h2_stream_closed(struct h2_stream *hs, uint32_t h2_error); /* nghttp2 has closed it */
/* We end it, and tell its owner why. */
void h2_stream_fail(struct h2_stream *hs, uint32_t h2_error, uint32_t error);
void h2_stream_lose_all(struct h2 *h2,
                        bool lost); /* the connection is down; lost: nothing more is written */
void h2_stream_abandon_all(struct h2 *h2); /* the connection object is about to be freed */

/* h2_closed.c */
/*
 * Walks received bytes, preface included, frame by frame. Returns how many of them to give to
 * nghttp2 before the answer to *fault: up to the faulty frame's head, or all without one.
 */
size_t h2_closed_scan(struct h2_closed *closed, const uint8_t *data, size_t len,
                      struct h2_closed_fault *fault);
void h2_closed_answer(struct h2 *h2, const struct h2_closed_fault *fault);

/* h2_limits.c */
/* Counts one event; false when it is over the limit. limit 0: always true. */
bool
h2_limiter_allows(struct h2_limiter *limiter, uint32_t limit, uint64_t window_ns, uint64_t now_ns);
void
h2_limits_fault(struct h2 *h2); /* server: the peer reset a stream, or one ended for its fault */
void h2_limits_data(struct h2 *h2, bool empty, bool end);
bool h2_limits_may_reset(struct h2 *h2); /* client: takes one RST_STREAM from the budget */

#endif
