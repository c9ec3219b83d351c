/*
 * One host name looked up off the loop, on a thread of its own: getaddrinfo may take as long as the
 * name servers let it, and nothing waits for it, neither the loop nor the end of the process.
 * (libuv's thread pool would hold up both.)
 */
#ifndef TRIBUTARY_UPSTREAM_LOOKUP_H
#define TRIBUTARY_UPSTREAM_LOOKUP_H

#include "proxy/net/address.h"

enum { LOOKUP_MAX_ADDRESSES = 256 };

struct lookup;

/* Starts it. wake(arg) is called once, on the other thread, when it is done; never after
 * lookup_free. NULL: no thread is to be had now. */
struct lookup *lookup_start(struct text host, uint16_t port, void (*wake)(void *arg), void *arg);
/* False while it runs. True: *addresses (the lookup's; IPv4 and IPv6, in the system's order) and
 * *count, or NULL and *error says why (constant text). */
bool lookup_result(struct lookup *lookup, const struct address **addresses, unsigned *count,
                   const char **error);
/* Blocks until it is done or it is that late (clock_now_ns). */
void lookup_wait(struct lookup *lookup, uint64_t until_ns);
void lookup_free(struct lookup *lookup); /* done or not; NULL is fine */

#endif
