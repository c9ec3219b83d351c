/* See load_process.h. */
#include "load_process.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static uint64_t
cpu_clock_ns(pid_t pid)
{
    clockid_t clock;
    struct timespec time;
    if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &time) != 0)
        return 0;
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void
read_stat(pid_t pid, struct load_process *at)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "r");
    if (!file)
        return;
    size_t n = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[n] = '\0';
    /* the name, in parentheses, may hold anything: fields count from behind the last one */
    const char *rest = strrchr(text, ')');
    unsigned long user, system;
    double tick = (double)sysconf(_SC_CLK_TCK);
    if (!rest || sscanf(rest + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user,
                        &system) != 2)
        return;
    at->user_s = (double)user / tick;
    at->system_s = (double)system / tick;
}

static void
read_status(pid_t pid, struct load_process *at)
{
    char path[64], line[256];
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *file = fopen(path, "r");
    if (!file)
        return;
    while (fgets(line, sizeof line, file)) {
        sscanf(line, "VmRSS: %ld", &at->rss_kb);
        sscanf(line, "VmHWM: %ld", &at->peak_kb);
        sscanf(line, "Threads: %ld", &at->threads);
    }
    fclose(file);
}

void
load_process_read(pid_t pid, struct load_process *at)
{
    memset(at, 0, sizeof *at);
    read_stat(pid, at);
    read_status(pid, at);
    at->cpu_ns = cpu_clock_ns(pid);
}

void
load_process_reset_peak(pid_t pid)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/clear_refs", (int)pid);
    FILE *file = fopen(path, "w");
    if (!file)
        return;
    fputs("5\n", file);
    fclose(file);
}
