/*
 * From sources to endpoints. Owns the sources, their look-ups and the handle by which those wake
 * the loop.
 *
 * Happy path: update → look-ups → wake → collect → publish. While a source has not been looked up
 * yet, the old list stays published (for PATIENCE at most), so that a reload that changes a name
 * leaves no gap.
 *
 * From a registry (zookeeper, nacos) the sources come by its own thread (registry.h), by the same
 * wake.
 *
 * Failure modes: a name that is not found, an unreadable file: logged when it begins, tried again,
 * what is known stays. Closing does not wait for look-ups: they are abandoned.
 */
#include "upstream/resolver.h"

#include <stdio.h>
#include <unistd.h>
#include <uv.h>

#include "proxy/base/clock.h"
#include "proxy/base/log.h"
#include "upstream/lookup.h"
#include "upstream/registry.h"
#include "upstream/resolver_file.h"

#define PATIENCE_NS NS_PER_S
#define AGAIN_NS NS_PER_S
enum { REFRESH_S = 30, RETRY_MAX_S = 5, LOOKUPS = 8, AWAIT_US = 2000 };

/* One "host:port" of the configuration or the file. */
struct source {
    struct text text, host; /* text owned; host in it */
    uint16_t port;
    enum address_kind kind;
    struct address *addresses; /* owned */
    unsigned count;
    struct lookup *lookup; /* under way; NULL: none */
    uint64_t due_ns, looked_up_ns;
    unsigned failures; /* in a row */
    bool tried;        /* looked up at least once (or needs no look-up) */
};

/* A registry's part of the endpoints. */
struct feed {
    struct text servers, path; /* owned */
    struct registry *registry; /* NULL: no thread was to be had */
    struct strbuf lines;
};

struct resolver {
    struct worker *worker;
    const char *upstream;
    resolver_on_endpoints *on_endpoints;
    void *owner;
    enum upstream_discovery discovery;
    struct resolver_file *files; /* discovery = file */
    unsigned file_count;
    struct feed *feeds; /* discovery = zookeeper, nacos */
    unsigned feed_count;
    struct source *sources;
    unsigned source_count;
    unsigned lookups; /* under way */
    uint64_t publish_by_ns;
    uv_async_t wake;
    char error[160];
};

/* --- sources --- */

static void
source_fini(struct source *source)
{
    lookup_free(source->lookup);
    mem_free(source->addresses);
    mem_free((char *)source->text.ptr);
}

static void
source_init(struct source *source, struct text text)
{
    memset(source, 0, sizeof(*source));
    source->text = text_make(text_dup(text), text.len);
    source->kind = address_parse(source->text, false, &source->host, &source->port);
    source->tried = source->kind != ADDRESS_NAME;
    struct address address;
    if (source->tried && address_from_text(source->text, false, &address) == 0) {
        source->addresses = mem_alloc(sizeof(address));
        source->addresses[0] = address;
        source->count = 1;
    }
}

static struct source *
find(struct source *sources, unsigned count, struct text text)
{
    for (unsigned i = 0; i < count; i++)
        if (text_eq(sources[i].text, text))
            return &sources[i];
    return NULL;
}

/* What is in both keeps its addresses and its look-up; a text that comes twice counts once. */
static void
set_sources(struct resolver *resolver, const struct text *texts, unsigned count)
{
    struct source *old = resolver->sources, *now = mem_zalloc((count + 1) * sizeof(*now));
    unsigned old_count = resolver->source_count, used = 0;
    for (unsigned i = 0; i < count; i++) {
        if (find(now, used, texts[i]))
            continue;
        struct source *known = find(old, old_count, texts[i]);
        if (known) {
            now[used++] = *known;
            *known = old[--old_count];
        } else {
            source_init(&now[used++], texts[i]);
        }
    }
    for (unsigned i = 0; i < old_count; i++) {
        resolver->lookups -= old[i].lookup != NULL;
        source_fini(&old[i]);
    }
    mem_free(old);
    resolver->sources = now;
    resolver->source_count = used;
    resolver->publish_by_ns = clock_now_ns() + PATIENCE_NS;
}

/* --- publishing --- */

static bool
all_tried(const struct resolver *resolver)
{
    for (unsigned i = 0; i < resolver->source_count; i++)
        if (!resolver->sources[i].tried)
            return false;
    for (unsigned i = 0; i < resolver->feed_count; i++)
        if (resolver->feeds[i].registry && !registry_tried(resolver->feeds[i].registry))
            return false;
    return true;
}

