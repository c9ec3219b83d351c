#!/usr/bin/python3
"""The benchmark suite: scenarios over frameworks, payloads, codecs, compression and concurrency.

    bench.py [run_all]  [--config FILE] [--minutes 30] [--out DIR]      every scenario, rounds interleaved
    bench.py run_single --framework tributary --payload 1K --concurrency 50
    bench.py report     --out DIR                                       the report again, from DIR/data

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

import bench_report
import bench_targets
from bench_load import HERE, find_build, load, parse_size, prime
from bench_targets import TARGETS, Provider

DEFAULTS = {
    "framework": "direct,direct-triple,tributary,tributary-unary,tributary-relay,tributary-framed,"
    "tributary-http1,nghttpx,haproxy,nginx",
    "payload": "128,1K,16K,1M",
    "serialization": "proto",
    "compression": "none",
    "concurrency": "50,500",
    "mode": "unary",
}
FULL = {
    **DEFAULTS,
    "serialization": "proto,json,hessian2,msgpack",
    "compression": "none,default,fastest",
    "concurrency": "50,100,200,500,1000,2000",
    "mode": "unary,streaming",
}
STREAM_MESSAGES = 20
GZIP_LEVELS = {"fastest": 1, "default": 6}
TAKES_ENOUGH = 0.99  # share of the calls that must have had the form that is claimed


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

    def load_args(self, options):
        connections = min(options.connections, self.concurrency)
        args = ["--size", parse_size(self.payload), "--connections", connections]
        args += ["--in-flight", max(1, self.concurrency // connections)]
        if self.serialization != "proto":
            args += ["--codec", self.serialization]
        if self.compression != "none":
            args += ["--gzip", "--gzip-level", GZIP_LEVELS[self.compression]]
        if options.random:
            args.append("--random")
        if self.mode == "streaming":
            args += ["--type", "bidi", "--method", f"/{bench_targets.SERVICE}/Chat", "--lockstep"]
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


# ---- proof of what ran ----


def check_form(scenario, target, before, after, calls):
    """Raises when the provider saw something else than the scenario's name says."""
    ran = {key: after[key] - before[key] for key in after}
    whole = ran["framed"] + ran["bare_h2"] + ran["bare_h1"]
    form = "framed" if scenario.mode == "streaming" else target.form
    if ran[form] < TAKES_ENOUGH * whole or whole < calls:
        raise RuntimeError(f"{calls} calls should have reached the provider as {form}, it saw {ran}")
    if scenario.compression == "none" and (ran["gzip_in"] or ran["gzip_out"]):
        raise RuntimeError(f"nothing should have been compressed, the provider saw {ran}")
    return ran


def check_path(scenario, target, before, calls):
    if before is None or scenario.mode == "streaming":
        return None
    wrong = target.wrong(before, calls)
    if wrong:
        raise RuntimeError(wrong)
    now = target.counts()
    return {path: now[path] - before[path] for path in now}


# ---- one run ----


def run_once(options, scenario, target, seconds):
    """One round of a scenario; the load generator's report with the proof of what ran."""
    if not options.addr and scenario not in options.primed:
        options.primed.add(scenario)
        codec = [] if scenario.serialization == "proto" else ["--codec", scenario.serialization]
        prime(options.loadgen, options.load_core, target, codec)
    provider_before = target.provider.counts() if target.provider else None
    path_before = target.counts()
    warmup = min(options.warmup, seconds / 2)
    report = load(
        options.loadgen,
        options.load_core,
        target,
        [*scenario.load_args(options), "--warmup", warmup, "--duration", seconds],
    )
    report["ran"] = {}
    if provider_before:
        counts = target.provider.counts()
        report["ran"]["provider"] = check_form(scenario, target, provider_before, counts, report["calls"])
    report["ran"]["path"] = check_path(scenario, target, path_before, report["calls"])
    return report


def median_of(rounds, *keys):
    def at(report):
        for key in keys:
            report = report.get(key, {}) if isinstance(report, dict) else 0
        return report or 0

    return statistics.median(at(report) for report in rounds)


