"""The report of a folder of scenario results: Markdown, plots (PNG and SVG, where matplotlib is
installed), and text for benchstat. Reads only what bench.py wrote; can be made again at any time."""

import json
import pathlib

BASE = "nghttpx"  # what proxies are compared with, where it ran


def read(out):
    results = [json.loads(path.read_text()) for path in sorted((out / "data").glob("*.json"))]
    return sorted(results, key=point_of)


def point_of(result):
    """Everything but the framework, in the order of the tables."""
    return (
        result["call_mode"],
        result["serialization"],
        result["compression"],
        result["payload_size"],
        result["concurrency"],
    )


def size_text(size):
    if size >= 1 << 20 and size % (1 << 20) == 0:
        return f"{size >> 20} MiB"
    if size >= 1024 and size % 1024 == 0:
        return f"{size >> 10} KiB"
    return f"{size} B"


def groups_of(results):
    groups = {}
    for result in results:
        groups.setdefault(point_of(result)[:3], []).append(result)
    return groups


def frameworks_of(results):
    return list(dict.fromkeys(result["framework"] for result in sorted(results, key=rank)))


def rank(result):
    """Direct first, tributary next, then the others."""
    name = result["framework"]
    return (0 if name.startswith("direct") else 1 if name.startswith("tributary") else 2, name)


# ---- tables ----


def table(results, title, cell):
    """Rows: payload and concurrency; columns: frameworks."""
    names = frameworks_of(results)
    lines = [f"\n**{title}**\n", "| payload, concurrency | " + " | ".join(names) + " |"]
    lines.append("|---" * (len(names) + 1) + "|")
    rows = {}
    for result in results:
        rows.setdefault(point_of(result), {})[result["framework"]] = result
    for point, row in rows.items():
        cells = [cell(row[name], row) if name in row else "" for name in names]
        lines.append(f"| {size_text(point[3])}, {point[4]} | " + " | ".join(cells) + " |")
    return lines


def with_ratio(key, digits):
    def cell(result, row):
        value = result[key]
        if not value:
            return "–"
        base = row.get(BASE, {}).get(key)
        ratio = f" ({value / base:.2f})" if base and result["framework"] != BASE else ""
        return f"{value:.{digits}f}{ratio}"

    return cell


def sum_cell(result, row):
    del row
    return f"{result['proxy_cpu_us'] + result['provider_cpu_us']:.2f}"


def added_cell(result, row):
    direct = row.get("direct", {}).get("latency_p50_ms")
    if direct is None or result["framework"] == "direct":
        return f"{result['latency_p50_ms']:.3f}"
    return f"{result['latency_p50_ms'] - direct:+.3f}"


