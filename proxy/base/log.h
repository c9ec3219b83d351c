/*
 * Log lines: one write(2) a line, logfmt or JSON, to stdout, stderr or a file that can be reopened
 * (USR1). Any thread. Lines of one call site are limited to a burst and then counted
 * ("suppressed=N") so that a fault in the field cannot fill a disk (debug lines are not limited); a
 * full disk, a closed pipe or one whose reader stands still loses lines ("lost=N" on the next),
 * never the process. Before log_open() lines go to stderr from info on.
 */
#ifndef TRIBUTARY_BASE_LOG_H
#define TRIBUTARY_BASE_LOG_H

#include <stdbool.h>

#include "proxy/base/text.h"

enum log_level { LOG_LEVEL_DEBUG, LOG_LEVEL_INFO, LOG_LEVEL_WARN, LOG_LEVEL_ERROR };
enum log_format { LOG_LOGFMT, LOG_JSON };

/* Where lines go: "stdout", "stderr" or a path (opened for append, 0644). */
struct log_sink;

/* 0 or a negative errno with nothing changed. Sinks "stdout"/"stderr" never fail. NULL: "off". May
 * be called again to change them. Ignores SIGPIPE. */
int log_open(const char *target, enum log_format format, enum log_level level);
int log_open_access(const char *target); /* "off" closes it; shares the format */
void log_reopen(void);                   /* files only; on failure the old file stays */
void log_close(void);
bool log_enabled(enum log_level level);
bool log_access_enabled(void);

/* tag: the stem of the file that logs. Message: short lower-case prose; pairs: "key", value …
 * inside the format. */
__attribute__((format(printf, 3, 4))) void
log_line(enum log_level level, const char *tag, const char *format, ...);
/* One member of an access line. Values are cut at 2000 bytes. */
struct log_pair {
    const char *key;
    struct text value;
    bool number; /* unquoted in JSON */
};
/* One access line: the time, then these. Not limited. */
void log_access(const struct log_pair *pairs, unsigned count);

#define log_debug(tag, ...)                                                                        \
    (log_enabled(LOG_LEVEL_DEBUG) ? log_line(LOG_LEVEL_DEBUG, tag, __VA_ARGS__) : (void)0)
#define log_info(tag, ...) log_line(LOG_LEVEL_INFO, tag, __VA_ARGS__)
#define log_warn(tag, ...) log_line(LOG_LEVEL_WARN, tag, __VA_ARGS__)
#define log_error(tag, ...) log_line(LOG_LEVEL_ERROR, tag, __VA_ARGS__)

#endif
