/*
 * The shared part of registries: the thread, and what passes between it and the loop. Like a
 * look-up (lookup.c) it may be abandoned at any time; the thread then ends by itself and frees what
 * is left.
 */
#include "upstream/registry.h"

#include <stdio.h>
#include <time.h>

#include "proxy/base/clock.h"
#include "proxy/base/log.h"
#include "proxy/base/mem.h"
#include "upstream/registry_private.h"

static void
destroy(struct registry *registry)
{
    pthread_mutex_destroy(&registry->lock);
    pthread_cond_destroy(&registry->changed);
    strbuf_fini(&registry->lines);
    mem_free(registry->servers);
    mem_free(registry->path);
    mem_free(registry->upstream);
    mem_free(registry);
}

/* Runs until registry_rest() says so. */
static void *
run(void *arg)
{
    struct registry *registry = arg;
    registry->run(registry);
    destroy(registry);
    return NULL;
}

static bool
start_thread(struct registry *registry)
{
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    int error = pthread_create(&thread, &attributes, run, registry);
    pthread_attr_destroy(&attributes);
    return error == 0;
}

struct registry *
registry_open(enum upstream_discovery discovery, struct text servers, struct text path,
              const char *upstream, void (*wake)(void *arg), void *arg)
{
    struct registry *registry = mem_new(struct registry);
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&registry->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_mutex_init(&registry->lock, NULL);
    registry->run = discovery == DISCOVERY_NACOS ? registry_nacos_run : registry_zk_run;
    registry->servers = text_dup(servers);
    registry->path = text_dup(path);
    registry->upstream = text_dup(text_of(upstream));
    registry->wake = wake;
    registry->arg = arg;
    snprintf(registry->error, sizeof(registry->error), "%s has not answered yet",
             registry->servers);
    if (start_thread(registry))
        return registry;
    destroy(registry);
    return NULL;
}

bool
registry_take(struct registry *registry, struct strbuf *lines)
{
    pthread_mutex_lock(&registry->lock);
    bool fresh = registry->fresh;
    registry->fresh = false;
    strbuf_clear(lines);
    if (fresh)
        strbuf_add_text(lines, strbuf_text(&registry->lines));
    pthread_mutex_unlock(&registry->lock);
    return fresh;
}

bool
registry_tried(struct registry *registry)
{
    pthread_mutex_lock(&registry->lock);
    bool tried = registry->tried;
    pthread_mutex_unlock(&registry->lock);
    return tried;
}

char *
registry_error(struct registry *registry, char *into, size_t bytes)
{
    pthread_mutex_lock(&registry->lock);
    snprintf(into, bytes, "%s", registry->error);
    pthread_mutex_unlock(&registry->lock);
    return into;
}

void
registry_close(struct registry *registry)
{
    pthread_mutex_lock(&registry->lock);
    registry->abandoned = true;
    pthread_cond_broadcast(&registry->changed);
    pthread_mutex_unlock(&registry->lock);
}

/* --- from the registry's side --- */

void
registry_publish(struct registry *registry, struct text lines)
{
    if (lines.len == 0) {
        registry_fail(registry, "it lists no provider");
        return;
    }
    pthread_mutex_lock(&registry->lock);
    bool same = text_eq(strbuf_text(&registry->lines), lines);
    bool back = registry->tried && registry->error[0];
    registry->error[0] = 0;
    registry->tried = true;
    if (!same) {
        strbuf_clear(&registry->lines);
        strbuf_add_text(&registry->lines, lines);
        registry->fresh = true;
    }
    if ((!same || back) && !registry->abandoned)
        registry->wake(registry->arg);
    pthread_mutex_unlock(&registry->lock);
    if (back)
        log_info("registry", "upstream %s: %s answers again", registry->upstream,
                 registry->servers);
}

void
registry_fail(struct registry *registry, const char *error)
{
    char text[sizeof(registry->error)];
    snprintf(text, sizeof(text), "%s %s: %s", registry->servers, registry->path, error);
    pthread_mutex_lock(&registry->lock);
    bool another = strcmp(registry->error, text) != 0 && !registry->abandoned;
    memcpy(registry->error, text, sizeof(text));
    bool first = !registry->tried;
    registry->tried = true;
    if (first && !registry->abandoned)
        registry->wake(registry->arg);
    pthread_mutex_unlock(&registry->lock);
    if (another)
        log_warn("registry", "upstream %s: %s", registry->upstream, text);
}

bool
registry_rest(struct registry *registry, unsigned ms, const bool *until)
{
    uint64_t due_ns = clock_now_ns() + ms * NS_PER_MS;
    struct timespec due = {.tv_sec = (time_t)(due_ns / NS_PER_S),
                           .tv_nsec = (long)(due_ns % NS_PER_S)};
    int error = 0;
    pthread_mutex_lock(&registry->lock);
    while (!registry->abandoned && !(until && *until) && error == 0)
        error = pthread_cond_timedwait(&registry->changed, &registry->lock, &due);
    bool open = !registry->abandoned;
    pthread_mutex_unlock(&registry->lock);
    return open;
}
