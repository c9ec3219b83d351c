/* The list of all filter types, in the order in which the key table shows them. A new filter is a
 * file and a line here. */
#include "filters/filter_types.h"

#include "proxy/call/module.h"

const struct filter_type *const filter_types[] = {&headers_filter, &rate_limit_filter, NULL};
