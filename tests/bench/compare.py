#!/usr/bin/python3
"""Proxies side by side: CPU of the proxy per call, in one run, as ratios.

Starts the stub provider and each target, pins proxies to one core and load with provider to
another, runs every case against every target in interleaved rounds, and prints medians. Options
add system calls per call (strace) and instructions per call (callgrind). Every reply is checked by
the load generator; calls must have reached the provider in the form that the target's name says, and
a tributary target must have taken that path by its own /stats: else that is said, and the exit code is 1.

    TRIBUTARY_BIN=build/release/tributary tests/bench/compare.py --build build/release
    tests/bench/compare.py --targets tributary,nghttpx --cases 128:10x10 --rounds 10 --callgrind
"""

import argparse
import json
import os
import pathlib
import re
import signal
import statistics
import sys
import tempfile
import time

import bench_targets
from bench_load import add_machine, count_syscalls, find_build, load, parse_size, prime, use_cores
from bench_proof import settled
from bench_targets import TARGETS, Provider

CASES = "128:10x10,128:100x1,1K:10x10,16K:10x10,1M:10x10"
BASE = "nghttpx"


class Case:
    def __init__(self, text):
        self.name = text
        size, _, shape = text.partition(":")
        connections, _, in_flight = shape.partition("x")
        self.size, self.connections, self.in_flight = parse_size(size), int(connections), int(in_flight)

    @property
    def calls(self):
        """Calls of a round: some tenths of a second to a few seconds. Counts, not seconds, so that a
        busy machine makes a round longer, not smaller."""
        return 30000 if self.size <= 4096 else 10000 if self.size <= 65536 else 400

    def args(self):
        return [
            "--size",
            str(self.size),
            "--connections",
            str(self.connections),
            "--in-flight",
            str(self.in_flight),
        ]


def run(options, target, args):
    return load(options.loadgen, options.load_core, target, args)


