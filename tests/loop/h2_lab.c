/* See h2_lab.h: our ends of the connection. */
#include "h2_lab.h"

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
    if (call->lab->on_sent)
        call->lab->on_sent(call);
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
    for (unsigned i = 0; i < end->lab->call_count; i++)
        end->resets_at_goaway += end->lab->calls[i].resets;
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
    end->h2 =
        h2_server_open(end->conn, &end->options, &end_events, end, lab->first, lab->first_bytes);
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
    assert_int_equal(conn_connect(&lab->fixture->ctx, address, NS_PER_S, NULL, NULL,
                                  &client_conn_events, &lab->client, &lab->client.conn),
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
h2_lab_server_sniffed(struct loop_fixture *fixture, const void *first, size_t first_bytes)
{
    struct h2_lab *lab = new_lab(fixture);
    struct address address;
    lab->first = first;
    lab->first_bytes = first_bytes;
    listen_server(lab, NULL, &address);
    lab->fd = raw_connect(&address);
    loop_until(fixture, &lab->server.is_open);
    return lab;
}

struct h2_lab *
h2_lab_client_asking(struct loop_fixture *fixture, const struct h2_options *options, unsigned count)
{
    struct h2_lab *lab = h2_lab_client(fixture, options);
    lab_settings(lab, NULL, 0);
    lab_frame(lab, F_SETTINGS, ACK, 0, NULL, 0);
    lab_send(lab);
    for (unsigned i = 0; i < count; i++) {
        assert_non_null(lab_call_start(lab, true, NULL));
        lab_expect(lab, F_HEADERS, 2 * i + 1, END_STREAM | END_HEADERS);
    }
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
h2_lab_pair(struct loop_fixture *fixture, const struct h2_options *server,
            const struct h2_options *client)
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
    call->stream = h2_request(lab->client.h2, &fields, end, &call_events, call, &call->fields,
                              &call->trailers);
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

void
lab_reply_unary(struct lab_call *call)
{
    lab_reply_head(call, false, ":status", "200", "content-type", "application/proto", NULL);
    lab_say(call, "hello", 5, true);
}

void
lab_expect_served(struct h2_lab *lab, uint32_t id)
{
    lab->on_end = lab_reply_unary;
    lab_request(lab, id, true);
    lab_send(lab);
    lab_expect(lab, F_HEADERS, id, END_HEADERS);
    lab_expect(lab, F_DATA, id, END_STREAM);
}
