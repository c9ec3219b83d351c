/*
 * Log and access lines to stdout, stderr or a file.
 *
 * Owns the two sinks, the line being built and the table of call sites; one mutex guards all of it,
 * so a line is one write(2) whichever thread logs. Happy path: level check, rate check, build,
 * write.
 *
 * Failure modes: a full disk, a closed pipe, or a pipe whose reader stands still (asked by poll()
 * first: a write there would stop the loop) lose lines; they are counted and reported as lost=N by
 * the first line that gets through. A line that was cut short is ended before the next. A write
 * that fails raises no SIGPIPE for the process only if it is ignored; log_open() sees to that.
 */
#include "proxy/base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proxy/base/clock.h"
#include "proxy/base/mem.h"
#include "proxy/base/strbuf.h"

enum {
    LOG_BURST = 32, /* lines of one call site … */
    LOG_WINDOW_S =
        10, /* … in that time; debug lines are not limited, whoever asks for them wants them */
    LOG_SITES = 512, /* power of two; call sites past it share the limit of one they collide with */
    LOG_SITE_PROBES = 8,
    LOG_VALUE_MAX = 2000, /* bytes of a message or value, so that a line stays under PIPE_BUF */
};

struct log_sink {
    int fd;         /* -1: off */
    char *path;     /* owned; NULL: stdout or stderr, whose descriptor is not ours */
    bool may_block; /* not a regular file */
    bool torn;      /* the last write was cut short: the next begins with a line feed */
    uint64_t lost;  /* lines since the last that got through */
};

/* A call site is its format string. */
struct log_site {
    const char *format; /* NULL: free */
    uint64_t window_start_ns;
    uint32_t lines, suppressed;
};

static struct {
    pthread_mutex_t lock;
    struct log_sink lines, access;
    enum log_format format;
    struct strbuf line, message;
    struct log_site sites[LOG_SITES];
} state = {
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .lines = {.fd = STDERR_FILENO, .may_block = true}, /* what is logged before log_open() */
    .access = {.fd = -1},
};

/* Read without the lock by log_enabled() and log_access_enabled(). */
static _Atomic int least_level = LOG_LEVEL_INFO;
static _Atomic bool access_on;

static const char *const level_names[] = {"debug", "info", "warn", "error"};

static bool
is_regular(int fd)
{
    struct stat info;
    return fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
}

static int
open_file(const char *path)
{
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0644);
    return fd < 0 ? -errno : fd;
}

static int
sink_open(struct log_sink *sink, const char *target)
{
    *sink = (struct log_sink){.fd = -1};
    if (!target || strcmp(target, "off") == 0)
        return 0;
    if (strcmp(target, "stdout") == 0) {
        sink->fd = STDOUT_FILENO;
    } else if (strcmp(target, "stderr") == 0) {
        sink->fd = STDERR_FILENO;
    } else {
        int fd = open_file(target);
        if (fd < 0)
            return fd;
        sink->fd = fd;
        sink->path = mem_strdup(target);
    }
    sink->may_block = !is_regular(sink->fd);
    return 0;
}

static void
sink_close(struct log_sink *sink)
{
    if (sink->path)
        close(sink->fd);
    mem_free(sink->path);
    *sink = (struct log_sink){.fd = -1};
}

/* A write to a descriptor that others share cannot be made non-blocking; one of up to PIPE_BUF
 * bytes does not block where poll() says there is room. */
static bool
has_room(const struct log_sink *sink, size_t bytes)
{
    struct pollfd ask = {.fd = sink->fd, .events = POLLOUT};
    if (!sink->may_block)
        return true;
    return bytes <= PIPE_BUF && poll(&ask, 1, 0) == 1 && (ask.revents & POLLOUT);
}

static bool
sink_write(struct log_sink *sink, const char *bytes, size_t len)
{
    ssize_t written;
    if (!has_room(sink, len))
        return false;
    do
        written = write(sink->fd, bytes, len);
    while (written < 0 && errno == EINTR);
    if (written > 0)
        sink->torn = (size_t)written < len;
    return written == (ssize_t)len;
}

static void
add_key(const char *key)
{
    bool json = state.format == LOG_JSON;
    if (state.line.len && state.line.data[state.line.len - 1] != '\n')
        strbuf_add_char(&state.line, json ? ',' : ' ');
    else if (json)
        strbuf_add_char(&state.line, '{');
    if (json) {
        strbuf_add_json(&state.line, text_of(key));
        strbuf_add_char(&state.line, ':');
    } else {
        strbuf_add_str(&state.line, key);
        strbuf_add_char(&state.line, '=');
    }
}

static void
add_pair(const char *key, struct text value)
{
    if (value.len > LOG_VALUE_MAX)
        value.len = LOG_VALUE_MAX;
    add_key(key);
    if (state.format == LOG_JSON)
        strbuf_add_json(&state.line, value);
    else
        strbuf_add_logfmt(&state.line, value);
}

static void
add_number(const char *key, uint64_t number)
{
    add_key(key);
    strbuf_addf(&state.line, "%llu", (unsigned long long)number);
}

static void
begin_line(const struct log_sink *sink)
{
    char wall[32];
    clock_wall(wall, sizeof(wall));
    strbuf_clear(&state.line);
    if (sink->torn)
        strbuf_add_char(&state.line, '\n');
    add_pair("time", text_of(wall));
}

