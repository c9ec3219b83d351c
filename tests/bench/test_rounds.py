"""The A/B programs: what is decided from given rows, and each of them end to end on a tiny plan.

The end-to-end tests need $TRIBUTARY_BIN, and Go for the real provider; without them they are skipped by name.
"""

import argparse
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import bench_rounds
import grid
import gzip_ab
import sidecar
import toggles
from bench_rounds import Cell, Comparison, Plan, Rows
from bench_targets import Provider

needs_proxy = pytest.mark.skipif(not os.environ.get("TRIBUTARY_BIN"), reason="TRIBUTARY_BIN is not set")
needs_go = pytest.mark.skipif(not shutil.which("go"), reason="Go is not installed")


def row(turn, lane, cpu, qps, cell="128 × 50", **more):
    return {"round": turn, "cell": cell, "lane": lane, "proxy_cpu_us": cpu, "provider_cpu_us": 2.0,
            "system_cpu_us": cpu + 2, "client_cpu_us": 1.0, "qps": qps, "p50_ms": 1.0, "p99_ms": 2.0, **more}


def rows_of(folder, *made):
    rows = Rows(folder, ["asked"], False)
    for each in made:
        rows.add(each)
    return rows


def small_plan(options=None):
    options = options or argparse.Namespace(payload="128", in_flight="50", seconds=0.1, rounds=10, fast_path_max=False,
                                            reply_lengths=False)
    return grid.plan_of(options)


def noisy(turn):
    return 1 + 0.01 * (turn % 3 - 1)


def verdicts(folder, fast_cost, fast_rate, rounds=10):
    made = []
    for turn in range(rounds):
        made += [row(turn, "fast", fast_cost * noisy(turn), fast_rate / noisy(turn)),
                 row(turn, "relay", 5.0 * noisy(turn + 1), 1000.0), row(turn, "framed", 5.0, 1000.0)]
    text, result = grid.render(small_plan(), rows_of(folder, *made))
    return text, {title: cells["128 × 50"]["verdict"] for title, cells in result.items()}


def test_cheaper_holds(tmp_path):
    text, found = verdicts(tmp_path, 4.5, 1100.0)
    assert found == {"fast against relay": "holds", "fast against framed": "holds"}
    assert "1 of 1 cells hold" in text


@pytest.mark.parametrize("cost, rate", [(5.5, 1100.0), (4.5, 900.0)])
def test_a_tenth_worse_in_either_measure_is_negative(tmp_path, cost, rate):
    text, found = verdicts(tmp_path, cost, rate)
    assert found == {"fast against relay": "NEGATIVE", "fast against framed": "NEGATIVE"}
    assert "NEGATIVE: fast against relay at 128 × 50" in text


def test_two_rounds_prove_little(tmp_path):
    _, found = verdicts(tmp_path, 4.99, 1000.0, rounds=2)
    assert found["fast against relay"] == "open"


def test_one_round_is_not_judged(tmp_path):
    text, found = verdicts(tmp_path, 9.0, 1000.0, rounds=1)
    assert set(found.values()) == {"not enough rounds"} and "–" in text


def test_pairs_leave_out_failed_and_missing_rounds(tmp_path):
    rows = rows_of(tmp_path, row(0, "fast", 1, 1), row(1, "fast", 2, 1), row(1, "relay", 3, 1), row(2, "relay", 3, 1),
                   {"round": 2, "cell": "128 × 50", "lane": "fast", "error": "lost"})
    subject, base = bench_rounds.pairs(rows, small_plan().cells[0], Comparison("", "fast", "relay"))
    assert [(r["round"], r["lane"]) for r in subject + base] == [(1, "fast"), (1, "relay")]
    assert "**FAILED** 128 × 50 fast" in bench_rounds.failures_text(small_plan(), rows)


