/* [filter NAME] sections, with the test's own type "limit". */
#include "tests/unit/config_test.h"

#include "proxy/base/clock.h"
#include "proxy/call/filter.h"

#define FILTER_LIM "[filter lim]\ntype = limit\nrate = 100/1s\n"

static void
settings_reach_the_routes_that_name_the_filter(void **state)
{
    (void)state;
    struct snapshot *snapshot =
        config_test_load(MINIMAL "filters = second, lim\n" FILTER_LIM "label = a, b\nlabel = c\n"
                                 "[filter second]\ntype = limit\nrate = 5/10s\nburst = 7\n");
    const struct route *route = &snapshot->routes[0];
    assert_int_equal(route->filter_count, 2);
    const struct config_test_limit *second = route->filter_settings[0],
                                   *lim = route->filter_settings[1];
    assert_string_equal(route->filters[0]->name, "limit");
    assert_int_equal(second->rate, 5);
    assert_int_equal(second->window_ns, 10 * NS_PER_S);
    assert_int_equal(second->burst, 7);
    assert_int_equal(lim->rate, 100);
    assert_int_equal(lim->burst, 10);
    assert_int_equal(lim->labels, 3);
    assert_int_equal(second->labels, 0);
    snapshot_unref(snapshot);
}

static void
what_is_wrong_in_a_filter_is_told_at_its_line(void **state)
{
    (void)state;
    expect_errors(LISTENER_MAIN "[filter f]\n",
                  "t.ini:3: [filter f] type: missing; known here: limit\n");
    expect_errors(LISTENER_MAIN "[filter f]\ntype = limt\n",
                  "t.ini:4: [filter f] type: 'limt' is no type of filter; did you mean 'limit'?\n");
    expect_errors(LISTENER_MAIN "[filter f]\ntype = limit\n",
                  "t.ini:3: [filter f] rate: missing; calls per time, for example 100/1s\n");
    expect_errors(LISTENER_MAIN FILTER_LIM "brust = 1\n",
                  "t.ini:6: [filter lim] brust: no such key of a filter of type limit; did you "
                  "mean 'burst'?\n");
    expect_errors(
        LISTENER_MAIN FILTER_LIM "burst = 1\nburst = 2\n",
        "t.ini:7: [filter lim] burst: is there already, in line 6; keep one of the two\n");
    expect_errors(LISTENER_MAIN FILTER_LIM "burst = -2\n",
                  "t.ini:6: [filter lim] burst: '-2' is not a number\n");
    expect_errors(LISTENER_MAIN FILTER_LIM "burst = 1001\n",
                  "t.ini:4: [filter lim] type: limit: burst is more than 1000\n");
    expect_errors(
        LISTENER_MAIN "[filter f]\ntype = limit\nrate = many\n",
        "t.ini:5: [filter f] rate: 'many' is not a rate; write for example 100/1s, or off\n");
    expect_errors(LISTENER_MAIN "[filter]\ntype = limit\n",
                  "t.ini:3: [filter] needs a name; write [filter NAME]\n");
}

static void
a_filter_that_a_route_misspells(void **state)
{
    (void)state;
    expect_errors(
        MINIMAL "filters = lmi\n" FILTER_LIM,
        "t.ini:8: [route greet] filters: there is no [filter lmi]; did you mean 'lim'?\n");
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(settings_reach_the_routes_that_name_the_filter),
        cmocka_unit_test(what_is_wrong_in_a_filter_is_told_at_its_line),
        cmocka_unit_test(a_filter_that_a_route_misspells),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
