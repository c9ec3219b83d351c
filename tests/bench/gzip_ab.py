#!/usr/bin/python3
"""Aligned and unaligned gzip on large calls, directly and through the proxy.

    TRIBUTARY_BIN=build/release/tributary tests/bench/gzip_ab.py --build build/release
    … gzip_ab.py --payload 2M --content text         a slice; --resume goes on

dubbo-go's own benchmark once saw unaligned gzip (one side compresses, the other does not) make calls of
2 MiB 2.4 times slower, and aligned gzip make them 38 % faster. This reproduces or refutes it: a grpc-go
client, echoes of 2 MiB, payloads of text and random bytes, and what each side does with gzip:

    none      nobody compresses
    reply     the client only offers gzip: dubbo-go compresses its replies (unaligned)
    request   the client compresses, and the provider does not answer in kind (unaligned). dubbo-go always
              does; the C stub provider (--gzip off) stands in for a provider that does not
    both      requests and replies are compressed (aligned)

each directly, and through tributary: fast (bare, HTTP/2), http1, framed, and with the client's offer
forwarded. Where tributary keeps the offer back (forward_accept_encoding = off) "reply" becomes none:
that is what the key is for. The column "the provider saw" tells what really came.

Figures are ratios to "none" of the same way, paired by rounds: calls per second, and the CPU of client,
proxy and provider together. On loopback bytes
are nearly free: what gzip saves on a slow network is not in here.
"""

import sys

import bench_dubbo
import bench_rounds
import bench_stats
import bench_targets
import toggles
from bench_rounds import Cell, Lane, Plan, median, number, show
from bench_targets import Provider

MODES = "none,reply,request,both"
CONTENTS = "text,random"
CONNECTIONS, IN_FLIGHT = 2, 8
LANES = {name: toggles.LANES[name] for name in ("fast", "http1", "framed", "forwarded")}
BASE = "direct"
CLIENT_ARGS = {"none": (), "reply": ("-offer-gzip",), "request": ("-gzip",), "both": ("-gzip",)}
RATE = {"none": 40, "reply": 12, "request": 12, "both": 8}  # 2 MiB calls per second that a run is sized by


class Direct(bench_targets.Direct):
    def __init__(self, provider):
        super().__init__(BASE, provider, ".")


def provider_of(mode):
    return "stub" if mode == "request" else "dubbo-go"


def cell_of(options, text, size, content, mode, provider):
    calls = max(2 * options.in_flight, int(RATE[mode] * options.seconds * max(1, (2 << 20) / max(size, 1))))
    args = [*CLIENT_ARGS[mode], "-give-up", f"{bench_rounds.RUN_SECONDS_MAX - 10}s"]
    if content == "random":
        args.append("-random")
    if provider == "stub":
        args += ["-method", "/tributary.demo.Echo/Say"]
    return Cell(f"{provider}, {text} {content}, {mode}", size, options.in_flight, CONNECTIONS, calls,
                options.in_flight, "grpc-go", tuple(args), provider)


def cells_of(options):
    cells = []
    modes = options.mode.split(",")
    for text, size in bench_rounds.sizes(options.payload):
        for content in options.content.split(","):
            wanted = [(mode, provider_of(mode)) for mode in modes]
            if "request" in modes:  # its base is with the same provider
                wanted.insert(0, ("none", "stub"))
            cells += [cell_of(options, text, size, content, *each) for each in wanted]
    return cells


def plan_of(options, programs):
    def open_lane(name, provider, folder, core):
        return Direct(provider) if name == BASE else Lane(name, provider, folder, core, **LANES[name])

    names = [BASE, *options.lanes.split(",")]
    starts = {
        "stub": lambda options: Provider(options.tools, options.load_core, "--gzip", "off"),
        "dubbo-go": lambda options: bench_dubbo.DubboGo(programs["dubbo-provider"], options.load_core),
    }
    return Plan("Aligned and unaligned gzip", cells_of(options), lambda cell: names, open_lane, starts, [], options.rounds)