def measured(options, target, case):
    seen = settled(target.provider.counts)
    before = target.counts()
    if options.duration:
        timing = ["--warmup", options.warmup, "--duration", options.duration]
    else:
        timing = ["--warmup-count", max(case.calls // 10, 200), "--count", case.calls]
    report = run(options, target, [*case.args(), *timing, *options.load_args])
    if before is not None:
        wrong = target.wrong(before, report["calls"])
        if wrong:
            options.wrong.append(f"{target.name} {case.name}: {wrong}")
    now = target.provider.counts()
    forms = {form: now[form] - seen[form] for form in ("framed", "bare_h2", "bare_h1")}
    if forms[target.form] < 0.99 * sum(forms.values()):
        options.wrong.append(f"{target.name} {case.name}: not {target.form}, the provider saw {forms}")
    report["case"] = case.name
    report["target"] = target.name
    return report


def proxy_cost(report):
    return report["processes"].get("proxy", {}).get("cpu_us_per_call", 0.0)


# ---- system calls and instructions ----


def count_instructions(options, name, provider, folder, case):
    """Instructions per call: the difference of two runs under callgrind, so that start, connecting
    and stopping fall out."""
    counts = (100, 300) if case.size >= 1 << 18 else (1000, 6000)
    collected = []
    for calls in counts:
        prefix = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
        target = TARGETS[name](name, provider, folder, options.proxy_core, prefix)
        try:
            run(options, target, [*case.args(), "--warmup-count", "100", "--count", calls])
        finally:
            text = target.stop()
        collected.append(bench_targets.collected(text))
    return (collected[1] - collected[0]) / (counts[1] - counts[0])


# ---- report ----


def median(reports, key):
    return statistics.median(key(report) for report in reports)


def print_case(case, names, reports, base):
    print(f"\n### {case.name}\n")
    print("| target | proxy µs/call | least | spread | × " + base + " | provider µs/call | calls/s "
          "| p50 ms | p99 ms | proxy cores |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    base_cost = median(reports[base], proxy_cost) if base in reports else 0
    for name in names:
        runs = reports[name]
        costs = [proxy_cost(run) for run in runs]
        cost = statistics.median(costs)
        ratio = f"{cost / base_cost:.2f}" if base_cost and cost else "–"
        spread = f"{100 * (max(costs) - min(costs)) / cost:.0f} %" if cost else "–"
        provider = median(runs, lambda r: r["processes"]["provider"]["cpu_us_per_call"])
        busy = median(runs, lambda r: r["processes"].get("proxy", {}).get("cpu_avg_percent", 0)) / 100
        print(
            f"| {name} | {cost:.2f} | {min(costs):.2f} | {spread} | {ratio} | {provider:.2f} "
            f"| {median(runs, lambda r: r['qps']):.0f} | {median(runs, lambda r: r['latency_p50_ms']):.3f} "
            f"| {median(runs, lambda r: r['latency_p99_ms']):.3f} | {busy:.2f} |"
        )


def run_rounds(options, cases, names, targets):
    reports = {case.name: {name: [] for name in names} for case in cases}
    for round_number in range(options.rounds):
        # each round begins with another target: what is first after a pause must not always be the same
        order = names[round_number % len(names) :] + names[: round_number % len(names)]
        for case in cases:
            for name in order:
                report = measured(options, targets[name], case)
                report["round"] = round_number
                reports[case.name][name].append(report)
                print(
                    f"round {round_number + 1}/{options.rounds} {case.name} {name}: "
                    f"{proxy_cost(report):.2f} µs/call, {report['qps']:.0f} calls/s",
                    file=sys.stderr,
                )
    return reports


def print_memory(targets):
    print("\n### Memory of the proxies after all of it\n\n| target | RSS MB | peak of the last run |\n|---|---|---|")
    for name, target in targets.items():
        if target.pid:
            text = pathlib.Path(f"/proc/{target.pid}/status").read_text()
            rss, peak = (int(re.search(rf"{key}:\s+(\d+)", text)[1]) / 1024 for key in ("VmRSS", "VmHWM"))
            print(f"| {name} | {rss:.1f} | {peak:.1f} |")


def print_syscalls(options, cases, names, targets):
    print("\n### System calls per call (strace -c)\n\n| case | target | per call | most of them |\n|---|---|---|---|")
    for case in cases:
        for name in names:
            if not targets[name].pid:
                continue
            calls = 1000 if case.size >= 1 << 18 else 10000
            total, kinds = count_syscalls(options.loadgen, options.load_core, targets[name], case.args(), calls)
            most = sorted(kinds.items(), key=lambda item: -item[1])[:4]
            text = ", ".join(f"{kind} {count:.3f}" for kind, count in most)
            print(f"| {case.name} | {name} | {total:.3f} | {text} |")


def print_instructions(options, cases, names, provider, folder):
    print("\n### Instructions per call (callgrind)\n\n| case | target | per call |\n|---|---|---|")
    for case in cases:
        for name in names:
            if name != "direct":
                per_call = count_instructions(options, name, provider, folder, case)
                print(f"| {case.name} | {name} | {per_call:.0f} |", flush=True)


def choose_targets(wanted):
    names = []
    if "envoy" in wanted:
        bench_targets.install_envoy()
    for name in wanted.split(","):
        if name not in TARGETS:
            sys.exit(f"unknown target {name}; there are {', '.join(TARGETS)}")
        if bench_targets.available(name):
            names.append(name)
        else:
            print(f"target {name} is not here, left out", file=sys.stderr)
    return names


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--targets", default="direct,tributary,nghttpx")
    parser.add_argument("--cases", default=CASES, help="SIZE:CONNECTIONSxIN_FLIGHT, by commas")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--duration", type=float, help="seconds of a round, instead of a number of calls")
    parser.add_argument("--warmup", type=float, default=0.5)
    parser.add_argument("--base", default=BASE, help="what ratios are against")
    add_machine(parser)
    parser.add_argument("--strace", action="store_true", help="also system calls per call")
    parser.add_argument("--callgrind", action="store_true", help="also instructions per call")
    parser.add_argument("--provider-args", default="", help="for echo-provider")
    parser.add_argument("--load-args", default="", help="for loadgen")
    parser.add_argument("--json", help="file for every single report")
    options = parser.parse_args(argv)
    options.loadgen, options.tools = find_build(options.build)
    options.load_args = options.load_args.split()
    options.wrong = []
    use_cores(options)
    return options


def main(argv=None):
    # TERM must end what was started, too: as an exception it passes the finally clauses
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    options = parse(argv)
    names = choose_targets(options.targets)
    cases = [Case(text) for text in options.cases.split(",")]
    with tempfile.TemporaryDirectory() as folder:
        provider = Provider(options.tools, options.load_core, *options.provider_args.split())
        targets = {}
        try:
            for name in names:
                targets[name] = TARGETS[name](name, provider, folder, options.proxy_core)
                prime(options.loadgen, options.load_core, targets[name], options.load_args)
            started = time.strftime("%Y-%m-%d %H:%M:%S")
            reports = run_rounds(options, cases, names, targets) if options.rounds else {}
            each = f"{options.duration} s" if options.duration else "a fixed number of calls"
            print(f"{started}, {options.rounds} rounds of {each}, {os.cpu_count()} cores, "
                  f"load average {os.getloadavg()[0]:.1f}")
            for case in cases if options.rounds else []:
                print_case(case, names, reports[case.name], options.base)
            print_memory(targets)
            if options.strace:
                print_syscalls(options, cases, names, targets)
            if options.callgrind:
                print_instructions(options, cases, names, provider, folder)
            for wrong in options.wrong:
                print(f"\n**NOT WHAT THE NAME SAYS** {wrong}")
            if options.json:
                pathlib.Path(options.json).write_text(json.dumps(reports, indent=1))
        finally:
            for target in targets.values():
                target.stop()
            provider.stop()
    return 1 if options.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
