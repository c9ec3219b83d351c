"""Suites that no one here wrote, against the real binary. README.md has the counts and the commands by hand.

    Connect's conformance suite   its gRPC client -> tributary -> a tap -> its own connect-go server: 526 cases
    gRPC's interop client         -> tributary -> TestService on connect-go and on dubbo-go: 17 cases
    h2spec                        -> tributary: 145 cases

Each total is checked as well as the failures: a proxy that hangs shows as a smaller total. What the servers do when
asked directly is measured too, so that a case that they fail themselves is not laid to the proxy.
"""
import collections
import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "interop"))
from peers import Process, Proxy, build_go_programs, need, tributary_binary  # noqa: E402

PROGRAMS = ("server-under-test", "connect-testservice", "dubbo-testservice",
            "connectconformance", "referenceserver", "client", "h2spec")
SUITE_SECONDS = 240  # it takes four by itself; a sanitizer's build and a busy machine take longer


@pytest.fixture(scope="session")
def programs():
    return build_go_programs(HERE / "go", PROGRAMS, ("./cmd/...", "tool"), "conformance")


def run(command, seconds, env=None):
    """(exit code, what it printed); a program that takes longer fails the test and is stopped."""
    try:
        done = subprocess.run([str(part) for part in command], timeout=seconds, text=True, errors="replace",
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              env=dict(os.environ, **(env or {})))
    except subprocess.TimeoutExpired as expired:
        output = (expired.stdout or b"").decode(errors="replace")
        pytest.fail(f"not done in {seconds} s: {' '.join(command[:3])}\n{output[-3000:]}", pytrace=False)
    return done.returncode, done.stdout


# --- Connect's conformance suite ------------------------------------------------------------------------------------

CASES = 526
TIMEOUT_CASES = 54  # Timeouts and Deadline Propagation
UNARY = {"Unary", "IdempotentUnary", "Unimplemented"}
# Unary calls of the suite whose two messages, or whose codec, no bare request can carry.
NEVER_BARE = {"unary/multiple-requests", "unexpected-codec"}
UNARY_CALLS = 156  # that reach the server; the others never do (no message, unknown compression, flag without encoding)


def conformance(programs, server_command, patterns=(), seconds=SUITE_SECONDS):
    """Runs the suite; (passed, failed, total, what failed)."""
    command = [programs["connectconformance"], "--mode", "server", "--conf", HERE / "connect.yaml"]
    for pattern in patterns:
        command += ["--run", pattern]
    _, output = run(command + ["--"] + server_command, seconds)
    total = re.search(r"^Total cases: (\d+)$", output, re.M)
    counts = re.search(r"^(\d+) passed, (\d+) failed", output, re.M)
    assert total and counts, f"the suite did not come to an end:\n{output[-3000:]}"
    # The suite does not look at how its server leaves; a proxy that hangs or crashes at its end shows here.
    assert "server-under-test:" not in output, output[:3000]
    could_not = re.search(r"Another \d+ could not be run.*", output)
    failures = output[:total.start()] + (could_not.group(0) if could_not else "")
    print(f"conformance: {counts.group(1)} of {total.group(1)} passed")
    return int(counts.group(1)), int(counts.group(2)), int(total.group(1)), failures


def through_the_proxy(programs, records, *options):
    return [programs["server-under-test"], "-proxy", tributary_binary(), "-records", records, *options]


def tapped_calls(records):
    calls = [json.loads(line) for path in sorted(records.glob("*.calls")) for line in path.read_text().splitlines()]
    unreadable = [call for call in calls if call["end"].startswith("unreadable")]
    assert not unreadable, f"bytes that are no HTTP/2 left the proxy: {unreadable}"
    return calls


def method_of(call):
    return call["path"].rsplit("/", 1)[-1]


def is_bare(call):
    return call["content_type"] in ("application/proto", "application/json")


