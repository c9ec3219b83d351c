#!/usr/bin/python3
"""The regression gate: instructions per call by callgrind, against the figures in figures.txt.

    TRIBUTARY_BUILD=build/release python3 -m pytest tests/bench/gate
    tests/bench/gate/test_gate.py --build build/release [--renew]

Counts, not times: two runs on two machines with the same compiler and libraries agree. Figures
that were made with others prove nothing, so then the test is skipped and says so.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
FIGURES = HERE / "figures.txt"
TOLERANCE = 0.03
BATCHES = (2, 6)
CALLS_A_BATCH = 100
CASES = (
    "grpc_to_bare_128",
    "grpc_to_bare_auto_128",
    "grpc_to_bare_16k",
    "grpc_to_framed_128",
    "triple_to_bare_128",
)


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def made_with():
    """What the number of instructions depends on beside our code."""
    compiler = output("cc", "-dumpfullversion")
    machine = output("cc", "-dumpmachine")
    nghttp2 = output("pkg-config", "--modversion", "libnghttp2")
    libc = output("getconf", "GNU_LIBC_VERSION")
    return f"{machine}, cc {compiler}, nghttp2 {nghttp2}, {libc}"


def collected(gate, case, batches):
    run = subprocess.run(
        [
            "valgrind",
            "--tool=callgrind",
            "--collect-atstart=no",
            "--toggle-collect=into_worker",
            "--callgrind-out-file=/dev/null",
            str(gate),
            case,
            str(batches),
        ],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return int(re.search(r"Collected : (\d+)", run.stderr)[1])


def per_call(gate, case):
    few, many = (collected(gate, case, batches) for batches in BATCHES)
    return (many - few) / ((BATCHES[1] - BATCHES[0]) * CALLS_A_BATCH)


def stored():
    figures = {}
    for line in FIGURES.read_text().splitlines():
        if line and not line.startswith("#"):
            name, _, value = line.partition(" = ")
            figures[name] = value
    return figures


def gate_of(build):
    gate = pathlib.Path(build) / "tests" / "bench" / "gate" / "gate"
    cache = pathlib.Path(build) / "CMakeCache.txt"
    release = cache.exists() and "CMAKE_BUILD_TYPE:STRING=Release" in cache.read_text()
    return gate if gate.exists() and release else None


@pytest.mark.parametrize("case", CASES)
def test_a_call_costs_no_more_instructions_than_stored(case):
    gate = gate_of(os.environ.get("TRIBUTARY_BUILD", HERE.parents[2] / "build" / "release"))
    if not gate:
        pytest.skip("needs a release build with its tests (TRIBUTARY_BUILD)")
    if not shutil.which("valgrind"):
        pytest.skip("needs valgrind")
    figures = stored()
    if figures.get("made with") != made_with():
        pytest.skip(f"figures were made with {figures.get('made with')}; here is {made_with()}")
    before, now = int(figures[case]), per_call(gate, case)
    change = now / before - 1
    assert abs(change) <= TOLERANCE, (
        f"{case}: {now:.0f} instructions per call, {before} are stored: {100 * change:+.1f} %, "
        f"{100 * TOLERANCE:.0f} % are allowed. "
        + ("Find what made the call path dearer (README.md tells how), or, if it is worth it, renew "
           "the figures in the same commit and say why."
           if change > 0 else "It got cheaper: renew the figures in the same commit.")
    )


def test_every_case_of_the_program_is_gated():
    gate = gate_of(os.environ.get("TRIBUTARY_BUILD", HERE.parents[2] / "build" / "release"))
    if not gate:
        pytest.skip("needs a release build with its tests (TRIBUTARY_BUILD)")
    assert tuple(output(str(gate)).split()) == CASES


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", default=os.environ.get("TRIBUTARY_BUILD", "build/release"))
    parser.add_argument("--renew", action="store_true", help="write figures.txt")
    options = parser.parse_args()
    gate = gate_of(options.build)
    if not gate:
        sys.exit(f"{options.build} is no release build with its tests")
    head = FIGURES.read_text().splitlines()[0]
    lines, before = [head, f"made with = {made_with()}"], stored()
    for case in CASES:
        now = per_call(gate, case)
        lines.append(f"{case} = {now:.0f}")
        print(f"{case}: {now:.0f} (stored: {before.get(case, 'none')})", flush=True)
    if options.renew:
        FIGURES.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
