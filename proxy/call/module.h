/*
 * How the server reaches the folders that it composes: one table each, defined by downstream/ and
 * upstream/ (and filters/'s list), declared here so that main needs no arrow into them. All
 * functions run on the worker's thread.
 */
#ifndef TRIBUTARY_CALL_MODULE_H
#define TRIBUTARY_CALL_MODULE_H

#include "proxy/base/strbuf.h"
#include "proxy/call/worker.h"

struct module {
    const char *name;
    /* Make the worker's state. 0 or a negative errno (logged). */
    int (*start)(struct worker *worker);
    /* worker->snapshot is new: listeners / upstreams come, go or change. Upstreams match by name:
     * connections, facts and health stay. */
    void (*apply)(struct worker *worker, struct snapshot *old);
    /* TERM: listeners close together, GOAWAY; upstream: nothing until calls are gone. */
    void (*drain)(struct worker *worker);
    /* Close everything now; running calls end UNAVAILABLE. Handles close; the loop ends when all
     * are gone. */
    void (*stop)(struct worker *worker);
    /* After the loop ended: free the state. */
    void (*free)(struct worker *worker);
    /* Whether nothing of it is left open (drain is complete). */
    bool (*idle)(const struct worker *worker);
    /* Add what only the module knows to the JSON-ready report (facts for --explain): text lines
     * appended to out. */
    void (*report)(struct worker *worker, struct text path, struct strbuf *out);
};

extern const struct module downstream_module;
extern const struct module upstream_module;

/*
 * Listening sockets are made by the main thread before the workers start, so that a taken port is
 * exit code 2. downstream/ defines these; descriptors are handed to the workers.
 */
struct listen_set; /* descriptors by listener name and address, one per worker for TCP, shared for
                      unix */
enum { LISTEN_BACKLOG = 1024 }; /* connections that the kernel holds for us */
/* Bind what `snapshot` names and `set` lacks, TCP listening (all or nothing); error text in `error`
 * when it fails. 0 or a negative errno. */
int listen_set_open(struct listen_set **set, const struct snapshot *snapshot, unsigned workers,
                    struct strbuf *error);
void listen_set_prune(struct listen_set *set,
                      const struct snapshot *snapshot); /* forget what is no longer named */
void listen_set_free(struct listen_set *set);
/* This worker's descriptor for a listener's address, now the caller's (once per worker); -1 when
 * there is none. */
int
listen_set_take(struct listen_set *set, struct text listener, struct text address, unsigned worker);
/* Where `address` (port 0 in tests) really listens, for the banner: text in out, which is returned.
 */
char *listen_set_name(struct listen_set *set, struct text listener, struct text address, char *out,
                      size_t bytes);

extern struct listen_set
    *module_listen_set; /* the process's one set, made by the main thread; locked inside */

/* filters/: all types, NULL-terminated, for the key table. */
extern const struct filter_type *const filter_types[];

#endif
