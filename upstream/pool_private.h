/*
 * What pool*.c share and nobody else sees: one connection, and the calls between the files.
 *
 * pool_queue.c who waits, who gets what, when to dial, backoff
 * pool_conn.c  one connection from its dial to its end, whatever it speaks
 * pool_h2.c    HTTP/2 on it, keepalive
 * pool_h1.c    HTTP/1.1 on it, idle time
 */
#ifndef TRIBUTARY_UPSTREAM_POOL_PRIVATE_H
#define TRIBUTARY_UPSTREAM_POOL_PRIVATE_H

#include "proxy/net/h1.h"
#include "proxy/net/h2.h"
#include "upstream/pool.h"

/* When to ask a silent peer whether it is there, without being a nuisance (pool_h2.c). */
struct pool_keepalive {
    uint64_t busy_since_ns; /* since when there has been a stream at all; 0: there is none */
    uint64_t pinged_ns;     /* when the unanswered PING was sent; 0: none */
    uint64_t last_ping_ns;  /* of any PING; 0: none yet */
    unsigned strikes;       /* PINGs that a strict peer holds against us */
    bool heard;             /* the peer sent something for a stream since the last PING */
    bool asked;             /* a request was sent since then */
};

/* RST_STREAMs that a counting peer has had from us. */
struct pool_resets {
    uint64_t began_ns; /* of the window */
    uint32_t count;
    bool spent; /* as many as it bears: retired */
};

struct pool_conn {
    struct list node; /* pool->connections or pool->retired */
    struct pool *pool;
    struct conn *conn; /* while dialling; NULL once h2 or h1 has it */
    struct h2 *h2;     /* one of these once connected */
    struct h1 *h1;
    uint64_t connected_ns;
    uint64_t idle_since_ns; /* HTTP/1.1, while idle */
    uint32_t live;          /* streams that a call listens to */
    struct pool_keepalive keepalive;
    struct pool_resets resets;
    const char *failure; /* we end it for this; constant; NULL: we don't */
    bool idle;           /* HTTP/1.1: no exchange; at the front of pool->connections */
    bool retired;
    bool useful;  /* it has brought a reply, or lived long enough */
    bool ended;   /* by us: its loss says nothing about the endpoint */
    bool closing; /* pool_conn_close was called */
    bool broken;  /* HTTP/1.1: its exchange was lost, its end is still to be told */
    bool down;    /* pool_conn_down was called */
};

static inline struct pool_conn *
pool_conn_of(struct list *node)
{
    return container_of(node, struct pool_conn, node);
}

static inline struct ctx *
pool_ctx(const struct pool *pool)
{
    return &pool->target->worker->ctx;
}

/* pool_queue.c, called by connections */
void pool_connected(struct pool_conn *conn); /* it may have capacity now */
void pool_capacity(struct pool *pool);       /* more of it: serve at the end of the turn */
void pool_failed(struct pool *pool, const char *error); /* backoff; calls that wait fail */
void pool_proved(struct pool *pool);                    /* a connection was of use */

/* pool_conn.c */
/* Start dialling; on pool->connections from now on. False: failed at once (pool_failed was called).
 */
bool pool_conn_open(struct pool *pool);
uint32_t pool_conn_capacity(const struct pool_conn *conn); /* calls it can take now */
void pool_conn_retire(struct pool_conn *conn);             /* no new calls */
/* Down for good, all its streams have been told. error: 0 when it ended as asked, else a negative
 * errno; text: why (read during the call; NULL: the errno's). */
void pool_conn_down(struct pool_conn *conn, int error, const char *text);
void pool_conn_forget(struct pool_conn *conn); /* closed: freed */
void pool_conn_drain(struct pool_conn *conn);
void pool_conn_close(struct pool_conn *conn); /* by us */
void pool_conn_abort(struct pool_conn *conn);
void pool_conn_check(struct pool_conn *conn, uint64_t now_ns);

/* pool_h2.c */
void pool_h2_start(struct pool_conn *conn, struct conn *socket);
bool pool_h2_settled(const struct pool_conn *conn); /* its SETTINGS came and it is not going */
bool pool_h2_going(const struct pool_conn *conn);   /* its end is known, its on_goaway or on_down is
                                                       still to come */
uint32_t pool_h2_capacity(const struct pool_conn *conn); /* streams that may be opened now */
struct stream *pool_h2_request(struct pool_conn *conn, const struct fields *fields,
                               const struct stream_events *events, void *owner,
                               struct fields *reply_fields, struct fields *reply_trailers);
/* Before one more RST_STREAM, and after a call has left. */
void pool_h2_count_reset(struct pool_conn *conn, bool counted);
void pool_h2_left(struct pool_conn *conn);
void pool_h2_check(struct pool_conn *conn, uint64_t now_ns);

/* pool_h1.c */
void pool_h1_start(struct pool_conn *conn, struct conn *socket);
struct stream *pool_h1_request(struct pool_conn *conn, const struct fields *fields,
                               const struct stream_events *events, void *owner,
                               struct fields *reply_fields, struct fields *reply_trailers);
void pool_h1_check(struct pool_conn *conn, uint64_t now_ns);

#endif
