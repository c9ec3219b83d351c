/* See loop_fixture.h. */
#include "loop_fixture.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "proxy/base/clock.h"

enum { PATIENCE_S = 5 };

static int
count_descriptors(void)
{
    int count = 0;
    DIR *directory = opendir("/proc/self/fd");
    assert_non_null(directory);
    while (readdir(directory))
        count++;
    closedir(directory);
    return count;
}

/* libuv's first loop opens a pipe for signals that stays for the life of the process. */
static void
warm_up(void)
{
    uv_loop_t loop;
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(uv_loop_close(&loop), 0);
}

int
loop_setup(void **state)
{
    struct loop_fixture *fixture = calloc(1, sizeof *fixture);
    warm_up();
    fixture->descriptors = count_descriptors();
    assert_int_equal(uv_loop_init(&fixture->loop), 0);
    budget_init(&fixture->budget, (uint64_t)64 << 20);
    assert_int_equal(ctx_init(&fixture->ctx, &fixture->loop, 0, &fixture->budget), 0);
    uv_timer_init(&fixture->loop, &fixture->tick);
    *state = fixture;
    return 0;
}

static void
on_uv_walk(uv_handle_t *handle, void *unused)
{
    (void)unused;
    if (!uv_is_closing(handle))
        print_error("left open: %s%s\n", uv_handle_type_name(handle->type),
                    uv_is_active(handle) ? " (active)" : "");
}

int
loop_teardown(void **state)
{
    struct loop_fixture *fixture = *state;
    ctx_flush(&fixture->ctx);
    uv_close((uv_handle_t *)&fixture->tick, NULL);
    ctx_close(&fixture->ctx);
    for (int i = 0; i < 1000 && uv_run(&fixture->loop, UV_RUN_NOWAIT); i++)
        usleep(1000);
    int error = uv_loop_close(&fixture->loop);
    if (error)
        uv_walk(&fixture->loop, on_uv_walk, NULL);
    assert_int_equal(error, 0);
    ctx_fini(&fixture->ctx);
    assert_int_equal(atomic_load(&fixture->budget.leased), 0);
    assert_int_equal(count_descriptors(), fixture->descriptors);
    free(fixture);
    return 0;
}

static void
on_uv_tick(uv_timer_t *timer)
{
    (void)timer;
}

/* One waiting turn of at most 5 ms. */
static void
wait_turn(struct loop_fixture *fixture)
{
    uv_timer_start(&fixture->tick, on_uv_tick, 5, 5);
    uv_run(&fixture->loop, UV_RUN_ONCE);
    uv_timer_stop(&fixture->tick);
}

void
loop_turn(struct loop_fixture *fixture)
{
    uv_timer_start(&fixture->tick, on_uv_tick, 1000,
                   0); /* a loop without active handles would not turn */
    uv_run(&fixture->loop, UV_RUN_NOWAIT);
    uv_timer_stop(&fixture->tick);
}

void
loop_until(struct loop_fixture *fixture, const bool *done)
{
    uint64_t end_ns = clock_now_ns() + PATIENCE_S * NS_PER_S;
    while (!*(volatile const bool *)done) {
        if (clock_now_ns() > end_ns)
            fail_msg("waited %d s in vain", PATIENCE_S);
        wait_turn(fixture);
    }
}

void
loop_until_count(struct loop_fixture *fixture, const unsigned *count, unsigned want)
{
    uint64_t end_ns = clock_now_ns() + PATIENCE_S * NS_PER_S;
    while (*(volatile const unsigned *)count < want) {
        if (clock_now_ns() > end_ns)
            fail_msg("waited %d s in vain: %u of %u", PATIENCE_S, *count, want);
        wait_turn(fixture);
    }
}

void
loop_run_ms(struct loop_fixture *fixture, unsigned ms)
{
    uint64_t end_ns = clock_now_ns() + ms * NS_PER_MS;
    while (clock_now_ns() < end_ns)
        wait_turn(fixture);
}

int
raw_listen(struct address *address)
{
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof name;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&name, len), 0);
    assert_int_equal(listen(fd, 16), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&name, &len), 0);
    assert_int_equal(address_from_ip(TEXT("127.0.0.1"), ntohs(name.sin_port), address), 0);
    return fd;
}

int
raw_accept(struct loop_fixture *fixture, int listener)
{
    for (int i = 0; i < 1000; i++) {
        int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0)
            return fd;
        wait_turn(fixture);
    }
    fail_msg("nobody connected");
    return -1;
}

int
raw_connect(const struct address *address)
{
    int fd = socket(address->storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&address->storage, address->len), 0);
    assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    return fd;
}

void
raw_send(struct loop_fixture *fixture, int fd, const void *bytes, size_t len)
{
    const char *from = bytes;
    for (int i = 0; i < 5000 && len > 0; i++) {
        ssize_t sent = send(fd, from, len, MSG_NOSIGNAL);
        if (sent < 0 && errno != EAGAIN)
            fail_msg("send: %s", strerror(errno));
        if (sent > 0) {
            from += sent;
            len -= (size_t)sent;
        } else {
            wait_turn(fixture);
        }
    }
    assert_int_equal(len, 0);
}

void
raw_recv(struct loop_fixture *fixture, int fd, void *into, size_t len)
{
    char *at = into;
    for (int i = 0; i < 5000 && len > 0; i++) {
        ssize_t got = recv(fd, at, len, 0);
        if (got == 0)
            fail_msg("EOF, %zu bytes missing", len);
        if (got < 0 && errno != EAGAIN)
            fail_msg("recv: %s", strerror(errno));
        if (got > 0) {
            at += got;
            len -= (size_t)got;
        } else {
            wait_turn(fixture);
        }
    }
    assert_int_equal(len, 0);
}

int
raw_recv_all(struct loop_fixture *fixture, int fd, void *into, size_t cap, size_t *len)
{
    *len = 0;
    for (int i = 0; i < 5000; i++) {
        ssize_t got = recv(fd, (char *)into + *len, cap - *len, 0);
        if (got == 0)
            return 0;
        if (got < 0 && errno != EAGAIN)
            return -errno;
        if (got > 0)
            *len += (size_t)got;
        else
            wait_turn(fixture);
        if (*len == cap)
            fail_msg("more than %zu bytes", cap);
    }
    fail_msg("no end of stream");
    return -1;
}

void
raw_reset(int fd)
{
    struct linger linger = {.l_onoff = 1, .l_linger = 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
    close(fd);
}
