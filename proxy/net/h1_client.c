/*
 * HTTP/1.1 as a client: one request at a time on a kept connection.
 *
 * Happy path: h1_client_open -> h1_request -> on_head, on_data, on_end -> on_idle -> h1_request
 * again. Failure modes: the connection dies or the reply is malformed: on_reset, on_down. A reply
 * that ends before the request was sent, or that says so, ends the connection after the exchange.
 * Bytes that nobody asked for end it too.
 */
#include "proxy/net/h1_private.h"
#include "proxy/wire/header_class.h"

struct h1 *
h1_client_open(struct conn *conn, const struct h1_options *options, const struct h1_events *events,
               void *owner)
{
    struct h1 *h1 = h1_new(conn, false, options, events, owner);
    conn_start_read(conn);
    return h1;
}

bool
h1_usable(const struct h1 *h1)
{
    return !h1->down && !h1->stream && !h1->draining && !list_linked(&h1->ending.node) &&
           !h1->conn->lost && !h1->conn->write_error;
}

bool
h1_used_before(const struct h1 *h1)
{
    return h1->completed > 0;
}

/* Pseudo-fields become the first line and Host; hop-by-hop fields stay behind. */
static void
write_request(struct h1 *h1, const struct fields *fields)
{
    struct fields out;
    fields_init(&out, &h1->arena);
    fields_add(&out, TEXT("host"), fields_value(fields, TEXT(":authority")), FIELD_STATIC_NAME);
    fields_for_each (field, fields) {
        enum header_class class = header_class_of_field(field);
        if (!header_is_pseudo(class) && class != HEADER_HOP && class != HEADER_HOST &&
            class != HEADER_TE)
            fields_add(&out, field->name, field->value, field->flags);
    }
    strbuf_clear(&h1->head);
    http1_write_request(&h1->head, fields_value(fields, TEXT(":method")),
                        fields_value(fields, TEXT(":path")), &out);
}

struct stream *
h1_request(struct h1 *h1, const struct fields *fields, bool end, const struct stream_events *events,
           void *owner, struct fields *reply_fields, struct fields *reply_trailers)
{
    if (!h1_usable(h1))
        return NULL;
    struct text method = fields_value(fields, TEXT(":method"));
    h1_next_message(h1);
    struct h1_stream *exchange = h1_stream_new(h1);
    exchange->stream.events = events;
    exchange->stream.owner = owner;
    exchange->stream.fields = reply_fields;
    exchange->stream.trailer_fields = reply_trailers;
    exchange->plain_end = !text_eq(method, TEXT("POST")) && !text_eq(method, TEXT("PUT"));
    if (text_eq(method, TEXT("HEAD")))
        http1_reader_expect_head(&h1->reader);
    write_request(h1, fields);
    h1_give_head(exchange, fields, end);
    return &exchange->stream;
}

void
h1_client_head(struct h1 *h1)
{
    const struct http1_reader *reader = &h1->reader;
    struct h1_stream *exchange = h1->stream;
    struct stream *stream = &exchange->stream;
    exchange->head_ended = !reader->chunked && !reader->until_close && reader->remaining == 0;
    stream->head_ns = ctx_head_read(h1->ctx);
    h1->keep = h1->keep && reader->keep_alive;
    if (stream->fields) {
        struct text status = arena_printf(stream->fields->arena, "%03d", reader->status);
        fields_add(stream->fields, TEXT(":status"), status, FIELD_STATIC_NAME);
        h1_copy_fields(stream->fields, &reader->fields);
    }
    if (stream->events)
        stream->events->on_head(stream, exchange->head_ended);
}

void
h1_client_step(struct h1 *h1)
{
    struct h1_stream *exchange = h1->stream;
    if (!exchange || !exchange->stream.in_end)
        return;
    h1->completed++;
    if (!exchange->stream.out_closed) { /* answered early: what was not sent never will be */
        exchange->stream.out_end = exchange->stream.out_closed = exchange->flushed = true;
        h1->keep = false;
    }
    if (!h1->keep || h1->draining) {
        h1_go_down(h1, 0, "last exchange is over");
        return;
    }
    h1->stream = NULL;
    h1_stream_release(exchange);
    if (h1->events->on_idle)
        h1->events->on_idle(h1);
}
