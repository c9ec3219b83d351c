"""Rolling restarts: of the proxy under a real grpc-go client, and of the providers behind it.

The client is tests/interop's load-client: grpc-go, no retries of its own, so every failure shows. What grpc-go does by itself is honour
GOAWAY: calls above the last stream go to another connection. Providers are dubbo-go's, which closes without GOAWAY, and Go's own HTTP/2
server, which sends one.
"""
import json
import pathlib
import signal
import socket
import sys
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "interop"))

from conftest import Program, Tributary, find_free_port, wait_until_true  # noqa: E402
from peers import go_programs  # noqa: E402, F401

RATE = 500
SAY = "/tributary.interop.Echo/Say"

INI = """
[proxy]
admin = {{admin}}
{proxy}
[listener main]
address = {address}
[upstream echo]
endpoints = {endpoints}
{upstream}
[route echo]
match = /tributary.interop.Echo/*
upstream = echo
"""


class Load:
    """load-client in the background."""

    def __init__(self, started, program, address, *options):
        command = [program, "-addr", address, "-rate", RATE, "-concurrency", 200, *options]
        self.program = started.add(Program(command, started.folder, started.name("load")))
        self.program.said("^STARTED")

    def result(self):
        assert self.program.wait(60) == 0, self.program.tail()
        report = json.loads(self.program.output())
        assert report["wrong_replies"] == 0, report
        assert report["skipped"] <= report["calls"] // 20, report
        return report


@pytest.fixture
def go_provider(started, go_programs):  # noqa: F811
    """go_provider(kind, port=0): a running provider; .target is its HOST:PORT."""
    def start(kind="dubbo-provider", port=0):
        program = started.add(Program([go_programs[kind], "--port", port], started.folder, started.name(kind)))
        program.target = program.said(r"^READY (\S+)", stream="out")[1]
        program.port = int(program.target.rpartition(":")[2])
        program.kind = kind
        return program
    return start


@pytest.fixture
def load(started, go_programs):  # noqa: F811
    def start(address, *options):
        return Load(started, go_programs["load-client"], address, *options)
    return start


@pytest.fixture
def proxy_at(tributary):
    """proxy_at(providers, address=): a proxy with two workers in front of those providers."""
    def start(providers, address="127.0.0.1:0", proxy="workers = 2", upstream="", **more):
        endpoints = ", ".join(each.target for each in providers)
        return tributary(text=INI.format(address=address, endpoints=endpoints, proxy=proxy, upstream=upstream), **more)
    return start


def all_ok(report, seconds):
    assert report["by_status"] == {"OK": report["calls"]}, report
    assert report["calls"] + report["skipped"] == RATE * seconds, report


# --- the proxy itself -------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["pick_first", "round_robin"])
def test_a_rolling_restart_of_the_proxy_fails_no_call(go_provider, proxy_at, load, policy):
    """There and back: a second proxy comes up, the first one leaves; then the first comes back and the second leaves."""
    provider = go_provider()
    first = proxy_at([provider])
    second_address = f"127.0.0.1:{find_free_port()}"
    clients = load(f"{first.target},{second_address}", "-seconds", 7, "-connections", 4, "-streams", "-delay", 5, "-policy", policy)
    time.sleep(1.5)
    second = proxy_at([provider], second_address)
    time.sleep(0.5)
    began = time.monotonic()
    first.stop()
    assert time.monotonic() - began < 3, "nothing runs longer than some milliseconds, so the drain is short"
    time.sleep(1)
    again = proxy_at([provider], first.target)
    time.sleep(0.5)
    on_second = second.route()["calls"]
    second.stop()
    report = clients.result()
    all_ok(report, 7)
    assert on_second > RATE / 2, "the second proxy had the calls while it was alone"
    assert again.route()["status"].keys() == {"OK"}
    assert again.route()["calls"] > RATE / 2, "and the first had them again"
    assert report["longest_gap_ms"] < 1000, report
