/*
 * The spellings of values: numbers, durations, sizes, rates, shares, booleans, and back again.
 *
 * Strict: no sign, no leading zero, no exponent, no blank inside, a unit where a unit belongs. Each
 * values_add_X() writes what values_X() reads, in the largest unit that loses nothing. Pure
 * functions.
 */
#ifndef TRIBUTARY_CONFIG_VALUES_H
#define TRIBUTARY_CONFIG_VALUES_H

#include "proxy/base/strbuf.h"

enum { VALUES_SHARE_ALL = 10000 }; /* a share of 100 % */

/* True and the value, or false: *out is untouched then. */
bool values_number(struct text text, uint64_t *number);
bool values_duration(struct text text, uint64_t *ns); /* 5us 250ms 3s 2m 1h; at most 10 years */
bool values_size(struct text text, uint64_t *bytes);  /* 512 64K 8M 1G */
bool values_bool(struct text text, bool *on);         /* on off */
bool values_rate(struct text text, uint64_t *count, uint64_t *window_ns); /* 2000/10s; off = 0 */
bool values_share(struct text text, uint32_t *share); /* on off 10% 0.5%; of VALUES_SHARE_ALL */
bool values_mode(struct text text, uint32_t *mode);   /* 0660: permission bits */

void values_add_duration(struct strbuf *out, uint64_t ns);
void values_add_size(struct strbuf *out, uint64_t bytes);
void values_add_rate(struct strbuf *out, uint64_t count, uint64_t window_ns);
void values_add_share(struct strbuf *out, uint32_t share);

#endif
