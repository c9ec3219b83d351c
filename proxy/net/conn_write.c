/*
 * A connection's output: the dirty list, filling, one writev a turn, marks.
 *
 * Happy path: conn_dirty -> (end of turn) fill() -> uv_try_write of all that is queued -> marks
 * fire. What the kernel does not take goes with one uv_write; until it is done fill() is not
 * called, then on_written and another fill(). Failure modes: a write error ends writing. If we are
 * reading, the read side is heard first: what the peer sent before it closed (an early reply, a
 * GOAWAY) is worth more than EPIPE.
 */
#include "proxy/base/check.h"
#include "proxy/base/clock.h"
#include "proxy/net/conn.h"
#include "proxy/net/tls.h"

enum {
    FULL_BYTES = 256 * 1024,
    MOST_IOVECS = 1024, /* IOV_MAX */
};

#define WRITE_ERROR_NS NS_PER_S /* for the read side to end by itself */
#define FINISH_STALL_NS (10 * NS_PER_S)

static bool
queue_full(const struct conn *conn)
{
    return conn->out.slices.bytes >= FULL_BYTES || conn->out.slices.count >= MOST_IOVECS;
}

static bool
unusable(const struct conn *conn)
{
    return conn->closing || conn->lost || conn->write_error;
}

bool
conn_full(const struct conn *conn)
{
    return conn->writing || unusable(conn) || queue_full(conn);
}

static struct outbuf *
wire_of(struct conn *conn)
{
    return conn->tls ? tls_wire(conn->tls) : &conn->out;
}

bool
conn_drained(const struct conn *conn)
{
    return !conn->writing && conn->out.slices.bytes == 0 &&
           (!conn->tls || tls_wire(conn->tls)->slices.bytes == 0);
}

void
conn_dirty(struct conn *conn)
{
    if (list_linked(&conn->dirty_node) && !conn->filled)
        return;
    if (conn->closing || conn->lost)
        return;
    list_unlink(&conn->dirty_node);
    conn->filled = false;
    list_push_back(&conn->ctx->dirty, &conn->dirty_node);
}

void
conn_queue(struct conn *conn, const void *bytes, size_t len)
{
    if (!unusable(conn))
        outbuf_add(&conn->out, bytes, len);
}

void
conn_queue_slices(struct conn *conn, struct slices *from, uint64_t bytes)
{
    if (unusable(conn))
        slices_drop(from, bytes);
    else
        outbuf_move(&conn->out, from, bytes);
}

void
conn_mark(struct conn *conn, struct conn_mark *mark)
{
    mark->position = conn->out.queued;
    list_push_back(&conn->marks, &mark->node);
    conn_dirty(conn); /* it fires even when nothing else is written */
}

void
conn_drop_output(struct conn *conn)
{
    while (!list_empty(&conn->marks))
        list_unlink(conn->marks.next);
    if (!conn->writing)
        outbuf_clear(&conn->out);
}

static void
write_failed(struct conn *conn, int error)
{
    if (!conn->reading || conn->finishing) {
        conn_lose(conn, error);
        return;
    }
    conn->write_error = error;
    conn_drop_output(conn);
    timers_start(&conn->ctx->timers, &conn->timer, conn->ctx->turn_ns + WRITE_ERROR_NS);
}

static void
fire_marks(struct conn *conn)
{
    if (conn->tls == NULL || tls_wire(conn->tls)->slices.bytes == 0)
        conn->flushed = conn->out.taken;
    uint64_t now_ns = 0;
    while (!list_empty(&conn->marks)) {
        struct conn_mark *mark = list_first(&conn->marks, struct conn_mark, node);
        if (mark->position > conn->flushed)
            break;
        if (!now_ns)
            now_ns = clock_now_ns();
        list_unlink(&mark->node);
        mark->on_flushed(mark, now_ns, mark->position <= conn->blocked_until);
    }
}

static void on_uv_written(uv_write_t *request, int status);

