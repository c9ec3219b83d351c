/*
 * The worker's context: what everything on one loop shares. Owns the loop's pools, the end-of-turn
 * work and the graveyard.
 *
 * A turn of the loop: timers, then uv_prepare (end of the previous turn's work: deferred functions
 * run, dirty connections are flushed with one writev each, the graveyard is emptied), then poll and
 * read callbacks.
 */
#ifndef TRIBUTARY_NET_CTX_H
#define TRIBUTARY_NET_CTX_H

#include <nghttp2/nghttp2.h>
#include <uv.h>

#include "proxy/base/chunk.h"
#include "proxy/base/list.h"
#include "proxy/base/rng.h"
#include "proxy/base/slab.h"
#include "proxy/base/text.h"
#include "proxy/net/timers.h"

/* Work for the end of this turn, before the flush; embedded in its owner. */
struct deferred {
    struct list node; /* list_init'd by the owner before first use; linked while waiting */
    void (*run)(struct deferred *deferred); /* unlinked before it is called */
};

/* Something to free once no callback of this turn can still hold it; embedded in its owner. */
struct grave {
    struct list node;
    void (*bury)(struct grave *grave);
};

enum {
    /* So much read in one turn, and output waits no longer for its end. Bytes: bodies are passed on
     * while they are in the cache. Heads: the peers begin to work while we go on reading. */
    CTX_FLUSH_BYTES = 256 * 1024,
    CTX_FLUSH_HEADS = 32,
    CTX_H2_NAMES = 256,
};

/* A name of HPACK's static table: h2_session.c. */
struct ctx_h2_name {
    const nghttp2_rcbuf *buffer;
    struct text text;
    unsigned class; /* enum header_class */
};

struct ctx {
    uv_loop_t *loop;
    unsigned index;    /* worker number */
    bool merge_writes; /* off: connections are flushed at each event, for measuring */
    /* when the running read, timer or prepare callback began: stamped when a read returns */
    uint64_t turn_ns;
    struct chunk_pool chunks;
    struct slab slab;
    nghttp2_mem h2_mem;           /* nghttp2's allocations, from the slab */
    struct ctx_h2_name *h2_names; /* CTX_H2_NAMES, by the buffer's address */
    struct timers timers;
    struct rng rng;
    struct list deferred;  /* struct deferred */
    struct list dirty;     /* struct conn: has output to flush */
    struct list filled;    /* struct conn: asked to fill in this flush, to be written */
    struct list graveyard; /* struct grave */
    uv_prepare_t prepare;
    size_t unflushed; /* bytes read since all output was written */
    unsigned unflushed_heads;
    struct timer trim; /* every two seconds while anything happened: gives memory back */
    /* trims until memory that lay unused is given back; then the timer rests */
    unsigned trims_left;
    bool resting; /* ctx_rest() */
    void *owner;  /* struct worker */
};

int ctx_init(struct ctx *ctx, uv_loop_t *loop, unsigned index, struct budget *budget);
/* The end is near: memory need not be given back any more, and waiting to do so must not keep the
 * loop alive. */
void ctx_rest(struct ctx *ctx);
void ctx_close(struct ctx *ctx); /* stops its handles; the loop then ends by itself */
void ctx_fini(struct ctx *ctx);  /* after the loop ended */
/* A request's or a reply's head has been read: notes it, returns when. */
static inline uint64_t
ctx_head_read(struct ctx *ctx)
{
    ctx->unflushed_heads++;
    return ctx->turn_ns;
}
void ctx_defer(struct ctx *ctx, struct deferred *deferred); /* again before it ran: no effect */
void ctx_bury(struct ctx *ctx, struct grave *grave, void (*bury)(struct grave *grave));
/* Everything that the prepare callback does, at once: for loops that would otherwise end (drain,
 * tests). */
void ctx_flush(struct ctx *ctx);
void ctx_touch(struct ctx *ctx); /* turn_ns = now: first thing in each library callback */

#endif
