/* Socket addresses from and to text, without a system call; a text is an IP address, a name or a
 * unix path, or refused. And room for a unix socket where a stale one lies. */
#include "proxy/net/address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define UNIX_SCHEME TEXT("unix:")

static bool
parse_port(struct text text, bool allow_zero, uint16_t *port)
{
    uint64_t value;
    if (text.len > 5 || !text_to_u64(text, &value) || value > UINT16_MAX ||
        (value == 0 && !allow_zero))
        return false;
    *port = (uint16_t)value;
    return true;
}

/* A text without NUL as a C string; false when it does not fit. */
static bool
to_string(struct text text, char *out, size_t bytes)
{
    if (text.len >= bytes || (text.len && memchr(text.ptr, 0, text.len)))
        return false;
    memcpy(out, text.len ? text.ptr : "", text.len);
    out[text.len] = 0;
    return true;
}

static bool
is_ip(struct text text)
{
    char string[INET6_ADDRSTRLEN];
    struct in6_addr address;
    return to_string(text, string, sizeof string) && (inet_pton(AF_INET, string, &address) == 1 ||
                                                      inet_pton(AF_INET6, string, &address) == 1);
}

/* RFC 1123 host names, and the underscore that cluster DNS names carry. Digits and dots alone are a
 * mistyped address. */
static bool
is_name(struct text text)
{
    bool letter = false;
    if (text.len == 0 || text.len > 253 || text.ptr[0] == '.' || text.ptr[0] == '-')
        return false;
    for (size_t i = 0; i < text.len; i++) {
        char byte = text.ptr[i];
        bool alpha = (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z');
        bool digit = byte >= '0' && byte <= '9';
        if (!alpha && !digit && byte != '-' && byte != '.' && byte != '_')
            return false;
        if (byte == '.' && text.ptr[i - 1] == '.')
            return false;
        letter = letter || alpha;
    }
    return letter;
}

static enum address_kind
parse_unix(struct text path, struct text *host, uint16_t *port)
{
    struct sockaddr_un un;
    if (path.len == 0 || path.len >= sizeof un.sun_path || memchr(path.ptr, 0, path.len))
        return ADDRESS_BAD;
    *host = path;
    *port = 0;
    return ADDRESS_UNIX;
}

enum address_kind
address_parse(struct text text, bool allow_zero_port, struct text *host, uint16_t *port)
{
    if (text_starts(text, UNIX_SCHEME))
        return parse_unix(text_from(text, UNIX_SCHEME.len), host, port);
    if (text.len && text.ptr[0] == '[') {
        ptrdiff_t end = text_find(text, ']', 0);
        if (end < 0 || (size_t)end + 1 >= text.len || text.ptr[end + 1] != ':')
            return ADDRESS_BAD;
        *host = text_make(text.ptr + 1, (size_t)end - 1);
        if (text_find(*host, ':', 0) < 0 || !is_ip(*host))
            return ADDRESS_BAD;
        return parse_port(text_from(text, (size_t)end + 2), allow_zero_port, port) ? ADDRESS_IP
                                                                                   : ADDRESS_BAD;
    }
    ptrdiff_t colon = text_find(text, ':', 0);
    if (colon <= 0 || !parse_port(text_from(text, (size_t)colon + 1), allow_zero_port, port))
        return ADDRESS_BAD;
    *host = text_make(text.ptr, (size_t)colon);
    if (is_ip(*host))
        return ADDRESS_IP;
    return is_name(*host) ? ADDRESS_NAME : ADDRESS_BAD;
}

int
address_from_ip(struct text ip, uint16_t port, struct address *address)
{
    char string[INET6_ADDRSTRLEN];
    *address = (struct address){.len = 0};
    if (!to_string(ip, string, sizeof string))
        return -EINVAL;
    struct sockaddr_in *in = (struct sockaddr_in *)&address->storage;
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)&address->storage;
    if (inet_pton(AF_INET, string, &in->sin_addr) == 1) {
        in->sin_family = AF_INET;
        in->sin_port = htons(port);
        address->len = sizeof *in;
    } else if (inet_pton(AF_INET6, string, &in6->sin6_addr) == 1) {
        in6->sin6_family = AF_INET6;
        in6->sin6_port = htons(port);
        address->len = sizeof *in6;
    } else {
        return -EINVAL;
    }
    return 0;
}

int
address_from_text(struct text text, bool allow_zero_port, struct address *address)
{
    struct text host;
    uint16_t port;
    enum address_kind kind = address_parse(text, allow_zero_port, &host, &port);
    if (kind == ADDRESS_IP)
        return address_from_ip(host, port, address);
    if (kind != ADDRESS_UNIX)
        return -EINVAL;
    *address = (struct address){.len = sizeof(struct sockaddr_un)};
    struct sockaddr_un *un = (struct sockaddr_un *)&address->storage;
    un->sun_family = AF_UNIX;
    memcpy(un->sun_path, host.ptr,
           host.len); /* address_parse: shorter than sun_path, which is zeroed */
    return 0;
}

char *
address_format(const struct sockaddr *sockaddr, char *out, size_t bytes)
{
    char ip[INET6_ADDRSTRLEN] = "";
    if (sockaddr->sa_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)sockaddr;
        inet_ntop(AF_INET, &in->sin_addr, ip, sizeof ip);
        snprintf(out, bytes, "%s:%u", ip, ntohs(in->sin_port));
    } else if (sockaddr->sa_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)sockaddr;
        inet_ntop(AF_INET6, &in6->sin6_addr, ip, sizeof ip);
        snprintf(out, bytes, "[%s]:%u", ip, ntohs(in6->sin6_port));
    } else if (sockaddr->sa_family == AF_UNIX) {
        snprintf(out, bytes, "unix:%.107s", ((const struct sockaddr_un *)sockaddr)->sun_path);
    } else {
        snprintf(out, bytes, "unknown");
    }
    return out;
}

bool
address_is_loopback(const struct address *address)
{
    const struct sockaddr_in *in = (const struct sockaddr_in *)&address->storage;
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)&address->storage;
    switch (address->storage.ss_family) {
    case AF_INET:
        return ntohl(in->sin_addr.s_addr) >> 24 == 127;
    case AF_INET6:
        if (IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr))
            return in6->sin6_addr.s6_addr[12] == 127;
        return IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr);
    case AF_UNIX:
        return true;
    default:
        return false;
    }
}

int
address_clear_path(const struct address *address)
{
    const char *path = ((const struct sockaddr_un *)&address->storage)->sun_path;
    struct stat info;
    if (lstat(path, &info) != 0)
        return errno == ENOENT ? 0 : -errno;
    if (!S_ISSOCK(info.st_mode))
        return -EEXIST;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    int error =
        connect(fd, (const struct sockaddr *)&address->storage, address->len) == 0 ? 0 : errno;
    close(fd);
    if (error != ECONNREFUSED)
        return -EADDRINUSE;
    return unlink(path) == 0 ? 0 : -errno;
}
