#!/usr/bin/python3
"""Does a call cost the same when there is more of everything? A Markdown table of what a call costs with two
workers, beside 10 000 idle connections, with 1000 routes and with 100 endpoints, each against the same
proxy with one of each; what an idle used connection takes; and whether memory comes back after a burst.

    TRIBUTARY_BIN=build/release/tributary tests/bench/scale.py --build build/release

Instructions per call: the difference of two runs under callgrind, so that starting, connecting and stopping fall
out; 2000 idle connections there, as callgrind is slow. CPU per call: the process's clock over a fixed number of
calls, plain and scaled proxy in turn, medians, and their ratio. Both proxies have one core, load and
providers the other: two workers share theirs, so that the ratio shows what they cost each other, not what they
gain. A hundred endpoints mean a hundred connections, so that writes cannot be merged: system calls tell.

The exit code is 1 when memory does not come back to within 2 MB in 5 s.
"""

import argparse
import os
import pathlib
import resource
import signal
import socket
import statistics
import struct
import sys
import tempfile
import time

import bench_targets
from bench_load import add_machine, can_count_syscalls, count_syscalls, find_build, load, prime, use_cores
from bench_targets import Provider, Tributary, free_port

SHAPE = ["--size", "128", "--connections", "10", "--in-flight", "10"]
BURST = ["--size", "65536", "--connections", "10", "--in-flight", "20", "--warmup-count", "1", "--count", "2000"]
BURST_WAIT_S = 5
BURST_LIMIT_KB = 2048
CALLGRIND = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
CALLGRIND_CALLS = (1000, 5000)
HEADERS, SETTINGS, DATA, END_STREAM, END_HEADERS = 1, 4, 0, 1, 4


def rss_kb(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise RuntimeError(f"{pid} is gone")


# ---- connections that have made one call and stay ----


def frame(kind, flags, stream, body=b""):
    return struct.pack(">I", len(body))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + body


def literal(name, value):
    """A field without indexing; lengths below 127."""
    return b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


def first_call():
    """Preface, SETTINGS and one whole unary call."""
    fields = {":method": "POST", ":scheme": "http", ":path": f"/{bench_targets.SERVICE}/Say", ":authority": "idle",
              "content-type": "application/grpc", "te": "trailers"}
    block = b"".join(literal(*field) for field in fields.items())
    return (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0) + frame(HEADERS, END_HEADERS, 1, block)
            + frame(DATA, END_STREAM, 1, b"\0\0\0\0\4idle"))


class Idle:
    def __init__(self, port, count):
        request = first_call()
        self.sockets = []
        for _ in range(count):
            connection = socket.create_connection(("127.0.0.1", port), timeout=60)
            self.sockets.append(connection)
            connection.sendall(request)
            self.read_reply(connection)
            connection.sendall(frame(SETTINGS, 1, 0))

    @staticmethod
    def read_reply(connection):
        """Until the stream's end, which must be trailers with status 0: the rest of a fine call."""
        got, message = b"", b""
        while True:
            more = connection.recv(65536)
            if not more:
                raise RuntimeError("the proxy closed an idle connection at its first call")
            got += more
            while len(got) >= 9 and len(got) >= 9 + int.from_bytes(got[:3], "big"):
                length, kind, flags = int.from_bytes(got[:3], "big"), got[3], got[4]
                body, got = got[9 : 9 + length], got[9 + length :]
                message += body if kind == DATA else b""
                if kind in (HEADERS, DATA) and flags & END_STREAM:
                    if message != b"\0\0\0\0\4idle":
                        raise RuntimeError(f"an idle connection's call was answered {message!r}")
                    return

    def close(self):
        for connection in self.sockets:
            connection.close()


# ---- the proxy, scaled ----


class Plain(Tributary):
    """call = unary, wire = bare: nothing depends on the turn in which bytes arrive."""

    workers, routes = 1, 1
    ports = None  # of endpoints; None: the provider alone

    def command(self):
        self.admin = getattr(self, "admin", None) or free_port()
        endpoints = "".join(f"endpoints = 127.0.0.1:{port}\n" for port in self.ports or [self.provider.port])
        route = "upstream = provider\ncall = unary\n"
        more = "".join(f"[route r{at}]\nmatch = /package{at}.Service/Method\n{route}" for at in range(self.routes - 1))
        config = self.write(
            "ini",
            f"[proxy]\nworkers = {self.workers}\nadmin = 127.0.0.1:{self.admin}\nlog_level = warn\nwatch = off\n"
            f"[listener main]\naddress = 127.0.0.1:{self.port}\nmax_connections = 20000\n"
            f"[upstream provider]\nwire = bare\n{endpoints}{more}"
            f"[route echo]\nmatch = /{bench_targets.SERVICE}/Say\n{route}",
        )
        return [os.environ["TRIBUTARY_BIN"], "-c", config]


class TwoWorkers(Plain):
    workers = 2


class ManyRoutes(Plain):
    routes = 1000


class ManyEndpoints(Plain):
    pass  # its ports are set once the providers run


class Variant:
    def __init__(self, text, target, idle=0, idle_callgrind=0):
        self.text, self.target, self.idle, self.idle_callgrind = text, target, idle, idle_callgrind


def variants(options):
    return [
        Variant("nothing: the noise", Plain),
        Variant("2 workers", TwoWorkers),
        Variant(f"{options.idle} idle connections", Plain, options.idle, min(options.idle, 2000)),
        Variant("1000 routes", ManyRoutes),
        Variant("100 endpoints", ManyEndpoints),
    ]


# ---- measuring ----


