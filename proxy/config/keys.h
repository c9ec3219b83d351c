/*
 * The key table: every key of the file once, with its section, type, default, range, whether a
 * reload can change it, whether it may repeat, whether its values are secret, and a line of
 * description. Reading, checking, printing and the documentation all go by it.
 *
 * Does not read or write values (assign.c), knows no rule between keys (validate.c). The keys of
 * [filter NAME] sections are their types' own (call/filter.h).
 */
#ifndef TRIBUTARY_CONFIG_KEYS_H
#define TRIBUTARY_CONFIG_KEYS_H

#include <stddef.h>

#include "proxy/base/strbuf.h"

enum key_section {
    SECTION_PROXY,
    SECTION_LISTENER,
    SECTION_UPSTREAM,
    SECTION_ROUTE,
    SECTION_FILTER,
    SECTION_COUNT
};

/* What a value looks like, and what it is stored as at `offset`. */
enum key_type {
    KEY_TEXT,       /* struct text, any value */
    KEY_FIELD_TEXT, /* struct text that can stand in a header field: visible ASCII and blanks */
    KEY_LOG,        /* struct text: stdout, stderr or a path with a '/' in it */
    KEY_ACCESS_LOG, /* the same or "off" */
    KEY_FILE,       /* struct text: a path; readable */
    KEY_REFERENCE,  /* struct text: a section's name */
    KEY_LISTEN,     /* struct text: an address to listen on */
    KEY_BOOL,       /* bool */
    KEY_NUMBER,     /* uint32_t, in [min, max] */
    KEY_SIZE,       /* uint64_t bytes, in [min, max] */
    KEY_SIZE32,     /* uint32_t bytes, in [min, max] */
    KEY_DURATION,   /* uint64_t ns, in [min, max] */
    KEY_RATE,       /* uint32_t count at offset, uint64_t window ns at `count_offset` */
    KEY_SHARE,      /* uint32_t, of 10000 */
    KEY_MODE,       /* uint32_t permission bits */
    KEY_CHOICE,     /* an enum, the index in `choices` */
    KEY_WORKERS, /* unsigned; "auto" sets the bool at `count_offset` and takes the cores there are
                  */
    KEY_BUDGET,  /* uint64_t bytes; "auto" likewise: a quarter of the memory */
    KEY_TEXTS,   /* struct text * and an unsigned at `count_offset`; commas, or the key repeated */
    KEY_LISTENS, /* the same, addresses to listen on */
    KEY_FIELDS,  /* struct field * and its count: "name: value", one each time */
    KEY_CONDITIONS, /* struct header_condition * and its count: "name: value" or "name", one each
                       time */
};

enum key_flag {
    KEY_REPEATS = 1,  /* may stand several times in a section */
    KEY_REQUIRED = 2, /* no default, must not be empty */
    KEY_RESTART = 4,  /* a reload keeps the old value */
    KEY_SECRET = 8,   /* values are hidden in /config */
};

struct config_key {
    enum key_section section;
    const char *name;
    enum key_type type;
    const char *fallback;        /* the default as it would be written; "" for none */
    const char *help;            /* one line */
    uint64_t min, max;           /* inclusive, where the type has a range */
    const char *const *choices;  /* NULL-terminated, in the order of the enum */
    size_t offset, count_offset; /* in proxy_conf, listener_conf, upstream_conf or route */
    unsigned flags;              /* enum key_flag */
};

extern const struct config_key keys_table[]; /* by section, in the order of printing */
extern const unsigned keys_count;

const char *keys_section_name(enum key_section section); /* "proxy", … */
/* SECTION_COUNT when there is no such kind. */
enum key_section keys_section_of(struct text kind);
const struct config_key *keys_find(enum key_section section, struct text name);
/* The nearest name for "did you mean", NULL when none is near. `names` of `count`. */
const char *keys_nearest(struct text name, const char *const *names, unsigned count);
/* Appends what would be right instead of an unknown key: a near name, the section it belongs to, or
 * all names. */
void keys_suggest(enum key_section section, struct text name, struct strbuf *out);

#endif