static bool
listed(const struct resolved *list, unsigned count, const struct address *address)
{
    for (unsigned i = 0; i < count; i++)
        if (list[i].address.len == address->len &&
            memcmp(&list[i].address.storage, &address->storage, address->len) == 0)
            return true;
    return false;
}

static void
publish(struct resolver *resolver)
{
    if (!all_tried(resolver) && clock_now_ns() < resolver->publish_by_ns)
        return;
    struct arena arena;
    unsigned most = 0, count = 0;
    for (unsigned i = 0; i < resolver->source_count; i++)
        most += resolver->sources[i].count;
    struct resolved *list = mem_alloc((most + 1) * sizeof(*list));
    arena_init(&arena, NULL, 0);
    for (unsigned i = 0; i < resolver->source_count; i++) {
        const struct source *source = &resolver->sources[i];
        for (unsigned j = 0; j < source->count; j++) {
            const struct address *address = &source->addresses[j];
            char text[128];
            if (listed(list, count, address))
                continue;
            bool named = source->kind == ADDRESS_NAME;
            address_format((const struct sockaddr *)&address->storage, text, sizeof(text));
            list[count++] = (struct resolved){
                .name = named ? arena_copy(&arena, text_of(text)) : source->text,
                .host = named ? source->host : TEXT_NONE,
                .address = *address,
            };
        }
    }
    if (count > 0)
        resolver->error[0] = 0;
    resolver->on_endpoints(resolver->owner, list, count);
    arena_fini(&arena);
    mem_free(list);
}

/* --- look-ups --- */

static void
wake_loop(void *arg)
{
    struct resolver *resolver = arg;
    uv_async_send(&resolver->wake);
}

static void
start_due(struct resolver *resolver)
{
    uint64_t now = clock_now_ns();
    for (unsigned i = 0; i < resolver->source_count && resolver->lookups < LOOKUPS; i++) {
        struct source *source = &resolver->sources[i];
        if (source->kind != ADDRESS_NAME || source->lookup || source->due_ns > now)
            continue;
        source->lookup = lookup_start(source->host, source->port, wake_loop, resolver);
        if (source->lookup)
            resolver->lookups++;
    }
}

static void
failed(struct resolver *resolver, struct source *source, const char *error)
{
    unsigned seconds = 1u << (source->failures < 3 ? source->failures : 3);
    if (seconds > RETRY_MAX_S)
        seconds = RETRY_MAX_S;
    snprintf(resolver->error, sizeof(resolver->error), "%.*s: %s", TEXT_ARGS(source->host), error);
    if (source->failures++ == 0)
        log_warn("resolver", "upstream %s: %s", resolver->upstream, resolver->error);
    source->due_ns = clock_now_ns() + seconds * NS_PER_S;
}

static void
found(struct resolver *resolver, struct source *source, const struct address *addresses,
      unsigned count)
{
    if (source->failures > 0)
        log_info("resolver", "upstream %s: %.*s is found again", resolver->upstream,
                 TEXT_ARGS(source->host));
    source->failures = 0;
    mem_free(source->addresses);
    source->addresses = mem_alloc((count + 1) * sizeof(*addresses));
    memcpy(source->addresses, addresses, count * sizeof(*addresses));
    source->count = count;
    source->due_ns = clock_now_ns() + REFRESH_S * NS_PER_S;
}

/* What look-ups have brought. True: something. */
static bool
collect(struct resolver *resolver)
{
    bool any = false;
    for (unsigned i = 0; i < resolver->source_count; i++) {
        struct source *source = &resolver->sources[i];
        const struct address *addresses;
        unsigned count;
        const char *error;
        if (!source->lookup || !lookup_result(source->lookup, &addresses, &count, &error))
            continue;
        if (error || count == 0)
            failed(resolver, source, error ? error : "it has no address");
        else
            found(resolver, source, addresses, count);
        lookup_free(source->lookup);
        source->lookup = NULL;
        source->tried = any = true;
        source->looked_up_ns = clock_now_ns();
        resolver->lookups--;
    }
    return any;
}

/* Sources from texts, one endpoint a line each. */
static void
set_lines(struct resolver *resolver)
{
    struct strbuf all = STRBUF_INIT;
    unsigned count = 0;
    for (unsigned i = 0; i < resolver->feed_count; i++)
        strbuf_add_text(&all, strbuf_text(&resolver->feeds[i].lines));
    struct text rest = strbuf_text(&all), line;
    struct text *texts = mem_alloc((all.len + 1) * sizeof(*texts));
    while (text_next(&rest, '\n', &line))
        if (line.len)
            texts[count++] = line;
    set_sources(resolver, texts, count);
    mem_free(texts);
    strbuf_fini(&all);
}