def test_rows_survive_and_another_plan_is_refused(tmp_path):
    rows_of(tmp_path, row(0, "fast", 1, 1))
    with (tmp_path / "rows.jsonl").open("a") as file:
        file.write('{"round": 1, "cell": "cut o')  # killed while it wrote
    again = Rows(tmp_path, ["asked"], True)
    assert again.done(0, "128 × 50", "fast") and len(again.rows) == 1
    with pytest.raises(SystemExit, match="another plan"):
        Rows(tmp_path, ["something else"], True)
    Rows(tmp_path, ["asked"], False)
    assert (tmp_path / "rows.old.jsonl").exists()


def test_a_line_that_was_cut_off_does_not_spoil_the_next(tmp_path):
    rows_of(tmp_path, row(0, "fast", 1, 1))
    with (tmp_path / "rows.jsonl").open("a") as file:
        file.write('{"round": 1, "cell": "cut o')
    Rows(tmp_path, ["asked"], True).add(row(1, "fast", 1, 1))
    assert [r["round"] for r in Rows(tmp_path, ["asked"], True).rows] == [0, 1]


def test_each_round_begins_with_another_lane():
    assert [bench_rounds.rotated(["a", "b", "c"], turn)[0] for turn in range(4)] == ["a", "b", "c", "a"]


def test_whole_waves_of_large_calls_are_counted():
    for size in (128, 1 << 20, 2 << 20):
        for in_flight in (50, 500):
            warmup, calls = grid.calls_of(size, in_flight, 0.6)
            assert warmup >= in_flight and calls >= (1 if in_flight == 500 else 2) * in_flight


def test_a_lane_that_went_another_way_is_refused():
    class Fake:
        name, paths = "fast", ("fast", "cut_through")

        def __init__(self, now):
            self.now = now

        def counts(self):
            return self.now

    before = {"fast": 0, "cut_through": 0, "relay": 0}
    took = bench_rounds.check_paths(Fake({"fast": 60, "cut_through": 40, "relay": 0}), before)
    assert took == {"fast": 60, "cut_through": 40}
    with pytest.raises(RuntimeError, match="were expected"):
        bench_rounds.check_paths(Fake({"fast": 90, "cut_through": 0, "relay": 10}), before)


def test_time_bound_and_failures_end_the_rounds(tmp_path, monkeypatch):
    calls = []

    def fake_run(options, cell, target):
        calls.append(target)
        if target == "bad":
            raise RuntimeError("it broke")
        made = row(0, target, 1, 1)
        return {key: made[key] for key in made if key not in ("round", "cell", "lane")}

    class FakeRound:
        def __init__(self, options, plan):
            pass

        def target(self, cell, lane):
            return lane

        def forget(self, cell, lane):
            pass

        def stop(self):
            pass

    monkeypatch.setattr(bench_rounds, "run_once", fake_run)
    monkeypatch.setattr(bench_rounds, "Round", FakeRound)
    cell = Cell("one", 1, 1, 1, 1, 1)
    plan = Plan("t", [cell], lambda cell: ["good", "bad"], None, {}, [], 5)
    rows = Rows(tmp_path, [], False)
    assert bench_rounds.run_rounds(argparse.Namespace(minutes=1), plan, rows) is True
    assert calls.count("good") == 5 and calls.count("bad") == bench_rounds.FAILURES_BORNE
    calls.clear()
    assert bench_rounds.run_rounds(argparse.Namespace(minutes=1), plan, rows) is True and calls == []  # resumed: all done
    assert bench_rounds.run_rounds(argparse.Namespace(minutes=-1), plan._replace(rounds=9), rows) is False and calls == []


def test_sidecar_bar(tmp_path):
    def judged(cost, rate):
        made = [r for turn in range(5) for r in (
            row(turn, "direct", 0.0, 1000.0, "c") | {"system_cpu_us": 70.0},
            row(turn, "http1", 1.0, rate * noisy(turn), "c") | {"system_cpu_us": cost * noisy(turn)})]
        plan = Plan("t", [Cell("c", 1, 1, 1, 1, 1)], lambda cell: ["direct", "http1"], None, {},
                    [Comparison("http1", "http1", "direct")], 5)
        text, result = sidecar.render(plan, rows_of(tmp_path, *made))
        assert "| c | http1 |" in text
        return result["c"]["http1"]["bar"]

    assert judged(50.0, 1200.0) == ("held", "held")
    assert judged(90.0, 900.0) == ("NOT HELD", "NOT HELD")
    assert judged(70.0, 960.0)[0] == "open"


