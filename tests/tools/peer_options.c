/* See peer_options.h. */
#include "peer_options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *program_name;

static _Noreturn void
usage_error(const char *option, const char *what)
{
    fprintf(stderr, "%s: --%s: %s (see --help)\n", program_name, option, what);
    exit(2);
}

static _Noreturn void
print_help(const struct peer_option *options, size_t count)
{
    printf("usage: %s [options]\n", program_name);
    for (size_t i = 0; i < count; i++) {
        const struct peer_option *o = &options[i];
        static const char *const arguments[] = {"", " on|off", " N", " N", " TEXT", "", " TEXT"};
        char left[64];
        snprintf(left, sizeof left, "--%s%s%s", o->name,
                 o->kind == PEER_OPTION_CHOICE ? " " : arguments[o->kind],
                 o->kind == PEER_OPTION_CHOICE ? o->choices : "");
        printf("  %-34s %s\n", left, o->help);
    }
    exit(0);
}

bool
peer_options_number(const char *text, long *value)
{
    char *end;
    *value = strtol(text, &end, 10);
    if (end == text)
        return false;
    if (*end == 'K' || *end == 'M' || *end == 'G') {
        *value *= *end == 'K' ? 1024L : *end == 'M' ? 1024L * 1024 : 1024L * 1024 * 1024;
        end++;
    }
    return *end == '\0';
}

static int
choice_of(const char *choices, const char *value)
{
    size_t len = strlen(value);
    for (int index = 0; choices; index++) {
        const char *end = strchr(choices, '|');
        size_t n = end ? (size_t)(end - choices) : strlen(choices);
        if (n == len && memcmp(choices, value, len) == 0)
            return index;
        choices = end ? end + 1 : NULL;
    }
    return -1;
}

static void
set_value(const struct peer_option *o, const char *value)
{
    struct peer_option_list *list = o->place;
    char *end;
    switch (o->kind) {
    case PEER_OPTION_FLAG:
        usage_error(o->name, "takes no value");
    case PEER_OPTION_SWITCH:
    case PEER_OPTION_CHOICE: {
        int index = choice_of(o->kind == PEER_OPTION_SWITCH ? "off|on" : o->choices, value);
        if (index < 0)
            usage_error(o->name, "not one of the choices");
        if (o->kind == PEER_OPTION_SWITCH)
            *(bool *)o->place = index == 1;
        else
            *(int *)o->place = index;
        break;
    }
    case PEER_OPTION_NUMBER:
        if (!peer_options_number(value, o->place))
            usage_error(o->name, "not a number");
        break;
    case PEER_OPTION_REAL:
        *(double *)o->place = strtod(value, &end);
        if (end == value || *end)
            usage_error(o->name, "not a number");
        break;
    case PEER_OPTION_TEXT:
        *(const char **)o->place = value;
        break;
    case PEER_OPTION_LIST:
        if (list->count == PEER_OPTION_LIST_MAX)
            usage_error(o->name, "given too often");
        list->items[list->count++] = value;
        break;
    }
}

static const struct peer_option *
find_option(const struct peer_option *options, size_t count, const char *name, size_t len)
{
    for (size_t i = 0; i < count; i++)
        if (strlen(options[i].name) == len && memcmp(options[i].name, name, len) == 0)
            return &options[i];
    return NULL;
}

void
peer_options_parse(const char *program, const struct peer_option *options, size_t count, int argc,
                   char **argv)
{
    program_name = program;
    for (int i = 1; i < argc; i++) {
        const char *name = argv[i] + 2;
        if (strncmp(argv[i], "--", 2) != 0)
            usage_error(argv[i], "options begin with --");
        if (strcmp(name, "help") == 0)
            print_help(options, count);
        const char *value = strchr(name, '=');
        size_t len = value ? (size_t)(value - name) : strlen(name);
        const struct peer_option *o = find_option(options, count, name, len);
        if (!o)
            usage_error(name, "unknown");
        if (value)
            set_value(o, value + 1);
        else if (o->kind == PEER_OPTION_FLAG)
            *(bool *)o->place = true;
        else if (i + 1 < argc)
            set_value(o, argv[++i]);
        else
            usage_error(name, "needs a value");
    }
}
