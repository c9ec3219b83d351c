/* See peer_link.h. */
#include "peer_link.h"

#include <stdlib.h>
#include <string.h>

#define READ_BUFFER_BYTES (256u * 1024)
#define QUEUE_FULL_BYTES (256u * 1024)
#define QUEUE_FULL_SEGMENTS 512u /* below IOV_MAX, so that one writev takes a full queue */
#define COPY_BELOW_BYTES 1024u   /* shorter bodies cost less to copy than an iovec does */

static void on_uv_prepare(uv_prepare_t *prepare);

int
peer_loop_init(struct peer_loop *owner, uv_loop_t *loop)
{
    *owner = (struct peer_loop){.loop = loop, .read_buffer = peer_alloc(READ_BUFFER_BYTES)};
    int rv = uv_prepare_init(loop, &owner->prepare);
    if (rv == 0)
        rv = uv_prepare_start(&owner->prepare, on_uv_prepare);
    owner->prepare.data = owner;
    uv_unref((uv_handle_t *)&owner->prepare);
    return rv;
}

/* Only here is the buffer free: peer_loop_fini may be called from within a read callback. */
static void
on_uv_prepare_closed(uv_handle_t *handle)
{
    struct peer_loop *owner = handle->data;
    free(owner->read_buffer);
    owner->read_buffer = NULL;
}

void
peer_loop_fini(struct peer_loop *owner)
{
    uv_close((uv_handle_t *)&owner->prepare, on_uv_prepare_closed);
}

static void
queue_clear(struct peer_queue *queue)
{
    for (unsigned i = 0; i < queue->count; i++)
        peer_body_unref(queue->segments[i].body);
    queue->count = 0;
    queue->bytes = 0;
    if (queue->arena)
        queue->arena->len = 0;
}

static void
queue_fini(struct peer_queue *queue)
{
    queue_clear(queue);
    peer_body_unref(queue->arena);
    free(queue->segments);
    *queue = (struct peer_queue){0};
}

static struct peer_segment *
queue_add(struct peer_queue *queue)
{
    if (queue->count == queue->cap) {
        queue->cap = queue->cap ? queue->cap * 2 : 16;
        queue->segments = realloc(queue->segments, queue->cap * sizeof *queue->segments);
        peer_check(queue->segments);
    }
    return &queue->segments[queue->count++];
}

void
peer_link_put(struct peer_link *link, const void *data, size_t len_bytes)
{
    struct peer_queue *queue = &link->filling;
    if (len_bytes == 0 || link->closing)
        return;
    if (!queue->arena)
        queue->arena = peer_body_new(4096);
    size_t offset = queue->arena->len;
    queue->arena = peer_body_append(queue->arena, data, len_bytes);
    queue->bytes += len_bytes;
    struct peer_segment *last = queue->count ? &queue->segments[queue->count - 1] : NULL;
    if (last && !last->body) /* arena bytes are contiguous: nothing else writes there */
        last->len += len_bytes;
    else
        *queue_add(queue) = (struct peer_segment){.offset = offset, .len = len_bytes};
}

void
peer_link_put_body(struct peer_link *link, struct peer_body *body, size_t offset, size_t len_bytes)
{
    if (len_bytes < COPY_BELOW_BYTES || link->closing) {
        peer_link_put(link, body->data + offset, len_bytes);
        return;
    }
    *queue_add(&link->filling) = (struct peer_segment){peer_body_ref(body), offset, len_bytes};
    link->filling.bytes += len_bytes;
}

bool
peer_link_wants(const struct peer_link *link)
{
    return link->filling.bytes < QUEUE_FULL_BYTES && link->filling.count < QUEUE_FULL_SEGMENTS;
}

/* The queue as buffers, without its first skip_bytes. */
static unsigned
queue_buffers(struct peer_queue *queue, size_t skip_bytes, uv_buf_t *bufs, unsigned max)
{
    unsigned n = 0;
    for (unsigned i = 0; i < queue->count && n < max; i++) {
        const struct peer_segment *s = &queue->segments[i];
        uint8_t *base = (s->body ? s->body : queue->arena)->data + s->offset;
        if (skip_bytes >= s->len) {
            skip_bytes -= s->len;
            continue;
        }
        bufs[n++] = uv_buf_init((char *)base + skip_bytes, (unsigned)(s->len - skip_bytes));
        skip_bytes = 0;
    }
    return n;
}

static void flush(struct peer_link *link);

static void
on_uv_write(uv_write_t *request, int status)
{
    struct peer_link *link = request->data;
    link->writing = false;
    queue_clear(&link->flying);
    if (status < 0)
        peer_link_close(link, status);
    else
        flush(link);
}