def test_toggles_are_compared_where_they_matter():
    options = argparse.Namespace(payload="128,1M", provider="stub,dubbo-go", compression="none,gzip,offered", seconds=0.1, rounds=2)
    plan = toggles.plan_of(options, {"dubbo-provider": None})
    for comparison in plan.comparisons:
        cells = [cell for cell in plan.cells if not comparison.cells or comparison.cells(cell)]
        assert cells, comparison.title
        for cell in cells:
            assert {comparison.subject, comparison.base} <= set(plan.lanes_of(cell)), (comparison.title, cell.name)


def test_gzip_is_told_as_ratio_to_none(tmp_path):
    options = argparse.Namespace(payload="2M", content="text", mode="none,request,both", lanes="fast", in_flight=4, seconds=0.1, rounds=3)
    plan = gzip_ab.plan_of(options, {"dubbo-provider": None})
    assert [cell.name for cell in plan.cells] == [
        "stub, 2M text, none", "dubbo-go, 2M text, none", "stub, 2M text, request", "dubbo-go, 2M text, both"]
    seen = {"calls": 9, "bare": 9, "gzip_in": 9, "gzip_offers": 0}
    made = [r for turn in range(3) for r in (
        row(turn, "fast", 1.0, 100.0, "dubbo-go, 2M text, none", provider_saw={**seen, "gzip_in": 0}),
        row(turn, "fast", 1.0, 50.0 * noisy(turn), "dubbo-go, 2M text, both", provider_saw=seen))]
    text, result = gzip_ab.render(plan, rows_of(tmp_path, *made))
    found = result["dubbo-go, 2M text, both"]["fast"]
    assert found["qps_to_none"]["mean"] == pytest.approx(0.5, rel=0.02) and found["saw"] == "gzip in, gzip out"


# ---- end to end ----


def run(script, out, *args, code=0):
    done = subprocess.run([sys.executable, HERE / script, "--out", out, "--seconds", "0.02", "--rounds", "2", *args],
                          capture_output=True, text=True, timeout=170)
    assert done.returncode == code, done.stderr[-3000:] + done.stdout[-3000:]
    return (out / "report.md").read_text(), json.loads((out / "result.json").read_text())


@needs_proxy
def test_grid_runs_and_resumes(tmp_path):
    args = ["--payload", "128,256K", "--in-flight", "20"]
    text, result = run("grid.py", tmp_path, *args)
    assert set(result) == {"fast against relay", "fast against framed"} and "256K × 20" in text
    rows = (tmp_path / "rows.jsonl").read_text().splitlines()
    assert len(rows) == 1 + 2 * 2 * 3
    paths = {json.loads(line)["lane"]: json.loads(line)["paths"] for line in rows[1:]}
    assert set(paths["relay"]) == {"relay"} and set(paths["framed"]) == {"framed"}
    run("grid.py", tmp_path, *args, "--resume", "--rounds", "3")
    assert len((tmp_path / "rows.jsonl").read_text().splitlines()) == 1 + 3 * 2 * 3


@needs_proxy
@pytest.mark.parametrize("lengths", [False, True])
def test_the_stub_gives_long_replies_a_length_when_asked_to(tmp_path, lengths):
    arguments = grid.provider_args(argparse.Namespace(reply_lengths=lengths))
    provider = Provider(pathlib.Path(os.environ["TRIBUTARY_BUILD"]) / "tests" / "tools", None, *arguments)
    try:
        body = tmp_path / "body"
        body.write_bytes(b"x" * 5000)
        url = f"http://127.0.0.1:{provider.port}/tributary.demo.Echo/Say"
        head = subprocess.run(
            ["curl", "-s", "--http2-prior-knowledge", "-H", "content-type: application/proto", "--data-binary", f"@{body}",
             "-D", "-", "-o", tmp_path / "reply", url],
            capture_output=True, text=True, timeout=30, check=True).stdout
    finally:
        provider.stop()
    assert (tmp_path / "reply").read_bytes() == body.read_bytes()
    assert ("content-length: 5000" in head) == lengths


