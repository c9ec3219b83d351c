/*
 * A binary heap of deadlines over one uv_timer_t.
 *
 * The uv timer is set lazily: only an earlier deadline moves it, a stopped one leaves it where it
 * is and costs one idle wake-up. libuv counts in whole milliseconds of a cached time, so it is set
 * to the millisecond that the deadline lies in and, should it come early, once more to the next
 * one: never early, less than 1 ms late plus the kernel's slack.
 *
 * Failure modes: none that a caller sees; after timers_close() nothing fires any more.
 */
#include "proxy/net/timers.h"

#include "proxy/base/check.h"
#include "proxy/base/clock.h"
#include "proxy/base/mem.h"

static void on_uv_timer(uv_timer_t *handle);

static void
place(struct timers *timers, uint32_t at, struct timer *timer)
{
    timers->heap[at] = timer;
    timer->index = at + 1;
}

static void
sift_up(struct timers *timers, uint32_t at, struct timer *timer)
{
    while (at > 0) {
        uint32_t parent = (at - 1) / 2;
        if (timers->heap[parent]->due_ns <= timer->due_ns)
            break;
        place(timers, at, timers->heap[parent]);
        at = parent;
    }
    place(timers, at, timer);
}

static void
sift_down(struct timers *timers, uint32_t at, struct timer *timer)
{
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child >= timers->count)
            break;
        if (child + 1 < timers->count &&
            timers->heap[child + 1]->due_ns < timers->heap[child]->due_ns)
            child++;
        if (timer->due_ns <= timers->heap[child]->due_ns)
            break;
        place(timers, at, timers->heap[child]);
        at = child;
    }
    place(timers, at, timer);
}

static void
heap_remove(struct timers *timers, struct timer *timer)
{
    uint32_t at = timer->index - 1;
    struct timer *last = timers->heap[--timers->count];
    timer->index = 0;
    if (last == timer)
        return;
    if (at > 0 && timers->heap[(at - 1) / 2]->due_ns > last->due_ns)
        sift_up(timers, at, last);
    else
        sift_down(timers, at, last);
}

/* Set the uv timer for the heap's first deadline, unless it comes early enough as it is. */
static void
arm(struct timers *timers)
{
    if (timers->count == 0 || uv_is_closing((uv_handle_t *)&timers->handle))
        return;
    uint64_t due_ns = timers->heap[0]->due_ns;
    if (timers->armed_ns != 0 && timers->armed_ns <= due_ns)
        return;
    uint64_t loop_ms = uv_now(timers->handle.loop);
    uint64_t due_ms = due_ns / NS_PER_MS;
    uv_timer_start(&timers->handle, on_uv_timer, due_ms > loop_ms ? due_ms - loop_ms : 0, 0);
    timers->armed_ns = due_ns;
}

static void
on_uv_timer(uv_timer_t *handle)
{
    struct timers *timers = handle->data;
    uint64_t now_ns = clock_now_ns();
    if (timers->turn_ns)
        *timers->turn_ns = now_ns;
    timers->armed_ns =
        1; /* as if set for the past: nobody arms while deadlines run, once at the end does */
    /* Those that callbacks start anew are due later than now_ns, or wait for the next turn: no
     * endless loop. */
    uint32_t most = timers->count;
    while (timers->count > 0 && timers->heap[0]->due_ns <= now_ns && most-- > 0) {
        struct timer *timer = timers->heap[0];
        timers_stop(timers, timer);
        timer->on_due(timer);
    }
    timers->armed_ns = 0;
    if (timers->count == 0 || uv_is_closing((uv_handle_t *)handle))
        return;
    if (timers->heap[0]->due_ns / NS_PER_MS <= uv_now(handle->loop)) {
        /* Within this millisecond but not yet due (or added meanwhile): the next one. */
        bool due = timers->heap[0]->due_ns <= now_ns;
        uv_timer_start(handle, on_uv_timer, due ? 0 : 1, 0);
        timers->armed_ns = timers->heap[0]->due_ns;
    } else {
        arm(timers);
    }
}

int
timers_init(struct timers *timers, uv_loop_t *loop)
{
    *timers = (struct timers){.heap = NULL};
    int error = uv_timer_init(loop, &timers->handle);
    if (error)
        return error;
    timers->handle.data = timers;
    uv_unref((uv_handle_t *)&timers->handle); /* referenced while a deadline runs */
    return 0;
}

void
timers_close(struct timers *timers)
{
    if (!uv_is_closing((uv_handle_t *)&timers->handle))
        uv_close((uv_handle_t *)&timers->handle, NULL);
}

void
timers_fini(struct timers *timers)
{
    for (uint32_t i = 0; i < timers->count; i++)
        timers->heap[i]->index = 0;
    mem_free(timers->heap);
    timers->heap = NULL;
    timers->count = timers->cap = 0;
}

static void
heap_grow(struct timers *timers)
{
    uint32_t cap = timers->cap ? timers->cap * 2 : 64;
    check(cap > timers->cap);
    timers->heap = mem_realloc(timers->heap, cap * sizeof *timers->heap);
    timers->cap = cap;
}

void
timers_start(struct timers *timers, struct timer *timer, uint64_t due_ns)
{
    check(timer->on_due);
    if (timer->index)
        heap_remove(timers, timer);
    else if (timers->count == 0)
        uv_ref((uv_handle_t *)&timers->handle);
    if (timers->count == timers->cap)
        heap_grow(timers);
    timer->due_ns = due_ns;
    timers->count++;
    sift_up(timers, timers->count - 1, timer);
    if (timers->heap[0] == timer)
        arm(timers);
}

void
timers_stop(struct timers *timers, struct timer *timer)
{
    if (!timer->index)
        return;
    heap_remove(timers, timer);
    if (timers->count == 0)
        uv_unref((uv_handle_t *)&timers->handle);
}
