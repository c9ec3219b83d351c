/*
 * The command line (design.md, section 2). Each option is one verb; without any the proxy runs.
 */
#include <getopt.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>

#include "proxy/config/config.h"
#include "proxy/explain.h"
#include "proxy/probe.h"
#include "proxy/server.h"

static const char USAGE[] =
    "usage: tributary [-c FILE] [--check] [--print-config] [--explain /SERVICE/METHOD]\n"
    "                 [--probe live|ready] [--version] [--help]\n"
    "\n"
    "  -c FILE            configuration (default /etc/tributary/tributary.ini)\n"
    "  --check            load the file as a start would, print every error, exit 1 on any\n"
    "  --print-config     print the effective configuration, defaults included\n"
    "  --explain PATH     say which route, upstream, wire form and path a call would take, and "
    "why\n"
    "  --probe live|ready ask the running proxy; exit 0 when it is\n"
    "  --version          print the version\n"
    "\n"
    "signals: HUP reload, TERM drain, INT or a second TERM stop now, USR1 reopen log files\n"
    "exit codes: 0 stopped as asked, 1 bad configuration, 2 could not start\n";

enum verb { VERB_RUN, VERB_CHECK, VERB_PRINT, VERB_EXPLAIN, VERB_PROBE };

struct options {
    const char *file;
    enum verb verb;
    const char *argument;
};

static void
set_verb(struct options *options, enum verb verb, const char *argument)
{
    options->verb = verb;
    options->argument = argument;
}

static void
parse(int argc, char **argv, struct options *options)
{
    static const struct option known[] = {
        {"config", required_argument, NULL, 'c'}, {"check", no_argument, NULL, 'k'},
        {"print-config", no_argument, NULL, 'p'}, {"explain", required_argument, NULL, 'e'},
        {"probe", required_argument, NULL, 'b'},  {"version", no_argument, NULL, 'v'},
        {"help", no_argument, NULL, 'h'},         {NULL, 0, NULL, 0},
    };
    int option;
    while ((option = getopt_long(argc, argv, "c:h", known, NULL)) != -1) {
        switch (option) {
        case 'c':
            options->file = optarg;
            break;
        case 'k':
            set_verb(options, VERB_CHECK, NULL);
            break;
        case 'p':
            set_verb(options, VERB_PRINT, NULL);
            break;
        case 'e':
            set_verb(options, VERB_EXPLAIN, optarg);
            break;
        case 'b':
            set_verb(options, VERB_PROBE, optarg);
            break;
        case 'v':
            printf("tributary %s\n", TRIBUTARY_VERSION);
            exit(0);
        case 'h':
            fputs(USAGE, stdout);
            exit(0);
        default:
            fputs(USAGE, stderr);
            exit(EXIT_BAD_CONFIG);
        }
    }
    if (optind < argc) {
        fprintf(stderr, "tributary: unexpected argument %s\n%s", argv[optind], USAGE);
        exit(EXIT_BAD_CONFIG);
    }
}

/* Load for a verb that only looks: errors go to stderr. NULL on any. */
static struct snapshot *
load(const char *file)
{
    struct config_result result;
    config_load(file, NULL, &result, NULL);
    if (!result.snapshot)
        fputs(strbuf_text(&result.errors).ptr, stderr);
    config_result_fini(&result);
    return result.snapshot;
}

static int
run_verb(const struct options *options)
{
    if (options->verb == VERB_RUN)
        return server_run(options->file);
    struct snapshot *snapshot = load(options->file);
    if (!snapshot)
        return EXIT_BAD_CONFIG;
    int code = 0;
    struct strbuf out = STRBUF_INIT;
    if (options->verb == VERB_CHECK)
        strbuf_addf(&out, "%s: ok\n", options->file);
    else if (options->verb == VERB_PRINT)
        config_print(snapshot, false, &out);
    else if (options->verb == VERB_EXPLAIN)
        code = explain_call(snapshot, text_of(options->argument), &out);
    else
        code = probe_running(snapshot, text_of(options->argument), &out);
    if (out.len > 0)
        fwrite(out.data, 1, out.len, stdout);
    strbuf_fini(&out);
    snapshot_unref(snapshot);
    return code;
}

/* One heap for all threads. They have free lists of their own (slab.h, chunk.h) and seldom ask it;
 * a heap a thread, as glibc makes them, costs memory and grows by one mprotect a page. */
static void
share_heap(void)
{
#ifdef M_ARENA_MAX
    mallopt(M_ARENA_MAX, 1);
#endif
}

int
main(int argc, char **argv)
{
    share_heap();
    struct options options = {.file = "/etc/tributary/tributary.ini", .verb = VERB_RUN};
    parse(argc, argv, &options);
    return run_verb(&options);
}
