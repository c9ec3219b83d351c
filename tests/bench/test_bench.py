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
import bench_peers
import bench_proof
import bench_report
import bench_targets

KEYS = (
    "framework payload_size serialization compression concurrency call_mode timestamp qps success_rate "
    "latency_p50_ms latency_p99_ms cpu_avg_percent memory_peak_mb latency_p90_ms latency_p95_ms latency_p999_ms "
    "latency_added_p50_ms latency_added_p99_ms proxy_cpu_us provider_cpu_us syscalls_per_call proof"
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
        *("--serialization", "protobuf,json", "--compression", "none,default", "--mode", "unary,streaming"),
    )
    assert done.returncode == 0, done.stderr
    files = sorted(path.name for path in (tmp_path / "data").iterdir())
    assert len(files) == 2 * 2 * 2 * 2 + 2 * 2 * 2  # a stream is framed everywhere: direct only
    result = json.loads((tmp_path / "data" / "direct_1K_json_default_20_unary.json").read_text())
    assert [key for key in KEYS if key not in result] == []
    assert (result["payload_size"], result["success_rate"], len(result["rounds"])) == (1024, 1.0, 2)
    assert result["qps"] > 0 and result["cpu_avg_percent"] > 0 and result["memory_peak_mb"] > 0
    assert result["rounds"][0]["ran"]["provider"]["gzip_in"] > 0
    proof = result["proof"]
    assert (proof["wire_form"], proof["transport"], proof["encodings"]["provider_request"]) == ("framed", "h2", "gzip")
    assert proof["provider_saw"]["framed"] >= sum(report["calls"] for report in result["rounds"])
    assert proof["versions"]["provider"] and proof["versions"]["framework"]
    report = (tmp_path / "report.md").read_text()
    assert "### 1 KiB, 20 in flight" in report and "## streaming, json, compression default" in report
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
    assert [path.name for path in (tmp_path / "out" / "data").iterdir()] == ["direct_128_protobuf_none_10_unary.json"]
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
    result = json.loads((tmp_path / "data" / "mine_128_protobuf_none_20_unary.json").read_text())
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
        bench_proof.check_form(SCENARIO, target, counts(), counts(**seen), 100)
    else:
        with pytest.raises(RuntimeError):
            bench_proof.check_form(SCENARIO, target, counts(), counts(**seen), 100)


def test_paths_of_a_proxy_are_checked():
    class Fake(bench_targets.Tributary):
        def __init__(self, now):
            self.now = now

        def counts(self):
            return self.now

    zero = {"fast": 0, "relay": 0, "framed": 0}
    assert Fake({"fast": 100, "relay": 0, "framed": 0}).wrong(zero, 100) is None
    assert Fake({"fast": 1, "cut_through": 99, "relay": 0, "framed": 0}).wrong(zero, 100) is None
    assert "expected" in Fake({"fast": 90, "relay": 10, "framed": 0}).wrong(zero, 100)
    assert "counted" in Fake({"fast": 90, "relay": 0, "framed": 0}).wrong(zero, 100)


def test_streams_are_not_asked_of_unary_setups():
    asked = [
        name
        for name in bench_targets.TARGETS
        if not bench.wants_nothing(bench.Scenario(name, "128", "proto", "none", 10, "streaming"))
    ]
    assert asked == ["direct", "tributary", "tributary-framed", "nghttpx", "nginx", "haproxy", "envoy"]


def test_a_failed_scenario_is_told_and_the_rest_is_kept(tmp_path, monkeypatch):
    class Wrong(bench_targets.Direct):
        form = "bare_h2"  # it is framed

    monkeypatch.setitem(bench.TARGETS, "direct-triple", Wrong)
    args = ["--framework", "direct,direct-triple", "--payload", "128", *TINY, "--out", str(tmp_path)]
    assert bench.main(args) == 1
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["direct_128_protobuf_none_20_unary.json"]
    assert "**FAILED** direct-triple_128" in (tmp_path / "report.md").read_text()


