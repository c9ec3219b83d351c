/* `--explain /SERVICE/METHOD`: which route, upstream, wire form and path a call would take, and
 * why. */
#ifndef TRIBUTARY_EXPLAIN_H
#define TRIBUTARY_EXPLAIN_H

#include "proxy/base/strbuf.h"
#include "proxy/call/snapshot.h"

/* Text for people in out, with what the running proxy has learnt (asked at `admin`, one second at
 * most; says so when it does not answer). 0, or 1 when no route takes the path. */
int explain_call(const struct snapshot *snapshot, struct text path, struct strbuf *out);

#endif
