/*
 * Where a cluster's endpoints come from: what `endpoints` says, or the file it names, with host
 * names looked up again and again.
 *
 * A name is looked up at once, then every 30 s; after a failed look-up in 1, 2, 4, then every 5 s;
 * when a connection failed or was sent away (resolver_look_again) soon, at most once a second. Each
 * of its addresses is an endpoint. A look-up that fails leaves the addresses that are known.
 */
#ifndef TRIBUTARY_UPSTREAM_RESOLVER_H
#define TRIBUTARY_UPSTREAM_RESOLVER_H

#include "proxy/call/worker.h"
#include "proxy/net/address.h"

struct resolved {
    struct text name; /* "10.0.0.1:20000" or as it was written; valid during the callback */
    struct text host; /* the name it was found by; empty for addresses */
    struct address address;
};

typedef void resolver_on_endpoints(void *owner, const struct resolved *endpoints, unsigned count);

struct resolver;

/* on_endpoints: all there are, each time that may have changed; from resolver_update, _await,
 * _check, and from the loop. conf and upstream (its name) must outlive the resolver or be replaced
 * by resolver_update. */
struct resolver *resolver_open(struct worker *worker, const char *upstream,
                               resolver_on_endpoints *on_endpoints, void *owner);
/* Begins with these sources, or goes on with them: names that stay keep what is known. */
void resolver_update(struct resolver *resolver, const struct upstream_conf *conf);
/* Blocks until each name was looked up once, or it is that late: only before the loop runs. */
void resolver_await(struct resolver *resolver, uint64_t until_ns);
void resolver_look_again(struct resolver *resolver);
void resolver_check(struct resolver *resolver, uint64_t now_ns); /* once a second */
/* Why there are no endpoints, as far as that is the sources' fault; empty otherwise. */
const char *resolver_error(const struct resolver *resolver);
/* No callback after this. */
void resolver_close(struct resolver *resolver);

#endif
