/* The key table: that each entry is sound, and what it suggests for words that are no keys. */
#include "tests/unit/config_test.h"

#include "proxy/base/mem.h"
#include "proxy/config/assign.h"
#include "proxy/config/keys.h"

static void
names_are_unique_in_their_section(void **state)
{
    (void)state;
    for (unsigned i = 0; i < keys_count; i++)
        assert_ptr_equal(keys_find(keys_table[i].section, text_of(keys_table[i].name)),
                         &keys_table[i]);
}

static void
every_key_is_described_in_a_line(void **state)
{
    (void)state;
    for (unsigned i = 0; i < keys_count; i++) {
        assert_non_null(keys_table[i].help);
        assert_true(strlen(keys_table[i].help) > 5);
        assert_null(
            strpbrk(keys_table[i].help, "\n\r|")); /* goes into a comment and a Markdown table */
    }
}

static bool
has_range(enum key_type type)
{
    return type == KEY_NUMBER || type == KEY_SIZE || type == KEY_SIZE32 || type == KEY_DURATION ||
           type == KEY_WORKERS || type == KEY_BUDGET || type == KEY_RATE;
}

static void
types_have_what_they_need(void **state)
{
    (void)state;
    for (unsigned i = 0; i < keys_count; i++) {
        const struct config_key *key = &keys_table[i];
        assert_int_equal(key->choices != NULL, key->type == KEY_CHOICE);
        assert_int_equal(key->max > 0, has_range(key->type));
        if (key->type == KEY_NUMBER || key->type == KEY_SIZE32 || key->type == KEY_RATE)
            assert_true(key->max <= UINT32_MAX);
        if (key->flags & KEY_REQUIRED)
            assert_string_equal(key->fallback, "");
    }
}

/* Room for any of the structures that the table points into. */
union target {
    struct proxy_conf proxy;
    struct listener_conf listener;
    struct upstream_conf upstream;
    struct route route;
};

static void
defaults_are_printed_as_they_are_written(void **state)
{
    struct arena arena;
    (void)state;
    arena_init(&arena, NULL, 0);
    for (unsigned i = 0; i < keys_count; i++) {
        const struct config_key *key = &keys_table[i];
        struct text fallback = text_of(key->fallback);
        struct strbuf why = STRBUF_INIT, printed = STRBUF_INIT, expected = STRBUF_INIT;
        union target target = {.proxy = {.workers = 0}};
        memset(&target, 0, sizeof(target));
        if (fallback.len && !assign(key, &fallback, 1, &target, &arena, &why))
            fail_msg("the default of %s: %s", key->name, why.data);
        assign_print(key, &target, false, &printed);
        strbuf_addf(&expected, "%s =%s%s\n", key->name, fallback.len ? " " : "", key->fallback);
        assert_true(text_ends(strbuf_text(&printed), strbuf_text(&expected)));
        strbuf_fini(&expected);
        strbuf_fini(&printed);
        strbuf_fini(&why);
    }
    arena_fini(&arena);
}

static void
expect_suggestion(enum key_section section, const char *word, const char *expected)
{
    struct strbuf out = STRBUF_INIT;
    keys_suggest(section, text_of(word), &out);
    expect_text(strbuf_text(&out), expected);
    strbuf_fini(&out);
}

static void
near_words_are_suggested(void **state)
{
    (void)state;
    expect_suggestion(SECTION_ROUTE, "tiemout", "did you mean 'timeout'?");
    expect_suggestion(SECTION_ROUTE, "mach", "did you mean 'match'?");
    expect_suggestion(SECTION_ROUTE, "fastpath", "did you mean 'fast_path'?");
    expect_suggestion(SECTION_UPSTREAM, "endpoint", "did you mean 'endpoints'?");
    expect_suggestion(SECTION_LISTENER, "addr",
                      "known here: address, max_connections, max_streams, max_header_list, "
                      "reset_limit, max_connection_age, unix_mode, tls_cert, tls_key, "
                      "tls_client_ca");
    expect_suggestion(SECTION_PROXY, "endpoints", "that key belongs into [upstream NAME]");
    expect_suggestion(SECTION_ROUTE, "workers", "that key belongs into [proxy]");
}

static void
section_names_and_back(void **state)
{
    (void)state;
    for (unsigned i = 0; i < SECTION_COUNT; i++)
        assert_int_equal(keys_section_of(text_of(keys_section_name((enum key_section)i))), i);
    assert_int_equal(keys_section_of(TEXT("Proxy")), SECTION_COUNT);
    assert_int_equal(keys_section_of(TEXT_NONE), SECTION_COUNT);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_unique_in_their_section),
        cmocka_unit_test(every_key_is_described_in_a_line),
        cmocka_unit_test(types_have_what_they_need),
        cmocka_unit_test(defaults_are_printed_as_they_are_written),
        cmocka_unit_test(near_words_are_suggested),
        cmocka_unit_test(section_names_and_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
