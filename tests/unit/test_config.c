/* What a configuration that is right becomes: defaults, every key's value in its place,
 * substitution, files. */
#include "tests/unit/config_test.h"

#include <sys/stat.h>
#include <unistd.h>

#include "proxy/base/clock.h"
#include "proxy/base/mem.h"

static void
the_least_configuration_has_the_documented_defaults(void **state)
{
    (void)state;
    struct snapshot *snapshot = config_test_load(MINIMAL);
    const struct proxy_conf *proxy = &snapshot->proxy;
    assert_int_equal(proxy->workers, 1);
    assert_int_equal(proxy->admin.len + proxy->probe.len, 0);
    expect_text(proxy->log, "stderr");
    expect_text(proxy->access_log, "off");
    assert_int_equal(proxy->log_format, LOG_LOGFMT);
    assert_int_equal(proxy->log_level, LOG_LEVEL_INFO);
    assert_int_equal(proxy->drain_delay_ns, 0);
    assert_int_equal(proxy->drain_timeout_ns, 25 * NS_PER_S);
    assert_true(proxy->buffer_budget_auto && proxy->buffer_budget_bytes >= 1 << 20 &&
                proxy->buffer_budget_bytes <= 256 << 20);
    assert_int_equal(proxy->stream_window, 1 << 20);
    assert_int_equal(proxy->max_message, 8 << 20);
    assert_int_equal(snapshot->max_message, 8 << 20);
    assert_int_equal(snapshot->stream_window, 1 << 20);
    assert_true(proxy->merge_writes && proxy->watch && !proxy->admin_public);
    assert_int_equal(snapshot->generation, 1);
    snapshot_unref(snapshot);
}

static void
sections_have_the_documented_defaults(void **state)
{
    (void)state;
    struct snapshot *snapshot = config_test_load(MINIMAL);
    const struct listener_conf *listener = &snapshot->listeners[0];
    const struct upstream_conf *upstream = &snapshot->upstreams[0];
    const struct route *route = &snapshot->routes[0];
    assert_int_equal(listener->max_connections, 10000);
    assert_int_equal(listener->max_streams, 1000);
    assert_int_equal(listener->max_header_list, 65536);
    assert_int_equal(listener->reset_limit, 2000);
    assert_int_equal(listener->reset_window_ns, 10 * NS_PER_S);
    assert_int_equal(listener->max_connection_age_ns, 0);
    assert_int_equal(listener->unix_mode, 0660);
    assert_null(listener->tls);
    assert_int_equal(upstream->discovery, DISCOVERY_STATIC);
    assert_int_equal(upstream->dialect, DIALECT_TRIPLE);
    assert_int_equal(upstream->wire, UPSTREAM_WIRE_AUTO);
    assert_int_equal(upstream->transport, TRANSPORT_H2);
    assert_int_equal(upstream->lb_policy, LB_LEAST_REQUEST);
    assert_int_equal(upstream->connections, 1);
    assert_int_equal(upstream->max_connections, 8);
    assert_int_equal(upstream->max_connections_http1, 256);
    assert_int_equal(upstream->max_pending, 1000);
    assert_int_equal(upstream->connect_timeout_ns, NS_PER_S);
    assert_false(upstream->forward_accept_encoding || upstream->tls_on);
    assert_ptr_equal(route->upstream, upstream);
    assert_int_equal(route->call, CALL_AUTO);
    assert_int_equal(route->fast_path_share, 10000);
    assert_int_equal(route->fast_path_max, 64 << 10);
    assert_true(route->content_length && route->replay && !route->report);
    assert_int_equal(route->timeout_ns + route->filter_count + route->set_header_count, 0);
    expect_text(route->where, "t.ini:5");
    snapshot_unref(snapshot);
}

