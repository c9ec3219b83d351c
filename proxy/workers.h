/*
 * The worker threads: start, mailbox, drain, stop, join. Each thread owns a loop and a struct
 * worker; what others want of it comes as a message that runs between its callbacks. Called from
 * the main thread only, but for workers_post.
 */
#ifndef TRIBUTARY_WORKERS_H
#define TRIBUTARY_WORKERS_H

#include "proxy/base/strbuf.h"
#include "proxy/call/worker.h"

struct workers;

struct workers_options {
    unsigned count;
    struct budget *budget; /* shared by all */
    struct stats *stats;
    struct snapshot *snapshot; /* the first configuration; each worker takes a reference */
    void (*on_exit)(
        void *arg); /* from a worker's thread: its loop has ended. Wake the main loop. */
    void *arg;
};

/* All workers are running and listening when this returns 0; a negative errno when one could not
 * start (all are stopped again). */
int workers_start(struct workers **out, const struct workers_options *options);
/* Run `run` on one worker's thread, soon. False, and nothing will run, when the worker is stopping.
 * Any thread. */
bool workers_post(struct workers *workers, unsigned index,
                  void (*run)(struct worker *worker, void *arg), void *arg);
void workers_apply(struct workers *workers,
                   struct snapshot *snapshot); /* a new configuration, between turns */
void workers_drain(struct workers *workers); /* listeners close, connections end as they empty; each
                                                worker exits when idle */
void workers_stop(struct workers *workers);  /* now */
bool workers_running(const struct workers *workers); /* some thread has not ended */
void workers_join(struct workers *workers);          /* waits for all, frees everything */
void workers_reset_histograms(struct workers *workers);
/* What worker 0's modules know about a path (learnt facts), appended to out; waits for the answer,
 * at most one second. */
void workers_report(struct workers *workers, struct text path, struct strbuf *out);
/* Sum over workers of chunk bytes in use / at peak (buffers.bytes, buffers.peak_bytes). */
void workers_buffers(const struct workers *workers, uint64_t *bytes, uint64_t *peak_bytes);

#endif
