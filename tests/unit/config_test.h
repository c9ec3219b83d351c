/* What the tests of config/ share: loading from text, one filter type to configure, a file in a
 * folder of its own. */
#ifndef TRIBUTARY_TESTS_CONFIG_TEST_H
#define TRIBUTARY_TESTS_CONFIG_TEST_H

#include "proxy/config/config.h"
#include "tests/unit/unit.h"

/* The least that loads: a listener, an upstream, a route; texts to build others on. */
#define LISTENER_MAIN "[listener main]\naddress = 127.0.0.1:17000\n"
#define UPSTREAM_GREETER "[upstream greeter]\nendpoints = 127.0.0.1:20000\n"
#define ROUTE_GREET "[route greet]\nmatch = /greet.GreetService/*\nupstream = greeter\n"
#define MINIMAL LISTENER_MAIN UPSTREAM_GREETER ROUTE_GREET

/* A snapshot (the caller's reference) from text named "t.ini"; fails the test with the errors when
 * there are any. */
struct snapshot *config_test_load(const char *text);
/* The errors of text named "t.ini" as one string to free with mem_free(); "" when it loads. */
char *config_test_errors(const char *text);
/* Fails unless the errors of `text` are exactly `expected` (all lines). */
void config_test_expect(const char *text, const char *expected, const char *file, int line);
#define expect_errors(text, expected) config_test_expect(text, expected, __FILE__, __LINE__)
/* Fails unless the errors of `text` contain `part`. */
void config_test_contains(const char *text, const char *part, const char *file, int line);
#define expect_error(text, part) config_test_contains(text, part, __FILE__, __LINE__)
/* config_print() as a string to free with mem_free(). */
char *config_test_print(const struct snapshot *snapshot, bool hide_secrets);
/* Writes `bytes` to NAME in a fresh folder below TMPDIR that the process's end removes; the path,
 * static. */
const char *config_test_file(const char *name, const void *bytes, size_t len);

/* The filter type "limit": rate (required), burst = 10, label (repeats). compile() gives this. */
struct config_test_limit {
    uint64_t rate, window_ns, burst;
    unsigned labels;
};

#endif
