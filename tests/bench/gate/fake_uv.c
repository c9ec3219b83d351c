/* See fake_uv.h. Only what a call that succeeds needs: anything else aborts. */
#include "fake_uv.h"

#include <stdlib.h>
#include <string.h>

enum { MOST = 64 };

static uv_stream_t *listening[MOST];
static struct fake_socket *dialled[MOST], *accepted;
static unsigned listening_count, dialled_count, dialled_taken, async_count, closing_count;
static uv_prepare_t *prepare;
static uv_async_t *asyncs[MOST];
static struct closing {
    uv_handle_t *handle;
    uv_close_cb callback;
} closing[MOST];

static void *
must(void *memory)
{
    if (!memory)
        abort();
    return memory;
}

static unsigned
one_more(unsigned *count)
{
    if (*count == MOST)
        abort();
    return (*count)++;
}

static struct fake_socket *
socket_of(uv_stream_t *stream)
{
    return stream->u.reserved[0];
}

static struct fake_socket *
new_socket(uv_stream_t *stream)
{
    struct fake_socket *socket = must(calloc(1, sizeof(*socket)));
    socket->stream = stream;
    if (stream)
        stream->u.reserved[0] = socket;
    return socket;
}

/* --- what the test does --- */

struct fake_socket *
fake_connect(unsigned listener)
{
    struct fake_socket *socket = accepted = new_socket(NULL);
    listening[listener]->connection_cb(listening[listener], 0);
    return socket;
}

struct fake_socket *
fake_dialled(void)
{
    if (dialled_taken == dialled_count)
        return NULL;
    struct fake_socket *socket = dialled[dialled_taken++];
    uv_connect_t *request = socket->stream->connect_req;
    request->cb(request, 0);
    return socket;
}

void
fake_feed(struct fake_socket *socket, const uint8_t *bytes, size_t len)
{
    uv_stream_t *stream = socket->stream;
    while (len > 0) {
        uv_buf_t buffer = {.base = NULL};
        stream->alloc_cb((uv_handle_t *)stream, 65536, &buffer);
        size_t part = len < buffer.len ? len : buffer.len;
        buffer.base = (char *)bytes; /* not copied: that would count as the worker's doing */
        stream->read_cb(stream, (ssize_t)part, &buffer);
        bytes += part;
        len -= part;
    }
}

void
fake_turn(void)
{
    for (unsigned i = 0; i < async_count; i++) {
        uv_async_t *async = asyncs[i];
        if (!async->pending)
            continue;
        async->pending = 0;
        async->async_cb(async);
    }
    for (unsigned i = 0; i < closing_count; i++)
        closing[i].callback(closing[i].handle);
    closing_count = 0;
    prepare->prepare_cb(prepare);
}

/* --- handles --- */

static int
init(uv_loop_t *loop, uv_handle_t *handle, uv_handle_type type, size_t bytes)
{
    void *data = handle->data;
    memset(handle, 0, bytes);
    handle->data = data;
    handle->loop = loop;
    handle->type = type;
    return 0;
}

int
uv_is_closing(const uv_handle_t *handle)
{
    return handle->flags != 0;
}

void
uv_close(uv_handle_t *handle, uv_close_cb callback)
{
    handle->flags = 1;
    if (callback)
        closing[one_more(&closing_count)] = (struct closing){handle, callback};
}

void
uv_ref(uv_handle_t *handle)
{
    (void)handle;
}

void
uv_unref(uv_handle_t *handle)
{
    (void)handle;
}

int
uv_fileno(const uv_handle_t *handle, uv_os_fd_t *fd)
{
    (void)handle, (void)fd;
    return UV_EBADF;
}

int
uv_prepare_init(uv_loop_t *loop, uv_prepare_t *handle)
{
    prepare = handle;
    return init(loop, (uv_handle_t *)handle, UV_PREPARE, sizeof(*handle));
}

int
uv_prepare_start(uv_prepare_t *handle, uv_prepare_cb callback)
{
    handle->prepare_cb = callback;
    return 0;
}

int
uv_async_init(uv_loop_t *loop, uv_async_t *async, uv_async_cb callback)
{
    init(loop, (uv_handle_t *)async, UV_ASYNC, sizeof(*async));
    async->async_cb = callback;
    asyncs[one_more(&async_count)] = async;
    return 0;
}

