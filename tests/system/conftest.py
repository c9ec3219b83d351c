"""What the system tests share: the real binary, real peers, ports of their own, and no test that hangs.

    tributary(endpoints, ...)    starts the proxy with a generated INI file: a Tributary
    echo(*options)               starts tests/tools/echo-provider: an Echo (its .target is HOST:PORT)
    call(proxy, *options)        runs tests/tools/echo-caller against the proxy's listener
    free_port()                  a port that was free a moment ago
    wait_until(condition)        polls, bounded; the condition's value

Needs TRIBUTARY_BIN (the binary) and TRIBUTARY_BUILD (the build folder, for the peers). At the end of a test everything
it started is stopped by TERM and must leave with 0; a proxy that wrote anything a sanitizer or check() would write fails
the test whatever its exit code.
"""
import contextlib
import http.client
import json
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import time

import pytest

START_SECONDS = 20
STOP_SECONDS = 40
FIRST_EPHEMERAL_PORT = int(open("/proc/sys/net/ipv4/ip_local_port_range").read().split()[0])
BROKEN = re.compile(r"AddressSanitizer|LeakSanitizer|UndefinedBehaviorSanitizer|ThreadSanitizer|runtime error:|check failed:")


def _program(variable, default, *below):
    """The path of a program under a folder, or the file itself, that an environment variable names."""
    named = os.environ.get(variable)
    path = pathlib.Path(named or default).joinpath(*below).resolve()
    if not os.access(path, os.X_OK):
        pytest.fail(f"{path} is not there: set {variable} ({'now ' + named if named else 'it is not set'})", pytrace=False)
    return path


ROOT = pathlib.Path(__file__).resolve().parents[2]


def binary():
    return _program("TRIBUTARY_BIN", ROOT / "build" / "release" / "tributary")


def tool(name):
    return _program("TRIBUTARY_BUILD", ROOT / "build" / "release", "tests", "tools", name)


def wait_until_true(condition, what="the condition", seconds=10.0):
    """Polls condition() until it is true; its value. Fails after that many seconds, told what was waited for."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            pytest.fail(f"{what}: not within {seconds} s")
        time.sleep(0.01)


def find_free_port(host="127.0.0.1"):
    """A port that was free a moment ago, below those that the kernel hands out: nobody's port 0 becomes this one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for port in random.sample(range(10240, FIRST_EPHEMERAL_PORT), 100):
        with socket.socket(family) as taken, contextlib.suppress(OSError):
            taken.bind((host, port))
            return port
    raise AssertionError("a hundred ports were taken")


class Program:
    """A started program with its output in files. stop() may be called twice."""

    def __init__(self, command, folder, name, env=None):
        self.name = name
        self.out, self.err = folder / f"{name}.out", folder / f"{name}.err"
        with open(self.out, "wb") as out, open(self.err, "wb") as err:
            self.popen = subprocess.Popen([str(part) for part in command], stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                          cwd=folder, env=dict(os.environ, **(env or {})))

    @property
    def pid(self):
        return self.popen.pid

    def running(self):
        return self.popen.poll() is None

    def output(self):
        return self.out.read_text(errors="replace")

    def errors(self):
        return self.err.read_text(errors="replace")

    def said(self, pattern, seconds=START_SECONDS, stream="err"):
        """Waits for a line of its output; the match."""
        read = self.errors if stream == "err" else self.output
        end = time.monotonic() + seconds
        while True:
            ended = not self.running()  # asked first: what it wrote last is then there
            found = re.search(pattern, read(), re.M)
            if found:
                return found
            if ended or time.monotonic() > end:
                pytest.fail(f"{self.name} did not say {pattern!r} (exit code {self.popen.poll()}):\n{self.tail()}")
            time.sleep(0.01)

    def tail(self, characters=4000):
        return (self.output() + self.errors())[-characters:]

    def send(self, number):
        self.popen.send_signal(number)

    def wait(self, seconds=STOP_SECONDS):
        """Its exit code, once it has left by itself."""
        try:
            return self.popen.wait(seconds)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()
            pytest.fail(f"{self.name} is still there after {seconds} s:\n{self.tail()}")

    def stop(self, number=signal.SIGTERM, seconds=STOP_SECONDS):
        """Sends the signal, waits, checks: it left with 0."""
        if self.running():
            self.send(number)
        code = self.wait(seconds)
        assert code == 0, f"{self.name} left with {code}:\n{self.tail()}"

    def check(self):
        """Nothing in its output that only a broken program writes."""
        found = BROKEN.search(self.errors())
        assert not found, f"{self.name}: {self.errors()[max(0, found.start() - 200):found.start() + 4000]}"