/* True: a registry has brought a list. */
static bool
take_feeds(struct resolver *resolver)
{
    bool any = false;
    for (unsigned i = 0; i < resolver->feed_count; i++) {
        struct feed *feed = &resolver->feeds[i];
        struct strbuf lines = STRBUF_INIT;
        if (!feed->registry)
            continue;
        registry_error(feed->registry, resolver->error, sizeof(resolver->error));
        if (registry_take(feed->registry, &lines)) {
            strbuf_fini(&feed->lines);
            feed->lines = lines;
            any = true;
        } else {
            strbuf_fini(&lines);
        }
    }
    if (any)
        set_lines(resolver);
    return any;
}

static void
go_on(struct resolver *resolver)
{
    bool any = take_feeds(resolver);
    any |= collect(resolver);
    start_due(resolver);
    if (any)
        publish(resolver);
}

static void
on_uv_wake(uv_async_t *async)
{
    struct resolver *resolver = async->data;
    ctx_touch(&resolver->worker->ctx);
    go_on(resolver);
}

void
resolver_look_again(struct resolver *resolver)
{
    for (unsigned i = 0; i < resolver->source_count; i++) {
        struct source *source = &resolver->sources[i];
        uint64_t soon = source->looked_up_ns + AGAIN_NS;
        if (source->failures == 0 && soon < source->due_ns)
            source->due_ns = soon;
    }
    start_due(resolver);
}

/* --- files --- */

static void
close_files(struct resolver *resolver)
{
    for (unsigned i = 0; i < resolver->file_count; i++)
        resolver_file_fini(&resolver->files[i]);
    mem_free(resolver->files);
    resolver->files = NULL;
    resolver->file_count = 0;
}

static bool
same_files(const struct resolver *resolver, const struct upstream_conf *conf)
{
    if (resolver->file_count != conf->endpoint_count)
        return false;
    for (unsigned i = 0; i < resolver->file_count; i++)
        if (!text_eq(text_of(resolver->files[i].path), conf->endpoints[i]))
            return false;
    return true;
}

static void
open_files(struct resolver *resolver, const struct upstream_conf *conf)
{
    if (same_files(resolver, conf))
        return;
    close_files(resolver);
    resolver->files = mem_zalloc(conf->endpoint_count * sizeof(*resolver->files));
    resolver->file_count = conf->endpoint_count;
    for (unsigned i = 0; i < resolver->file_count; i++)
        resolver_file_init(&resolver->files[i], conf->endpoints[i]);
}

/* True: the sources are new. */
static bool
read_files(struct resolver *resolver)
{
    bool changed = false;
    unsigned count = 0;
    for (unsigned i = 0; i < resolver->file_count; i++) {
        changed |= resolver_file_refresh(&resolver->files[i], resolver->upstream);
        count += resolver->files[i].count;
    }
    if (count == 0)
        snprintf(resolver->error, sizeof(resolver->error), "%s lists no endpoints",
                 resolver->files[0].path);
    if (!changed)
        return false;
    struct text *texts = mem_alloc((count + 1) * sizeof(*texts)), *end = texts;
    for (unsigned i = 0; i < resolver->file_count; i++)
        for (unsigned j = 0; j < resolver->files[i].count; j++)
            *end++ = resolver->files[i].endpoints[j];
    set_sources(resolver, texts, count);
    mem_free(texts);
    return true;
}

/* --- registries --- */

static void
close_feeds(struct resolver *resolver)
{
    for (unsigned i = 0; i < resolver->feed_count; i++) {
        struct feed *feed = &resolver->feeds[i];
        if (feed->registry)
            registry_close(feed->registry);
        mem_free((char *)feed->servers.ptr);
        mem_free((char *)feed->path.ptr);
        strbuf_fini(&feed->lines);
    }
    mem_free(resolver->feeds);
    resolver->feeds = NULL;
    resolver->feed_count = 0;
}

/* "host:port/path" is what to ask for, and where; "host:port" alone is another server for all of
 * them. */
static struct text
servers_for(const struct upstream_conf *conf, struct text own, struct strbuf *out)
{
    strbuf_clear(out);
    strbuf_add_text(out, own);
    for (unsigned i = 0; i < conf->endpoint_count; i++)
        if (text_find(conf->endpoints[i], '/', 0) < 0)
            strbuf_addf(out, ",%.*s", TEXT_ARGS(conf->endpoints[i]));
    return strbuf_text(out);
}

