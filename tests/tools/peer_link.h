/*
 * A socket of the try-out peers: reading, and writing that is merged once per loop turn.
 *
 * Owns: the libuv stream, the write queue. Does not own: what is read, which protocol it is.
 * Happy path: peer_link_wake() marks the link; in uv_prepare, just before the loop polls, every
 * marked link is asked to fill its queue (events->fill) and all of it leaves in one writev.
 * What the kernel does not take goes with uv_write; filling goes on when that is done.
 * Failure: any read or write error closes the link; events->closed comes once, from the uv_close
 * callback, and is the moment to free what holds the link.
 */
#ifndef TOOLS_PEER_LINK_H
#define TOOLS_PEER_LINK_H

#include <uv.h>

#include "peer_bytes.h"

struct peer_link;

struct peer_loop {
    uv_loop_t *loop;
    uv_prepare_t prepare;
    struct peer_link *dirty; /* links to flush before the next poll */
    uint8_t *read_buffer;    /* shared by all links: valid during one read callback */
    uint64_t reads;
    uint64_t writes;
};

struct peer_link_events {
    void (*read)(struct peer_link *link, const uint8_t *data, size_t len_bytes);
    /* Puts more into the queue while peer_link_wants() says so. May be NULL. */
    void (*fill)(struct peer_link *link);
    void (*closed)(struct peer_link *link, int error); /* 0: closed by us; UV_EOF: by the peer */
};

struct peer_segment {
    struct peer_body *body; /* NULL: the bytes are in the queue's arena */
    size_t offset;
    size_t len;
};

struct peer_queue {
    struct peer_body *arena;
    struct peer_segment *segments;
    unsigned count;
    unsigned cap;
    size_t bytes;
};

struct peer_link {
    union {
        uv_handle_t handle;
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
    } io;
    struct peer_loop *owner;
    const struct peer_link_events *events;
    struct peer_link *next_dirty;
    struct peer_queue filling; /* written to by the protocol */
    struct peer_queue flying;  /* held by uv_write */
    uv_write_t write;
    int error;
    bool started; /* connected: before that, output waits */
    bool dirty;
    bool writing;
    bool closing;
    bool close_when_sent;
    unsigned number; /* for records: 1 for the first link of the program */
};

int peer_loop_init(struct peer_loop *owner, uv_loop_t *loop);
/* Closes the prepare handle; run the loop once more before freeing. */
void peer_loop_fini(struct peer_loop *owner);

/* Makes io.tcp (unix_path false) or io.pipe ready for accept or connect. */
void peer_link_init(struct peer_link *link, struct peer_loop *owner, bool unix_path,
                    const struct peer_link_events *events);
/* Starts reading and writing; once connected or accepted. */
void peer_link_start(struct peer_link *link);
/* Asks for a flush before the next poll. */
void peer_link_wake(struct peer_link *link);
/* False when the queue is long enough for one write: fill no further. */
bool peer_link_wants(const struct peer_link *link);
/* Copies bytes into the queue. */
void peer_link_put(struct peer_link *link, const void *data, size_t len_bytes);
/* Puts len_bytes of a body from offset into the queue: short ones by copy, long ones by
 * reference. The caller keeps its own reference. */
void
peer_link_put_body(struct peer_link *link, struct peer_body *body, size_t offset, size_t len_bytes);
/* Closes; events->closed follows from the loop. Harmless when closing already. */
void peer_link_close(struct peer_link *link, int error);
/* Closes once all that is queued has been given to the kernel. */
void peer_link_finish(struct peer_link *link);

#endif
