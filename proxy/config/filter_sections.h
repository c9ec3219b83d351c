/*
 * [filter NAME] sections: `type` and the type's own keys, parsed by their kinds and compiled by the
 * type. The types come from filters/ through call/module.h; which there are is none of config's
 * business.
 */
#ifndef TRIBUTARY_CONFIG_FILTER_SECTIONS_H
#define TRIBUTARY_CONFIG_FILTER_SECTIONS_H

#include "proxy/config/draft.h"

/* Fills type, settings and values of *filter (its name is set); what is wrong becomes complaints.
 */
void filter_sections_fill(const struct draft *draft, const struct ini_section *section,
                          struct filter_conf *filter);
/* Its keys as lines, `type` first; what was left out with its default. */
void filter_sections_print(const struct filter_conf *filter, struct strbuf *out);

#endif
