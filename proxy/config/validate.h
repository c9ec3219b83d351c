/*
 * How the parts of a configuration fit together: references between sections, rules between keys,
 * files that must be readable, routes that would hide one another. Also settles the few values that
 * depend on other keys.
 */
#ifndef TRIBUTARY_CONFIG_VALIDATE_H
#define TRIBUTARY_CONFIG_VALIDATE_H

#include "proxy/config/draft.h"

/* What is wrong becomes complaints. References (route -> upstream, filters) are filled where they
 * can be. */
void validate(const struct draft *draft);

#endif
