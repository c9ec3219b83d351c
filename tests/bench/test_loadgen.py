"""loadgen tells the truth: exact counts, rates, stalls, failures and other processes' CPU.

Binaries: those of the build folder $TRIBUTARY_BUILD, else built here from this folder alone. No timing decides anything here but by wide margins.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import pytest

HERE = pathlib.Path(__file__).resolve().parent


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    if built := os.environ.get("TRIBUTARY_BUILD"):
        return pathlib.Path(built) / "tests" / "bench", pathlib.Path(built) / "tests" / "tools"
    build = tmp_path_factory.mktemp("bench")
    subprocess.run(["cmake", "-S", HERE, "-B", build, "-G", "Ninja"], check=True, capture_output=True)
    subprocess.run(["ninja", "-j2", "-C", build], check=True, capture_output=True)
    return build, build / "tools"


@pytest.fixture
def provider(folders, request):
    args = getattr(request, "param", [])
    process = subprocess.Popen([folders[1] / "echo-provider", *args], stdout=subprocess.PIPE, text=True)
    process.target = process.stdout.readline().split()[1]
    yield process
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == 0
    process.stdout.close()


def load(folders, provider, *args, code=0):
    done = subprocess.run(
        [folders[0] / "loadgen", "--target", provider.target, *map(str, args)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == code, done
    return json.loads(done.stdout) if done.stdout else done.stderr


def test_counted_calls_are_exact(folders, provider):
    for wire in ("grpc", "triple"):
        report = load(folders, provider, "--count", 5000, "--warmup-count", 500, "--wire", wire)
        assert (report["calls"], report["failed"], report["success_rate"]) == (5000, 0, 1.0)
        assert report["connects"] == 10 and report["concurrency"] == 100
        assert 0 < report["latency_p50_ms"] <= report["latency_p99_ms"] <= report["latency_max_ms"]


def test_closed_loop_keeps_its_time(folders, provider):
    report = load(folders, provider, "--duration", 0.5, "--warmup", 0.1)
    assert 0.5 <= report["duration_s"] < 2 and report["calls"] > 100
    assert report["qps"] == pytest.approx(report["calls"] / report["duration_s"], rel=0.01)


def test_slow_calls_get_more_time(folders, provider):
    slow = ["--metadata", "x-delay-us=300000", "--in-flight", 1, "--duration", 0.1, "--warmup", 0]
    load(folders, provider, *slow, code=1)  # nothing ended in the window
    report = load(folders, provider, *slow, "--least", 20)
    assert report["calls"] >= 20 and 0.5 < report["duration_s"] < 5


def test_open_loop_makes_each_call_that_is_due(folders, provider):
    report = load(folders, provider, "--rate", 500, "--duration", 2, "--warmup", 0.2)
    assert abs(report["calls"] - 1000) <= 2 and report["unfinished"] == 0


def load_through_a_stall(folders, provider, *args):
    """A load's report; the provider stands still for 0.6 s from 1 s on."""

    def stall():
        time.sleep(1)
        provider.send_signal(signal.SIGSTOP)
        time.sleep(0.6)
        provider.send_signal(signal.SIGCONT)

    thread = threading.Thread(target=stall)
    thread.start()
    report = load(folders, provider, *args)
    thread.join()
    return report


def test_open_loop_shows_a_stall_in_all_calls_it_delayed(folders, provider):
    """The provider stands still for 0.6 of 2 s at 200 calls/s: 120 calls are due meanwhile and wait
    0.3 s in the mean. A closed loop would show one or two of them."""

    report = load_through_a_stall(folders, provider, "--rate", 200, "--duration", 2, "--warmup", 0.2)
    assert abs(report["calls"] - 400) <= 2
    assert report["latency_max_ms"] > 550
    assert report["latency_p90_ms"] > 250  # 30 % of the calls fell into the stall
    assert report["latency_p99_ms"] > 500 and report["latency_mean_ms"] > 60


def test_closed_loop_hides_the_same_stall(folders, provider):
    """What the open loop is for: of the thousands of calls of a closed loop ten meet the stall."""

    report = load_through_a_stall(folders, provider, "--duration", 2, "--warmup", 0.2, "--in-flight", 1)
    assert report["latency_max_ms"] > 550 and report["latency_p99_ms"] < 100


def test_max_open_bounds_calls_under_way_and_late_ones_count_from_their_due_time(folders, provider):
    args = ["--metadata", "x-delay-us=50000", "--max-open", 5, "--connections", 1]
    report = load(folders, provider, "--rate", 200, "--duration", 1, "--warmup", 0, *args, code=0)
    assert report["latency_p99_ms"] > 200  # 100 calls/s can be served: the backlog shows


