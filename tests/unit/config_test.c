/* Helpers of the config tests, and the list of filter types, which in the product filters/ defines.
 */
#include "tests/unit/config_test.h"

#include <unistd.h>

#include "proxy/base/mem.h"
#include "proxy/call/filter.h"
#include "proxy/call/module.h"

static const struct filter_key LIMIT_KEYS[] = {
    {"rate", FILTER_KEY_RATE, NULL, "calls per time, for example 100/1s", false},
    {"burst", FILTER_KEY_NUMBER, "10", "calls at once", false},
    {"label", FILTER_KEY_TEXT, "", "a name", true},
    {NULL, FILTER_KEY_TEXT, NULL, NULL, false},
};

static void *
compile_limit(struct arena *arena, const struct filter_value *values, unsigned count,
              struct strbuf *error)
{
    struct config_test_limit *limit = arena_alloc(arena, sizeof(*limit));
    *limit = (struct config_test_limit){.rate = 0};
    for (unsigned i = 0; i < count; i++) {
        if (values[i].key == &LIMIT_KEYS[0]) {
            limit->rate = values[i].number;
            limit->window_ns = values[i].window_ns;
        } else if (values[i].key == &LIMIT_KEYS[1]) {
            limit->burst = values[i].number;
        } else {
            limit->labels++;
        }
    }
    if (limit->burst > 1000) {
        strbuf_add_str(error, "burst is more than 1000");
        return NULL;
    }
    return limit;
}

static const struct filter_type LIMIT = {
    .name = "limit", .help = "for tests", .keys = LIMIT_KEYS, .compile = compile_limit};

const struct filter_type *const filter_types[] = {&LIMIT, NULL};

struct snapshot *
config_test_load(const char *text)
{
    struct config_result result;
    config_load_text("t.ini", text_of(text), NULL, &result, NULL);
    if (!result.snapshot)
        print_error("%.*s", TEXT_ARGS(strbuf_text(&result.errors)));
    assert_non_null(result.snapshot);
    assert_int_equal(result.error_count, 0);
    config_result_fini(&result);
    return result.snapshot;
}

char *
config_test_errors(const char *text)
{
    struct config_result result;
    config_load_text("t.ini", text_of(text), NULL, &result, NULL);
    assert_int_equal(result.snapshot == NULL, result.error_count > 0);
    if (result.snapshot)
        snapshot_unref(result.snapshot);
    char *errors = strbuf_take(&result.errors);
    config_result_fini(&result);
    return errors;
}

void
config_test_expect(const char *text, const char *expected, const char *file, int line)
{
    char *errors = config_test_errors(text);
    if (strcmp(errors, expected) != 0) {
        print_error("errors:\n%sexpected:\n%s", errors, expected);
        _fail(file, line);
    }
    mem_free(errors);
}

void
config_test_contains(const char *text, const char *part, const char *file, int line)
{
    char *errors = config_test_errors(text);
    if (!strstr(errors, part)) {
        print_error("errors:\n%sdo not contain: %s\n", errors, part);
        _fail(file, line);
    }
    mem_free(errors);
}

char *
config_test_print(const struct snapshot *snapshot, bool hide_secrets)
{
    struct strbuf out = STRBUF_INIT;
    config_print(snapshot, hide_secrets, &out);
    return strbuf_take(&out);
}

static char folder[256];
static char path[512];

static void
remove_folder(void)
{
    char command[600];
    snprintf(command, sizeof(command), "rm -rf -- '%s'", folder);
    if (system(command) != 0)
        print_error("%s is left\n", folder);
}

const char *
config_test_file(const char *name, const void *bytes, size_t len)
{
    if (!folder[0]) {
        const char *base = getenv("TMPDIR");
        snprintf(folder, sizeof(folder), "%s/config-test-XXXXXX", base ? base : "/tmp");
        assert_non_null(mkdtemp(folder));
        atexit(remove_folder);
    }
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, len, file), len);
    assert_int_equal(fclose(file), 0);
    return path;
}