class Reply:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def text(self):
        return self.body.decode()


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def split_target(target):
    """('127.0.0.1', 80) of '127.0.0.1:80' or '[::1]:80'."""
    host, _, port = target.rpartition(":")
    return host.strip("[]"), int(port)


def connect(target, seconds=10.0):
    """A blocking socket to HOST:PORT, [V6]:PORT or unix:PATH with a timeout on everything."""
    if target.startswith("unix:"):
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(seconds)
        sock.connect(target.removeprefix("unix:"))
        return sock
    return socket.create_connection(split_target(target), timeout=seconds)


def ask(target, path, method="GET", body=None, headers=None, seconds=10.0):
    """One HTTP/1.1 request on a connection of its own: a Reply."""
    if target.startswith("unix:"):
        connection = UnixConnection(target.removeprefix("unix:"), seconds)
    else:
        connection = http.client.HTTPConnection(*split_target(target), timeout=seconds)
    with contextlib.closing(connection):
        connection.request(method, path, body=body, headers=headers or {})
        reply = connection.getresponse()
        return Reply(reply.status, dict(reply.getheaders()), reply.read())


class Tributary(Program):
    """The proxy. target: where its first listener is; listeners: {name: [addresses]}; admin, probe: addresses."""

    def __init__(self, file, folder, name, admin, probe, env):
        self.file, self.admin, self.probe = file, admin, probe
        super().__init__([binary(), "-c", file], folder, name, env)
        self.listeners = {}

    def await_start(self):
        self.said(r"msg=\"?tributary [0-9]", START_SECONDS)
        if self.admin:
            wait_until_true(self.is_ready, "ready", START_SECONDS)
        for name, address in re.findall(r"listener (\S+) on ([^\s\"]+)", self.errors()):
            self.listeners.setdefault(name, []).append(address)
        self.target = next(iter(self.listeners.values()))[0] if self.listeners else None
        return self

    def is_ready(self):
        if not self.running():
            pytest.fail(f"{self.name} left with {self.popen.returncode}:\n{self.tail()}")
        with contextlib.suppress(OSError, http.client.HTTPException):
            return self.get("/ready").status == 200
        return False

    def get(self, path, **more):
        return ask(self.admin, path, **more)

    def stats(self):
        reply = self.get("/stats")
        assert reply.status == 200, reply.text
        return json.loads(reply.body)

    def route(self, name="echo"):
        return self.stats()["routes"][name]

    def endpoint(self, address, upstream="echo"):
        return self.stats()["upstreams"][upstream]["endpoints"][address]

    def reset(self):
        """Histograms of /stats to zero; workers take it soon after, so wait for it."""
        assert ask(self.admin, "/reset", method="POST").status == 200
        wait_until_true(lambda: all(route["total_us"]["count"] == 0 for route in self.stats()["routes"].values()), "reset")

    def reload(self, text, number=signal.SIGHUP):
        """Writes the file, sends HUP (None: leaves it to the watcher), waits for the outcome: stats' config."""
        before = self.stats()["config"]
        self.file.write_text(text)
        if number:
            self.send(number)

        def outcome():
            now = self.stats()["config"]
            return now if now != before else None
        return wait_until_true(outcome, "reload")

    def wait_for(self, condition, what="the stats", seconds=10.0):
        """Polls /stats until condition(stats) is true; the stats."""
        def met():
            stats = self.stats()
            return stats if condition(stats) else None
        return wait_until_true(met, what, seconds)


class Echo(Program):
    """tests/tools/echo-provider; target: HOST:PORT or unix:PATH."""

    def __init__(self, options, folder, name):
        super().__init__([tool("echo-provider"), *options], folder, name)
        self.target = self.said(r"^READY (\S+)", stream="out")[1]


