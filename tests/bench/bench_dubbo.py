"""A real dubbo-go provider as the provider of the benchmarks, and the grpc-go client beside it.

Owns: building the two Go programs (tests/interop/go) into the build folder, and the provider's process,
with the same face as bench_targets.Provider. Failure modes: no Go or no modules is a SystemExit that
says so; a provider that does not come up is a RuntimeError.
"""

import json
import os
import pathlib
import select
import shutil
import signal
import subprocess
import sys
import time

from bench_targets import end, pinned

SOURCE = pathlib.Path(__file__).resolve().parents[1] / "interop" / "go"
METHOD = "/tributary.interop.Echo/Say"
LOAD_ARGS = ["--method", METHOD, "--proto-field", "2"]  # for loadgen: messages that it takes and sends back
PROGRAMS = ("dubbo-provider", "bench-client")
ANSWER_SECONDS = 20


def build(folder):
    """{name: path} of the Go programs, built into FOLDER/interop/go."""
    go = shutil.which("go")
    if not go:
        sys.exit("Go is not installed: this benchmark needs a real dubbo-go provider")
    out = pathlib.Path(folder) / "interop" / "go"
    out.mkdir(parents=True, exist_ok=True)
    env = dict(os.environ, GOFLAGS="-mod=readonly -buildvcs=false", GOTOOLCHAIN="local", CGO_ENABLED="0")
    command = [go, "build", "-p", "2", "-o", f"{out}/", *(f"./cmd/{name}" for name in PROGRAMS)]
    done = subprocess.run(command, cwd=SOURCE, env=env, capture_output=True, text=True, timeout=1500)
    if done.returncode:
        sys.exit(f"the Go programs cannot be built: {done.stdout}{done.stderr}"[-1500:])
    return {name: out / name for name in PROGRAMS}


class DubboGo:
    """dubbo-provider on a port of its own, every Say echoed exactly after `delay` (Go's notation)."""

    def __init__(self, program, core, delay="0s"):
        command = [str(program), "--exact-echo", "--delay", delay]
        self.process = subprocess.Popen(pinned(core, command), stdout=subprocess.PIPE)
        self.rest = b""
        try:
            self.port = int(self.line().rpartition(":")[2])
        except Exception:
            self.stop()
            raise
        self.pid = self.process.pid

    def line(self):
        """The next line of its output, within a time limit: it may have died or hang."""
        end_at = time.monotonic() + ANSWER_SECONDS
        descriptor = self.process.stdout.fileno()
        while b"\n" not in self.rest:
            ready, _, _ = select.select([descriptor], [], [], max(0, end_at - time.monotonic()))
            more = os.read(descriptor, 65536) if ready else b""
            if not more:
                raise RuntimeError("the dubbo-go provider does not answer")
            self.rest += more
        first, _, self.rest = self.rest.partition(b"\n")
        return first.decode()

    def counts(self):
        """Sums since its start: calls, framed, bare, gzip_in, gzip_offers, mallocs, alloc_bytes, …"""
        self.process.send_signal(signal.SIGUSR1)
        return json.loads(self.line())

    def stop(self):
        end(self.process)
        self.process.stdout.close()
