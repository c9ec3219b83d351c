/*
 * The process's listening sockets: bound by the main thread, taken (as duplicates) by the workers.
 *
 * TCP: a first bind without SO_REUSEPORT proves that the port is free (with it, a second proxy
 * would silently share the port), then one socket per worker with it. These listen at once: until
 * then another socket could still bind the port, and the worker's listen() would come too late to
 * be an error of the start. Unix sockets: one descriptor that all workers share; a stale file is
 * replaced, a live one is an error.
 *
 * Failure modes: any address that cannot be bound undoes the whole call and leaves what was open
 * before as it was.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proxy/call/module.h"
#include "proxy/net/address.h"

struct bound {
    struct list node; /* listen_set->bound */
    char *listener, *address;
    char name[128]; /* where it really listens: port 0 resolved */
    bool is_unix;
    bool fresh;              /* bound by the call that is running */
    unsigned workers, taken; /* how many take a descriptor, and how many have */
    unsigned count;          /* descriptors: one per worker, or one */
    int fds[];               /* -1 once given away: the workers' closing must be the last */
};

struct listen_set {
    pthread_mutex_t lock;
    struct list bound;
};

static struct bound *
find(struct listen_set *set, struct text listener, struct text address)
{
    list_for_each (node, &set->bound) {
        struct bound *bound = list_entry(node, struct bound, node);
        if (text_eq(text_of(bound->listener), listener) &&
            text_eq(text_of(bound->address), address))
            return bound;
    }
    return NULL;
}

static void
forget(struct bound *bound)
{
    list_unlink(&bound->node);
    for (unsigned i = 0; i < bound->count; i++)
        if (bound->fds[i] >= 0)
            close(bound->fds[i]);
    if (bound->is_unix && bound->count > 0)
        unlink(bound->address + strlen("unix:"));
    mem_free(bound->listener);
    mem_free(bound->address);
    mem_free(bound);
}

static int
open_tcp(const struct address *address, bool shared)
{
    int fd = socket(address->storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (shared)
        setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on));
    if (address->storage.ss_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
    if (bind(fd, (const struct sockaddr *)&address->storage, address->len) == 0 &&
        listen(fd, LISTEN_BACKLOG) == 0)
        return fd;
    int error = -errno;
    close(fd);
    return error;
}

/* Nobody else may listen there: without SO_REUSEPORT both bind and listen fail when somebody does.
 */
static int
prove_free(struct address *address)
{
    int fd = open_tcp(address, false);
    if (fd < 0)
        return fd;
    /* Port 0: the kernel's choice is what all workers use. */
    socklen_t len = sizeof(address->storage);
    int error = getsockname(fd, (struct sockaddr *)&address->storage, &len) == 0 ? 0 : -errno;
    close(fd);
    return error;
}

static int
bind_tcp(struct bound *bound, unsigned workers, struct address *address)
{
    int error = prove_free(address);
    if (error)
        return error;
    address_format((const struct sockaddr *)&address->storage, bound->name, sizeof(bound->name));
    for (unsigned i = 0; i < workers; i++) {
        int fd = open_tcp(address, true);
        if (fd < 0)
            return fd;
        bound->fds[bound->count++] = fd;
    }
    return 0;
}

static int
bind_unix(struct bound *bound, const struct address *address, const char *path, uint32_t mode)
{
    int error = address_clear_path(address);
    if (error)
        return error;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    if (bind(fd, (const struct sockaddr *)&address->storage, address->len) != 0) {
        error = -errno;
        close(fd);
        return error;
    }
    bound->fds[bound->count++] = fd;
    snprintf(bound->name, sizeof(bound->name), "unix:%s", path);
    return chmod(path, mode) == 0 ? 0 : -errno;
}

static int
bind_address(struct listen_set *set, const struct listener_conf *conf, struct text text,
             unsigned workers)
{
    struct address address;
    int error = address_from_text(text, true, &address);
    if (error)
        return error;
    struct bound *bound = mem_zalloc(sizeof(*bound) + workers * sizeof(bound->fds[0]));
    bound->listener = text_dup(conf->name);
    bound->address = text_dup(text);
    bound->fresh = true;
    bound->workers = workers;
    bound->is_unix = address.storage.ss_family == AF_UNIX;
    list_push_back(&set->bound, &bound->node);
    if (bound->is_unix)
        return bind_unix(bound, &address, bound->address + strlen("unix:"), conf->unix_mode);
    return bind_tcp(bound, workers, &address);
}

