/*
 * Incoming HTTP/1.1: bytes to reader events to streams, and what has to wait.
 *
 * Happy path: h1_read -> reader -> head (h1_server.c, h1_client.c), data, end. While a server's
 * exchange is being answered what comes next is stashed, reading stops once that is much, and
 * h1_read_again goes on where it stopped. Failure modes: malformed input is refused (server) or
 * loses the exchange (client); a client's connection with bytes that nobody asked for is of no more
 * use.
 */
#include "proxy/net/h1_private.h"
#include "proxy/wire/header_class.h"

static void
take_head(struct h1 *h1)
{
    if (h1->server)
        h1_server_head(h1);
    else if (!h1->reader.interim)
        h1_client_head(h1);
}

static void
take_end(struct h1 *h1)
{
    if (h1->stream) {
        h1_stream_end(h1->stream);
        if (h1->down || !h1->stream)
            return;
    }
    if (h1->server)
        h1_server_step(h1);
    else
        h1_client_step(h1);
}

static void
take_bad(struct h1 *h1)
{
    const char *text = h1->reader.error;
    if (h1->server) {
        h1_server_refuse(h1, h1->reader.error_status, text);
        return;
    }
    if (h1->stream)
        h1_stream_lose(h1->stream,
                       h1->reader.error_status == 431 ? STREAM_HEADERS_TOO_LONG : STREAM_MALFORMED);
    h1_go_down(h1, UV_EPROTO, text);
}

/* Whether the reader may look at input now: a server between requests, or an exchange whose
 * incoming side is open. */
static bool
wants_input(const struct h1 *h1)
{
    return !h1->down && !list_linked(&h1->ending.node) &&
           (h1->stream ? !h1->stream->stream.in_end : h1->server);
}

/* Returns how many bytes at the end of `data` have to wait. */
static size_t
feed(struct h1 *h1, const uint8_t *data, size_t len)
{
    const uint8_t *body;
    size_t body_len;
    while (wants_input(h1)) {
        switch (http1_reader_next(&h1->reader, &data, &len, &body, &body_len)) {
        case HTTP1_NEED_MORE:
            if (h1->server && !h1->stream)
                h1_server_wait(h1);
            return 0;
        case HTTP1_HEAD:
            take_head(h1);
            break;
        case HTTP1_BODY:
            h1_stream_data(h1->stream, body, body_len);
            break;
        case HTTP1_END:
            /* More than was asked for: no later request may take it for its reply. */
            if (!h1->server && len > 0)
                h1->keep = false;
            take_end(h1);
            break;
        case HTTP1_BAD:
            take_bad(h1);
            return 0;
        }
        if (list_linked(&h1->again.node))
            break; /* the exchange ended at once: the next one begins after this turn's callbacks */
    }
    return h1->down ? 0 : len;
}

static bool
stash_full(const struct h1 *h1)
{
    return h1->stash.len - h1->stash_at >= H1_STASH_BYTES;
}

void
h1_read_on(struct h1 *h1)
{
    if (!h1->down && !stash_full(h1) && (!h1->stream || h1->stream->stream.uncredited < H1_WINDOW))
        conn_start_read(h1->conn);
}

static void
stash_free(struct h1 *h1)
{
    strbuf_fini(&h1->stash);
    h1->stash_at = 0;
}

static void
stash_add(struct h1 *h1, const uint8_t *data, size_t len)
{
    if (h1->stash_at > 0) {
        h1->stash.len -= h1->stash_at;
        memmove(h1->stash.data, h1->stash.data + h1->stash_at, h1->stash.len);
        h1->stash_at = 0;
    }
    strbuf_add(&h1->stash, data, len);
    if (stash_full(h1))
        conn_stop_read(h1->conn);
}

/* Input that waited: for the exchange before it, or for the connection's opening to return. It
 * stays where it is while requests are taken from it, one each time: many small ones must not be
 * moved as often as they are many. */
void
h1_read_again(struct deferred *deferred)
{
    struct h1 *h1 = container_of(deferred, struct h1, again);
    size_t waits = h1->stash.len - h1->stash_at;
    if (waits > 0) {
        waits = feed(h1, (const uint8_t *)h1->stash.data + h1->stash_at, waits);
        h1->stash_at = h1->stash.len - waits;
        if (waits == 0)
            stash_free(h1);
    }
    h1_read_on(h1);
}

void
h1_read(struct conn *conn, const uint8_t *data, size_t len)
{
    struct h1 *h1 = conn->owner;
    if (!h1->server && !h1->down && (!h1->stream || h1_never_written(h1->stream))) {
        h1_go_down(h1, UV_EPROTO, "bytes without a request");
        return;
    }
    bool waits = h1->stash.len > 0 || list_linked(&h1->again.node); /* what waits goes first */
    size_t left = waits ? len : feed(h1, data, len);
    if (left > 0 && !h1->down)
        stash_add(h1, data + len - left, left);
}

/* A field that the connection field names is hop-by-hop too (RFC 9110 section 7.6.1). */
static bool
named_in(struct text name, struct text list)
{
    struct text token;
    while (text_next(&list, ',', &token))
        if (text_eq_nocase(token, name))
            return true;
    return false;
}

void
h1_copy_fields(struct fields *into, const struct fields *from)
{
    struct text named = fields_value(from, TEXT("connection"));
    fields_for_each (field, from) {
        enum header_class class = header_class_of_field(field);
        if (class == HEADER_HOP || class == HEADER_HOST || class == HEADER_EXPECT)
            continue;
        if (named.len > 0 && named_in(field->name, named))
            continue;
        fields_add_copy(into, field->name, field->value, 0);
    }
}
