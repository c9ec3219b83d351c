"""Where the load generator is, and one run of it."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile

from bench_targets import pinned

HERE = pathlib.Path(__file__).resolve().parent


def parse_size(text):
    """128, 128B, 16K, 16KB, 16KiB, 1M …; always in powers of 1024."""
    found = re.fullmatch(r"(\d+)(?:([KM])i?)?B?", text)
    if not found:
        raise ValueError(f"{text!r} is no size: 128, 16K, 1M")
    return int(found[1]) * {None: 1, "K": 1024, "M": 1024 * 1024}[found[2]]


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


def add_machine(parser):
    """The options that say with which build, and on which cores."""
    parser.add_argument("--build", help="build folder of the project; default $TRIBUTARY_BUILD, else the tools are built")
    parser.add_argument("--proxy-core", type=int, default=0)
    parser.add_argument("--load-core", type=int, default=1)


def use_cores(options):
    """A machine of one core has none to choose."""
    if (os.cpu_count() or 1) < 2:
        options.proxy_core = options.load_core = None


def load(folder, core, target, args):
    """One run of loadgen against a target; its report. Raises when any reply was wrong."""
    command = [str(folder / "loadgen"), "--target", target.address]
    command += ["--label", target.name, *map(str, [*target.load_args, *args])]
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


def can_count_syscalls():
    return shutil.which("strace") is not None


def count_syscalls(folder, core, target, args, calls):
    """(system calls per call, {name: per call} of each kind) of a proxy, by strace. It slows the proxy down, so
    that more merges: a lower bound."""
    with tempfile.NamedTemporaryFile("r") as out:
        trace = subprocess.Popen(
            ["strace", "-c", "-f", "-o", out.name, "-p", str(target.pid)], stderr=subprocess.PIPE
        )
        trace.stderr.readline()  # "attached"
        try:
            load(folder, core, target, [*args, "--warmup-count", "1", "--count", calls])
        finally:
            trace.send_signal(signal.SIGINT)
            trace.wait(30)
            trace.stderr.close()
        text = out.read()
    total = re.search(r"^100\.00\s+\S+\s+(?:\S+\s+)?(\d+)\s+(?:\d+\s+)?total$", text, re.M)
    rows = re.findall(r"^\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+)\s+(?:\d+\s+)?(\w+)$", text, re.M)
    if not total:
        raise RuntimeError(f"strace said: {text}")
    return int(total.group(1)) / calls, {name: int(count) / calls for count, name in rows if name != "total"}
