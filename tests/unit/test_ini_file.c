/* Every line is read exactly as documented or is an error with its line: never cut, continued or
 * dropped. */
#include "tests/unit/unit.h"

#include <unistd.h>

#include "proxy/base/mem.h"
#include "proxy/config/ini_file.h"

struct parsed {
    struct ini_file file;
    struct complaints complaints;
    struct strbuf errors;
};

static void
parse(struct parsed *parsed, struct text bytes)
{
    *parsed = (struct parsed){.errors = STRBUF_INIT};
    ini_file_init(&parsed->file);
    ini_file_parse(&parsed->file, bytes, &parsed->complaints);
    complaints_render(&parsed->complaints, "f", &parsed->errors);
}

static void
fini(struct parsed *parsed)
{
    strbuf_fini(&parsed->errors);
    complaints_fini(&parsed->complaints);
    ini_file_fini(&parsed->file);
}

/* The value of the only entry of the only section of `text`, and the entry's line. */
static void
expect_value_in(struct text text, const char *expected, unsigned line)
{
    struct parsed parsed;
    parse(&parsed, text);
    expect_text(strbuf_text(&parsed.errors), "");
    assert_int_equal(parsed.file.count, 1);
    assert_int_equal(parsed.file.sections[0].count, 1);
    expect_text(parsed.file.sections[0].entries[0].key, "k");
    expect_text(parsed.file.sections[0].entries[0].value, expected);
    assert_int_equal(parsed.file.sections[0].entries[0].line, line);
    fini(&parsed);
}

#define reads(literal, expected, line) expect_value_in(TEXT(literal), expected, line)

static void
expect_wrong_in(struct text text, const char *errors)
{
    struct parsed parsed;
    parse(&parsed, text);
    expect_text(strbuf_text(&parsed.errors), errors);
    fini(&parsed);
}

#define refuses(literal, errors) expect_wrong_in(TEXT(literal), errors)

static void
values_are_not_cut_at_marks(void **state)
{
    (void)state;
    reads("[s]\nk = a:1;b:2\n", "a:1;b:2", 2);
    reads("[s]\nk = #x\n", "#x", 2);
    reads("[s]\nk = a #x\n", "a #x", 2);
    reads("[s]\nk = a = b\n", "a = b", 2);
    reads("[s]\nk == b\n", "= b", 2);
    reads("[s]\nk = a: b\n", "a: b", 2);
    reads("[s]\nk = \"a\"\n", "\"a\"", 2);
    reads("[s]\nk = a\\\n", "a\\", 2);
    reads("[s]\nk=a\n", "a", 2);
    reads("[s]\nk =\n", "", 2);
}

static void
a_semicolon_behind_a_blank_starts_a_comment(void **state)
{
    (void)state;
    reads("[s]\nk = v ; note\n", "v", 2);
    reads("[s]\nk = v\t;note = x\n", "v", 2);
    reads("[s]\nk = ; note\n", "", 2);
    reads("[s] ; note\nk = v\n", "v", 2);
    reads("[s]; note\nk = v\n", "v", 2);
    reads("; [x]\n# [y]\n[s]\n  ; a = b\n\t# c = d\nk = v\n", "v", 6);
}

static void
an_indented_line_is_no_continuation(void **state)
{
    struct parsed parsed;
    (void)state;
    reads("[s]\nk = v\n    ; a comment\n", "v", 2);
    reads("  [s]\n\t k = v\n", "v", 2);
    parse(&parsed, TEXT("[s]\na = 1\n  b = 2\n"));
    expect_text(strbuf_text(&parsed.errors), "");
    assert_int_equal(parsed.file.sections[0].count, 2);
    expect_text(parsed.file.sections[0].entries[1].key, "b");
    fini(&parsed);
    refuses("[s]\nk = v\n  more\n",
            "f:3: [s] 'more' is neither [section] nor key = value nor a comment; an indented line "
            "does not continue the one above\n");
}

static void
line_ends_and_marks_of_other_editors(void **state)
{
    (void)state;
    reads("\xef\xbb\xbf[s]\nk = v\n", "v", 2);
    reads("[s]\r\nk = v\r\n", "v", 2);
    reads("[s]\nk = v", "v", 2);
    reads("[s]\r\nk = v\r", "v", 2);
    reads("\xef\xbb\xbf; c\n\n\n[s]\nk = v", "v", 5);
    reads("[s]\nk = gr\xc3\xbc\xc3\x9f\n", "gr\xc3\xbc\xc3\x9f", 2);
}

