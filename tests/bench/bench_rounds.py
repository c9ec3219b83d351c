"""Interleaved rounds of lanes side by side: the engine of grid.py, toggles.py, sidecar.py and gzip_ab.py.

A cell is a load (payload, calls in flight, client), a lane a way from client to provider (direct, or a
proxy configured in one way). In each round every cell is run on all its lanes one right after the
other, beginning with another lane each round, so that lanes can be compared pair by pair. Proxies and
providers are started anew for every round: where a process happens to lie in memory must not count as
a property of its lane.

Owns: order, time bound, rows.jsonl (a line per run, written at once, so that an interrupted run keeps
what it has; --resume goes on), the report's frame. Does not own: what lanes and cells there are.

Failure modes: a run that fails is a row with "error"; after two of them that cell and lane are left
out and the report says so. TERM and INT end what was started; every run has a time limit.
"""

import argparse
import contextlib
import json
import os
import pathlib
import platform
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from typing import NamedTuple

import bench_stats
import bench_targets
from bench_load import add_machine, find_build, parse_size, use_cores
from bench_targets import pinned

FAILURES_BORNE = 2
RUN_SECONDS_MAX = 180
PATH_SHARE = 0.99  # of the calls that must have gone the way that the lane's name says


class Cell(NamedTuple):
    name: str
    size: int
    in_flight: int  # in all
    connections: int
    calls: int
    warmup_calls: int
    client: str = "loadgen"  # or grpc-go
    load_args: tuple = ()  # further arguments of that client
    provider: str = "stub"  # key of Plan.providers


class Comparison(NamedTuple):
    """Costs of `subject` as ratios to those of `base`, over the cells that `cells` takes."""

    title: str
    subject: str
    base: str
    cells: object = None  # predicate; None: all


class Plan(NamedTuple):
    title: str
    cells: list
    lanes_of: object  # cell -> names of lanes
    open_lane: object  # (name, provider, folder, core) -> target
    providers: dict  # key -> function(options) that starts one
    comparisons: list
    rounds: int


