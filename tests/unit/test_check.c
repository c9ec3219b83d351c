/* A failed check ends the process with a message, in every build. */
#include "tests/unit/unit.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proxy/base/check.h"
#include "proxy/base/mem.h"

/* Runs it in a child with stderr on a pipe; returns the wait status and what the child said. */
static int
run_child(void (*body)(void), char *said, size_t room)
{
    int ends[2], status;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
        signal(SIGABRT, SIG_DFL); /* cmocka's and the sanitizer's handlers would hide it */
        dup2(ends[1], STDERR_FILENO);
        body();
        _exit(0);
    }
    close(ends[1]);
    size_t len = 0;
    for (ssize_t part; (part = read(ends[0], said + len, room - 1 - len)) > 0;)
        len += (size_t)part;
    said[len] = '\0';
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void
body_true(void)
{
    int evaluated = 0;
    check(++evaluated == 1);
    if (evaluated != 1)
        _exit(9);
}

static void
body_false(void)
{
    check(1 + 1 == 3);
}

static void
body_out_of_memory(void)
{
    volatile size_t bytes = SIZE_MAX / 2 - 64;
    mem_free(mem_alloc(bytes));
}

static void
true_condition_is_evaluated_once_and_goes_on(void **state)
{
    char said[4096];
    (void)state;
    assert_int_equal(run_child(body_true, said, sizeof(said)), 0);
    assert_string_equal(said, "");
}

static void
false_condition_aborts_with_place_and_words(void **state)
{
    char said[4096];
    (void)state;
    int status = run_child(body_false, said, sizeof(said));
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    assert_non_null(strstr(said, "test_check.c:"));
    assert_non_null(strstr(said, "check failed: 1 + 1 == 3\n"));
}

static void
out_of_memory_does_not_return(void **state)
{
    char said[65536];
    (void)state;
    assert_int_not_equal(run_child(body_out_of_memory, said, sizeof(said)), 0);
    assert_true(strstr(said, "out of memory") || strstr(said, "allocation-size-too-big"));
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(true_condition_is_evaluated_once_and_goes_on),
        cmocka_unit_test(false_condition_aborts_with_place_and_words),
        cmocka_unit_test(out_of_memory_does_not_return),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
