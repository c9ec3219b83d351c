/*
 * One [listener] section on one worker: its listening sockets and the connections that came through
 * them.
 */
#ifndef TRIBUTARY_DOWNSTREAM_LISTENER_H
#define TRIBUTARY_DOWNSTREAM_LISTENER_H

#include <uv.h>

#include "proxy/call/worker.h"

struct listener_socket;

struct listener {
    struct list node; /* downstream->listeners */
    struct worker *worker;
    struct snapshot *snapshot;        /* a reference: holds conf */
    const struct listener_conf *conf; /* of the newest snapshot that names this listener */
    struct listener_cells *cells;
    char *name;
    struct list connections;                     /* struct server_conn */
    uint32_t connection_count, connection_limit; /* this worker's share */
    struct listener_socket **sockets;
    unsigned socket_count;
    bool closing;       /* takes no more connections */
    bool paused;        /* at the limit, or out of descriptors */
    struct timer retry; /* out of descriptors: try again */
};

/* Listen on the worker's descriptors for every address of conf. */
struct listener *listener_open(struct worker *worker, const struct listener_conf *conf);
/* The listener goes on under a new snapshot: limits change, sockets that are no longer named close,
 * new ones open. */
void listener_update(struct listener *listener, const struct listener_conf *conf);
void listener_stop_accepting(
    struct listener *listener); /* accepts what is queued, then closes the sockets */
void listener_drain(struct listener *listener); /* every connection drains */
void listener_close(
    struct listener *listener); /* everything closes now; freed when the last handle is closed */
void listener_connection_closed(struct listener *listener); /* server_conn: one less */
/* No socket and no connection left: may be freed. */
bool listener_idle(const struct listener *listener);
void listener_free(struct listener *listener); /* only when idle */

#endif