static void
what_is_no_text_is_an_error(void **state)
{
    static const char WHY[] = "f:2: [s] a control character or NUL byte; a configuration is text\n";
    (void)state;
    expect_wrong_in(text_make("[s]\nk = a\0b\n", 12), WHY);
    refuses("[s]\nk = a\rb\n", WHY);
    refuses("[s]\nk = a\x1b[0m\n", WHY);
    refuses("[s]\n; \x01 in a comment\n", WHY);
}

static char *
long_line(size_t len)
{
    struct strbuf text = STRBUF_INIT;
    strbuf_add_str(&text, "[s]\nk = ");
    for (size_t i = 4; i < len; i++)
        strbuf_add_char(&text, (char)('a' + i % 26));
    strbuf_add_char(&text, '\n');
    return strbuf_take(&text);
}

static void
long_lines_are_read_whole_or_refused(void **state)
{
    static const size_t LENGTHS[] = {198, 199, 200, 201, 5000, 65534, INI_LINE_MAX};
    (void)state;
    for (unsigned i = 0; i < sizeof(LENGTHS) / sizeof(*LENGTHS); i++) {
        char *text = long_line(LENGTHS[i]);
        struct parsed parsed;
        parse(&parsed, text_of(text));
        expect_text(strbuf_text(&parsed.errors), "");
        assert_int_equal(parsed.file.sections[0].entries[0].value.len, LENGTHS[i] - 4);
        assert_memory_equal(parsed.file.sections[0].entries[0].value.ptr, text + 8, LENGTHS[i] - 4);
        fini(&parsed);
        mem_free(text);
    }
    char *text = long_line(INI_LINE_MAX + 1);
    expect_wrong_in(text_of(text),
                    "f:2: [s] longer than 65535 bytes; repeat the key to spread a list "
                    "over lines\n");
    mem_free(text);
}

static void
section_names_are_not_cut(void **state)
{
    struct parsed parsed;
    (void)state;
    parse(&parsed,
          TEXT("[upstream a23456789.123456789-123456789_123456789A123456789B123456789]\nk = v\n"));
    expect_text(strbuf_text(&parsed.errors), "");
    expect_text(parsed.file.sections[0].kind, "upstream");
    expect_text(parsed.file.sections[0].name,
                "a23456789.123456789-123456789_123456789A123456789B123456789");
    assert_int_equal(parsed.file.sections[0].count, 1);
    fini(&parsed);
}

static void
sections_without_keys_are_there(void **state)
{
    struct parsed parsed;
    (void)state;
    parse(&parsed, TEXT("[a]\n[ b \t c ]\n[d]"));
    expect_text(strbuf_text(&parsed.errors), "");
    assert_int_equal(parsed.file.count, 3);
    expect_text(parsed.file.sections[1].label, "b c");
    assert_int_equal(parsed.file.sections[1].line, 2);
    assert_int_equal(parsed.file.sections[2].line, 3);
    fini(&parsed);
}

static void
headings_are_strict(void **state)
{
    (void)state;
    refuses("[sec\nk = v\n", "f:1: '[sec' has no ']' that closes the section's name\n");
    refuses("[s] x\n", "f:1: text behind ']'; a section's name stands alone on its line\n");
    refuses("[]\n", "f:1: '[]' is no section; write [proxy], or [upstream NAME] with a name of "
                    "letters, digits, '.', '_' and '-', at most 64\n");
    refuses("[a b c]\n", "f:1: '[a b c]' is no section; write [proxy], or [upstream NAME] with a "
                         "name of letters, digits, '.', '_' and '-', at most 64\n");
    refuses("[s]\na = 1\n[s]\nb = 2\n",
            "f:3: [s] is there already, in line 1; merge the two or give one another name\n");
    refuses("[a  x]\n[a x]\n",
            "f:2: [a x] is there already, in line 1; merge the two or give one another name\n");
}

