/* Limits of the container, from a made-up /proc and /sys/fs/cgroup. */
#include "tests/unit/unit.h"

#include <sched.h>
#include <unistd.h>

#include "proxy/config/machine.h"

static char root[64];

static void
put(const char *name, const char *content)
{
    char path[512], command[600];
    snprintf(path, sizeof(path), "%s%s", root, name);
    snprintf(command, sizeof(command), "mkdir -p -- \"$(dirname -- '%s')\"", path);
    assert_int_equal(system(command), 0);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(content, file);
    assert_int_equal(fclose(file), 0);
}

static int
make_root(void **state)
{
    (void)state;
    strcpy(root, "/tmp/machine-test-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int
remove_root(void **state)
{
    char command[128];
    (void)state;
    snprintf(command, sizeof(command), "rm -rf -- '%s'", root);
    return system(command);
}

static unsigned
affinity(void)
{
    cpu_set_t set;
    assert_int_equal(sched_getaffinity(0, sizeof(set), &set), 0);
    return (unsigned)CPU_COUNT(&set);
}

static unsigned
least(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

static void
without_limits_affinity_and_memory_rule(void **state)
{
    (void)state;
    put("/proc/meminfo", "MemTotal:        1048576 kB\nMemFree: 1 kB\n");
    assert_int_equal(machine_cores(root), affinity());
    assert_int_equal(machine_memory_bytes(root), (uint64_t)1 << 30);
    assert_int_equal(machine_buffer_budget(root), (uint64_t)256 << 20);
}

static void
a_quota_of_version_2_rules_and_is_rounded_down(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "0::/\n");
    put("/sys/fs/cgroup/cpu.max", "150000 100000\n");
    assert_int_equal(machine_cores(root), 1);
    put("/sys/fs/cgroup/cpu.max", "20000 100000\n");
    assert_int_equal(machine_cores(root), 1);
    put("/sys/fs/cgroup/cpu.max", "200000 100000\n");
    assert_int_equal(machine_cores(root), least(2, affinity()));
    put("/sys/fs/cgroup/cpu.max", "max 100000\n");
    assert_int_equal(machine_cores(root), affinity());
}

static void
a_parent_group_may_be_the_tighter_one(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "1:name=systemd:/x\n0::/pod.slice/box\n");
    put("/proc/meminfo", "MemTotal: 8388608 kB\n");
    put("/sys/fs/cgroup/pod.slice/box/cpu.max", "max 100000\n");
    put("/sys/fs/cgroup/pod.slice/cpu.max", "100000 100000\n");
    put("/sys/fs/cgroup/pod.slice/box/memory.max", "134217728\n");
    put("/sys/fs/cgroup/pod.slice/memory.max", "67108864\n");
    put("/sys/fs/cgroup/memory.max", "max\n");
    assert_int_equal(machine_cores(root), 1);
    assert_int_equal(machine_memory_bytes(root), 64 << 20);
    assert_int_equal(machine_buffer_budget(root), 16 << 20);
}

static void
version_1_is_read_too(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "4:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n");
    put("/proc/meminfo", "MemTotal: 8388608 kB\n");
    put("/sys/fs/cgroup/cpu/docker/abc/cpu.cfs_quota_us", "100000\n");
    put("/sys/fs/cgroup/cpu/docker/abc/cpu.cfs_period_us", "100000\n");
    put("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
    put("/sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "33554432\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    assert_int_equal(machine_cores(root), 1);
    assert_int_equal(machine_memory_bytes(root), 32 << 20);
    assert_int_equal(machine_buffer_budget(root), 8 << 20);
}

/* A container without a cgroup namespace: the path is the host's, the mount shows only our group.
 */
static void
a_path_that_is_not_mounted_leaves_the_mounts_root(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "0::/kubepods/pod1/box\n");
    put("/proc/meminfo", "MemTotal: 8388608 kB\n");
    put("/sys/fs/cgroup/memory.max", "268435456\n");
    assert_int_equal(machine_buffer_budget(root), 64 << 20);
}

static void
nonsense_sets_no_limit(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "garbage\n0:\n::::\n0::/\n");
    put("/proc/meminfo", "nothing\n");
    put("/sys/fs/cgroup/cpu.max", "100000 0\n");
    put("/sys/fs/cgroup/memory.max", "lots\n");
    assert_int_equal(machine_cores(root), affinity());
    assert_int_equal(machine_memory_bytes(root), 0);
    assert_int_equal(machine_buffer_budget(root), (uint64_t)256 << 20);
}

static void
the_budget_is_never_too_small_to_work(void **state)
{
    (void)state;
    put("/proc/meminfo", "MemTotal: 1024 kB\n");
    assert_int_equal(machine_buffer_budget(root), 1 << 20);
}

#define MACHINE_TEST(name) cmocka_unit_test_setup_teardown(name, make_root, remove_root)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        MACHINE_TEST(without_limits_affinity_and_memory_rule),
        MACHINE_TEST(a_quota_of_version_2_rules_and_is_rounded_down),
        MACHINE_TEST(a_parent_group_may_be_the_tighter_one),
        MACHINE_TEST(version_1_is_read_too),
        MACHINE_TEST(a_path_that_is_not_mounted_leaves_the_mounts_root),
        MACHINE_TEST(nonsense_sets_no_limit),
        MACHINE_TEST(the_budget_is_never_too_small_to_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
