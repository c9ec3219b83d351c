/*
 * Names to endpoints, with name servers of the test's own: this program's getaddrinfo() is the one
 * below.
 */
#include "loop_fixture.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "proxy/base/clock.h"
#include "upstream/resolver.h"

/* --- the name servers --- */

static struct {
    pthread_mutex_t lock;
    const char *addresses[4]; /* what any name has; none: not found */
    unsigned delay_ms, asked;
} names = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void
set_names(unsigned delay_ms, const char *first, const char *second)
{
    pthread_mutex_lock(&names.lock);
    names.delay_ms = delay_ms;
    names.addresses[0] = first;
    names.addresses[1] = second;
    pthread_mutex_unlock(&names.lock);
}

static unsigned
times_asked(void)
{
    pthread_mutex_lock(&names.lock);
    unsigned asked = names.asked;
    pthread_mutex_unlock(&names.lock);
    return asked;
}

static struct addrinfo *
make_info(const char *text, struct addrinfo *next)
{
    struct addrinfo *info = calloc(1, sizeof(*info) + sizeof(struct sockaddr_in6));
    struct sockaddr_in *in = (struct sockaddr_in *)(info + 1);
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)(info + 1);
    bool v6 = strchr(text, ':') != NULL;
    info->ai_addr = (struct sockaddr *)in;
    info->ai_family = v6 ? AF_INET6 : AF_INET;
    info->ai_addrlen = v6 ? sizeof(*in6) : sizeof(*in);
    in->sin_family = (sa_family_t)info->ai_family;
    inet_pton(info->ai_family, text, v6 ? (void *)&in6->sin6_addr : (void *)&in->sin_addr);
    info->ai_next = next;
    return info;
}

int
getaddrinfo(const char *node, const char *service, const struct addrinfo *hints,
            struct addrinfo **list)
{
    (void)node;
    (void)service;
    (void)hints;
    pthread_mutex_lock(&names.lock);
    unsigned delay_ms = names.delay_ms;
    names.asked++;
    pthread_mutex_unlock(&names.lock);
    usleep(delay_ms * 1000);
    *list = NULL;
    pthread_mutex_lock(&names.lock);
    for (int i = 1; i >= 0; i--)
        if (names.addresses[i])
            *list = make_info(names.addresses[i], *list);
    pthread_mutex_unlock(&names.lock);
    return *list ? 0 : EAI_NONAME;
}

void
freeaddrinfo(struct addrinfo *list)
{
    while (list) {
        struct addrinfo *next = list->ai_next;
        free(list);
        list = next;
    }
}

/* --- the rig --- */

struct rig {
    struct loop_fixture *fixture;
    struct worker worker;
    struct upstream_conf conf;
    struct text endpoints[4];
    struct resolver *resolver;
    unsigned published;
    char list[512]; /* the names last published, a blank behind each */
    char hosts[512];
};

static void
on_endpoints(void *owner, const struct resolved *list, unsigned count)
{
    struct rig *rig = owner;
    rig->published++;
    rig->list[0] = rig->hosts[0] = 0;
    for (unsigned i = 0; i < count; i++) {
        size_t len = strlen(rig->list), hosts = strlen(rig->hosts);
        snprintf(rig->list + len, sizeof(rig->list) - len, "%.*s ", TEXT_ARGS(list[i].name));
        snprintf(rig->hosts + hosts, sizeof(rig->hosts) - hosts, "%.*s ", TEXT_ARGS(list[i].host));
    }
}

static void
use(struct rig *rig, const char *first, const char *second)
{
    rig->conf.endpoints = rig->endpoints;
    rig->endpoints[0] = text_of(first);
    rig->endpoints[1] = second ? text_of(second) : TEXT_NONE;
    rig->conf.endpoint_count = second ? 2 : 1;
    resolver_update(rig->resolver, &rig->conf);
}