static void
undo_fresh(struct listen_set *set)
{
    list_for_each_safe (node, &set->bound) {
        struct bound *bound = list_entry(node, struct bound, node);
        if (bound->fresh)
            forget(bound);
    }
}

static int
bind_missing(struct listen_set *set, const struct listener_conf *conf, unsigned workers,
             struct strbuf *error)
{
    for (unsigned i = 0; i < conf->address_count; i++) {
        if (find(set, conf->name, conf->addresses[i]))
            continue;
        int result = bind_address(set, conf, conf->addresses[i], workers);
        if (result) {
            strbuf_addf(error, "listener %.*s: cannot listen on %.*s: %s", TEXT_ARGS(conf->name),
                        TEXT_ARGS(conf->addresses[i]), strerror(-result));
            return result;
        }
    }
    return 0;
}

int
listen_set_open(struct listen_set **out, const struct snapshot *snapshot, unsigned workers,
                struct strbuf *error)
{
    if (!*out) {
        *out = mem_new(struct listen_set);
        pthread_mutex_init(&(*out)->lock, NULL);
        list_init(&(*out)->bound);
    }
    struct listen_set *set = *out;
    int result = 0;
    pthread_mutex_lock(&set->lock);
    for (unsigned i = 0; i < snapshot->listener_count && !result; i++)
        result = bind_missing(set, &snapshot->listeners[i], workers, error);
    if (result)
        undo_fresh(set);
    list_for_each (node, &set->bound)
        list_entry(node, struct bound, node)->fresh = false;
    pthread_mutex_unlock(&set->lock);
    return result;
}

static bool
is_named(const struct snapshot *snapshot, const struct bound *bound)
{
    for (unsigned i = 0; i < snapshot->listener_count; i++) {
        const struct listener_conf *conf = &snapshot->listeners[i];
        if (!text_eq(conf->name, text_of(bound->listener)))
            continue;
        for (unsigned a = 0; a < conf->address_count; a++)
            if (text_eq(conf->addresses[a], text_of(bound->address)))
                return true;
    }
    return false;
}

void
listen_set_prune(struct listen_set *set, const struct snapshot *snapshot)
{
    pthread_mutex_lock(&set->lock);
    list_for_each_safe (node, &set->bound) {
        struct bound *bound = list_entry(node, struct bound, node);
        if (!is_named(snapshot, bound))
            forget(bound);
    }
    pthread_mutex_unlock(&set->lock);
}

void
listen_set_free(struct listen_set *set)
{
    while (!list_empty(&set->bound))
        forget(list_first(&set->bound, struct bound, node));
    pthread_mutex_destroy(&set->lock);
    mem_free(set);
}

/* A descriptor is given away, not lent: a copy left here would keep the socket listening after the
 * workers have closed it. */
static int
give(struct bound *bound, unsigned worker)
{
    bool last = ++bound->taken == bound->workers;
    int *fd = &bound->fds[bound->is_unix ? 0 : worker];
    if (bound->is_unix && !last)
        return fcntl(*fd, F_DUPFD_CLOEXEC, 0);
    int given = *fd;
    *fd = -1;
    return given;
}

int
listen_set_take(struct listen_set *set, struct text listener, struct text address, unsigned worker)
{
    pthread_mutex_lock(&set->lock);
    struct bound *bound = find(set, listener, address);
    int fd = bound && bound->count > 0 ? give(bound, worker) : -1;
    pthread_mutex_unlock(&set->lock);
    return fd;
}

char *
listen_set_name(struct listen_set *set, struct text listener, struct text address, char *out,
                size_t bytes)
{
    pthread_mutex_lock(&set->lock);
    struct bound *bound = find(set, listener, address);
    snprintf(out, bytes, "%s", bound ? bound->name : "");
    pthread_mutex_unlock(&set->lock);
    return out;
}
