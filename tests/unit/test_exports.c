/* What the endpoints say of statistics filled by hand: whole texts, so that no name can change
 * unnoticed. */
#include <jansson.h>

#include "proxy/base/clock.h"
#include "proxy/exports.h"
#include "tests/unit/unit.h"

enum { WORKERS = 2 };

/* --- fakes of what exports*.c ask the server for --- */

const char *
server_state_name(enum server_state state)
{
    return state == SERVER_READY ? "ready" : "draining";
}

void
workers_buffers(const struct workers *workers, uint64_t *bytes, uint64_t *peak_bytes)
{
    assert_non_null(workers);
    *bytes = 4096;
    *peak_bytes = 8192;
}

/* --- a server with one listener, two routes, one upstream of two endpoints --- */

struct world {
    struct server server;
    struct snapshot snapshot;
    struct listener_conf listener;
    struct upstream_conf upstream;
    struct route routes[2];
};

static int
setup(void **state)
{
    struct world *world = calloc(1, sizeof(*world));
    struct server *server = &world->server;
    struct snapshot *snapshot = &world->snapshot;
    stats_init(&server->stats, WORKERS);
    budget_init(&server->budget, 1 << 20);
    server->file = "t.ini";
    server->state = SERVER_READY;
    server->started_ns = clock_now_ns();
    server->snapshot = snapshot;
    server->workers = (struct workers *)world; /* never looked into */
    snapshot->generation = 3;
    snapshot->proxy.workers = WORKERS;
    snapshot->printed = TEXT("[proxy]\nworkers = 2\n");
    world->listener.name = TEXT("main");
    world->listener.stats =
        stats_register(&server->stats, STATS_LISTENER, world->listener.name, TEXT_NONE);
    world->upstream.name = TEXT("greeter");
    for (unsigned i = 0; i < 2; i++) {
        world->routes[i].name = i ? TEXT("idle") : TEXT("greet");
        world->routes[i].upstream = &world->upstream;
        world->routes[i].stats =
            stats_register(&server->stats, STATS_ROUTE, world->routes[i].name, TEXT_NONE);
    }
    snapshot->listeners = &world->listener;
    snapshot->listener_count = 1;
    snapshot->upstreams = &world->upstream;
    snapshot->upstream_count = 1;
    snapshot->routes = world->routes;
    snapshot->route_count = 1;
    *state = world;
    return 0;
}

static int
teardown(void **state)
{
    struct world *world = *state;
    stats_fini(&world->server.stats);
    free(world->server.reload_error);
    free(world);
    return 0;
}

static struct route_cells *
cells_of(struct world *world, const char *route, unsigned worker)
{
    return stats_route(stats_register(&world->server.stats, STATS_ROUTE, text_of(route), TEXT_NONE),
                       worker);
}

static struct endpoint_cells *
add_endpoint(struct world *world, const char *address, enum endpoint_state state)
{
    struct endpoint_cells *cells = stats_endpoint(
        stats_register(&world->server.stats, STATS_ENDPOINT, TEXT("greeter"), text_of(address)), 0);
    stats_set(&cells->state, state);
    stats_set(&cells->present, 1);
    return cells;
}

/* Nine calls on two workers: eight OK, one NOT_FOUND; one of them timed. */
static void
count_calls(struct world *world)
{
    struct route_cells *first = cells_of(world, "greet", 0), *second = cells_of(world, "greet", 1);
    stats_set(&first->started, 6);
    stats_set(&second->started, 5);
    stats_set(&first->calls, 5);
    stats_set(&second->calls, 4);
    stats_set(&first->status[RPC_OK], 5);
    stats_set(&second->status[RPC_OK], 3);
    stats_set(&second->status[RPC_NOT_FOUND], 1);
    stats_set(&first->path[PATH_FAST], 5);
    stats_set(&second->path[PATH_FRAMED], 4);
    stats_set(&first->retries, 1);
    stats_set(&first->resets_downstream, 2);
    stats_set(&second->resets_upstream, 3);
    stats_set(&first->bytes_in, 100);
    stats_set(&second->bytes_out, 200);
    stats_set(&second->reasons[REASON_QUEUE_FULL], 1);
    for (unsigned i = PHASE_QUEUE; i <= PHASE_UPSTREAM; i++)
        histogram_record(&first->phase[i], 10000);
    histogram_record(&first->path_overhead[PATH_FAST], 10000);
    histogram_record(&first->path_total[PATH_FAST], 10000);
}