static void
proxy_and_listener_keys_land_in_their_places(void **state)
{
    (void)state;
    struct snapshot *snapshot = config_test_load(
        "[proxy]\nworkers = 3\nadmin = 127.0.0.1:1\nprobe = 0.0.0.0:2\nlog = "
        "/tmp/x.log\nlog_format = json\n"
        "log_level = debug\naccess_log = stdout\ndrain_delay = 2s\ndrain_timeout = "
        "1m\nbuffer_budget = 4M\n"
        "stream_window = 64K\nmax_message = 2M\nmerge_writes = off\nwatch = off\n"
        "[listener a]\naddress = 127.0.0.1:3, [::1]:4\naddress = unix:/tmp/s\nmax_connections = 5\n"
        "max_streams = 6\nmax_header_list = 7K\nreset_limit = 8/9s\nmax_connection_age = "
        "10m\nunix_mode = 0600\n");
    const struct proxy_conf *proxy = &snapshot->proxy;
    const struct listener_conf *listener = &snapshot->listeners[0];
    assert_int_equal(proxy->workers, 3);
    assert_false(proxy->workers_auto || proxy->buffer_budget_auto || proxy->merge_writes ||
                 proxy->watch);
    expect_text(proxy->admin, "127.0.0.1:1");
    expect_text(proxy->probe, "0.0.0.0:2");
    expect_text(proxy->log, "/tmp/x.log");
    expect_text(proxy->access_log, "stdout");
    assert_int_equal(proxy->log_format, LOG_JSON);
    assert_int_equal(proxy->log_level, LOG_LEVEL_DEBUG);
    assert_int_equal(proxy->drain_delay_ns, 2 * NS_PER_S);
    assert_int_equal(proxy->drain_timeout_ns, 60 * NS_PER_S);
    assert_int_equal(proxy->buffer_budget_bytes, 4 << 20);
    assert_int_equal(proxy->stream_window, 65536);
    assert_int_equal(proxy->max_message, 2 << 20);
    expect_text(listener->name, "a");
    assert_int_equal(listener->address_count, 3);
    expect_text(listener->addresses[1], "[::1]:4");
    expect_text(listener->addresses[2], "unix:/tmp/s");
    assert_int_equal(listener->max_connections, 5);
    assert_int_equal(listener->max_streams, 6);
    assert_int_equal(listener->max_header_list, 7 << 10);
    assert_int_equal(listener->reset_limit, 8);
    assert_int_equal(listener->reset_window_ns, 9 * NS_PER_S);
    assert_int_equal(listener->max_connection_age_ns, 600 * NS_PER_S);
    assert_int_equal(listener->unix_mode, 0600);
    snapshot_unref(snapshot);
}

static void
upstream_keys_land_in_their_places(void **state)
{
    (void)state;
    struct snapshot *snapshot = config_test_load(
        LISTENER_MAIN
        "[upstream u]\nendpoints = a:1\ndiscovery = dns\ndialect = connect\nwire = framed\n"
        "transport = http1\nforward_accept_encoding = on\nlb_policy = round_robin\nconnections = "
        "2\n"
        "max_connections = 3\nmax_connections_http1 = 4\nmax_pending = 0\nconnect_timeout = "
        "250ms\n");
    const struct upstream_conf *upstream = &snapshot->upstreams[0];
    assert_int_equal(upstream->discovery, DISCOVERY_DNS);
    assert_int_equal(upstream->dialect, DIALECT_CONNECT);
    assert_int_equal(upstream->wire, UPSTREAM_WIRE_FRAMED);
    assert_int_equal(upstream->transport, TRANSPORT_HTTP1);
    assert_int_equal(upstream->lb_policy, LB_ROUND_ROBIN);
    assert_true(upstream->forward_accept_encoding);
    assert_int_equal(upstream->connections, 2);
    assert_int_equal(upstream->max_connections, 3);
    assert_int_equal(upstream->max_connections_http1, 4);
    assert_int_equal(upstream->max_pending, 0);
    assert_int_equal(upstream->connect_timeout_ns, 250 * NS_PER_MS);
    snapshot_unref(snapshot);
}

