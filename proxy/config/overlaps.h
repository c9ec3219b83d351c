/* Routes that could never be told apart: the same match under equal conditions. */
#ifndef TRIBUTARY_CONFIG_OVERLAPS_H
#define TRIBUTARY_CONFIG_OVERLAPS_H

#include "proxy/config/draft.h"

/* A complaint at each later one that names the earlier. */
void overlaps_check(const struct draft *draft);

#endif
