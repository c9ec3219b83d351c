/*
 * Outgoing HTTP/1.1: heads, bodies, trailers.
 *
 * A head is written when it is given, but for its last lines: whether a content-length can be told
 * is decided at the end of the turn, when the whole body may be there. Happy path: h1_send_head,
 * h1_send_data(end) -> h1_fill -> mark -> on_flushed. Failure modes: an owner that sends more or
 * less than the content-length it gave: the connection closes, so that the peer sees a broken
 * message and never a wrong one.
 */
#include <errno.h>

#include "proxy/net/h1_private.h"

static struct h1_stream *
exchange_of(struct stream *stream)
{
    return (struct h1_stream *)stream;
}

/* Still able to say something on the wire. */
static bool
sendable(const struct h1_stream *exchange)
{
    return exchange->h1 && !exchange->h1->down && exchange->h1->stream == exchange &&
           !exchange->stream.out_end;
}

void
h1_give_head(struct h1_stream *exchange, const struct fields *fields, bool end)
{
    struct h1 *h1 = exchange->h1;
    uint64_t length;
    h1->head.len -= 2; /* the empty line: the last fields come at h1_fill() */
    if (text_to_u64(fields_value(fields, TEXT("content-length")), &length)) {
        exchange->framing = H1_LENGTH;
        exchange->length_left = length;
    }
    if (exchange->no_body)
        exchange->framing = H1_NO_BODY;
    exchange->head_given = true;
    exchange->stream.out_end = end;
    conn_dirty(h1->conn);
}

static int
status_of(const struct fields *fields)
{
    uint64_t status;
    return text_to_u64(fields_value(fields, TEXT(":status")), &status) && status >= 100 &&
                   status <= 999
               ? (int)status
               : 0;
}

int
h1_send_head(struct stream *stream, const struct fields *fields, bool end)
{
    struct h1_stream *exchange = exchange_of(stream);
    int status = status_of(fields);
    if (!sendable(exchange) || exchange->head_given || !exchange->h1->server)
        return -EPIPE;
    if (status < 200)
        return -EINVAL;
    strbuf_clear(&exchange->h1->head);
    http1_write_response(&exchange->h1->head, status, fields);
    if (status == 204 || status == 304)
        exchange->no_body = true;
    h1_give_head(exchange, fields, end);
    return 0;
}

void
h1_send_data(struct stream *stream, struct slices *body, bool end)
{
    struct h1_stream *exchange = exchange_of(stream);
    if (!sendable(exchange) || !exchange->head_given) {
        slices_clear(body);
        return;
    }
    slices_move(&stream->out, body, body->bytes);
    stream->out_end = end;
    if (exchange->h1->conn->writing && !stream->stalled_since_ns)
        stream->stalled_since_ns = exchange->ctx->turn_ns;
    conn_dirty(exchange->h1->conn);
}

void
h1_send_trailers(struct stream *stream, const struct fields *trailers)
{
    struct h1_stream *exchange = exchange_of(stream);
    if (!sendable(exchange) || !exchange->head_given)
        return;
    strbuf_clear(&exchange->trailers);
    http1_write_response(&exchange->trailers, 200,
                         trailers); /* field lines and the empty line, behind a first line */
    stream->out_end = true;
    conn_dirty(exchange->h1->conn);
}

/* The lines behind "HTTP/1.1 200 OK\r\n", or just the empty one. */
static struct text
trailer_lines(const struct h1_stream *exchange)
{
    struct text all = strbuf_text(&exchange->trailers);
    ptrdiff_t line = text_find(all, '\n', 0);
    return line < 0 ? TEXT("\r\n") : text_from(all, (size_t)line + 1);
}

/* No content-length was given: tell the body's end in the best way that is left. */
static void
decide_framing(struct h1 *h1, struct h1_stream *exchange)
{
    struct stream *stream = &exchange->stream;
    if (stream->out_end && exchange->trailers.len == 0) {
        exchange->framing = H1_LENGTH;
        exchange->length_left = stream->out.bytes;
        if (!exchange->plain_end || stream->out.bytes > 0)
            strbuf_addf(&h1->head, "content-length: %llu\r\n",
                        (unsigned long long)stream->out.bytes);
    } else if (h1->server && h1->reader.minor == 0) {
        exchange->framing = H1_UNTIL_CLOSE;
        h1->keep = false;
    } else {
        exchange->framing = H1_CHUNKED;
        strbuf_add_str(&h1->head, "transfer-encoding: chunked\r\n");
    }
}