static void
route_keys_land_in_their_places(void **state)
{
    (void)state;
    struct snapshot *snapshot = config_test_load(
        LISTENER_MAIN UPSTREAM_GREETER
        "[route r]\nmatch = /a.B/C, /a.*\nmatch = *\nmatch_authority = *.x.org:80\nmatch_header = "
        "X-Env: blue, green\n"
        "match_header = x-any\nlistener = main\nupstream = greeter\ncall = unary\nfast_path = 10%\n"
        "fast_path_max = 64K\ncontent_length = off\nreplay = off\ntimeout = 3s\nset_service = "
        "a.B\nset_group = g\n"
        "set_version = 1.0\nset_header = X-A: one, two\nset_header = authorization: Bearer "
        "a:b\nreport = on\n");
    const struct route *route = &snapshot->routes[0];
    assert_int_equal(route->match_count, 3);
    expect_text(route->matches[1], "/a.*");
    expect_text(route->matches[2], "*");
    expect_text(route->match_authority, "*.x.org:80");
    assert_int_equal(route->match_header_count, 2);
    expect_text(route->match_headers[0].name, "x-env");
    expect_text(route->match_headers[0].value, "blue, green");
    expect_text(route->match_headers[1].name, "x-any");
    assert_int_equal(route->match_headers[1].value.len, 0);
    expect_text(route->listener, "main");
    assert_int_equal(route->call, CALL_UNARY);
    assert_int_equal(route->fast_path_share, 1000);
    assert_int_equal(route->fast_path_max, 65536);
    assert_false(route->content_length || route->replay);
    assert_true(route->report);
    assert_int_equal(route->timeout_ns, 3 * NS_PER_S);
    expect_text(route->set_service, "a.B");
    expect_text(route->set_group, "g");
    expect_text(route->set_version, "1.0");
    assert_int_equal(route->set_header_count, 2);
    expect_text(route->set_headers[0].name, "x-a");
    expect_text(route->set_headers[0].value, "one, two");
    expect_text(route->set_headers[1].value, "Bearer a:b");
    assert_int_equal(route->set_headers[0].flags, FIELD_STATIC);
    snapshot_unref(snapshot);
}

static void
auto_workers_are_the_cores_there_are(void **state)
{
    (void)state;
    struct snapshot *snapshot = config_test_load("[proxy]\nworkers = auto\n" MINIMAL);
    assert_true(snapshot->proxy.workers_auto);
    assert_in_range(snapshot->proxy.workers, 1, STATS_MAX_WORKERS);
    snapshot_unref(snapshot);
}

static void
localhost_is_the_loopback_address(void **state)
{
    (void)state;
    struct snapshot *snapshot = config_test_load("[proxy]\nadmin = localhost:17010\n"
                                                 "[listener a]\naddress = [::1]:1, localhost:0\n");
    expect_text(snapshot->proxy.admin, "127.0.0.1:17010");
    expect_text(snapshot->listeners[0].addresses[1], "127.0.0.1:0");
    snapshot_unref(snapshot);
}

static void
the_environment_is_put_into_values(void **state)
{
    (void)state;
    setenv("TEST_POD_IP", "10.1.2.3", 1);
    unsetenv("TEST_PORT");
    struct snapshot *snapshot =
        config_test_load("[listener main]\naddress = ${TEST_POD_IP}:${TEST_PORT:-17000}\n");
    expect_text(snapshot->listeners[0].addresses[0], "10.1.2.3:17000");
    snapshot_unref(snapshot);
}

static void
http1_takes_max_connections_when_only_that_is_given(void **state)
{
    (void)state;
    struct snapshot *snapshot =
        config_test_load(LISTENER_MAIN UPSTREAM_GREETER "transport = http1\nmax_connections = 4\n");
    assert_int_equal(snapshot->upstreams[0].max_connections_http1, 4);
    snapshot_unref(snapshot);
    snapshot = config_test_load(LISTENER_MAIN UPSTREAM_GREETER "max_connections = 4\n");
    assert_int_equal(snapshot->upstreams[0].max_connections_http1, 256);
    snapshot_unref(snapshot);
}

static void
the_default_of_max_connections_follows_more_connections(void **state)
{
    (void)state;
    struct snapshot *snapshot =
        config_test_load(LISTENER_MAIN UPSTREAM_GREETER "connections = 16\n");
    assert_int_equal(snapshot->upstreams[0].max_connections, 16);
    snapshot_unref(snapshot);
}

static void
the_default_of_fast_path_max_follows_a_smaller_max_message(void **state)
{
    (void)state;
    struct snapshot *snapshot = config_test_load("[proxy]\nmax_message = 64K\n" MINIMAL);
    assert_int_equal(snapshot->routes[0].fast_path_max, 65536);
    snapshot_unref(snapshot);
}

