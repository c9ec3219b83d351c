/*
 * Deadlines of one worker: a binary heap over one uv_timer_t. A timer is embedded in its owner;
 * starting, moving and stopping never allocate per timer (the heap array grows by doubling). Times
 * are clock_now_ns() nanoseconds.
 */
#ifndef TRIBUTARY_NET_TIMERS_H
#define TRIBUTARY_NET_TIMERS_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct timer {
    uint64_t due_ns; /* valid while running */
    uint32_t index;  /* place in the heap + 1; 0 while stopped */
    /* the timer is stopped before it's called; it may start it again */
    void (*on_due)(struct timer *timer);
};

struct timers {
    uv_timer_t handle;
    struct timer **heap;
    uint32_t count, cap;
    uint64_t armed_ns; /* what the uv timer is set to; 0: not running */
    uint64_t *turn_ns; /* set to the time before deadlines run (ctx.h's); may be NULL */
};

int timers_init(struct timers *timers, uv_loop_t *loop);
/* closes the handle (no callback); free with timers_fini after the loop ended */
void timers_close(struct timers *timers);
void timers_fini(struct timers *timers);
/* Fires at the first loop turn at or after due_ns, never before, at most about 1 ms late on an idle
 * loop. */
/* also moves a running one */
void timers_start(struct timers *timers, struct timer *timer, uint64_t due_ns);
void timers_stop(struct timers *timers, struct timer *timer); /* a stopped one is fine */
static inline bool
timer_running(const struct timer *timer)
{
    return timer->index != 0;
}

#endif
