"""A memory limit holds: the proxy in a cgroup of 64 MB, with the budget that it takes from there, under bodies that would need 200 MB.

Where no cgroup can be made, RLIMIT_DATA is the limit and the budget is said. The large calls are a real grpc-go client's; small ones go
on beside them the whole time. Memory is measured on the release build only: a sanitizer's shadow is not ours.
"""
import collections
import itertools
import json
import os
import pathlib
import re
import subprocess
import sys
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "interop"))

import h2peer  # noqa: E402
from conftest import Program, binary, wait_until_true  # noqa: E402
from peers import go_programs  # noqa: E402, F401

LIMIT = 64 << 20
MIB = 1 << 20
SAY, EXPAND = "/tributary.interop.Echo/Say", "/tributary.interop.Echo/Expand"

INI = """
[proxy]
admin = {{admin}}
workers = {workers}
{budget}
[listener main]
address = 127.0.0.1:0
[upstream echo]
endpoints = {endpoint}
{upstream}
[route echo]
match = *
upstream = echo
{route}
"""


# --- cgroups ----------------------------------------------------------------------------------------


def own_group(controller):
    """Our folder in that controller's hierarchy (version 1) or, with "", in version 2's; None where there is none."""
    for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        if controller in names.split(","):
            folder = pathlib.Path("/sys/fs/cgroup", controller) / path.lstrip("/")
            return folder if (folder / "cgroup.procs").exists() and (controller or (folder / "cgroup.controllers").exists()) else None
    return None


NUMBERS = itertools.count()


class Group:
    """A cgroup of our own below ours, with limits {file: text}. Version 1 or 2."""

    def __init__(self, folder, limits):
        self.folder = folder / f"tributary-test-{os.getpid()}-{next(NUMBERS)}"
        self.folder.mkdir()
        try:
            for name, value in limits.items():
                (self.folder / name).write_text(value)
        except OSError:
            self.remove()
            raise

    def wrapper(self, path):
        """A program at that path that runs the proxy inside the group."""
        path.write_text(f'#!/bin/sh\necho $$ > {self.folder}/cgroup.procs || exit 99\nexec {binary()} "$@"\n')
        path.chmod(0o755)
        return path

    def read(self, name):
        return (self.folder / name).read_text()

    def remove(self):
        wait_until_true(lambda: not self.read("cgroup.procs").split(), "the group's processes gone", 40)
        self.folder.rmdir()


def make_group(controller, limits_v1, limits_v2):
    """A Group, or None where this machine lets us make none."""
    for name, limits in ((controller, limits_v1), ("", limits_v2)):
        folder = own_group(name)
        if folder and (name or controller in (folder / "cgroup.controllers").read_text().split()):
            try:
                return Group(folder, limits)
            except OSError:
                continue
    return None


@pytest.fixture
def limited(tmp_path, monkeypatch):
    """Limits the memory of the proxies that start from here on; the lines for [proxy] that go with it."""
    group = make_group("memory", {"memory.limit_in_bytes": str(LIMIT)}, {"memory.max": str(LIMIT)})
    if group:
        monkeypatch.setenv("TRIBUTARY_BIN", str(group.wrapper(tmp_path / "tributary-limited")))
        yield ""
        group.remove()
    else:
        plain = tmp_path / "tributary-limited"
        plain.write_text(f'#!/bin/sh\nexec prlimit --data={LIMIT} {binary()} "$@"\n')
        plain.chmod(0o755)
        monkeypatch.setenv("TRIBUTARY_BIN", str(plain))
        yield "buffer_budget = 16M"


def is_sanitized():
    return b"libasan" in subprocess.run(["ldd", binary()], capture_output=True).stdout


@pytest.fixture(autouse=True)
def release_only():
    if is_sanitized():
        pytest.skip("memory is measured on the release build")


# --- what happens in the proxy -------------------------------------------------------------------------


