/* The registry and its sums: one writer a cell, histograms since the reset and since the start. */
#include "tests/unit/unit.h"

#include <pthread.h>

#include "proxy/stats/stats.h"

static struct stats stats;
static struct route_cells route_sum;
static struct listener_cells listener_sum;
static struct endpoint_cells endpoint_sum;

static int
setup(void **state)
{
    (void)state;
    stats_init(&stats, 3);
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    stats_fini(&stats);
    return 0;
}

static struct stats_entry *
endpoint(const char *address)
{
    return stats_register(&stats, STATS_ENDPOINT, TEXT("greeter"), text_of(address));
}

static void
same_name_is_the_same_entry_for_each_kind(void **state)
{
    (void)state;
    struct stats_entry *route = stats_register(&stats, STATS_ROUTE, TEXT("main"), TEXT_NONE);
    struct stats_entry *listener = stats_register(&stats, STATS_LISTENER, TEXT("main"), TEXT_NONE);
    assert_ptr_not_equal(route, listener);
    assert_ptr_equal(stats_register(&stats, STATS_ROUTE, TEXT("main"), TEXT_NONE), route);
    assert_ptr_not_equal(stats_register(&stats, STATS_ROUTE, TEXT("mai"), TEXT_NONE), route);
    assert_string_equal(route->name, "main");
    assert_null(route->name2);
    assert_ptr_equal(endpoint("a:1"), endpoint("a:1"));
    assert_ptr_not_equal(endpoint("a:1"), endpoint("a:2"));
    assert_string_equal(endpoint("a:2")->name2, "a:2");
}

static void
walk_goes_in_the_order_of_registration(void **state)
{
    (void)state;
    assert_null(stats_next(&stats, NULL));
    struct stats_entry *b = stats_register(&stats, STATS_ROUTE, TEXT("b"), TEXT_NONE);
    struct stats_entry *a = stats_register(&stats, STATS_ROUTE, TEXT("a"), TEXT_NONE);
    stats_register(&stats, STATS_ROUTE, TEXT("b"), TEXT_NONE);
    assert_ptr_equal(stats_next(&stats, NULL), b);
    assert_ptr_equal(stats_next(&stats, b), a);
    assert_null(stats_next(&stats, a));
}

static void
cells_are_made_once_a_worker_and_zero(void **state)
{
    (void)state;
    static const struct route_cells zero;
    struct stats_entry *entry = stats_register(&stats, STATS_ROUTE, TEXT("r"), TEXT_NONE);
    struct route_cells *first = stats_route(entry, 0), *other = stats_route(entry, 2);
    assert_memory_equal(first, &zero, sizeof(zero));
    assert_ptr_equal(stats_route(entry, 0), first);
    assert_ptr_not_equal(first, other);
    /* No two workers write to one cache line. */
    assert_int_equal((uintptr_t)first % 64, 0);
    assert_int_equal((uintptr_t)other % 64, 0);
}

static void
sum_of_a_name_nobody_counted_is_zero(void **state)
{
    (void)state;
    static const struct route_cells zero;
    struct stats_entry *entry = stats_register(&stats, STATS_ROUTE, TEXT("r"), TEXT_NONE);
    memset(&route_sum, 0xff, sizeof(route_sum));
    stats_sum_route(&stats, entry, &route_sum);
    assert_memory_equal(&route_sum, &zero, sizeof(zero));
}

/* Every plain cell of a route gets its own number on each worker: a cell that a sum forgets or
 * swaps shows. */
static void
every_cell_of_a_route_is_summed(void **state)
{
    (void)state;
    enum { PLAIN = offsetof(struct route_cells, phase) / sizeof(stats_cell) };
    struct stats_entry *entry = stats_register(&stats, STATS_ROUTE, TEXT("r"), TEXT_NONE);
    for (unsigned worker = 0; worker < 3; worker += 2) {
        struct route_cells *cells = stats_route(entry, worker);
        for (unsigned i = 0; i < PLAIN; i++)
            stats_set((stats_cell *)cells + i, (i + 1) * (worker + 1));
        for (unsigned i = 0; i < PHASE_COUNT; i++)
            histogram_record(&cells->phase[i], 1000 * (i + 1));
        for (unsigned i = 0; i < PATH_COUNT; i++) {
            histogram_record(&cells->path_overhead[i], 100000 * (i + 1));
            histogram_record(&cells->path_total[i], 10000000 * (i + 1));
        }
    }
    stats_sum_route(&stats, entry, &route_sum);
    for (unsigned i = 0; i < PLAIN; i++)
        assert_int_equal(stats_get((stats_cell *)&route_sum + i), (i + 1) * 4);
    for (unsigned i = PHASE_QUEUE; i <= PHASE_UPSTREAM; i++)
        assert_int_equal(route_sum.phase[i].sum_ns, 2000 * (i + 1));
    unsigned paths = PATH_COUNT * (PATH_COUNT + 1) / 2; /* 1 + 2 + ... */
    const struct histogram *overhead = &route_sum.phase[PHASE_OVERHEAD];
    const struct histogram *total = &route_sum.phase[PHASE_TOTAL];
    assert_int_equal(overhead->sum_ns, 2000 * (PHASE_OVERHEAD + 1) + 200000 * paths);
    assert_int_equal(total->sum_ns, 2000 * (PHASE_TOTAL + 1) + 20000000 * paths);
    assert_int_equal(histogram_count(total), 2 + 2 * PATH_COUNT);
    assert_int_equal(total->max_ns, 10000000 * PATH_COUNT);
    for (unsigned i = 0; i < PATH_COUNT; i++) {
        assert_int_equal(route_sum.path_overhead[i].sum_ns, 200000 * (i + 1));
        assert_int_equal(route_sum.path_total[i].sum_ns, 20000000 * (i + 1));
        assert_int_equal(route_sum.path_total[i].max_ns, 10000000 * (i + 1));
    }
}

