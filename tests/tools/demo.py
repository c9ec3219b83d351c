#!/usr/bin/python3
"""./dev run: the main job end to end, without any other language.

Starts the echo provider and the proxy, makes unary and streaming gRPC calls through it, prints what
was on the wire on each side, then a few thousand calls and where their microseconds went, by the
proxy's own /stats. Leaves with 1 when any call was not exactly right.
"""

import argparse
import contextlib
import json
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

SHOWN = "tributary.demo.Echo"  # recorded
LOADED = "tributary.load.Echo"  # not recorded: writing lines would be in the figures

CONFIG = """[proxy]
workers = 1
admin = 127.0.0.1:{admin}
log_level = warn

[listener main]
address = 127.0.0.1:{port}

[upstream shown]
endpoints = {shown}

[upstream loaded]
endpoints = {loaded}

[route demo]
match = /{SHOWN}/*
upstream = shown

[route load]
match = /{LOADED}/*
upstream = loaded
"""

# title, method, arguments of echo-caller
CALLS = [
    ("A unary call: gRPC framing comes in, a bare body with its length goes out", "Say",
     ["--text", "hello", "--metadata", "x-user=ada", "--deadline-ms", "2000"]),
    ("A failing unary call: a JSON error comes back, a gRPC status goes on", "Fail",
     ["--text", "code=5 text=no such greeting", "--expect-status", "5"]),
    ("A server stream: one whole message could be unary, so it is tried bare, refused (415), and learnt;"
     " then framed, each message passed on at once", "Down",
     ["--type", "server", "--text", "count=3 size=8"]),
    ("A client stream", "Up", ["--type", "client", "--messages", "3", "--size", "20"]),
    ("A bidirectional stream, each message after the echo of the last", "Chat",
     ["--type", "bidi", "--messages", "2", "--size", "20", "--lockstep"]),
]

# of /stats, in the order in which a call passes them
PHASES = [
    ("queue_us", "waiting for a connection and a stream"),
    ("request_us", "request: from its last byte read to its last byte written"),
    ("upstream_us", "upstream: the provider and the way there and back"),
    ("response_us", "response: from its last byte read to its last byte written"),
    ("overhead_us", "what the proxy added: queue + request + response"),
    ("total_us", "all of it"),
]


class Console:
    def __init__(self, colour):
        self.colour = colour

    def paint(self, code, text):
        return f"\033[{code}m{text}\033[0m" if self.colour else text

    def title(self, text):
        print("\n" + self.paint("1", f"== {text}"), flush=True)

    def note(self, text):
        print(self.paint("2", text), flush=True)

    def frame(self, line):
        """One record line: '<ms> recv|send c<n> s<n> TYPE …'."""
        match = re.match(r"([\d.]+) (recv|send) (c\d+) (.*)", line)
        _, direction, _, rest = match.groups()
        arrow = "-->" if direction == "send" else "<--"
        kind, *fields = rest.split(" | ")
        print("   " + self.paint("36" if direction == "send" else "33", f"{arrow} {kind}"))
        for field in fields:
            print(f"          {field}")


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return sock.getsockname()[1]


@contextlib.contextmanager
def running(command, **options):
    process = subprocess.Popen([str(part) for part in command], **options)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if process.stdout:
            process.stdout.close()


def ready_address(process):
    words = process.stdout.readline().split()
    if len(words) != 2 or words[0] != "READY":
        sys.exit("the provider did not start")
    return words[1]


def wait_until_ready(admin, proxy, seconds=20):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if proxy.poll() is not None:
            sys.exit(f"the proxy ended with {proxy.returncode} at start")
        with contextlib.suppress(OSError):
            with urllib.request.urlopen(f"http://127.0.0.1:{admin}/ready", timeout=1) as reply:
                if reply.status == 200 and proxy.poll() is None:
                    return
        time.sleep(0.05)
    sys.exit("the proxy is not ready")


def stats(admin):
    with urllib.request.urlopen(f"http://127.0.0.1:{admin}/stats", timeout=5) as reply:
        return json.load(reply)


def of_streams(lines):
    """What belongs to calls: not SETTINGS, PING, WINDOW_UPDATE and the like."""
    return [line for line in lines if re.search(r" s\d+ (HEADERS|DATA|RST_STREAM) ", line)]