@pytest.mark.skipif(not shutil.which("nghttpx"), reason="nghttpx (nghttp2-proxy) is not installed")
def test_proxy_cost_and_plots(tmp_path):
    done = run(tmp_path, "--framework", "direct,nghttpx", "--payload", "128,1K", *TINY)
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "data" / "nghttpx_128_protobuf_none_20_unary.json").read_text())
    assert result["proxy_cpu_us"] > 0.5 and "nghttpx" in result["version"]
    direct = json.loads((tmp_path / "data" / "direct_128_protobuf_none_20_unary.json").read_text())
    added = result["latency_p50_ms"] - direct["latency_p50_ms"]
    assert result["latency_added_p50_ms"] == pytest.approx(added) and direct["latency_added_p50_ms"] is None
    if shutil.which("strace"):
        assert 0.05 < result["syscalls_per_call"] < 20 and direct["syscalls_per_call"] is None
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return
    bench_report.write(tmp_path)
    assert all((tmp_path / f"plot_unary_protobuf_none_cpu.{suffix}").stat().st_size > 5000 for suffix in ("svg", "png"))


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


def test_minutes_are_kept(tmp_path):
    """Runs become shorter, and rounds fewer, as the time goes."""
    begin = time.monotonic()
    args = ["--framework", "direct,direct-triple", "--payload", "128,1K", "--concurrency", "10,20"]
    done = run(tmp_path, *args, "--minutes", "0.25", "--no-syscalls", "--rounds", "200")
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - begin < 40
    assert "fewer rounds" in done.stderr
    facts = json.loads((tmp_path / "environment.json").read_text())
    assert facts["rounds"] >= 1 and facts["seconds_per_run"] == bench.LEAST_SECONDS


@pytest.mark.parametrize("text, size", [("128", 128), ("128B", 128), ("16K", 16384), ("1KiB", 1024), ("1MB", 1 << 20)])
def test_sizes(text, size):
    assert bench_load.parse_size(text) == size


def test_the_slice_leaves_out_what_takes_seconds_unless_asked():
    few = ["--framework", "direct"]
    options = bench.parse(few)
    assert max(each.bytes_in_flight for each in bench.scenarios_of(options)) <= bench.SLICE_MAX_BYTES
    asked = bench.scenarios_of(bench.parse([*few, "--payload", "1M", "--concurrency", "500"]))
    assert [(each.payload, each.concurrency) for each in asked] == [("1M", 500)]


def test_protobuf_fields_are_read():
    message = bytes([1 << 3, 0x96, 1, 2 << 3 | 2, 3]) + b"abc" + bytes([7 << 3, 0])
    assert list(bench_peers.fields(message)) == [(1, 150), (2, b"abc"), (7, 0)]


def test_a_real_provider_that_counts_too_few_calls_is_told():
    with pytest.raises(RuntimeError, match="counted 99"):
        bench_proof.check_form(SCENARIO, None, {"calls": 1}, {"calls": 100}, 100)
    assert bench_proof.check_form(SCENARIO, None, {"calls": 0}, {"calls": 101}, 100) == {"calls": 101}


def test_requests_must_be_compressed_where_the_name_says_so():
    packed = SCENARIO._replace(compression="default")
    target = type("Fake", (), {"form": "framed", "unpacks": False})
    assert bench_proof.check_form(packed, target, counts(), counts(framed=100, gzip_in=100), 100)
    with pytest.raises(RuntimeError, match="arrived compressed"):
        bench_proof.check_form(packed, target, counts(), counts(framed=100, gzip_in=50), 100)
    target.unpacks = True
    assert bench_proof.check_form(packed, target, counts(), counts(framed=100), 100)
    with pytest.raises(RuntimeError, match="arrived plain"):
        bench_proof.check_form(packed, target, counts(), counts(framed=100, gzip_in=50), 100)


@pytest.mark.skipif(not shutil.which("go") or not os.environ.get("TRIBUTARY_BUILD"), reason="no Go, or no build folder")
def test_a_real_provider_directly_and_behind_the_proxy(tmp_path):
    names = ["grpc-go"] + (["tributary-grpc-go", "tributary-dubbo-go"] if os.environ.get("TRIBUTARY_BIN") else [])
    done = run(tmp_path, "--framework", ",".join(names), "--payload", "1K", *TINY)
    assert done.returncode == 0, done.stderr
    for name in names:
        proof = json.loads((tmp_path / "data" / f"{name}_1K_protobuf_none_20_unary.json").read_text())["proof"]
        form = "bare" if name == "tributary-dubbo-go" else "framed"
        told = proof["provider_headers"]["content-type"]
        assert (proof["wire_form"], told) == (form, "application/proto" if form == "bare" else "application/grpc")
        assert name.rpartition("tributary-")[2] in proof["versions"]["provider"]
        if proof["paths"]:
            assert proof["paths"]["fast" if form == "bare" else "framed"] == sum(proof["paths"].values())
            assert proof["endpoint"]["wire"] == form
