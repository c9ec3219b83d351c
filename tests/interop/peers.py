"""Real peers for the interop tests: building them, starting and stopping them, and the proxy between.

Used by test_go.py and by the tests of other languages beside it. What is here:

    need(condition, reason)      skip by name on a machine that lacks something; with CI=true fail
    build_folder()               where programs are built: $TRIBUTARY_BUILD/interop, never the tree
    Process                      a started program: its READY line, its output, stop by pid
    Provider                     a Process that can be killed and started again on its port
    Proxy                        the binary $TRIBUTARY_BIN with a generated INI file: stats, reload
    case_lines, check_case       the JSON lines that a client program prints, one a case
    go_programs (fixture)        the Go programs of tests/interop/go, built once
    go_provider (fixture)        a dubbo-go provider of the Echo service

A peer in another language is a function that builds it into build_folder() once (see built_once), and
a Provider with its command line. Every provider takes --port N (0 picks one), prints
"READY 127.0.0.1:PORT" on stdout once it accepts connections, and leaves with 0 on SIGTERM.
"""
import contextlib
import fcntl
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
GO_SOURCE = HERE / "go"
GO_PROGRAMS = ("dubbo-provider", "graceful-provider", "grpc-client", "dubbo-client", "load-client")
START_SECONDS = 30
BUILD_SECONDS = 1500


def need(condition, reason):
    """Skips the test when condition is false; where CI=true that is a failure, since CI has it all."""
    if condition:
        return
    if os.environ.get("CI") == "true":
        pytest.fail(f"{reason} (with CI=true this must not be missing)", pytrace=False)
    pytest.skip(reason)


# --- building -------------------------------------------------------------------------------------

_temporary = None


def build_folder():
    """Folder for built programs; kept between runs when $TRIBUTARY_BUILD names one."""
    global _temporary
    named = os.environ.get("TRIBUTARY_BUILD")
    if named:
        folder = Path(named).resolve() / "interop"
    else:
        if _temporary is None:
            _temporary = tempfile.TemporaryDirectory(prefix="tributary-interop-")
        folder = Path(_temporary.name)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextlib.contextmanager
