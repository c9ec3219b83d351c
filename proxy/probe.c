/*
 * Asking a running proxy over HTTP/1.1, blocking: for container health checks and --explain.
 *
 * Happy path: connect → one GET with "connection: close" → head and body until the end. The strict
 * reader of wire/http1 reads the reply. Failure modes: nothing there, no answer in time, not HTTP,
 * a body over BODY_MAX: a negative errno.
 */
#include "proxy/probe.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "proxy/base/clock.h"
#include "proxy/net/address.h"
#include "proxy/wire/http1.h"

#define TIMEOUT_NS (2 * NS_PER_S)
#define EXPLAIN_TIMEOUT_NS NS_PER_S
#define BODY_MAX ((size_t)16 << 20)
enum { HEAD_MAX = 16384 };

/* A wildcard is where it listens, not where it can be reached. */
static void
prefer_loopback(struct address *address)
{
    struct sockaddr_in *in = (struct sockaddr_in *)&address->storage;
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&address->storage;
    if (address->storage.ss_family == AF_INET && in->sin_addr.s_addr == htonl(INADDR_ANY))
        in->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    else if (address->storage.ss_family == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&in6->sin6_addr))
        in6->sin6_addr = in6addr_loopback;
}

/* 0 once `events` are there, -ETIMEDOUT after `until_ns`. */
static int
await(int fd, short events, uint64_t until_ns)
{
    struct pollfd poll_fd = {.fd = fd, .events = events};
    for (;;) {
        uint64_t now_ns = clock_now_ns();
        if (now_ns >= until_ns)
            return -ETIMEDOUT;
        int ready = poll(&poll_fd, 1, (int)((until_ns - now_ns) / NS_PER_MS) + 1);
        if (ready > 0)
            return 0;
        if (ready < 0 && errno != EINTR)
            return -errno;
    }
}

static int
connect_by(int fd, const struct address *address, uint64_t until_ns)
{
    int error = 0;
    socklen_t len = sizeof(error);
    if (connect(fd, (const struct sockaddr *)&address->storage, address->len) == 0)
        return 0;
    if (errno != EINPROGRESS)
        return -errno;
    int result = await(fd, POLLOUT, until_ns);
    if (result)
        return result;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) != 0)
        return -errno;
    return -error;
}

static int
send_by(int fd, struct text bytes, uint64_t until_ns)
{
    while (bytes.len > 0) {
        ssize_t sent = send(fd, bytes.ptr, bytes.len, MSG_NOSIGNAL);
        if (sent >= 0) {
            bytes = text_from(bytes, (size_t)sent);
            continue;
        }
        if (errno != EAGAIN && errno != EINTR)
            return -errno;
        int result = await(fd, POLLOUT, until_ns);
        if (result)
            return result;
    }
    return 0;
}

/* One stretch of input through the reader: 1 when the reply is complete, 0 for more. */
static int
take(struct http1_reader *reader, const uint8_t *data, size_t len, struct strbuf *body)
{
    const uint8_t *part;
    size_t part_len;
    for (;;) {
        switch (http1_reader_next(reader, &data, &len, &part, &part_len)) {
        case HTTP1_NEED_MORE:
            return 0;
        case HTTP1_HEAD:
            break;
        case HTTP1_BODY:
            if (body->len + part_len > BODY_MAX)
                return -EMSGSIZE;
            strbuf_add(body, part, part_len);
            break;
        case HTTP1_END:
            return 1;
        case HTTP1_BAD:
            return -EPROTO;
        }
    }
}

static int
read_by(int fd, struct http1_reader *reader, uint64_t until_ns, struct strbuf *body)
{
    uint8_t bytes[16384];
    for (;;) {
        ssize_t got = recv(fd, bytes, sizeof(bytes), 0);
        if (got == 0)
            return http1_reader_eof(reader) == HTTP1_END ? 0 : -EPROTO;
        int result = 0;
        if (got > 0)
            result = take(reader, bytes, (size_t)got, body);
        else if (errno != EAGAIN && errno != EINTR)
            return -errno;
        else
            result = await(fd, POLLIN, until_ns);
        if (result)
            return result > 0 ? 0 : result;
    }
}

static int
exchange(int fd, const struct address *address, const char *target, uint64_t until_ns,
         struct strbuf *body)
{
    struct arena arena;
    struct http1_reader reader;
    struct strbuf request = STRBUF_INIT;
    strbuf_addf(&request, "GET %s HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n",
                target);
    arena_init(&arena, NULL, 0);
    http1_reader_init(&reader, HTTP1_RESPONSE, HEAD_MAX, &arena);
    int result = connect_by(fd, address, until_ns);
    if (!result)
        result = send_by(fd, strbuf_text(&request), until_ns);
    if (!result)
        result = read_by(fd, &reader, until_ns, body);
    int status = reader.status;
    http1_reader_fini(&reader);
    arena_fini(&arena);
    strbuf_fini(&request);
    return result ? result : status;
}

static int
get_by(struct text text, const char *target, uint64_t until_ns, struct strbuf *body)
{
    struct address address;
    int result = address_from_text(text, false, &address);
    if (result)
        return result;
    prefer_loopback(&address);
    int fd = socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    result = exchange(fd, &address, target, until_ns, body);
    close(fd);
    return result;
}

int
probe_get(struct text address, const char *target, struct strbuf *body)
{
    return get_by(address, target, clock_now_ns() + EXPLAIN_TIMEOUT_NS, body);
}

int
probe_running(const struct snapshot *snapshot, struct text what, struct strbuf *out)
{
    const struct proxy_conf *proxy = &snapshot->proxy;
    struct text address = proxy->probe.len ? proxy->probe : proxy->admin;
    struct strbuf body = STRBUF_INIT;
    struct text reasons, reason = TEXT_NONE;
    char target[16];
    if (!text_eq(what, TEXT("live")) && !text_eq(what, TEXT("ready"))) {
        strbuf_addf(out, "--probe takes live or ready, not %.*s\n", TEXT_ARGS(what));
        return 1;
    }
    if (address.len == 0) {
        strbuf_add_str(out, "nothing to ask: [proxy] has neither probe nor admin\n");
        return 1;
    }
    snprintf(target, sizeof(target), "/%.*s", TEXT_ARGS(what));
    int status = get_by(address, target, clock_now_ns() + TIMEOUT_NS, &body);
    reasons = strbuf_text(&body);
    text_next(&reasons, '\n', &reason); /* one line is enough */
    if (status < 0)
        strbuf_addf(out, "%.*s does not answer: %s\n", TEXT_ARGS(address), strerror(-status));
    else if (status != 200)
        strbuf_addf(out, "not %.*s: %d %.*s\n", TEXT_ARGS(what), status, TEXT_ARGS(reason));
    strbuf_fini(&body);
    return status == 200 ? 0 : 1;
}
