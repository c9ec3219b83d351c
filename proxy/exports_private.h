/* What exports*.c share: which endpoints count as usable, and what the kernel says of the process.
 */
#ifndef TRIBUTARY_EXPORTS_PRIVATE_H
#define TRIBUTARY_EXPORTS_PRIVATE_H

#include "proxy/exports.h"

struct exports_process {
    uint64_t resident_bytes, virtual_bytes;
    double cpu_s;   /* user and system, all threads */
    double start_s; /* since the epoch */
    uint64_t open_fds, max_fds;
};

/* What cannot be read (no /proc) stays 0. Main thread only. */
void exports_process(const struct server *server, struct exports_process *process);
/* Whether a call could be given to it: it's in the newest configuration and neither in backoff nor
 * ejected. One that has not been dialled yet counts. */
bool exports_endpoint_usable(const struct endpoint_cells *sum);
/* Whether the newest configuration has a route with these cells. */
bool exports_has_route(const struct server *server, const struct stats_entry *entry);
/* The name under which a status is counted; the cell behind the last code counts all others. */
struct text exports_status_name(unsigned cell);

#endif
