/*
 * A connected byte stream: a TCP or unix socket, clear or TLS, on one worker's loop. Owns the uv
 * handle and the write queue.
 *
 * Reads land in the input of the worker's chunk pool (one read callback at a time). Output:
 * protocol bytes and chunk references are queued; at the end of the turn conn_flush() asks the
 * protocol to fill the queue and hands it to the kernel with one writev (uv_try_write first,
 * uv_write for the rest only). The write queue owns the chunk references until the kernel has the
 * bytes.
 *
 * Failure modes: a read or write error, or EOF, comes once through on_lost; after that nothing is
 * read or written. conn_close() is idempotent, drops what is queued, and the object dies in its
 * uv_close callback (after on_closed).
 */
#ifndef TRIBUTARY_NET_CONN_H
#define TRIBUTARY_NET_CONN_H

#include "proxy/base/slices.h"
#include "proxy/net/address.h"
#include "proxy/net/ctx.h"
#include "proxy/net/outbuf.h"

struct conn;
struct tls_session; /* net/tls.h; NULL: clear text */

/* What the protocol on top gets (h2, h1, and the sniffing server connection). The transport's
 * own callbacks: the protocols of calls never see them. Any of them may call conn_close(). */
struct conn_events {
    /* client: connected (and TLS done), or a negative errno */
    void (*on_open)(struct conn *conn, int error);
    void (*on_read)(struct conn *conn, const uint8_t *data, size_t len);
    void (*on_lost)(struct conn *conn, int error); /* UV_EOF or a negative errno; close it */
    /* at flush: add output with conn_queue*(); stop when conn_full() */
    void (*fill)(struct conn *conn);
    /* a blocked queue has drained: fill() will be called */
    void (*on_written)(struct conn *conn);
    void (*on_closed)(struct conn *conn); /* last: the conn is freed after it */
};

/* "Tell me when everything queued up to here is with the kernel." Embedded in its owner; unlink to
 * forget. */
struct conn_mark {
    struct list node;
    uint64_t position; /* in bytes ever queued */
    /* blocked: the socket was full in between */
    void (*on_flushed)(struct conn_mark *mark, uint64_t now_ns, bool blocked);
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
    /* on ctx->dirty, or ctx->filled once fill() was called in this flush */
    struct list dirty_node;
    struct outbuf out;      /* write queue, clear bytes */
    uint64_t flushed;       /* bytes ever queued that the kernel has */
    uint64_t blocked_until; /* queued bytes up to here waited for a full socket */
    struct list marks;      /* struct conn_mark in order of position */
    /* at most one in flight; refers to what is at the front of the queue */
    uv_write_t write;
    size_t write_bytes; /* what it covers */
    uv_connect_t connect;
    uv_shutdown_t shutdown;
    /* connect timeout; conn_close_after_flush's bounds; waiting for the read side to say why */
    struct timer timer;
    struct tls_session *tls; /* owned; NULL: clear text */
    /* not 0: writing failed; reading goes on to what the peer said before */
    int write_error;
    bool open;             /* may carry protocol bytes: connected, TLS handshake done */
    bool writing, blocked; /* `write` is in flight */
    bool filled;           /* dirty_node is on ctx->filled */
    bool reading;          /* uv_read_start is on */
    bool lost, closing;    /* on_lost was called or open failed; uv_close was called */
    /* conn_close_after_flush(): asked; everything is out and the half-close is on its way */
    bool finishing, finished;
    bool eof;       /* while finishing: the peer's FIN is here */
    bool hasty;     /* while finishing: nobody waits for the peer's FIN */
    char peer[128]; /* address as text */
    /* system-call counters (stats cells of the owner), may be NULL */
    _Atomic uint64_t *reads, *writes;
};

struct tls_context;

/* Server: takes an accepted handle. `server` is the listening handle; 0 or a negative errno (then
 * nothing is left open). */
int conn_accept(struct ctx *ctx, uv_stream_t *server, struct tls_context *tls,
                const struct conn_events *events, void *owner, struct conn **out);
/* Server: takes over a connected descriptor (what a drain accepts behind libuv's back). 0 or a
 * negative errno (then the descriptor is closed too). */
int conn_adopt(struct ctx *ctx, int fd, bool is_unix, struct tls_context *tls,
               const struct conn_events *events, void *owner, struct conn **out);
/* Client: starts connecting; on_open follows, never before return. 0 or a negative errno at once.
 * timeout_ns covers TLS's handshake too; 0: none. server_name: whose certificate it must be; NULL:
 * the IP address's. */
int conn_connect(struct ctx *ctx, const struct address *address, uint64_t timeout_ns,
                 struct tls_context *tls, const char *server_name, const struct conn_events *events,
                 void *owner, struct conn **out);
/* TLS client, right after conn_connect: the protocol to offer by ALPN, "h2" (the default) or
 * "http/1.1". Clear: no effect. */
void conn_offer(struct conn *conn, const char *protocol);
/* What ALPN chose: "h2", "http/1.1"; "" when clear, not known yet, or the peer does no ALPN. */
const char *conn_protocol(struct conn *conn);
/* TCP: lost when what was sent has not been acknowledged for this long (TCP_USER_TIMEOUT). */
void conn_limit_unacked(struct conn *conn, unsigned timeout_ms);
/* hand over to a protocol */
void conn_set_events(struct conn *conn, const struct conn_events *events, void *owner);
void conn_start_read(struct conn *conn);
void conn_stop_read(struct conn *conn);
void conn_dirty(struct conn *conn); /* flush at the end of this turn */
/* now; not from inside a protocol callback of the same connection */
void conn_flush(struct conn *conn);
/* copied (frame heads, header blocks) */
void conn_queue(struct conn *conn, const void *bytes, size_t len);
/* moves references */
void conn_queue_slices(struct conn *conn, struct slices *from, uint64_t bytes);
/* enough queued (about 256 KiB) or a write is in flight: stop filling */
bool conn_full(const struct conn *conn);
void conn_mark(struct conn *conn, struct conn_mark *mark); /* at the current end of the queue */
void conn_close(struct conn *conn);
/* After everything queued is with the kernel: half-close politely, wait briefly for the peer's FIN
 * (so that a reset does not destroy what it has not read), then close. */
void conn_close_after_flush(struct conn *conn);
/* The same without waiting for the peer: for ends that owe it nothing. */
void conn_close_when_written(struct conn *conn);

/* For turn.c: one round of the end-of-turn flush. False when there was nothing to do. */
bool conn_fill_dirty(struct ctx *ctx);
bool conn_write_filled(struct ctx *ctx);
void conn_write_dirty(struct ctx *ctx); /* rounds of it, without the deferred, until all is out */

/* Between conn.c and conn_write.c. */
void conn_lose(struct conn *conn, int error); /* on_lost, once */
void conn_count(_Atomic uint64_t *cell);      /* one more system call; the cell may be NULL */
/* marks never fire; queued bytes go unless in flight */
void conn_drop_output(struct conn *conn);
/* what is queued (and TLS's own records), without asking fill() */
void conn_write_now(struct conn *conn);
bool conn_drained(const struct conn *conn); /* nothing waits, nothing is in flight */
/* conn_close_after_flush's next step, if it is time */
void conn_finish_step(struct conn *conn);

#endif
