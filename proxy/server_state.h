/*
 * What the process is made of, for server.c, which owns it, and for those that only look: the
 * endpoints (admin*, exports*).
 *
 * Main thread only. Statistics cells in it are the workers'; read them relaxed.
 */
#ifndef TRIBUTARY_SERVER_STATE_H
#define TRIBUTARY_SERVER_STATE_H

#include "proxy/base/budget.h"
#include "proxy/base/strbuf.h"
#include "proxy/call/snapshot.h"
#include "proxy/config/config.h"
#include "proxy/workers.h"

enum server_state { SERVER_STARTING, SERVER_READY, SERVER_DRAINING };

struct admin;

struct server {
    const char *file; /* configuration file */
    uv_loop_t loop;
    enum server_state state;
    uint64_t started_ns;
    struct snapshot *snapshot; /* the newest published one */
    char *reload_error;        /* of the last reload; NULL when it went well */
    struct stats stats;
    struct budget budget;
    struct workers *workers;     /* NULL until they are started */
    struct admin *admin, *probe; /* NULL: none */
    uv_signal_t signals[4];      /* HUP, TERM, INT, USR1 */
    uv_async_t worker_exit;
    uv_timer_t drain_timer, watch_timer;
    struct config_identity identity; /* of the loaded file */
    struct config_identity changing; /* of a change that is not yet stable */
    bool closing;
};

const char *server_state_name(enum server_state state); /* "starting", "ready", "draining" */

#endif
