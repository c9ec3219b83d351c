/* What the endpoints say, rendered from the statistics: JSON for /stats, Prometheus text for
 * /metrics, the page for people. */
#ifndef TRIBUTARY_EXPORTS_H
#define TRIBUTARY_EXPORTS_H

#include "proxy/server_state.h"

void exports_stats_json(const struct server *server, struct strbuf *out);
void
exports_metrics(const struct server *server, struct strbuf *out); /* Prometheus text format 0.0.4 */
void exports_config(
    const struct server *server,
    struct strbuf *out); /* effective INI with generation and last reload error as comments */
/* /ready?upstreams: every route has a usable endpoint. False with the reason in out. */
bool exports_upstreams_ready(const struct server *server, struct strbuf *out);

#endif
