#!/usr/bin/python3
"""What a sidecar costs a dubbo-go provider, or saves it: a real client with and without tributary.

    TRIBUTARY_BIN=build/release/tributary tests/bench/sidecar.py --build build/release
    … sidecar.py --client loadgen                the C load generator instead of grpc-go
    … sidecar.py --delay 0s --gzip none --payload 128,1K,16K    a slice; --resume goes on

A grpc-go client calls a dubbo-go v3 provider (a) directly, (b) through tributary with transport =
http1, (c) with bare bodies on HTTP/2, (d) in gRPC framing. Payload × gzip offered or not × handler time
(0, 0.5 and 2 ms, spent waiting). Provider and proxy share one core, as containers of a pod with one CPU
would, the client has the other (--pin none: nothing is pinned). Closed loop: calls per second are what
the shared core can do, but for long handler times.

The bar: CPU of proxy and provider together, with http1, below that of the provider alone, called
directly; and not fewer calls per second. Held: the whole 95 % interval is on the right side; else
"open", or "NOT HELD" when the whole interval is on the wrong side.

CPU is the processes' CPU clocks over the measured calls; allocations and bytes per call are the
provider's runtime.MemStats, warmup included, by its own count of calls; connections those that
tributary has opened to the provider.
"""

import sys

import bench_dubbo
import bench_rounds
import bench_targets
from bench_rounds import Cell, Comparison, Lane, Plan, compare, median, number, show

PAYLOADS = "128,1K,16K"
GZIP = "none,offered"
DELAYS = "0s,500us,2ms"
CONNECTIONS, IN_FLIGHT = 10, 50
BARE = {"route": "call = unary\n", "paths": ("fast", "cut_through")}
LANES = {
    "http1": {**BARE, "upstream": "wire = bare\ntransport = http1\n"},
    "bare-h2": {**BARE, "upstream": "wire = bare\n"},
    "framed": {"route": "", "upstream": "wire = framed\n", "paths": ("framed",)},
}
BASE = "direct"
RATES = ((1 << 11, 9000), (1 << 15, 5000), (1 << 62, 150))  # calls per second that a run is sized by


class Direct(bench_targets.Direct):
    def __init__(self, provider, load_args):
        super().__init__(BASE, provider, ".")
        self.load_args = load_args


def calls_of(size, seconds):
    rate = next(rate for up_to, rate in RATES if size <= up_to)
    return max(IN_FLIGHT * 2, int(rate * seconds))


