/*
 * The worker threads. Owns the threads, their loops and mailboxes; does not own what the modules
 * make on them.
 *
 * Life of a worker: thread starts → loop, context, modules start → the starter is told → loop runs
 * → drain or stop message → modules close their handles, mailbox and context close theirs → the
 * loop ends by itself → modules free → on_exit.
 *
 * Failure modes: a module that cannot start (no memory for a loop, a descriptor limit) stops all
 * workers again; a loop that still has handles after a stop would hang the join, so the closing
 * order below is the one thing to keep.
 */
#include "proxy/workers.h"

#include "proxy/base/check.h"
#include "proxy/base/clock.h"
#include "proxy/base/log.h"
#include "proxy/call/call.h"
#include "proxy/call/module.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>

enum { DRAIN_POLL_MS = 20 };

struct message {
    struct list node;
    void (*run)(struct worker *worker, void *arg);
    void *arg;
};

struct thread {
    struct worker worker;
    struct workers *workers;
    uv_loop_t loop;
    pthread_t id;
    uv_async_t mailbox;
    uv_timer_t drain_poll;
    struct list messages; /* guarded by workers->lock */
    bool open;            /* takes messages; guarded by workers->lock */
    bool stopping;        /* thread-private */
    bool ended;           /* guarded by workers->lock */
    int start_error;      /* 1 while starting; guarded by workers->lock */
};

struct workers {
    struct workers_options options;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    unsigned count;
    struct thread threads[];
};

static const struct module *const MODULES[] = {&upstream_module, &downstream_module};
enum { MODULE_COUNT = sizeof(MODULES) / sizeof(MODULES[0]) };

/* --- on the worker's thread --- */

static void
stop_now(struct thread *thread)
{
    if (thread->stopping)
        return;
    thread->stopping = true;
    struct worker *worker = &thread->worker;
    ctx_rest(&worker->ctx);
    call_end_all(worker);
    ctx_flush(&worker->ctx); /* the answers leave before their connections close */
    for (unsigned i = MODULE_COUNT; i-- > 0;)
        MODULES[i]->stop(worker);
    ctx_flush(&worker->ctx);
    call_worker_fini(worker);
    uv_close((uv_handle_t *)&thread->drain_poll, NULL);
    pthread_mutex_lock(&thread->workers->lock);
    thread->open = false;
    pthread_mutex_unlock(&thread->workers->lock);
    uv_close((uv_handle_t *)&thread->mailbox, NULL);
}

static bool
is_idle(const struct worker *worker)
{
    if (worker->call_count > 0)
        return false;
    for (unsigned i = 0; i < MODULE_COUNT; i++)
        if (!MODULES[i]->idle(worker))
            return false;
    return true;
}

static void
on_uv_drain_poll(uv_timer_t *timer)
{
    struct thread *thread = timer->data;
    ctx_touch(&thread->worker.ctx);
    if (is_idle(&thread->worker))
        stop_now(thread);
}

static struct thread *
thread_of(struct worker *worker)
{
    return container_of(worker, struct thread, worker);
}

static void
run_drain(struct worker *worker, void *arg)
{
    (void)arg;
    struct thread *thread = thread_of(worker);
    if (worker->draining || thread->stopping)
        return;
    worker->draining = true;
    for (unsigned i = MODULE_COUNT; i-- > 0;)
        MODULES[i]->drain(worker);
    uv_timer_start(&thread->drain_poll, on_uv_drain_poll, 0, DRAIN_POLL_MS);
}

static void
run_stop(struct worker *worker, void *arg)
{
    (void)arg;
    stop_now(thread_of(worker));
}

static void
run_apply(struct worker *worker, void *arg)
{
    struct snapshot *next = arg, *old = worker->snapshot;
    if (thread_of(worker)->stopping) {
        snapshot_unref(next);
        return;
    }
    worker->snapshot = next;
    worker->ctx.merge_writes = next->proxy.merge_writes;
    for (unsigned i = 0; i < MODULE_COUNT; i++)
        MODULES[i]->apply(worker, old);
    snapshot_unref(old);
}

static void
run_reset(struct worker *worker, void *arg)
{
    (void)arg;
    stats_reset_histograms(worker->stats, worker->index);
}

