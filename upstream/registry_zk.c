/*
 * ZooKeeper, by its own client library: the children of a node, watched.
 *
 * Children are what Dubbo registers: at an interface's node the providers' URLs, percent-encoded,
 * of which those with `tri` as scheme count ("tri%3A%2F%2F10.0.0.1%3A20000%2F…"); at an
 * application's node "10.0.0.1:20000". A path /dubbo/INTERFACE means its providers.
 *
 * Happy path: connect → session → children with a watch → publish → the watch fires → children
 * again. Failure modes: no server answers: the library goes on trying; the node is not there: it is
 * watched until it is; the session expires: another handle.
 */
#include "upstream/registry_private.h"

#ifdef TRIBUTARY_ZOOKEEPER

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <zookeeper/zookeeper.h>

#include "proxy/base/log.h"
#include "proxy/base/mem.h"
#include "proxy/net/address.h"
#include "proxy/wire/percent.h"

enum { SESSION_MS = 10000, RETRY_MS = 5000, FOREVER_MS = 3600 * 1000 };

struct session {
    struct registry *registry;
    zhandle_t *handle;
    char *node;
    bool over; /* expired; guarded by registry->lock */
};

/* "/dubbo/x" is short for "/dubbo/x/providers"; deeper paths and applications stay. */
static char *
node_of(const char *path)
{
    struct strbuf node = STRBUF_INIT;
    const char *second = strchr(path + 1, '/');
    bool short_form = second && !strchr(second + 1, '/') && strncmp(path, "/services/", 10) != 0;
    strbuf_addf(&node, "%s%s", path, short_form ? "/providers" : "");
    return strbuf_take(&node);
}

/* host:port of a provider's URL or of an instance's name; empty: not one of ours. */
static struct text
endpoint_of(struct text child)
{
    static const struct text SCHEME = {"tri://", 6};
    struct text host;
    uint16_t port;
    if (text_starts(child, SCHEME))
        child = text_from(child, SCHEME.len);
    else if (text_find(child, '/', 0) >= 0)
        return TEXT_NONE; /* another protocol's URL */
    size_t end = 0;
    while (end < child.len && child.ptr[end] != '/' && child.ptr[end] != '?')
        end++;
    child.len = end;
    return address_parse(child, false, &host, &port) == ADDRESS_BAD ? TEXT_NONE : child;
}

static void
publish(struct session *session, const struct String_vector *children)
{
    struct strbuf lines = STRBUF_INIT;
    struct arena arena;
    arena_init(&arena, NULL, 0);
    for (int32_t i = 0; i < children->count; i++) {
        struct text endpoint = endpoint_of(percent_decode(&arena, text_of(children->data[i])));
        if (endpoint.len)
            strbuf_addf(&lines, "%.*s\n", TEXT_ARGS(endpoint));
    }
    registry_publish(session->registry, strbuf_text(&lines));
    arena_fini(&arena);
    strbuf_fini(&lines);
}

static void on_zk_event(zhandle_t *handle, int type, int state, const char *path, void *context);
static void ask(struct session *session);

static void
on_zk_exists(int result, const struct Stat *stat, const void *data)
{
    struct session *session = (struct session *)data;
    (void)stat;
    if (result == ZOK) /* made in between */
        ask(session);
}

static void
on_zk_children(int result, const struct String_vector *children, const void *data)
{
    struct session *session = (struct session *)data;
    if (result == ZOK) {
        publish(session, children);
    } else if (result == ZNONODE) {
        registry_fail(session->registry, "there is no such node");
        zoo_awexists(session->handle, session->node, on_zk_event, session, on_zk_exists, session);
    } else if (result != ZCLOSING && result != ZCONNECTIONLOSS) { /* asked again when it is back */
        registry_fail(session->registry, zerror(result));
    }
}

static void
ask(struct session *session)
{
    zoo_awget_children(session->handle, session->node, on_zk_event, session, on_zk_children,
                       session);
}

static void
on_session(struct session *session, int state)
{
    struct registry *registry = session->registry;
    if (state == ZOO_CONNECTED_STATE) {
        ask(session);
    } else if (state == ZOO_EXPIRED_SESSION_STATE || state == ZOO_AUTH_FAILED_STATE) {
        pthread_mutex_lock(&registry->lock);
        session->over = true;
        pthread_cond_broadcast(&registry->changed);
        pthread_mutex_unlock(&registry->lock);
    } else {
        registry_fail(registry, "the connection was lost; the list stays");
    }
}

/* Session events come to all watches: only the handle's own (path empty) counts. */
static void
on_zk_event(zhandle_t *handle, int type, int state, const char *path, void *context)
{
    struct session *session = context;
    (void)path;
    session->handle = handle; /* the first may come before zookeeper_init has returned */
    if (type != ZOO_SESSION_EVENT)
        ask(session);
    else
        on_session(session, state);
}

static void
on_zk_log(const char *message)
{
    log_debug("registry_zk", "%s", message);
}

static bool
is_over(struct session *session)
{
    pthread_mutex_lock(&session->registry->lock);
    bool over = session->over;
    pthread_mutex_unlock(&session->registry->lock);
    return over;
}

/* One handle's life. False: closed. */
static bool
run_session(struct session *session)
{
    struct registry *registry = session->registry;
    zhandle_t *handle =
        zookeeper_init2(registry->servers, on_zk_event, SESSION_MS, NULL, session, 0, on_zk_log);
    if (!handle) {
        registry_fail(registry, strerror(errno));
        return registry_rest(registry, RETRY_MS, NULL);
    }
    bool open;
    do
        open = registry_rest(registry, FOREVER_MS, &session->over);
    while (open && !is_over(session));
    zookeeper_close(handle); /* its threads have ended: no callback after this */
    return open;
}

void
registry_zk_run(struct registry *registry)
{
    struct session session = {.registry = registry, .node = node_of(registry->path)};
    zoo_set_debug_level(ZOO_LOG_LEVEL_WARN);
    while (run_session(&session))
        session.over = false;
    mem_free(session.node);
}

#else

void
registry_zk_run(struct registry *registry)
{
    registry_fail(registry, "this build has no ZooKeeper (TRIBUTARY_ZOOKEEPER=OFF)");
    while (registry_rest(registry, 3600 * 1000, NULL))
        ;
}

#endif