@pytest.mark.parametrize("provider", [["--reply-size", "128"]], indirect=True)
def test_wrong_replies_are_failures(folders, provider):
    done = subprocess.run(
        [folders[0] / "loadgen", "--target", provider.target, "--count", "100"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    report = json.loads(done.stdout)
    assert done.returncode == 1 and report["failed"] == 100 and report["success_rate"] == 0
    assert "another call's" in done.stderr
    load(folders, provider, "--count", 100, "--reply-size", 128)


def test_given_bodies_and_expected_replies(folders, provider, tmp_path):
    body, other = tmp_path / "body", tmp_path / "other"
    body.write_bytes(bytes(range(256)) * 3)
    other.write_bytes(body.read_bytes()[:-1] + b"x")
    for wire in ("grpc", "triple"):
        args = ["--count", 50, "--wire", wire, "--body", body, "--expect"]
        assert load(folders, provider, *args, body)["bytes"] >= 2 * 50 * 768
        command = [folders[0] / "loadgen", "--target", provider.target, *map(str, args), other]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 1 and json.loads(done.stdout)["failed"] == 50
        assert "reply differs" in done.stderr


@pytest.mark.parametrize("kind", [[], ["--wire", "triple"], ["--type", "bidi", "--method", "/tributary.demo.Echo/Chat"]])
def test_a_tail_behind_the_echo_is_demanded(folders, provider, kind):
    """This provider adds nothing: each reply must be found too short, and none without --reply-tail."""
    load(folders, provider, "--count", 20, *kind)
    command = [folders[0] / "loadgen", "--target", provider.target, "--count", "20", "--reply-tail", "2a012f", *kind]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and json.loads(done.stdout)["failed"] == 20


def test_protobuf_field_wraps_the_payload(folders, provider):
    for size in (0, 1, 15, 127, 128, 20000):
        report = load(folders, provider, "--count", 50, "--proto-field", 2, "--size", size)
        head = 0 if size == 0 else 2 if size < 128 else 3 if size < 16384 else 4
        message = size + head
        assert report["bytes"] == 50 * (2 * message + 5)  # sent, and received with its prefix


def test_streams_as_load(folders, provider):
    for kind, method in (("server", "Down"), ("client", "Up"), ("bidi", "Chat")):
        args = ["--type", kind, "--method", f"/tributary.demo.Echo/{method}", "--messages", 5]
        report = load(folders, provider, "--count", 300, *args)
        assert report["failed"] == 0
        each = 1 if kind == "client" else 5
        # streams under way at the window's edges: up to 100 of them each
        assert abs(report["messages"] - 300 * each) <= 100 * each
    assert load(folders, provider, "--count", 300)["messages"] == 300


def test_cpu_of_another_process_is_counted(folders, provider):
    """A process that does nothing but compute, and one that sleeps, side by side."""
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    idle = subprocess.Popen(["sleep", "60"])
    try:
        args = ["--pid", f"busy={busy.pid}", "--pid", f"idle={idle.pid}"]
        report = load(folders, provider, "--duration", 1, "--rate", 50, *args)
    finally:
        for process in (busy, idle):
            process.kill()
            process.wait()
    cost = report["processes"]
    assert cost["busy"]["cpu_s"] > 0.1 and cost["idle"]["cpu_s"] < 0.05
    told = cost["busy"]["cpu_us_per_call"] * report["calls"] / 1e6
    assert abs(told - cost["busy"]["cpu_s"]) < 0.01
    assert cost["busy"]["memory_peak_mb"] > 1


def test_lost_provider_ends_the_run_with_failures(folders, provider):
    """Calls fail, the run ends in its time, and no storm of connections comes of it."""
    extra = subprocess.Popen([folders[1] / "echo-provider"], stdout=subprocess.PIPE, text=True)
    target = extra.stdout.readline().split()[1]
    killer = threading.Timer(0.6, extra.kill)
    killer.start()
    done = subprocess.run(
        [folders[0] / "loadgen", "--target", target, "--duration", "1", "--warmup", "0.2"],
        capture_output=True,
        text=True,
        timeout=30,
    )
    killer.join()
    extra.wait()
    extra.stdout.close()
    report = json.loads(done.stdout)
    assert done.returncode == 1 and report["failed"] > 0
    assert report["connects"] < 10 * 25


@pytest.mark.parametrize("args", [["--rate", "-1"], ["--in-flight", "0"], ["--pid", "x"], ["--reply-tail", "2g"], ["--nope"]])
def test_wrong_command_line(folders, provider, args):
    assert "loadgen: " in load(folders, provider, *args, code=2)