/* The worker's context is the fixture's loop with a name: resolvers only touch its clock. */
static struct rig *
rig_open(void **state)
{
    struct rig *rig = calloc(1, sizeof(*rig));
    rig->fixture = *state;
    rig->worker.ctx.loop = &rig->fixture->loop;
    rig->resolver = resolver_open(&rig->worker, "up", on_endpoints, rig);
    return rig;
}

static void
rig_close(struct rig *rig)
{
    resolver_close(rig->resolver);
    loop_run_ms(rig->fixture, 5);
    free(rig);
}

static void
await_list(struct rig *rig, const char *list)
{
    for (int i = 0; i < 3000 && strcmp(rig->list, list) != 0; i++)
        loop_run_ms(rig->fixture, 1);
    assert_string_equal(rig->list, list);
}

/* Look-ups are made by libuv's threads: when, is the machine's affair. */
static void
await_asked(struct rig *rig, unsigned times)
{
    for (int i = 0; i < 3000 && times_asked() < times; i++)
        loop_run_ms(rig->fixture, 1);
    assert_int_equal(times_asked(), times);
}

/* --- tests --- */

static void
addresses_need_no_look_up(void **state)
{
    struct rig *rig = rig_open(state);
    unsigned before = times_asked();
    use(rig, "127.0.0.1:1", "[::1]:2");
    assert_string_equal(rig->list, "127.0.0.1:1 [::1]:2 ");
    assert_string_equal(rig->hosts, "  ");
    assert_int_equal(times_asked(), before);
    rig_close(rig);
}

static void
each_address_of_a_name_is_an_endpoint(void **state)
{
    struct rig *rig = rig_open(state);
    set_names(0, "10.0.0.1", "fd00::1");
    use(rig, "a.test:20000", NULL);
    await_list(rig, "10.0.0.1:20000 [fd00::1]:20000 ");
    assert_string_equal(rig->hosts, "a.test a.test ");
    rig_close(rig);
}

static void
an_address_that_comes_twice_is_one_endpoint(void **state)
{
    struct rig *rig = rig_open(state);
    set_names(0, "10.0.0.1", "10.0.0.1");
    use(rig, "10.0.0.1:20000", "a.test:20000");
    loop_run_ms(rig->fixture, 50);
    assert_string_equal(rig->list, "10.0.0.1:20000 ");
    rig_close(rig);
}

static void
a_slow_name_server_blocks_nobody(void **state)
{
    struct rig *rig = rig_open(state);
    set_names(300, "10.0.0.1", NULL);
    uint64_t before_ns = clock_now_ns();
    use(rig, "a.test:1", NULL);
    assert_in_range(clock_now_ns() - before_ns, 0, 100 * NS_PER_MS);
    await_list(rig, "10.0.0.1:1 ");
    rig_close(rig);
}

static void
waiting_for_names_is_bounded(void **state)
{
    struct rig *rig = rig_open(state);
    set_names(200, "10.0.0.1", NULL);
    use(rig, "a.test:1", NULL);
    uint64_t before_ns = clock_now_ns();
    resolver_await(rig->resolver, before_ns + 50 * NS_PER_MS);
    assert_in_range(clock_now_ns() - before_ns, 50 * NS_PER_MS, 150 * NS_PER_MS);
    assert_string_equal(rig->list, "");
    resolver_await(rig->resolver, clock_now_ns() + NS_PER_S);
    assert_string_equal(rig->list, "10.0.0.1:1 ");
    rig_close(rig);
}

static void
closing_does_not_wait_for_a_name_server(void **state)
{
    struct rig *rig = rig_open(state);
    set_names(200, "10.0.0.1", NULL);
    use(rig, "a.test:1", NULL);
    uint64_t before_ns = clock_now_ns();
    rig_close(rig);
    assert_in_range(clock_now_ns() - before_ns, 0, 100 * NS_PER_MS);
    usleep(300 * 1000); /* the thread comes back to nobody, and cleans up */
}

