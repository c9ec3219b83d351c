/*
 * A snapshot that is being built, with the sections it is built from: every key read, checked on
 * its own and defaulted, nothing yet known about how they fit together (validate.c) or what a
 * reload may change (config.c).
 */
#ifndef TRIBUTARY_CONFIG_DRAFT_H
#define TRIBUTARY_CONFIG_DRAFT_H

#include "proxy/call/snapshot.h"
#include "proxy/config/complaints.h"
#include "proxy/config/ini_file.h"
#include "proxy/config/keys.h"

struct draft {
    const char *path;              /* of the file, for messages; not owned */
    const struct ini_file *file;   /* not owned */
    struct complaints *complaints; /* not owned */
    struct snapshot *snapshot;     /* not owned */
    /* By the index of what they made in the snapshot; arrays owned. proxy: NULL when the file has
     * none. */
    const struct ini_section *proxy, **listeners, **upstreams, **routes, **filters;
};

void draft_fini(struct draft *draft); /* the arrays */

/* A complaint at the line of `key` in `section`, at the section's own line when it does not stand
 * there. */
__attribute__((format(printf, 4, 5))) void
draft_complain(const struct draft *draft, const struct ini_section *section, const char *key,
               const char *format, ...);
/* The same at the line of the entry that holds `item`, for keys that repeat. */
__attribute__((format(printf, 5, 6))) void
draft_complain_item(const struct draft *draft, const struct ini_section *section, const char *key,
                    struct text item, const char *format, ...);
/* The values of all entries of that key, substituted, in the snapshot's arena; NULL when one cannot
 * be (complained). */
struct text *draft_values(const struct draft *draft, const struct ini_section *section,
                          const char *key, unsigned *count);

#endif
