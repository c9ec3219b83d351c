/*
 * A service registry's list of endpoints, kept by a thread of its own: ZooKeeper (registry_zk) or
 * Nacos (registry_nacos).
 *
 * A registry that cannot be reached, or lists nothing, leaves the list that is known: whether a
 * provider lives is seen by its connections.
 */
#ifndef TRIBUTARY_UPSTREAM_REGISTRY_H
#define TRIBUTARY_UPSTREAM_REGISTRY_H

#include "proxy/base/strbuf.h"
#include "proxy/call/snapshot.h"

struct registry;

/* Starts asking. servers: "host:port,host:port"; path: what to ask for. wake(arg) is called on the
 * other thread when there is something to take; never after registry_close. NULL: no thread is to
 * be had. */
struct registry *
registry_open(enum upstream_discovery discovery, struct text servers, struct text path,
              const char *upstream, void (*wake)(void *arg), void *arg);
/* True: a list that was not taken yet, into *lines: endpoints as they would be configured, one a
 * line. */
bool registry_take(struct registry *registry, struct strbuf *lines);
bool registry_tried(struct registry *registry); /* it has answered, in whatever way */
/* Why it has no list; empty when it has. Into `into`, which is returned. */
char *registry_error(struct registry *registry, char *into, size_t bytes);
void registry_close(struct registry *registry); /* does not wait for the thread */

#endif