static void
every_cell_of_a_listener_is_summed(void **state)
{
    (void)state;
    enum { PLAIN = sizeof(struct listener_cells) / sizeof(stats_cell) };
    struct stats_entry *entry = stats_register(&stats, STATS_LISTENER, TEXT("l"), TEXT_NONE);
    for (unsigned worker = 0; worker < 3; worker++)
        for (unsigned i = 0; i < PLAIN; i++)
            stats_set((stats_cell *)stats_listener(entry, worker) + i, i + 10 * worker);
    stats_sum_listener(&stats, entry, &listener_sum);
    for (unsigned i = 0; i < PLAIN; i++)
        assert_int_equal(stats_get((stats_cell *)&listener_sum + i), 3 * i + 30);
}

static void
every_counter_of_an_endpoint_is_summed(void **state)
{
    (void)state;
    struct stats_entry *entry = endpoint("a:1");
    for (unsigned worker = 0; worker < 2; worker++) {
        struct endpoint_cells *cells = stats_endpoint(entry, worker);
        stats_add(&cells->connections, 1);
        stats_add(&cells->streams, 2);
        stats_add(&cells->opened, 3);
        stats_add(&cells->failures, 4);
        stats_add(&cells->reads, 5);
        stats_add(&cells->writes, 6);
        histogram_record(&cells->upstream, 1000);
    }
    stats_sub(&stats_endpoint(entry, 1)->streams, 1);
    stats_sum_endpoint(&stats, entry, &endpoint_sum);
    assert_int_equal(endpoint_sum.connections, 2);
    assert_int_equal(endpoint_sum.streams, 3);
    assert_int_equal(endpoint_sum.opened, 6);
    assert_int_equal(endpoint_sum.failures, 8);
    assert_int_equal(endpoint_sum.reads, 10);
    assert_int_equal(endpoint_sum.writes, 12);
    assert_int_equal(histogram_count(&endpoint_sum.upstream), 2);
}

static void
set_endpoint(struct stats_entry *entry, unsigned worker, enum endpoint_state state,
             enum endpoint_wire wire, uint64_t present)
{
    struct endpoint_cells *cells = stats_endpoint(entry, worker);
    stats_set(&cells->state, state);
    stats_set(&cells->wire, wire);
    stats_set(&cells->present, present);
}

static void
expect_endpoint(struct stats_entry *entry, enum endpoint_state state, enum endpoint_wire wire,
                uint64_t present)
{
    stats_sum_endpoint(&stats, entry, &endpoint_sum);
    assert_int_equal(endpoint_sum.state, state);
    assert_int_equal(endpoint_sum.wire, wire);
    assert_int_equal(endpoint_sum.present, present);
}

static void
best_state_of_all_workers_is_shown(void **state)
{
    (void)state;
    static const enum endpoint_state order[] = {ENDPOINT_EJECTED,    ENDPOINT_BACKOFF,
                                                ENDPOINT_IDLE,       ENDPOINT_DRAINING,
                                                ENDPOINT_CONNECTING, ENDPOINT_READY};
    struct stats_entry *entry = endpoint("a:1");
    for (unsigned worse = 0; worse < 6; worse++) {
        for (unsigned better = worse; better < 6; better++) {
            set_endpoint(entry, 0, order[worse], WIRE_UNKNOWN, 1);
            set_endpoint(entry, 1, order[better], WIRE_UNKNOWN, 1);
            expect_endpoint(entry, order[better], WIRE_UNKNOWN, 1);
            set_endpoint(entry, 0, order[better], WIRE_UNKNOWN, 1);
            set_endpoint(entry, 1, order[worse], WIRE_UNKNOWN, 1);
            expect_endpoint(entry, order[better], WIRE_UNKNOWN, 1);
        }
    }
}

