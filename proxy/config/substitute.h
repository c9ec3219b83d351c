/*
 * ${NAME} and ${NAME:-default} in values, from the environment. As in a shell, a variable that is
 * set but empty counts as not set. A default may not contain "}" or another "${".
 */
#ifndef TRIBUTARY_CONFIG_SUBSTITUTE_H
#define TRIBUTARY_CONFIG_SUBSTITUTE_H

#include "proxy/base/arena.h"
#include "proxy/base/strbuf.h"

/* The value with all of them replaced (in the arena, trimmed), or false and the reason appended to
 * `why`. */
bool substitute(struct arena *arena, struct text value, struct text *out, struct strbuf *why);

#endif
