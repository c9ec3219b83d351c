/*
 * Cores and memory of the container. /proc/self/cgroup names our groups: "0::/path" (v2) or
 * "4:cpu,cpuacct:/path" (v1). From that path up to the mount's root each file that exists may lower
 * the limit: inside a container with its own cgroup namespace the path is "/", without one it may
 * not exist below the mount, and then only the root's file speaks.
 *
 * A file that is missing or unreadable sets no limit.
 */
#include "proxy/config/machine.h"

#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_BYTES = 4096, LINE_BYTES = 512 };

static const uint64_t BUDGET_MAX_BYTES = (uint64_t)256 << 20, BUDGET_MIN_BYTES = (uint64_t)1 << 20;

static bool
first_line(const char *path, char *line, int bytes)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    bool ok = fgets(line, bytes, file) != NULL;
    fclose(file);
    return ok;
}

/* Where /proc/self/cgroup puts us for `controller` ("" is v2's one hierarchy). */
static bool
group_of(const char *root, const char *controller, char *group, size_t bytes)
{
    char path[PATH_BYTES], line[PATH_BYTES];
    snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
    FILE *file = fopen(path, "re");
    bool found = false;
    while (file && !found && fgets(line, sizeof(line), file)) {
        char *names = strchr(line, ':');
        char *where = names ? strchr(names + 1, ':') : NULL;
        if (!where)
            continue;
        *where++ = '\0';
        where[strcspn(where, "\n")] = '\0';
        names++;
        char *rest = names, *name;
        if (*controller == '\0')
            found = *names == '\0';
        while (*controller && !found && (name = strsep(&rest, ",")))
            found = strcmp(name, controller) == 0;
        if (found)
            snprintf(group, bytes, "%s", where);
    }
    if (file)
        fclose(file);
    return found;
}

/* v2: "max 100000" or "150000 100000": quota and period in microseconds. Cores in thousandths, 0:
 * no limit. */
static uint64_t
limit_cpu_max(const char *directory)
{
    char path[PATH_BYTES + 64], line[LINE_BYTES];
    unsigned long long quota, period;
    snprintf(path, sizeof(path), "%s/cpu.max", directory);
    if (!first_line(path, line, sizeof(line)) || sscanf(line, "%llu %llu", &quota, &period) != 2 ||
        period == 0 || quota > UINT64_MAX / 1000)
        return 0;
    return quota * 1000 / period;
}

/* v1: two files, the quota -1 when there is none. */
static uint64_t
limit_cfs_quota(const char *directory)
{
    char path[PATH_BYTES + 64], line[LINE_BYTES];
    snprintf(path, sizeof(path), "%s/cpu.cfs_quota_us", directory);
    if (!first_line(path, line, sizeof(line)))
        return 0;
    long long quota = strtoll(line, NULL, 10);
    snprintf(path, sizeof(path), "%s/cpu.cfs_period_us", directory);
    if (quota <= 0 || !first_line(path, line, sizeof(line)))
        return 0;
    long long period = strtoll(line, NULL, 10);
    return period > 0 ? (uint64_t)quota * 1000 / (uint64_t)period : 0;
}

static uint64_t
limit_bytes(const char *directory, const char *name)
{
    char path[PATH_BYTES + 64], line[LINE_BYTES];
    unsigned long long bytes;
    snprintf(path, sizeof(path), "%s/%s", directory, name);
    if (!first_line(path, line, sizeof(line)) || sscanf(line, "%llu", &bytes) != 1)
        return 0;
    return bytes;
}

static uint64_t
limit_memory_max(const char *directory)
{
    return limit_bytes(directory, "memory.max");
}

static uint64_t
limit_memory_v1(const char *directory)
{
    return limit_bytes(directory, "memory.limit_in_bytes");
}

/* The least limit from `group` up to the mount's root; 0: none. */
static uint64_t
least_limit(const char *root, const char *mount, const char *group,
            uint64_t (*limit)(const char *directory))
{
    char path[PATH_BYTES];
    int fixed = snprintf(path, sizeof(path), "%s/sys/fs/cgroup%s", root, mount);
    int len = snprintf(path, sizeof(path), "%s/sys/fs/cgroup%s%s", root, mount, group);
    uint64_t least = 0;
    if (len < 0 || (size_t)len >= sizeof(path))
        return 0;
    for (;;) {
        uint64_t here = limit(path);
        if (here && (!least || here < least))
            least = here;
        char *slash = strrchr(path, '/');
        if (!slash || slash < path + fixed)
            return least;
        *slash = '\0';
    }
}

static uint64_t
group_limit(const char *root, const char *controller, uint64_t (*v2)(const char *),
            uint64_t (*v1)(const char *))
{
    char group[PATH_BYTES / 2], mount[32];
    uint64_t limit = 0, other = 0;
    if (group_of(root, "", group, sizeof(group)))
        limit = least_limit(root, "", group, v2);
    if (group_of(root, controller, group, sizeof(group))) {
        snprintf(mount, sizeof(mount), "/%s", controller);
        other = least_limit(root, mount, group, v1);
    }
    return other && (!limit || other < limit) ? other : limit;
}

unsigned
machine_cores(const char *root)
{
    cpu_set_t set;
    unsigned cores = sched_getaffinity(0, sizeof(set), &set) == 0 ? (unsigned)CPU_COUNT(&set) : 1;
    uint64_t thousandths = group_limit(root, "cpu", limit_cpu_max, limit_cfs_quota);
    /* Rounded down: two busy threads on one and a half cores are throttled for a third of each
     * period. */
    if (thousandths && thousandths / 1000 < cores)
        cores = (unsigned)(thousandths / 1000);
    return cores ? cores : 1;
}

static uint64_t
total_memory(const char *root)
{
    char path[PATH_BYTES], line[LINE_BYTES];
    unsigned long long kib;
    snprintf(path, sizeof(path), "%s/proc/meminfo", root);
    if (!first_line(path, line, sizeof(line)) || sscanf(line, "MemTotal: %llu kB", &kib) != 1)
        return 0;
    return kib * 1024;
}

uint64_t
machine_memory_bytes(const char *root)
{
    uint64_t total = total_memory(root);
    uint64_t limit = group_limit(root, "memory", limit_memory_max, limit_memory_v1);
    return limit && (!total || limit < total) ? limit : total;
}

uint64_t
machine_buffer_budget(const char *root)
{
    uint64_t memory = machine_memory_bytes(root), quarter = memory / 4;
    if (memory == 0 || quarter > BUDGET_MAX_BYTES)
        return BUDGET_MAX_BYTES;
    return quarter < BUDGET_MIN_BYTES ? BUDGET_MIN_BYTES : quarter;
}