/* The socket is full: let libuv wait for it. */
static void
write_rest(struct conn *conn, struct outbuf *wire)
{
    uv_buf_t buffers[MOST_IOVECS];
    unsigned count = outbuf_iovecs(wire, buffers, MOST_IOVECS, &conn->write_bytes);
    conn->write.data = conn;
    conn->blocked_until = conn->out.queued;
    conn_count(conn->writes);
    int error = uv_write(&conn->write, &conn->stream, buffers, count, on_uv_written);
    if (error) {
        write_failed(conn, error);
        return;
    }
    conn->writing = conn->blocked = true;
}

void
conn_write_now(struct conn *conn)
{
    if (conn->writing || unusable(conn))
        return;
    int error = conn->tls ? tls_encrypt(conn->tls, &conn->out) : 0;
    struct outbuf *wire = wire_of(conn);
    while (!error && wire->slices.bytes > 0) {
        uv_buf_t buffers[MOST_IOVECS];
        size_t bytes;
        unsigned count = outbuf_iovecs(wire, buffers, MOST_IOVECS, &bytes);
        conn_count(conn->writes);
        int taken = uv_try_write(&conn->stream, buffers, count);
        if (taken == UV_EAGAIN)
            taken = 0;
        if (taken < 0) {
            error = taken;
            break;
        }
        outbuf_take(wire, (size_t)taken);
        if ((size_t)taken < bytes) {
            write_rest(conn, wire);
            return;
        }
    }
    if (error)
        write_failed(conn, error);
}

/* Write, fire marks; asks for another round when filling had stopped because enough was queued. */
static void
write_round(struct conn *conn)
{
    bool more = queue_full(conn);
    conn_write_now(conn);
    if (unusable(conn))
        return;
    fire_marks(conn);
    if (conn->closing)
        return;
    if (more && !conn->writing)
        conn_dirty(conn);
    conn_finish_step(conn);
}

static void
on_uv_written(uv_write_t *request, int status)
{
    struct conn *conn = request->data;
    conn->writing = conn->blocked = false;
    if (conn->closing || conn->lost)
        return; /* UV_ECANCELED, mostly */
    ctx_touch(conn->ctx);
    conn_count(conn->writes);
    if (status < 0) {
        write_failed(conn, status);
        return;
    }
    outbuf_take(wire_of(conn), conn->write_bytes);
    conn->blocked_until = conn->out.queued;
    if (conn->finishing)
        timers_start(&conn->ctx->timers, &conn->timer, conn->ctx->turn_ns + FINISH_STALL_NS);
    fire_marks(conn);
    if (unusable(conn))
        return;
    if (conn->events->on_written)
        conn->events->on_written(conn);
    conn_dirty(conn);
}

static void
fill_one(struct conn *conn)
{
    list_unlink(&conn->dirty_node);
    if (unusable(conn) || !conn->open)
        return;
    conn->filled = true;
    list_push_back(&conn->ctx->filled, &conn->dirty_node);
    if (!conn_full(conn) && conn->events->fill)
        conn->events->fill(conn);
}

bool
conn_fill_dirty(struct ctx *ctx)
{
    if (list_empty(&ctx->dirty))
        return false;
    while (!list_empty(&ctx->dirty))
        fill_one(list_first(&ctx->dirty, struct conn, dirty_node));
    return true;
}

bool
conn_write_filled(struct ctx *ctx)
{
    bool any = false;
    while (!list_empty(&ctx->filled)) {
        struct conn *conn = list_first(&ctx->filled, struct conn, dirty_node);
        list_unlink(&conn->dirty_node);
        conn->filled = false;
        write_round(conn);
        any = true;
    }
    return any;
}

void
conn_write_dirty(struct ctx *ctx)
{
    ctx->unflushed = ctx->unflushed_heads = 0;
    while (conn_fill_dirty(ctx) || conn_write_filled(ctx))
        ;
}

void
conn_flush(struct conn *conn)
{
    if (unusable(conn) || !conn->open)
        return;
    do
        fill_one(conn);
    while (list_linked(&conn->dirty_node) && !conn->filled);
    list_unlink(&conn->dirty_node);
    conn->filled = false;
    write_round(conn);
}
