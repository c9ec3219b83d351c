/*
 * Configurations of arbitrary bytes. Either there are errors and no snapshot, or a snapshot whose
 * printed form loads and prints the same. Error lines all carry the file's name. Routes of what
 * loads can be asked for any path.
 */
#include "fuzz.h"

#include "proxy/base/mem.h"
#include "proxy/call/filter.h"
#include "proxy/call/module.h"
#include "proxy/call/routes.h"
#include "proxy/config/config.h"

static const struct filter_key KEYS[] = {
    {"number", FILTER_KEY_NUMBER, "1", "a number", false},
    {"texts", FILTER_KEY_TEXT, "", "texts", true},
    {"rate", FILTER_KEY_RATE, "off", "a rate", false},
    {NULL, FILTER_KEY_TEXT, NULL, NULL, false},
};

static void *
compile(struct arena *arena, const struct filter_value *values, unsigned count,
        struct strbuf *error)
{
    (void)values;
    (void)count;
    (void)error;
    return arena_alloc(arena, 1);
}

static const struct filter_type TYPE = {
    .name = "any", .help = "for fuzzing", .keys = KEYS, .compile = compile};

const struct filter_type *const filter_types[] = {&TYPE, NULL};

static void
check_errors(const struct config_result *result)
{
    struct text rest = strbuf_text(&result->errors);
    check(result->error_count > 0 && rest.len > 0);
    while (rest.len) {
        ptrdiff_t end = text_find(rest, '\n', 0);
        check(end >= 0 && text_starts(rest, TEXT("f.ini:")));
        rest = text_from(rest, (size_t)end + 1);
    }
}

static struct snapshot *
load(struct text bytes)
{
    struct config_result result;
    config_load_text("f.ini", bytes, NULL, &result, NULL);
    if (result.snapshot)
        check(result.error_count == 0 && result.errors.len == 0);
    else
        check_errors(&result);
    config_result_fini(&result);
    return result.snapshot;
}

static void
check_reads_back(const struct snapshot *snapshot)
{
    struct strbuf first = STRBUF_INIT, second = STRBUF_INIT;
    config_print(snapshot, false, &first);
    struct snapshot *again = load(strbuf_text(&first));
    check(again != NULL);
    config_print(again, false, &second);
    check(text_eq(strbuf_text(&first), strbuf_text(&second)));
    snapshot_unref(again);
    strbuf_fini(&first);
    strbuf_fini(&second);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct text bytes = text_make(data, size);
    setenv("FUZZ_ODD", " a;b\t", 1);
    unsetenv("FUZZ_NONE");
    struct snapshot *snapshot = load(bytes);
    if (!snapshot)
        return 0;
    check_reads_back(snapshot);
    struct route_query query = {.path = bytes};
    const struct route *route = routes_find(snapshot, &query);
    check(!route || route->upstream);
    for (unsigned i = 0; i < snapshot->route_count; i++) {
        query.path = snapshot->routes[i].matches[0];
        routes_find(snapshot, &query);
    }
    snapshot_unref(snapshot);
    return 0;
}
