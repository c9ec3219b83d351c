#!/usr/bin/python3
"""What each fast-path toggle saves: A/B of one key at a time, on the proxy and on the provider.

    TRIBUTARY_BIN=build/release/tributary tests/bench/toggles.py --build build/release
    … toggles.py --provider dubbo-go --payload 128,16K          a slice; --resume goes on
    … toggles.py --provider dubbo-go@500us,dubbo-go@2ms         handlers that take so long (waiting)

Each lane is tributary with one key changed from the fast path's settings (call = unary, wire = bare,
transport = h2), before the C stub provider and before a real dubbo-go provider. Per toggle, payload
and compression: the cost with it as a ratio to the cost without, of the proxy, the provider, both
together and calls per second, with allocations and bytes per call on dubbo-go. fast_path_max is judged
by payloads on both sides of it (cut_through instead of fast above).

Compression: none; gzip: the load generator compresses requests and offers gzip; offered: a grpc-go
client only offers it (what forward_accept_encoding is about, shown against a client that does too, but
whose offer is kept back).

wire = framed says that an endpoint may be Java, so that tributary decompresses requests towards it: with
gzip that lane's provider does not compress at all, which is what its figures show.

What the provider sees (form, gzip) and /stats (path) are kept in DIR/rows.jsonl; a lane that took
another path fails. One core for the proxy, the other for load and provider.
"""

import sys

import bench_dubbo
import bench_rounds
from bench_rounds import Cell, Comparison, Lane, Plan, compare, median, number, show
from bench_targets import Provider

PAYLOADS = "128,1K,16K,1M"
PROVIDERS = "stub,dubbo-go"
CONNECTIONS, IN_FLIGHT = 10, 50
UNARY, BARE = "call = unary\n", "wire = bare\n"
HELD = ("fast", "cut_through")
LANES = {
    "fast": {"route": UNARY, "upstream": BARE, "paths": HELD},
    "relay": {"route": UNARY + "fast_path = off\n", "upstream": BARE, "paths": ("relay",)},
    "framed": {"upstream": "wire = framed\n", "paths": ("framed",)},
    "no-length": {"route": UNARY + "content_length = off\n", "upstream": BARE, "paths": HELD},
    "max-256K": {"route": UNARY + "fast_path_max = 256K\n", "upstream": BARE, "paths": HELD},
    "max-2M": {"route": UNARY + "fast_path_max = 2M\n", "upstream": BARE, "paths": HELD},
    "unmerged": {"route": UNARY, "upstream": BARE, "proxy": "merge_writes = off\n", "paths": HELD},
    "forwarded": {"route": UNARY, "upstream": BARE + "forward_accept_encoding = on\n", "paths": HELD},
    "http1": {"route": UNARY, "upstream": BARE + "transport = http1\n", "paths": HELD},
}
RATES = {  # calls per second that a run is sized by, up to each payload
    "stub": ((1 << 11, 50000), (1 << 15, 15000), (1 << 62, 320)),
    "dubbo-go": ((1 << 11, 9000), (1 << 15, 5000), (1 << 62, 150)),
}
GZIP_SLOWER = 4  # so many times fewer calls where everything is compressed


def kind(cell):
    return cell.name.split(", ")[2]


def is_large(cell):
    return cell.size > 1 << 16


def lanes_of(cell):
    if kind(cell) == "offered":
        return ["fast", "forwarded"]
    if kind(cell) == "gzip":
        return ["fast", "relay", "framed", "http1"]
    large = ["max-256K", "max-2M"] if is_large(cell) else []
    return ["fast", "relay", "framed", "no-length", "unmerged", "http1", *large]


COMPARISONS = [
    Comparison("fast_path = on against off", "fast", "relay", lambda cell: kind(cell) != "offered"),
    Comparison("fast path against wire = framed", "fast", "framed", lambda cell: kind(cell) != "offered"),
    Comparison("content_length = on against off", "fast", "no-length", lambda cell: kind(cell) == "none"),
    Comparison("fast_path_max = 64K against 256K", "fast", "max-256K", lambda cell: kind(cell) == "none" and is_large(cell)),
    Comparison("fast_path_max = 64K against 2M", "fast", "max-2M", lambda cell: kind(cell) == "none" and is_large(cell)),
    Comparison("merge_writes = on against off", "fast", "unmerged", lambda cell: kind(cell) == "none"),
    Comparison("transport = http1 against h2", "http1", "fast", lambda cell: kind(cell) != "offered"),
    Comparison("forward_accept_encoding = off against on", "fast", "forwarded", lambda cell: kind(cell) == "offered"),
]


