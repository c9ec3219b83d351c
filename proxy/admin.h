/*
 * The stats endpoint (`admin`) and the read-only `probe` address: HTTP/1.1 on the main loop, by
 * net/h1.
 *
 * admin: / /stats /metrics /live /ready /config /explain?path=… POST /reset. probe: /live /ready
 * /metrics only.
 */
#ifndef TRIBUTARY_ADMIN_H
#define TRIBUTARY_ADMIN_H

#include "proxy/server_state.h"

/* Listen and serve. 0 or a negative errno with a sentence in error. The admin is freed after
 * admin_close, by the loop. */
int admin_open(struct admin **out, struct server *server, struct text address, bool probe_only,
               struct strbuf *error);
/* Stop listening and close all connections. */
void admin_close(struct admin *admin);

#endif
