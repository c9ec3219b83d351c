/*
 * One direction's body. See flow.h for the states.
 *
 * Owns the chunk references in body, out and message. Does not know who sends or receives, and no
 * header.
 *
 * Failure modes: every check returns an error and leaves the flow as it is; the call drops it with
 * flow_fini().
 */
#include "proxy/call/flow.h"

#include "proxy/base/check.h"
#include "proxy/wire/encoding.h"

#include <errno.h>

void
flow_init(struct flow *flow, struct chunk_pool *pool, uint64_t max_message)
{
    memset(flow, 0, offsetof(struct flow, body)); /* the queues are large, and empty by init */
    flow->pool = pool;
    flow->max_message = max_message;
    flow->bare_length = -1;
    flow->held = true;
    flow->kept_whole = true;
    slices_init(&flow->body);
    slices_init(&flow->out);
    slices_init(&flow->message);
}

void
flow_forget(struct flow *flow)
{
    if (flow->held)
        return;
    slices_clear(&flow->body);
    flow->keep = false;
    flow->kept_whole = false;
}

static enum flow_error
inflate_into(struct flow *flow, const struct slices *from, struct slices *to)
{
    if (!flow->gzip)
        return FLOW_UNKNOWN_ENCODING;
    switch (encoding_gunzip(flow->pool, from, to, flow->max_message)) {
    case 0:
        return FLOW_OK;
    case -EFBIG:
        return FLOW_TOO_LONG;
    case -ENOBUFS:
        return FLOW_NO_BUDGET;
    default:
        return FLOW_BAD_GZIP;
    }
}

static enum flow_error
append(struct flow *flow, struct slices *to, const uint8_t *data, size_t len, uint64_t expected)
{
    return slices_append(to, flow->pool, data, len, expected) ? FLOW_OK : FLOW_NO_BUDGET;
}

/* A piece of a passing body. The budget judges it by all that waits of this body: the pieces are
 * short, but a reader that stands still gathers many of them. */
static enum flow_error
append_out(struct flow *flow, const uint8_t *data, size_t len)
{
    uint64_t occupied = flow->queued_bytes + flow->out.bytes + len;
    struct chunk **open = __builtin_expect(flow->queued_bytes > 0, 0) ? &flow->open : NULL;
    bool fits = slices_append_piece(&flow->out, flow->pool, open, data, len, occupied);
    return fits ? FLOW_OK : FLOW_NO_BUDGET;
}

static enum flow_error
put_prefix(struct flow *flow, struct slices *to, bool compressed, uint64_t length)
{
    uint8_t prefix[PREFIX_BYTES];
    if (length > UINT32_MAX)
        return FLOW_TOO_LONG;
    prefix_write(prefix, compressed, (uint32_t)length);
    return append(flow, to, prefix, sizeof(prefix), 0);
}

/* What a new prefix must fulfil, whatever happens to its message. */
static enum flow_error
check_prefix(struct flow *flow)
{
    const struct prefix_reader *reader = &flow->reader;
    if (reader->messages == 1) {
        flow->first_length = reader->current.length;
        flow->first_compressed = reader->current.compressed;
    } else if (flow->one_message) {
        return FLOW_SEVERAL;
    }
    if (reader->current.compressed && !flow->encoding_known)
        return FLOW_NO_ENCODING;
    return reader->current.length > flow->max_message ? FLOW_TOO_LONG : FLOW_OK;
}

/* framed → framed, inflating: a compressed message leaves as a plain one. */
static enum flow_error
finish_inflated(struct flow *flow)
{
    struct slices plain;
    slices_init(&plain);
    enum flow_error error = FLOW_OK;
    if (flow->reader.current.compressed && flow->message.bytes > 0)
        error = inflate_into(flow, &flow->message, &plain);
    else
        slices_move(&plain, &flow->message, flow->message.bytes);
    if (error == FLOW_OK)
        error = put_prefix(flow, &flow->out, false, plain.bytes);
    if (error == FLOW_OK) {
        flow->out_bytes += plain.bytes;
        slices_move(&flow->out, &plain, plain.bytes);
    }
    slices_clear(&plain);
    slices_clear(&flow->message);
    return error;
}

/* Where the message bytes of a framed source go; NULL: nowhere (raw bytes are handled by the
 * caller). */
static struct slices *
framed_target(struct flow *flow, bool translate)
{
    if (!translate)
        return NULL;
    if (flow->to == FORM_BARE)
        return flow->inflate && flow->first_compressed ? &flow->message : &flow->out;
    return flow->inflate ? &flow->message : NULL;
}

static enum flow_error
message_done(struct flow *flow, bool translate)
{
    flow->first_complete = true;
    if (translate && flow->to == FORM_FRAMED && flow->inflate)
        return finish_inflated(flow);
    return FLOW_OK;
}

/* Walk the prefixes of framed bytes; with `translate`, message bytes go where the target form wants
 * them. */
