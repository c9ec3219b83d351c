"""Real providers as targets: dubbo-go, grpc-go, dubbo-java, called directly and through tributary.

The programs are those of ../interop, built by its own helpers into $TRIBUTARY_BUILD/interop, once. A
provider is started at its first target and shared by the others of its kind; bench_peers.stop()
ends them all. What a machine cannot build is left out by name (see missing()).

Proof of what ran: the provider's own count of calls (its Count method) before and after; and a call with
want_headers through the same address, so that the provider itself tells in which form and with which
encodings calls of this target reach it. For a tributary target /stats adds paths and connections.
"""

import functools
import json
import os
import pathlib
import re
import subprocess
import sys
import urllib.request

import bench_targets
from bench_targets import Direct, Tributary, end, pinned

INTEROP = pathlib.Path(__file__).resolve().parents[1] / "interop"
ECHO = "tributary.interop.Echo"
# want_headers, behind a text long enough to be worth compressing
REQUEST_WANT_HEADERS = bytes([1 << 3 | 2, 100]) + b"x" * 100 + bytes([7 << 3, 1])
TOLD_HEADERS = ("content-type", "content-length", "content-encoding", "accept-encoding", "grpc-encoding",
                "grpc-accept-encoding", "triple-protocol-version", "te")
# Unlike the JVMs of the interop tests, this one lives long enough for the second compiler.
JVM = ["-Xms512m", "-Xmx1g", "-XX:+UseSerialGC",
       "--add-opens=java.base/java.lang=ALL-UNNAMED", "--add-opens=java.base/java.math=ALL-UNNAMED"]


# ---- protobuf, as much as is needed to read what providers tell ----


def fields(message):
    """(number, value) of a message's fields; bytes or int."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        key = varint()
        value = varint()
        if key & 7 == 2:
            value, at = message[at : at + value], at + value
        yield key >> 3, value


def ask(address, method, request=b"", gzip=False):
    """A unary call by grpcio with bytes as they are."""
    import grpc

    with grpc.insecure_channel(address) as channel:
        call = channel.unary_unary(f"/{ECHO}/{method}")
        return call(request, timeout=20, compression=grpc.Compression.Gzip if gzip else None)


def headers_seen(address, gzip):
    """What the provider behind an address sees of a call: form and encodings."""
    seen = {}
    for number, value in fields(ask(address, "Say", REQUEST_WANT_HEADERS, gzip)):
        if number == 3:
            entry = dict(fields(value))
            seen[entry[1].decode()] = entry.get(2, b"").decode()
    return {name: seen[name] for name in TOLD_HEADERS if name in seen}


# ---- providers ----


@functools.cache
def builders():
    """The interop tests' own helpers; what they want to skip is an exception here."""
    sys.path.insert(0, str(INTEROP))
    import java_peers
    import peers

    return peers, java_peers


def go_command(program):
    peers, _ = builders()
    return [peers.build_go_programs(names=(*peers.GO_PROGRAMS, "grpc-provider"))[program]]


def java_command():
    _, java_peers = builders()
    libraries = java_peers.java_folder() / "dubbo33" / "lib"
    return ["java", *JVM, "-cp", f"{libraries}/*", "org.tributary.interop.Provider"]


COMMANDS = {
    "dubbo-go": lambda: go_command("dubbo-provider"),
    "grpc-go": lambda: go_command("grpc-provider"),
    "dubbo-java": java_command,
}


@functools.cache
def missing(kind):
    """Why a provider of this kind cannot be had; None: it is built."""
    if not os.environ.get("TRIBUTARY_BUILD"):
        return "TRIBUTARY_BUILD names no folder to build it in"
    try:
        COMMANDS[kind]()
        return None
    except ImportError as error:
        return str(error)
    except BaseException as error:  # pytest's Skipped is no Exception
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            raise
        return str(error)[:300]


class PeerProvider:
    """One running provider; the interface of bench_targets.Provider."""

    def __init__(self, kind, core, folder):
        self.kind, self.core = kind, core
        self.log = open(pathlib.Path(folder) / f"{kind}-provider.log", "w")
        command = [*COMMANDS[kind](), "--port", "0"]
        self.process = subprocess.Popen(pinned(core, command), stdout=subprocess.PIPE, stderr=self.log, text=True)
        line = self.process.stdout.readline()
        if not line.startswith("READY "):
            self.stop()
            raise RuntimeError(f"{command} did not start; see {self.log.name}")
        self.port = int(line.rpartition(":")[2])
        self.pid = self.process.pid
        self.library = library_version(kind, command)
        self.warm = False

    def counts(self):
        reply = dict(fields(ask(f"127.0.0.1:{self.port}", "Count")))
        return {"calls": reply.get(2, 0)}

    def version(self):
        return self.library

    def stop(self):
        end(self.process)
        self.process.stdout.close()
        self.log.close()


