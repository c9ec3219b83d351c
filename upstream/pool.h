/*
 * The connections of one transport to one endpoint, on one worker: which call gets which of them,
 * when another one is dialled, and when not.
 *
 * A call enters with its waiter and is granted a connection at once, or waits. Being on
 * pool->connections means: open or being opened, and may get calls when it has capacity. Being on
 * pool->retired means: GOAWAY or drain; its calls go on, it gets no new ones. Being on
 * pool->waiting means: no stream yet; a waiter leaves by being granted one, by pool_leave, or by
 * on_failed.
 *
 * HTTP/2: `connections` are opened as soon as there is work, more (to max_connections) one at a
 * time when all are full and calls wait, and only once every open one has sent its SETTINGS: a
 * burst before the first SETTINGS must not open a connection per call. HTTP/1.1: one call per
 * connection, the one used last first; others are dialled as calls wait.
 *
 * A connection that could not be made, or was lost before it was of any use, starts the backoff: no
 * dial for 50 ms, doubled per failure to 1 s, with a fifth of jitter. When it is over the pool
 * dials by itself, so that an endpoint is known to be back before calls depend on it.
 */
#ifndef TRIBUTARY_UPSTREAM_POOL_H
#define TRIBUTARY_UPSTREAM_POOL_H

#include "proxy/net/stream.h"
#include "upstream/target.h"

struct pool_conn;

/* A call's place in the queue; embedded in its owner, list_init'd before first use. */
struct pool_waiter {
    struct list node; /* pool->waiting */
    /* Off the list; the request may be made on `conn` before this returns, not later. */
    void (*on_granted)(struct pool_waiter *waiter, struct pool_conn *conn);
    /* Off the list; no connection is to be had now: pool->error says why. */
    void (*on_failed)(struct pool_waiter *waiter);
};

struct pool {
    struct target *target;
    bool http1;
    bool unwanted; /* its endpoint is no longer named: dials only for calls that wait */
    bool closing;  /* no dials at all */
    struct list connections, retired; /* struct pool_conn; HTTP/1.1: idle ones first */
    struct list waiting;              /* struct pool_waiter, oldest first */
    uint32_t waiting_count;
    uint32_t connection_count; /* on connections */
    uint32_t connecting;       /* of these, not yet connected */
    uint32_t wasted;           /* in a row: sent away (GOAWAY) before they were of use */
    uint32_t failures;         /* in a row: sets the backoff; 0 once a connection was of use */
    uint32_t peer_streams;     /* HTTP/2: the limit in the peer's last SETTINGS */
    uint64_t keepalive_ns;     /* of silence before a PING; grows when the peer finds it too much */
    struct timer backoff;      /* running: no dial before it fires */
    struct deferred later;     /* hand free streams to waiting calls at the end of the turn */
    char error[160];           /* of the last failure; empty after a success */
};

void pool_init(struct pool *pool, struct target *target, bool http1);
void pool_fini(struct pool *pool);             /* only when pool_idle */
bool pool_idle(const struct pool *pool);       /* nothing is open and nobody waits */
bool pool_usable(const struct pool *pool);     /* has a connection, or may dial one now */
bool pool_healthy(const struct pool *pool);    /* usable, and the last thing heard was good */
uint32_t pool_ready(const struct pool *pool);  /* connected ones that may get calls */
bool pool_in_backoff(const struct pool *pool); /* nothing open, and no dial yet */

/* on_granted or on_failed follows, possibly before return. False: it would have to wait and
 * max_pending calls do already; nothing follows. */
bool pool_enter(struct pool *pool, struct pool_waiter *waiter);
void pool_leave(struct pool *pool, struct pool_waiter *waiter); /* one that waits no more is fine */
void pool_warm(struct pool *pool); /* open a first connection, so that it is known to work */

/* Inside on_granted: the request. NULL: it could not be made after all. The connection outlives its
 * streams. */
struct stream *pool_request(struct pool_conn *conn, const struct fields *fields,
                            const struct stream_events *events, void *owner,
                            struct fields *reply_fields, struct fields *reply_trailers);
/* Something was read on a stream of this connection. Cheap. */
void pool_heard(struct pool_conn *conn);
/* A stream of it was reset, or lost with it; before the call hears of that. */
void pool_broken(struct pool_conn *conn);

/* How a call leaves its stream. */
enum pool_end {
    POOL_END_OVER,          /* both sides are done, or it is broken: nothing to say to the peer */
    POOL_END_RESET,         /* RST_STREAM (HTTP/1.1: the connection closes) */
    POOL_END_RESET_COUNTED, /* the same; the peer counts these and closes over a limit */
};
/* The stream is detached. */
void
pool_release(struct pool_conn *conn, struct stream *stream, enum pool_end end, uint32_t h2_error);

void pool_drain(struct pool *pool);                  /* connections close as they empty */
void pool_close(struct pool *pool);                  /* all, saying goodbye */
void pool_abort(struct pool *pool);                  /* what is still open: now */
void pool_check(struct pool *pool, uint64_t now_ns); /* once a second */

#endif