static void
on_uv_mailbox(uv_async_t *async)
{
    struct thread *thread = async->data;
    struct list messages;
    list_init(&messages);
    pthread_mutex_lock(&thread->workers->lock);
    list_splice(&messages, &thread->messages);
    pthread_mutex_unlock(&thread->workers->lock);
    ctx_touch(&thread->worker.ctx);
    while (!list_empty(&messages)) {
        struct message *message = list_first(&messages, struct message, node);
        list_unlink(&message->node);
        message->run(&thread->worker, message->arg);
        mem_free(message);
    }
}

static int
start_on_thread(struct thread *thread)
{
    struct worker *worker = &thread->worker;
    int error = uv_loop_init(&thread->loop);
    if (error)
        return error;
    error = ctx_init(&worker->ctx, &thread->loop, worker->index, thread->workers->options.budget);
    if (error)
        return error;
    worker->ctx.owner = worker;
    worker->ctx.merge_writes = worker->snapshot->proxy.merge_writes;
    call_worker_init(worker);
    uv_async_init(&thread->loop, &thread->mailbox, on_uv_mailbox);
    thread->mailbox.data = thread;
    uv_timer_init(&thread->loop, &thread->drain_poll);
    thread->drain_poll.data = thread;
    for (unsigned i = 0; i < MODULE_COUNT && !error; i++)
        error = MODULES[i]->start(worker);
    return error;
}

static void
tell_started(struct thread *thread, int error)
{
    pthread_mutex_lock(&thread->workers->lock);
    thread->start_error = error;
    thread->open = error == 0;
    pthread_cond_broadcast(&thread->workers->changed);
    pthread_mutex_unlock(&thread->workers->lock);
}

static void
clean_up(struct thread *thread)
{
    struct worker *worker = &thread->worker;
    ctx_close(&worker->ctx);
    uv_run(&thread->loop, UV_RUN_DEFAULT);
    for (unsigned i = MODULE_COUNT; i-- > 0;)
        MODULES[i]->free(worker);
    ctx_fini(&worker->ctx);
    if (uv_loop_close(&thread->loop) != 0)
        log_warn("workers", "worker %u left a handle open", worker->index);
    snapshot_unref(worker->snapshot);
}

static void *
run_thread(void *arg)
{
    struct thread *thread = arg;
    struct workers *workers = thread->workers;
    int error = start_on_thread(thread);
    tell_started(thread, error);
    if (error == 0)
        uv_run(&thread->loop, UV_RUN_DEFAULT);
    clean_up(thread);
    pthread_mutex_lock(&workers->lock);
    thread->ended = true;
    pthread_mutex_unlock(&workers->lock);
    workers->options.on_exit(workers->options.arg);
    return NULL;
}

/* --- on the main thread --- */

bool
workers_post(struct workers *workers, unsigned index, void (*run)(struct worker *, void *),
             void *arg)
{
    struct thread *thread = &workers->threads[index];
    struct message *message = mem_new(struct message);
    message->run = run;
    message->arg = arg;
    pthread_mutex_lock(&workers->lock);
    bool open = thread->open;
    if (open) {
        list_push_back(&thread->messages, &message->node);
        uv_async_send(&thread->mailbox);
    }
    pthread_mutex_unlock(&workers->lock);
    if (open)
        return true;
    if (run == run_apply)
        snapshot_unref(arg);
    mem_free(message);
    return false;
}

static void
post_all(struct workers *workers, void (*run)(struct worker *, void *))
{
    for (unsigned i = 0; i < workers->count; i++)
        workers_post(workers, i, run, NULL);
}

static int
await_start(struct workers *workers)
{
    int error = 0;
    pthread_mutex_lock(&workers->lock);
    for (unsigned i = 0; i < workers->count; i++) {
        while (workers->threads[i].start_error == 1)
            pthread_cond_wait(&workers->changed, &workers->lock);
        if (workers->threads[i].start_error)
            error = workers->threads[i].start_error;
    }
    pthread_mutex_unlock(&workers->lock);
    return error;
}

