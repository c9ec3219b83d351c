/*
 * Looking up names. Owns the threads: each is detached and shares one struct lookup with whoever
 * asked.
 *
 * Happy path: start → thread: getaddrinfo → done, wake → result → free. Failure modes: the asker
 * gives up first (abandoned): the thread frees it when the system returns, however late.
 */
#include "upstream/lookup.h"

#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <time.h>

#include "proxy/base/clock.h"
#include "proxy/base/mem.h"

struct lookup {
    pthread_mutex_t lock; /* guards what follows but host and port */
    pthread_cond_t changed;
    char *host;
    uint16_t port;
    void (*wake)(void *arg);
    void *arg;
    struct address *addresses;
    unsigned count;
    const char *error;
    bool done, abandoned; /* the one that comes second frees */
};

static void
destroy(struct lookup *lookup)
{
    pthread_mutex_destroy(&lookup->lock);
    pthread_cond_destroy(&lookup->changed);
    mem_free(lookup->addresses);
    mem_free(lookup->host);
    mem_free(lookup);
}

static void
set_port(struct address *address, uint16_t port)
{
    if (address->storage.ss_family == AF_INET)
        ((struct sockaddr_in *)&address->storage)->sin_port = htons(port);
    else
        ((struct sockaddr_in6 *)&address->storage)->sin6_port = htons(port);
}

static struct address *
copy_addresses(const struct addrinfo *list, uint16_t port, unsigned *count)
{
    struct address *addresses = mem_zalloc(LOOKUP_MAX_ADDRESSES * sizeof(*addresses));
    *count = 0;
    for (; list && *count < LOOKUP_MAX_ADDRESSES; list = list->ai_next) {
        if (list->ai_family != AF_INET && list->ai_family != AF_INET6)
            continue;
        struct address *address = &addresses[(*count)++];
        memcpy(&address->storage, list->ai_addr, list->ai_addrlen);
        address->len = list->ai_addrlen;
        set_port(address, port);
    }
    return addresses;
}

static void *
run(void *arg)
{
    struct lookup *lookup = arg;
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *list = NULL;
    struct address *addresses = NULL;
    unsigned count = 0;
    int error = getaddrinfo(lookup->host, NULL, &hints, &list);
    if (error == 0) {
        addresses = copy_addresses(list, lookup->port, &count);
        freeaddrinfo(list);
    }
    pthread_mutex_lock(&lookup->lock);
    lookup->addresses = addresses;
    lookup->count = count;
    lookup->error = error ? gai_strerror(error) : NULL;
    lookup->done = true;
    bool abandoned = lookup->abandoned;
    if (!abandoned)
        lookup->wake(lookup->arg); /* under the lock: not after lookup_free */
    pthread_cond_broadcast(&lookup->changed);
    pthread_mutex_unlock(&lookup->lock);
    if (abandoned)
        destroy(lookup);
    return NULL;
}

static bool
start_thread(struct lookup *lookup)
{
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    int error = pthread_create(&thread, &attributes, run, lookup);
    pthread_attr_destroy(&attributes);
    return error == 0;
}

struct lookup *
lookup_start(struct text host, uint16_t port, void (*wake)(void *arg), void *arg)
{
    struct lookup *lookup = mem_new(struct lookup);
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&lookup->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_mutex_init(&lookup->lock, NULL);
    lookup->host = text_dup(host);
    lookup->port = port;
    lookup->wake = wake;
    lookup->arg = arg;
    if (start_thread(lookup))
        return lookup;
    destroy(lookup);
    return NULL;
}

bool
lookup_result(struct lookup *lookup, const struct address **addresses, unsigned *count,
              const char **error)
{
    pthread_mutex_lock(&lookup->lock);
    bool done = lookup->done;
    pthread_mutex_unlock(&lookup->lock);
    if (!done)
        return false;
    *addresses = lookup->error ? NULL : lookup->addresses;
    *count = lookup->count;
    *error = lookup->error;
    return true;
}

void
lookup_wait(struct lookup *lookup, uint64_t until_ns)
{
    struct timespec until = {.tv_sec = (time_t)(until_ns / NS_PER_S),
                             .tv_nsec = (long)(until_ns % NS_PER_S)};
    pthread_mutex_lock(&lookup->lock);
    int error = 0;
    while (!lookup->done && error == 0)
        error = pthread_cond_timedwait(&lookup->changed, &lookup->lock, &until);
    pthread_mutex_unlock(&lookup->lock);
}

void
lookup_free(struct lookup *lookup)
{
    if (!lookup)
        return;
    pthread_mutex_lock(&lookup->lock);
    bool done = lookup->done;
    lookup->abandoned = true;
    pthread_mutex_unlock(&lookup->lock);
    if (done)
        destroy(lookup);
}
