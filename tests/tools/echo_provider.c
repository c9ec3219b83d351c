/*
 * echo-provider: a Triple provider to try the proxy with, and the stub provider of the benchmarks.
 * See echo_call.h for its service.
 *
 * Owns: the command line, the listener, telling HTTP/2 from HTTP/1.1 by the first bytes.
 * Happy path: prints "READY ADDR:PORT" and serves until TERM or INT, then exits 0; on USR1 prints
 * what kinds of calls it has had, as JSON.
 * Failure modes: 2 when it cannot listen.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "echo_h1.h"
#include "peer_options.h"

static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
#define PREFACE_BYTES (sizeof preface - 1)

enum connection_kind { KIND_UNKNOWN, KIND_H2, KIND_H1 };

struct connection {
    struct peer_link link; /* first: link events carry a pointer to it */
    struct connection *prev;
    struct connection *next;
    struct echo_provider *provider;
    enum connection_kind kind;
    uint8_t first_bytes[PREFACE_BYTES]; /* until the kind is known */
    size_t first_len;
    struct peer_h2 h2;
    struct echo_h1 h1;
};

static struct connection connections = {.prev = &connections, .next = &connections};
static struct echo_provider provider;
static union {
    uv_handle_t handle;
    uv_stream_t stream;
    uv_tcp_t tcp;
    uv_pipe_t pipe;
} listener;
static bool listen_unix;
static uv_signal_t signals[3];

/* ---- HTTP/2 events ---- */

static struct peer_stream *
on_opened(struct peer_h2 *h2)
{
    (void)h2;
    return &echo_call_new(&provider, NULL)->stream;
}

static void
on_field(struct peer_stream *stream, const uint8_t *name, size_t name_len, const uint8_t *value,
         size_t value_len)
{
    echo_call_field((struct echo_call *)stream, name, name_len, value, value_len);
}

static void
on_head(struct peer_stream *stream, bool end)
{
    (void)end;
    echo_call_head((struct echo_call *)stream);
}

static void
on_data(struct peer_stream *stream, const uint8_t *data, size_t len_bytes)
{
    echo_call_data((struct echo_call *)stream, data, len_bytes);
}

static void
on_end(struct peer_stream *stream)
{
    echo_call_end((struct echo_call *)stream);
}

/* Answered before the request was read: what is left of it is not wanted (RFC 9113, 8.1). */
static void
on_sent(struct peer_stream *stream)
{
    if (!((struct echo_call *)stream)->request_ended)
        peer_stream_reset(stream, NGHTTP2_NO_ERROR);
}

static void
on_closed(struct peer_stream *stream, uint32_t error_code)
{
    (void)error_code;
    echo_call_free((struct echo_call *)stream);
}

static const struct peer_h2_events h2_events = {
    .opened = on_opened,
    .field = on_field,
    .head = on_head,
    .data = on_data,
    .end = on_end,
    .sent = on_sent,
    .trailers = echo_reply_trailers,
    .closed = on_closed,
};

/* ---- connections ---- */

/* H2 when the bytes are the preface, unknown while they may become it. */
static enum connection_kind
kind_of(const uint8_t *data, size_t len)
{
    size_t n = len < PREFACE_BYTES ? len : PREFACE_BYTES;
    if (memcmp(data, preface, n) != 0)
        return KIND_H1;
    return n == PREFACE_BYTES ? KIND_H2 : KIND_UNKNOWN;
}

static void receive(struct connection *c, const uint8_t *data, size_t len_bytes);

static void
detect(struct connection *c, const uint8_t *data, size_t len_bytes)
{
    size_t room = PREFACE_BYTES - c->first_len;
    size_t take = len_bytes < room ? len_bytes : room;
    memcpy(c->first_bytes + c->first_len, data, take);
    c->first_len += take;
    c->kind = kind_of(c->first_bytes, c->first_len);
    if (c->kind == KIND_UNKNOWN)
        return;
    if (c->kind == KIND_H1 && !provider.http1) {
        peer_link_close(&c->link, 0);
        return;
    }
    if (c->kind == KIND_H1)
        echo_h1_init(&c->h1, &c->link, &provider);
    else if (peer_h2_init(&c->h2, &c->link, true, &h2_events, &provider.h2_options) < 0)
        peer_link_close(&c->link, 0);
    receive(c, c->first_bytes, c->first_len);
    receive(c, data + take, len_bytes - take);
}

static void
receive(struct connection *c, const uint8_t *data, size_t len_bytes)
{
    if (len_bytes == 0 || c->link.closing)
        return;
    if (c->kind == KIND_H2)
        peer_h2_receive(&c->h2, data, len_bytes);
    else if (c->kind == KIND_H1)
        echo_h1_receive(&c->h1, data, len_bytes);
    else
        detect(c, data, len_bytes);
}

static void
on_link_read(struct peer_link *link, const uint8_t *data, size_t len_bytes)
{
    receive((struct connection *)link, data, len_bytes);
}

