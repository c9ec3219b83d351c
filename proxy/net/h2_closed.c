/*
 * Frames on streams that are over (RFC 9113 sections 5.1 and 5.1.1), for servers.
 *
 * Owns a short memory of the streams that were opened last, and whether the peer had ended them
 * (END_STREAM or RST_STREAM). nghttp2 could keep closed streams itself, but as many of them as may
 * be open at once, which costs more memory per connection than everything else; without them it
 * drops such frames in silence and calls nobody. So this file looks at the bytes before nghttp2
 * does: nine of each frame.
 *
 * Happy path: HEADERS with a new id takes a slot; END_STREAM or RST_STREAM marks it. DATA or
 * HEADERS for a marked stream is a fault: DATA costs the stream, HEADERS the connection. HEADERS
 * with an id that was passed over cost the connection. What a peer still sends after *our* reset is
 * no fault: it may have been on its way.
 *
 * Failure modes: a stream whose slot a later one has taken (64 streams later) is forgotten, and its
 * frames are dropped. Faults are counted (reset_limit), so that nobody can make us send RST_STREAM
 * for ever.
 */
#include "proxy/net/h2_private.h"

static const uint32_t PEER_DONE = UINT32_C(1) << 31;

static uint32_t *
slot_of(struct h2_closed *closed, uint32_t id)
{
    return &closed->slots[id / 2 % H2_CLOSED_SLOTS];
}

/* HEADERS or DATA: what is wrong with them, and a new stream's slot. */
static uint32_t
check_frame(struct h2_closed *closed, bool headers, uint32_t id)
{
    uint32_t *slot = slot_of(closed, id);
    if (id > closed->last_id) {
        if (headers) {
            closed->last_id = id;
            *slot = id;
        }
        return 0; /* DATA on an idle stream: nghttp2's own check */
    }
    if (*slot == (id | PEER_DONE))
        return NGHTTP2_STREAM_CLOSED;
    /* Ids only grow: a lower one in its slot means that this one was never opened. */
    return headers && (*slot & ~PEER_DONE) < id ? NGHTTP2_PROTOCOL_ERROR : 0;
}

/* A frame's head is complete. */
static void
read_head(struct h2_closed *closed, struct h2_closed_fault *fault)
{
    const uint8_t *head = closed->head;
    uint8_t type = head[3], flags = head[4];
    uint32_t id =
        (uint32_t)head[5] << 24 | (uint32_t)head[6] << 16 | (uint32_t)head[7] << 8 | head[8];
    bool headers = type == NGHTTP2_HEADERS;
    id &= ~PEER_DONE;
    if (id % 2 == 0) /* the connection's, or no client's: nghttp2's own check */
        return;
    if (headers || type == NGHTTP2_DATA) {
        fault->h2_error = check_frame(closed, headers, id);
        fault->stream_id = headers ? 0 : id;
    }
    bool ends = type == NGHTTP2_RST_STREAM ||
                ((headers || type == NGHTTP2_DATA) && flags & NGHTTP2_FLAG_END_STREAM);
    if (ends && *slot_of(closed, id) == id)
        *slot_of(closed, id) |= PEER_DONE;
}

/* Bytes of data that belong to the frame head being gathered; the frame is judged once complete. */
static size_t
gather_head(struct h2_closed *closed, const uint8_t *data, size_t len,
            struct h2_closed_fault *fault)
{
    size_t missing = H2_FRAME_HEAD - closed->head_len, taken = len < missing ? len : missing;
    memcpy(closed->head + closed->head_len, data, taken);
    closed->head_len += (uint8_t)taken;
    if (closed->head_len < H2_FRAME_HEAD)
        return taken;
    closed->head_len = 0;
    closed->skip =
        (uint32_t)closed->head[0] << 16 | (uint32_t)closed->head[1] << 8 | closed->head[2];
    read_head(closed, fault);
    return taken;
}

size_t
h2_closed_scan(struct h2_closed *closed, const uint8_t *data, size_t len,
               struct h2_closed_fault *fault)
{
    size_t at = 0;
    memset(fault, 0, sizeof(*fault));
    while (at < len && fault->h2_error == 0) {
        size_t left = len - at, skipped = closed->skip < left ? closed->skip : left;
        closed->skip -= (uint32_t)skipped;
        at += skipped;
        if (at < len)
            at += gather_head(closed, data + at, len - at, fault);
    }
    return at;
}

void
h2_closed_answer(struct h2 *h2, const struct h2_closed_fault *fault)
{
    if (fault->stream_id)
        nghttp2_submit_rst_stream(h2->session, NGHTTP2_FLAG_NONE, (int32_t)fault->stream_id,
                                  fault->h2_error);
    else
        h2_terminate(h2, fault->h2_error, UV_EPROTO, "HEADERS on a stream that is over");
    h2_limits_fault(h2);
}