int
uv_async_send(uv_async_t *async)
{
    async->pending = 1;
    return 0;
}

/* --- time stands still --- */

int
uv_timer_init(uv_loop_t *loop, uv_timer_t *handle)
{
    return init(loop, (uv_handle_t *)handle, UV_TIMER, sizeof(*handle));
}

int
uv_timer_start(uv_timer_t *handle, uv_timer_cb callback, uint64_t timeout, uint64_t repeat)
{
    (void)handle, (void)callback, (void)timeout, (void)repeat;
    return 0;
}

uint64_t
uv_now(const uv_loop_t *loop)
{
    (void)loop;
    return 1;
}

void
uv_update_time(uv_loop_t *loop)
{
    (void)loop;
}

/* One microsecond from each look at the clock to the next. */
int
clock_gettime(clockid_t clock, struct timespec *now)
{
    static uint64_t ns = 1000000000;
    (void)clock;
    ns += 1000;
    now->tv_sec = (time_t)(ns / 1000000000);
    now->tv_nsec = (long)(ns % 1000000000);
    return 0;
}

/* --- streams --- */

int
uv_tcp_init(uv_loop_t *loop, uv_tcp_t *handle)
{
    return init(loop, (uv_handle_t *)handle, UV_TCP, sizeof(*handle));
}

int
uv_tcp_open(uv_tcp_t *handle, uv_os_sock_t fd)
{
    (void)handle, (void)fd;
    return 0;
}

int
uv_tcp_nodelay(uv_tcp_t *handle, int on)
{
    (void)handle, (void)on;
    return 0;
}

int
uv_tcp_getpeername(const uv_tcp_t *handle, struct sockaddr *name, int *bytes)
{
    (void)handle;
    *bytes = sizeof(struct sockaddr_in);
    return uv_ip4_addr("127.0.0.1", 9, (struct sockaddr_in *)name);
}

int
uv_listen(uv_stream_t *stream, int backlog, uv_connection_cb callback)
{
    (void)backlog;
    stream->connection_cb = callback;
    listening[one_more(&listening_count)] = stream;
    return 0;
}

int
uv_accept(uv_stream_t *server, uv_stream_t *client)
{
    (void)server;
    accepted->stream = client;
    client->u.reserved[0] = accepted;
    return 0;
}

int
uv_tcp_connect(uv_connect_t *request, uv_tcp_t *handle, const struct sockaddr *address,
               uv_connect_cb callback)
{
    (void)address;
    request->cb = callback;
    request->handle = (uv_stream_t *)handle;
    handle->connect_req = request;
    dialled[one_more(&dialled_count)] = new_socket((uv_stream_t *)handle);
    return 0;
}

int
uv_read_start(uv_stream_t *stream, uv_alloc_cb alloc, uv_read_cb read)
{
    stream->alloc_cb = alloc;
    stream->read_cb = read;
    return 0;
}

int
uv_read_stop(uv_stream_t *stream)
{
    (void)stream;
    return 0;
}

/* In pieces: in long copies callgrind counts an instruction a byte. */
static void
add(struct fake_socket *socket, const char *bytes, size_t len)
{
    enum { PIECE = 1024 };
    if (socket->len + len > socket->cap)
        socket->bytes = must(realloc(socket->bytes, socket->cap = (socket->len + len) * 2));
    for (size_t part; len > 0; bytes += part, len -= part) {
        part = len < PIECE ? len : PIECE;
        memcpy(socket->bytes + socket->len, bytes, part);
        socket->len += part;
    }
}

int
uv_try_write(uv_stream_t *stream, const uv_buf_t buffers[], unsigned count)
{
    struct fake_socket *socket = socket_of(stream);
    size_t before = socket->len;
    for (unsigned i = 0; i < count; i++)
        add(socket, buffers[i].base, buffers[i].len);
    return (int)(socket->len - before);
}

int
uv_write(uv_write_t *request, uv_stream_t *stream, const uv_buf_t buffers[], unsigned count,
         uv_write_cb callback)
{
    (void)request, (void)stream, (void)buffers, (void)count, (void)callback;
    abort(); /* uv_try_write() takes everything */
}

int
uv_shutdown(uv_shutdown_t *request, uv_stream_t *stream, uv_shutdown_cb callback)
{
    (void)request, (void)stream, (void)callback;
    abort(); /* connections stay to the end */
}
