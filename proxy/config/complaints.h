/*
 * What is wrong with a configuration: every error, in the order of the file, one line each.
 *
 * Owns the messages until they are rendered. Does not decide what is wrong, and knows no keys.
 */
#ifndef TRIBUTARY_CONFIG_COMPLAINTS_H
#define TRIBUTARY_CONFIG_COMPLAINTS_H

#include "proxy/base/strbuf.h"

struct complaint {
    unsigned line;
    unsigned order; /* of arrival, so that sorting by line is stable */
    char *message;  /* "[section] key: …", owned */
};

struct complaints {
    struct complaint *items;
    unsigned count, cap;
    unsigned dropped; /* over COMPLAINTS_MAX: counted only */
};

enum { COMPLAINTS_MAX = 200 };

void complaints_fini(struct complaints *complaints);
/* `section` is the text between the brackets, empty for the file as a whole; `key` may be empty. */
__attribute__((format(printf, 5, 6))) void
complaints_add(struct complaints *complaints, unsigned line, struct text section, struct text key,
               const char *format, ...);
unsigned complaints_count(const struct complaints *complaints);
/* Lines "FILE:LINE: …", sorted by line. */
void complaints_render(struct complaints *complaints, const char *file, struct strbuf *out);

#endif
