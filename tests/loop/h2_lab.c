/* See h2_lab.h. */
#include "h2_lab.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

const struct h2_options lab_options = {
    .stream_window = 1 << 20,
    .max_streams = 100,
    .max_header_list = 64 * 1024,
    .reset_limit = 2000,
    .reset_window_ns = 10 * NS_PER_S,
};

/* --- our side's records --- */

static struct lab_call *
new_call(struct h2_lab *lab)
{
    assert_true(lab->call_count < LAB_CALLS);
    struct lab_call *call = &lab->calls[lab->call_count++];
    *call = (struct lab_call){.lab = lab};
    arena_init(&call->arena, NULL, 0);
    fields_init(&call->fields, &call->arena);
    fields_init(&call->trailers, &call->arena);
    return call;
}

static void
call_head(struct stream *stream, bool end)
{
    struct lab_call *call = stream->owner;
    assert_int_equal(call->heads + call->ends + call->resets, 0);
    call->heads++;
    call->head_end = end;
    if (call->lab->on_head)
        call->lab->on_head(call);
    if (end && call->stream && call->lab->on_end)
        call->lab->on_end(call);
}

static void
call_data(struct stream *stream, const uint8_t *data, size_t len)
{
    struct lab_call *call = stream->owner;
    assert_int_equal(call->heads, 1);
    assert_int_equal(call->ends + call->resets, 0);
    call->datas++;
    for (size_t i = 0; i < len && call->body_bytes + i < sizeof call->body - 1; i++)
        call->body[call->body_bytes + i] = (char)data[i];
    call->body_bytes += len;
    if (!call->lab->keep_credit)
        h2_credit(stream, len);
    if (call->lab->on_data)
        call->lab->on_data(call, data, len);
}

static void
call_end(struct stream *stream, const struct fields *trailers)
{
    struct lab_call *call = stream->owner;
    assert_int_equal(call->heads, 1);
    assert_int_equal(call->ends + call->resets, 0);
    assert_false(call->head_end);
    call->ends++;
    call->got_trailers = trailers != NULL;
    if (call->lab->on_end)
        call->lab->on_end(call);
}

static void
call_reset(struct stream *stream, uint32_t error)
{
    struct lab_call *call = stream->owner;
    assert_int_equal(call->resets, 0);
    call->resets++;
    call->reset_error = error;
    if (call->lab->on_reset)
        call->lab->on_reset(call);
    else
        lab_detach(call);
}

static void
call_sent(struct stream *stream, size_t bytes)
{
    struct lab_call *call = stream->owner;
    call->sent += bytes;
}

static void
call_flushed(struct stream *stream, uint64_t now_ns, uint64_t stalled_ns)
{
    struct lab_call *call = stream->owner;
    assert_true(now_ns > 0);
    call->flushes++;
    call->stalled_ns = stalled_ns;
}

static const struct stream_events call_events = {
    .on_head = call_head,
    .on_data = call_data,
    .on_end = call_end,
    .on_reset = call_reset,
    .on_sent = call_sent,
    .on_flushed = call_flushed,
};

static void
end_stream(struct h2 *h2, struct stream *stream)
{
    struct lab_end *end = h2->owner;
    struct lab_call *call = new_call(end->lab);
    end->opened++;
    call->stream = stream;
    stream->events = &call_events;
    stream->owner = call;
    stream->fields = &call->fields;
    stream->trailer_fields = &call->trailers;
}

static void
end_stream_closed(struct h2 *h2, struct stream *stream)
{
    struct lab_end *end = h2->owner;
    (void)stream;
    end->streams_closed++;
}

static void
end_settings(struct h2 *h2)
{
    ((struct lab_end *)h2->owner)->settings++;
}

static void
end_goaway(struct h2 *h2, uint32_t error)
{
    struct lab_end *end = h2->owner;
    end->goaways++;
    end->goaway_code = error;
}

static void
end_down(struct h2 *h2, int error, const char *text)
{
    struct lab_end *end = h2->owner;
    assert_false(end->down);
    end->down = true;
    end->down_error = error;
    snprintf(end->down_text, sizeof end->down_text, "%s", text);
}

static void
end_closed(struct h2 *h2)
{
    struct lab_end *end = h2->owner;
    assert_false(end->closed);
    end->closed = true;
    end->h2 = NULL;
    end->conn = NULL;
}

static void
end_ping_ack(struct h2 *h2)
{
    ((struct lab_end *)h2->owner)->pongs++;
}