static void
free_ports_may_be_asked_for_twice(void **state)
{
    (void)state;
    snapshot_unref(config_test_load(
        "[listener a]\naddress = 127.0.0.1:0\n[listener b]\naddress = 127.0.0.1:0\n"));
}

static void
the_routes_can_be_asked_at_once(void **state)
{
    (void)state;
    struct snapshot *snapshot = config_test_load(MINIMAL);
    assert_non_null(snapshot->table);
    snapshot_unref(snapshot);
}

static void
a_thousand_routes_load(void **state)
{
    struct strbuf text = STRBUF_INIT;
    (void)state;
    strbuf_add_str(&text, LISTENER_MAIN UPSTREAM_GREETER);
    for (unsigned i = 0; i < 1000; i++)
        strbuf_addf(&text, "[route r%u]\nmatch = /pkg%u.Service/*\nupstream = greeter\n", i, i);
    struct snapshot *snapshot = config_test_load(text.data);
    assert_int_equal(snapshot->route_count, 1000);
    expect_text(snapshot->routes[999].name, "r999");
    assert_int_equal(snapshot->routes[999].index, 999);
    snapshot_unref(snapshot);
    strbuf_fini(&text);
}

static void
a_file_is_loaded_under_its_name(void **state)
{
    struct config_result result;
    (void)state;
    const char *path = config_test_file("good.ini", MINIMAL, sizeof(MINIMAL) - 1);
    config_load(path, NULL, &result, NULL);
    assert_non_null(result.snapshot);
    assert_true(text_starts(result.snapshot->routes[0].where, text_of(path)));
    snapshot_unref(result.snapshot);
    config_result_fini(&result);
}

static void
an_identity_changes_with_the_file(void **state)
{
    struct config_identity first, second;
    (void)state;
    const char *path = config_test_file("watched.ini", "a", 1);
    assert_true(config_identify(path, &first));
    assert_true(config_identify(path, &second));
    assert_memory_equal(&first, &second, sizeof(first));
    config_test_file("watched.ini", "ab", 2);
    assert_true(config_identify(path, &second));
    assert_memory_not_equal(&first, &second, sizeof(first));
    assert_false(config_identify("/nonexistent/x", &second));
}

/* A ConfigMap is a chain of links; what it ends at is what counts. */
static void
an_identity_follows_links(void **state)
{
    struct config_identity first, second;
    char link[600];
    (void)state;
    const char *path = config_test_file("one.ini", "a", 1);
    snprintf(link, sizeof(link), "%s.link", path);
    assert_int_equal(symlink(path, link), 0);
    assert_true(config_identify(link, &first));
    unlink(link);
    path = config_test_file("two.ini", "a", 1);
    assert_int_equal(symlink(path, link), 0);
    assert_true(config_identify(link, &second));
    assert_int_not_equal(first.inode, second.inode);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_least_configuration_has_the_documented_defaults),
        cmocka_unit_test(sections_have_the_documented_defaults),
        cmocka_unit_test(proxy_and_listener_keys_land_in_their_places),
        cmocka_unit_test(upstream_keys_land_in_their_places),
        cmocka_unit_test(route_keys_land_in_their_places),
        cmocka_unit_test(auto_workers_are_the_cores_there_are),
        cmocka_unit_test(localhost_is_the_loopback_address),
        cmocka_unit_test(the_environment_is_put_into_values),
        cmocka_unit_test(http1_takes_max_connections_when_only_that_is_given),
        cmocka_unit_test(the_default_of_max_connections_follows_more_connections),
        cmocka_unit_test(the_default_of_fast_path_max_follows_a_smaller_max_message),
        cmocka_unit_test(free_ports_may_be_asked_for_twice),
        cmocka_unit_test(the_routes_can_be_asked_at_once),
        cmocka_unit_test(a_thousand_routes_load),
        cmocka_unit_test(a_file_is_loaded_under_its_name),
        cmocka_unit_test(an_identity_changes_with_the_file),
        cmocka_unit_test(an_identity_follows_links),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