static void
on_link_fill(struct peer_link *link)
{
    struct connection *c = (struct connection *)link;
    if (c->kind == KIND_H2)
        peer_h2_fill(&c->h2);
}

static void
on_link_closed(struct peer_link *link, int error)
{
    struct connection *c = (struct connection *)link;
    (void)error;
    if (provider.record)
        peer_record_text(provider.record, false, link->number, "CLOSED", "", 0);
    if (c->kind == KIND_H2)
        peer_h2_fini(&c->h2);
    else if (c->kind == KIND_H1)
        echo_h1_fini(&c->h1);
    c->prev->next = c->next;
    c->next->prev = c->prev;
    free(c);
}

static const struct peer_link_events link_events = {
    .read = on_link_read,
    .fill = on_link_fill,
    .closed = on_link_closed,
};

static void
on_uv_connection(uv_stream_t *server, int status)
{
    if (status < 0)
        return;
    struct connection *c = peer_alloc(sizeof *c);
    memset(c, 0, sizeof *c);
    c->provider = &provider;
    peer_link_init(&c->link, &provider.net, listen_unix, &link_events);
    c->next = connections.next;
    c->prev = &connections;
    connections.next->prev = c;
    connections.next = c;
    if (uv_accept(server, &c->link.io.stream) < 0)
        peer_link_close(&c->link, 0);
    else
        peer_link_start(&c->link);
}

/* ---- start and stop ---- */

static void
on_uv_signal(uv_signal_t *signal, int number)
{
    (void)signal;
    (void)number;
    for (int i = 0; i < 3; i++)
        uv_close((uv_handle_t *)&signals[i], NULL);
    uv_close(&listener.handle, NULL);
    for (struct connection *c = connections.next; c != &connections; c = c->next)
        peer_link_close(&c->link, 0);
    peer_timers_fini(&provider.timers);
    peer_loop_fini(&provider.net);
}

/* The counts as a line of JSON, for whoever started us. */
static void
on_uv_usr1(uv_signal_t *signal, int number)
{
    (void)signal;
    (void)number;
    printf("{\"framed\": %llu, \"bare_h2\": %llu, \"bare_h1\": %llu, \"gzip_in\": %llu, "
           "\"gzip_out\": %llu, \"refused\": %llu}\n",
           (unsigned long long)provider.counts.framed, (unsigned long long)provider.counts.bare_h2,
           (unsigned long long)provider.counts.bare_h1, (unsigned long long)provider.counts.gzip_in,
           (unsigned long long)provider.counts.gzip_out,
           (unsigned long long)provider.counts.refused);
    fflush(stdout);
}

static int
listen_tcp(uv_loop_t *loop, const char *bind_address, long port)
{
    struct sockaddr_storage address;
    int rv = uv_ip4_addr(bind_address, (int)port, (struct sockaddr_in *)&address);
    if (rv)
        rv = uv_ip6_addr(bind_address, (int)port, (struct sockaddr_in6 *)&address);
    if (rv == 0)
        rv = uv_tcp_init(loop, &listener.tcp);
    if (rv == 0)
        rv = uv_tcp_bind(&listener.tcp, (struct sockaddr *)&address, 0);
    if (rv == 0)
        rv = uv_listen(&listener.stream, 4096, on_uv_connection);
    return rv;
}

static int
listen_path(uv_loop_t *loop, const char *path)
{
    int rv = uv_pipe_init(loop, &listener.pipe, 0);
    if (rv == 0)
        rv = uv_pipe_bind(&listener.pipe, path);
    if (rv == 0)
        rv = uv_listen(&listener.stream, 4096, on_uv_connection);
    return rv;
}

static void
print_ready(const char *unix_path)
{
    if (unix_path) {
        printf("READY unix:%s\n", unix_path);
    } else {
        struct sockaddr_storage address;
        int len = sizeof address;
        char name[64];
        uv_tcp_getsockname(&listener.tcp, (struct sockaddr *)&address, &len);
        bool v6 = address.ss_family == AF_INET6;
        if (v6)
            uv_ip6_name((struct sockaddr_in6 *)&address, name, sizeof name);
        else
            uv_ip4_name((struct sockaddr_in *)&address, name, sizeof name);
        /* the port is at the same place in both */
        printf(v6 ? "READY [%s]:%d\n" : "READY %s:%d\n", name,
               ntohs(((struct sockaddr_in *)&address)->sin_port));
    }
    fflush(stdout);
}

static void
make_fixed_reply(long size)
{
    if (size < 0)
        return;
    struct peer_body *body = peer_body_new(PEER_PREFIX_BYTES + (size_t)size);
    peer_prefix_write(body->data, false, (size_t)size);
    peer_pattern_fill(body->data + PEER_PREFIX_BYTES, 0, (size_t)size);
    body->len = PEER_PREFIX_BYTES + (size_t)size;
    provider.fixed_reply = body;
}

struct command_line {
    const char *bind_address;
    const char *unix_path;
    const char *record;
    long port, max_streams, window, max_frame, reply_size;
    bool no_content_length, java33, java32;
};

