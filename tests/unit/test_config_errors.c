/* What is refused, at which line, and what the message proposes. */
#include "tests/unit/config_test.h"

#include <unistd.h>

static void
nothing_to_serve_is_an_error(void **state)
{
    static const char WHY[] =
        "t.ini:1: no [listener NAME] section, so nothing could be served; add one with "
        "for example address = 127.0.0.1:17000\n";
    (void)state;
    expect_errors("", WHY);
    expect_errors("; only a comment\n", WHY);
    expect_errors("[proxy]\n", WHY);
}

static void
required_keys_are_asked_for_at_their_section(void **state)
{
    (void)state;
    expect_errors("\n[listener a]\n",
                  "t.ini:2: [listener a] address: missing; host:port, [v6]:port or unix:/path, "
                  "for example 127.0.0.1:17000\n");
    expect_errors(LISTENER_MAIN "[upstream u]\n",
                  "t.ini:3: [upstream u] endpoints: missing; host:port, [v6]:port or unix:/path; "
                  "with another "
                  "discovery its source, for example a file's path\n");
    expect_errors(LISTENER_MAIN "[route r]\n",
                  "t.ini:3: [route r] match: missing; exact path, /Service/*, /package.*, or *; "
                  "the most specific "
                  "wins\nt.ini:3: [route r] upstream: missing; where the calls go\n");
    expect_errors("[listener a]\naddress =\n", "t.ini:2: [listener a] address: has no value\n");
    expect_errors(
        MINIMAL "timeout =\n",
        "t.ini:8: [route greet] timeout: has no value; leave the line out for the default, 0s\n");
}

static void
unknown_keys_get_the_nearest_known_one(void **state)
{
    (void)state;
    expect_errors(MINIMAL "tiemout = 1s\n",
                  "t.ini:8: [route greet] tiemout: no such key; did you mean 'timeout'?\n");
    expect_errors(
        MINIMAL "max_streams = 1\n",
        "t.ini:8: [route greet] max_streams: no such key; that key belongs into [listener NAME]\n");
    expect_errors("[proxy]\nqqqqqq = 1\n" MINIMAL,
                  "t.ini:2: [proxy] qqqqqq: no such key; known here: workers, admin, admin_public, "
                  "probe, log, "
                  "log_format, log_level, access_log, drain_delay, drain_timeout, buffer_budget, "
                  "stream_window, "
                  "max_message, merge_writes, watch\n");
    expect_errors(MINIMAL "Timeout = 1s\n",
                  "t.ini:8: [route greet] Timeout: no such key; did you mean 'timeout'?\n");
}

static void
unknown_sections_get_the_nearest_known_one(void **state)
{
    (void)state;
    expect_errors(MINIMAL "[upstrem x]\nendpoints = a:1\n",
                  "t.ini:8: [upstrem x] no such section; did you mean [upstream NAME]?\n");
    expect_errors(MINIMAL "[prox]\n", "t.ini:8: [prox] no such section; did you mean [proxy]?\n");
    expect_errors(MINIMAL "[cluster x]\n", "t.ini:8: [cluster x] no such section; known are "
                                           "[proxy], [listener NAME], [upstream NAME], "
                                           "[route NAME] and [filter NAME]\n");
    expect_errors(MINIMAL "[proxy x]\n", "t.ini:8: [proxy x] takes no name; write [proxy]\n");
    expect_errors(MINIMAL "[route]\n", "t.ini:8: [route] needs a name; write [route NAME]\n");
}

static void
a_key_or_section_twice_is_an_error(void **state)
{
    (void)state;
    expect_errors(
        MINIMAL "timeout = 1s\ntimeout = 2s\n",
        "t.ini:9: [route greet] timeout: is there already, in line 8; keep one of the two\n");
    expect_errors(MINIMAL "[listener main]\naddress = 127.0.0.1:5\n",
                  "t.ini:8: [listener main] is there already, in line 1; merge the two or give one "
                  "another name\n");
    expect_errors(
        "[listener a]\naddress = 127.0.0.1:1\naddress = 127.0.0.1:2\naddress = 127.0.0.1:1\n",
        "t.ini:2: [listener a] address: '127.0.0.1:1' stands there twice; once is enough\n");
}

