#!/usr/bin/python3
"""The benchmark suite: scenarios over frameworks, payloads, codecs, compression and concurrency.

    bench.py [run_all]  [--config FILE] [--minutes 30] [--out DIR]      every scenario, rounds interleaved
    bench.py run_single --framework tributary --payload 1K --concurrency 50
    bench.py report     --out DIR                                       the report again, from DIR/data

Frameworks are what is called: the stub provider directly or behind a proxy (direct, tributary and its toggles,
nghttpx, haproxy, nginx, envoy), and real providers directly or behind tributary (bench_peers.py).

Writes DIR/data/{framework}_{payload}_{serialization}_{compression}_{concurrency}_{mode}.json, logs in
DIR/logs, DIR/report.md with plots, DIR/benchstat.txt. Options may stand in the [bench] section of an
INI file; the command line wins. A scenario fails when its calls were not what its name claims: by
the provider's own counts (form, encodings) and, for tributary, by the paths in /stats.

One proxy on one core, load and provider on another. --addr (with --pid) measures something that is
already running, whose calls are then checked by their replies only.
"""

import argparse
import configparser
import itertools
import json
import os
import pathlib
import platform
import signal
import statistics
import sys
import time
import traceback
from typing import NamedTuple

import bench_peers
import bench_proof
import bench_report
import bench_targets
from bench_load import HERE, add_machine, can_count_syscalls, count_syscalls, find_build, load, parse_size, prime, use_cores
from bench_targets import Provider

TARGETS = {**bench_targets.TARGETS, **bench_peers.PEER_TARGETS}
DEFAULTS = {
    "framework": "direct,direct-triple,tributary,tributary-unary,tributary-relay,tributary-framed,"
    "tributary-http1,nghttpx,haproxy,nginx,envoy,envoy-bridge," + ",".join(bench_peers.PEER_TARGETS),
    "payload": "128,1K,16K,1M",
    "serialization": "protobuf",
    "compression": "none",
    "concurrency": "50,500",
    "mode": "unary",
}
FULL = {
    **DEFAULTS,
    "framework": ",".join(TARGETS),
    "serialization": "protobuf,json,hessian2,msgpack",
    "compression": "none,default,fastest",
    "concurrency": "50,100,200,500,1000,2000",
    "mode": "unary,streaming",
}
STREAM_MESSAGES = 20
GZIP_LEVELS = {"fastest": 1, "default": 6}
LEAST_SECONDS = 0.5  # of a run: below that it measures noise
PEER_MAX_BYTES = 128 << 20  # in flight at once: more than real providers with ordinary heaps hold
SLICE_MAX_BYTES = 128 << 20  # more is only in the full grid, or where asked for: one such call takes seconds


