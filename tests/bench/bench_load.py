"""Where the load generator is, and one run of it."""

import json
import os
import pathlib
import subprocess
import tempfile

from bench_targets import pinned

HERE = pathlib.Path(__file__).resolve().parent


def parse_size(text):
    factor = {"K": 1024, "M": 1024 * 1024}.get(text[-1], 1)
    return int(text.rstrip("KM")) * factor


def find_build(given=None):
    """The folders of loadgen and echo-provider: of the project's build folder, or built here."""
    given = given or os.environ.get("TRIBUTARY_BUILD")
    if given:
        build = pathlib.Path(given).resolve()
        return build / "tests" / "bench", build / "tests" / "tools"
    build = pathlib.Path(tempfile.gettempdir()) / f"tributary-bench-{os.getuid()}"
    subprocess.run(["cmake", "-S", HERE, "-B", build, "-G", "Ninja"], check=True, capture_output=True)
    subprocess.run(["ninja", "-C", build], check=True, capture_output=True)
    return build, build / "tools"


def load(folder, core, target, args):
    """One run of loadgen against a target; its report. Raises when any reply was wrong."""
    command = [str(folder / "loadgen"), "--target", target.address]
    command += ["--label", target.name, *target.load_args, *map(str, args)]
    if target.provider and target.provider.pid:
        command += ["--pid", f"provider={target.provider.pid}"]
    if target.pid:
        command += ["--pid", f"proxy={target.pid}"]
    done = subprocess.run(pinned(core, command), capture_output=True, text=True, timeout=900)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr}{done.stdout}")
    return json.loads(done.stdout)


def prime(folder, core, target, args=()):
    """Two calls, one after the other: a proxy that learns (call = auto) has then learnt what the
    method is. Without it, the first hundred calls of 1 MiB, all at once, would show the learning."""
    load(folder, core, target, ["--connections", 1, "--in-flight", 1, "--warmup-count", 1, "--count", 1, *args])