static void
numbers_are_strict(void **state)
{
    (void)state;
    expect_errors("[proxy]\nworkers = 080\n" MINIMAL,
                  "t.ini:2: [proxy] workers: '080' is neither auto nor a number from 1 to 256\n");
    expect_error("[proxy]\nworkers = -1\n" MINIMAL, "'-1' is neither auto nor a number");
    expect_error("[proxy]\nworkers = 0\n" MINIMAL, "'0' is neither auto nor a number");
    expect_error("[proxy]\nworkers = 257\n" MINIMAL, "'257' is neither");
    expect_error("[listener a]\naddress = 127.0.0.1:65536\n", "ports up to 65535");
    expect_error("[listener a]\naddress = 127.0.0.1:080\n", "'127.0.0.1:080' is no address");
    expect_error(LISTENER_MAIN "max_streams = 1e3\n",
                 "t.ini:3: [listener main] max_streams: '1e3' is not a number from 1 to 1000000\n");
    expect_error(MINIMAL "timeout = 5 s\n", "timeout: '5 s' is not a duration from 0s to 8760h; "
                                            "write 250ms, 3s, 2m or 1h, without blanks\n");
    expect_error(MINIMAL "timeout = 5\n", "'5' is not a duration");
    expect_error("[proxy]\nmax_message = 5GB\n" MINIMAL, "'5GB' is not a size from 1 to");
    expect_error("[proxy]\nstream_window = 2G\n" MINIMAL,
                 "'2G' is not a size from 1K to 2147483647;");
    expect_error("[proxy]\nbuffer_budget = some\n" MINIMAL, "8M or 1G, or auto\n");
    expect_error(LISTENER_MAIN "reset_limit = 2000\n",
                 "'2000' is not a rate; write for example 2000/10s, or off\n");
    expect_error(LISTENER_MAIN "reset_limit = 5000000000/1s\n", "is not a rate");
    expect_error(MINIMAL "fast_path = 0.5\n", "'0.5' is neither on, off nor a share such as 10%\n");
    expect_error(LISTENER_MAIN "unix_mode = 999\n", "write for example 0660\n");
    expect_error("[proxy]\nwatch = yes\n" MINIMAL, "watch: 'yes' is neither on nor off\n");
}

static void
choices_are_listed(void **state)
{
    (void)state;
    expect_errors(MINIMAL "call = unray\n", "t.ini:8: [route greet] call: 'unray' is none of auto, "
                                            "unary, stream; did you mean 'unary'?\n");
    expect_errors("[proxy]\nlog_level = chatty\n" MINIMAL,
                  "t.ini:2: [proxy] log_level: 'chatty' is none of debug, info, warn, error\n");
    expect_error("[proxy]\nlog = stdrr\n" MINIMAL,
                 "'stdrr' is neither stdout, stderr nor a path; a path has a '/' in it\n");
    expect_error("[proxy]\naccess_log = on\n" MINIMAL,
                 "'on' is neither off, stdout, stderr nor a path");
}

static void
references_must_exist(void **state)
{
    (void)state;
    expect_errors(
        LISTENER_MAIN UPSTREAM_GREETER "[route r]\nmatch = *\nupstream = greter\n",
        "t.ini:7: [route r] upstream: there is no [upstream greter]; did you mean 'greeter'?\n");
    expect_errors(
        LISTENER_MAIN UPSTREAM_GREETER "[route r]\nmatch = *\nupstream = elsewhere\n",
        "t.ini:7: [route r] upstream: there is no [upstream elsewhere]; add it, or use for example "
        "'greeter'\n");
    expect_errors(LISTENER_MAIN "[route r]\nmatch = *\nupstream = u\n",
                  "t.ini:5: [route r] upstream: there is no [upstream u]; add it\n");
    expect_errors(
        MINIMAL "listener = mian\n",
        "t.ini:8: [route greet] listener: there is no [listener mian]; did you mean 'main'?\n");
    expect_errors(MINIMAL "filters = limit\n",
                  "t.ini:8: [route greet] filters: there is no [filter limit]; add it\n");
}

static void
addresses_are_checked(void **state)
{
    (void)state;
    expect_error(
        "[listener a]\naddress = example.com:17000\n",
        "'example.com:17000' is a name; listening needs an IP address, such as 127.0.0.1:17000\n");
    expect_errors("[proxy]\nprobe = 127.0.0.1:0\n" MINIMAL,
                  "t.ini:2: [proxy] probe: '127.0.0.1:0' would be any free port, which nobody "
                  "could find; write the "
                  "port\n");
    expect_error("[proxy]\nadmin = :17010\n" MINIMAL, "127.0.0.1:PORT for this machine");
    expect_errors(
        "[listener a]\naddress = 127.0.0.1:1\naddress = 127.0.0.1:2, x\n",
        "t.ini:3: [listener a] address: 'x' is no address; write 127.0.0.1:17000, [::1]:17000 or "
        "unix:/path, ports up to 65535\n");
    expect_errors("[listener a]\naddress = 127.0.0.1:1,,127.0.0.1:2\n",
                  "t.ini:2: [listener a] address: nothing between two commas\n");
    expect_error(LISTENER_MAIN "[upstream u]\nendpoints = a:1;b:2\n",
                 "'a:1;b:2' is no address; write");
    expect_errors(
        LISTENER_MAIN "[upstream u]\nendpoints = a:1\nendpoints = b\n",
        "t.ini:5: [upstream u] endpoints: 'b' is no address; write 127.0.0.1:20000, [::1]:20000, "
        "name:20000 or unix:/path, ports 1 to 65535\n");
    expect_error(LISTENER_MAIN "[upstream u]\nendpoints = a:1\ndiscovery = file\n",
                 "'a:1' is no path;");
    expect_error(LISTENER_MAIN "[upstream u]\nendpoints = unix:/x\ndiscovery = dns\n",
                 "is no name to look up");
}