static const struct h2_events end_events = {
    .on_stream = end_stream,
    .on_stream_closed = end_stream_closed,
    .on_settings = end_settings,
    .on_goaway = end_goaway,
    .on_down = end_down,
    .on_closed = end_closed,
    .on_ping_ack = end_ping_ack,
};

/* --- opening and closing --- */

static void
on_uv_connection(uv_stream_t *listener, int status)
{
    struct h2_lab *lab = listener->data;
    struct lab_end *end = &lab->server;
    static const struct conn_events none;
    assert_int_equal(status, 0);
    assert_int_equal(conn_accept(&lab->fixture->ctx, listener, NULL, &none, NULL, &end->conn), 0);
    end->conn->reads = &end->reads;
    end->conn->writes = &end->writes;
    end->h2 = h2_server_open(end->conn, &end->options, &end_events, end, NULL, 0);
    end->is_open = true;
}

static void
client_conn_open(struct conn *conn, int error)
{
    struct lab_end *end = conn->owner;
    assert_int_equal(error, 0);
    conn->reads = &end->reads;
    conn->writes = &end->writes;
    end->h2 = h2_client_open(conn, &end->options, &end_events, end);
    end->is_open = true;
}

static const struct conn_events client_conn_events = {.on_open = client_conn_open};

static struct h2_lab *
new_lab(struct loop_fixture *fixture)
{
    struct h2_lab *lab = calloc(1, sizeof *lab);
    lab->fixture = fixture;
    lab->calls = calloc(LAB_CALLS, sizeof *lab->calls);
    lab->fd = -1;
    lab->server.lab = lab->client.lab = lab;
    assert_int_equal(nghttp2_hd_inflate_new(&lab->inflater), 0);
    return lab;
}

static void
listen_server(struct h2_lab *lab, const struct h2_options *options, struct address *address)
{
    struct sockaddr_in name;
    int bytes = sizeof name;
    lab->server.options = options ? *options : lab_options;
    uv_tcp_init(&lab->fixture->loop, &lab->listener);
    lab->listener.data = lab;
    uv_ip4_addr("127.0.0.1", 0, &name);
    assert_int_equal(uv_tcp_bind(&lab->listener, (struct sockaddr *)&name, 0), 0);
    assert_int_equal(uv_listen((uv_stream_t *)&lab->listener, 16, on_uv_connection), 0);
    assert_int_equal(uv_tcp_getsockname(&lab->listener, (struct sockaddr *)&name, &bytes), 0);
    assert_int_equal(address_from_ip(TEXT("127.0.0.1"), ntohs(name.sin_port), address), 0);
}

static void
connect_client(struct h2_lab *lab, const struct h2_options *options, const struct address *address)
{
    lab->client.options = options ? *options : lab_options;
    assert_int_equal(conn_connect(&lab->fixture->ctx, address, NS_PER_S, NULL, NULL, &client_conn_events, &lab->client,
                                  &lab->client.conn),
                     0);
}

struct h2_lab *
h2_lab_server_silent(struct loop_fixture *fixture, const struct h2_options *options)
{
    struct h2_lab *lab = new_lab(fixture);
    struct address address;
    listen_server(lab, options, &address);
    lab->fd = raw_connect(&address);
    loop_until(fixture, &lab->server.is_open);
    return lab;
}

struct h2_lab *
h2_lab_server(struct loop_fixture *fixture, const struct h2_options *options)
{
    struct h2_lab *lab = h2_lab_server_silent(fixture, options);
    lab_preface(lab);
    lab_frame(lab, F_SETTINGS, ACK, 0, NULL, 0);
    lab_send(lab);
    return lab;
}