static enum flow_error
walk(struct flow *flow, const uint8_t *data, size_t len, bool translate)
{
    const uint8_t *body;
    size_t body_len;
    enum flow_error error = FLOW_OK;
    while (error == FLOW_OK) {
        switch (prefix_next(&flow->reader, &data, &len, &body, &body_len)) {
        case PREFIX_NEED_MORE:
            return FLOW_OK;
        case PREFIX_BAD_FLAG:
            return FLOW_BAD_FLAG;
        case PREFIX_MESSAGE:
            error = check_prefix(flow);
            break;
        case PREFIX_BODY: {
            struct slices *to = framed_target(flow, translate);
            flow->message_bytes += body_len;
            if (to == &flow->out) {
                error = append_out(flow, body, body_len);
                flow->out_bytes += body_len;
            } else if (to) {
                error = append(flow, to, body, body_len, flow->reader.current.length);
            }
            break;
        }
        case PREFIX_DONE:
            error = message_done(flow, translate);
            break;
        }
    }
    return error;
}

static bool
passes_raw(const struct flow *flow)
{
    return flow->from == flow->to && !flow->inflate;
}

static enum flow_error
feed_held(struct flow *flow, const uint8_t *data, size_t len)
{
    uint64_t expected = flow->bare_length > 0 ? (uint64_t)flow->bare_length : 0;
    if (flow->from == FORM_FRAMED) {
        enum flow_error error = walk(flow, data, len, false);
        if (error != FLOW_OK)
            return error;
        expected = (uint64_t)flow->first_length + PREFIX_BYTES;
    } else {
        flow->message_bytes += len;
        if (flow->message_bytes > flow->max_message)
            return FLOW_TOO_LONG;
    }
    return append(flow, &flow->body, data, len, expected);
}

static enum flow_error
feed_bare(struct flow *flow, const uint8_t *data, size_t len)
{
    flow->message_bytes += len;
    if (flow->message_bytes > flow->max_message)
        return FLOW_TOO_LONG;
    if (flow->to == FORM_FRAMED && !flow->prefixed) {
        check(flow->bare_length >= 0);
        flow->prefixed = true;
        enum flow_error error =
            put_prefix(flow, &flow->out, flow->bare_compressed, (uint64_t)flow->bare_length);
        if (error != FLOW_OK)
            return error;
    }
    flow->out_bytes += len;
    return append_out(flow, data, len);
}

static enum flow_error
feed_framed(struct flow *flow, const uint8_t *data, size_t len)
{
    if (!passes_raw(flow))
        return walk(flow, data, len, true);
    uint64_t before = flow->message_bytes;
    enum flow_error error = walk(flow, data, len, false);
    flow->out_bytes += flow->message_bytes - before;
    if (error == FLOW_OK)
        error = append_out(flow, data, len);
    return error;
}

/* What has just been put out is what was fed, byte for byte. */
static bool
passed_unchanged(const struct flow *flow, size_t len, uint64_t message_bytes)
{
    return flow->out.bytes == len && !flow->inflate && (passes_raw(flow) || message_bytes == len);
}

/* Keep a reference to what passes, while it is little, in case the provider provably did not take
 * it. message_bytes: how many of the bytes are not prefixes. */
static void
keep_passing(struct flow *flow, const uint8_t *data, size_t len, uint64_t message_bytes)
{
    if (!flow->keep || !flow->kept_whole)
        return;
    bool fits = flow->body.bytes + len <= FLOW_REPLAY_KEEP;
    if (fits && passed_unchanged(flow, len, message_bytes))
        slices_share(&flow->body, &flow->out);
    else if (!fits || append(flow, &flow->body, data, len, flow->body.bytes + len) != FLOW_OK)
        flow_forget(flow);
}

enum flow_error
flow_feed(struct flow *flow, const uint8_t *data, size_t len)
{
    if (len == 0)
        return FLOW_OK;
    flow->raw_bytes += len;
    uint64_t before = flow->message_bytes;
    enum flow_error error;
    if (flow->held)
        error = feed_held(flow, data, len);
    else
        error = flow->from == FORM_BARE ? feed_bare(flow, data, len) : feed_framed(flow, data, len);
    if (error == FLOW_OK && !flow->held)
        keep_passing(flow, data, len, flow->message_bytes - before);
    flow->lost |= error != FLOW_OK;
    return error;
}

static enum flow_error
end_framed(struct flow *flow)
{
    /* A framed reader downstream of us sees a cut message itself; one message in bare form it could
     * not see. */
    if (!prefix_at_boundary(&flow->reader) &&
        (flow->one_message || flow->to == FORM_BARE || flow->inflate))
        return FLOW_CUT;
    if (flow->one_message && flow->reader.messages == 0)
        return FLOW_NONE;
    return FLOW_OK;
}

