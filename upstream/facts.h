/*
 * What has been learnt about which wire form an endpoint and its methods take (design.md, "How a
 * call goes").
 *
 * One table per (upstream, address) for the whole process: it survives reconnects and reloads.
 * Reading takes no lock (atomic flags, an append-only hash table); learning takes a mutex, which
 * happens a few times in an endpoint's life.
 */
#ifndef TRIBUTARY_UPSTREAM_FACTS_H
#define TRIBUTARY_UPSTREAM_FACTS_H

#include "proxy/base/strbuf.h"
#include "proxy/call/ends.h"

struct facts;

/* The table of an endpoint, made on first use; never freed while the process runs. Any thread. */
struct facts *facts_of(struct text upstream, struct text address);
struct text
facts_address(const struct facts *facts); /* of the endpoint; lives as long as the process */
/* Flags for a codec ("proto") and a path without query. */
void
facts_look_up(struct facts *facts, struct text codec, struct text path, struct upstream_facts *out);
/* refused_http: the HTTP status with which the bare try was refused, for the log and --explain; 0
 * when it was not. A form that is new for the endpoint and codec is logged, with the reason. */
void facts_learn(struct facts *facts, struct text codec, struct text path,
                 enum upstream_lesson lesson, int refused_http);
enum endpoint_wire
facts_wire(const struct facts *facts); /* of the endpoint as a whole, for the stats */
/* Lines "endpoint ADDRESS: …" about a path, for --explain. */
void facts_report(struct facts *facts, struct text address, struct text path, struct strbuf *out);

#endif