def cell_of(options, provider, text, size, compression):
    kind_of_provider, _, _ = provider.partition("@")
    rate = next(rate for up_to, rate in RATES[kind_of_provider] if size <= up_to)
    calls = int(rate * options.seconds / (GZIP_SLOWER if compression != "none" else 1))
    calls = max(2 * IN_FLIGHT, calls)
    name = f"{provider}, {text}, {compression}"
    if compression == "offered":
        args = ["-offer-gzip"]
        if kind_of_provider == "stub":
            args += ["-method", "/tributary.demo.Echo/Say"]
        return Cell(name, size, IN_FLIGHT, CONNECTIONS, calls, calls // 4, "grpc-go", tuple(args), provider)
    args = ["--gzip"] if compression == "gzip" else []
    if kind_of_provider == "dubbo-go":
        args += bench_dubbo.LOAD_ARGS
    return Cell(name, size, IN_FLIGHT, CONNECTIONS, calls, calls // 4, "loadgen", tuple(args), provider)


def cells_of(options):
    return [
        cell_of(options, provider, text, size, compression)
        for provider in options.provider.split(",")
        for compression in options.compression.split(",")
        for text, size in bench_rounds.sizes(options.payload)
    ]


def plan_of(options, programs):
    def open_lane(name, provider, folder, core):
        return Lane(name, provider, folder, core, **LANES[name])

    def start(options, name):
        kind_of_provider, _, delay = name.partition("@")
        if kind_of_provider == "stub":
            return Provider(options.tools, options.load_core)
        return bench_dubbo.DubboGo(programs["dubbo-provider"], options.load_core, delay or "0s")

    starts = {name: lambda options, name=name: start(options, name) for name in options.provider.split(",")}
    return Plan("Each toggle, on and off", cells_of(options), lanes_of, open_lane, starts, COMPARISONS, options.rounds)


# ---- the report ----


def two(result, key):
    one, other = median(result.subject, key), median(result.base, key)
    return f"{number(one)} / {number(other)}"


def table(plan, rows, comparison):
    proxy = compare(plan, rows, comparison, "proxy_cpu_us")
    provider = compare(plan, rows, comparison, "provider_cpu_us")
    system = compare(plan, rows, comparison, "system_cpu_us")
    if not proxy:
        return ""
    lines = [
        f"## {comparison.title}\n",
        "| provider, payload, compression | proxy µs/call | ratio | provider µs/call | ratio | together, ratio "
        "| calls/s ratio | p99 ms | allocations/call | bytes/call |",
        "|---" * 10 + "|",
    ]
    for one, other, both in zip(proxy, provider, system):
        lines.append(
            f"| {one.cell.name} | {two(one, 'proxy_cpu_us')} | {show(one.cost)} | {two(one, 'provider_cpu_us')} "
            f"| {show(other.cost)} | {show(both.cost)} | {show(one.rate)} | {two(one, 'p99_ms')} "
            f"| {two(one, 'mallocs')} | {two(one, 'alloc_bytes')} |"
        )
    return "\n".join(lines) + "\n"


def quadrants(plan, rows):
    lines = ["## Fast and relay × gzip and none: proxy / provider µs per call\n",
             "| provider, payload | fast, none | relay, none | fast, gzip | relay, gzip |", "|---|---|---|---|---|"]
    by_name = {cell.name: cell for cell in plan.cells}
    for name in by_name:
        head, _, compression = name.rpartition(", ")
        if compression != "none" or f"{head}, gzip" not in by_name:
            continue
        quarters = []
        for packed in ("none", "gzip"):
            for lane in ("fast", "relay"):
                good = rows.good(f"{head}, {packed}", lane)
                quarters.append(f"{number(median(good, 'proxy_cpu_us'))} / {number(median(good, 'provider_cpu_us'))}")
        lines.append(f"| {head} | " + " | ".join(quarters) + " |")
    return "\n".join(lines) + "\n" if len(lines) > 3 else ""


def render(plan, rows):
    parts = [table(plan, rows, c) for c in plan.comparisons] + [quadrants(plan, rows)]
    text = "\n".join(part for part in parts if part) + (
        "\nFirst value / second value are medians of the setting named first and second; ratios (first to second) "
        "with 95 % intervals over paired rounds: below 1, the first costs less.\n"
    )
    result = {}
    for comparison in plan.comparisons:
        by_metric = {m: compare(plan, rows, comparison, m) for m in ("proxy_cpu_us", "provider_cpu_us", "system_cpu_us")}
        result[comparison.title] = {
            r.cell.name: {
                **{m: by_metric[m][i].cost._asdict() if by_metric[m][i].cost else None for m in by_metric},
                "qps": r.rate._asdict() if r.rate else None,
                **{key: [median(r.subject, key), median(r.base, key)] for key in ("p99_ms", "mallocs", "alloc_bytes")},
            }
            for i, r in enumerate(by_metric["proxy_cpu_us"])
        }
    return text, result


def main(argv=None):
    made = bench_rounds.parser(__doc__, "toggles", 5)
    made.add_argument("--payload", default=PAYLOADS, help=f"by commas; default {PAYLOADS}")
    made.add_argument("--provider", default=PROVIDERS, help=f"stub, dubbo-go, dubbo-go@DELAY; default {PROVIDERS}")
    made.add_argument("--compression", default="none,gzip,offered", help="default none,gzip,offered")
    options = made.parse_args(argv)
    bench_rounds.prepare(options)
    wrong = [name for name in options.provider.split(",") if name != "stub" and name.partition("@")[0] != "dubbo-go"]
    if wrong:
        sys.exit(f"no such provider: {', '.join(wrong)}")
    wants_go = not options.report and ("dubbo-go" in options.provider or "offered" in options.compression)
    programs = bench_dubbo.build(options.tools.parents[1]) if wants_go else dict.fromkeys(bench_dubbo.PROGRAMS)
    options.go_client = programs["bench-client"]
    asked = [options.payload, options.provider, options.compression]
    return bench_rounds.run(options, plan_of(options, programs), render, asked)


if __name__ == "__main__":
    sys.exit(main())
