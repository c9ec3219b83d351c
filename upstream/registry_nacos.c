/*
 * Nacos, by its open HTTP interface: asked every few seconds for the healthy instances of a
 * service.
 *
 * The path is the service's name ("providers:org.foo.Greeter:1.0:"), with further parameters behind
 * a '?': groupName, namespaceId, clusters. Servers are asked in turn until one answers.
 *
 * Failure modes: no server answers, an answer that is no list: the list that is known stays.
 */
#include "upstream/registry_private.h"

#include <errno.h>
#include <jansson.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "proxy/base/mem.h"
#include "proxy/wire/http1.h"

enum { INTERVAL_MS = 5000, TIMEOUT_S = 3, MAX_HEAD = 16 * 1024, MAX_ANSWER = 4 << 20 };

/* --- one question --- */

/* A connected socket with timeouts on everything, or a negative errno. */
static int
connect_to(const char *server)
{
    char host[256];
    const char *colon = strrchr(server, ':');
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *list;
    struct timeval timeout = {.tv_sec = TIMEOUT_S};
    int result = -EHOSTUNREACH;
    bool v6 = server[0] == '[';
    snprintf(host, sizeof(host), "%.*s", (int)(colon - server - 2 * v6), server + v6);
    if (getaddrinfo(host, colon + 1, &hints, &list) != 0)
        return result;
    for (struct addrinfo *at = list; at && result < 0; at = at->ai_next) {
        int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0) {
            result = -errno;
            continue;
        }
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
        result = connect(fd, at->ai_addr, at->ai_addrlen) == 0 ? fd : -errno;
        if (result < 0)
            close(fd);
    }
    freeaddrinfo(list);
    return result;
}

/* As a query parameter. */
static void
add_encoded(struct strbuf *out, struct text value)
{
    for (size_t i = 0; i < value.len; i++) {
        unsigned char byte = (unsigned char)value.ptr[i];
        bool plain = (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'z') ||
                     (byte >= 'A' && byte <= 'Z') || strchr("-._~", byte);
        if (plain && byte)
            strbuf_add_char(out, (char)byte);
        else
            strbuf_addf(out, "%%%02X", byte);
    }
}

/* "/name?more": Dubbo's Nacos service names have colons and are taken as they are. */
static void
write_request(struct strbuf *out, const char *server, const char *path)
{
    struct text name = text_of(path[0] == '/' ? path + 1 : path), more = TEXT_NONE;
    ptrdiff_t mark = text_find(name, '?', 0);
    if (mark >= 0) {
        more = text_from(name, (size_t)mark + 1);
        name.len = (size_t)mark;
    }
    strbuf_add_str(out, "GET /nacos/v1/ns/instance/list?serviceName=");
    add_encoded(out, name);
    strbuf_addf(out, "&healthyOnly=true%s%.*s HTTP/1.1\r\nhost: %s\r\nconnection: close\r\n\r\n",
                more.len ? "&" : "", TEXT_ARGS(more), server);
}

/* Steps over input; 1: complete, 0: more is needed, or a negative errno. */
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
            if (body->len + part_len > MAX_ANSWER)
                return -EFBIG;
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
receive(int fd, struct http1_reader *reader, struct strbuf *body)
{
    uint8_t part[16384];
    int result = 0;
    while (result == 0) {
        ssize_t got = recv(fd, part, sizeof(part), 0);
        if (got < 0)
            return -errno;
        if (got == 0)
            return http1_reader_eof(reader) == HTTP1_END ? 0 : -EPROTO;
        result = take(reader, part, (size_t)got, body);
    }
    return result < 0 ? result : 0;
}

/* The status, or a negative errno. */
static int
exchange(int fd, struct text request, struct strbuf *body)
{
    struct arena arena;
    struct http1_reader reader;
    arena_init(&arena, NULL, 0);
    http1_reader_init(&reader, HTTP1_RESPONSE, MAX_HEAD, &arena);
    ssize_t sent = send(fd, request.ptr, request.len, MSG_NOSIGNAL);
    int result = sent == (ssize_t)request.len ? receive(fd, &reader, body) : -EPIPE;
    if (result == 0)
        result = reader.status;
    http1_reader_fini(&reader);
    arena_fini(&arena);
    return result;
}

static int
ask(const char *server, const char *path, struct strbuf *body)
{
    struct strbuf request = STRBUF_INIT;
    int fd = connect_to(server);
    if (fd < 0)
        return fd;
    write_request(&request, server, path);
    int result = exchange(fd, strbuf_text(&request), body);
    close(fd);
    strbuf_fini(&request);
    return result;
}

/* --- the answer --- */

static void
add_instance(struct strbuf *lines, json_t *instance)
{
    const char *ip = json_string_value(json_object_get(instance, "ip"));
    json_int_t port = json_integer_value(json_object_get(instance, "port"));
    json_t *weight = json_object_get(instance, "weight");
    bool off = json_is_false(json_object_get(instance, "enabled")) ||
               json_is_false(json_object_get(instance, "healthy")) ||
               (json_is_number(weight) && json_number_value(weight) <= 0);
    if (!ip || port < 1 || port > 65535 || off || strlen(ip) > 64 || strpbrk(ip, " \r\n"))
        return;
    strbuf_addf(lines, strchr(ip, ':') ? "[%s]:%d\n" : "%s:%d\n", ip, (int)port);
}

static void
read_answer(struct registry *registry, const struct strbuf *body)
{
    struct strbuf lines = STRBUF_INIT;
    json_t *answer = json_loadb(body->data ? body->data : "", body->len, 0, NULL), *instance;
    json_t *hosts = json_object_get(answer, "hosts");
    size_t i;
    json_array_foreach(hosts, i, instance) add_instance(&lines, instance);
    if (json_is_array(hosts))
        registry_publish(registry, strbuf_text(&lines));
    else
        registry_fail(registry, "its answer is no list of instances");
    json_decref(answer);
    strbuf_fini(&lines);
}

/* The first server that answers 200. */
static void
refresh(struct registry *registry)
{
    struct text servers = text_of(registry->servers), server;
    char problem[64] = "no server";
    while (text_next(&servers, ',', &server)) {
        struct strbuf body = STRBUF_INIT;
        char *name = text_dup(server);
        int status = ask(name, registry->path, &body);
        if (status == 200)
            read_answer(registry, &body);
        else if (status < 0)
            snprintf(problem, sizeof(problem), "%s", strerror(-status));
        else
            snprintf(problem, sizeof(problem), "HTTP status %d", status);
        mem_free(name);
        strbuf_fini(&body);
        if (status == 200)
            return;
    }
    registry_fail(registry, problem);
}

void
registry_nacos_run(struct registry *registry)
{
    do
        refresh(registry);
    while (registry_rest(registry, INTERVAL_MS, NULL));
}