static void
one_address_serves_one_thing(void **state)
{
    (void)state;
    expect_errors(LISTENER_MAIN "[listener b]\naddress = 127.0.0.1:17000\n",
                  "t.ini:4: [listener b] address: '127.0.0.1:17000' is taken by address of "
                  "[listener main]; use "
                  "another port\n");
    expect_errors(
        "[proxy]\nadmin = 127.0.0.1:1\nprobe = 127.0.0.1:1\n" MINIMAL,
        "t.ini:3: [proxy] probe: '127.0.0.1:1' is taken by admin of [proxy]; use another port\n");
}

static void
the_stats_endpoint_is_not_shown_to_everybody_by_accident(void **state)
{
    (void)state;
    expect_errors("[proxy]\nadmin = 0.0.0.0:17010\n" MINIMAL,
                  "t.ini:2: [proxy] admin: '0.0.0.0:17010' is not loopback, and the stats endpoint "
                  "can be read and "
                  "reset without a password; use 127.0.0.1, or say admin_public = on\n");
    expect_error("[proxy]\nadmin = [::]:17010\n" MINIMAL, "not loopback");
    expect_errors("[proxy]\nadmin = 0.0.0.0:17010\nadmin_public = on\n" MINIMAL, "");
    expect_errors("[proxy]\nadmin = [::1]:17010\nprobe = 0.0.0.0:17020\n" MINIMAL, "");
    expect_errors("[proxy]\nadmin = unix:/tmp/admin.sock\n" MINIMAL, "");
}

static void
routes_that_take_the_same_calls_are_errors(void **state)
{
    (void)state;
    expect_errors(
        MINIMAL "[route two]\nmatch = /a.B/C\nmatch = /greet.GreetService/*\nupstream = greeter\n",
        "t.ini:10: [route two] match: '/greet.GreetService/*' under the same conditions is taken "
        "by "
        "[route greet] in line 5; change one of the two\n");
    expect_errors(MINIMAL "[route two]\nmatch = /greet.GreetService/*\nmatch_header = x-env: "
                          "blue\nupstream = greeter\n",
                  "");
    expect_error(MINIMAL "match_header = a: 1\nmatch_header = b\nmatch_authority = X.org\n"
                         "[route two]\nmatch = /greet.GreetService/*\nupstream = greeter\n"
                         "match_authority = x.ORG\nmatch_header = B:\nmatch_header = a:1\n",
                 "t.ini:12: [route two] match: '/greet.GreetService/*' under the same conditions");
}

static void
matches_and_conditions_are_checked(void **state)
{
    (void)state;
    expect_errors(
        LISTENER_MAIN UPSTREAM_GREETER "[route r]\nmatch = /a.B/*, greet\nupstream = greeter\n",
        "t.ini:6: [route r] match: 'greet' matches nothing; write an exact path /Service/Method, "
        "/Service/*, /package.* or *\n");
    expect_error(MINIMAL "match_authority = *\n", "'*' is no authority; write greet.example.com");
    expect_error(MINIMAL "match_header = two words: x\n", "does not start with a header's name");
    expect_error(MINIMAL "match_header = a: 1\nmatch_header = a:1\n", "'a:1' is there twice");
    expect_error(MINIMAL "match_header =\nmatch_header = a\n", "match_header: has no value\n");
}

static void
headers_to_set_are_checked(void **state)
{
    (void)state;
    expect_error(
        MINIMAL "set_header = content-length: 3\n",
        "'content-length' belongs to the protocol; the proxy sets it where it is needed\n");
    expect_error(MINIMAL "set_header = tri-service-group: g\n", "has its own key; use set_group\n");
    expect_error(MINIMAL "set_header = x-a\n", "'x-a' has no value; write name: value\n");
    expect_errors(
        MINIMAL "set_header = x-a: 1\nset_header = X-A: 2\n",
        "t.ini:9: [route greet] set_header: 'x-a' is set twice; the value replaces, so give one\n");
    expect_error(MINIMAL "set_header = x-a: gr\xc3\xbc\n", "has a value that no header can carry");
    expect_error(MINIMAL "set_group = gr\xc3\xbc\n", "cannot be a header's value");
    expect_error(MINIMAL "set_service = /a.B\n", "'/a.B' is no service name");
}

