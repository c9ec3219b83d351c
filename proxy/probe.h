/* `--probe live|ready`: ask the running proxy at `probe` (else `admin`), for container health
 * checks. Blocking, at most two seconds. */
#ifndef TRIBUTARY_PROBE_H
#define TRIBUTARY_PROBE_H

#include "proxy/base/strbuf.h"
#include "proxy/call/snapshot.h"

/* 0 when it answers 200; 1 with one line in out otherwise (also for another word than live or
 * ready). */
int probe_running(const struct snapshot *snapshot, struct text what, struct strbuf *out);
/* GET `target` at `address` (a wildcard address means loopback). HTTP status and the body, or a
 * negative errno. */
int probe_get(struct text address, const char *target, struct strbuf *body);

#endif
