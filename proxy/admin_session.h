/*
 * One connection to `admin` or `probe` and its requests, over net/h1.
 *
 * The list of sessions belongs to the endpoint (admin.c); a session belongs to its connection and
 * frees itself when that has closed.
 */
#ifndef TRIBUTARY_ADMIN_SESSION_H
#define TRIBUTARY_ADMIN_SESSION_H

#include "proxy/net/ctx.h"
#include "proxy/server_state.h"

struct admin_session;

/* What an endpoint's sessions share. */
struct admin_sessions {
    struct ctx *ctx;
    const struct server *server;
    bool probe_only;
    struct list list; /* struct admin_session: the one that has been quiet for longest is first */
    unsigned count;
    struct list queue; /* struct exchange: requests that wait for their answer */
    struct timer turn; /* running while any does */
    /* A session has ended (`count` is one less) or has nothing more to answer. Comes from inside
     * the connection's callbacks: end no session in it. */
    void (*on_change)(struct admin_sessions *sessions);
};

/* Fill in the rest of what has its first three members and on_change set. */
void admin_session_init(struct admin_sessions *sessions);
/* Take the connection that waits at `listening`. 0 or a negative errno with nothing left open. */
int admin_session_open(struct admin_sessions *sessions, uv_stream_t *listening);
/* Make room: politely end the session that has been without a request for longest, if there is one.
 */
void admin_session_end_idle(struct admin_sessions *sessions);
/* End all of them now. */
void admin_session_end_all(struct admin_sessions *sessions);

#endif