static void
write_rest(struct peer_link *link, size_t sent_bytes)
{
    link->flying = link->filling;
    link->filling = (struct peer_queue){0};
    unsigned max = link->flying.count;
    uv_buf_t *bufs = peer_alloc(max * sizeof *bufs);
    unsigned n = queue_buffers(&link->flying, sent_bytes, bufs, max);
    link->write.data = link;
    link->writing = true;
    link->owner->writes++;
    int rv = uv_write(&link->write, &link->io.stream, bufs, n, on_uv_write);
    free(bufs); /* libuv keeps its own array of buffers */
    if (rv < 0) {
        link->writing = false;
        peer_link_close(link, rv);
    }
}

/* One writev of all that is queued. True when everything was taken. */
static bool
write_queue(struct peer_link *link)
{
    uv_buf_t bufs[QUEUE_FULL_SEGMENTS];
    struct peer_queue *queue = &link->filling;
    unsigned n = queue_buffers(queue, 0, bufs, QUEUE_FULL_SEGMENTS);
    int rv = uv_try_write(&link->io.stream, bufs, n);
    link->owner->writes++;
    if (rv < 0 && rv != UV_EAGAIN) {
        peer_link_close(link, rv);
        return false;
    }
    if (rv >= 0 && (size_t)rv == queue->bytes) {
        queue_clear(queue);
        return true;
    }
    queue_fini(&link->flying);
    write_rest(link, rv < 0 ? 0 : (size_t)rv);
    return false;
}

static void
flush(struct peer_link *link)
{
    while (link->started && !link->closing && !link->writing) {
        if (link->events->fill)
            link->events->fill(link);
        if (link->closing)
            return;
        if (link->filling.bytes == 0) {
            if (link->close_when_sent)
                peer_link_close(link, 0);
            return;
        }
        bool full = !peer_link_wants(link);
        if (!write_queue(link) || (!full && !link->close_when_sent))
            return;
    }
}

static void
on_uv_prepare(uv_prepare_t *prepare)
{
    struct peer_loop *owner = prepare->data;
    /* Taken off one by one: a flush may mark further links, this one included. */
    while (owner->dirty) {
        struct peer_link *link = owner->dirty;
        owner->dirty = link->next_dirty;
        link->dirty = false;
        flush(link);
    }
}

void
peer_link_wake(struct peer_link *link)
{
    if (link->dirty || link->closing)
        return;
    link->dirty = true;
    link->next_dirty = link->owner->dirty;
    link->owner->dirty = link;
}

static void
on_uv_alloc(uv_handle_t *handle, size_t suggested_bytes, uv_buf_t *buf)
{
    struct peer_link *link = handle->data;
    (void)suggested_bytes;
    *buf = uv_buf_init((char *)link->owner->read_buffer, READ_BUFFER_BYTES);
}

static void
on_uv_read(uv_stream_t *stream, ssize_t nread, const uv_buf_t *buf)
{
    struct peer_link *link = stream->data;
    link->owner->reads++;
    if (nread > 0)
        link->events->read(link, (const uint8_t *)buf->base, (size_t)nread);
    else if (nread < 0)
        peer_link_close(link, (int)nread);
}

void
peer_link_init(struct peer_link *link, struct peer_loop *owner, bool unix_path,
               const struct peer_link_events *events)
{
    static unsigned numbers;
    *link = (struct peer_link){.owner = owner, .events = events, .number = ++numbers};
    int rv = unix_path ? uv_pipe_init(owner->loop, &link->io.pipe, 0)
                       : uv_tcp_init(owner->loop, &link->io.tcp);
    peer_check(rv == 0);
    link->io.handle.data = link;
}

void
peer_link_start(struct peer_link *link)
{
    if (link->io.handle.type == UV_TCP)
        uv_tcp_nodelay(&link->io.tcp, 1);
    link->started = true;
    peer_link_wake(link);
    int rv = uv_read_start(&link->io.stream, on_uv_alloc, on_uv_read);
    if (rv < 0)
        peer_link_close(link, rv);
}

static void
on_uv_closed(uv_handle_t *handle)
{
    struct peer_link *link = handle->data;
    queue_fini(&link->filling);
    queue_fini(&link->flying);
    link->events->closed(link, link->error);
}

void
peer_link_close(struct peer_link *link, int error)
{
    if (link->closing)
        return;
    link->closing = true;
    link->error = error;
    if (link->dirty) {
        struct peer_link **at = &link->owner->dirty;
        while (*at != link)
            at = &(*at)->next_dirty;
        *at = link->next_dirty;
        link->dirty = false;
    }
    uv_close(&link->io.handle, on_uv_closed);
}

void
peer_link_finish(struct peer_link *link)
{
    link->close_when_sent = true;
    peer_link_wake(link);
}
