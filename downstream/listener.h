/*
 * One [listener] section on one worker: its listening sockets and the connections that came through
 * them.
 */
#ifndef TRIBUTARY_DOWNSTREAM_LISTENER_H
#define TRIBUTARY_DOWNSTREAM_LISTENER_H

#include "downstream/listening.h"

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
/* No socket and no connection left: may be freed. */
bool listener_idle(const struct listener *listener);
void listener_free(struct listener *listener); /* only when idle */

#endif
