/*
 * A connected byte stream: a TCP or unix socket, clear or TLS, on one worker's loop. Owns the uv handle and the write queue.
 *
 * Reads land in the worker's shared buffer (one read callback at a time). Output: protocol bytes and chunk references are
 * queued; at the end of the turn conn_flush() asks the protocol to fill the queue and hands it to the kernel with one writev
 * (uv_try_write first, uv_write for the rest only). The write queue owns the chunk references until the kernel has the bytes.
 *
 * Failure modes: a read or write error, or EOF, comes once through on_lost; after that nothing is read or written. conn_close()
 * is idempotent, drops what is queued, and the object dies in its uv_close callback (after on_closed).
 */
#ifndef TRIBUTARY_NET_CONN_H
#define TRIBUTARY_NET_CONN_H

#include "proxy/base/slices.h"
#include "proxy/net/address.h"
#include "proxy/net/ctx.h"

struct conn;
struct tls_session; /* net/tls.h; NULL: clear text */

/* What the protocol on top gets (h2.c, h1.c, and the sniffing server connection). The transport's own callbacks: the protocols
 * of calls never see them. Any of them may call conn_close(). */
struct conn_events {
    void (*on_open)(struct conn *conn, int error); /* client: connected (and TLS done), or a negative errno */
    void (*on_read)(struct conn *conn, const uint8_t *data, size_t len);
    void (*on_lost)(struct conn *conn, int error); /* UV_EOF or a negative errno; close it */
    void (*fill)(struct conn *conn);   /* at flush: add output with conn_queue*(); stop when conn_full() */
    void (*on_written)(struct conn *conn); /* a blocked queue has drained: fill() will be called */
    void (*on_closed)(struct conn *conn);  /* last: the conn is freed after it */
};

/* "Tell me when everything queued up to here is with the kernel." Embedded in its owner; unlink to forget. */
struct conn_mark {
    struct list node;
    uint64_t position; /* in bytes ever queued */
    void (*on_flushed)(struct conn_mark *mark, uint64_t now_ns, bool blocked); /* blocked: the socket was full in between */
};

struct conn {
    struct ctx *ctx;
    const struct conn_events *events;
    void *owner; /* the protocol object */
    union {
        uv_handle_t handle;
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
    };
    struct list dirty_node;
    struct slices out;       /* write queue */
    uint64_t queued, written; /* bytes, ever */
    struct list marks;        /* struct conn_mark in order of position */
    uv_write_t write;         /* at most one in flight */
    bool writing, closing, lost, reading, blocked;
    struct slices in_flight;  /* what `write` refers to */
    uv_connect_t connect;
    struct tls_session *tls; /* owned */
    char peer[128];          /* address as text */
    uint64_t *reads, *writes; /* system-call counters (stats cells of the owner), may be NULL; as _Atomic uint64_t */
};

struct tls_context;

/* Server: takes an accepted handle. `server` is the listening handle; 0 or a negative errno (then nothing is left open). */
int conn_accept(struct ctx *ctx, uv_stream_t *server, struct tls_context *tls, const struct conn_events *events,
                void *owner, struct conn **out);
/* Client: starts connecting; on_open follows, never before return. 0 or a negative errno at once. */
int conn_connect(struct ctx *ctx, const struct address *address, uint64_t timeout_ns, struct tls_context *tls,
                 const char *server_name, const struct conn_events *events, void *owner, struct conn **out);
void conn_set_events(struct conn *conn, const struct conn_events *events, void *owner); /* hand over to a protocol */
void conn_start_read(struct conn *conn);
void conn_stop_read(struct conn *conn);
void conn_dirty(struct conn *conn); /* flush at the end of this turn */
void conn_flush(struct conn *conn); /* now; not from inside a protocol callback of the same connection */
void conn_queue(struct conn *conn, const void *bytes, size_t len);      /* copied (frame heads, header blocks) */
void conn_queue_slices(struct conn *conn, struct slices *from, uint64_t bytes); /* moves references */
bool conn_full(const struct conn *conn); /* enough queued (about 256 KiB) or a write is in flight: stop filling */
void conn_mark(struct conn *conn, struct conn_mark *mark); /* at the current end of the queue */
void conn_close(struct conn *conn);
/* After everything queued is with the kernel: half-close politely, wait briefly for the peer's FIN (so that a reset does not
 * destroy what it has not read), then close. */
void conn_close_after_flush(struct conn *conn);

#endif