/* --- looking at texts --- */

static struct strbuf said;

static const char *
stats_json(struct world *world)
{
    strbuf_clear(&said);
    exports_stats_json(&world->server, &said);
    return said.data;
}

static const char *
metrics(struct world *world)
{
    strbuf_clear(&said);
    exports_metrics(&world->server, &said);
    return said.data;
}

static void
contains_at(const char *text, const char *part, bool wanted, const char *file, int line)
{
    if ((strstr(text, part) != NULL) == wanted)
        return;
    print_error("%s: %s\nin:\n%s\n", wanted ? "missing" : "not wanted", part, text);
    _fail(file, line);
}

#define expect_part(text, part) contains_at(text, part, true, __FILE__, __LINE__)
#define expect_no_part(text, part) contains_at(text, part, false, __FILE__, __LINE__)

#define ZERO "{\"count\":0,\"mean\":0,\"p50\":0,\"p90\":0,\"p99\":0,\"p999\":0,\"max\":0}"
/* One value of 10 us: quantiles are the middle of its cell, 9216 to 10240 ns. */
#define ONE                                                                                        \
    "{\"count\":1,\"mean\":10,\"p50\":9.728,\"p90\":9.728,\"p99\":9.728,\"p999\":9.728,"           \
    "\"max\":10}"
#define NO_PATH(name) "\"" name "\":{\"overhead_us\":" ZERO ",\"total_us\":" ZERO "}"

/* --- /stats --- */

static void
route_has_the_documented_shape(void **state)
{
    struct world *world = *state;
    count_calls(world);
    expect_part(stats_json(world),
                "\"routes\":{\"greet\":{\"started\":11,\"calls\":9,\"active\":2,"
                "\"status\":{\"OK\":8,\"NOT_FOUND\":1},"
                "\"path\":{\"fast\":5,\"cut_through\":0,\"relay\":0,\"framed\":4,\"fallback\":0},"
                "\"retries\":1,\"resets\":{\"downstream\":2,\"upstream\":3},"
                "\"bytes_in\":100,\"bytes_out\":200,\"errors\":{\"QUEUE_FULL\":1},"
                "\"overhead_us\":" ONE ",\"queue_us\":" ONE ",\"request_us\":" ONE
                ",\"response_us\":" ONE ",\"upstream_us\":" ONE ",\"total_us\":" ONE ","
                "\"by_path\":{\"fast\":{\"overhead_us\":" ONE ",\"total_us\":" ONE "}," //
                NO_PATH("cut_through") "," NO_PATH("relay") "," NO_PATH("framed") ","   //
                NO_PATH("fallback") "}}},");
}

static void
process_part_has_the_documented_shape(void **state)
{
    struct world *world = *state;
    expect_part(stats_json(world),
                "{\"version\":\"" TRIBUTARY_VERSION "\",\"state\":\"ready\",\"uptime_s\":0,"
                "\"config\":{\"generation\":3,\"error\":null},"
                "\"buffers\":{\"bytes\":4096,\"peak_bytes\":8192,\"budget_bytes\":1048576},"
                "\"process\":{\"workers\":2,\"cpu_s\":");
    world->server.workers = NULL; /* before they have started */
    expect_part(stats_json(world), "\"buffers\":{\"bytes\":0,\"peak_bytes\":0,");
    expect_part(said.data, "\"upstreams\":{\"greeter\":{\"endpoints\":{}}}}\n");
}