class NewLines:
    """The lines that a file has grown by since the last look."""

    def __init__(self, path):
        self.path = path
        self.at = 0

    def take(self):
        text = self.path.read_text()[self.at :] if self.path.exists() else ""
        whole = text[: text.rfind("\n") + 1]
        self.at += len(whole)
        return whole.splitlines()


def call(tools, port, service, method, args):
    """Runs echo-caller; true when it found every reply right."""
    command = [tools / "echo-caller", "--target", f"127.0.0.1:{port}"]
    command += ["--method", f"/{service}/{method}", "--authority", "demo.example", *args]
    return subprocess.run([str(part) for part in command], check=False).returncode == 0


def show_calls(console, tools, port, folder):
    """Makes each call of CALLS and shows both records of it."""
    provider_side = NewLines(folder / "provider")
    right = True
    for title, method, args in CALLS:
        record = folder / f"caller-{method}"
        console.title(title)
        right = call(tools, port, SHOWN, method, [*args, "--record", record]) and right
        time.sleep(0.1)  # the provider's last line
        console.note(" the caller's side (gRPC)")
        for line in of_streams(record.read_text().splitlines()):
            console.frame(line)
        console.note(" the provider's side (Triple)")
        for line in of_streams(provider_side.take()):
            console.frame(line)
    return right


def show_microseconds(console, admin, calls):
    console.title(f"Where the microseconds of {calls} calls went, by /stats (10 calls in flight)")
    route = stats(admin)["routes"]["load"]
    paths = ", ".join(f"{name} {count}" for name, count in route["path"].items() if count)
    print(f"   calls by path: {paths}; by status: {route['status']}")
    print(f"   {'':<12}{'p50':>9}{'p90':>9}{'p99':>9}{'max':>9}")
    for key, meaning in PHASES:
        h = route[key]
        cells = "".join(f"{h[p]:>9.0f}" for p in ("p50", "p90", "p99", "max"))
        print(f"   {key[:-3]:<12}{cells}   {meaning}")


def proxy_cpu_us(pid):
    """CPU time of all threads so far, from /proc."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 10_000


def main():
    parser = argparse.ArgumentParser(description="The main job, shown end to end.")
    parser.add_argument("--build", required=True, type=pathlib.Path, help="build folder")
    parser.add_argument("--calls", type=int, default=20000, help="calls of the timed part")
    parser.add_argument("--no-colour", action="store_true")
    options = parser.parse_args()
    # TERM must end what was started, too: as an exception it leaves the with block
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    tools = options.build / "tests" / "tools"
    console = Console(sys.stdout.isatty() and not options.no_colour)
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        pipe = {"stdout": subprocess.PIPE, "text": True}
        shown = stack.enter_context(
            running([tools / "echo-provider", "--record", folder / "provider"], **pipe))
        loaded = stack.enter_context(running([tools / "echo-provider", "--service", LOADED], **pipe))
        port, admin = free_port(), free_port()
        address = ready_address(shown)
        config = folder / "demo.ini"
        config.write_text(CONFIG.format(port=port, admin=admin, shown=address,
                                        loaded=ready_address(loaded), SHOWN=SHOWN, LOADED=LOADED))
        proxy = stack.enter_context(running([options.build / "tributary", "-c", config]))
        wait_until_ready(admin, proxy)
        console.note(f"echo-caller -> tributary 127.0.0.1:{port} -> echo-provider {address}, with\n")
        console.note(config.read_text())
        right = show_calls(console, tools, port, folder)
        if not right:
            sys.exit("\nSOME REPLIES WERE WRONG")
        before = proxy_cpu_us(proxy.pid)
        load = ["--size", "128", "--count", options.calls, "--concurrency", "10"]
        console.title("Load")
        right = call(tools, port, LOADED, "Say", load) and right
        spent = proxy_cpu_us(proxy.pid) - before
        show_microseconds(console, admin, options.calls)
        print(f"   CPU of the proxy: {spent / options.calls:.1f} us a call")
    print("\n" + ("every reply was right" if right else "SOME REPLIES WERE WRONG"))
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
