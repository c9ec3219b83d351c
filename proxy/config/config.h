/*
 * From an INI file to a snapshot: read, substitute, check every key against the key table, build.
 *
 * All or nothing: on any error no snapshot comes out, every error is listed. Pure of the loop; any
 * thread, one at a time.
 */
#ifndef TRIBUTARY_CONFIG_CONFIG_H
#define TRIBUTARY_CONFIG_CONFIG_H

#include "proxy/base/strbuf.h"
#include "proxy/call/snapshot.h"

struct config_result {
    struct snapshot *snapshot; /* NULL on errors; the caller's reference */
    struct strbuf
        errors; /* a line each: "FILE:LINE: [section] key: what is wrong and what would be right" */
    unsigned error_count;
};

/* Read and build; statistics entries stay NULL (the server binds them). `old`: the running
 * snapshot, for what a reload can't change (workers, admin, probe, addresses of existing
 * listeners): those keep the old value and are named in *kept (may be NULL). */
void config_load(const char *file, const struct snapshot *old, struct config_result *result,
                 struct strbuf *kept);
/* The same from memory; `file` is only the name in messages. */
void config_load_text(const char *file, struct text bytes, const struct snapshot *old,
                      struct config_result *result, struct strbuf *kept);
void config_result_fini(struct config_result *result); /* not the snapshot */

/* The effective configuration, defaults included, as an INI file that reads back the same. secrets:
 * hide key file names? No value of this file is secret but those marked so in the key table; hidden
 * ones print as "(hidden)". */
void config_print(const struct snapshot *snapshot, bool hide_secrets, struct strbuf *out);

/* What the watcher watches: the file's real path and every link and directory on the way
 * (ConfigMap's ..data). */
struct config_identity {
    uint64_t device, inode, mtime_ns, size;
};
bool config_identify(const char *file,
                     struct config_identity *identity); /* follows links; false when unreadable */

#endif
