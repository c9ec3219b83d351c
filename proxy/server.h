/*
 * The process: one main loop for signals, reload, watching the file, draining and the admin endpoints; worker threads for calls.
 *
 * Owns the running configuration, the registry of statistics, the budget and the workers. Main thread only.
 */
#ifndef TRIBUTARY_SERVER_H
#define TRIBUTARY_SERVER_H

#include <uv.h>

#include "proxy/base/budget.h"
#include "proxy/base/strbuf.h"
#include "proxy/call/snapshot.h"
#include "proxy/config/config.h"
#include "proxy/workers.h"

enum server_state { SERVER_STARTING, SERVER_READY, SERVER_DRAINING };
enum server_exit { EXIT_STOPPED = 0, EXIT_BAD_CONFIG = 1, EXIT_CANNOT_START = 2 };

struct admin;

struct server {
    const char *file;          /* configuration file */
    uv_loop_t loop;
    enum server_state state;
    uint64_t started_ns;
    struct snapshot *snapshot; /* the newest published one */
    char *reload_error;        /* of the last reload; NULL when it went well */
    struct stats stats;
    struct budget budget;
    struct workers *workers;
    struct admin *admin, *probe; /* NULL: none */
    uv_signal_t signals[4];    /* HUP, TERM, INT, USR1 */
    uv_async_t worker_exit;
    uv_timer_t drain_timer, watch_timer;
    struct config_identity identity, changing; /* of the loaded file; of a change that is not yet stable */
    bool closing;
};

/* Start, run until stopped, clean up. The process's exit code. */
int server_run(const char *file);
const char *server_state_name(enum server_state state);

#endif