@needs_proxy
def test_fast_path_max_is_swept(tmp_path):
    _, result = run("grid.py", tmp_path, "--fast-path-max", "--payload", "1M", "--in-flight", "10")
    assert set(result) == {"max-256K against max-64K", "max-1M against max-64K"}
    paths = {r["lane"]: set(r["paths"]) for r in map(json.loads, (tmp_path / "rows.jsonl").read_text().splitlines()[1:])}
    assert paths == {"max-64K": {"cut_through"}, "max-256K": {"cut_through"}, "max-1M": {"fast"}}


@needs_proxy
@needs_go
@pytest.mark.parametrize("client", ["grpc-go", "loadgen"])
def test_sidecar_runs(tmp_path, client):
    text, result = run("sidecar.py", tmp_path, "--client", client, "--payload", "128", "--delay", "500us", "--in-flight", "20")
    cell = result["128, gzip none, handler 500us"]
    assert cell["direct"]["proxy_cpu_us"] == 0 and cell["http1"]["proxy_cpu_us"] > 0
    assert cell["http1"]["connections"] >= 1 and cell["http1"]["mallocs"] > 10
    assert cell["direct"]["p50_ms"] >= 0.5  # the handler's time
    assert ("gzip offered" in text) == (client == "grpc-go")


@needs_proxy
@needs_go
def test_toggles_run(tmp_path):
    text, result = run("toggles.py", tmp_path, "--payload", "128", "--provider", "stub,dubbo-go,dubbo-go@2ms", "--compression", "none,offered",
                       "--seconds", "0.2")  # allocations per call are the calls' own only over some thousand of them
    assert "| dubbo-go@2ms, 128, none |" in text
    waits = {r["cell"]: r["p50_ms"] for r in map(json.loads, (tmp_path / "rows.jsonl").read_text().splitlines()[1:])}
    assert waits["dubbo-go@2ms, 128, none"] >= 2
    offered = result["forward_accept_encoding = off against on"]["dubbo-go, 128, offered"]
    assert offered["provider_cpu_us"] and offered["mallocs"][0] < offered["mallocs"][1]


@needs_proxy
@needs_go
def test_gzip_runs_and_sees_what_was_compressed(tmp_path):
    _, result = run("gzip_ab.py", tmp_path, "--payload", "64K", "--content", "text", "--in-flight", "4")
    said = {name: {lane: each["saw"] for lane, each in lanes.items()} for name, lanes in result.items()}
    assert said["dubbo-go, 64K text, reply"]["direct"] == "plain in, gzip out"
    assert said["dubbo-go, 64K text, reply"]["fast"] == "plain in, plain out"
    assert said["stub, 64K text, request"]["direct"] == "gzip in, plain out"
    assert said["dubbo-go, 64K text, both"]["direct"] == "gzip in, gzip out"


@needs_proxy
def test_terminated_grid_keeps_its_rows_and_leaves_no_process(tmp_path):
    suite = subprocess.Popen([sys.executable, HERE / "grid.py", "--out", tmp_path, "--payload", "128", "--seconds", "0.2"],
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    rows = tmp_path / "rows.jsonl"
    end = time.monotonic() + 60
    while time.monotonic() < end and not (rows.exists() and len(rows.read_text().splitlines()) > 2):
        time.sleep(0.1)
    children = pathlib.Path(f"/proc/{suite.pid}/task/{suite.pid}/children").read_text().split()
    assert children
    suite.send_signal(signal.SIGTERM)
    assert suite.wait(60) == 143
    assert (tmp_path / "report.md").exists()
    for pid in children:
        assert not pathlib.Path(f"/proc/{pid}").exists()