int
workers_start(struct workers **out, const struct workers_options *options)
{
    struct workers *workers =
        mem_zalloc(sizeof(*workers) + options->count * sizeof(workers->threads[0]));
    workers->options = *options;
    workers->count = options->count;
    pthread_mutex_init(&workers->lock, NULL);
    pthread_cond_init(&workers->changed, NULL);
    for (unsigned i = 0; i < workers->count; i++) {
        struct thread *thread = &workers->threads[i];
        thread->workers = workers;
        thread->start_error = 1;
        list_init(&thread->messages);
        thread->worker.index = i;
        thread->worker.stats = options->stats;
        thread->worker.snapshot = snapshot_ref(options->snapshot);
        check(pthread_create(&thread->id, NULL, run_thread, thread) == 0);
    }
    int error = await_start(workers);
    if (error) {
        workers_stop(workers);
        workers_join(workers);
        return error;
    }
    *out = workers;
    return 0;
}

void
workers_apply(struct workers *workers, struct snapshot *snapshot)
{
    for (unsigned i = 0; i < workers->count; i++)
        workers_post(workers, i, run_apply, snapshot_ref(snapshot));
}

void
workers_drain(struct workers *workers)
{
    post_all(workers, run_drain);
}

void
workers_stop(struct workers *workers)
{
    post_all(workers, run_stop);
}

void
workers_reset_histograms(struct workers *workers)
{
    post_all(workers, run_reset);
}

bool
workers_running(const struct workers *workers)
{
    struct workers *mutable = (struct workers *)workers;
    bool running = false;
    pthread_mutex_lock(&mutable->lock);
    for (unsigned i = 0; i < workers->count; i++)
        running |= !workers->threads[i].ended;
    pthread_mutex_unlock(&mutable->lock);
    return running;
}

void
workers_join(struct workers *workers)
{
    for (unsigned i = 0; i < workers->count; i++) {
        struct thread *thread = &workers->threads[i];
        pthread_join(thread->id, NULL);
        while (!list_empty(&thread->messages)) {
            struct message *message = list_first(&thread->messages, struct message, node);
            list_unlink(&message->node);
            if (message->run == run_apply)
                snapshot_unref(message->arg);
            mem_free(message);
        }
    }
    pthread_mutex_destroy(&workers->lock);
    pthread_cond_destroy(&workers->changed);
    mem_free(workers);
}

void
workers_buffers(const struct workers *workers, uint64_t *bytes, uint64_t *peak_bytes)
{
    *bytes = *peak_bytes = 0;
    for (unsigned i = 0; i < workers->count; i++) {
        const struct budget_lease *lease = &workers->threads[i].worker.ctx.chunks.lease;
        *bytes += atomic_load_explicit(&lease->used, memory_order_relaxed);
        *peak_bytes += atomic_load_explicit(&lease->peak, memory_order_relaxed);
    }
    /* Workers have their peaks at different times, and never more than the budget at one. */
    if (*peak_bytes > workers->options.budget->total)
        *peak_bytes = workers->options.budget->total;
}

/* A question to worker 0 and its answer. The asker may give up: the one that comes second frees it.
 */
struct question {
    struct workers *workers;
    char *path;
    struct strbuf answer;
    bool answered, abandoned; /* guarded by workers->lock */
};

static void
free_question(struct question *question)
{
    strbuf_fini(&question->answer);
    mem_free(question->path);
    mem_free(question);
}

static void
run_question(struct worker *worker, void *arg)
{
    struct question *question = arg;
    for (unsigned i = 0; i < MODULE_COUNT; i++)
        if (MODULES[i]->report)
            MODULES[i]->report(worker, text_of(question->path), &question->answer);
    pthread_mutex_lock(&question->workers->lock);
    question->answered = true;
    bool abandoned = question->abandoned;
    pthread_cond_broadcast(&question->workers->changed);
    pthread_mutex_unlock(&question->workers->lock);
    if (abandoned)
        free_question(question);
}

void
workers_report(struct workers *workers, struct text path, struct strbuf *out)
{
    struct question *question = mem_new(struct question);
    question->workers = workers;
    question->path = text_dup(path);
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec++;
    if (!workers_post(workers, 0, run_question, question)) {
        free_question(question);
        return;
    }
    pthread_mutex_lock(&workers->lock);
    int error = 0;
    while (!question->answered && error == 0)
        error = pthread_cond_timedwait(&workers->changed, &workers->lock, &until);
    bool answered = question->answered;
    question->abandoned = !answered;
    pthread_mutex_unlock(&workers->lock);
    if (!answered)
        return;
    strbuf_add_text(out, strbuf_text(&question->answer));
    free_question(question);
}
