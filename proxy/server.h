/*
 * The process: one main loop for signals, reload, watching the file, draining and the admin
 * endpoints; worker threads for calls.
 *
 * Owns the running configuration, the registry of statistics, the budget and the workers. Main
 * thread only.
 */
#ifndef TRIBUTARY_SERVER_H
#define TRIBUTARY_SERVER_H

#include "proxy/server_state.h"

enum server_exit { EXIT_STOPPED = 0, EXIT_BAD_CONFIG = 1, EXIT_CANNOT_START = 2 };

/* Start, run until stopped, clean up. The process's exit code. */
int server_run(const char *file);

#endif
