/* The step from a read file to a filled draft. */
#ifndef TRIBUTARY_CONFIG_DRAFT_BUILD_H
#define TRIBUTARY_CONFIG_DRAFT_BUILD_H

#include "proxy/config/draft.h"

/* Fills draft->snapshot (fresh from snapshot_new()) from draft->file. Errors are complaints; all
 * sections are read. */
void draft_build(struct draft *draft);

#endif