def library_version(kind, command):
    if kind == "dubbo-java":
        folder = pathlib.Path(command[command.index("-cp") + 1]).parent
        found = [path.stem for path in folder.glob("dubbo-[0-9]*.jar")]
        java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)
        return f"{found[0] if found else kind}, {java.stderr.splitlines()[0]}"
    module = {"dubbo-go": "dubbo.apache.org/dubbo-go/v3", "grpc-go": "google.golang.org/grpc"}[kind]
    go = subprocess.run(["go", "version", "-m", command[0]], capture_output=True, text=True, check=False).stdout
    built = re.search(rf"^\s*dep\s+{re.escape(module)}\s+(\S+)", go, re.M)
    return f"{kind} {built[1] if built else '?'}, {go.split(chr(10))[0].rpartition(' ')[2]}"


RUNNING = {}


def provider_of(kind, core, folder):
    if kind not in RUNNING:
        RUNNING[kind] = PeerProvider(kind, core, folder)
    return RUNNING[kind]


def stop():
    while RUNNING:
        RUNNING.popitem()[1].stop()


# ---- targets ----


class Peer:
    """Mixed into a target: its provider is a real one, and these calls it echoes."""

    kind = None
    service = ECHO
    opaque_codecs = False
    load_args = ["--method", f"/{ECHO}/Say", "--proto-field", 2, "--reply-tail", "2a012f", "--reply-index", 6]
    warm_seconds = 0

    @property
    def baseline(self):
        return self.kind

    @property
    def tells_encoding(self):
        """grpc-go and dubbo-java keep the encoding's header from their handlers."""
        return self.kind == "dubbo-go"

    def __init__(self, name, provider, folder, core=None, prefix=()):
        super().__init__(name, provider_of(self.kind, provider.core, folder), folder, core, prefix)

    def headers(self, gzip):
        seen = headers_seen(self.address, gzip)
        if "content-type" not in seen:  # dubbo-java shows its handlers no protocol headers
            return seen
        form = "framed" if seen.get("content-type", "").startswith("application/grpc") else "bare"
        if form != self.form.partition("_")[0]:
            raise RuntimeError(f"{self.name} is to reach its provider as {self.form}, which sees {seen}")
        return seen


def warm_seconds(target):
    """Of load before a scenario's first run: more for the first of its provider, which compiles nearly all."""
    if not target.warm_seconds:
        return 0
    first = not target.provider.warm
    target.provider.warm = True
    return target.warm_seconds * (6 if first else 1)


class PeerDirect(Peer, Direct):
    def version(self):
        return self.provider.version()


class DubboGo(PeerDirect):
    kind = "dubbo-go"


class GrpcGo(PeerDirect):
    kind = "grpc-go"


class DubboJava(PeerDirect):
    kind = "dubbo-java"
    warm_seconds = 2


class PeerTributary(Peer, Tributary):
    """Left at its defaults, so that what is learnt of this provider is part of what is measured."""

    def endpoints(self):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}/stats", timeout=10) as reply:
            (only,) = json.load(reply)["upstreams"]["provider"]["endpoints"].values()
        return {key: only[key] for key in ("wire", "connections", "opened", "failures")}


class TributaryDubboGo(PeerTributary):
    kind = "dubbo-go"


class TributaryHttp1DubboGo(PeerTributary):
    kind = "dubbo-go"
    upstream = "transport = http1\n"
    form = "bare_h1"


class TributaryGrpcGo(PeerTributary):
    kind = "grpc-go"
    path = form = "framed"


class TributaryDubboJava(PeerTributary):
    """Many connections, as a provider has that is called directly: dubbo-java 3.3.6 ends one that has some
    hundred calls in flight, whoever calls."""

    kind = "dubbo-java"
    upstream = "connections = 20\nmax_connections = 20\n"
    path = form = "framed"
    warm_seconds = 2


PEER_TARGETS = {
    "dubbo-go": DubboGo,
    "tributary-dubbo-go": TributaryDubboGo,
    "tributary-http1-dubbo-go": TributaryHttp1DubboGo,
    "grpc-go": GrpcGo,
    "tributary-grpc-go": TributaryGrpcGo,
    "dubbo-java": DubboJava,
    "tributary-dubbo-java": TributaryDubboJava,
}


def available(name):
    return missing(PEER_TARGETS[name].kind) is None and bench_targets.has_binary(PEER_TARGETS[name])
