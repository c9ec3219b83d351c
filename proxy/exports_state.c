/*
 * What the endpoints say beside the statistics: the effective configuration, whether upstreams are
 * usable, the process in figures.
 *
 * Owns nothing; reads the server's state on the main thread and workers' cells relaxed. Failure
 * modes: none; figures that the kernel does not give are 0.
 */
#include "proxy/exports_private.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "proxy/base/clock.h"

/* --- the configuration --- */

/* Each line of a reload's errors as a comment, so that what is shown stays an INI file. */
static void
add_comments(struct strbuf *out, struct text lines)
{
    struct text line;
    while (text_next(&lines, '\n', &line))
        strbuf_addf(out, ";   %.*s\n", TEXT_ARGS(line));
}

void
exports_config(const struct server *server, struct strbuf *out)
{
    strbuf_addf(out, "; effective configuration, generation %u, from %s\n",
                server->snapshot->generation, server->file);
    if (server->reload_error) {
        strbuf_add_str(out, "; the last reload failed and changed nothing:\n");
        add_comments(out, text_of(server->reload_error));
    }
    strbuf_add_char(out, '\n');
    strbuf_add_text(out, server->snapshot->printed);
}

/* --- readiness of upstreams --- */

bool
exports_endpoint_usable(const struct endpoint_cells *sum)
{
    uint64_t state = stats_get(&sum->state);
    return stats_get(&sum->present) && state != ENDPOINT_BACKOFF && state != ENDPOINT_EJECTED;
}

/* How many endpoints an upstream has and how many of them could take a call. */
static void
count_endpoints(const struct server *server, struct text upstream, unsigned *present,
                unsigned *usable)
{
    struct stats *stats = (struct stats *)&server->stats; /* its lock is taken */
    struct endpoint_cells sum;
    *present = *usable = 0;
    for (const struct stats_entry *entry = stats_next(stats, NULL); entry;
         entry = stats_next(stats, entry)) {
        if (entry->kind != STATS_ENDPOINT || !text_eq(text_of(entry->name), upstream))
            continue;
        stats_sum_endpoint(stats, entry, &sum);
        *present += stats_get(&sum.present) > 0;
        *usable += exports_endpoint_usable(&sum);
    }
}

bool
exports_upstreams_ready(const struct server *server, struct strbuf *out)
{
    const struct snapshot *snapshot = server->snapshot;
    bool ready = true;
    for (unsigned i = 0; i < snapshot->route_count; i++) {
        const struct route *route = &snapshot->routes[i];
        unsigned present, usable;
        count_endpoints(server, route->upstream->name, &present, &usable);
        if (usable > 0)
            continue;
        ready = false;
        strbuf_addf(out, "route %.*s: upstream %.*s has ", TEXT_ARGS(route->name),
                    TEXT_ARGS(route->upstream->name));
        if (present == 0)
            strbuf_add_str(out, "no endpoint\n");
        else
            strbuf_addf(out, "no usable endpoint (of %u)\n", present);
    }
    return ready;
}

bool
exports_has_route(const struct server *server, const struct stats_entry *entry)
{
    const struct snapshot *snapshot = server->snapshot;
    for (unsigned i = 0; i < snapshot->route_count; i++)
        if (snapshot->routes[i].stats == entry)
            return true;
    return false;
}

struct text
exports_status_name(unsigned cell)
{
    return cell < STATS_CODES - 1 ? status_name((int)cell) : TEXT("OTHER");
}

/* --- the process --- */

static void
read_memory(struct exports_process *process)
{
    char text[128] = "";
    unsigned long long pages, resident;
    int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    ssize_t len = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (len <= 0 || sscanf(text, "%llu %llu", &pages, &resident) != 2)
        return;
    uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    process->virtual_bytes = pages * page_bytes;
    process->resident_bytes = resident * page_bytes;
}

/* open() and fdopendir(), not opendir(): ThreadSanitizer watches the first two, and takes a
 * descriptor that opendir() got for the one of that number that a worker closed before. */
static uint64_t
count_descriptors(void)
{
    int fd = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *folder = fd < 0 ? NULL : fdopendir(fd);
    uint64_t count = 0;
    if (!folder) {
        if (fd >= 0)
            close(fd);
        return 0;
    }
    for (const struct dirent *entry = readdir(folder); entry; entry = readdir(folder))
        count += entry->d_name[0] != '.';
    closedir(folder);
    return count - 1; /* the folder itself */
}

static double
seconds(struct timeval time)
{
    return (double)time.tv_sec + (double)time.tv_usec / 1e6;
}

/* Worked out once: a clock that is set later must not move it. */
static double
start_time(const struct server *server)
{
    static double start_s;
    struct timespec now;
    if (start_s > 0)
        return start_s;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t up_ns = clock_now_ns() - server->started_ns;
    start_s = (double)now.tv_sec + (double)now.tv_nsec / 1e9 - (double)up_ns / 1e9;
    return start_s;
}

void
exports_process(const struct server *server, struct exports_process *process)
{
    struct rusage usage;
    struct rlimit limit;
    *process = (struct exports_process){.start_s = start_time(server)};
    read_memory(process);
    process->open_fds = count_descriptors();
    if (getrusage(RUSAGE_SELF, &usage) == 0)
        process->cpu_s = seconds(usage.ru_utime) + seconds(usage.ru_stime);
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
        process->max_fds = limit.rlim_cur;
}
