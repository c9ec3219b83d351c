"""bench.py end to end on a tiny grid: files, names, keys, report, and that a false claim fails."""

import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import time

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import bench
import bench_load
import bench_report
import bench_targets

KEYS = (
    "framework payload_size serialization compression concurrency call_mode timestamp qps success_rate "
    "latency_p50_ms latency_p99_ms cpu_avg_percent memory_peak_mb latency_p90_ms latency_p95_ms latency_p999_ms"
).split()
TINY = ["--rounds", "2", "--duration", "0.3", "--warmup", "0.1", "--concurrency", "20"]


def run(out, *args):
    return subprocess.run(
        [sys.executable, HERE / "bench.py", *args, "--out", out], capture_output=True, text=True, timeout=120
    )


def test_grid_writes_a_file_per_scenario_and_a_report(tmp_path):
    done = run(
        tmp_path,
        *TINY,
        *("--framework", "direct,direct-triple", "--payload", "128,1K"),
        *("--serialization", "proto,json", "--compression", "none,default", "--mode", "unary,streaming"),
    )
    assert done.returncode == 0, done.stderr
    files = sorted(path.name for path in (tmp_path / "data").iterdir())
    assert len(files) == 2 * 2 * 2 * 2 + 2 * 2 * 2  # a stream is framed everywhere: direct only
    result = json.loads((tmp_path / "data" / "direct_1K_json_default_20_unary.json").read_text())
    assert [key for key in KEYS if key not in result] == []
    assert (result["payload_size"], result["success_rate"], len(result["rounds"])) == (1024, 1.0, 2)
    assert result["qps"] > 0 and result["cpu_avg_percent"] > 0 and result["memory_peak_mb"] > 0
    assert result["rounds"][0]["ran"]["provider"]["gzip_in"] > 0
    report = (tmp_path / "report.md").read_text()
    assert "| 1 KiB, 20 |" in report and "## streaming, json, compression default" in report
    lines = (tmp_path / "benchstat.txt").read_text().splitlines()
    assert len(lines) == 2 * len(files)
    for line in lines:  # Benchmark… count, then pairs of value and unit
        words = line.split()
        assert words[0].startswith("BenchmarkCall/framework=") and len(words) % 2 == 0
        assert int(words[1]) > 0 and all(float(value) >= 0 for value in words[2::2])


def test_single_scenario_with_a_config_file(tmp_path):
    config = tmp_path / "bench.ini"
    config.write_text("[bench]\nframework = direct\npayload = 16K\nrounds = 1\nduration = 0.2\nwarmup = 0.1\n")
    done = run(tmp_path / "out", "run_single", "--config", config, "--concurrency", "10", "--payload", "128")
    assert done.returncode == 0, done.stderr
    assert [path.name for path in (tmp_path / "out" / "data").iterdir()] == ["direct_128_proto_none_10_unary.json"]
    config.write_text("[bench]\nframewrok = direct\n")
    assert "framewrok: unknown" in run(tmp_path / "out", "--config", config).stderr
    assert "one value each" in run(tmp_path / "out", "run_single", "--payload", "128,1K").stderr


def test_running_server_by_address_and_pid(tmp_path):
    tools = bench_load.find_build()[1]
    provider = bench_targets.Provider(tools, None)
    try:
        args = ["--addr", f"127.0.0.1:{provider.port}", "--pid", str(provider.pid), "--framework", "mine"]
        done = run(tmp_path, "run_single", *args, *TINY, "--payload", "128")
    finally:
        provider.stop()
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "data" / "mine_128_proto_none_20_unary.json").read_text())
    assert result["qps"] > 0 and result["proxy_cpu_us"] > 0


SCENARIO = bench.Scenario("direct", "128", "proto", "none", 10, "unary")


def counts(**some):
    return {**dict.fromkeys(["framed", "bare_h2", "bare_h1", "gzip_in", "gzip_out", "refused"], 0), **some}


