/*
 * One key's values into the field that the key table names, and back into lines of an INI file.
 *
 * Knows types, not rules between keys. What assign_print() writes, assign() reads back as the same.
 */
#ifndef TRIBUTARY_CONFIG_ASSIGN_H
#define TRIBUTARY_CONFIG_ASSIGN_H

#include "proxy/base/arena.h"
#include "proxy/config/keys.h"

/*
 * `values`: of all entries of the key, in the order of the file, at least one, trimmed,
 * substituted; they must live as long as `target`, the structure that key->section fills. Lists are
 * made in `arena`. False: the reason, and what would be right, is appended to `why`, and *target
 * may be half filled.
 */
bool assign(const struct config_key *key, const struct text *values, unsigned count, void *target,
            struct arena *arena, struct strbuf *why);
/* "key = value", a line each time it repeats. */
void assign_print(const struct config_key *key, const void *target, bool hide_secrets,
                  struct strbuf *out);

#endif