static void
entries_are_strict(void **state)
{
    (void)state;
    refuses("k = v\n[s]\n",
            "f:1: 'k' stands before any section; put it below [proxy] or another\n");
    refuses("[s]\nword\n", "f:2: [s] 'word' is neither [section] nor key = value nor a comment\n");
    refuses("[s]\nk : v\n",
            "f:2: [s] 'k : v' is neither [section] nor key = value nor a comment\n");
    refuses("[s]\nk: a = v\n",
            "f:2: [s] 'k: a = v' is neither [section] nor key = value nor a comment\n");
    refuses("[s]\n= v\n", "f:2: [s] '= v' is neither [section] nor key = value nor a comment\n");
    refuses("[s]\nk ; = v\n", "f:2: [s] 'k' is neither [section] nor key = value nor a comment\n");
    refuses("[s]\na b = v\n",
            "f:2: [s] 'a b = v' is neither [section] nor key = value nor a comment\n");
}

static void
one_mistake_gives_one_error(void **state)
{
    (void)state;
    refuses(
        "[bad name here]\na = 1\nb = 2\n[s]\nc = 3\n",
        "f:1: '[bad name here]' is no section; write [proxy], or [upstream NAME] with a name of "
        "letters, digits, '.', '_' and '-', at most 64\n");
}

/* Feeding it any prefix of a file must not crash, and must not lose what stands in whole lines
 * before. */
static void
every_prefix_of_a_file_is_survived(void **state)
{
    static const char TEXT_OF[] =
        "\xef\xbb\xbf; c\r\n[proxy]\r\nworkers = 2 ; x\n[a b]\nk = v;w\n  l = #\n[x\n";
    (void)state;
    for (size_t len = 0; len < sizeof(TEXT_OF); len++) {
        struct parsed parsed;
        char *copy =
            mem_alloc(len ? len : 1); /* exactly as long: a read past it is seen by the sanitizer */
        memcpy(copy, TEXT_OF, len);
        parse(&parsed, text_make(copy, len));
        assert_int_equal(parsed.file.count, (len >= 15) + (len >= 38));
        fini(&parsed);
        mem_free(copy);
    }
}

static void
files_that_cannot_be_read_are_errors(void **state)
{
    struct strbuf bytes = STRBUF_INIT, errors = STRBUF_INIT;
    struct complaints complaints = {.items = NULL};
    (void)state;
    assert_false(ini_file_read("/", &bytes, &complaints));
    assert_false(ini_file_read("/nonexistent/x.ini", &bytes, &complaints));
    assert_false(ini_file_read("/dev/zero", &bytes, &complaints));
    complaints_render(&complaints, "f", &errors);
    expect_text(strbuf_text(&errors),
                "f:0: this is a directory; name the file in it, for example tributary.ini\n"
                "f:0: cannot be read: No such file or directory; -c names another file\n"
                "f:0: not a regular file, which is what a configuration has to be\n");
    strbuf_fini(&errors);
    complaints_fini(&complaints);
    strbuf_fini(&bytes);
}

static void
a_file_is_read_whole(void **state)
{
    char path[] = "/tmp/ini-file-test-XXXXXX";
    struct strbuf bytes = STRBUF_INIT;
    struct complaints complaints = {.items = NULL};
    char *text = long_line(60000);
    (void)state;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
    assert_true(ini_file_read(path, &bytes, &complaints));
    assert_int_equal(bytes.len, 4 * strlen(text));
    unlink(path);
    mem_free(text);
    strbuf_fini(&bytes);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_not_cut_at_marks),
        cmocka_unit_test(a_semicolon_behind_a_blank_starts_a_comment),
        cmocka_unit_test(an_indented_line_is_no_continuation),
        cmocka_unit_test(line_ends_and_marks_of_other_editors),
        cmocka_unit_test(what_is_no_text_is_an_error),
        cmocka_unit_test(long_lines_are_read_whole_or_refused),
        cmocka_unit_test(section_names_are_not_cut),
        cmocka_unit_test(sections_without_keys_are_there),
        cmocka_unit_test(headings_are_strict),
        cmocka_unit_test(entries_are_strict),
        cmocka_unit_test(one_mistake_gives_one_error),
        cmocka_unit_test(every_prefix_of_a_file_is_survived),
        cmocka_unit_test(files_that_cannot_be_read_are_errors),
        cmocka_unit_test(a_file_is_read_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
