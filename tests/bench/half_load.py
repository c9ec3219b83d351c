#!/usr/bin/python3
"""Latency that a proxy adds at half load: an open loop at half of the rate that saturates.

For each payload every target is saturated first (closed loop); the rate is half of what the slowest of the
compared targets does, the same for all of them and for the stub provider called directly. Then interleaved
rounds of an open loop, in which a call's latency counts from when it was due: medians, and what each
adds to direct. The exit code is 1 when the first target adds more than the second at the median.

    TRIBUTARY_BIN=build/release/tributary tests/bench/half_load.py --build build/release

A saturated machine works in batches, which half of its rate no longer gives: where load and stub provider
cannot keep that rate up one call at a time, it is lowered by steps for all, and the table says to what.
1x1 (one call at a time) would mostly measure how a virtual machine wakes up.
"""

import argparse
import json
import pathlib
import signal
import statistics
import sys
import tempfile

from bench_load import add_machine, find_build, load, parse_size, prime, use_cores
from bench_proof import settled
from bench_targets import TARGETS, Provider, available

KEPT = 0.98  # of the rate: less, and what is measured is a backlog
STEP = 0.75
MAX_OPEN = 800  # calls under way; later ones wait in the generator, and that counts
LATENCIES = ("p50", "p90", "p99", "p999", "mean")


def run(options, target, size, *args):
    before = target.counts()
    seen = settled(target.provider.counts)
    shape = ["--size", size, "--connections", options.connections, "--warmup", options.duration / 4]
    report = load(options.loadgen, options.load_core, target, [*shape, "--duration", options.duration, *args])
    now = target.provider.counts()
    forms = {form: now[form] - seen[form] for form in ("framed", "bare_h2", "bare_h1")}
    wrong = before is not None and target.wrong(before, report["calls"])
    if wrong or forms[target.form] < 0.99 * sum(forms.values()):
        raise RuntimeError(f"{target.name}: {wrong or forms}")
    return report


def rate_that_all_keep(options, targets, size, rate):
    for _ in range(8):
        late = [name for name, target in targets.items()
                if open_loop(options, target, size, rate)["qps"] < KEPT * rate]
        if not late:
            return rate
        print(f"{size} B: {', '.join(late)} cannot keep {rate:.0f} calls/s up", file=sys.stderr)
        rate *= STEP
    raise RuntimeError(f"{size} B: no rate down to {rate:.0f} calls/s is kept; is the machine busy?")


def open_loop(options, target, size, rate):
    return run(options, target, size, "--rate", f"{rate:.1f}", "--max-open", MAX_OPEN)


def measure(options, targets, size):
    """{name: {"saturation", "rate", latencies in ms, "proxy_cpu_us"}}"""
    top = {}
    for name, target in targets.items():
        top[name] = run(options, target, size, "--in-flight", options.in_flight)["qps"]
        print(f"{size} B, {name}: saturated at {top[name]:.0f} calls/s", file=sys.stderr)
    rate = rate_that_all_keep(options, targets, size, min(qps for name, qps in top.items() if name != "direct") / 2)
    rounds = {name: [] for name in targets}
    names = list(targets)
    for turn in range(options.rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            report = open_loop(options, targets[name], size, rate)
            rounds[name].append(report)
            print(f"round {turn + 1}/{options.rounds} {size} B, {name}: p50 {report['latency_p50_ms']:.3f} ms", file=sys.stderr)
    return {
        name: {
            "saturation": top[name],
            "rate": rate,
            **{key: statistics.median(report[f"latency_{key}_ms"] for report in reports) for key in LATENCIES},
            "proxy_cpu_us": statistics.median(
                report["processes"].get("proxy", {}).get("cpu_us_per_call", 0) for report in reports
            ),
            "rounds": reports,
        }
        for name, reports in rounds.items()
    }


def print_table(size, rows):
    direct = rows["direct"]
    print(f"\n### {size} B, {direct['rate']:.0f} calls/s\n")
    print("| target | saturates at | p50, ms | p90 | p99 | p99.9 | added p50 | added mean | added p99 | proxy CPU, µs per call |")
    print("|---" * 10 + "|")
    for name, row in rows.items():
        late = " | ".join(f"{row[key]:.3f}" for key in ("p50", "p90", "p99", "p999"))
        added = [f"{row[key] - direct[key]:+.3f}" if name != "direct" else "–" for key in ("p50", "mean", "p99")]
        cpu = f"{row['proxy_cpu_us']:.2f}" if row["proxy_cpu_us"] else "–"
        print(f"| {name} | {row['saturation']:.0f} | {late} | {' | '.join(added)} | {cpu} |")


def verdict(size, rows, first, second):
    """Whether the first adds no more than the second; says so."""
    added = {name: rows[name]["p50"] - rows["direct"]["p50"] for name in (first, second)}
    good = added[first] <= added[second]
    print(f"\n{size} B: {first} adds {added[first]:+.3f} ms at the median, {second} {added[second]:+.3f} ms: "
          f"{'not more' if good else '**MORE**'}")
    return good


def main(argv=None):
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", default="tributary,nghttpx", help="by commas; the first two are compared")
    parser.add_argument("--payload", default="128,1K,16K")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--duration", type=float, default=3, help="seconds of a run, a quarter more to warm up")
    parser.add_argument("--connections", type=int, default=10)
    parser.add_argument("--in-flight", type=int, default=10, help="on each, to saturate")
    add_machine(parser)
    parser.add_argument("--json", help="file for every single report")
    options = parser.parse_args(argv)
    options.loadgen, options.tools = find_build(options.build)
    use_cores(options)
    names = ["direct", *options.targets.split(",")]
    if len(names) < 3 or not all(name in TARGETS and available(name) for name in names):
        sys.exit(f"two or more of these are needed: {', '.join(name for name in TARGETS if available(name))}")
    good, kept = True, {}
    with tempfile.TemporaryDirectory() as folder:
        provider = Provider(options.tools, options.load_core)
        targets = {}
        try:
            for name in names:
                targets[name] = TARGETS[name](name, provider, folder, options.proxy_core)
                prime(options.loadgen, options.load_core, targets[name])
            for size in map(parse_size, options.payload.split(",")):
                rows = kept[size] = measure(options, targets, size)
                print_table(size, rows)
                good &= verdict(size, rows, *names[1:3])
        finally:
            for target in targets.values():
                target.stop()
            provider.stop()
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(kept, indent=1))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
