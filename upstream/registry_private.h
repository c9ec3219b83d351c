/* What registry_thread.c and the registries share and nobody else sees. */
#ifndef TRIBUTARY_UPSTREAM_REGISTRY_PRIVATE_H
#define TRIBUTARY_UPSTREAM_REGISTRY_PRIVATE_H

#include <pthread.h>

#include "upstream/registry.h"

struct registry {
    char *servers, *path, *upstream; /* owned; constant */
    void (*run)(struct registry *registry);
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    void (*wake)(void *arg);
    void *arg;
    struct strbuf lines; /* the newest list */
    bool fresh;          /* and it was not taken yet */
    bool tried, abandoned;
    char error[200];
};

/* From a registry's thread or its library's. Without endpoints: a failure. */
void registry_publish(struct registry *registry, struct text lines);
/* Logged when it is another one than before. */
void registry_fail(struct registry *registry, const char *error);
/* Sleeps; until *until (may be NULL, guarded by registry->lock) is set, or that long. False: it
 * was closed, end. */
bool registry_rest(struct registry *registry, unsigned ms, const bool *until);

void registry_zk_run(struct registry *registry);
void registry_nacos_run(struct registry *registry);

#endif
