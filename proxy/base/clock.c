/* Owns nothing; clock_gettime() on these two clocks cannot fail on Linux and stays in user space.
 */
#include "proxy/base/clock.h"

#include <stdio.h>
#include <time.h>

#include "proxy/base/check.h"

uint64_t
clock_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    uint64_t ns = (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
    return ns | !ns; /* 0 is "not yet" everywhere */
}

void
clock_wall(char *text, unsigned long bytes)
{
    struct timespec now;
    struct tm utc;
    char whole[sizeof("9999-12-31T23:59:59")];
    check(bytes >= 25);
    clock_gettime(CLOCK_REALTIME, &now);
    check(gmtime_r(&now.tv_sec, &utc) != NULL);
    check(strftime(whole, sizeof(whole), "%Y-%m-%dT%H:%M:%S", &utc) > 0);
    snprintf(text, bytes, "%s.%03uZ", whole, (unsigned)((uint64_t)now.tv_nsec / NS_PER_MS % 1000));
}
