/*
 * discovery = file: a file with an endpoint a line, read again when it changes.
 *
 * A line is what `endpoints` takes; blank lines and those that begin with # or ; are skipped. A
 * file that cannot be read, has a line that is no endpoint, or names none at all changes nothing:
 * writers truncate before they write.
 */
#ifndef TRIBUTARY_UPSTREAM_RESOLVER_FILE_H
#define TRIBUTARY_UPSTREAM_RESOLVER_FILE_H

#include <stdint.h>
#include <sys/stat.h>

#include "proxy/base/strbuf.h"

struct resolver_file {
    char *path;
    struct stat seen; /* as it was when last read; zeroed: not there */
    bool tried;       /* it was read, or found not to be there, at least once */
    struct strbuf content;
    struct text *endpoints; /* in content: those of the last good reading */
    unsigned count;
};

void resolver_file_init(struct resolver_file *file, struct text path);
void resolver_file_fini(struct resolver_file *file);
/* Reads it if it has changed. True: the endpoints are new. A bad file is logged, once per change:
 * `upstream` is for the message. */
bool resolver_file_refresh(struct resolver_file *file, const char *upstream);

#endif
