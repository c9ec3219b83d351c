/* Time: nanoseconds of CLOCK_MONOTONIC, never 0; wall time only for logs. */
#ifndef TRIBUTARY_BASE_CLOCK_H
#define TRIBUTARY_BASE_CLOCK_H

#include <stdint.h>

#define NS_PER_US ((uint64_t)1000)
#define NS_PER_MS ((uint64_t)1000000)
#define NS_PER_S ((uint64_t)1000000000)

uint64_t clock_now_ns(void);
/* RFC 3339 in UTC with milliseconds, into `text` of at least 25 bytes. */
void clock_wall(char *text, unsigned long bytes);

#endif
