#!/usr/bin/python3
"""No negative case: is the fast path anywhere dearer than the relay path or the framed path?

    TRIBUTARY_BIN=build/release/tributary tests/bench/grid.py --build build/release
    … grid.py --payload 1M,2M --in-flight 500 --out DIR         a slice of it; --resume goes on
    … grid.py --fast-path-max --out DIR2                        64K, 256K and 1M instead of the paths
    … grid.py --reply-lengths --out DIR3                        every bare reply tells its length

Payloads × calls in flight; three lanes of tributary before the C stub provider: fast (held whole, bare,
Content-Length), relay (bare as it comes, without length), framed (gRPC framing). Ten interleaved
rounds, each with new processes. Per cell, paired by round: the ratio of proxy CPU per call and of calls
per second with its 95 % interval (t of the log ratios), and two one-sided tests against a margin of
3 %, each corrected over all cells and both measures by Holm's method:

    holds      the upper end of the interval of what it costs is below 1.03 (and the lower end of calls
               per second above 1/1.03)
    open       neither shown to hold nor to be worse: the interval reaches over 3 %
    NEGATIVE   worse by more than 3 %, at 5 % after Holm's correction

A dubbo-go provider, and so the stub, gives bare replies over 4096 bytes no content-length. Since a gRPC
prefix needs one, such a reply has to be held whole, on the fast and on the relay path; the framed one
passes. --reply-lengths takes this difference away.

What it writes: DIR/rows.jsonl (each run), DIR/report.md, DIR/result.json. One run is a number of calls:
full waves of what is in flight (two, or one of 500) after one of warmup, since large calls end in waves.
buffer_budget is 4G here: the default cannot hold 500 calls of 2 MiB on any path. Time: about ten
minutes for ten rounds on a quiet machine of two cores; --minutes bounds it.
"""

import sys

import bench_rounds
import bench_stats
from bench_rounds import Cell, Comparison, Lane, Plan, compare, median, number, show
from bench_targets import Provider

PAYLOADS = "128,1K,16K,256K,1M,2M"
IN_FLIGHT = "50,100,500"
CONNECTIONS = 10
LEVEL = 0.05
WIDE = 200  # calls in flight above which one wave of large calls is a run: it takes seconds
# Calls per second that a run is sized by: what a small virtual machine does, by payload.
RATES = ((1 << 11, 50000), (1 << 15, 15000), (1 << 19, 1200), (1 << 20, 320), (1 << 62, 160))

BARE = {"route": "call = unary\n", "upstream": "wire = bare\n"}
LANES = {
    "fast": {**BARE, "paths": ("fast", "cut_through")},
    "relay": {"route": "call = unary\nfast_path = off\n", "upstream": "wire = bare\n", "paths": ("relay",)},
    "framed": {"route": "", "upstream": "wire = framed\n", "paths": ("framed",)},
}
MAXIMA = {
    f"max-{size}": {
        "route": f"call = unary\nfast_path_max = {size}\n",
        "upstream": "wire = bare\n",
        "paths": ("fast", "cut_through"),
    }
    for size in ("64K", "256K", "1M")
}