class Started:
    """All programs of a test, stopped in reverse order at its end: proxies before their providers."""

    def __init__(self, folder):
        self.folder, self.programs = folder, []

    def add(self, program):
        self.programs.append(program)
        return program

    def name(self, kind):
        return f"{kind}-{len(self.programs)}"

    def end(self):
        problems = []
        for program in reversed(self.programs):
            try:
                if program.running():
                    program.stop()
                program.check()
            except (AssertionError, pytest.fail.Exception) as problem:
                problems.append(str(problem))
        assert not problems, "\n".join(problems)


@pytest.fixture
def started(tmp_path):
    programs = Started(tmp_path)
    yield programs
    programs.end()


def ini(endpoints, admin, probe, proxy, listener, upstream, route, more, address):
    """An INI file with one listener `main`, one upstream and one route `echo`; the texts are lines added to a section."""
    lines = ["[proxy]"]
    lines += [f"admin = {admin}"] if admin else []
    lines += [f"probe = {probe}"] if probe else []
    lines += [proxy, "[listener main]", f"address = {address}", listener]
    lines += ["[upstream echo]", f"endpoints = {', '.join(endpoints)}", upstream]
    lines += ["[route echo]", "match = /tributary.demo.Echo/*", "upstream = echo", route, more]
    return "\n".join(line for line in lines if line) + "\n"


@pytest.fixture
def tributary(started, tmp_path):
    """tributary(endpoints, proxy=, listener=, upstream=, route=, more=): lines for those sections; text= a whole file instead.

    endpoints: addresses, or Echo objects, or one. address: the listener's (port 0: any). probe=True adds a probe address.
    ready=False: does not wait for it. text may hold {admin}, {probe}, which become free addresses.
    """
    def start(endpoints=(), *, text=None, address="127.0.0.1:0", probe=False, admin=None, ready=True, env=None,
              proxy="", listener="", upstream="", route="", more=""):
        if isinstance(endpoints, (str, Echo)):
            endpoints = [endpoints]
        targets = [getattr(each, "target", each) for each in endpoints]
        admin = admin or f"127.0.0.1:{find_free_port()}"
        probe = f"127.0.0.1:{find_free_port()}" if probe or "{probe}" in (text or "") else None
        if text is None:
            text = ini(targets, admin, probe, proxy, listener, upstream, route, more, address)
        else:
            text = text.replace("{admin}", admin).replace("{probe}", probe or "")
        name = started.name("tributary")
        file = tmp_path / f"{name}.ini"
        file.write_text(text)
        program = started.add(Tributary(file, tmp_path, name, admin, probe, env))
        return program.await_start() if ready else program
    return start


@pytest.fixture
def echo(started, tmp_path):
    """echo(*options): a running echo-provider."""
    def start(*options):
        name = started.name("echo")
        return started.add(Echo([str(option) for option in options], tmp_path, name))
    return start


@pytest.fixture
def call():
    """call(proxy, *options): echo-caller against a proxy (or a target); its line of figures as a dict. code: its exit code."""
    def run(proxy, *options, code=0, seconds=120):
        target = getattr(proxy, "target", proxy)
        done = subprocess.run([str(part) for part in (tool("echo-caller"), "--target", target, *options)],
                              capture_output=True, text=True, timeout=seconds)
        assert done.returncode == code, f"echo-caller {options} left with {done.returncode}:\n{done.stdout}{done.stderr}"
        return dict(re.findall(r"(\w+)=(\S+)", done.stdout))
    return run


@pytest.fixture
def free_port():
    return find_free_port


@pytest.fixture
def wait_until():
    return wait_until_true


@pytest.fixture
def http_get():
    """http_get(target, path, method=, body=, headers=): a Reply (status, headers, body, text)."""
    return ask


@pytest.fixture
def connect_to():
    return connect


@pytest.fixture
def run_tributary(tmp_path):
    """run_tributary(*arguments): the binary to its end, output captured. For verbs such as --explain."""
    def run(*arguments, seconds=20, env=None):
        return subprocess.run([str(part) for part in (binary(), *arguments)], capture_output=True, text=True, timeout=seconds,
                              cwd=tmp_path, env=dict(os.environ, **(env or {})))
    return run