def summary(scenario, target, rounds, version):
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
        "timestamp": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "qps": median_of(rounds, rate),
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
        "version": version,
        "form": "framed" if scenario.mode == "streaming" else target.form,
        "rounds": rounds,
    }


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
        for name in [name for name in names if not bench_targets.available(name)]:
            print(f"{name} is not here, left out", file=sys.stderr)
            names.remove(name)
    grid = itertools.product(names, lists[1], lists[2], lists[3], map(int, lists[4]), lists[5])
    return [Scenario(*point) for point in grid if not wants_nothing(Scenario(*point))]


def wants_nothing(scenario):
    """Streams on what is set up for unary calls alone."""
    target = TARGETS.get(scenario.framework)
    return scenario.mode == "streaming" and target is not None and not target.streams


def start_targets(options, names, provider, logs):
    if options.addr:
        return {names[0]: External(names[0], options.addr, options.pid)}
    return {name: TARGETS[name](name, provider, logs, options.proxy_core) for name in names}


def seconds_per_run(options, runs):
    if options.duration:
        return options.duration
    return max(1.0, options.minutes * 60 / max(1, runs) - options.warmup - 0.2)


def run_all(options):
    scenarios = scenarios_of(options)
    names = list(dict.fromkeys(scenario.framework for scenario in scenarios))
    data, logs = options.out / "data", options.out / "logs"
    data.mkdir(parents=True, exist_ok=True)
    logs.mkdir(parents=True, exist_ok=True)
    seconds = seconds_per_run(options, len(scenarios) * options.rounds)
    print(f"{len(scenarios)} scenarios, {options.rounds} rounds of {seconds:.1f} s", file=sys.stderr)
    provider = None if options.addr else Provider(options.tools, options.load_core)
    targets, rounds, failed = {}, {scenario: [] for scenario in scenarios}, {}
    try:
        targets = start_targets(options, names, provider, logs)
        versions = {name: target.version() for name, target in targets.items()}
        plan = [(turn, scenario) for turn in range(options.rounds) for scenario in interleaved(scenarios, turn)]
        for at, (turn, scenario) in enumerate(plan):
            if scenario in failed:
                continue
            try:
                rounds[scenario].append(run_once(options, scenario, targets[scenario.framework], seconds))
            except Exception as error:  # one scenario's failure must not lose the hour before it
                failed[scenario] = str(error)
                (logs / f"{scenario.name}.log").write_text(traceback.format_exc())
            tell(at + 1, len(plan), scenario, rounds[scenario], failed.get(scenario))
        for scenario in scenarios:
            if scenario not in failed:
                target = targets[scenario.framework]
                result = summary(scenario, target, rounds[scenario], versions[scenario.framework])
                (data / f"{scenario.name}.json").write_text(json.dumps(result, indent=1))
    finally:
        for target in targets.values():
            target.stop()
        if provider:
            provider.stop()
    write_environment(options, seconds, failed)
    bench_report.write(options.out)
    for scenario, why in failed.items():
        print(f"FAILED {scenario.name}: {why[:500]}", file=sys.stderr)
    print(f"{len(scenarios) - len(failed)} scenarios measured; {options.out / 'report.md'}")
    return 1 if failed else 0


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


def write_environment(options, seconds, failed):
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
        "rounds": options.rounds,
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
    parser.add_argument("--addr", help="measure what runs at HOST:PORT")
    parser.add_argument("--pid", type=int, help="its process")
    parser.add_argument("--config", help="INI file with a [bench] section")
    parser.add_argument("--build", help="build folder; default $TRIBUTARY_BUILD, else the tools are built")
    parser.add_argument("--out", type=pathlib.Path, default=HERE.parents[1] / "build" / "bench-results")
    parser.add_argument("--proxy-core", type=int, default=0)
    parser.add_argument("--load-core", type=int, default=1)
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
    for key, value in (FULL if options.full else DEFAULTS).items():
        if getattr(options, key) is None:
            setattr(options, key, value)
    if (os.cpu_count() or 1) < 2:
        options.proxy_core = options.load_core = None
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
