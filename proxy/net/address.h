/* Socket addresses: "host:port", "[v6]:port", "unix:/path". Names stay names here (resolvers
 * resolve them). */
#ifndef TRIBUTARY_NET_ADDRESS_H
#define TRIBUTARY_NET_ADDRESS_H

#include <sys/socket.h>

#include "proxy/base/text.h"

struct address {
    struct sockaddr_storage storage;
    socklen_t len;
};

enum address_kind { ADDRESS_IP, ADDRESS_NAME, ADDRESS_UNIX, ADDRESS_BAD };

/* What the text is; host (brackets off) or path, and port (1-65535; 0 where allow_zero_port) are
 * filled when not BAD. */
enum address_kind
address_parse(struct text text, bool allow_zero_port, struct text *host, uint16_t *port);
/* 0 or -EINVAL: only ADDRESS_IP and ADDRESS_UNIX texts. */
int address_from_text(struct text text, bool allow_zero_port, struct address *address);
int address_from_ip(struct text ip, uint16_t port, struct address *address);
/* "127.0.0.1:20000", "[::1]:20000", "unix:/path" into out (at least 128 bytes); returns out. */
char *address_format(const struct sockaddr *sockaddr, char *out, size_t bytes);
bool address_is_loopback(const struct address *address);

/* Makes room for a unix socket. 0: its path may be bound (a stale socket is gone); -EADDRINUSE: a
 * live socket is there; -EEXIST: something that is no socket; what is there stays. */
int address_clear_path(const struct address *address);

#endif