def spread_cell(result, row):
    del row
    key = "proxy" if result["cpu_of"] == "proxy" else "provider"
    cost = "cpu_us_per_message" if result["call_mode"] == "streaming" else "cpu_us_per_call"
    costs = [report["processes"].get(key, {}).get(cost, 0) for report in result["rounds"]]
    middle = sorted(costs)[len(costs) // 2]
    return f"{100 * (max(costs) - min(costs)) / middle:.0f} %" if middle else "–"


def group_lines(key, results):
    mode, serialization, compression = key
    per = "message" if mode == "streaming" else "call"
    lines = [f"\n## {mode}, {serialization}, compression {compression}"]
    lines += table(results, f"CPU of the proxy, µs per {per} (× {BASE})", with_ratio("proxy_cpu_us", 2))
    lines += table(results, f"CPU of proxy and provider together, µs per {per}", sum_cell)
    lines += table(results, f"{per.capitalize()}s per second (× {BASE})", with_ratio("qps", 0))
    lines += table(results, "Median latency of a call, ms; behind a proxy: what it adds", added_cell)
    lines += table(results, "99th percentile, ms", with_ratio("latency_p99_ms", 3))
    lines += table(results, "Peak memory, MB", with_ratio("memory_peak_mb", 1))
    lines += table(results, "Spread of the CPU figure between rounds", spread_cell)
    return lines


def facts_lines(out, results):
    path = out / "environment.json"
    facts = json.loads(path.read_text()) if path.exists() else {}
    lines = ["# Benchmark report\n"]
    if facts:
        lines.append(
            f"{facts['when']}; {facts['cpu']}, {facts['cores']} cores, Linux {facts['kernel']}; "
            f"{facts['rounds']} interleaved rounds of {facts['seconds_per_run']} s, medians; load "
            f"average at the end {facts['load_average']:.1f}. `{facts['command']}`\n"
        )
    lines.append("| framework | unary calls reach the provider as | version |\n|---|---|---|")
    seen = {}
    for result in sorted(results, key=rank):
        if result["call_mode"] == "unary" or result["framework"] not in seen:
            seen[result["framework"]] = f"| {result['framework']} | {result['form']} | {result['version']} |"
    lines += seen.values()
    for name, why in facts.get("failed", {}).items():
        lines.append(f"\n**FAILED** {name}: `{why[:300]}`")
    return lines


# ---- plots ----


def plots(out, results):
    """One figure per group: CPU per call and calls per second over payloads. Their files' names."""
    try:
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot as plt
    except ImportError:
        return []
    files = []
    for key, group in groups_of(results).items():
        least = min(result["concurrency"] for result in group)
        shown = [result for result in group if result["concurrency"] == least]
        figure, axes = plt.subplots(1, 2, figsize=(11, 4))
        draw(axes[0], [r for r in shown if r["proxy_cpu_us"]], "proxy_cpu_us", "proxy CPU, µs per call")
        draw(axes[1], shown, "qps", "per second")
        figure.suptitle(f"{', '.join(key)}, {least} in flight")
        figure.tight_layout()
        stem = "plot_" + "_".join(key)
        for suffix in ("png", "svg"):
            figure.savefig(out / f"{stem}.{suffix}", dpi=110)
        plt.close(figure)
        files.append(stem)
    return files


def draw(axes, results, key, label):
    for name in frameworks_of(results):
        line = [(r["payload_size"], r[key]) for r in results if r["framework"] == name]
        axes.plot(*zip(*sorted(line)), marker="o", label=name)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel("payload, bytes")
    axes.set_ylabel(label)
    axes.grid(True, alpha=0.3)
    if axes.lines:
        axes.legend(fontsize=7)


# ---- benchstat ----


def benchstat_lines(results):
    """A line per round, so that benchstat can tell noise from difference:
    benchstat -col /framework benchstat.txt"""
    for result in results:
        name = "/".join(
            [
                "BenchmarkCall",
                f"framework={result['framework']}",
                f"payload={result['payload_size']}",
                f"ser={result['serialization']}",
                f"comp={result['compression']}",
                f"c={result['concurrency']}",
                f"mode={result['call_mode']}",
            ]
        )
        stream = result["call_mode"] == "streaming"
        cost, rate, count = (
            ("cpu_us_per_message", "messages_per_s", "messages")
            if stream
            else ("cpu_us_per_call", "qps", "calls")
        )
        for report in result["rounds"]:
            cells = [f"{name}-1", f"{max(1, int(report[count]))}"]
            for process, spent in report["processes"].items():
                cells += [f"{spent[cost]:.4f}", f"{process}-us/op"]
            cells += [f"{report[rate]:.1f}", "ops/s"]
            cells += [f"{report['latency_p99_ms']:.4f}", "p99-ms"]
            yield " ".join(cells)


def write(out):
    out = pathlib.Path(out)
    results = read(out)
    lines = facts_lines(out, results)
    for stem in plots(out, results):
        lines.append(f"\n![{stem}]({stem}.svg)")
    for key, group in groups_of(results).items():
        lines += group_lines(key, group)
    (out / "report.md").write_text("\n".join(lines) + "\n")
    (out / "benchstat.txt").write_text("\n".join(benchstat_lines(results)) + "\n")
