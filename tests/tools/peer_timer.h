/*
 * Timers with microsecond steps, which libuv's are not: a provider that takes 500 us, a caller
 * that starts a call every 200 us.
 *
 * Owns: one timerfd and its uv_poll for all timers of a loop. Does not own the timers: each is
 * embedded in what it times and is stopped before that goes. A list sorted by due time, searched
 * from the end: nearly all timers of one run have the same length.
 */
#ifndef TOOLS_PEER_TIMER_H
#define TOOLS_PEER_TIMER_H

#include <uv.h>

struct peer_timer {
    struct peer_timer *prev; /* NULL while not running */
    struct peer_timer *next;
    uint64_t due_ns; /* CLOCK_MONOTONIC, as uv_hrtime() */
    void (*fired)(struct peer_timer *timer);
};

struct peer_timers {
    uv_poll_t poll;
    int fd;
    uint64_t armed_ns; /* what the timerfd waits for; 0: nothing */
    struct peer_timer head;
};

int peer_timers_init(struct peer_timers *timers, uv_loop_t *loop);
/* Closes the descriptor and the handle; run the loop once more before freeing. */
void peer_timers_fini(struct peer_timers *timers);

/* Runs timer->fired once at due_ns (at once if that is past, but from the loop). */
void peer_timer_start(struct peer_timers *timers, struct peer_timer *timer, uint64_t due_ns);
/* Harmless when not running. */
void peer_timer_stop(struct peer_timer *timer);

#endif
