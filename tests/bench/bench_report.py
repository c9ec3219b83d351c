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


def is_real(result):
    """Calls of a real provider: compared with that provider called directly, not with proxies of the stub."""
    return result.get("baseline", "direct") != "direct"


def rank(result):
    """Direct first, tributary next, then the others; real providers each with what stands before them."""
    name = result["framework"]
    if is_real(result):
        return (3, result["baseline"], name != result["baseline"], name)
    return (0 if name.startswith("direct") else 1 if name.startswith("tributary") else 2, name)


def base_of(result, row):
    return row.get(result["baseline"] if is_real(result) else BASE)


# ---- tables ----


def number(value, digits):
    return "–" if value is None else f"{value:.{digits}f}"


def with_ratio(result, row, key, digits):
    """A figure and its ratio to the base's, which stands alone."""
    value, base = result[key], base_of(result, row)
    if not value:
        return "–"
    ratio = f" ({value / base[key]:.2f})" if base and base[key] and base is not result else ""
    return f"{value:.{digits}f}{ratio}"


def added_cell(result):
    value = result.get("latency_added_p50_ms")
    return "–" if value is None else f"{value:+.3f}"


def spread_cell(result):
    key = "proxy" if result["cpu_of"] == "proxy" else "provider"
    cost = "cpu_us_per_message" if result["call_mode"] == "streaming" else "cpu_us_per_call"
    costs = [report["processes"].get(key, {}).get(cost, 0) for report in result["rounds"]]
    middle = sorted(costs)[len(costs) // 2]
    return f"{100 * (max(costs) - min(costs)) / middle:.0f} %" if middle else "–"


def rows_of(results, real):
    row = {result["framework"]: result for result in results}
    for result in sorted(results, key=rank):
        if is_real(result) != real:
            continue
        both = result["proxy_cpu_us"] + result["provider_cpu_us"]
        base = base_of(result, row)
        ratio = ""
        if real and base is not result and base:
            ratio = f" ({both / (base['proxy_cpu_us'] + base['provider_cpu_us']):.2f})"
        cells = [
            result["framework"],
            number(result["proxy_cpu_us"], 2) if real else with_ratio(result, row, "proxy_cpu_us", 2),
            number(result["provider_cpu_us"], 2),
            f"{both:.2f}{ratio}",
            with_ratio(result, row, "messages_per_s" if result["call_mode"] == "streaming" else "qps", 0),
            number(result["latency_p50_ms"], 3),
            added_cell(result),
            number(result["latency_p99_ms"], 3),
            number(result["latency_p999_ms"], 3),
            number(result.get("syscalls_per_call"), 2),
            number(result["memory_peak_mb"], 1),
            spread_cell(result),
        ]
        yield "| " + " | ".join(cells) + " |"


def point_lines(point, results):
    """One payload and concurrency: what proxies cost before the stub, then real providers."""
    per = "message" if point[0] == "streaming" else "call"
    lines = [f"\n### {size_text(point[3])}, {point[4]} in flight"]
    for real in (False, True):
        rows = list(rows_of(results, real))
        if rows:
            base = "direct" if real else BASE
            lines.append(
                f"\n| {'real provider' if real else 'stub provider'} | proxy CPU, µs per {per} | provider CPU | both "
                f"| {per}s/s | p50, ms | added p50 | p99 | p99.9 | system calls | peak MB | spread |"
            )
            lines.append("|---" * 12 + "|")
            lines += rows
            lines.append(f"\nIn brackets: × {base}.")
    return lines


def group_lines(key, results):
    mode, serialization, compression = key
    lines = [f"\n## {mode}, {serialization}, compression {compression}"]
    points = {}
    for result in results:
        points.setdefault(point_of(result), []).append(result)
    for point, group in points.items():
        lines += point_lines(point, group)
    return lines


def facts_lines(out, results):
    path = out / "environment.json"
    facts = json.loads(path.read_text()) if path.exists() else {}
    lines = ["# Benchmark report\n"]
    if facts:
        lines.append(
            f"{facts['when']}; {facts['cpu']}, {facts['cores']} cores, Linux {facts['kernel']}; "
            f"the {facts.get('grid', 'slice')}, {facts.get('minutes', '?')} minutes: "
            f"{facts['rounds']} interleaved rounds of {facts['seconds_per_run']} s, medians; load "
            f"average at the end {facts['load_average']:.1f}. `{facts['command']}`\n"
        )
    lines.append(
        "CPU is that of the process, all threads, by its clock. Latencies of a closed loop are those of a "
        "saturated machine: half_load.py measures them at half load. Peak memory and spread (of the CPU "
        "figure between rounds) are the proxy's, else the provider's. System calls are counted under strace, "
        "which merges more: a lower bound.\n"
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

OURS, OTHERS, PROVIDER = "#1f6fb4", "#9aa0a6", "#d8a657"


def plots(out, results):
    """Two or three figures per group, at its lowest concurrency, a panel for each payload. Their files' names."""
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
        rate = "messages_per_s" if key[0] == "streaming" else "qps"
        per = "message" if key[0] == "streaming" else "call"
        stub = [result for result in shown if not is_real(result)]
        figures = (
            ("cpu", f"CPU of the proxy, µs per {per}", [r for r in stub if r["proxy_cpu_us"]], ["proxy_cpu_us"]),
            ("rate", f"{per}s per second", stub, [rate]),
            ("real", f"real providers: CPU, µs per {per}", [r for r in shown if is_real(r)],
             ["proxy_cpu_us", "provider_cpu_us"]),
        )
        for what, title, chosen, keys in figures:
            if not chosen:
                continue
            stem = "plot_" + "_".join([*key, what])
            base = "the provider called directly" if what == "real" else BASE
            title += f"; in brackets × {base}\n{', '.join(key[:2])}, compression {key[2]}, {least} in flight"
            figure = panels(plt, chosen, keys, title)
            for suffix in ("png", "svg"):
                figure.savefig(out / f"{stem}.{suffix}", dpi=110, bbox_inches="tight")
            plt.close(figure)
            files.append(stem)
    return files


def panels(plt, results, keys, title):
    sizes = sorted({result["payload_size"] for result in results})
    names = list(dict.fromkeys(result["framework"] for result in sorted(results, key=rank)))
    columns = min(2, len(sizes))
    lines = -(-len(sizes) // columns)
    height = (0.9 + 0.27 * len(names)) * lines + 0.8
    figure, grid = plt.subplots(lines, columns, figsize=(6.2 * columns, height), squeeze=False, sharey=True)
    for axes, size in zip(grid.flat, sizes):
        row = {result["framework"]: result for result in results if result["payload_size"] == size}
        bars(axes, names, row, keys)
        axes.set_title(size_text(size), fontsize=10, loc="left", fontweight="bold")
    for axes in list(grid.flat)[len(sizes) :]:
        axes.set_visible(False)
    figure.suptitle(title, fontsize=11, x=0.02, ha="left")
    figure.tight_layout()
    if len(keys) > 1:
        handles = [plt.Rectangle((0, 0), 1, 1, color=color) for color in (OURS, PROVIDER)]
        figure.legend(handles, ["proxy", "provider"], loc="upper right", fontsize=9, frameon=False, ncols=2)
    return figure


def bars(axes, names, row, keys):
    """Horizontal bars, a name each, value and ratio written behind them."""
    longest = max(sum(result[key] for key in keys) for result in row.values())
    for at, name in enumerate(names):
        result = row.get(name)
        if not result:
            continue
        left = 0
        for key in keys:
            ours = name.startswith("tributary")
            color = PROVIDER if key == "provider_cpu_us" else OURS if ours else OTHERS
            axes.barh(at, result[key], left=left, height=0.72, color=color)
            left += result[key]
        base = base_of(result, row)
        whole = base and sum(base[key] for key in keys)
        ratio = f"  ({left / whole:.2f} ×)" if whole and base is not result else ""
        digits = 0 if longest >= 1000 else 1
        axes.text(left + longest * 0.01, at, f"{left:,.{digits}f}{ratio}", va="center", fontsize=8)
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_xlim(0, longest * 1.28)
    axes.tick_params(axis="x", labelsize=8)
    axes.grid(True, axis="x", alpha=0.25)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


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
