/*
 * Command lines of the tools: one table per program that is the source of name, kind, place and
 * help text. "--name value" and "--name=value"; sizes with K, M, G.
 */
#ifndef TOOLS_PEER_OPTIONS_H
#define TOOLS_PEER_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

enum peer_option_kind {
    PEER_OPTION_FLAG,   /* bool; takes no value */
    PEER_OPTION_SWITCH, /* bool; on or off */
    PEER_OPTION_NUMBER, /* long, with K, M, G */
    PEER_OPTION_REAL,   /* double */
    PEER_OPTION_TEXT,   /* const char * */
    PEER_OPTION_CHOICE, /* int: index in "one|two|three" */
    PEER_OPTION_LIST,   /* struct peer_option_list; may repeat */
};

#define PEER_OPTION_LIST_MAX 32
struct peer_option_list {
    const char *items[PEER_OPTION_LIST_MAX];
    int count;
};

struct peer_option {
    const char *name;
    enum peer_option_kind kind;
    void *place;
    const char *choices;
    const char *help;
};

/* Fills the places. On --help prints the table and exits 0; on an error says so and exits 2. */
void peer_options_parse(const char *program, const struct peer_option *options, size_t count,
                        int argc, char **argv);
/* Reads a number with K, M, G. False when it is none. */
bool peer_options_number(const char *text, long *value);

#endif