def calls_of(size, in_flight, seconds):
    """Calls to warm up with and to measure."""
    rate = next(rate for up_to, rate in RATES if size <= up_to)
    waves = 1 if in_flight > WIDE else 2
    measured = max(int(rate * seconds), waves * in_flight)
    return max(in_flight, measured // 8), measured


def cells_of(options):
    cells = []
    for text, size in bench_rounds.sizes(options.payload):
        for in_flight in map(int, options.in_flight.split(",")):
            warmup, calls = calls_of(size, in_flight, options.seconds)
            cells.append(Cell(f"{text} × {in_flight}", size, in_flight, min(CONNECTIONS, in_flight), calls, warmup))
    return cells


def provider_args(options):
    return ["--content-length-max", str(64 << 20)] if options.reply_lengths else []


def plan_of(options):
    lanes = MAXIMA if options.fast_path_max else LANES
    if options.fast_path_max:
        title = "fast_path_max: 256K and 1M against 64K"
        comparisons = [Comparison(f"{name} against max-64K", name, "max-64K") for name in ("max-256K", "max-1M")]
    else:
        title = "The fast path against the relay path and the framed path"
        title += ", replies with a length" if options.reply_lengths else ""
        comparisons = [Comparison(f"fast against {base}", "fast", base) for base in ("relay", "framed")]

    def open_lane(name, provider, folder, core):
        return Lane(name, provider, folder, core, **lanes[name])

    return Plan(
        title,
        cells_of(options),
        lambda cell: list(lanes),
        open_lane,
        {"stub": lambda options: Provider(options.tools, options.load_core, *provider_args(options))},
        comparisons,
        options.rounds,
    )


# ---- the report ----


def verdict(result, worse):
    """worse: the cell's p values, corrected, of proxy CPU and calls per second."""
    if result.cost is None:
        return "not enough rounds"
    if min(worse) < LEVEL:
        return "NEGATIVE"
    if result.cost.high <= bench_stats.MARGIN and result.slow.high <= bench_stats.MARGIN:
        return "holds"
    return "open"


def judge(everything):
    """[(comparison, [Result])] -> {(comparison title, cell): (verdict, [p worse], [p holds])}."""
    flat = [(c, r) for c, results in everything for r in results if r.cost is not None]
    worse = bench_stats.holm([ratio.p_worse for _, r in flat for ratio in (r.cost, r.slow)])
    holds = bench_stats.holm([ratio.p_holds for _, r in flat for ratio in (r.cost, r.slow)])
    judged = {}
    for i, (comparison, result) in enumerate(flat):
        two = slice(2 * i, 2 * i + 2)
        judged[comparison.title, result.cell.name] = (verdict(result, worse[two]), worse[two], holds[two])
    return judged


def over_all_cells(results, key, upside_down=False):
    """Geometric mean over the cells in each round, and over the rounds with its interval."""
    turns = [{row["round"] for row in r.subject} for r in results if r.subject]
    whole = sorted(set.intersection(*turns)) if turns and len(turns) == len(results) else []
    means = []
    for turn in whole:
        ratios = []
        for r in results:
            one = next(row[key] for row in r.subject if row["round"] == turn)
            other = next(row[key] for row in r.base if row["round"] == turn)
            ratios.append(other / one if upside_down else one / other)
        means.append(bench_stats.geometric_mean(ratios))
    return bench_stats.ratio(means, [1.0] * len(means)) if means else None


def table(comparison, results, judged):
    lines = [
        f"## {comparison.title}\n",
        f"| payload × in flight | proxy µs/call {comparison.subject} | {comparison.base} | ratio | calls/s ratio "
        f"| p99 ms {comparison.subject} | {comparison.base} | rounds | verdict |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for r in results:
        word = judged.get((comparison.title, r.cell.name), ("not enough rounds",))[0]
        lines.append(
            f"| {r.cell.name} | {number(median(r.subject, 'proxy_cpu_us'))} | {number(median(r.base, 'proxy_cpu_us'))} "
            f"| {show(r.cost)} | {show(r.rate)} | {number(median(r.subject, 'p99_ms'))} "
            f"| {number(median(r.base, 'p99_ms'))} | {len(r.subject)} | {word} |"
        )
    lines.append(
        f"| **geometric mean** | | | {show(over_all_cells(results, 'proxy_cpu_us'))} "
        f"| {show(over_all_cells(results, 'qps'))} | | | | p99 ratio {show(over_all_cells(results, 'p99_ms'))} |"
    )
    return "\n".join(lines)


def verdict_lines(comparison, results, judged):
    lines = []
    for r in results:
        word, worse, _ = judged.get((comparison.title, r.cell.name), ("not enough rounds", [], []))
        if word == "holds":
            continue
        text = f"- {word}: {comparison.title} at {r.cell.name}"
        if r.cost is not None:
            text += (f": CPU up to ×{r.cost.high:.3f}, calls per second down to ×{r.rate.low:.3f}; "
                     f"p of 'worse by over 3 %' {worse[0]:.3f} and {worse[1]:.3f} (Holm)")
        lines.append(text)
    held = sum(1 for r in results if judged.get((comparison.title, r.cell.name), ("",))[0] == "holds")
    lines.append(f"- {comparison.title}: {held} of {len(results)} cells hold")
    return lines


def render(plan, rows):
    everything = [(c, compare(plan, rows, c, "proxy_cpu_us")) for c in plan.comparisons]
    judged = judge(everything)
    parts = [table(c, results, judged) for c, results in everything]
    verdicts = [line for c, results in everything for line in verdict_lines(c, results, judged)]
    text = "\n\n".join(parts) + "\n\n## Verdict\n\n" + "\n".join(verdicts) + (
        "\n\nRatios are geometric means of paired runs with their 95 % intervals; below 1 in CPU and above 1 in "
        "calls per second is for the first. Only the interval of a cell decides 'holds'; Holm's correction, over "
        "all cells and both measures, decides NEGATIVE.\n"
    )
    result = {
        c.title: {
            r.cell.name: {
                "cpu_ratio": r.cost._asdict() if r.cost else None,
                "qps_ratio": r.rate._asdict() if r.rate else None,
                "p99_ms": [median(r.subject, "p99_ms"), median(r.base, "p99_ms")],
                "verdict": judged.get((c.title, r.cell.name), ("not enough rounds",))[0],
                "holm_worse": judged.get((c.title, r.cell.name), (0, None))[1],
                "holm_holds": judged.get((c.title, r.cell.name), (0, 0, None))[2],
            }
            for r in results
        }
        for c, results in everything
    }
    return text, result


def main(argv=None):
    made = bench_rounds.parser(__doc__, "grid", 10)
    made.add_argument("--payload", help=f"by commas; default {PAYLOADS}")
    made.add_argument("--in-flight", default=IN_FLIGHT, help=f"by commas; default {IN_FLIGHT}")
    made.add_argument("--fast-path-max", action="store_true", help="sweep fast_path_max, payloads around its values")
    made.add_argument("--reply-lengths", action="store_true", help="every bare reply has a content-length")
    options = made.parse_args(argv)
    options.payload = options.payload or ("64K,256K,1M" if options.fast_path_max else PAYLOADS)
    bench_rounds.prepare(options)
    asked = [options.payload, options.in_flight, options.fast_path_max, options.reply_lengths]
    return bench_rounds.run(options, plan_of(options), render, asked)


if __name__ == "__main__":
    sys.exit(main())
