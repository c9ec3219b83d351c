/* See peer_timer.h. */
#include "peer_timer.h"

#include <errno.h>
#include <sys/timerfd.h>
#include <unistd.h>

/* Keeps the timerfd at the first timer. It is not moved back when the first one is stopped: a
 * wake for nothing costs less than a system call for each call that ends in time. */
static void
arm(struct peer_timers *timers)
{
    struct peer_timer *first = timers->head.next;
    if (first == &timers->head || (timers->armed_ns && timers->armed_ns <= first->due_ns))
        return;
    uint64_t due_ns = first->due_ns ? first->due_ns : 1; /* 0 would disarm it */
    struct itimerspec spec = {
        .it_value = {.tv_sec = (time_t)(due_ns / 1000000000u),
                     .tv_nsec = (long)(due_ns % 1000000000u)},
    };
    timers->armed_ns = due_ns;
    timerfd_settime(timers->fd, TFD_TIMER_ABSTIME, &spec, NULL);
}

static void
on_uv_poll(uv_poll_t *poll, int status, int events)
{
    struct peer_timers *timers = poll->data;
    (void)status;
    (void)events;
    uint64_t expirations;
    ssize_t n = read(timers->fd, &expirations, sizeof expirations);
    (void)n; /* EAGAIN: armed again meanwhile */
    timers->armed_ns = 0;
    uint64_t now_ns = uv_hrtime();
    while (timers->head.next != &timers->head && timers->head.next->due_ns <= now_ns) {
        struct peer_timer *timer = timers->head.next;
        peer_timer_stop(timer);
        timer->fired(timer);
    }
    arm(timers);
}

int
peer_timers_init(struct peer_timers *timers, uv_loop_t *loop)
{
    *timers =
        (struct peer_timers){.fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)};
    timers->head.prev = timers->head.next = &timers->head;
    if (timers->fd < 0)
        return -errno;
    int rv = uv_poll_init(loop, &timers->poll, timers->fd);
    timers->poll.data = timers;
    return rv ? rv : uv_poll_start(&timers->poll, UV_READABLE, on_uv_poll);
}

static void
on_uv_closed(uv_handle_t *handle)
{
    struct peer_timers *timers = handle->data;
    close(timers->fd);
}

void
peer_timers_fini(struct peer_timers *timers)
{
    uv_close((uv_handle_t *)&timers->poll, on_uv_closed);
}

void
peer_timer_start(struct peer_timers *timers, struct peer_timer *timer, uint64_t due_ns)
{
    peer_timer_stop(timer);
    struct peer_timer *after = timers->head.prev;
    while (after != &timers->head && after->due_ns > due_ns)
        after = after->prev;
    timer->due_ns = due_ns;
    timer->prev = after;
    timer->next = after->next;
    after->next->prev = timer;
    after->next = timer;
    if (after == &timers->head)
        arm(timers);
}

void
peer_timer_stop(struct peer_timer *timer)
{
    if (!timer->prev)
        return;
    timer->prev->next = timer->next;
    timer->next->prev = timer->prev;
    timer->prev = timer->next = NULL;
}