class Lane(bench_targets.Tributary):
    """A tributary of given keys; it knows which paths its calls may take."""

    def __init__(self, name, provider, folder, core, *, route="", upstream="", proxy="", paths=("fast",)):
        self.route, self.upstream, self.proxy, self.paths = route, upstream, proxy, paths
        try:
            super().__init__(name, provider, folder, core)
        except Exception:
            if hasattr(self, "process"):
                bench_targets.end(self.process)
            raise

    def command(self):
        command = super().command()
        path = pathlib.Path(command[-1])
        text = re.sub(r"buffer_budget = \S+", "buffer_budget = 4G", path.read_text())
        path.write_text(text.replace("watch = off\n", f"watch = off\n{self.proxy}"))
        return command

    def connections_to_provider(self):
        """Open now, and opened since the start."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}/stats", timeout=10) as reply:
            endpoints = json.load(reply)["upstreams"]["provider"]["endpoints"].values()
        return sum(each["connections"] for each in endpoints), sum(each["opened"] for each in endpoints)


# ---- one run ----


def client_command(options, cell, target):
    if cell.client == "grpc-go":
        command = [options.go_client, "-addr", target.address, "-payload", cell.size]
        command += ["-connections", cell.connections, "-in-flight", cell.in_flight // cell.connections]
        command += ["-count", cell.calls, "-warmup-count", cell.warmup_calls]
        option = "-pid"
    else:
        command = [options.loadgen / "loadgen", "--target", target.address, "--size", cell.size]
        command += ["--connections", cell.connections, "--in-flight", cell.in_flight // cell.connections]
        command += ["--count", cell.calls, "--warmup-count", cell.warmup_calls, *target.load_args]
        option = "--pid"
    command += [option, f"provider={target.provider.pid}"]
    if target.pid:
        command += [option, f"proxy={target.pid}"]
    return [*map(str, command), *cell.load_args]


def call_client(options, command):
    done = subprocess.run(
        pinned(options.load_core, command), capture_output=True, text=True, timeout=RUN_SECONDS_MAX
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr}{done.stdout}"[:1500])
    return json.loads(done.stdout)


def difference(now, before):
    return {key: now[key] - before[key] for key in now}


def check_paths(target, before):
    """What /stats says of the paths; raises when the lane is not what its name says."""
    if before is None:
        return {}
    took = {path: count for path, count in difference(target.counts(), before).items() if count}
    right = sum(took.get(path, 0) for path in target.paths)
    if right < PATH_SHARE * sum(took.values()):
        raise RuntimeError(f"{target.name}: paths {', '.join(target.paths)} were expected, these were taken: {took}")
    return took


def run_once(options, cell, target):
    paths_before, before = target.counts(), target.provider.counts()
    report = call_client(options, client_command(options, cell, target))
    seen = difference(target.provider.counts(), before)
    row = {
        "calls": report["calls"],
        "qps": report["qps"],
        "p50_ms": report["latency_p50_ms"],
        "p99_ms": report["latency_p99_ms"],
        "client_cpu_us": report["load_cpu_us_per_call"],
        "provider_cpu_us": report["processes"]["provider"]["cpu_us_per_call"],
        "proxy_cpu_us": report["processes"].get("proxy", {}).get("cpu_us_per_call", 0.0),
        "provider_saw": seen,
        "paths": check_paths(target, paths_before),
    }
    row["system_cpu_us"] = row["provider_cpu_us"] + row["proxy_cpu_us"]
    if seen.get("calls") and "mallocs" in seen:
        row["mallocs"] = seen["mallocs"] / seen["calls"]
        row["alloc_bytes"] = seen["alloc_bytes"] / seen["calls"]
    if hasattr(target, "connections_to_provider"):
        row["connections"], row["opened"] = target.connections_to_provider()
    return row


def prime(options, cell, target):
    """A few calls, so that connections are open and what is learnt is learnt."""
    few = cell._replace(calls=2, warmup_calls=1, connections=1, in_flight=1)
    call_client(options, client_command(options, few, target))


# ---- rows ----


class Rows:
    """rows.jsonl: what was measured, and what was asked (in the first line)."""

    def __init__(self, folder, asked, resume):
        self.path = folder / "rows.jsonl"
        self.rows = []
        if self.path.exists() and resume:
            self.load(asked)
        else:
            if self.path.exists():
                self.path.rename(folder / "rows.old.jsonl")
            self.path.write_text(json.dumps({"asked": asked}) + "\n")

    def load(self, asked):
        text = self.path.read_text()
        lines = text.splitlines()
        if not text.endswith("\n"):  # cut off as it was written: the next line must not join it
            self.path.write_text(text + "\n")
        before = json.loads(lines[0])["asked"]
        if before != asked:
            sys.exit(f"{self.path} holds another plan: {before}, asked for now: {asked}")
        for line in lines[1:]:
            try:
                self.rows.append(json.loads(line))
            except json.JSONDecodeError:
                print(f"{self.path}: a line that was cut off is left out", file=sys.stderr)

    def add(self, row):
        self.rows.append(row)
        with self.path.open("a") as file:
            file.write(json.dumps(row) + "\n")

    def done(self, turn, cell, lane):
        return any(r["round"] == turn and r["cell"] == cell and r["lane"] == lane and "error" not in r for r in self.rows)

    def failures(self, cell, lane):
        return [r["error"] for r in self.rows if r["cell"] == cell and r["lane"] == lane and "error" in r]

    def good(self, cell, lane):
        return [r for r in self.rows if r["cell"] == cell and r["lane"] == lane and "error" not in r]


# ---- ending when asked to ----

_asked = {"shields": 0, "signal": 0}


def on_signal(number, _frame):
    """TERM and INT end the program as exceptions, which pass the finally clauses; not while a process is
    being started or stopped, because nobody would own it then."""
    _asked["signal"] = number
    if not _asked["shields"]:
        sys.exit(128 + number)


@contextlib.contextmanager
def shielded():
    _asked["shields"] += 1
    try:
        yield
    finally:
        _asked["shields"] -= 1
    if _asked["signal"] and not _asked["shields"]:
        sys.exit(128 + _asked["signal"])


# ---- rounds ----


class Round:
    """The processes of one round, started when first needed."""

    def __init__(self, options, plan):
        self.options, self.plan = options, plan
        self.folder = tempfile.TemporaryDirectory(prefix="tributary-rounds-")
        self.providers, self.targets, self.primed = {}, {}, set()

    def target(self, cell, lane):
        key = (cell.provider, lane)
        with shielded():
            if cell.provider not in self.providers:
                self.providers[cell.provider] = self.plan.providers[cell.provider](self.options)
            if key not in self.targets:
                provider = self.providers[cell.provider]
                folder = pathlib.Path(self.folder.name) / cell.provider
                folder.mkdir(exist_ok=True)
                self.targets[key] = self.plan.open_lane(lane, provider, folder, self.options.proxy_core)
        if (key, cell.client) not in self.primed:
            self.primed.add((key, cell.client))
            prime(self.options, cell, self.targets[key])
        return self.targets[key]

    def forget(self, cell, lane):
        """After a failure: the next run gets a new process."""
        target = self.targets.pop((cell.provider, lane), None)
        self.primed.discard(((cell.provider, lane), cell.client))
        with shielded():
            if target:
                target.stop()

    def stop(self):
        with shielded():
            for each in [*self.targets.values(), *self.providers.values()]:
                each.stop()
            self.folder.cleanup()


def rotated(names, turn):
    at = turn % len(names)
    return names[at:] + names[:at]


def run_cell(options, plan, rows, around, turn, cell):
    for lane in rotated(plan.lanes_of(cell), turn):
        if rows.done(turn, cell.name, lane) or len(rows.failures(cell.name, lane)) >= FAILURES_BORNE:
            continue
        head = {"round": turn, "cell": cell.name, "lane": lane, "at": time.strftime("%Y-%m-%dT%H:%M:%S")}
        try:
            row = run_once(options, cell, around.target(cell, lane))
        except Exception as error:  # one run's failure must not lose the others
            row = {"error": f"{type(error).__name__}: {error}"[:1500]}
            around.forget(cell, lane)
        rows.add({**head, **row})
        tell(plan, turn, cell, lane, row)


def tell(plan, turn, cell, lane, row):
    text = f"round {turn + 1}/{plan.rounds} {cell.name} {lane}: "
    if "error" in row:
        text += f"FAILED: {row['error'][:300]}"
    else:
        text += f"proxy {row['proxy_cpu_us']:.2f} us, provider {row['provider_cpu_us']:.2f} us, {row['qps']:.0f} calls/s"
    print(text, file=sys.stderr, flush=True)


def run_rounds(options, plan, rows):
    """True when all rounds are done; False when the time was over before."""
    end_at = time.monotonic() + options.minutes * 60
    longest = {}
    for turn in range(plan.rounds):
        around = Round(options, plan)
        try:
            for cell in plan.cells:
                began = time.monotonic()
                if began + longest.get(cell.name, 0) > end_at:
                    return False
                run_cell(options, plan, rows, around, turn, cell)
                longest[cell.name] = max(longest.get(cell.name, 0), time.monotonic() - began)
        finally:
            around.stop()
    return True


# ---- results ----


class Result(NamedTuple):
    cell: Cell
    cost: object  # bench_stats.Ratio of the metric, None: not enough pairs
    rate: object  # of calls per second, subject / base
    slow: object  # of base's calls per second / subject's: greater is worse
    subject: list  # rows
    base: list


def pairs(rows, cell, comparison):
    subject = {row["round"]: row for row in rows.good(cell.name, comparison.subject)}
    base = {row["round"]: row for row in rows.good(cell.name, comparison.base)}
    both = sorted(subject.keys() & base.keys())
    return [subject[turn] for turn in both], [base[turn] for turn in both]


def column(rows, key):
    return [row[key] for row in rows]


def compare(plan, rows, comparison, metric):
    results = []
    for cell in plan.cells:
        if comparison.cells and not comparison.cells(cell):
            continue
        subject, base = pairs(rows, cell, comparison)
        qps, base_qps = column(subject, "qps"), column(base, "qps")
        results.append(
            Result(
                cell,
                bench_stats.ratio(column(subject, metric), column(base, metric)),
                bench_stats.ratio(qps, base_qps),
                bench_stats.ratio(base_qps, qps),
                subject,
                base,
            )
        )
    return results


def median(rows, key):
    values = [row[key] for row in rows if key in row]
    return statistics.median(values) if values else None


def show(ratio, digits=3):
    if ratio is None:
        return "–"
    low, high = (f"{x:.{digits}f}" if 0.001 < x < 1000 else f"{x:.0e}" for x in (ratio.low, ratio.high))
    return f"{ratio.mean:.{digits}f} [{low}, {high}]"


def number(value):
    if value is None:
        return "–"
    return f"{value:.2f}" if value < 100 else f"{value:.0f}"


def failures_text(plan, rows):
    lines = []
    for cell in plan.cells:
        for lane in plan.lanes_of(cell):
            failures = rows.failures(cell.name, lane)
            if failures:
                lines.append(f"- **FAILED** {cell.name} {lane}, {len(failures)} times: {failures[-1][:400]}")
    return "\n".join(lines)


def heading(plan, rows, complete):
    model = [
        line.partition(":")[2].strip()
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    rounds = len({row["round"] for row in rows.rows})
    state = "" if complete else f" **The time was over before all {plan.rounds} rounds: go on with --resume.**"
    return (
        f"# {plan.title}\n\n{time.strftime('%Y-%m-%d %H:%M')}, {model[0] if model else platform.machine()}, "
        f"{os.cpu_count()} cores, Linux {platform.release()}, load average {os.getloadavg()[0]:.1f}. "
        f"{rounds} interleaved rounds, processes started anew for each.{state}\n"
    )


# ---- command line ----


def parser(description, out, rounds):
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--rounds", type=int, default=rounds)
    made.add_argument("--minutes", type=float, default=60, help="no cell is begun that would end later (60)")
    made.add_argument("--seconds", type=float, default=0.6, help="about so long is one run (0.6); large calls take longer")
    made.add_argument("--resume", action="store_true", help="go on with what --out holds")
    made.add_argument("--report", action="store_true", help="measure nothing: the report from what --out holds")
    add_machine(made)
    made.add_argument("--out", type=pathlib.Path,
                      default=pathlib.Path(__file__).resolve().parents[2] / "build" / "bench-results" / out)
    return made


def prepare(options):
    use_cores(options)
    if options.report:
        return
    options.loadgen, options.tools = find_build(options.build)
    binary = options.tools.parents[1] / "tributary"
    if not os.environ.get("TRIBUTARY_BIN") and binary.exists():
        os.environ["TRIBUTARY_BIN"] = str(binary)
    if not os.environ.get("TRIBUTARY_BIN"):
        sys.exit("TRIBUTARY_BIN must name the proxy's binary, or --build a folder that holds it")


def sizes(text):
    return [(each, parse_size(each)) for each in text.split(",")]


def run(options, plan, render, asked):
    """Measures, then writes report.md and result.json; exit code 0, 1 when a run failed."""
    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)
    options.out.mkdir(parents=True, exist_ok=True)
    rows = Rows(options.out, asked, options.resume or options.report)
    complete = True
    try:
        if not options.report:
            complete = run_rounds(options, plan, rows)
    finally:
        # also when interrupted: what was measured is worth its report
        text, result = render(plan, rows)
        failed = failures_text(plan, rows)
        text = heading(plan, rows, complete) + "\n" + text + (f"\n## Failures\n\n{failed}\n" if failed else "")
        (options.out / "report.md").write_text(text)
        (options.out / "result.json").write_text(json.dumps(result, indent=1, default=vars))
        print(text)
    return 1 if failed else 0