def built_once(name):
    """Holds a lock of that name, so that test runs side by side do not build the same thing twice."""
    with open(build_folder() / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def run_tool(command, cwd, env=None, timeout=BUILD_SECONDS):
    """Runs a build tool; returns (exit code, its output)."""
    done = subprocess.run(command, cwd=cwd, env=env, timeout=timeout, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.returncode, done.stdout


def _version(text):
    found = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", text)
    return tuple(int(part or 0) for part in found.groups()) if found else (0, 0, 0)


def _go_environment():
    # The tree's go.sum is law, and a Go that is too old must say so instead of fetching another.
    return dict(os.environ, GOFLAGS="-mod=readonly -buildvcs=false", GOTOOLCHAIN="local", CGO_ENABLED="0")


def build_go_programs(source=GO_SOURCE, names=GO_PROGRAMS, packages=("./cmd/...",), what="Go interop"):
    """Builds a Go module; returns {name: path}. Skips where Go or its modules are missing."""
    go = shutil.which("go")
    need(go, f"Go is not installed: the {what} tests need it")
    wanted = re.search(r"^go (\S+)$", (source / "go.mod").read_text(), re.M).group(1)
    code, have = run_tool([go, "env", "GOVERSION"], cwd="/", env=_go_environment())
    need(code == 0 and _version(have) >= _version(wanted),
         f"Go {wanted} or later is needed for the {what} tests, this machine has {have.strip()}")
    folder = build_folder() / source.parent.name if source != GO_SOURCE else build_folder() / "go"
    with built_once(folder.name):
        code, output = run_tool([go, "list", "-deps", *packages], cwd=source, env=_go_environment())
        need(code == 0, f"the {what} tests' modules are not to be had: {output[-500:]}")
        folder.mkdir(exist_ok=True)
        code, output = run_tool([go, "build", "-p", "2", "-o", f"{folder}/", *packages],
                                cwd=source, env=_go_environment())
        assert code == 0, f"go build failed:\n{output}"
    return {name: str(folder / name) for name in names}


def tributary_binary():
    """Path of the proxy under test."""
    path = os.environ.get("TRIBUTARY_BIN", "")
    need(path and os.access(path, os.X_OK), "TRIBUTARY_BIN does not name the proxy's binary")
    return str(Path(path).resolve())


# --- processes ------------------------------------------------------------------------------------

class Process:
    """A program with its output in memory. stop() is safe to call twice."""

    def __init__(self, command, name, env=None):
        self.name = name
        self.command = [str(part) for part in command]
        self.lines, self.errors = [], []
        self.popen = subprocess.Popen(self.command, env=env, text=True, errors="replace",
                                      stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                      stderr=subprocess.PIPE)
        self._readers = [threading.Thread(target=self._read, args=pair, daemon=True)
                         for pair in ((self.popen.stdout, self.lines), (self.popen.stderr, self.errors))]
        for reader in self._readers:
            reader.start()

    @staticmethod
    def _read(stream, into):
        for line in stream:
            into.append(line.rstrip("\n"))

    @property
    def pid(self):
        return self.popen.pid

    def running(self):
        return self.popen.poll() is None

    def wait_for(self, condition, what, seconds=START_SECONDS):
        """Polls condition() while the program runs; its value when true."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            value = condition()
            if value:
                return value
            assert self.running(), f"{self.name} left with {self.popen.returncode} before {what}:\n{self.output()}"
            time.sleep(0.02)
        raise AssertionError(f"{self.name}: no {what} in {seconds} s:\n{self.output()}")

    def ready_address(self):
        """The address of the READY line."""
        def line():
            return next((text.split()[1] for text in list(self.lines) if text.startswith("READY ")), None)
        return self.wait_for(line, "READY line")

    def output(self, last=60):
        return "\n".join((self.lines + self.errors)[-last:])

    def send(self, number):
        self.popen.send_signal(number)

    def stop(self, number=signal.SIGTERM, seconds=15):
        """Sends the signal and waits; kills what does not go. Returns the exit code."""
        if self.running():
            self.send(number)
            try:
                self.popen.wait(seconds)
            except subprocess.TimeoutExpired:
                self.popen.kill()
                self.popen.wait()
                raise AssertionError(f"{self.name} did not leave within {seconds} s of signal {number}:\n{self.output()}")
        for reader in self._readers:
            reader.join(5)
        return self.popen.returncode


class Provider:
    """A provider program. command is all but --port."""

    def __init__(self, command, name, env=None):
        self.command, self.name, self.env = list(command), name, env
        self.process = self.address = None

    def start(self):
        port = self.address.rsplit(":", 1)[1] if self.address else "0"
        self.process = Process(self.command + ["--port", port], self.name, self.env)
        self.address = self.process.ready_address()
        return self

    def kill(self):
        """As a crash: no goodbye to its clients."""
        self.process.send(signal.SIGKILL)
        self.process.popen.wait()

    def stop(self):
        if self.process and self.process.running():
            code = self.process.stop()
            assert code == 0, f"{self.name} left with {code}:\n{self.process.output()}"


def free_ports(count):
    """Ports that were free a moment ago, all different, below those that the kernel hands out."""
    with open("/proc/sys/net/ipv4/ip_local_port_range") as file:
        above = int(file.read().split()[0])
    found = []
    for port in random.sample(range(10240, above), 100 + count):
        with socket.socket() as taken, contextlib.suppress(OSError):
            taken.bind(("127.0.0.1", port))
            found.append(port)
        if len(found) == count:
            return found
    raise AssertionError(f"no {count} free ports")


# --- the proxy ------------------------------------------------------------------------------------

def ini_text(sections):
    """{"proxy": {"workers": 1}} as an INI file; a list value repeats its key."""
    lines = []
    for section, keys in sections.items():
        lines.append(f"[{section}]")
        for key, value in keys.items():
            for each in value if isinstance(value, list) else [value]:
                lines.append(f"{key} = {each}")
        lines.append("")
    return "\n".join(lines)


class Proxy:
    """tributary with a generated configuration.

    listeners: names; each gets a port of its own and is a section [listener NAME].
    sections: the rest of the configuration as for ini_text, "proxy" included if it needs more.
    address[NAME] is the listener's HOST:PORT.
    """

    def __init__(self, listeners, sections, folder, name="tributary"):
        self.name = name
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.file = self.folder / "tributary.ini"
        self.sections = sections
        self.listeners = listeners
        self.process = None

    def start(self):
        for attempt in range(3):
            ports = free_ports(len(self.listeners) + 1)
            self.address = {name: f"127.0.0.1:{port}" for name, port in zip(self.listeners, ports)}
            self.admin = f"127.0.0.1:{ports[-1]}"
            self.write(self.sections)
            self.process = Process([tributary_binary(), "-c", self.file], self.name)
            try:
                self.process.wait_for(self.is_ready, "ready state")
                return self
            except AssertionError:
                # 2: could not start. Another process may have taken a port in between.
                if self.process.popen.poll() != 2 or attempt == 2:
                    self.process.stop(signal.SIGKILL)
                    raise
        raise AssertionError("unreachable")

    def text(self, sections):
        proxy = {"admin": self.admin, "watch": "off", "log": "stderr", **sections.get("proxy", {})}
        listeners = {f"listener {name}": {"address": address, **sections.get(f"listener {name}", {})}
                     for name, address in self.address.items()}
        rest = {key: keys for key, keys in sections.items() if key != "proxy" and key not in listeners}
        return ini_text({"proxy": proxy, **listeners, **rest})

    def write(self, sections):
        self.file.write_text(self.text(sections))

    def get(self, path):
        """(HTTP status, body) of the stats endpoint."""
        try:
            with urllib.request.urlopen(f"http://{self.admin}{path}", timeout=5) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def is_ready(self):
        try:
            return self.get("/ready")[0] == 200
        except OSError:
            return False

    def stats(self):
        status, body = self.get("/stats")
        assert status == 200, f"/stats answered {status}: {body}"
        return json.loads(body)

    def reload(self, text):
        """Writes the file, sends HUP, waits for the outcome; returns the stats' config object."""
        before = self.stats()["config"]
        self.file.write_text(text)
        self.process.send(signal.SIGHUP)

        def changed():
            now = self.stats()["config"]
            return now if now != before else None
        return self.process.wait_for(changed, "reload", 10)

    def stop(self, number=signal.SIGTERM, seconds=30):
        code = self.process.stop(number, seconds)
        assert code == 0, f"{self.name} left with {code}:\n{self.process.output()}"


# --- clients --------------------------------------------------------------------------------------

def case_lines(command, seconds=240):
    """Runs a client program that prints JSON lines; returns {case: line}."""
    done = subprocess.run([str(part) for part in command], text=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=seconds)
    assert done.returncode in (0, 1), f"{command[0]} left with {done.returncode}:\n{done.stderr[-3000:]}"
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return {line["case"]: line for line in lines}


def check_case(lines, name):
    """Asserts that the case ran and was ok."""
    assert name in lines, f"case {name} did not run; ran: {sorted(lines)}"
    line = lines[name]
    assert line["ok"], f"{name}: {json.dumps(line.get('detail'), indent=1, ensure_ascii=False)}"


# --- fixtures: import them by name into a test module ---------------------------------------------

@pytest.fixture(scope="session")
def go_programs():
    return build_go_programs()


@pytest.fixture(scope="module")
def go_provider(go_programs):
    provider = Provider([go_programs["dubbo-provider"]], "dubbo-provider").start()
    yield provider
    provider.stop()