static void
listener_and_endpoint_have_the_documented_shape(void **state)
{
    struct world *world = *state;
    struct listener_cells *listener = stats_listener(world->listener.stats, 1);
    stats_set(&listener->connections, 1);
    stats_set(&listener->accepted, 3);
    stats_set(&listener->reads, 9);
    stats_set(&listener->writes, 8);
    struct endpoint_cells *endpoint = add_endpoint(world, "127.0.0.1:20000", ENDPOINT_READY);
    stats_set(&endpoint->wire, WIRE_BARE);
    stats_set(&endpoint->connections, 1);
    stats_set(&endpoint->opened, 2);
    stats_set(&endpoint->failures, 4);
    histogram_record(&endpoint->upstream, 10000);
    expect_part(stats_json(world), "\"listeners\":{\"main\":{\"connections\":1,\"accepted\":3,"
                                   "\"streams\":0,\"reads\":9,\"writes\":8}},");
    expect_part(said.data,
                "\"upstreams\":{\"greeter\":{\"endpoints\":{\"127.0.0.1:20000\":{"
                "\"state\":\"ready\",\"wire\":\"bare\",\"connections\":1,\"streams\":0,"
                "\"opened\":2,\"failures\":4,\"reads\":0,\"writes\":0,\"upstream_us\":" ONE
                "}}}}}\n");
}

static void
endpoint_that_is_no_longer_named_is_not_shown(void **state)
{
    struct world *world = *state;
    stats_set(&add_endpoint(world, "127.0.0.1:1", ENDPOINT_READY)->present, 0);
    add_endpoint(world, "127.0.0.1:2", ENDPOINT_IDLE);
    expect_no_part(stats_json(world), "127.0.0.1:1\"");
    expect_part(said.data, "\"127.0.0.1:2\":{\"state\":\"idle\"");
    expect_no_part(metrics(world), "127.0.0.1:1\"");
    expect_part(said.data,
                "tributary_endpoint_usable{upstream=\"greeter\",endpoint=\"127.0.0.1:2\"} 1\n");
}

static void
none_is_shown_once_a_call_found_no_route(void **state)
{
    struct world *world = *state;
    struct route_cells *none = cells_of(world, "(none)", 0);
    expect_no_part(stats_json(world), "(none)");
    expect_no_part(metrics(world), "(none)");
    stats_set(&none->started, 1);
    stats_set(&none->calls, 1);
    expect_part(stats_json(world), "},\"(none)\":{\"started\":1,\"calls\":1,");
    expect_part(metrics(world), "tributary_calls_started_total{route=\"(none)\"} 1\n");
}

/* "idle" is registered, and no route of the newest configuration. */
static void
removed_route_is_shown_in_stats_while_calls_run_and_in_metrics_for_good(void **state)
{
    struct world *world = *state;
    struct route_cells *removed = cells_of(world, "idle", 1);
    expect_no_part(stats_json(world), "\"idle\"");
    stats_set(&removed->started, 2);
    stats_set(&removed->calls, 1);
    expect_part(stats_json(world), "\"idle\":{\"started\":2,\"calls\":1,\"active\":1,");
    stats_set(&removed->calls, 2);
    expect_no_part(stats_json(world), "\"idle\"");
    expect_part(metrics(world), "tributary_calls_started_total{route=\"idle\"} 2\n");
}

static void
codes_without_a_name_count_as_other(void **state)
{
    struct world *world = *state;
    struct route_cells *cells = cells_of(world, "greet", 0);
    stats_set(&cells->status[RPC_UNKNOWN], 1);
    stats_set(&cells->status[RPC_BIZ], 2);
    stats_set(&cells->status[STATS_CODES - 1], 3);
    expect_part(stats_json(world), "\"status\":{\"UNKNOWN\":1,\"BIZ_ERROR\":2,\"OTHER\":3}");
}

/* A reader sees the worker's stores in any order. */
static void
more_ended_than_begun_is_none_active(void **state)
{
    struct world *world = *state;
    stats_set(&cells_of(world, "greet", 0)->calls, 1);
    expect_part(stats_json(world), "\"started\":0,\"calls\":1,\"active\":0,");
    expect_part(metrics(world), "tributary_calls_active{route=\"greet\"} 0\n");
}