static void
queue_head(struct h1 *h1, struct h1_stream *exchange)
{
    if (exchange->framing == H1_UNDECIDED)
        decide_framing(h1, exchange);
    /* A reply that is complete before its request was read ends the connection (RFC 9112
     * section 9.6). */
    if (h1->server && exchange->stream.out_end && !exchange->stream.in_end)
        h1->keep = false;
    if (h1->draining || !h1->keep)
        strbuf_add_str(&h1->head, "connection: close\r\n");
    else if (h1->server && h1->reader.minor == 0)
        strbuf_add_str(&h1->head, "connection: keep-alive\r\n");
    strbuf_add(&h1->head, "\r\n", 2);
    exchange->start = h1->conn->out.queued;
    conn_queue(h1->conn, h1->head.data, h1->head.len);
    exchange->head_queued = true;
}

static void
queue_part(struct h1 *h1, struct h1_stream *exchange, uint64_t part)
{
    struct stream *stream = &exchange->stream;
    if (exchange->framing == H1_NO_BODY) {
        slices_drop(&stream->out, part);
        return;
    }
    if (exchange->framing != H1_CHUNKED) {
        if (exchange->framing == H1_LENGTH)
            exchange->length_left -= part;
        conn_queue_slices(h1->conn, &stream->out, part);
        return;
    }
    strbuf_clear(&h1->head);
    http1_write_chunk_head(&h1->head, part);
    conn_queue(h1->conn, h1->head.data, h1->head.len);
    conn_queue_slices(h1->conn, &stream->out, part);
    conn_queue(h1->conn, "\r\n", 2);
}

/* False when more came than the content-length promised. */
static bool
queue_body(struct h1 *h1, struct h1_stream *exchange)
{
    struct stream *stream = &exchange->stream;
    size_t sent = 0;
    bool fits = exchange->framing != H1_LENGTH || stream->out.bytes <= exchange->length_left;
    while (fits && stream->out.bytes > 0 && !conn_full(h1->conn)) {
        uint64_t part = stream->out.bytes < H1_PART_BYTES ? stream->out.bytes : H1_PART_BYTES;
        queue_part(h1, exchange, part);
        sent += part;
    }
    if (stream->stalled_since_ns) {
        stream->stalled_ns += exchange->ctx->turn_ns - stream->stalled_since_ns;
        stream->stalled_since_ns = 0;
    }
    if (stream->out.bytes > 0)
        stream->stalled_since_ns = exchange->ctx->turn_ns;
    if (sent > 0 && stream->events)
        stream->events->on_sent(stream, sent);
    return fits;
}

static void
finish_out(struct h1 *h1, struct h1_stream *exchange)
{
    struct text trailers = trailer_lines(exchange);
    if (exchange->framing == H1_CHUNKED) {
        conn_queue(h1->conn, "0\r\n", 3);
        conn_queue(h1->conn, trailers.ptr, trailers.len);
    }
    exchange->stream.out_closed = true;
    exchange->marked_ns = exchange->ctx->turn_ns;
    conn_mark(h1->conn, &exchange->stream.mark);
    if (h1->server)
        h1_server_step(h1);
    else
        h1_client_step(h1);
}

void
h1_fill(struct conn *conn)
{
    struct h1 *h1 = conn->owner;
    struct h1_stream *exchange = h1->stream;
    if (h1->down || !exchange || !exchange->head_given || exchange->stream.out_closed)
        return;
    if (!exchange->head_queued)
        queue_head(h1, exchange);
    bool fits = queue_body(h1, exchange);
    if (h1->down || h1->stream != exchange || list_linked(&h1->ending.node))
        return; /* on_sent gave it up */
    bool ended = exchange->stream.out_end && exchange->stream.out.bytes == 0;
    if (!fits || (ended && exchange->framing == H1_LENGTH && exchange->length_left > 0)) {
        h1_stream_lose(exchange, STREAM_UNSENDABLE);
        h1_leave(h1, "body and content-length differ");
        return;
    }
    if (ended)
        finish_out(h1, exchange);
}
