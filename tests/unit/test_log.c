/* Log lines as a reader of the file sees them, and what faults of the target do. */
#include "tests/unit/unit.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proxy/base/log.h"
#include "proxy/base/mem.h"
#include "proxy/base/strbuf.h"

static char dir[64], path[96];
static char contents[1 << 20];

static int
setup(void **state)
{
    (void)state;
    snprintf(dir, sizeof(dir), "/tmp/test_log.XXXXXX");
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/log", dir);
    return 0;
}

static int
teardown(void **state)
{
    char old[112];
    (void)state;
    log_close();
    snprintf(old, sizeof(old), "%s.1", path);
    unlink(old);
    unlink(path);
    chmod(dir, 0700);
    return rmdir(dir);
}

static const char *
read_file(const char *name)
{
    int fd = open(name, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    ssize_t len = read(fd, contents, sizeof(contents) - 1);
    assert_true(len >= 0);
    contents[len] = '\0';
    close(fd);
    return contents;
}

static unsigned
count_of(const char *text, const char *part)
{
    unsigned count = 0;
    for (const char *at = text; (at = strstr(at, part)); at += strlen(part))
        count++;
    return count;
}

/* Compares one line with `expected`, in which # stands for a digit. */
static void
expect_line(const char *line, const char *expected)
{
    for (; *expected; line++, expected++)
        if (*expected == '#' ? !isdigit((unsigned char)*line) : *line != *expected)
            fail_msg("at \"%s\", expected \"%s\"", line, expected);
    assert_string_equal(line, "");
}

static void
logfmt_line_has_time_level_tag_and_message(void **state)
{
    (void)state;
    assert_int_equal(log_open(path, LOG_LOGFMT, LOG_LEVEL_INFO), 0);
    log_info("listener", "listening on %s", "127.0.0.1:17000");
    expect_line(read_file(path), "time=####-##-##T##:##:##.###Z level=info tag=listener "
                                 "msg=\"listening on 127.0.0.1:17000\"\n");
}

static void
json_line_is_one_object(void **state)
{
    (void)state;
    assert_int_equal(log_open(path, LOG_JSON, LOG_LEVEL_INFO), 0);
    log_warn("reload", "bad \"value\"\n%c", 0xff);
    expect_line(read_file(path),
                "{\"time\":\"####-##-##T##:##:##.###Z\",\"level\":\"warn\",\"tag\":\"reload\","
                "\"msg\":\"bad \\\"value\\\"\\n\xef\xbf\xbd\"}\n");
}

static void
levels_under_the_configured_are_not_written(void **state)
{
    (void)state;
    assert_int_equal(log_open(path, LOG_LOGFMT, LOG_LEVEL_WARN), 0);
    assert_false(log_enabled(LOG_LEVEL_INFO));
    assert_true(log_enabled(LOG_LEVEL_WARN));
    log_debug("a", "no");
    log_info("a", "no");
    log_warn("a", "yes");
    log_error("a", "yes");
    assert_int_equal(count_of(read_file(path), "msg=yes"), 2);
    assert_int_equal(count_of(contents, "\n"), 2);
    assert_int_equal(log_open(path, LOG_LOGFMT, LOG_LEVEL_DEBUG), 0);
    log_debug("a", "now");
    assert_int_equal(count_of(read_file(path), "level=debug tag=a msg=now\n"), 1);
}

static void
message_of_a_peer_cannot_forge_a_line(void **state)
{
    (void)state;
    assert_int_equal(log_open(path, LOG_LOGFMT, LOG_LEVEL_INFO), 0);
    log_info("a", "%s", "x\ntime=1 level=error tag=b msg=forged");
    assert_int_equal(count_of(read_file(path), "\n"), 1);
}

static void
errno_survives_logging(void **state)
{
    (void)state;
    assert_int_equal(log_open("/dev/full", LOG_LOGFMT, LOG_LEVEL_INFO), 0);
    errno = EADDRINUSE;
    log_info("a", "%m");
    assert_int_equal(errno, EADDRINUSE);
}

static void
reopen_goes_on_in_a_new_file_after_rotation(void **state)
{
    (void)state;
    char old[112];
    snprintf(old, sizeof(old), "%s.1", path);
    assert_int_equal(log_open(path, LOG_LOGFMT, LOG_LEVEL_INFO), 0);
    log_info("a", "first");
    assert_int_equal(rename(path, old), 0);
    log_info("a", "second"); /* still the old one */
    log_reopen();
    log_info("a", "third");
    assert_int_equal(count_of(read_file(old), "msg="), 2);
    assert_int_equal(count_of(read_file(path), "msg=third"), 1);
    assert_int_equal(count_of(contents, "\n"), 1);
}

static void
failed_reopen_keeps_the_old_file_and_says_so(void **state)
{
    (void)state;
    char old[112];
    snprintf(old, sizeof(old), "%s.1", path);
    assert_int_equal(log_open(path, LOG_LOGFMT, LOG_LEVEL_INFO), 0);
    assert_int_equal(rename(path, old), 0);
    assert_int_equal(mkdir(path, 0700), 0); /* stands in the way, for root too */
    log_reopen();
    log_info("a", "after");
    assert_int_equal(count_of(read_file(old), "level=error tag=log"), 1);
    assert_int_equal(count_of(contents, "msg=after"), 1);
    assert_int_equal(rmdir(path), 0);
}

static void
failed_open_changes_nothing(void **state)
{
    (void)state;
    assert_int_equal(log_open(path, LOG_LOGFMT, LOG_LEVEL_INFO), 0);
    assert_int_equal(log_open("/nowhere/at/all", LOG_JSON, LOG_LEVEL_ERROR), -ENOENT);
    assert_int_equal(log_open_access("/nowhere/at/all"), -ENOENT);
    assert_false(log_access_enabled());
    log_info("a", "still");
    assert_int_equal(count_of(read_file(path), "msg=still\n"), 1);
}

static void
burst_of_one_call_site_is_cut_and_others_go_on(void **state)
{
    (void)state;
    assert_int_equal(log_open(path, LOG_LOGFMT, LOG_LEVEL_DEBUG), 0);
    for (unsigned i = 0; i < 10000; i++)
        log_warn("a", "burst %u", i);
    log_warn("a", "another site");
    for (unsigned i = 0; i < 1000; i++)
        log_debug("a", "detail %u", i);
    read_file(path);
    assert_in_range(count_of(contents, "burst"), 10, 100);
    assert_int_equal(count_of(contents, "another site"), 1);
    assert_int_equal(count_of(contents, "detail"), 1000); /* asked for: not limited */
}

static void
many_call_sites_each_have_their_own_limit(void **state)
{
    (void)state;
    static char formats[300][32];
    assert_int_equal(log_open(path, LOG_LOGFMT, LOG_LEVEL_INFO), 0);
    for (unsigned i = 0; i < 300; i++)
        snprintf(formats[i], sizeof(formats[i]), "site-%u", i);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
#pragma GCC diagnostic ignored "-Wformat-security"
    for (unsigned i = 0; i < 300; i++)
        log_info("a", formats[i]);
#pragma GCC diagnostic pop
    assert_int_equal(count_of(read_file(path), "msg=site-"), 300);
}

static void
full_disk_loses_lines_and_later_says_how_many(void **state)
{
    (void)state;
    assert_int_equal(symlink("/dev/full", path), 0);
    assert_int_equal(log_open(path, LOG_LOGFMT, LOG_LEVEL_INFO), 0);
    for (unsigned i = 0; i < 3; i++)
        log_info("a", "lost");
    assert_int_equal(unlink(path), 0);
    log_reopen(); /* there is room again */
    log_info("a", "found");
    log_info("a", "next");
    read_file(path);
    assert_int_equal(count_of(contents, "msg=found lost=3\n"), 1);
    assert_int_equal(count_of(contents, "msg=next\n"), 1);
}

static void
closed_pipe_does_not_end_the_process(void **state)
{
    (void)state;
    int ends[2], saved = dup(STDOUT_FILENO);
    assert_int_equal(pipe(ends), 0);
    fflush(stdout);
    dup2(ends[1], STDOUT_FILENO);
    close(ends[1]);
    close(ends[0]);
    assert_int_equal(log_open("stdout", LOG_LOGFMT, LOG_LEVEL_INFO), 0);
    log_info("a", "nobody reads");
    dup2(saved, STDOUT_FILENO);
    close(saved);
}

static void
pipe_whose_reader_stands_still_does_not_block(void **state)
{
    (void)state;
    int ends[2], saved = dup(STDOUT_FILENO);
    assert_int_equal(pipe(ends), 0);
    fflush(stdout);
    dup2(ends[1], STDOUT_FILENO);
    close(ends[1]);
    assert_int_equal(log_open("stdout", LOG_LOGFMT, LOG_LEVEL_DEBUG), 0);
    for (unsigned i = 0; i < 5000; i++) /* some 400 KiB into 64 KiB */
        log_debug("a", "line %u", i);
    ssize_t len = read(ends[0], contents, sizeof(contents) - 1);
    log_debug("a", "after");
    ssize_t more = read(ends[0], contents + len, sizeof(contents) - 1 - (size_t)len);
    dup2(saved, STDOUT_FILENO);
    close(saved);
    close(ends[0]);
    assert_true(len > 10000 && more > 0);
    contents[len + more] = '\0';
    assert_int_equal(count_of(contents, "msg=after lost="), 1);
    assert_true(strncmp(contents, "time=", 5) == 0);
    assert_int_equal(count_of(contents, "time="), count_of(contents, "\n"));
}

static void
line_cut_short_by_a_full_disk_is_ended_first(void **state)
{
    (void)state;
    struct rlimit before, small = {.rlim_cur = 200};
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small.rlim_max = before.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(log_open(path, LOG_LOGFMT, LOG_LEVEL_INFO), 0);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    for (unsigned i = 0; i < 4; i++)
        log_info("a", "some twenty bytes %u", i); /* the third crosses the limit */
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    log_info("a", "room again");
    assert_int_equal(count_of(read_file(path), "\ntime="), 3);
    assert_non_null(strstr(contents, " msg=\"room again\" lost=2\n"));
}

static void
access_line_is_its_pairs(void **state)
{
    (void)state;
    const struct log_pair pairs[] = {
        {"path", TEXT("/greet.GreetService/Greet"), false},
        {"agent", TEXT("grpc go"), false},
        {"us", TEXT("123"), true},
    };
    assert_int_equal(log_open(NULL, LOG_LOGFMT, LOG_LEVEL_INFO), 0);
    assert_int_equal(log_open_access(path), 0);
    assert_true(log_access_enabled());
    log_access(pairs, 3);
    expect_line(read_file(path), "time=####-##-##T##:##:##.###Z path=/greet.GreetService/Greet "
                                 "agent=\"grpc go\" us=123\n");
    assert_int_equal(log_open(NULL, LOG_JSON, LOG_LEVEL_INFO), 0);
    assert_int_equal(unlink(path), 0);
    log_reopen();
    log_access(pairs, 3);
    expect_line(read_file(path),
                "{\"time\":\"####-##-##T##:##:##.###Z\",\"path\":\"/greet.GreetService/Greet\","
                "\"agent\":\"grpc go\",\"us\":123}\n");
    assert_int_equal(log_open_access("off"), 0);
    assert_false(log_access_enabled());
    log_access(pairs, 3);
    assert_int_equal(count_of(read_file(path), "\n"), 1);
}

static void
overlong_value_is_cut(void **state)
{
    (void)state;
    char *text = mem_alloc(100000);
    memset(text, 'x', 99999);
    text[99999] = '\0';
    assert_int_equal(log_open(path, LOG_LOGFMT, LOG_LEVEL_INFO), 0);
    log_info("a", "%s", text);
    mem_free(text);
    size_t len = strlen(read_file(path));
    assert_in_range(len, 1000, 4096);
    assert_int_equal(contents[len - 1], '\n');
}

static void *
log_much(void *name)
{
    for (unsigned i = 0; i < 2000; i++)
        log_debug(name, "number %u of this thread, long enough to be torn if lines were not whole",
                  i);
    return NULL;
}

static void
lines_of_threads_do_not_mix(void **state)
{
    (void)state;
    static char names[4][2] = {"a", "b", "c", "d"};
    pthread_t threads[4];
    assert_int_equal(log_open(path, LOG_LOGFMT, LOG_LEVEL_DEBUG), 0);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, log_much, names[i]), 0);
    for (unsigned i = 0; i < 20; i++)
        log_reopen();
    for (unsigned i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    unsigned lines = 0;
    FILE *file = fopen(path, "r");
    char line[512];
    assert_non_null(file);
    while (fgets(line, sizeof(line), file)) {
        assert_true(strncmp(line, "time=2", 6) == 0);
        assert_non_null(strstr(line, "were not whole\"\n"));
        lines++;
    }
    fclose(file);
    assert_int_equal(lines, 8000);
}

int
main(void)
{
#define WITH_FILE(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
    const struct CMUnitTest tests[] = {
        WITH_FILE(logfmt_line_has_time_level_tag_and_message),
        WITH_FILE(json_line_is_one_object),
        WITH_FILE(levels_under_the_configured_are_not_written),
        WITH_FILE(message_of_a_peer_cannot_forge_a_line),
        WITH_FILE(errno_survives_logging),
        WITH_FILE(reopen_goes_on_in_a_new_file_after_rotation),
        WITH_FILE(failed_reopen_keeps_the_old_file_and_says_so),
        WITH_FILE(failed_open_changes_nothing),
        WITH_FILE(burst_of_one_call_site_is_cut_and_others_go_on),
        WITH_FILE(many_call_sites_each_have_their_own_limit),
        WITH_FILE(full_disk_loses_lines_and_later_says_how_many),
        WITH_FILE(closed_pipe_does_not_end_the_process),
        WITH_FILE(pipe_whose_reader_stands_still_does_not_block),
        WITH_FILE(line_cut_short_by_a_full_disk_is_ended_first),
        WITH_FILE(access_line_is_its_pairs),
        WITH_FILE(overlong_value_is_cut),
        WITH_FILE(lines_of_threads_do_not_mix),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