def calls(options, target, count):
    before = target.counts()
    report = load(options.loadgen, options.load_core, target, [*SHAPE, "--warmup-count", "500", "--count", count])
    wrong = target.wrong(before, report["calls"])
    if wrong:
        raise RuntimeError(wrong)
    return report["processes"]["proxy"]["cpu_us_per_call"]


def instructions(options, provider, folder, kind, idle_count):
    collected = []
    for count in CALLGRIND_CALLS:
        target = kind(f"callgrind-{kind.__name__}", provider, folder, options.proxy_core, CALLGRIND)
        try:
            idle = Idle(target.port, idle_count)
            load(options.loadgen, options.load_core, target, [*SHAPE, "--warmup-count", "200", "--count", count])
            idle.close()
        finally:
            text = target.stop()
        collected.append(bench_targets.collected(text))
    return (collected[1] - collected[0]) / (CALLGRIND_CALLS[1] - CALLGRIND_CALLS[0])


def compare(options, provider, folder, variant, say):
    """(CPU plain, CPU scaled, ratio, system calls plain and scaled, KB per idle connection or None)"""
    plain = Plain("plain", provider, folder, options.proxy_core)
    scaled = variant.target("scaled", provider, folder, options.proxy_core)
    idle = per_idle = None
    try:
        for target in (plain, scaled):
            prime(options.loadgen, options.load_core, target)
            calls(options, target, options.calls)
        if variant.idle:
            before = rss_kb(scaled.pid)
            idle = Idle(scaled.port, variant.idle)
            per_idle = (rss_kb(scaled.pid) - before) * 1024 / variant.idle
        costs = {plain: [], scaled: []}
        for turn in range(options.rounds):
            for target in (plain, scaled) if turn % 2 else (scaled, plain):
                costs[target].append(calls(options, target, options.calls))
            say(f"round {turn + 1}/{options.rounds} {variant.text}: {costs[plain][-1]:.2f} and {costs[scaled][-1]:.2f} us")
        ratio = statistics.median(b / a for a, b in zip(costs[plain], costs[scaled]))
        wide = [None, None]
        if can_count_syscalls():
            wide = [count_syscalls(options.loadgen, options.load_core, target, SHAPE, 5000)[0] for target in (plain, scaled)]
        return statistics.median(costs[plain]), statistics.median(costs[scaled]), ratio, wide, per_idle
    finally:
        if idle:
            idle.close()
        plain.stop()
        scaled.stop()


def burst(options, provider, folder):
    """Resident KB at the start, right after and BURST_WAIT_S after a burst of 200 calls of 64 KiB at once."""
    target = Plain("burst", provider, folder, options.proxy_core)
    try:
        time.sleep(0.5)
        start = rss_kb(target.pid)
        report = load(options.loadgen, options.load_core, target, BURST)
        peak = report["processes"]["proxy"]["memory_peak_mb"] * 1024
        time.sleep(BURST_WAIT_S)
        return start, peak, rss_kb(target.pid)
    finally:
        target.stop()


def run_all(options, provider, others, folder):
    def say(text):
        print(text, file=sys.stderr, flush=True)

    ManyEndpoints.ports = [other.port for other in others]
    base = None if options.no_callgrind else instructions(options, provider, folder, Plain, 0)
    print("| scaled | CPU, µs per call: plain | scaled | ratio | system calls per call: plain | scaled "
          "| instructions per call: plain | scaled | ratio |")
    print("|---" * 9 + "|", flush=True)
    per_idle = None
    for variant in variants(options):
        plain, scaled, ratio, wide, idle_bytes = compare(options, provider, folder, variant, say)
        per_idle = idle_bytes or per_idle
        cells = [f"{plain:.2f}", f"{scaled:.2f}", f"{ratio:.3f}"]
        cells += ["–" if each is None else f"{each:.2f}" for each in wide]
        if base is None:
            cells += ["–"] * 3
        else:
            say(f"callgrind: {variant.text}")
            there = instructions(options, provider, folder, variant.target, variant.idle_callgrind)
            cells += [f"{base:.0f}", f"{there:.0f}", f"{there / base:.3f}"]
        print(f"| {variant.text} | " + " | ".join(cells) + " |", flush=True)
    print(f"\nAn idle connection that has made one call: {per_idle:.0f} bytes resident.")
    start, peak, end = burst(options, provider, folder)
    good = end - start <= BURST_LIMIT_KB
    print(f"\nResident memory: {start / 1024:.1f} MB at the start, {peak / 1024:.1f} MB at the peak of a burst of 200 × 64 KiB, "
          f"{end / 1024:.1f} MB {BURST_WAIT_S} s later ({(end - start) / 1024:+.1f} MB): {'back' if good else '**NOT BACK**'}")
    return 0 if good else 1


def main(argv=None):
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--calls", type=int, default=30000, help="of a round")
    parser.add_argument("--idle", type=int, default=10000, help="idle connections")
    parser.add_argument("--no-callgrind", action="store_true")
    add_machine(parser)
    options = parser.parse_args(argv)
    options.loadgen, options.tools = find_build(options.build)
    if not os.environ.get("TRIBUTARY_BIN"):
        sys.exit("TRIBUTARY_BIN does not name the proxy")
    use_cores(options)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard != resource.RLIM_INFINITY and hard < options.idle + 1000:
        sys.exit(f"ulimit -Hn is {hard}: too few descriptors for {options.idle} connections")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # the proxy inherits it
    providers = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            for _ in range(101):
                providers.append(Provider(options.tools, options.load_core))
            return run_all(options, providers[0], providers[1:], folder)
        finally:
            for provider in providers:
                provider.stop()


if __name__ == "__main__":
    sys.exit(main())
