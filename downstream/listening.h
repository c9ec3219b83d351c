/*
 * What a listener and its connections share: the listener's state on one worker. listener.c owns
 * and changes it; server_conn.c reads its settings and is on its list.
 */
#ifndef TRIBUTARY_DOWNSTREAM_LISTENING_H
#define TRIBUTARY_DOWNSTREAM_LISTENING_H

#include "proxy/call/worker.h"

struct listener_socket;

struct listener {
    struct list node; /* downstream->listeners */
    struct worker *worker;
    struct snapshot *snapshot;        /* a reference: holds conf */
    const struct listener_conf *conf; /* of the newest snapshot that names this listener */
    struct listener_cells *cells;
    char *name;
    struct list connections; /* struct server_conn */
    /* server_conn: one less on the list, which made room for another */
    void (*on_connection_closed)(struct listener *listener);
    uint32_t connection_count, connection_limit; /* this worker's share */
    struct listener_socket **sockets;
    unsigned socket_count;
    bool closing;       /* takes no more connections */
    bool paused;        /* at the limit, or out of descriptors */
    struct timer retry; /* out of descriptors: try again */
};

#endif