def check_bare(call):
    """One bare unary request as it should be: content-length is its DATA, and nothing of gRPC is in its head."""
    assert call["content_length"] == str(call["data_bytes"]), f"content-length and DATA differ: {call}"
    assert not call["grpc_headers"] and not call["te"], f"gRPC's fields in a bare request: {call}"


def unary_calls(calls):
    return [call for call in calls if method_of(call) in UNARY and not call["case"].endswith(tuple(NEVER_BARE))]


def stats_of_runs(records):
    paths = collections.Counter()
    for path in records.glob("*.stats"):
        for route in json.loads(path.read_text())["routes"].values():
            paths.update(route["path"])
            assert route["active"] == 0, f"calls that never ended: {route}"
    return paths


def test_the_suites_own_server_passes_directly(programs):
    passed, failed, total, failures = conformance(programs, [programs["referenceserver"], "-port", "0"])
    assert (passed, failed, total) == (CASES, 0, CASES), failures


def test_every_grpc_case_passes_through_the_proxy(programs, tmp_path):
    """call = auto, as a user who configures nothing has it."""
    passed, failed, total, failures = conformance(programs, through_the_proxy(programs, tmp_path))
    assert (passed, failed, total) == (CASES, 0, CASES), failures
    calls = tapped_calls(tmp_path)
    unary = unary_calls(calls)
    bare = [call for call in unary if is_bare(call)]
    for call in bare:
        check_bare(call)
    # Until a method has answered bare once, HEADERS that stay alone for 10 ms go framed: on a busy machine, a few.
    assert len(unary) >= UNARY_CALLS and len(bare) >= UNARY_CALLS - 8, \
        [call for call in unary if not is_bare(call)]
    paths = stats_of_runs(tmp_path)
    print(f"conformance: {len(bare)} of {len(unary)} unary calls left bare; paths {dict(paths)}")
    assert paths["fast"] >= UNARY_CALLS - 8


def test_every_unary_call_leaves_unframed_where_the_configuration_says_what_it_is(programs, tmp_path):
    passed, failed, total, failures = conformance(
        programs, through_the_proxy(programs, tmp_path, "-call", "explicit"))
    assert (passed, failed, total) == (CASES, 0, CASES), failures
    calls = tapped_calls(tmp_path)
    unary = unary_calls(calls)
    framed = [call for call in unary if not is_bare(call)]
    assert len(unary) == UNARY_CALLS and not framed, f"{len(unary)} unary calls, framed: {framed}"
    for call in unary:
        check_bare(call)
    seen = collections.Counter((call["content_type"], call["content_encoding"]) for call in unary)
    print(f"conformance: {dict(seen)}")
    for codec in ("application/proto", "application/json"):
        for encoding in ("", "gzip"):
            assert seen[codec, encoding] > 20, f"too few {codec} {encoding or 'identity'}: {seen}"
    streams = [call for call in calls if method_of(call) in ("ClientStream", "ServerStream", "BidiStream")]
    assert len(streams) > 300 and not any(is_bare(call) for call in streams)


def test_every_grpc_case_passes_on_the_relay_path(programs, tmp_path):
    """fast_path = off, the one-step rollback, must not change what a client sees."""
    passed, failed, total, failures = conformance(
        programs, through_the_proxy(programs, tmp_path, "-route", "fast_path = off"))
    assert (passed, failed, total) == (CASES, 0, CASES), failures
    assert stats_of_runs(tmp_path)["fast"] == 0


def test_the_timeout_cases_pass_every_time(programs, tmp_path):
    for attempt in range(5):
        passed, failed, total, failures = conformance(
            programs, through_the_proxy(programs, tmp_path / str(attempt)),
            ("Timeouts/**", "Deadline Propagation/**"))
        assert (passed, failed, total) == (TIMEOUT_CASES, 0, TIMEOUT_CASES), f"run {attempt}: {failures}"


# --- gRPC's interop client ------------------------------------------------------------------------------------------

