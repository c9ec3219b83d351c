/*
 * One direction's body on its way from one wire form to the other: holding, framing, unframing,
 * decompressing, counting.
 *
 * Bytes are copied once at most, from where they were read into chunks (slices.h). While a body is
 * held its bytes stay raw, as received, so that it can be sent in either form, and again. What
 * needs no translation is not touched: framed → framed passes the same bytes, after a look at each
 * prefix (flag, length against the limit).
 *
 *   held:    feed → body;            release: body → out (translated), then the flow passes
 *   passing: feed → out (translated; also shared into body while a replay is possible);
 *            hold: a second try begins, body has all of it and gathers on
 */
#ifndef TRIBUTARY_CALL_FLOW_H
#define TRIBUTARY_CALL_FLOW_H

#include "proxy/base/slices.h"
#include "proxy/call/codec.h"
#include "proxy/wire/prefix.h"

enum flow_error {
    FLOW_OK,
    FLOW_TOO_LONG,         /* a message over the limit */
    FLOW_NO_BUDGET,        /* no memory left in the budget */
    FLOW_BAD_FLAG,         /* a compressed-flag byte that is neither 0 nor 1 */
    FLOW_NO_ENCODING,      /* compressed flag, but no encoding was announced */
    FLOW_UNKNOWN_ENCODING, /* must be decompressed or named, but the encoding is not known here */
    FLOW_SEVERAL,          /* a second message where one is allowed */
    FLOW_CUT,              /* ended inside a prefix or a message */
    FLOW_NONE,             /* ended without the one message that is needed */
    FLOW_BAD_GZIP,         /* compressed bytes that do not decompress */
};

enum { FLOW_REPLAY_KEEP = 64 * 1024 }; /* bytes of a passing body that are kept for a replay */

struct flow {
    /* settings: the call sets them before the first byte, `to`, `inflate` and `one_message` at the
     * latest before release */
    struct chunk_pool *pool;
    enum body_form from, to;
    uint64_t max_message; /* bytes, decoded where the flow inflates */
    int64_t bare_length;  /* bare source: its content-length; -1 unknown */
    bool one_message;     /* unary: several, or none, is an error */
    bool encoding_known;  /* flag 1 is legal: an encoding was announced */
    bool gzip;            /* and it is gzip */
    bool bare_compressed; /* bare source: its bytes are compressed */
    bool inflate;         /* decompress on the way */
    bool keep;            /* passing: keep up to FLOW_REPLAY_KEEP raw bytes in body */
    /* passing: bytes taken from out and handed to the other side's stream, that are not yet in its
     * write queue. The call counts them (credit.c); the budget's last part goes by what a body
     * really occupies. */
    uint64_t queued_bytes;

    /* state */
    bool held;                        /* bytes gather in body until flow_release() */
    bool ended, prefixed, kept_whole; /* kept_whole: body still has every byte */
    struct prefix_reader reader;      /* framed source */
    uint64_t raw_bytes;               /* received, prefixes included */
    uint64_t message_bytes;           /* received, prefixes not included */
    uint64_t out_bytes;               /* message bytes put out, prefixes not included */
    uint32_t first_length;            /* framed source: of the first message */
    bool first_compressed;
    bool first_complete;
    bool lost;             /* a feed failed: its bytes went nowhere */
    struct chunk *open;    /* passing, pieces wait: what the last short one was copied into */
    struct slices body;    /* raw bytes */
    struct slices out;     /* translated, ready to be sent: the caller takes it */
    struct slices message; /* inflating framed → framed: the message being gathered */
};

/* Held, framed → framed, nothing announced. max_message in bytes. */
void flow_init(struct flow *flow, struct chunk_pool *pool, uint64_t max_message);
/* Take received bytes (copied, or referred to). Any error is final for the call. */
enum flow_error flow_feed(struct flow *flow, const uint8_t *data, size_t len);
/* The source ended: checks that it may end here. */
enum flow_error flow_end(struct flow *flow);
/*
 * Translate what is held into out, for form `to`; from then on the flow passes what is fed. keep:
 * body stays for a second try (flow_hold, then flow_release again).
 */
enum flow_error flow_release(struct flow *flow, bool keep);
/* Before a second try: what was put out is void, until the next release. Only while kept_whole. */
void flow_hold(struct flow *flow);
/* Bytes of the one message on a bare wire, if they're known now: -1 otherwise. Exact after release
 * of an ended flow. */
int64_t flow_bare_length(const struct flow *flow);
/* Whether what has been put out may end inside a message. */
bool flow_is_cut(const struct flow *flow);
/* Nothing of what was put out waits any more. */
static inline void
flow_sent(struct flow *flow)
{
    if (!flow->open)
        return;
    chunk_put(flow->open);
    flow->open = NULL;
}
static inline void
flow_fini(struct flow *flow)
{
    flow_sent(flow);
    slices_fini(&flow->body);
    slices_fini(&flow->out);
    slices_fini(&flow->message);
}
void flow_forget(struct flow *flow); /* drop what is kept for a second try */

#endif
