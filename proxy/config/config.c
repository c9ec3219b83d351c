/*
 * Loading a configuration, as a start, a reload and --check do it.
 *
 *   read the file -> ini_file: sections and lines -> draft: every key by the table -> validate: how
 * they fit -> secure: TLS contexts -> keep what a reload can't change -> index the routes
 *
 * All or nothing: with one complaint the snapshot is given back. The running snapshot is
 * only read.
 */
#include "proxy/config/config.h"

#include <sys/stat.h>

#include "proxy/call/routes.h"
#include "proxy/config/draft_build.h"
#include "proxy/config/secure.h"
#include "proxy/config/validate.h"

static void
say_kept(struct strbuf *kept, const char *section, const char *key, const char *name)
{
    if (!kept)
        return;
    strbuf_addf(kept,
                "[%s%s%s] %s: a reload can't change it, the old value stays until a restart\n",
                section, name ? " " : "", name ? name : "", key);
}

static void
keep_address(struct snapshot *snapshot, struct text *address, struct text old, const char *key,
             struct strbuf *kept)
{
    if (text_eq(*address, old))
        return;
    *address = arena_copy(&snapshot->arena, old);
    say_kept(kept, "proxy", key, NULL);
}

static bool
same_addresses(const struct listener_conf *a, const struct listener_conf *b)
{
    if (a->address_count != b->address_count)
        return false;
    for (unsigned i = 0; i < a->address_count; i++)
        if (!text_eq(a->addresses[i], b->addresses[i]))
            return false;
    return true;
}

static void
keep_listener(struct snapshot *snapshot, struct listener_conf *listener,
              const struct listener_conf *old, struct strbuf *kept)
{
    if (!text_eq(listener->name, old->name) || same_addresses(listener, old))
        return;
    listener->address_count = old->address_count;
    listener->addresses =
        arena_alloc(&snapshot->arena, old->address_count * sizeof(*listener->addresses));
    for (unsigned i = 0; i < old->address_count; i++)
        listener->addresses[i] = arena_copy(&snapshot->arena, old->addresses[i]);
    say_kept(kept, "listener", "address", listener->name.ptr);
}

/* What sockets and threads stand on: they exist once, from the start on. */
static void
keep_old(struct snapshot *snapshot, const struct snapshot *old, struct strbuf *kept)
{
    struct proxy_conf *proxy = &snapshot->proxy;
    if (proxy->workers != old->proxy.workers || proxy->workers_auto != old->proxy.workers_auto) {
        if (proxy->workers != old->proxy.workers)
            say_kept(kept, "proxy", "workers", NULL);
        proxy->workers = old->proxy.workers;
        proxy->workers_auto = old->proxy.workers_auto;
    }
    keep_address(snapshot, &proxy->admin, old->proxy.admin, "admin", kept);
    keep_address(snapshot, &proxy->probe, old->proxy.probe, "probe", kept);
    for (unsigned i = 0; i < snapshot->listener_count; i++)
        for (unsigned j = 0; j < old->listener_count; j++)
            keep_listener(snapshot, &snapshot->listeners[i], &old->listeners[j], kept);
}

static void
finish(struct snapshot *snapshot, const struct snapshot *old, struct strbuf *kept)
{
    struct strbuf printed = STRBUF_INIT;
    if (old)
        keep_old(snapshot, old, kept);
    snapshot->generation = old ? old->generation + 1 : 1;
    snapshot->max_message = snapshot->proxy.max_message;
    snapshot->stream_window = snapshot->proxy.stream_window;
    routes_build(snapshot);
    config_print(snapshot, true, &printed);
    snapshot->printed = arena_copy(&snapshot->arena, strbuf_text(&printed));
    strbuf_fini(&printed);
}

static void
conclude(const char *file, struct complaints *complaints, struct config_result *result)
{
    result->error_count = complaints_count(complaints);
    complaints_render(complaints, file, &result->errors);
    complaints_fini(complaints);
}

/* What a reader finds while somebody writes the file is often a valid beginning of it: sections
 * from [proxy] on, and the routes not yet. A start may be without routes, a reload may not lose
 * them all. */
static void
check_routes_are_left(const struct draft *draft, const struct snapshot *old)
{
    if (old && old->route_count > 0 && draft->snapshot->route_count == 0 &&
        complaints_count(draft->complaints) == 0)
        complaints_add(draft->complaints, 1, TEXT_NONE, TEXT_NONE,
                       "no [route NAME] section is left, so every call would fail; a file that is "
                       "cut short, or still being written?");
}

static void
load(const char *file, struct text bytes, struct complaints *complaints, const struct snapshot *old,
     struct config_result *result, struct strbuf *kept)
{
    struct ini_file ini;
    ini_file_init(&ini);
    ini_file_parse(&ini, bytes, complaints);
    struct draft draft = {
        .path = file, .file = &ini, .complaints = complaints, .snapshot = snapshot_new()};
    draft_build(&draft);
    validate(&draft);
    check_routes_are_left(&draft, old);
    if (complaints_count(complaints) == 0)
        secure(&draft);
    if (complaints_count(complaints) == 0) {
        finish(draft.snapshot, old, kept);
        result->snapshot = draft.snapshot;
    } else {
        snapshot_unref(draft.snapshot);
    }
    draft_fini(&draft);
    ini_file_fini(&ini);
}

void
config_load_text(const char *file, struct text bytes, const struct snapshot *old,
                 struct config_result *result, struct strbuf *kept)
{
    struct complaints complaints = {.items = NULL};
    *result = (struct config_result){.snapshot = NULL};
    load(file, bytes, &complaints, old, result, kept);
    conclude(file, &complaints, result);
}

void
config_load(const char *file, const struct snapshot *old, struct config_result *result,
            struct strbuf *kept)
{
    struct complaints complaints = {.items = NULL};
    struct strbuf bytes = STRBUF_INIT;
    *result = (struct config_result){.snapshot = NULL};
    if (ini_file_read(file, &bytes, &complaints))
        load(file, strbuf_text(&bytes), &complaints, old, result, kept);
    conclude(file, &complaints, result);
    strbuf_fini(&bytes);
}

void
config_result_fini(struct config_result *result)
{
    strbuf_fini(&result->errors);
}

bool
config_identify(const char *file, struct config_identity *identity)
{
    struct stat info;
    *identity = (struct config_identity){.device = 0};
    if (stat(file, &info) < 0)
        return false;
    identity->device = info.st_dev;
    identity->inode = info.st_ino;
    identity->mtime_ns =
        (uint64_t)info.st_mtim.tv_sec * 1000000000u + (uint64_t)info.st_mtim.tv_nsec;
    identity->size = (uint64_t)info.st_size;
    return true;
}