static void
known_wire_form_is_shown_whoever_learnt_it(void **state)
{
    (void)state;
    struct stats_entry *entry = endpoint("a:1");
    set_endpoint(entry, 0, ENDPOINT_READY, WIRE_UNKNOWN, 1);
    set_endpoint(entry, 1, ENDPOINT_IDLE, WIRE_FRAMED, 1);
    expect_endpoint(entry, ENDPOINT_READY, WIRE_FRAMED, 1);
    set_endpoint(entry, 0, ENDPOINT_READY, WIRE_BARE, 1);
    set_endpoint(entry, 1, ENDPOINT_IDLE, WIRE_UNKNOWN, 1);
    expect_endpoint(entry, ENDPOINT_READY, WIRE_BARE, 1);
}

static void
worker_that_no_longer_lists_an_endpoint_has_no_say(void **state)
{
    (void)state;
    struct stats_entry *entry = endpoint("a:1");
    set_endpoint(entry, 0, ENDPOINT_READY, WIRE_BARE, 0);
    expect_endpoint(entry, ENDPOINT_READY, WIRE_BARE, 0);
    set_endpoint(entry, 1, ENDPOINT_EJECTED, WIRE_FRAMED, 1);
    expect_endpoint(entry, ENDPOINT_EJECTED, WIRE_FRAMED, 1);
    set_endpoint(entry, 2, ENDPOINT_CONNECTING, WIRE_UNKNOWN, 0);
    expect_endpoint(entry, ENDPOINT_EJECTED, WIRE_FRAMED, 1);
}

static void
reset_empties_histograms_and_keeps_counters(void **state)
{
    (void)state;
    struct stats_entry *entry = stats_register(&stats, STATS_ROUTE, TEXT("r"), TEXT_NONE);
    struct route_cells *cells = stats_route(entry, 1);
    stats_add(&cells->calls, 7);
    for (unsigned i = 0; i < 7; i++) {
        histogram_record(&cells->phase[PHASE_QUEUE], 5000000);
        histogram_record(&cells->path_overhead[PATH_FAST], 5000);
        histogram_record(&cells->path_total[PATH_FRAMED], 50000);
    }
    stats_reset_histograms(&stats, 0); /* another worker's */
    stats_sum_route(&stats, entry, &route_sum);
    assert_int_equal(histogram_count(&route_sum.phase[PHASE_QUEUE]), 7);
    assert_int_equal(histogram_count(&route_sum.phase[PHASE_TOTAL]), 7);
    assert_int_equal(route_sum.phase[PHASE_TOTAL].max_ns, 50000);
    stats_reset_histograms(&stats, 1);
    stats_sum_route(&stats, entry, &route_sum);
    assert_int_equal(route_sum.calls, 7);
    assert_int_equal(histogram_count(&route_sum.phase[PHASE_QUEUE]), 0);
    assert_int_equal(histogram_count(&route_sum.phase[PHASE_TOTAL]), 0);
    assert_int_equal(route_sum.phase[PHASE_TOTAL].max_ns, 0);
    assert_int_equal(histogram_count(&route_sum.path_overhead[PATH_FAST]), 0);
    assert_int_equal(histogram_count(&route_sum.path_total[PATH_FRAMED]), 0);
}

static void
after_a_reset_only_new_values_count_but_metrics_go_on(void **state)
{
    (void)state;
    struct histogram_summary summary;
    struct stats_entry *entry = stats_register(&stats, STATS_ROUTE, TEXT("r"), TEXT_NONE);
    struct route_cells *cells = stats_route(entry, 0);
    for (unsigned i = 0; i < 100; i++)
        histogram_record(&cells->phase[PHASE_OVERHEAD], 900000);
    stats_reset_histograms(&stats, 0);
    histogram_record(&cells->phase[PHASE_OVERHEAD], 10000);
    histogram_record(&stats_route(entry, 2)->phase[PHASE_OVERHEAD], 20000);
    stats_sum_route(&stats, entry, &route_sum);
    histogram_summarize(&route_sum.phase[PHASE_OVERHEAD], &summary);
    assert_int_equal(summary.count, 2);
    assert_true(summary.max_us > 19.9 && summary.max_us < 20.1);
    assert_true(summary.mean_us > 14.9 && summary.mean_us < 15.1);
    stats_sum_route_since(&stats, entry, STATS_SINCE_START, &route_sum);
    assert_int_equal(histogram_count(&route_sum.phase[PHASE_OVERHEAD]), 102);
    assert_int_equal(histogram_count_below(&route_sum.phase[PHASE_OVERHEAD], UINT64_MAX), 102);
}

