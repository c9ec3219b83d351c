/*
 * What the machine, or the container, gives this process: cores by affinity and cgroup quota,
 * memory by cgroup limit. Read when a configuration says `auto`. cgroup v2 and v1; limits of all
 * parent groups count.
 */
#ifndef TRIBUTARY_CONFIG_MACHINE_H
#define TRIBUTARY_CONFIG_MACHINE_H

#include <stdint.h>

/* `root`: prefix of /proc and /sys/fs/cgroup, "" outside of tests. */
unsigned machine_cores(const char *root); /* whole cores, at least 1 */
uint64_t machine_memory_bytes(
    const char *root); /* the least of all limits and the memory there is; 0 when unknown */
uint64_t machine_buffer_budget(const char *root); /* a quarter of that, at least 1M, at most 256M */

#endif
