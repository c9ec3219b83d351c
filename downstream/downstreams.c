/*
 * The downstream side of one worker: its listeners, by name, through start, reload, drain and stop.
 */
#include "downstream/listener.h"
#include "proxy/call/module.h"

struct downstream {
    struct list listeners; /* struct listener: those of the newest snapshot */
    struct list leaving;   /* struct listener: no longer named, or draining; freed when idle */
};

static struct listener *
find(struct downstream *self, struct text name)
{
    list_for_each (node, &self->listeners) {
        struct listener *listener = list_entry(node, struct listener, node);
        if (text_eq(text_of(listener->name), name))
            return listener;
    }
    return NULL;
}

static bool
named(const struct snapshot *snapshot, const char *name)
{
    for (unsigned i = 0; i < snapshot->listener_count; i++)
        if (text_eq(snapshot->listeners[i].name, text_of(name)))
            return true;
    return false;
}

static void
leave(struct downstream *self, struct listener *listener)
{
    list_unlink(&listener->node);
    list_push_back(&self->leaving, &listener->node);
    listener_stop_accepting(listener);
    listener_drain(listener);
}

static void
sweep(struct downstream *self)
{
    list_for_each_safe (node, &self->leaving) {
        struct listener *listener = list_entry(node, struct listener, node);
        if (!listener_idle(listener))
            continue;
        list_unlink(&listener->node);
        listener_free(listener);
    }
}

static void
apply(struct worker *worker, struct snapshot *old)
{
    (void)old;
    struct downstream *self = worker->downstream;
    const struct snapshot *snapshot = worker->snapshot;
    list_for_each_safe (node, &self->listeners) {
        struct listener *listener = list_entry(node, struct listener, node);
        if (!named(snapshot, listener->name))
            leave(self, listener);
    }
    for (unsigned i = 0; i < snapshot->listener_count; i++) {
        struct listener *listener = find(self, snapshot->listeners[i].name);
        if (listener)
            listener_update(listener, &snapshot->listeners[i]);
        else
            list_push_back(&self->listeners, &listener_open(worker, &snapshot->listeners[i])->node);
    }
    sweep(self);
}

static int
start(struct worker *worker)
{
    worker->downstream = mem_new(struct downstream);
    list_init(&worker->downstream->listeners);
    list_init(&worker->downstream->leaving);
    apply(worker, NULL);
    return 0;
}

static void
drain(struct worker *worker)
{
    struct downstream *self = worker->downstream;
    /* All sockets close before any connection drains: a client sent away must not come back to a
     * listener that is about to go. */
    list_for_each (node, &self->listeners)
        listener_stop_accepting(list_entry(node, struct listener, node));
    while (!list_empty(&self->listeners))
        leave(self, list_first(&self->listeners, struct listener, node));
}

static void
stop(struct worker *worker)
{
    struct downstream *self = worker->downstream;
    list_splice(&self->leaving, &self->listeners);
    list_for_each (node, &self->leaving)
        listener_close(list_entry(node, struct listener, node));
}

static void
free_all(struct worker *worker)
{
    struct downstream *self = worker->downstream;
    if (!self)
        return;
    sweep(self);
    mem_free(self);
    worker->downstream = NULL;
}

static bool
idle(const struct worker *worker)
{
    struct downstream *self = worker->downstream;
    sweep(self);
    return list_empty(&self->listeners) && list_empty(&self->leaving);
}

const struct module downstream_module = {
    .name = "downstream",
    .start = start,
    .apply = apply,
    .drain = drain,
    .stop = stop,
    .free = free_all,
    .idle = idle,
};