def cells_of(options):
    cells = []
    for delay in options.delay.split(","):
        for gzip in options.gzip.split(","):
            if options.client == "loadgen" and gzip != "none":
                continue  # it does not take replies that it did not compress itself
            for text, size in bench_rounds.sizes(options.payload):
                calls = calls_of(size, options.seconds)
                args = ("-offer-gzip",) if gzip == "offered" else ()
                cells.append(
                    Cell(f"{text}, gzip {gzip}, handler {delay}", size, options.in_flight, CONNECTIONS, calls,
                         calls // 4, options.client, args, delay)
                )
    return cells


def plan_of(options, programs):
    load_args = bench_dubbo.LOAD_ARGS if options.client == "loadgen" else []

    def open_lane(name, provider, folder, core):
        if name == BASE:
            return Direct(provider, load_args)
        lane = Lane(name, provider, folder, core, **LANES[name])
        lane.load_args = load_args
        return lane

    names = [BASE, *options.lanes.split(",")]
    return Plan(
        f"With and without the sidecar: dubbo-go provider, {options.client} client",
        cells_of(options),
        lambda cell: names,
        open_lane,
        {delay: lambda options, delay=delay: bench_dubbo.DubboGo(programs["dubbo-provider"], options.proxy_core, delay)
         for delay in options.delay.split(",")},
        [Comparison(name, name, BASE) for name in names[1:]],
        options.rounds,
    )


def held(result):
    """Of the bar: (CPU, calls per second)."""
    if result.cost is None:
        return "–", "–"
    cpu = "held" if result.cost.high < 1 else "NOT HELD" if result.cost.low > 1 else "open"
    # a closed loop of waiting handlers has no more calls either way: 3 % below is what "not below" allows to noise
    rate = "held" if result.rate.low > 0.97 else "NOT HELD" if result.rate.high < 1 else "open"
    return cpu, rate


def connections(rows):
    """Open after the run, and the most that one round has opened; the client's own when called directly."""
    now, opened = median(rows, "connections"), max((row.get("opened", 0) for row in rows), default=0)
    return f"{CONNECTIONS}" if now is None else f"{now:.0f} ({opened})"


def row_text(cell, name, rows, result):
    cells = [
        cell.name, name, number(median(rows, "client_cpu_us")), number(median(rows, "proxy_cpu_us")),
        number(median(rows, "provider_cpu_us")), number(median(rows, "system_cpu_us")),
        show(result.cost) if result else "1", f"{median(rows, 'qps') or 0:.0f}", show(result.rate) if result else "1",
        number(median(rows, "p50_ms")), number(median(rows, "p99_ms")), number(median(rows, "mallocs")),
        number(median(rows, "alloc_bytes")), connections(rows),
    ]
    return "| " + " | ".join(cells) + " |"


def render(plan, rows):
    results = {c.subject: {r.cell.name: r for r in compare(plan, rows, c, "system_cpu_us")} for c in plan.comparisons}
    lines = [
        "| payload, gzip, handler | way | client µs/call | proxy | provider | proxy + provider | × direct | calls/s "
        "| × direct | p50 ms | p99 ms | allocations/call | bytes/call | connections |",
        "|---" * 14 + "|",
    ]
    for cell in plan.cells:
        lines.append(row_text(cell, BASE, rows.good(cell.name, BASE), None))
        for name, by_cell in results.items():
            lines.append(row_text(cell, name, rows.good(cell.name, name), by_cell[cell.name]))
    bar = ["", "## The bar: proxy + provider below the provider alone, calls per second not below direct", ""]
    bar += ["| payload, gzip, handler | " + " | ".join(f"{name} CPU | {name} calls/s" for name in results) + " |"]
    bar += ["|---" * (1 + 2 * len(results)) + "|"]
    for cell in plan.cells:
        words = [word for by_cell in results.values() for word in held(by_cell[cell.name])]
        bar.append(f"| {cell.name} | " + " | ".join(words) + " |")
    text = "\n".join(lines + bar) + (
        "\n\nIntervals are 95 % over paired rounds. Connections: open to the provider after the run (the most opened "
        "since the proxy's start in any round); directly the client's own.\n"
    )
    names = ("client_cpu_us", "proxy_cpu_us", "provider_cpu_us", "system_cpu_us", "qps", "p50_ms", "p99_ms",
             "mallocs", "alloc_bytes", "connections", "opened")
    result = {}
    for cell in plan.cells:
        result[cell.name] = {
            name: {key: median(rows.good(cell.name, name), key) for key in names} for name in plan.lanes_of(cell)
        }
        for name, by_cell in results.items():
            r = by_cell[cell.name]
            result[cell.name][name] |= {"cpu_ratio": r.cost._asdict() if r.cost else None,
                                        "qps_ratio": r.rate._asdict() if r.rate else None,
                                        "bar": held(r)}
    return text, result


def main(argv=None):
    made = bench_rounds.parser(__doc__, "sidecar", 7)
    made.add_argument("--client", choices=["grpc-go", "loadgen"], default="grpc-go")
    made.add_argument("--payload", default=PAYLOADS, help=f"by commas; default {PAYLOADS}")
    made.add_argument("--gzip", default=GZIP, help=f"what the client offers; default {GZIP}")
    made.add_argument("--delay", default=DELAYS, help=f"handler times; default {DELAYS}")
    made.add_argument("--lanes", default=",".join(LANES), help=f"ways through the proxy; default {','.join(LANES)}")
    made.add_argument("--in-flight", type=int, default=IN_FLIGHT)
    made.add_argument("--pin", choices=["split", "none"], default="split", help="split: client on one core, the rest on another")
    options = made.parse_args(argv)
    bench_rounds.prepare(options)
    if options.pin == "none":
        options.proxy_core = options.load_core = None
    programs = dict.fromkeys(bench_dubbo.PROGRAMS) if options.report else bench_dubbo.build(options.tools.parents[1])
    options.go_client = programs["bench-client"]
    asked = [options.client, options.payload, options.gzip, options.delay, options.lanes, options.in_flight, options.pin]
    return bench_rounds.run(options, plan_of(options, programs), render, asked)


if __name__ == "__main__":
    sys.exit(main())
