/*
 * What other processes cost: CPU time of all their threads, resident memory. From their CPU clock
 * (nanoseconds; /proc/PID/stat has steps of 10 ms, kept for the split in user and system) and
 * /proc/PID/status. Owns nothing; a process that is gone reads as zeros.
 */
#ifndef BENCH_LOAD_PROCESS_H
#define BENCH_LOAD_PROCESS_H

#include <stdint.h>
#include <sys/types.h>

struct load_process {
    uint64_t cpu_ns;
    double user_s;
    double system_s;
    long rss_kb;
    long peak_kb; /* VmHWM: since load_process_reset_peak(), else since the process started */
    long threads;
};

void load_process_read(pid_t pid, struct load_process *at);
/* Lets the peak count from now on. Where the kernel forbids it, the peak stays what it is. */
void load_process_reset_peak(pid_t pid);

#endif