class Memory:
    """Of a running proxy, in bytes."""

    def __init__(self, pid):
        self.pid = pid
        self.start = self.now()

    def _read(self, key):
        return int(re.search(rf"^{key}:\s+(\d+) kB", pathlib.Path(f"/proc/{self.pid}/status").read_text(), re.M)[1]) * 1024

    def now(self):
        return self._read("VmRSS")

    def peak(self):
        return self._read("VmHWM")

    def falls_back(self, room=6 * MIB, seconds=5):
        wait_until_true(lambda: self.now() <= self.start + room, f"memory back from {self.peak()} to near {self.start}, is {self.now()}",
                        seconds)


class Load:
    def __init__(self, started, program, target, *options):
        self.program = started.add(Program([program, "-addr", target, "-timeout", "60s", *options], started.folder, started.name("load")))
        self.program.said("^STARTED")

    def result(self):
        assert self.program.wait(90) == 0, self.program.tail()
        report = json.loads(self.program.output())
        assert report["wrong_replies"] == 0, report
        return report


@pytest.fixture
def setup(limited, started, tributary, go_programs):  # noqa: F811
    """setup(**lines): a proxy under the limit in front of a dubbo-go provider, warm: (proxy, Memory, load)."""
    def start(workers=1, upstream="", route="", endpoint=None):
        if endpoint is None:
            provider = started.add(Program([go_programs["dubbo-provider"]], started.folder, started.name("provider")))
            endpoint = provider.said(r"^READY (\S+)", stream="out")[1]
        proxy = tributary(text=INI.format(workers=workers, budget=limited, endpoint=endpoint, upstream=upstream, route=route))

        def load(*options):
            return Load(started, go_programs["load-client"], proxy.target, *options)
        assert proxy.stats()["buffers"]["budget_bytes"] == LIMIT // 4
        return proxy, Memory(proxy.pid), load
    return start


def burst(load, *options):
    """200 calls of 1 MiB at once. grpc-go gives a connection a second to become ready, which a busy machine may need for itself."""
    return load("-wait-for-ready", "-rate", 2000, "-seconds", 0.1, "-concurrency", 200, "-payload", MIB, "-connections", 8, *options)


def small(load, seconds):
    return load("-rate", 100, "-seconds", seconds, "-concurrency", 100, "-payload", 200)


def at_rest(proxy):
    def rest(stats):
        route = stats["routes"]["echo"]
        return route["active"] == 0 and stats["buffers"]["bytes"] == 0
    stats = proxy.wait_for(rest, "the proxy at rest")
    assert stats["routes"]["echo"]["started"] == stats["routes"]["echo"]["calls"], stats
    assert stats["buffers"]["peak_bytes"] <= stats["buffers"]["budget_bytes"], stats
    return stats


def check(proxy, memory, large, little):
    report = large.result()
    assert report["calls"] + report["skipped"] == 200 and report["skipped"] < 10, report
    assert set(report["by_status"]) <= {"OK", "ResourceExhausted"}, json.dumps(report)
    beside = little.result()
    assert beside["by_status"] == {"OK": beside["calls"]}, beside
    assert proxy.running(), proxy.tail()
    stats = at_rest(proxy)
    assert memory.peak() < 48 * MIB, f"{memory.peak() / MIB:.1f} MiB of {LIMIT / MIB}, {stats['buffers']}"
    memory.falls_back()
    return report


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("transport", ["h2", "http1"])
def test_a_burst_of_large_calls_is_served_or_refused(setup, transport, workers):
    proxy, memory, load = setup(workers=workers, upstream=f"transport = {transport}")
    little = small(load, 3)
    report = check(proxy, memory, burst(load), little)
    assert report["by_status"].get("OK", 0) > 0, report


def test_a_slow_provider_does_not_make_the_proxy_hold_it_all(setup):
    """Every call takes two seconds, so 200 MiB would be held at once."""
    proxy, memory, load = setup()
    little = small(load, 4)
    check(proxy, memory, burst(load, "-delay", 2000), little)


