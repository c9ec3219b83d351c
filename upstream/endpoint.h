/*
 * One endpoint of a cluster on one worker: an address, its HTTP/2 connections, the calls that wait
 * for a stream there, its health.
 *
 * Being on endpoint->connections means: the connection is open or being opened and may get streams
 * when it has capacity. Being on endpoint->retired means: GOAWAY or drain, its streams go on, it
 * gets no new ones. Being on endpoint->waiting means: the call (struct upstream_call) has no stream
 * yet; it leaves by being granted one, by cancel, or by endpoint failure, in which case it tries
 * another endpoint.
 */
#ifndef TRIBUTARY_UPSTREAM_ENDPOINT_H
#define TRIBUTARY_UPSTREAM_ENDPOINT_H

#include "proxy/base/list.h"
#include "proxy/call/call.h"
#include "proxy/net/address.h"
#include "upstream/facts.h"

struct cluster;
struct client_conn;
struct upstream_call;

struct endpoint {
    struct list node; /* cluster->endpoints, or cluster->leaving once it is no longer named */
    struct cluster *cluster;
    char *name; /* "127.0.0.1:20000" */
    struct address address;
    struct facts *facts; /* not owned */
    struct endpoint_cells *cells;
    struct list connections, retired; /* struct client_conn */
    struct list waiting;              /* struct upstream_call, oldest first */
    uint32_t connection_count;        /* on connections */
    uint32_t connecting;              /* of these, not yet connected */
    uint32_t active;                  /* calls that picked this endpoint and have not left it */
    uint32_t failures;                /* in a row: sets the backoff */
    bool leaving;                     /* no longer named: freed when nothing refers to it */
    struct timer backoff;             /* running: no dial before it fires */
    char error[160];                  /* what the last dial failed with */
};

struct endpoint *
endpoint_new(struct cluster *cluster, struct text name, const struct address *address);
void endpoint_free(struct endpoint *endpoint); /* only when endpoint_idle */
bool endpoint_idle(const struct endpoint *endpoint);
bool endpoint_usable(const struct endpoint *endpoint); /* has a connection, or may dial one now */
/* Give the call a stream now (call_upstream_granted before return), or let it wait. */
void endpoint_enqueue(struct endpoint *endpoint, struct upstream_call *up);
void
endpoint_serve(struct endpoint *
                   endpoint); /* hand free streams to waiting calls, dial where there are too few */
void endpoint_drain(struct endpoint *endpoint);      /* connections close as they empty */
void endpoint_close(struct endpoint *endpoint);      /* now; waiting calls fail */
void endpoint_show_state(struct endpoint *endpoint); /* into the stats cells */

/* From client_conn.c: */
void endpoint_connected(struct endpoint *endpoint); /* a dial succeeded */
void endpoint_proved(struct endpoint *endpoint);    /* the peer's SETTINGS came: it speaks HTTP/2 */
void endpoint_failed(struct endpoint *endpoint,
                     const char *error); /* a dial failed, or a connection died before SETTINGS */

#endif