static void
end_line(struct log_sink *sink)
{
    if (sink->lost)
        add_number("lost", sink->lost);
    strbuf_add_str(&state.line, state.format == LOG_JSON ? "}\n" : "\n");
    if (sink_write(sink, state.line.data, state.line.len))
        sink->lost = 0;
    else
        sink->lost++;
}

/* The entry of a call site; one that was never seen takes a free one near its hash. */
static struct log_site *
find_site(const char *format)
{
    uint64_t hash = (uint64_t)(uintptr_t)format * 0x9e3779b97f4a7c15;
    unsigned first = (unsigned)(hash >> 40);
    for (unsigned i = 0; i < LOG_SITE_PROBES; i++) {
        struct log_site *site = &state.sites[(first + i) % LOG_SITES];
        if (!site->format)
            site->format = format;
        if (site->format == format)
            return site;
    }
    return &state.sites[first % LOG_SITES];
}

/* Whether the line may be written; then *suppressed is how many before it were not. */
static bool
pass_site(const char *format, uint64_t *suppressed)
{
    struct log_site *site = find_site(format);
    uint64_t now_ns = clock_now_ns();
    if (site->window_start_ns == 0 || now_ns - site->window_start_ns >= LOG_WINDOW_S * NS_PER_S) {
        site->window_start_ns = now_ns;
        site->lines = 0;
    }
    if (site->lines >= LOG_BURST) {
        site->suppressed++;
        return false;
    }
    site->lines++;
    *suppressed = site->suppressed;
    site->suppressed = 0;
    return true;
}

static void
write_line(enum log_level level, const char *tag, uint64_t suppressed)
{
    struct log_sink *sink = &state.lines;
    begin_line(sink);
    add_pair("level", text_of(level_names[level]));
    add_pair("tag", text_of(tag));
    add_pair("msg", strbuf_text(&state.message));
    if (suppressed)
        add_number("suppressed", suppressed);
    end_line(sink);
}

void
log_line(enum log_level level, const char *tag, const char *format, ...)
{
    uint64_t suppressed = 0;
    int saved_errno = errno; /* a log line between a failure and its handling must not change it */
    if (!log_enabled(level))
        return;
    pthread_mutex_lock(&state.lock);
    if (state.lines.fd >= 0 && (level == LOG_LEVEL_DEBUG || pass_site(format, &suppressed))) {
        va_list args;
        va_start(args, format);
        strbuf_clear(&state.message);
        errno = saved_errno; /* for %m */
        strbuf_vaddf(&state.message, format, args);
        va_end(args);
        write_line(level, tag, suppressed);
    }
    pthread_mutex_unlock(&state.lock);
    errno = saved_errno;
}

void
log_access(const struct log_pair *pairs, unsigned count)
{
    if (!log_access_enabled())
        return;
    pthread_mutex_lock(&state.lock);
    if (state.access.fd >= 0) {
        begin_line(&state.access);
        for (unsigned i = 0; i < count; i++) {
            if (pairs[i].number) {
                add_key(pairs[i].key);
                strbuf_add_text(&state.line, pairs[i].value);
            } else {
                add_pair(pairs[i].key, pairs[i].value);
            }
        }
        end_line(&state.access);
    }
    pthread_mutex_unlock(&state.lock);
}

int
log_open(const char *target, enum log_format format, enum log_level level)
{
    struct log_sink sink;
    int error = sink_open(&sink, target);
    if (error)
        return error;
    signal(SIGPIPE, SIG_IGN);
    pthread_mutex_lock(&state.lock);
    sink_close(&state.lines);
    state.lines = sink;
    state.format = format;
    pthread_mutex_unlock(&state.lock);
    atomic_store_explicit(&least_level, (int)level, memory_order_relaxed);
    return 0;
}

int
log_open_access(const char *target)
{
    struct log_sink sink;
    int error = sink_open(&sink, target);
    if (error)
        return error;
    pthread_mutex_lock(&state.lock);
    sink_close(&state.access);
    state.access = sink;
    pthread_mutex_unlock(&state.lock);
    atomic_store_explicit(&access_on, sink.fd >= 0, memory_order_relaxed);
    return 0;
}

/* 0 or a negative errno with the old file kept. */
static int
sink_reopen(struct log_sink *sink)
{
    if (!sink->path)
        return 0;
    int fd = open_file(sink->path);
    if (fd < 0)
        return fd;
    close(sink->fd);
    sink->fd = fd;
    sink->may_block = !is_regular(fd);
    sink->torn = false;
    return 0;
}

void
log_reopen(void)
{
    pthread_mutex_lock(&state.lock);
    int lines = sink_reopen(&state.lines), access = sink_reopen(&state.access);
    pthread_mutex_unlock(&state.lock);
    if (lines)
        log_error("log", "reopening the log failed, the old file stays: %s", strerror(-lines));
    if (access)
        log_error("log", "reopening the access log failed, the old file stays: %s",
                  strerror(-access));
}

void
log_close(void)
{
    pthread_mutex_lock(&state.lock);
    sink_close(&state.lines);
    sink_close(&state.access);
    strbuf_fini(&state.line);
    strbuf_fini(&state.message);
    pthread_mutex_unlock(&state.lock);
    atomic_store_explicit(&access_on, false, memory_order_relaxed);
}

bool
log_enabled(enum log_level level)
{
    return (int)level >= atomic_load_explicit(&least_level, memory_order_relaxed);
}

bool
log_access_enabled(void)
{
    return atomic_load_explicit(&access_on, memory_order_relaxed);
}