def test_a_provider_that_reads_nothing(setup):
    """Its stream windows are 64 KiB and never opened again: what was sent to it waits here until the deadline."""
    held = h2peer.Provider(lambda peer, stream: None, whole=False, credit=False, initial=((h2peer.INITIAL_WINDOW_SIZE, 65535),))
    try:
        proxy, memory, load = setup(endpoint=held.target, route="timeout = 3s")
        report = burst(load).result()
        assert set(report["by_status"]) <= {"DeadlineExceeded", "ResourceExhausted"}, report
        assert report["calls"] >= 190, report
        at_rest(proxy)
        assert memory.peak() < 48 * MIB, memory.peak() / MIB
        memory.falls_back()
    finally:
        held.close()


def varint(number):
    out = bytearray()
    while number >= 128:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes(out + bytes((number,)))


def asking(reply_bytes, count=0):
    """A SayRequest for replies of that many bytes (field 8), that many of them (field 10, streams only)."""
    return h2peer.MSG(b"\x40" + varint(reply_bytes) + (b"\x50" + varint(count) if count else b""))


@pytest.mark.parametrize("path, request_body", [(SAY, asking(MIB)), (EXPAND, asking(MIB // 4, 4))], ids=["unary", "stream"])
def test_clients_that_do_not_read_their_replies(setup, path, request_body):
    """Replies of 200 MiB for clients that open no window: refused, or kept by the provider, until the clients read after all."""
    proxy, memory, load = setup()
    load("-rate", 100, "-seconds", 0.1).result()  # the provider's wire form is known
    little = small(load, 5)
    options = {"credit": False, "initial": ((h2peer.INITIAL_WINDOW_SIZE, 1000),)}
    clients = [h2peer.Client(proxy.target, **options) for _ in range(4)]
    calls = [(client, client.open(path)) for client in clients for _ in range(50)]
    for client, number in calls:
        client.raw(h2peer.data(number, request_body, end=True))
    time.sleep(3)
    assert proxy.running(), proxy.tail()
    for client in clients:
        client.raw(h2peer.window_update(0, 1 << 30))
    for client, number in calls:
        client.raw(h2peer.window_update(number, 2 * MIB))
    ended = [client.ended(number, 30) for client, number in calls]
    # Inside a message a reset with ENHANCE_YOUR_CALM says it: gRPC clients make RESOURCE_EXHAUSTED of that.
    codes = collections.Counter(8 if each.reset == h2peer.ENHANCE_YOUR_CALM else each.code for each in ended)
    assert set(codes) <= {0, 8}, codes
    assert codes[0] > 0, codes
    assert all(sum(len(payload) for _, payload in each.messages) >= MIB for each in ended if each.code == 0)
    for client in clients:
        client.close()
    beside = little.result()
    assert beside["by_status"] == {"OK": beside["calls"]}, beside
    at_rest(proxy)
    assert memory.peak() < 48 * MIB, memory.peak() / MIB
    memory.falls_back()


# --- what is read from the container ----------------------------------------------------------------------


def test_workers_and_budget_follow_the_containers_limits(tributary, tmp_path, monkeypatch):
    """Real limits where groups can be made; tests/unit/test_machine.c has both versions and all their shapes."""
    memory = make_group("memory", {"memory.limit_in_bytes": str(LIMIT)}, {"memory.max": str(LIMIT)})
    if not memory:
        pytest.skip("no cgroup can be made here")
    cpu = make_group("cpu", {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "100000"}, {"cpu.max": "100000 100000"})
    wrapper = tmp_path / "tributary-limited"
    enter = "".join(f"echo $$ > {group.folder}/cgroup.procs || exit 99\n" for group in (memory, cpu) if group)
    wrapper.write_text(f'#!/bin/sh\n{enter}exec {binary()} "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("TRIBUTARY_BIN", str(wrapper))
    try:
        proxy = tributary("127.0.0.1:1", proxy="workers = auto\nbuffer_budget = auto")
        assert proxy.stats()["buffers"]["budget_bytes"] == LIMIT // 4
        cores = 1 if cpu else len(os.sched_getaffinity(0))
        assert f", {cores} worker(s)" in proxy.errors()
        proxy.stop()
    finally:
        for group in (memory, cpu):
            if group:
                group.remove()