enum flow_error
flow_end(struct flow *flow)
{
    flow->ended = true;
    if (flow->from == FORM_FRAMED)
        return end_framed(flow);
    flow->first_complete = true;
    if (!flow->held && flow->to == FORM_FRAMED && !flow->prefixed) {
        flow->prefixed = true; /* an empty message: the prefix alone */
        return put_prefix(flow, &flow->out, false, 0);
    }
    return FLOW_OK;
}

static void
hand_over(struct slices *to, struct slices *from, bool keep)
{
    if (keep)
        slices_share(to, from);
    else
        slices_move(to, from, from->bytes);
}

static enum flow_error
release_framed_inflating(struct flow *flow, bool keep)
{
    struct slices raw;
    slices_init(&raw);
    hand_over(&raw, &flow->body, keep);
    memset(&flow->reader, 0, sizeof(flow->reader));
    flow->message_bytes = 0;
    enum flow_error error = FLOW_OK;
    while (error == FLOW_OK && slices_front(&raw)) {
        struct slice *front = slices_front(&raw);
        error = walk(flow, front->data, front->len, true);
        slices_drop(&raw, front->len);
    }
    slices_clear(&raw);
    return error;
}

/* The prefix for a bare source's message, when its length is certain by now. */
static enum flow_error
release_prefix(struct flow *flow, uint64_t held_bytes)
{
    bool certain = flow->ended || (flow->bare_length >= 0 && held_bytes > 0);
    if (flow->from != FORM_BARE || flow->to != FORM_FRAMED || !certain)
        return FLOW_OK; /* feed_bare() puts it before the first byte */
    uint64_t length = flow->ended ? held_bytes : (uint64_t)flow->bare_length;
    flow->prefixed = true;
    bool compressed = flow->bare_compressed && !flow->inflate && length > 0;
    return put_prefix(flow, &flow->out, compressed, length);
}

/* The message's held bytes, without what a framed source put before them. */
static void
release_bytes(struct flow *flow, bool keep, struct slices *message)
{
    hand_over(message, &flow->body, keep);
    if (flow->from == FORM_FRAMED)
        slices_drop(message, message->bytes < PREFIX_BYTES ? message->bytes : PREFIX_BYTES);
}

static enum flow_error
release_inflating(struct flow *flow, bool keep)
{
    struct slices raw, plain;
    slices_init(&raw);
    slices_init(&plain);
    release_bytes(flow, keep, &raw);
    check(flow->ended || raw.bytes == 0); /* path.c waits for the end where it must be inflated */
    enum flow_error error = raw.bytes > 0 ? inflate_into(flow, &raw, &plain) : FLOW_OK;
    if (error == FLOW_OK)
        error = release_prefix(flow, plain.bytes);
    flow->out_bytes = plain.bytes;
    slices_move(&flow->out, &plain, plain.bytes);
    slices_clear(&raw);
    slices_clear(&plain);
    return error;
}

static enum flow_error
release_as_it_is(struct flow *flow, bool keep)
{
    enum flow_error error = release_prefix(flow, flow->body.bytes);
    uint64_t before = flow->out.bytes;
    release_bytes(flow, keep, &flow->out);
    flow->out_bytes = flow->out.bytes - before;
    return error;
}

enum flow_error
flow_release(struct flow *flow, bool keep)
{
    flow->held = false;
    flow->keep = keep;
    flow->prefixed = false;
    flow->out_bytes = 0;
    slices_clear(&flow->out);
    if (!keep)
        flow->kept_whole = false;
    if (flow->from == FORM_FRAMED && flow->to == FORM_FRAMED) {
        if (flow->inflate)
            return release_framed_inflating(flow, keep);
        flow->out_bytes = flow->message_bytes;
        hand_over(&flow->out, &flow->body, keep);
        return FLOW_OK;
    }
    bool compressed = flow->from == FORM_FRAMED ? flow->first_compressed : flow->bare_compressed;
    return flow->inflate && compressed ? release_inflating(flow, keep)
                                       : release_as_it_is(flow, keep);
}

void
flow_hold(struct flow *flow)
{
    check(flow->held || flow->kept_whole);
    slices_clear(&flow->message);
    flow->queued_bytes = 0;
    flow_sent(flow);
    flow->held = true;
}

int64_t
flow_bare_length(const struct flow *flow)
{
    if (flow->ended && !flow->held && flow->to == FORM_BARE)
        return (int64_t)flow->out_bytes;
    if (flow->from == FORM_BARE)
        return flow->ended ? (int64_t)flow->message_bytes : flow->bare_length;
    return flow->reader.messages > 0 ? (int64_t)flow->first_length : -1;
}

bool
flow_is_cut(const struct flow *flow)
{
    if (flow->held || flow->lost)
        return flow->lost && !flow->held; /* held: nothing has been put out */
    if (flow->from == FORM_FRAMED)
        return !prefix_at_boundary(&flow->reader);
    return flow->prefixed && flow->bare_length >= 0 &&
           flow->out_bytes < (uint64_t)flow->bare_length;
}
