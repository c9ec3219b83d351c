/*
 * The end of a loop turn: deferred work, filling and writing of dirty connections, the graveyard,
 * giving memory back.
 *
 * Filling is separate from writing: output that one connection's flush makes another produce
 * (window updates, trailers) still joins that other one's single writev.
 */
#include "proxy/net/ctx.h"

#include <signal.h>

#include "proxy/base/check.h"
#include "proxy/base/clock.h"
#include "proxy/base/mem.h"
#include "proxy/net/conn.h"

enum { TRIMS_AFTER_ACTIVITY = 2 }; /* the first sees the burst, the second what it left unused */

#define TRIM_NS (2 * NS_PER_S) /* what one burst leaves, another just behind it finds */

static void *
on_ng_malloc(size_t bytes, void *slab)
{
    return slab_alloc(slab, bytes);
}

static void
on_ng_free(void *memory, void *slab)
{
    slab_free(slab, memory);
}

static void *
on_ng_calloc(size_t count, size_t bytes, void *slab)
{
    size_t total;
    check(!__builtin_mul_overflow(count, bytes, &total));
    return slab_zalloc(slab, total);
}

static void *
on_ng_realloc(void *memory, size_t bytes, void *slab)
{
    return slab_realloc(slab, memory, bytes);
}

static void
on_trim(struct timer *timer)
{
    struct ctx *ctx = container_of(timer, struct ctx, trim);
    bool more = chunk_pool_trim(&ctx->chunks);
    slab_trim(&ctx->slab);
    if (more)
        ctx->trims_left = TRIMS_AFTER_ACTIVITY;
    if (--ctx->trims_left > 0)
        timers_start(&ctx->timers, timer, ctx->turn_ns + TRIM_NS);
    else
        mem_trim();
}

static void
note_activity(struct ctx *ctx)
{
    if (ctx->resting)
        return;
    ctx->trims_left = TRIMS_AFTER_ACTIVITY;
    if (!timer_running(&ctx->trim))
        timers_start(&ctx->timers, &ctx->trim, ctx->turn_ns + TRIM_NS);
}

static bool
run_deferred(struct ctx *ctx)
{
    if (list_empty(&ctx->deferred))
        return false;
    while (!list_empty(&ctx->deferred)) {
        struct deferred *deferred = list_first(&ctx->deferred, struct deferred, node);
        list_unlink(&deferred->node);
        deferred->run(deferred);
    }
    return true;
}

static void
empty_graveyard(struct ctx *ctx)
{
    while (!list_empty(&ctx->graveyard)) {
        struct grave *grave = list_first(&ctx->graveyard, struct grave, node);
        list_unlink(&grave->node);
        grave->bury(grave);
    }
}

static void
end_turn(struct ctx *ctx)
{
    bool active = false;
    do {
        while (run_deferred(ctx) || conn_fill_dirty(ctx))
            active = true;
    } while (conn_write_filled(ctx));
    ctx->unflushed = ctx->unflushed_heads = 0;
    empty_graveyard(ctx);
    if (active)
        note_activity(ctx);
}

static void
on_uv_prepare(uv_prepare_t *handle)
{
    struct ctx *ctx = handle->data;
    if (list_empty(&ctx->deferred) && list_empty(&ctx->dirty) && list_empty(&ctx->graveyard))
        return;
    ctx_touch(ctx);
    end_turn(ctx);
    /* The poll that follows waits by the loop's cached time: what was done here must not make
     * timers late. */
    uv_update_time(ctx->loop);
}

int
ctx_init(struct ctx *ctx, uv_loop_t *loop, unsigned index, struct budget *budget)
{
    *ctx = (struct ctx){.loop = loop, .index = index, .merge_writes = true};
    signal(SIGPIPE,
           SIG_IGN); /* libuv writes with write(2): a peer that is gone is an error, not a signal */
    int error = timers_init(&ctx->timers, loop);
    if (error)
        return error;
    ctx->timers.turn_ns = &ctx->turn_ns;
    uv_prepare_init(loop, &ctx->prepare); /* never fails, like its start */
    ctx->prepare.data = ctx;
    uv_prepare_start(&ctx->prepare, on_uv_prepare);
    uv_unref((uv_handle_t *)&ctx->prepare);
    chunk_pool_init(&ctx->chunks, budget);
    slab_init(&ctx->slab);
    ctx->h2_mem = (nghttp2_mem){
        .mem_user_data = &ctx->slab,
        .malloc = on_ng_malloc,
        .free = on_ng_free,
        .calloc = on_ng_calloc,
        .realloc = on_ng_realloc,
    };
    ctx_touch(ctx);
    rng_seed(&ctx->rng, ctx->turn_ns ^ ((uint64_t)index << 48) ^ (uintptr_t)ctx);
    list_init(&ctx->deferred);
    list_init(&ctx->dirty);
    list_init(&ctx->filled);
    list_init(&ctx->graveyard);
    ctx->h2_names = mem_zalloc(CTX_H2_NAMES * sizeof(*ctx->h2_names));
    ctx->trim.on_due = on_trim;
    return 0;
}

void
ctx_rest(struct ctx *ctx)
{
    ctx->resting = true;
    timers_stop(&ctx->timers, &ctx->trim);
}

void
ctx_close(struct ctx *ctx)
{
    timers_stop(&ctx->timers, &ctx->trim);
    timers_close(&ctx->timers);
    if (!uv_is_closing((uv_handle_t *)&ctx->prepare))
        uv_close((uv_handle_t *)&ctx->prepare, NULL);
}

void
ctx_fini(struct ctx *ctx)
{
    run_deferred(ctx);
    empty_graveyard(ctx);
    check(list_empty(&ctx->dirty) && list_empty(&ctx->deferred));
    timers_fini(&ctx->timers);
    chunk_pool_fini(&ctx->chunks);
    slab_fini(&ctx->slab);
    mem_free(ctx->h2_names);
    ctx->h2_names = NULL;
}

void
ctx_defer(struct ctx *ctx, struct deferred *deferred)
{
    if (!list_linked(&deferred->node))
        list_push_back(&ctx->deferred, &deferred->node);
}

void
ctx_bury(struct ctx *ctx, struct grave *grave, void (*bury)(struct grave *grave))
{
    grave->bury = bury;
    list_push_back(&ctx->graveyard, &grave->node);
}

void
ctx_flush(struct ctx *ctx)
{
    ctx_touch(ctx);
    end_turn(ctx);
}

void
ctx_touch(struct ctx *ctx)
{
    ctx->turn_ns = clock_now_ns();
}
