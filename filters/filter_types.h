/* What each file of this folder defines. */
#ifndef TRIBUTARY_FILTERS_FILTER_TYPES_H
#define TRIBUTARY_FILTERS_FILTER_TYPES_H

#include "proxy/call/filter.h"

extern const struct filter_type headers_filter;
extern const struct filter_type rate_limit_filter;

#endif