INTEROP_CASES = (
    "empty_unary", "large_unary", "client_streaming", "server_streaming", "ping_pong", "empty_stream",
    "timeout_on_sleeping_server", "cancel_after_begin", "cancel_after_first_response", "status_code_and_message",
    "special_status_message", "custom_metadata", "unimplemented_method", "unimplemented_service", "pick_first_unary",
    "rpc_soak", "channel_soak")


def failing_interop_cases(programs, address):
    host, port = address.rsplit(":", 1)
    failing = {}
    for case in INTEROP_CASES:
        code, output = run([programs["client"], f"--server_host={host}", f"--server_port={port}",
                            f"--test_case={case}", "--soak_iterations=20", "--soak_overall_timeout_seconds=30"], 60)
        if code != 0:
            failing[case] = output[-500:]
    print(f"interop: {len(INTEROP_CASES) - len(failing)} of {len(INTEROP_CASES)} passed at {address}")
    return failing


@pytest.fixture(scope="module", params=["connect", "dubbo"])
def test_service(request, programs):
    """(its name, its address) of a running TestService."""
    process = Process([programs[f"{request.param}-testservice"]], f"{request.param}-testservice")
    yield request.param, process.ready_address()
    assert process.stop() == 0, process.output()


def test_interop_cases_pass_directly(programs, test_service):
    assert failing_interop_cases(programs, test_service[1]) == {}


@pytest.mark.parametrize("transport", ["h2", "http1"])
@pytest.mark.parametrize("fast_path", ["on", "off"])
def test_interop_cases_pass_through_the_proxy(programs, test_service, transport, fast_path, tmp_path):
    name, address = test_service
    proxy = Proxy(["main"], {
        "upstream test": {"endpoints": address, "dialect": "connect" if name == "connect" else "triple",
                          "transport": transport},
        "route all": {"match": "*", "upstream": "test", "fast_path": fast_path},
    }, tmp_path).start()
    try:
        assert failing_interop_cases(programs, proxy.address["main"]) == {}
        paths = proxy.stats()["routes"]["all"]["path"]
        print(f"interop: {name}, transport {transport}, fast_path {fast_path}: {paths}")
        assert (paths["fast"] > 100) == (fast_path == "on"), paths
    finally:
        assert proxy.process.stop() == 0, proxy.process.output()


# --- h2spec ---------------------------------------------------------------------------------------------------------

H2SPEC_CASES = 145


def h2spec_failures(report):
    """{"SECTION: test": why} and the number of cases, out of its JUnit file."""
    failures, total = {}, 0
    for case in xml.etree.ElementTree.parse(report).getroot().iter("testcase"):
        total += 1
        broken = case.find("failure") if case.find("failure") is not None else case.find("error")
        if broken is not None:
            failures[f"{case.get('package')}: {case.get('classname')}"] = (broken.text or "").strip()
    return failures, total


def test_h2spec_against_the_listener(programs, tmp_path):
    tool = Path(os.environ.get("TRIBUTARY_BUILD", HERE.parents[1] / "build" / "release")) / "tests/tools/echo-provider"
    need(os.access(tool, os.X_OK), f"{tool} is not built: h2spec needs a provider behind the proxy")
    echo = Process([tool], "echo-provider")
    try:
        proxy = Proxy(["main"], {
            "upstream echo": {"endpoints": echo.ready_address()},
            "route all": {"match": "*", "upstream": "echo"},
        }, tmp_path).start()
        try:
            host, port = proxy.address["main"].rsplit(":", 1)
            for attempt in range(3):  # what depends on how bytes arrive shows in one of them
                report = tmp_path / f"h2spec-{attempt}.xml"
                _, output = run([programs["h2spec"], "-h", host, "-p", port, "-o", "3", "-j", report], 180)
                assert report.exists(), output[-3000:]
                failures, total = h2spec_failures(report)
                print(f"h2spec: {total - len(failures)} of {total} passed; failing: {sorted(failures)}")
                assert total == H2SPEC_CASES, f"{total} cases ran"
                assert not failures, json.dumps(failures, indent=1)
        finally:
            assert proxy.process.stop() == 0, proxy.process.output()
    finally:
        echo.stop()