static struct feed *
find_feed(struct feed *feeds, unsigned count, struct text servers, struct text path)
{
    for (unsigned i = 0; i < count; i++)
        if (text_eq(feeds[i].servers, servers) && text_eq(feeds[i].path, path))
            return &feeds[i];
    return NULL;
}

static void
open_feeds(struct resolver *resolver, const struct upstream_conf *conf)
{
    struct feed *old = resolver->feeds,
                *now = mem_zalloc((conf->endpoint_count + 1) * sizeof(*now));
    unsigned old_count = resolver->feed_count, count = 0;
    struct strbuf servers = STRBUF_INIT;
    for (unsigned i = 0; i < conf->endpoint_count; i++) {
        struct text text = conf->endpoints[i];
        ptrdiff_t slash = text_find(text, '/', 0);
        if (slash < 0)
            continue;
        struct text path = text_from(text, (size_t)slash);
        struct text list = servers_for(conf, text_make(text.ptr, (size_t)slash), &servers);
        struct feed *known = find_feed(old, old_count, list, path);
        if (known) {
            now[count++] = *known;
            *known = old[--old_count];
            continue;
        }
        now[count++] = (struct feed){
            .servers = text_make(text_dup(list), list.len),
            .path = text_make(text_dup(path), path.len),
            .registry =
                registry_open(conf->discovery, list, path, resolver->upstream, wake_loop, resolver),
        };
    }
    resolver->feed_count = old_count; /* those that are no longer wanted */
    close_feeds(resolver);
    resolver->feeds = now;
    resolver->feed_count = count;
    if (count == 0)
        snprintf(resolver->error, sizeof(resolver->error),
                 "no path behind any host:port of endpoints says what to ask the registry for");
    strbuf_fini(&servers);
}

/* --- life --- */

void
resolver_update(struct resolver *resolver, const struct upstream_conf *conf)
{
    bool registry = conf->discovery == DISCOVERY_ZOOKEEPER || conf->discovery == DISCOVERY_NACOS;
    if (conf->discovery != resolver->discovery || !registry)
        close_feeds(resolver);
    if (conf->discovery != DISCOVERY_FILE)
        close_files(resolver);
    resolver->discovery = conf->discovery;
    if (conf->discovery == DISCOVERY_FILE) {
        open_files(resolver, conf);
        read_files(resolver);
    } else if (registry) {
        open_feeds(resolver, conf);
        set_lines(resolver);
    } else {
        set_sources(resolver, conf->endpoints, conf->endpoint_count);
    }
    start_due(resolver);
    publish(resolver);
}

void
resolver_await(struct resolver *resolver, uint64_t until_ns)
{
    while (!all_tried(resolver) && clock_now_ns() < until_ns) {
        if (resolver->lookups == 0)
            usleep(AWAIT_US); /* a registry's thread, or threads are scarce */
        for (unsigned i = 0; i < resolver->source_count; i++)
            if (resolver->sources[i].lookup)
                lookup_wait(resolver->sources[i].lookup, until_ns);
        go_on(resolver);
    }
}

void
resolver_check(struct resolver *resolver, uint64_t now_ns)
{
    bool late = resolver->publish_by_ns && now_ns > resolver->publish_by_ns;
    if (resolver->discovery == DISCOVERY_FILE && read_files(resolver))
        late = true;
    start_due(resolver);
    if (!late)
        return;
    publish(resolver);
    resolver->publish_by_ns = 0;
}

const char *
resolver_error(const struct resolver *resolver)
{
    return resolver->error;
}

struct resolver *
resolver_open(struct worker *worker, const char *upstream, resolver_on_endpoints *on_endpoints,
              void *owner)
{
    struct resolver *resolver = mem_new(struct resolver);
    resolver->worker = worker;
    resolver->upstream = upstream;
    resolver->on_endpoints = on_endpoints;
    resolver->owner = owner;
    uv_async_init(worker->ctx.loop, &resolver->wake, on_uv_wake);
    resolver->wake.data = resolver;
    return resolver;
}

static void
on_uv_closed(uv_handle_t *handle)
{
    mem_free(handle->data);
}

void
resolver_close(struct resolver *resolver)
{
    set_sources(resolver, NULL, 0);
    mem_free(resolver->sources);
    close_files(resolver);
    close_feeds(resolver);
    uv_close((uv_handle_t *)&resolver->wake, on_uv_closed);
}