static void
read_command_line(struct command_line *o, int argc, char **argv)
{
    const struct peer_option table[] = {
        {"port", PEER_OPTION_NUMBER, &o->port, NULL, "TCP port; 0 (default) takes a free one"},
        {"bind", PEER_OPTION_TEXT, &o->bind_address, NULL, "address, default 127.0.0.1"},
        {"unix", PEER_OPTION_TEXT, &o->unix_path, NULL, "listen on a unix socket instead"},
        {"wire", PEER_OPTION_CHOICE, &provider.wire, "both|bare|framed",
         "forms taken; the other one is refused"},
        {"java33", PEER_OPTION_FLAG, &o->java33, NULL, "refuse bare requests as dubbo-java 3.3"},
        {"java32", PEER_OPTION_FLAG, &o->java32, NULL, "refuse bare requests as dubbo-java 3.2"},
        {"http1", PEER_OPTION_SWITCH, &provider.http1, NULL, "HTTP/1.1 on the same port (on)"},
        {"gzip", PEER_OPTION_SWITCH, &provider.gzip, NULL, "compress when offered (on)"},
        {"service", PEER_OPTION_TEXT, &provider.service, NULL,
         "service name, * any; default tributary.demo.Echo"},
        {"record", PEER_OPTION_TEXT, &o->record, NULL, "write what is on the wire; - is stdout"},
        {"delay-us", PEER_OPTION_NUMBER, &provider.delay_us, NULL, "wait before unary replies"},
        {"max-streams", PEER_OPTION_NUMBER, &o->max_streams, NULL, "announced limit (250)"},
        {"max-message", PEER_OPTION_NUMBER, &provider.max_message_bytes, NULL,
         "longest request message (4M, as dubbo-go)"},
        {"window", PEER_OPTION_NUMBER, &o->window, NULL, "stream window (1M)"},
        {"max-frame", PEER_OPTION_NUMBER, &o->max_frame, NULL, "MAX_FRAME_SIZE (1M)"},
        {"reply-size", PEER_OPTION_NUMBER, &o->reply_size, NULL, "fixed reply instead of the echo"},
        {"content-length-max", PEER_OPTION_NUMBER, &provider.content_length_max, NULL,
         "longer bare replies have no content-length (4096; 2048 on HTTP/1.1)"},
        {"no-content-length", PEER_OPTION_FLAG, &o->no_content_length, NULL,
         "no bare reply has one"},
    };
    peer_options_parse("echo-provider", table, sizeof table / sizeof *table, argc, argv);
    if (o->no_content_length)
        provider.content_length_max = -1;
    provider.refusal = o->java33   ? ECHO_REFUSE_JAVA33
                       : o->java32 ? ECHO_REFUSE_JAVA32
                                   : ECHO_REFUSE_GO;
    make_fixed_reply(o->reply_size);
    if (o->record && !(provider.record = peer_record_open(o->record))) {
        perror(o->record);
        exit(2);
    }
    provider.h2_options = (struct peer_h2_options){
        .max_streams = (uint32_t)o->max_streams,
        .stream_window_bytes = (uint32_t)o->window,
        .connection_window_bytes = 1 << 30,
        .max_frame_bytes = (uint32_t)o->max_frame,
        .record = provider.record,
    };
}

int
main(int argc, char **argv)
{
    struct command_line o = {
        .bind_address = "127.0.0.1",
        .max_streams = 250,
        .window = 1 << 20,
        .max_frame = 1 << 20,
        .reply_size = -1,
    };
    provider = (struct echo_provider){
        .service = "tributary.demo.Echo",
        .http1 = true,
        .gzip = true,
        .max_message_bytes = 4 << 20,
        .content_length_max = ECHO_CONTENT_LENGTH_MAX,
    };
    read_command_line(&o, argc, argv);
    signal(SIGPIPE, SIG_IGN);
    uv_loop_t *loop = uv_default_loop();
    peer_check(peer_loop_init(&provider.net, loop) == 0);
    peer_check(peer_timers_init(&provider.timers, loop) == 0);
    listen_unix = o.unix_path;
    int rv =
        listen_unix ? listen_path(loop, o.unix_path) : listen_tcp(loop, o.bind_address, o.port);
    if (rv) {
        fprintf(stderr, "echo-provider: cannot listen: %s\n", uv_strerror(rv));
        return 2;
    }
    static const int numbers[3] = {SIGTERM, SIGINT, SIGUSR1};
    for (int i = 0; i < 3; i++) {
        uv_signal_init(loop, &signals[i]);
        uv_signal_start(&signals[i], i == 2 ? on_uv_usr1 : on_uv_signal, numbers[i]);
    }
    print_ready(o.unix_path);
    uv_run(loop, UV_RUN_DEFAULT);
    rv = uv_loop_close(loop);
    peer_record_close(provider.record);
    peer_body_unref(provider.fixed_reply);
    return rv ? 1 : 0;
}