static void
endpoints_are_reset_too(void **state)
{
    (void)state;
    struct stats_entry *entry = endpoint("a:1");
    histogram_record(&stats_endpoint(entry, 0)->upstream, 1000);
    stats_register(&stats, STATS_LISTENER, TEXT("main"), TEXT_NONE);
    stats_listener(stats_next(&stats, entry), 0);
    stats_reset_histograms(&stats, 0);
    stats_sum_endpoint(&stats, entry, &endpoint_sum);
    assert_int_equal(histogram_count(&endpoint_sum.upstream), 0);
    stats_sum_endpoint_since(&stats, entry, STATS_SINCE_START, &endpoint_sum);
    assert_int_equal(histogram_count(&endpoint_sum.upstream), 1);
}

enum { ROUNDS = 3000 };

static void *
work(void *number)
{
    unsigned worker = (unsigned)(uintptr_t)number;
    for (unsigned i = 0; i < ROUNDS; i++) {
        char address[24];
        snprintf(address, sizeof(address), "10.0.0.%u:80", i % 50);
        struct endpoint_cells *cells = stats_endpoint(endpoint(address), worker);
        stats_add(&cells->opened, 1);
        histogram_record(&cells->upstream, 1000 + i);
        if (i % 500 == 0)
            stats_reset_histograms(&stats, worker);
    }
    return NULL;
}

static uint64_t
opened_in_all(void)
{
    uint64_t opened = 0;
    for (struct stats_entry *entry = stats_next(&stats, NULL); entry;
         entry = stats_next(&stats, entry)) {
        stats_sum_endpoint_since(&stats, entry, STATS_SINCE_START, &endpoint_sum);
        opened += stats_get(&endpoint_sum.opened);
        assert_true(histogram_count(&endpoint_sum.upstream) <= 3 * ROUNDS);
    }
    return opened;
}

static void
workers_register_count_and_are_summed_at_once(void **state)
{
    (void)state;
    pthread_t threads[3];
    for (uintptr_t i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, work, (void *)i), 0);
    uint64_t last = 0;
    for (unsigned i = 0; i < 200; i++) {
        uint64_t now = opened_in_all();
        assert_true(now >= last);
        last = now;
    }
    for (unsigned i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(opened_in_all(), 3 * ROUNDS);
}

static void
every_name_is_there_and_its_own(void **state)
{
    (void)state;
    for (unsigned i = 0; i < REASON_COUNT; i++) {
        assert_non_null(stats_reason_name(i));
        for (unsigned j = 0; j < i; j++)
            assert_string_not_equal(stats_reason_name(i), stats_reason_name(j));
    }
    for (unsigned i = 0; i < PHASE_COUNT; i++)
        assert_non_null(stats_phase_name(i));
    for (unsigned i = 0; i < PATH_COUNT; i++)
        assert_non_null(stats_path_name(i));
    assert_string_equal(stats_reason_name(REASON_NO_ROUTE), "NO_ROUTE");
    assert_string_equal(stats_reason_name(REASON_FILTER), "FILTER");
    assert_string_equal(stats_path_name(PATH_CUT_THROUGH), "cut_through");
    assert_string_equal(stats_phase_name(PHASE_TOTAL), "total");
    assert_string_equal(stats_state_name(ENDPOINT_DRAINING), "draining");
    assert_string_equal(stats_wire_name(WIRE_FRAMED), "framed");
}

int
main(void)
{
#define WITH_STATS(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
    const struct CMUnitTest tests[] = {
        WITH_STATS(same_name_is_the_same_entry_for_each_kind),
        WITH_STATS(walk_goes_in_the_order_of_registration),
        WITH_STATS(cells_are_made_once_a_worker_and_zero),
        WITH_STATS(sum_of_a_name_nobody_counted_is_zero),
        WITH_STATS(every_cell_of_a_route_is_summed),
        WITH_STATS(every_cell_of_a_listener_is_summed),
        WITH_STATS(every_counter_of_an_endpoint_is_summed),
        WITH_STATS(best_state_of_all_workers_is_shown),
        WITH_STATS(known_wire_form_is_shown_whoever_learnt_it),
        WITH_STATS(worker_that_no_longer_lists_an_endpoint_has_no_say),
        WITH_STATS(reset_empties_histograms_and_keeps_counters),
        WITH_STATS(after_a_reset_only_new_values_count_but_metrics_go_on),
        WITH_STATS(endpoints_are_reset_too),
        WITH_STATS(workers_register_count_and_are_summed_at_once),
        WITH_STATS(every_name_is_there_and_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