static void
logs_must_be_writable(void **state)
{
    (void)state;
    expect_errors("[proxy]\nlog = /nonexistent/x.log\naccess_log = /proc/version/x\n" MINIMAL,
                  "t.ini:2: [proxy] log: '/nonexistent/x.log' cannot be written: No such file or "
                  "directory; name a file "
                  "that can, or stderr\n"
                  "t.ini:3: [proxy] access_log: '/proc/version/x' cannot be written: Not a "
                  "directory; name a file that "
                  "can, or stderr\n");
    expect_error("[proxy]\nlog = /tmp\n" MINIMAL, "'/tmp' cannot be written: Is a directory;");
    expect_errors("[proxy]\nlog = /tmp/not-made-by-a-check.log\n" MINIMAL, "");
    assert_int_equal(access("/tmp/not-made-by-a-check.log", F_OK), -1);
    expect_errors(
        "[proxy]\nlog = /x.log\n" MINIMAL,
        geteuid() == 0
            ? ""
            : "t.ini:2: [proxy] log: '/x.log' cannot be written: Permission denied; name a file "
              "that can, or stderr\n");
}

static void
sizes_and_times_fit_one_another(void **state)
{
    (void)state;
    expect_errors(MINIMAL "fast_path_max = 9M\n", "t.ini:8: [route greet] fast_path_max: more than "
                                                  "max_message, which is 8M; make it smaller\n");
    expect_errors(LISTENER_MAIN UPSTREAM_GREETER "connections = 9\nmax_connections = 8\n",
                  "t.ini:5: [upstream greeter] connections: more than max_connections, which is 8; "
                  "raise that or make "
                  "this smaller\n");
    expect_errors("[proxy]\ndrain_delay = 30s\n" MINIMAL,
                  "t.ini:2: [proxy] drain_delay: longer than drain_timeout, which counts from TERM "
                  "too; make it "
                  "shorter\n");
}

static void
variables_without_value_are_errors(void **state)
{
    (void)state;
    unsetenv("TEST_NONE");
    expect_errors("[listener a]\naddress = ${TEST_NONE}:17000\n",
                  "t.ini:2: [listener a] address: ${TEST_NONE} has no value in the environment; "
                  "set it or write "
                  "${TEST_NONE:-default}\n");
}

static void
every_error_is_told_at_once(void **state)
{
    (void)state;
    expect_errors(
        "k = v\n[proxy]\nadmn = x\n[listener a]\naddress = y\n[sec\n",
        "t.ini:1: 'k' stands before any section; put it below [proxy] or another\n"
        "t.ini:3: [proxy] admn: no such key; did you mean 'admin'?\n"
        "t.ini:5: [listener a] address: 'y' is no address; write 127.0.0.1:17000, [::1]:17000 or "
        "unix:/path, ports up to 65535\n"
        "t.ini:6: '[sec' has no ']' that closes the section's name\n");
}

static void
files_that_are_no_configuration(void **state)
{
    struct config_result result;
    (void)state;
    config_load("/", NULL, &result, NULL);
    assert_null(result.snapshot);
    assert_int_equal(result.error_count, 1);
    expect_text(strbuf_text(&result.errors),
                "/:0: this is a directory; name the file in it, for example tributary.ini\n");
    config_result_fini(&result);
    config_load("/nonexistent.ini", NULL, &result, NULL);
    expect_text(
        strbuf_text(&result.errors),
        "/nonexistent.ini:0: cannot be read: No such file or directory; -c names another file\n");
    config_result_fini(&result);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_to_serve_is_an_error),
        cmocka_unit_test(required_keys_are_asked_for_at_their_section),
        cmocka_unit_test(unknown_keys_get_the_nearest_known_one),
        cmocka_unit_test(unknown_sections_get_the_nearest_known_one),
        cmocka_unit_test(a_key_or_section_twice_is_an_error),
        cmocka_unit_test(numbers_are_strict),
        cmocka_unit_test(choices_are_listed),
        cmocka_unit_test(references_must_exist),
        cmocka_unit_test(addresses_are_checked),
        cmocka_unit_test(one_address_serves_one_thing),
        cmocka_unit_test(the_stats_endpoint_is_not_shown_to_everybody_by_accident),
        cmocka_unit_test(routes_that_take_the_same_calls_are_errors),
        cmocka_unit_test(matches_and_conditions_are_checked),
        cmocka_unit_test(headers_to_set_are_checked),
        cmocka_unit_test(logs_must_be_writable),
        cmocka_unit_test(sizes_and_times_fit_one_another),
        cmocka_unit_test(variables_without_value_are_errors),
        cmocka_unit_test(every_error_is_told_at_once),
        cmocka_unit_test(files_that_are_no_configuration),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