struct h2_lab *
h2_lab_client(struct loop_fixture *fixture, const struct h2_options *options)
{
    struct h2_lab *lab = new_lab(fixture);
    struct address address;
    uint8_t magic[24];
    int listener = raw_listen(&address);
    connect_client(lab, options, &address);
    lab->fd = raw_accept(fixture, listener);
    close(listener);
    loop_until(fixture, &lab->client.is_open);
    raw_recv(fixture, lab->fd, magic, sizeof magic);
    assert_memory_equal(magic, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", sizeof magic);
    return lab;
}

struct h2_lab *
h2_lab_pair(struct loop_fixture *fixture, const struct h2_options *server, const struct h2_options *client)
{
    struct h2_lab *lab = new_lab(fixture);
    struct address address;
    listen_server(lab, server, &address);
    connect_client(lab, client, &address);
    loop_until(fixture, &lab->client.is_open);
    loop_until(fixture, &lab->server.is_open);
    loop_until_count(fixture, &lab->client.settings, 1);
    return lab;
}

static void
close_end(struct h2_lab *lab, struct lab_end *end)
{
    if (!end->is_open)
        return;
    if (!end->closed && !end->down)
        h2_shutdown(end->h2, NGHTTP2_NO_ERROR);
    loop_until(lab->fixture, &end->closed);
    assert_true(end->down);
    if (end == &lab->server)
        assert_int_equal(end->opened, end->streams_closed);
}

void
h2_lab_close(struct h2_lab *lab)
{
    if (lab->fd >= 0)
        close(lab->fd);
    if (lab->listener.data)
        uv_close((uv_handle_t *)&lab->listener, NULL);
    close_end(lab, &lab->client);
    close_end(lab, &lab->server);
    for (unsigned i = 0; i < lab->call_count; i++) {
        if (lab->calls[i].stream)
            lab_detach(&lab->calls[i]);
        arena_fini(&lab->calls[i].arena);
    }
    nghttp2_hd_inflate_del(lab->inflater);
    loop_turn(lab->fixture);
    free(lab->calls);
    free(lab->in);
    free(lab->out);
    free(lab);
}

/* --- the raw peer: sending --- */

void
lab_raw(struct h2_lab *lab, const void *bytes, size_t len)
{
    if (lab->out_bytes + len > lab->out_cap) {
        lab->out_cap = (lab->out_bytes + len) * 2;
        lab->out = realloc(lab->out, lab->out_cap);
    }
    if (len)
        memcpy(lab->out + lab->out_bytes, bytes, len);
    lab->out_bytes += len;
}

static void
put_u32(uint8_t *into, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        into[i] = (uint8_t)(value >> (24 - 8 * i));
}

static uint32_t
get_u32(const uint8_t *from)
{
    return (uint32_t)from[0] << 24 | (uint32_t)from[1] << 16 | (uint32_t)from[2] << 8 | from[3];
}

void
lab_frame(struct h2_lab *lab, uint8_t type, uint8_t flags, uint32_t id, const void *payload, size_t len)
{
    uint8_t head[9] = {(uint8_t)(len >> 16), (uint8_t)(len >> 8), (uint8_t)len, type, flags};
    put_u32(head + 5, id);
    lab_raw(lab, head, sizeof head);
    lab_raw(lab, payload, len);
}

void
lab_word(struct h2_lab *lab, uint8_t type, uint8_t flags, uint32_t id, uint32_t word)
{
    uint8_t payload[4];
    put_u32(payload, word);
    lab_frame(lab, type, flags, id, payload, sizeof payload);
}

void
lab_goaway(struct h2_lab *lab, uint32_t last_id, uint32_t code)
{
    uint8_t payload[8];
    put_u32(payload, last_id);
    put_u32(payload + 4, code);
    lab_frame(lab, F_GOAWAY, 0, 0, payload, sizeof payload);
}

void
lab_settings(struct h2_lab *lab, const uint32_t *pairs, size_t count)
{
    uint8_t payload[64];
    for (size_t i = 0; i < count; i++) {
        payload[6 * i] = 0;
        payload[6 * i + 1] = (uint8_t)pairs[2 * i];
        put_u32(payload + 6 * i + 2, pairs[2 * i + 1]);
    }
    lab_frame(lab, F_SETTINGS, 0, 0, payload, 6 * count);
}

static size_t
put_length(uint8_t *into, size_t len)
{
    if (len < 127) {
        into[0] = (uint8_t)len;
        return 1;
    }
    size_t at = 0;
    into[at++] = 127;
    for (len -= 127; len >= 128; len /= 128)
        into[at++] = (uint8_t)(len % 128 + 128);
    into[at++] = (uint8_t)len;
    return at;
}

/* RFC 7541 section 6.2.2, not Huffman coded. */
size_t
lab_field(uint8_t *into, const void *name, size_t name_len, const void *value, size_t value_len)
{
    size_t at = 0;
    into[at++] = 0;
    at += put_length(into + at, name_len);
    memcpy(into + at, name, name_len);
    at += name_len;
    at += put_length(into + at, value_len);
    memcpy(into + at, value, value_len);
    return at + value_len;
}

void
lab_headers(struct h2_lab *lab, uint32_t id, uint8_t flags, ...)
{
    uint8_t block[16384];
    size_t len = 0;
    va_list args;
    va_start(args, flags);
    for (const char *name; (name = va_arg(args, const char *));) {
        const char *value = va_arg(args, const char *);
        len += lab_field(block + len, name, strlen(name), value, strlen(value));
    }
    va_end(args);
    lab_frame(lab, F_HEADERS, flags | END_HEADERS, id, block, len);
}

void
lab_request(struct h2_lab *lab, uint32_t id, bool end)
{
    lab_headers(lab, id, end ? END_STREAM : 0, ":method", "POST", ":scheme", "http", ":path", "/s/m", ":authority", "here",
                "content-type", "application/proto", NULL);
}

void
lab_preface(struct h2_lab *lab)
{
    lab_raw(lab, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 24);
    lab_settings(lab, NULL, 0);
}

void
lab_send(struct h2_lab *lab)
{
    raw_send(lab->fixture, lab->fd, lab->out, lab->out_bytes);
    lab->out_bytes = 0;
    loop_turn(lab->fixture);
}

/* --- the raw peer: receiving --- */

/* Reads until so many bytes of the next frame are there; false at EOF or after max_ms. */
static bool
need(struct h2_lab *lab, size_t bytes, unsigned max_ms)
{
    uint64_t end_ns = clock_now_ns() + max_ms * NS_PER_MS;
    while (lab->in_bytes - lab->in_at < bytes) {
        if (lab->in_cap < lab->in_at + bytes + 65536) {
            lab->in_cap = lab->in_at + bytes + (1 << 20);
            lab->in = realloc(lab->in, lab->in_cap);
        }
        ssize_t got = read(lab->fd, lab->in + lab->in_bytes, lab->in_cap - lab->in_bytes);
        if (got > 0) {
            lab->in_bytes += (size_t)got;
            continue;
        }
        if (got == 0 || errno != EAGAIN || clock_now_ns() > end_ns)
            return false;
        loop_run_ms(lab->fixture, 1);
    }
    return true;
}

static void
decode_fields(struct h2_lab *lab, struct lab_frame *frame)
{
    const uint8_t *in = frame->payload;
    size_t left = frame->len, at = 0;
    for (;;) {
        nghttp2_nv nv;
        int flags = 0;
        ssize_t taken = nghttp2_hd_inflate_hd2(lab->inflater, &nv, &flags, in, left, frame->flags & END_HEADERS);
        assert_true(taken >= 0);
        in += taken;
        left -= (size_t)taken;
        if (flags & NGHTTP2_HD_INFLATE_EMIT && at + nv.namelen + nv.valuelen + 4 < sizeof frame->fields)
            at += (size_t)snprintf(frame->fields + at, sizeof frame->fields - at, "%.*s: %.*s\n", (int)nv.namelen,
                                   (char *)nv.name, (int)nv.valuelen, (char *)nv.value);
        if (flags & NGHTTP2_HD_INFLATE_FINAL) {
            nghttp2_hd_inflate_end_headers(lab->inflater);
            return;
        }
        if (!(flags & NGHTTP2_HD_INFLATE_EMIT) && left == 0)
            return;
    }
}

static struct lab_frame *
read_frame(struct h2_lab *lab, unsigned max_ms)
{
    struct lab_frame *frame = &lab->frame;
    if (!need(lab, 9, max_ms))
        return NULL;
    const uint8_t *head = lab->in + lab->in_at;
    size_t len = (size_t)head[0] << 16 | (size_t)head[1] << 8 | head[2];
    if (!need(lab, 9 + len, 5000))
        return NULL;
    head = lab->in + lab->in_at;
    *frame = (struct lab_frame){.type = head[3], .flags = head[4], .id = get_u32(head + 5), .len = len};
    frame->payload = lab->in + lab->in_at + 9;
    frame->word = len >= 4 ? get_u32(frame->payload) : 0;
    frame->word2 = len >= 8 ? get_u32(frame->payload + 4) : 0;
    lab->in_at += 9 + len;
    if (frame->type == F_HEADERS || frame->type == F_CONT)
        decode_fields(lab, frame);
    return frame;
}

struct lab_frame *
lab_next_any(struct h2_lab *lab)
{
    struct lab_frame *frame = read_frame(lab, 5000);
    if (!frame)
        fail_msg("no frame came");
    return frame;
}

static bool
skipped(struct h2_lab *lab, const struct lab_frame *frame)
{
    bool window = frame->type == F_WINDOW && frame->id == 0;
    lab->window_updates += window;
    return window || frame->type == F_SETTINGS;
}

struct lab_frame *
lab_next(struct h2_lab *lab)
{
    struct lab_frame *frame;
    do
        frame = lab_next_any(lab);
    while (skipped(lab, frame));
    return frame;
}

struct lab_frame *
lab_expect(struct h2_lab *lab, uint8_t type, uint32_t id, uint8_t flags)
{
    struct lab_frame *frame = lab_next(lab);
    if (frame->type != type || frame->id != id || frame->flags != flags)
        fail_msg("frame type %u stream %u flags %u len %zu word %u, not type %u stream %u flags %u", frame->type, frame->id,
                 frame->flags, frame->len, frame->word, type, id, flags);
    return frame;
}

void
lab_expect_goaway(struct h2_lab *lab, uint32_t code)
{
    struct lab_frame *frame;
    do
        frame = lab_next(lab);
    while (frame->type != F_GOAWAY);
    assert_int_equal(frame->word2, code);
}

void
lab_expect_eof(struct h2_lab *lab)
{
    size_t len;
    static uint8_t rest[65536];
    assert_int_equal(raw_recv_all(lab->fixture, lab->fd, rest, sizeof rest, &len), 0);
    assert_int_equal(len, 0);
    close(lab->fd);
    lab->fd = -1;
}

bool
lab_quiet(struct h2_lab *lab)
{
    struct lab_frame *frame;
    do
        frame = read_frame(lab, 30);
    while (frame && skipped(lab, frame));
    return !frame;
}

bool
lab_has(const struct lab_frame *frame, const char *line)
{
    size_t len = strlen(line);
    for (const char *at = frame->fields; *at; at = strchr(at, '\n') + 1)
        if (strncmp(at, line, len) == 0 && at[len] == '\n')
            return true;
    return false;
}

/* --- our side's verbs --- */

static void
add_all(struct fields *fields, va_list args)
{
    for (const char *name; (name = va_arg(args, const char *));)
        fields_add(fields, text_of(name), text_of(va_arg(args, const char *)), 0);
}

int
lab_reply_head(struct lab_call *call, bool end, ...)
{
    struct fields fields;
    va_list args;
    fields_init(&fields, &call->arena);
    va_start(args, end);
    add_all(&fields, args);
    va_end(args);
    return h2_send_head(call->stream, &fields, end);
}

void
lab_say(struct lab_call *call, const void *bytes, size_t len, bool end)
{
    struct slices body;
    slices_init(&body);
    if (len)
        assert_true(slices_append(&body, &call->lab->fixture->ctx.chunks, bytes, len, len));
    h2_send_data(call->stream, &body, end);
    slices_fini(&body);
}

void
lab_say_zeros(struct lab_call *call, size_t len, bool end)
{
    uint8_t *zeros = calloc(1, len);
    lab_say(call, zeros, len, end);
    free(zeros);
}

void
lab_trailers(struct lab_call *call, ...)
{
    struct fields fields;
    va_list args;
    fields_init(&fields, &call->arena);
    va_start(args, call);
    add_all(&fields, args);
    va_end(args);
    h2_send_trailers(call->stream, &fields);
}

struct lab_call *
lab_call_start(struct h2_lab *lab, bool end, ...)
{
    struct lab_call *call = new_call(lab);
    struct fields fields;
    va_list args;
    fields_init(&fields, &call->arena);
    fields_add(&fields, TEXT(":method"), TEXT("POST"), FIELD_STATIC);
    fields_add(&fields, TEXT(":scheme"), TEXT("http"), FIELD_STATIC);
    fields_add(&fields, TEXT(":path"), TEXT("/s/m"), FIELD_STATIC);
    fields_add(&fields, TEXT(":authority"), TEXT("there"), FIELD_STATIC);
    va_start(args, end);
    add_all(&fields, args);
    va_end(args);
    call->stream = h2_request(lab->client.h2, &fields, end, &call_events, call, &call->fields, &call->trailers);
    if (call->stream)
        return call;
    lab->call_count--;
    arena_fini(&call->arena);
    return NULL;
}

void
lab_detach(struct lab_call *call)
{
    struct stream *stream = call->stream;
    call->stream = NULL;
    h2_detach(stream);
}

void
lab_reset(struct lab_call *call, uint32_t code)
{
    struct stream *stream = call->stream;
    call->stream = NULL;
    h2_reset(stream, code);
}

struct text
lab_value(const struct fields *fields, const char *name)
{
    return fields_value(fields, text_of(name));
}