static void
stats_are_json_whatever_texts_hold(void **state)
{
    struct world *world = *state;
    count_calls(world);
    add_endpoint(world, "unix:/a\"b\\c\nd\xff", ENDPOINT_BACKOFF);
    world->server.reload_error = strdup("t.ini:1: \"quoted\"\nt.ini:2: \t\x01\n");
    json_error_t error;
    json_t *root = json_loads(stats_json(world), JSON_REJECT_DUPLICATES, &error);
    if (!root)
        print_error("%s at %d\n", error.text, error.position);
    assert_non_null(root);
    json_t *config = json_object_get(root, "config");
    assert_string_equal(json_string_value(json_object_get(config, "error")),
                        "t.ini:1: \"quoted\"\nt.ini:2: \t\x01");
    json_t *upstream = json_object_get(json_object_get(root, "upstreams"), "greeter");
    assert_non_null(
        json_object_get(json_object_get(upstream, "endpoints"), "unix:/a\"b\\c\nd\xef\xbf\xbd"));
    json_decref(root);
}

/* --- /metrics --- */

static void
metrics_of_a_route_are_counters_and_seconds(void **state)
{
    struct world *world = *state;
    count_calls(world);
    const char *text = metrics(world);
    expect_part(text, "# HELP tributary_calls_total Calls that have ended, by their final status.\n"
                      "# TYPE tributary_calls_total counter\n"
                      "tributary_calls_total{route=\"greet\",status=\"OK\"} 8\n"
                      "tributary_calls_total{route=\"greet\",status=\"NOT_FOUND\"} 1\n"
                      "# HELP tributary_calls_by_path_total ");
    expect_part(text, "tributary_calls_by_path_total{route=\"greet\",path=\"framed\"} 4\n");
    expect_part(text, "tributary_call_errors_total{route=\"greet\",reason=\"QUEUE_FULL\"} 1\n");
    expect_part(text, "tributary_request_bytes_total{route=\"greet\"} 100\n");
    expect_part(text, "# TYPE tributary_call_phase_seconds histogram\n"
                      "tributary_call_phase_seconds_bucket{route=\"greet\",phase=\"overhead\","
                      "le=\"4.096e-06\"} 0\n"
                      "tributary_call_phase_seconds_bucket{route=\"greet\",phase=\"overhead\","
                      "le=\"8.192e-06\"} 0\n"
                      "tributary_call_phase_seconds_bucket{route=\"greet\",phase=\"overhead\","
                      "le=\"1.6384e-05\"} 1\n");
    expect_part(text, "tributary_call_phase_seconds_bucket{route=\"greet\",phase=\"total\","
                      "le=\"+Inf\"} 1\n"
                      "tributary_call_phase_seconds_sum{route=\"greet\",phase=\"total\"} "
                      "0.000010000\n"
                      "tributary_call_phase_seconds_count{route=\"greet\",phase=\"total\"} 1\n");
    expect_part(text, "tributary_path_overhead_seconds_count{route=\"greet\",path=\"fast\"} 1\n");
    expect_no_part(text, "tributary_path_overhead_seconds_count{route=\"greet\",path=\"relay\"}");
    expect_part(text, "tributary_config_generation 3\n");
    expect_part(text, "tributary_build_info{version=\"" TRIBUTARY_VERSION "\"} 1\n");
}

static void
every_family_stands_once_with_its_samples_behind_it(void **state)
{
    struct world *world = *state;
    count_calls(world);
    stats_set(&cells_of(world, "idle", 0)->started, 1);
    add_endpoint(world, "127.0.0.1:1", ENDPOINT_READY);
    struct text rest = text_of(metrics(world)), line;
    char family[96] = "", seen[8192] = "";
    unsigned families = 0;
    while (text_next(&rest, '\n', &line)) {
        if (text_starts(line, TEXT("# TYPE "))) {
            assert_int_equal(sscanf(line.ptr, "# TYPE %95s", family), 1);
            char mark[100];
            snprintf(mark, sizeof(mark), "<%s>", family);
            assert_null(strstr(seen, mark));
            strcat(seen, mark);
            families++;
        } else if (!text_starts(line, TEXT("# HELP "))) {
            assert_true(text_starts(line, text_of(family)));
        }
    }
    assert_true(families > 30);
}

static void
metrics_reach_back_behind_a_reset(void **state)
{
    struct world *world = *state;
    count_calls(world);
    stats_reset_histograms(&world->server.stats, 0);
    expect_part(stats_json(world), "\"overhead_us\":" ZERO);
    expect_part(metrics(world),
                "tributary_call_phase_seconds_count{route=\"greet\",phase=\"overhead\"} 1\n");
}

