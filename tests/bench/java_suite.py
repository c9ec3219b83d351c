#!/usr/bin/python3
"""The four calls of the field's Java benchmark (createUser, existUser, getUser, listUser) on a real
dubbo-java provider with protobuf IDL, directly and through tributary.

Each round makes the four calls one after the other, one second each (1:1:1:1 in time, as that suite does),
against each target in turn; medians over the rounds. Every reply's bytes are checked: the load generator is
given each request's and reply's message, which are built here after tests/interop/proto/user.proto.
Proof: the replies themselves, which only that provider makes, and the path counts in /stats.

    TRIBUTARY_BUILD=build/release TRIBUTARY_BIN=build/release/tributary tests/bench/java_suite.py

Prints a Markdown table; --json keeps every report. The provider's JVM is warmed first (--warm seconds).
"""

import argparse
import json
import os
import pathlib
import signal
import statistics
import sys
import tempfile

import bench_peers
from bench_load import add_machine, find_build, load, use_cores
from bench_targets import Provider

SERVICE = "tributary.interop.Users"
CALLS = ("createUser", "existUser", "getUser", "listUser")
PAGE_USERS = 15
DAY_MS = 86_400_000
EPOCH_MS = 1_700_000_000_000


# ---- messages ----


def varint(value):
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def encoded(*fields):
    """(number, value) pairs as protobuf: int, str, bytes (a message), list of int (packed). Zeros stay out."""
    out = b""
    for number, value in fields:
        if isinstance(value, int):
            out += varint(number << 3) + varint(value) if value else b""
            continue
        if isinstance(value, list):
            value = b"".join(map(varint, value))
        elif isinstance(value, str):
            value = value.encode()
        out += varint(number << 3 | 2) + varint(len(value)) + value
    return out


def user(number):
    """As UsersService makes it."""
    return encoded(
        (1, number),
        (2, f"User {number}"),
        (3, 1),
        (4, EPOCH_MS - number * DAY_MS),
        (5, f"user{number}@example.org"),
        (6, f"+49 30 {5_000_000 + number}"),
        (7, f"Harbour Street {number}, 20457 Hamburg"),
        (8, f"https://example.org/icons/{number}.png"),
        (9, [100 * each for each in range(1, 11)]),
        (10, 1),
        (11, EPOCH_MS + number),
        (12, EPOCH_MS + number + DAY_MS),
    )


def messages():
    """{call: (request, reply)}"""
    page = [(3, user(7 * PAGE_USERS + each)) for each in range(PAGE_USERS)]
    yes = encoded((1, 1))
    return {
        "createUser": (user(4711), yes),
        "existUser": (encoded((1, "user42@example.org")), yes),
        "getUser": (encoded((1, 42)), user(42)),
        "listUser": (encoded((1, 7)), encoded((1, 7), (2, 1000), *page)),
    }


# ---- runs ----


class Suite:
    def __init__(self, options, folder):
        self.options, self.args = options, {}
        for call, (request, reply) in messages().items():
            files = [pathlib.Path(folder) / f"{call}.{what}" for what in ("request", "reply")]
            for file, message in zip(files, (request, reply)):
                file.write_bytes(message)
            self.args[call] = ["--method", f"/{SERVICE}/{call}", "--body", files[0], "--expect", files[1]]

    def run(self, target, call, seconds, warmup):
        options = self.options
        shape = ["--connections", options.connections, "--in-flight", max(1, options.concurrency // options.connections)]
        timing = ["--duration", seconds, "--warmup", warmup, "--least", options.concurrency]
        return load(options.loadgen, options.load_core, target, [*self.args[call], *shape, *timing])

    def measured(self, target, call):
        before = target.counts()
        report = self.run(target, call, self.options.duration, self.options.duration / 4)
        wrong = before is not None and target.wrong(before, report["calls"])
        if wrong:
            raise RuntimeError(f"{target.name} {call}: {wrong}")
        return report


class Users:
    """Mixed into the targets: no options of the echo."""

    load_args = []


class Direct(Users, bench_peers.DubboJava):
    pass


class Tributary(Users, bench_peers.TributaryDubboJava):
    pass


TARGETS = {"dubbo-java": Direct, "tributary-dubbo-java": Tributary}


def middle(reports, key):
    return statistics.median(key(report) for report in reports)


def print_table(reports):
    print("\n| call | target | calls/s | provider CPU, µs | proxy CPU, µs | p50, ms | p90 | p95 | p99 | p99.9 |")
    print("|---" * 10 + "|")
    for call in CALLS:
        for name in TARGETS:
            runs = reports[call][name]
            cpu = [middle(runs, lambda r, w=who: r["processes"].get(w, {}).get("cpu_us_per_call", 0))
                   for who in ("provider", "proxy")]
            late = [middle(runs, lambda r, k=p: r[f"latency_{k}_ms"]) for p in ("p50", "p90", "p95", "p99", "p999")]
            cells = [f"{middle(runs, lambda r: r['qps']):.0f}", f"{cpu[0]:.1f}", f"{cpu[1]:.1f}" if cpu[1] else "–"]
            print(f"| {call} | {name} | " + " | ".join(cells + [f"{each:.3f}" for each in late]) + " |")


def run_all(options):
    reason = bench_peers.missing("dubbo-java")
    if reason or not os.environ.get("TRIBUTARY_BIN"):
        sys.exit(f"cannot run: {reason or 'TRIBUTARY_BIN does not name the proxy'}")
    reports = {call: {name: [] for name in TARGETS} for call in CALLS}
    with tempfile.TemporaryDirectory() as folder:
        suite = Suite(options, folder)
        stub = Provider(options.tools, options.load_core)
        targets = {}
        try:
            for name, kind in TARGETS.items():
                targets[name] = kind(name, stub, folder, options.proxy_core)
            for target in targets.values():
                for call in CALLS:
                    suite.run(target, call, 0.1, options.warm / len(CALLS) / len(targets))
            for turn in range(options.rounds):
                for call in CALLS:
                    for name in list(targets)[:: -1 if turn % 2 else 1]:
                        reports[call][name].append(suite.measured(targets[name], call))
                        print(f"round {turn + 1}/{options.rounds} {call} {name}: "
                              f"{reports[call][name][-1]['qps']:.0f} calls/s", file=sys.stderr)
            versions = targets["tributary-dubbo-java"].version(), targets["dubbo-java"].version()
            print(f"{' before '.join(versions)}; {options.rounds} interleaved rounds of {options.duration} s, "
                  f"{options.concurrency} in flight, medians; one core for the proxy, one for provider and load")
            print_table(reports)
        finally:
            for target in targets.values():
                target.stop()
            bench_peers.stop()
            stub.stop()
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(reports, indent=1))
    return 0


def main(argv=None):
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--duration", type=float, default=1.0, help="seconds of a call in a round")
    parser.add_argument("--warm", type=float, default=24, help="seconds of load before, for the JVM's compiler")
    parser.add_argument("--concurrency", type=int, default=50)
    parser.add_argument("--connections", type=int, default=10)
    add_machine(parser)
    parser.add_argument("--json", help="file for every single report")
    options = parser.parse_args(argv)
    options.loadgen, options.tools = find_build(options.build)
    use_cores(options)
    return run_all(options)


if __name__ == "__main__":
    sys.exit(main())