static void
a_name_that_is_not_found_is_tried_again(void **state)
{
    struct rig *rig = rig_open(state);
    set_names(0, NULL, NULL);
    use(rig, "a.test:1", NULL);
    loop_run_ms(rig->fixture, 50);
    assert_non_null(strstr(resolver_error(rig->resolver), "a.test"));
    set_names(0, "10.0.0.1", NULL);
    unsigned asked = times_asked();
    resolver_check(rig->resolver, clock_now_ns());
    assert_int_equal(times_asked(), asked); /* not before a second has passed */
    loop_run_ms(rig->fixture, 1050);
    resolver_check(rig->resolver, clock_now_ns());
    await_list(rig, "10.0.0.1:1 ");
    assert_string_equal(resolver_error(rig->resolver), "");
    rig_close(rig);
}

static void
trouble_looks_again_at_most_once_a_second(void **state)
{
    struct rig *rig = rig_open(state);
    set_names(0, "10.0.0.1", NULL);
    use(rig, "a.test:1", NULL);
    await_list(rig, "10.0.0.1:1 ");
    unsigned asked = times_asked();
    set_names(0, "10.0.0.2", NULL);
    for (uint64_t end_ns = clock_now_ns() + 500 * NS_PER_MS; clock_now_ns() < end_ns;) {
        resolver_look_again(rig->resolver);
        loop_run_ms(rig->fixture, 10);
    }
    assert_int_equal(times_asked(), asked);
    loop_run_ms(rig->fixture, 600);
    resolver_look_again(rig->resolver);
    await_list(rig, "10.0.0.2:1 ");
    assert_int_equal(times_asked(), asked + 1);
    rig_close(rig);
}

static void
a_failed_look_up_leaves_what_is_known(void **state)
{
    struct rig *rig = rig_open(state);
    set_names(0, "10.0.0.1", NULL);
    use(rig, "a.test:1", NULL);
    await_list(rig, "10.0.0.1:1 ");
    set_names(0, NULL, NULL);
    loop_run_ms(rig->fixture, 1050);
    unsigned asked = times_asked();
    resolver_look_again(rig->resolver);
    await_asked(rig, asked + 1);
    loop_run_ms(rig->fixture, 50);
    assert_string_equal(rig->list, "10.0.0.1:1 ");
    rig_close(rig);
}

static void
a_reload_to_another_name_leaves_no_gap(void **state)
{
    struct rig *rig = rig_open(state);
    set_names(0, "10.0.0.1", NULL);
    use(rig, "a.test:1", NULL);
    await_list(rig, "10.0.0.1:1 ");
    set_names(100, "10.0.0.2", NULL);
    use(rig, "b.test:1", NULL);
    assert_string_equal(rig->list, "10.0.0.1:1 ");
    await_list(rig, "10.0.0.2:1 ");
    rig_close(rig);
}

static void
a_reload_with_the_same_name_keeps_its_addresses(void **state)
{
    struct rig *rig = rig_open(state);
    set_names(0, "10.0.0.1", NULL);
    use(rig, "a.test:1", NULL);
    await_list(rig, "10.0.0.1:1 ");
    unsigned asked = times_asked();
    use(rig, "127.0.0.9:1", "a.test:1");
    assert_string_equal(rig->list, "127.0.0.9:1 10.0.0.1:1 ");
    assert_int_equal(times_asked(), asked);
    rig_close(rig);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, loop_setup, loop_teardown)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(addresses_need_no_look_up),
        TEST(each_address_of_a_name_is_an_endpoint),
        TEST(an_address_that_comes_twice_is_one_endpoint),
        TEST(a_slow_name_server_blocks_nobody),
        TEST(waiting_for_names_is_bounded),
        TEST(closing_does_not_wait_for_a_name_server),
        TEST(a_name_that_is_not_found_is_tried_again),
        TEST(trouble_looks_again_at_most_once_a_second),
        TEST(a_failed_look_up_leaves_what_is_known),
        TEST(a_reload_to_another_name_leaves_no_gap),
        TEST(a_reload_with_the_same_name_keeps_its_addresses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