class Scenario(NamedTuple):
    framework: str
    payload: str
    serialization: str
    compression: str
    concurrency: int
    mode: str

    @property
    def name(self):
        return "_".join(map(str, self))

    @property
    def bytes_in_flight(self):
        return parse_size(self.payload) * self.concurrency

    @property
    def least_calls(self):
        """In a run, however short: one for each that is in flight; streams are many messages each."""
        return self.concurrency if self.mode == "unary" else max(1, self.concurrency // STREAM_MESSAGES)

    def load_args(self, options, service=bench_targets.SERVICE):
        connections = min(options.connections, self.concurrency)
        args = ["--size", parse_size(self.payload), "--connections", connections]
        args += ["--in-flight", max(1, self.concurrency // connections)]
        if self.serialization != "protobuf":
            args += ["--codec", self.serialization]
        if self.compression != "none":
            args += ["--gzip", "--gzip-level", GZIP_LEVELS[self.compression]]
        if options.random:
            args.append("--random")
        if self.mode == "streaming":
            args += ["--type", "bidi", "--method", f"/{service}/Chat", "--lockstep"]
            args += ["--messages", STREAM_MESSAGES]
        return args


class External(bench_targets.Target):
    """Something that is running already."""

    def __init__(self, name, addr, pid):
        self.name, self.addr, self.pid, self.provider = name, addr, pid, None

    @property
    def address(self):
        return self.addr

    def version(self):
        return "unknown: not started here"

    def stop(self):
        return ""


# ---- one run ----


def prime_once(options, scenario, target):
    """What has to be learnt, connected or compiled before the first run of a scenario."""
    if options.addr or scenario in options.primed:
        return
    options.primed.add(scenario)
    codec = [] if scenario.serialization == "protobuf" else ["--codec", scenario.serialization]
    prime(options.loadgen, options.load_core, target, codec)
    seconds = bench_peers.warm_seconds(target)
    if seconds:
        warm = ["--warmup", seconds, "--duration", 0.1, "--least", 1]
        load(options.loadgen, options.load_core, target, [*scenario.load_args(options, target.service), *warm])


def run_once(options, scenario, target, seconds):
    """One round of a scenario; the load generator's report with the proof of what ran."""
    first = scenario not in options.primed
    prime_once(options, scenario, target)
    provider_before = bench_proof.settled(target.provider.counts) if target.provider else None
    path_before = target.counts()
    warmup = min(options.warmup, seconds / 2)
    report = load(
        options.loadgen,
        options.load_core,
        target,
        [*scenario.load_args(options, target.service), "--warmup", warmup, "--duration", seconds]
        + ["--least", scenario.least_calls],
    )
    report["ran"] = ran = {}
    if provider_before:
        counts = target.provider.counts()
        ran["provider"] = bench_proof.check_form(scenario, target, provider_before, counts, report["calls"])
    ran["path"] = bench_proof.check_path(scenario, target, path_before, report["calls"])
    if first:
        ran["headers"] = bench_proof.check_headers(scenario, target)
    return report


def syscalls_of(options, scenario, target):
    """System calls per call of the proxy, and of which kinds; None where there is no proxy, or no strace."""
    if not target.pid or not options.syscalls:
        return None
    calls = 200 if parse_size(scenario.payload) >= 1 << 18 else 3000
    if scenario.mode == "streaming":
        calls = max(100, calls // STREAM_MESSAGES)
    args = scenario.load_args(options, target.service)
    total, kinds = count_syscalls(options.loadgen, options.load_core, target, args, max(calls, scenario.concurrency))
    return {"per_call": round(total, 4), **{name: round(count, 4) for name, count in sorted(kinds.items())}}


def median_of(rounds, *keys):
    def at(report):
        for key in keys:
            report = report.get(key, {}) if isinstance(report, dict) else 0
        return report or 0

    return statistics.median(at(report) for report in rounds)


def summary(scenario, target, rounds, version, syscalls=None):
    """What the suites of this field write down for a scenario, and what they leave out."""
    rate = "messages_per_s" if scenario.mode == "streaming" else "qps"
    cost = "cpu_us_per_message" if scenario.mode == "streaming" else "cpu_us_per_call"
    measured = "proxy" if target.pid else "provider"
    return {
        "framework": scenario.framework,
        "payload_size": parse_size(scenario.payload),
        "serialization": scenario.serialization,
        "compression": scenario.compression,
        "concurrency": scenario.concurrency,
        "call_mode": scenario.mode,
        "baseline": target.baseline,
        "timestamp": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "qps": median_of(rounds, "qps"),
        **({"messages_per_s": median_of(rounds, rate)} if scenario.mode == "streaming" else {}),
        "success_rate": min(report["success_rate"] for report in rounds),
        **{
            f"latency_{p}_ms": median_of(rounds, f"latency_{p}_ms")
            for p in ("p50", "p90", "p95", "p99", "p999")
        },
        "cpu_avg_percent": median_of(rounds, "processes", measured, "cpu_avg_percent"),
        "memory_peak_mb": median_of(rounds, "processes", measured, "memory_peak_mb"),
        "cpu_of": measured,
        "proxy_cpu_us": median_of(rounds, "processes", "proxy", cost),
        "provider_cpu_us": median_of(rounds, "processes", "provider", cost),
        "latency_added_p50_ms": None,
        "latency_added_p99_ms": None,
        "syscalls_per_call": syscalls and syscalls["per_call"],
        "syscalls": syscalls,
        "version": version,
        "form": bench_proof.form_of(scenario, target),
        "proof": bench_proof.of_scenario(scenario, target, rounds, version),
        "rounds": rounds,
    }


def add_latencies(results):
    """What a proxy adds to the latency of its own provider called directly, where that was measured in
    the same run: medians of the same point, same concurrency."""
    measured = {tuple(scenario): result for scenario, result in results.items()}
    for scenario, result in results.items():
        direct = measured.get((result["baseline"], *scenario[1:]))
        if direct and direct is not result:
            for p in ("p50", "p99"):
                result[f"latency_added_{p}_ms"] = result[f"latency_{p}_ms"] - direct[f"latency_{p}_ms"]


# ---- all of them ----


def scenarios_of(options):
    lists = [getattr(options, key).split(",") for key in DEFAULTS]
    names = [name for name in lists[0] if name in TARGETS]
    unknown = [name for name in lists[0] if name not in TARGETS]
    if unknown and not options.addr:
        sys.exit(f"unknown framework {', '.join(unknown)}; there are {', '.join(TARGETS)}")
    if options.addr:
        names = lists[0][:1]
    else:
        if any(name.startswith("envoy") for name in names):
            bench_targets.install_envoy()
        for name in [name for name in names if not available(name)]:
            print(f"{name} is not here, left out{why_missing(name)}", file=sys.stderr)
            names.remove(name)
    grid = itertools.product(names, lists[1], lists[2], lists[3], map(int, lists[4]), lists[5])
    scenarios = [Scenario(*point) for point in grid if not wants_nothing(Scenario(*point))]
    return [each for each in scenarios if not options.bounded or each.bytes_in_flight <= SLICE_MAX_BYTES]


def available(name):
    if name in bench_peers.PEER_TARGETS:
        return bench_peers.available(name)
    return bench_targets.available(name)


def why_missing(name):
    why = bench_peers.missing(bench_peers.PEER_TARGETS[name].kind) if name in bench_peers.PEER_TARGETS else None
    return f": {why}" if why else ""


def wants_nothing(scenario):
    """Streams on what is set up for unary calls alone; codecs and bodies that the provider cannot take."""
    target = TARGETS.get(scenario.framework)
    if target is None:
        return False
    return (
        (scenario.mode == "streaming" and not target.streams)
        or (scenario.compression != "none" and not target.takes_gzip)
        or (not target.opaque_codecs and scenario.serialization != "protobuf")
        or (scenario.framework in bench_peers.PEER_TARGETS and scenario.bytes_in_flight > PEER_MAX_BYTES)
    )


def start_targets(options, names, provider, logs):
    if options.addr:
        return {names[0]: External(names[0], options.addr, options.pid)}
    return {name: TARGETS[name](name, provider, logs, options.proxy_core) for name in names}


class Clock:
    """How long the next runs may be, so that all of it fits the time given: what runs cost beside their
    measured seconds (start, drain, proof) is learnt as they go."""

    def __init__(self, options, scenarios):
        self.options = options
        self.left = len(scenarios) * options.rounds
        self.extra = options.warmup + 0.4
        proxied = sum(1 for scenario in scenarios if not scenario.framework.startswith("direct"))
        reserve = 2.0 * proxied if options.syscalls else 0
        self.end_at = time.monotonic() + max(0.6 * options.minutes * 60, options.minutes * 60 - reserve)

    def seconds(self):
        if self.options.duration:
            return self.options.duration
        return max(LEAST_SECONDS, (self.end_at - time.monotonic()) / max(1, self.left) - self.extra)

    def ran(self, whole_seconds, measured_seconds):
        self.left -= 1
        self.extra += 0.05 * (whole_seconds - measured_seconds - self.extra)

    def over(self):
        return not self.options.duration and time.monotonic() > self.end_at


def run_all(options):
    scenarios = scenarios_of(options)
    names = list(dict.fromkeys(scenario.framework for scenario in scenarios))
    data, logs = options.out / "data", options.out / "logs"
    data.mkdir(parents=True, exist_ok=True)
    logs.mkdir(parents=True, exist_ok=True)
    provider = None if options.addr else Provider(options.tools, options.load_core)
    targets, rounds, failed, results = {}, {scenario: [] for scenario in scenarios}, {}, {}
    started = time.monotonic()
    try:
        targets = start_targets(options, names, provider, logs)
        versions = {name: target.version() for name, target in targets.items()}
        clock = Clock(options, scenarios)
        print(f"{len(scenarios)} scenarios, {options.rounds} rounds of about {clock.seconds():.1f} s", file=sys.stderr)
        seconds = run_rounds(options, scenarios, targets, clock, rounds, failed, logs)
        for scenario in scenarios:
            if scenario not in failed:
                target = targets[scenario.framework]
                try:
                    syscalls = syscalls_of(options, scenario, target)
                except Exception as error:  # strace may be forbidden: everything else is measured
                    syscalls = None
                    print(f"{scenario.name}: no system calls counted: {str(error)[:200]}", file=sys.stderr)
                version = versions[scenario.framework]
                results[scenario] = summary(scenario, target, rounds[scenario], version, syscalls)
        add_latencies(results)
        for scenario, result in results.items():
            (data / f"{scenario.name}.json").write_text(json.dumps(result, indent=1))
    finally:
        for target in targets.values():
            target.stop()
        bench_peers.stop()
        if provider:
            provider.stop()
    write_environment(options, seconds, rounds, failed, time.monotonic() - started)
    bench_report.write(options.out)
    for scenario, why in failed.items():
        print(f"FAILED {scenario.name}: {why[:500]}", file=sys.stderr)
    print(f"{len(scenarios) - len(failed)} scenarios measured; {options.out / 'report.md'}")
    return 1 if failed else 0


def run_rounds(options, scenarios, targets, clock, rounds, failed, logs):
    """Every scenario once a round, until the rounds are done or the time is up; seconds of the runs."""
    lengths = []
    plan = [(turn, scenario) for turn in range(options.rounds) for scenario in interleaved(scenarios, turn)]
    for at, (turn, scenario) in enumerate(plan):
        if scenario in failed:
            clock.left -= 1
            continue
        if turn > 0 and clock.over():
            print(f"the time is up in round {turn + 1}: fewer rounds for the rest", file=sys.stderr)
            break
        begin, seconds = time.monotonic(), clock.seconds()
        try:
            rounds[scenario].append(run_once(options, scenario, targets[scenario.framework], seconds))
            lengths.append(seconds)
        except Exception as error:  # one scenario's failure must not lose the hour before it
            failed[scenario] = str(error)
            (logs / f"{scenario.name}.log").write_text(traceback.format_exc())
        clock.ran(time.monotonic() - begin, seconds)
        tell(at + 1, len(plan), scenario, rounds[scenario], failed.get(scenario))
    return statistics.median(lengths) if lengths else 0.0


def interleaved(scenarios, turn):
    """All frameworks of one point one after the other, and each round beginning with another."""
    points = {}
    for scenario in scenarios:
        points.setdefault(scenario[1:], []).append(scenario)
    for group in points.values():
        at = turn % len(group)
        yield from group[at:] + group[:at]


def tell(at, of, scenario, rounds, failure):
    text = f"[{at}/{of}] {scenario.name}: "
    if failure:
        text += "FAILED"
    else:
        processes = rounds[-1]["processes"]
        cost = ", ".join(f"{name} {cpu['cpu_us_per_call']:.2f} us" for name, cpu in processes.items())
        text += f"{rounds[-1]['qps']:.0f} calls/s, {cost}"
    print(text, file=sys.stderr, flush=True)


def write_environment(options, seconds, rounds, failed, whole_seconds):
    model = [
        line.partition(":")[2].strip()
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    facts = {
        "when": time.strftime("%Y-%m-%d %H:%M:%S %z"),
        "kernel": platform.release(),
        "cpu": model[0] if model else platform.machine(),
        "cores": os.cpu_count(),
        "load_average": os.getloadavg()[0],
        "command": " ".join(sys.argv),
        "grid": "full" if options.full else "slice",
        "minutes": round(whole_seconds / 60, 1),
        "rounds": min((len(each) for scenario, each in rounds.items() if scenario not in failed), default=0),
        "seconds_per_run": round(seconds, 2),
        "failed": {scenario.name: why[:1000] for scenario, why in failed.items()},
    }
    (options.out / "environment.json").write_text(json.dumps(facts, indent=1))


# ---- command line ----


def parse(argv):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", nargs="?", default="run_all", choices=["run_all", "run_single", "report"])
    for key in DEFAULTS:
        parser.add_argument(f"--{key}", help=f"by commas; default {DEFAULTS[key]}")
    parser.add_argument("--full", action="store_true", help="the full grid: hours")
    parser.add_argument("--minutes", type=float, default=30, help="time for all of it (30)")
    parser.add_argument("--duration", type=float, help="seconds per run, instead of --minutes")
    parser.add_argument("--warmup", type=float, default=0.5)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--connections", type=int, default=10, help="at most; concurrency is spread over them")
    parser.add_argument("--random", action="store_true", help="payloads that do not compress")
    parser.add_argument("--no-syscalls", dest="syscalls", action="store_false", help="don't count system calls by strace")
    parser.add_argument("--addr", help="measure what runs at HOST:PORT")
    parser.add_argument("--pid", type=int, help="its process")
    parser.add_argument("--config", help="INI file with a [bench] section")
    add_machine(parser)
    parser.add_argument("--out", type=pathlib.Path, default=HERE.parents[1] / "build" / "bench-results")
    known = {action.dest: action for action in parser._actions}
    first = parser.parse_args(argv)
    if first.config:
        ini = configparser.ConfigParser()
        with open(first.config, encoding="utf-8") as file:
            ini.read_file(file)
        for key, value in ini["bench"].items():
            action = known.get(key.replace("-", "_"))
            if not action:
                sys.exit(f"{first.config}: [bench] {key}: unknown")
            switch = action.nargs == 0
            parser.set_defaults(**{action.dest: ini["bench"].getboolean(key) if switch else
                                   action.type(value) if action.type else value})
    options = parser.parse_args(argv)
    options.bounded = not options.full and options.payload is None and options.concurrency is None
    for key, value in (FULL if options.full else DEFAULTS).items():
        if getattr(options, key) is None:
            setattr(options, key, value)
    options.serialization = ",".join("protobuf" if each == "proto" else each for each in options.serialization.split(","))
    options.syscalls = options.syscalls and can_count_syscalls()
    use_cores(options)
    return options


def main(argv=None):
    # TERM must end what was started, too: as an exception it passes the finally clauses
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    options = parse(argv)
    if options.command == "report":
        bench_report.write(options.out)
        return 0
    if options.command == "run_single":
        lists = [key for key in DEFAULTS if "," in getattr(options, key)]
        if lists:
            sys.exit(f"run_single takes one value each; several in {', '.join(lists)}")
    options.loadgen, options.tools = find_build(options.build)
    options.primed = set()
    return run_all(options)


if __name__ == "__main__":
    sys.exit(main())