# ---- the report ----


def whole_cost(row):
    return row["client_cpu_us"] + row["system_cpu_us"]


def to_none(rows, cell, lane, value):
    """The paired ratio of value(row) to the same lane's without gzip; None: nothing to pair with."""
    head, _, mode = cell.name.rpartition(", ")
    if mode == "none":
        return None
    one = {row["round"]: row for row in rows.good(cell.name, lane)}
    none = {row["round"]: row for row in rows.good(f"{head}, none", lane)}
    both = sorted(one.keys() & none.keys())
    return bench_stats.ratio([value(one[turn]) for turn in both], [value(none[turn]) for turn in both])


def saw(rows):
    """What the provider says of compression, in words."""
    if not rows:
        return "–"
    seen = rows[-1]["provider_saw"]
    calls = max(1, sum(seen.get(key, 0) for key in ("framed", "bare", "bare_h2", "bare_h1")))
    came = "gzip" if seen["gzip_in"] >= calls / 2 else "plain"
    if "gzip_offers" in seen:
        answer = "gzip" if seen["gzip_in"] >= calls / 2 or seen["gzip_offers"] >= calls / 2 else "plain"
    else:
        answer = "gzip" if seen["gzip_out"] >= calls / 2 else "plain"
    return f"{came} in, {answer} out"


def render(plan, rows):
    lines = [
        "| provider, payload, gzip | way | calls/s | × none | client µs/call | proxy | provider | all of it × none "
        "| p50 ms | p99 ms | bytes/call at the provider | the provider saw |",
        "|---" * 12 + "|",
    ]
    result = {}
    for cell in plan.cells:
        for lane in plan.lanes_of(cell):
            good = rows.good(cell.name, lane)
            rate = to_none(rows, cell, lane, lambda row: row["qps"])
            cost = to_none(rows, cell, lane, whole_cost)
            lines.append(
                f"| {cell.name} | {lane} | {number(median(good, 'qps'))} | {show(rate, 2)} "
                f"| {number(median(good, 'client_cpu_us'))} | {number(median(good, 'proxy_cpu_us'))} "
                f"| {number(median(good, 'provider_cpu_us'))} | {show(cost, 2)} | {number(median(good, 'p50_ms'))} "
                f"| {number(median(good, 'p99_ms'))} | {number(median(good, 'alloc_bytes'))} | {saw(good)} |"
            )
            result.setdefault(cell.name, {})[lane] = {
                "qps": median(good, "qps"),
                "qps_to_none": rate._asdict() if rate else None,
                "cpu_to_none": cost._asdict() if cost else None,
                "saw": saw(good),
            }
    text = "\n".join(lines) + (
        "\n\n× none: against the same way without gzip, geometric mean of paired rounds with its 95 % interval. "
        "2.4 times slower would be calls/s × 0.42, 38 % faster × 1.38.\n"
    )
    return text, result


def main(argv=None):
    made = bench_rounds.parser(__doc__, "gzip", 5)
    made.add_argument("--payload", default="2M", help="by commas; default 2M")
    made.add_argument("--content", default=CONTENTS, help=f"default {CONTENTS}")
    made.add_argument("--mode", default=MODES, help=f"default {MODES}")
    made.add_argument("--lanes", default="fast,http1,forwarded", help=f"ways through the proxy, of {', '.join(LANES)}")
    made.add_argument("--in-flight", type=int, default=IN_FLIGHT)
    options = made.parse_args(argv)
    if "none" not in options.mode.split(","):
        sys.exit("--mode must hold none: the others are told as ratios to it")
    bench_rounds.prepare(options)
    programs = dict.fromkeys(bench_dubbo.PROGRAMS) if options.report else bench_dubbo.build(options.tools.parents[1])
    options.go_client = programs["bench-client"]
    asked = [options.payload, options.content, options.mode, options.lanes, options.in_flight]
    return bench_rounds.run(options, plan_of(options, programs), render, asked)


if __name__ == "__main__":
    sys.exit(main())