@pytest.mark.parametrize(
    "form, seen, right",
    [
        ("framed", {"framed": 100}, True),
        ("framed", {"framed": 90, "bare_h2": 10}, False),  # fell back for a tenth
        ("bare_h2", {"framed": 100}, False),  # the published mistake: gRPC measured as Triple
        ("bare_h1", {"bare_h1": 100}, True),
        ("framed", {"framed": 99}, False),  # fewer than were made: some were answered elsewhere
        ("framed", {"framed": 100, "gzip_out": 100}, False),  # compressed though not asked
    ],
)
def test_claims_are_checked_against_what_the_provider_saw(form, seen, right):
    target = type("Fake", (), {"form": form})
    if right:
        bench.check_form(SCENARIO, target, counts(), counts(**seen), 100)
    else:
        with pytest.raises(RuntimeError):
            bench.check_form(SCENARIO, target, counts(), counts(**seen), 100)


def test_paths_of_a_proxy_are_checked():
    class Fake(bench_targets.Tributary):
        def __init__(self, now):
            self.now = now

        def counts(self):
            return self.now

    zero = {"fast": 0, "relay": 0, "framed": 0}
    assert Fake({"fast": 100, "relay": 0, "framed": 0}).wrong(zero, 100) is None
    assert "expected" in Fake({"fast": 90, "relay": 10, "framed": 0}).wrong(zero, 100)
    assert "counted" in Fake({"fast": 90, "relay": 0, "framed": 0}).wrong(zero, 100)


def test_streams_are_not_asked_of_unary_setups():
    asked = [
        name
        for name in bench_targets.TARGETS
        if not bench.wants_nothing(bench.Scenario(name, "128", "proto", "none", 10, "streaming"))
    ]
    assert asked == ["direct", "tributary", "tributary-framed", "nghttpx", "nginx", "haproxy"]


def test_a_failed_scenario_is_told_and_the_rest_is_kept(tmp_path, monkeypatch):
    class Wrong(bench_targets.Direct):
        form = "bare_h2"  # it is framed

    monkeypatch.setitem(bench_targets.TARGETS, "direct-triple", Wrong)
    monkeypatch.setattr(bench, "TARGETS", bench_targets.TARGETS)
    args = ["--framework", "direct,direct-triple", "--payload", "128", *TINY, "--out", str(tmp_path)]
    assert bench.main(args) == 1
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["direct_128_proto_none_20_unary.json"]
    assert "**FAILED** direct-triple_128" in (tmp_path / "report.md").read_text()


@pytest.mark.skipif(not shutil.which("nghttpx"), reason="nghttpx (nghttp2-proxy) is not installed")
def test_proxy_cost_and_plots(tmp_path):
    done = run(tmp_path, "--framework", "direct,nghttpx", "--payload", "128,1K", *TINY)
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "data" / "nghttpx_128_proto_none_20_unary.json").read_text())
    assert result["proxy_cpu_us"] > 0.5 and "nghttpx" in result["version"]
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return
    bench_report.write(tmp_path)
    assert (tmp_path / "plot_unary_proto_none.svg").exists() and (tmp_path / "plot_unary_proto_none.png").exists()


def test_load_never_reaches_somebody_elses_server():
    """The port is taken by another process (this one): the target must not be used."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert bench_targets.listens(os.getpid(), port)
        sleeper = subprocess.Popen(["sleep", "60"])
        try:
            with pytest.raises(RuntimeError, match="does not listen"):
                bench_targets.wait_for_port(port, sleeper, seconds=0.3)
        finally:
            sleeper.kill()
            sleeper.wait()


@pytest.mark.parametrize("script", ["bench.py", "compare.py"])
def test_terminated_suite_leaves_no_process(tmp_path, script):
    grid = ["--framework", "direct", "--out", tmp_path] if script == "bench.py" else ["--targets", "direct"]
    suite = subprocess.Popen(
        [sys.executable, HERE / script, *grid, "--duration", "20"], stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    children = pathlib.Path(f"/proc/{suite.pid}/task/{suite.pid}/children")
    end = time.monotonic() + 60
    names = []
    while time.monotonic() < end and "loadgen" not in names:
        time.sleep(0.1)
        pids = children.read_text().split()
        names = [pathlib.Path(f"/proc/{pid}/comm").read_text().strip() for pid in pids]
    suite.terminate()
    assert suite.wait(30) == 143
    assert "echo-provider" in names and "loadgen" in names
    for pid in pids:
        assert not pathlib.Path(f"/proc/{pid}").exists()
