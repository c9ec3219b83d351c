/* Reading the file of discovery = file. See resolver_file.h. */
#include "upstream/resolver_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "proxy/base/log.h"
#include "proxy/base/mem.h"
#include "proxy/net/address.h"

enum { MAX_FILE_BYTES = 1 << 20 };

void
resolver_file_init(struct resolver_file *file, struct text path)
{
    memset(file, 0, sizeof(*file));
    file->path = text_dup(path);
}

void
resolver_file_fini(struct resolver_file *file)
{
    mem_free(file->path);
    mem_free(file->endpoints);
    strbuf_fini(&file->content);
}

/* 0 or a negative errno. */
static int
read_all(int fd, struct strbuf *into)
{
    char part[4096];
    for (;;) {
        ssize_t got = read(fd, part, sizeof(part));
        if (got < 0)
            return -errno;
        if (got == 0)
            return 0;
        strbuf_add(into, part, (size_t)got);
        if (into->len > MAX_FILE_BYTES)
            return -EFBIG;
    }
}

static int
read_file(const char *path, struct strbuf *into)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return -errno;
    int error = read_all(fd, into);
    close(fd);
    return error;
}

static bool
is_endpoint(struct text line)
{
    struct text host;
    uint16_t port;
    return address_parse(line, false, &host, &port) != ADDRESS_BAD;
}

/* The endpoints among the lines of `content`; NULL when one is bad or there is none, which is
 * logged. */
static struct text *
parse(const struct resolver_file *file, struct text content, const char *upstream, unsigned *count)
{
    struct text *endpoints = mem_alloc((content.len / 2 + 1) * sizeof(*endpoints)), line;
    unsigned number = 0;
    *count = 0;
    while (text_next(&content, '\n', &line)) {
        number++;
        if (line.len > 0 && line.ptr[line.len - 1] == '\r')
            line.len--;
        line = text_trim(line);
        if (line.len == 0 || line.ptr[0] == '#' || line.ptr[0] == ';')
            continue;
        if (is_endpoint(line)) {
            endpoints[(*count)++] = line;
            continue;
        }
        log_warn("resolver_file", "upstream %s: %s:%u: '%.*s' is no host:port; the list stays",
                 upstream, file->path, number, (int)(line.len < 80 ? line.len : 80), line.ptr);
        mem_free(endpoints);
        return NULL;
    }
    if (*count > 0)
        return endpoints;
    log_warn("resolver_file", "upstream %s: %s:%u: no endpoint in it; the list stays", upstream,
             file->path, number ? number : 1);
    mem_free(endpoints);
    return NULL;
}

static bool
take(struct resolver_file *file, const char *upstream)
{
    struct strbuf content = STRBUF_INIT;
    unsigned count;
    int error = read_file(file->path, &content);
    if (error)
        log_warn("resolver_file", "upstream %s: %s: %s; the list stays", upstream, file->path,
                 strerror(-error));
    struct text *endpoints = error ? NULL : parse(file, strbuf_text(&content), upstream, &count);
    if (!endpoints) {
        strbuf_fini(&content);
        return false;
    }
    strbuf_fini(&file->content);
    mem_free(file->endpoints);
    file->content = content;
    file->endpoints = endpoints;
    file->count = count;
    return true;
}

static bool
same(const struct stat *a, const struct stat *b)
{
    return a->st_ino == b->st_ino && a->st_dev == b->st_dev && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

bool
resolver_file_refresh(struct resolver_file *file, const char *upstream)
{
    struct stat now;
    if (stat(file->path, &now) != 0)
        memset(&now, 0, sizeof(now));
    if (file->tried && same(&file->seen, &now))
        return false;
    file->tried = true;
    file->seen = now;
    return take(file, upstream);
}