static void
label_values_are_escaped(void **state)
{
    struct world *world = *state;
    add_endpoint(world, "unix:/a\"b\\c\nd\xff", ENDPOINT_READY);
    expect_part(metrics(world), "endpoint=\"unix:/a\\\"b\\\\c\\nd\xef\xbf\xbd\"} 1\n");
}

/* --- /config and /ready?upstreams --- */

static void
config_shows_generation_and_last_error_as_comments(void **state)
{
    struct world *world = *state;
    struct strbuf out = STRBUF_INIT;
    exports_config(&world->server, &out);
    assert_string_equal(out.data, "; effective configuration, generation 3, from t.ini\n\n"
                                  "[proxy]\nworkers = 2\n");
    strbuf_clear(&out);
    world->server.reload_error = strdup("t.ini:1: one\nt.ini:2: two\n");
    exports_config(&world->server, &out);
    assert_string_equal(out.data, "; effective configuration, generation 3, from t.ini\n"
                                  "; the last reload failed and changed nothing:\n"
                                  ";   t.ini:1: one\n;   t.ini:2: two\n\n"
                                  "[proxy]\nworkers = 2\n");
    strbuf_fini(&out);
}

static void
upstreams_are_ready_by_the_state_of_their_endpoints(void **state)
{
    static const struct {
        enum endpoint_state state;
        bool ready;
    } cases[] = {
        {ENDPOINT_IDLE, true},     {ENDPOINT_CONNECTING, true}, {ENDPOINT_READY, true},
        {ENDPOINT_BACKOFF, false}, {ENDPOINT_EJECTED, false},   {ENDPOINT_DRAINING, true},
    };
    struct world *world = *state;
    struct strbuf out = STRBUF_INIT;
    struct endpoint_cells *endpoint = add_endpoint(world, "127.0.0.1:1", ENDPOINT_IDLE);
    for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        stats_set(&endpoint->state, cases[i].state);
        strbuf_clear(&out);
        assert_int_equal(exports_upstreams_ready(&world->server, &out), cases[i].ready);
        if (!cases[i].ready)
            assert_string_equal(out.data,
                                "route greet: upstream greeter has no usable endpoint (of 1)\n");
    }
    /* One that works is enough. */
    add_endpoint(world, "127.0.0.1:2", ENDPOINT_READY);
    stats_set(&endpoint->state, ENDPOINT_BACKOFF);
    assert_true(exports_upstreams_ready(&world->server, &out));
    strbuf_fini(&out);
}

static void
upstream_without_endpoints_is_not_ready(void **state)
{
    struct world *world = *state;
    struct strbuf out = STRBUF_INIT;
    world->snapshot.route_count = 2;
    assert_false(exports_upstreams_ready(&world->server, &out));
    assert_string_equal(out.data, "route greet: upstream greeter has no endpoint\n"
                                  "route idle: upstream greeter has no endpoint\n");
    strbuf_fini(&out);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        TEST(route_has_the_documented_shape),
        TEST(process_part_has_the_documented_shape),
        TEST(listener_and_endpoint_have_the_documented_shape),
        TEST(endpoint_that_is_no_longer_named_is_not_shown),
        TEST(none_is_shown_once_a_call_found_no_route),
        TEST(removed_route_is_shown_in_stats_while_calls_run_and_in_metrics_for_good),
        TEST(codes_without_a_name_count_as_other),
        TEST(more_ended_than_begun_is_none_active),
        TEST(stats_are_json_whatever_texts_hold),
        TEST(metrics_of_a_route_are_counters_and_seconds),
        TEST(every_family_stands_once_with_its_samples_behind_it),
        TEST(metrics_reach_back_behind_a_reset),
        TEST(label_values_are_escaped),
        TEST(config_shows_generation_and_last_error_as_comments),
        TEST(upstreams_are_ready_by_the_state_of_their_endpoints),
        TEST(upstream_without_endpoints_is_not_ready),
    };
    int failed = cmocka_run_group_tests_name("exports", tests, NULL, NULL);
    strbuf_fini(&said);
    return failed;
}
