/*
 * An INI file as sections and entries with line numbers: syntax only, on inih.
 *
 * A line is empty, a comment (`;` or `#` first), a `[section]` or `[section NAME]`, or `key =
 * value`. A `;` after a blank starts a comment, `;` elsewhere and `#` behind a value do not.
 * Indentation means nothing. Whatever is anything else is a complaint with its line; nothing is
 * cut, continued or dropped in silence.
 *
 * Does not know which sections and keys exist, nor ${NAME}.
 */
#ifndef TRIBUTARY_CONFIG_INI_FILE_H
#define TRIBUTARY_CONFIG_INI_FILE_H

#include "proxy/base/arena.h"
#include "proxy/config/complaints.h"

enum {
    INI_LINE_MAX = 65535,        /* bytes of a line without its end */
    INI_FILE_MAX = 16 * 1048576, /* bytes of a file */
    INI_SECTIONS_MAX = 16384,
    INI_NAME_MAX = 64, /* of a section's NAME: it becomes a metrics label */
};

struct ini_entry {
    struct text key, value; /* value: trimmed, without its comment */
    unsigned line;
};

struct ini_section {
    struct text label, kind,
        name; /* "upstream greeter", "upstream", "greeter"; name may be empty */
    unsigned line;
    struct ini_entry *entries; /* in the order of the file; owned by ini_file */
    unsigned count, cap;
};

struct ini_file {
    struct arena arena; /* all text */
    struct ini_section *sections;
    unsigned count, cap;
};

void ini_file_init(struct ini_file *file);
void ini_file_fini(struct ini_file *file);
/* The bytes of a regular file, up to INI_FILE_MAX. False with a complaint. */
bool ini_file_read(const char *path, struct strbuf *bytes, struct complaints *complaints);
/* Fills *file; `bytes` need not outlive the call. What could be read is there also when there were
 * complaints. */
void ini_file_parse(struct ini_file *file, struct text bytes, struct complaints *complaints);
/* The first entry of that key; NULL when the section has none. */
const struct ini_entry *ini_section_find(const struct ini_section *section, const char *key);

#endif
