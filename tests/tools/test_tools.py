"""echo-provider and echo-caller against each other, and the provider against curl and nghttp.

The proxy's tests lean on these two; so each is first shown to be right without a proxy, and with
clients that are not ours. Binaries: $TRIBUTARY_TOOLS, else the tree's build folder, else built
here from this folder alone.
"""

import json
import os
import pathlib
import shutil
import signal
import socket
import struct
import subprocess
import threading
import time

import pytest

HERE = pathlib.Path(__file__).resolve().parent
SERVICE = "/tributary.demo.Echo"


@pytest.fixture(scope="session")
def tools(tmp_path_factory):
    if build := os.environ.get("TRIBUTARY_BUILD"):
        return pathlib.Path(build) / "tests" / "tools"
    build = tmp_path_factory.mktemp("tools")
    subprocess.run(["cmake", "-S", HERE, "-B", build, "-G", "Ninja"], check=True, capture_output=True)
    subprocess.run(["ninja", "-j2", "-C", build], check=True, capture_output=True)
    return build


class Provider:
    def __init__(self, tools, *args):
        self.process = subprocess.Popen(
            [tools / "echo-provider", *args], stdout=subprocess.PIPE, text=True
        )
        ready = self.process.stdout.readline().split()
        assert ready and ready[0] == "READY", ready
        self.target = ready[1]
        self.host, _, port = self.target.rpartition(":")
        self.port = int(port) if port.isdigit() else None

    def stop(self):
        """Ends it with TERM; its exit code."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(10)
        finally:
            self.process.stdout.close()


@pytest.fixture
def start(tools):
    running = []

    def start_provider(*args):
        running.append(Provider(tools, *args))
        return running[-1]

    yield start_provider
    codes = [provider.stop() for provider in running]
    assert codes == [0] * len(codes)


def call(tools, provider, *args, code=0):
    done = subprocess.run(
        [tools / "echo-caller", "--target", provider.target, *map(str, args)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == code, (args, done.stdout, done.stderr)
    return done


def curl(provider, path, *args, version="--http2-prior-knowledge"):
    """Status, header fields (a list of pairs) and body."""
    command = ["curl", "-sS", "-i", version, *args, f"http://{provider.target}{path}"]
    for _ in range(30):
        done = subprocess.run(command, capture_output=True, timeout=60)
        # curl 7.88 takes RST_STREAM(NO_ERROR) after an early, whole answer for a failure when it
        # is still sending; RFC 9113 section 8.1 says otherwise, and providers do answer early
        if done.returncode != 92:
            break
        time.sleep(0.05)  # what keeps it from sending may be a busy machine
    assert done.returncode == 0, done
    head, _, body = done.stdout.partition(b"\r\n\r\n")
    while head.startswith(b"HTTP/1.1 100"):
        head, _, body = body.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    fields = [tuple(line.lower().split(": ", 1)) for line in lines[1:]]
    return int(lines[0].split()[1]), fields, body


PROTO = ("-H", "content-type: application/proto")
GRPC = ("-H", "content-type: application/grpc", "-H", "te: trailers")


@pytest.fixture
def provider(start):
    return start()


# ---- caller and provider ----


@pytest.mark.parametrize("wire", ["grpc", "triple"])
@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 1023, 16384, 65536, 4 << 20])
def test_unary_echo_of_every_size(tools, provider, wire, size):
    call(tools, provider, "--wire", wire, "--size", size, "--count", 4, "--concurrency", 2)


@pytest.mark.parametrize("wire", ["grpc", "triple"])
def test_thousand_calls_in_flight_on_one_connection(tools, provider, wire):
    args = ["--wire", wire, "--size", 500, "--count", 10000, "--concurrency", 1000]
    done = call(tools, provider, *args)
    assert "calls=10000 failed=0" in done.stdout and "connects=1" in done.stdout


def test_one_byte_over_the_limit_is_resource_exhausted(tools, provider):
    for wire in ("grpc", "triple"):
        call(tools, provider, "--wire", wire, "--size", (4 << 20) + 1, "--expect-status", 8)


@pytest.mark.parametrize("wire", ["grpc", "triple"])
@pytest.mark.parametrize("size", [0, 1, 100000])
def test_gzip_both_ways(tools, provider, wire, size):
    call(tools, provider, "--wire", wire, "--size", size, "--gzip", "--count", 3)


@pytest.mark.parametrize("wire", ["grpc", "triple"])
def test_metadata_comes_back_as_header_and_trailer(tools, provider, wire):
    call(tools, provider, "--wire", wire, "--metadata", "x-a=1", "--metadata", "x-b-bin=AQI")


def test_what_proxies_add_does_not_come_back(provider):
    """Else a proxy that adds x-forwarded-* would pay for it twice in a comparison."""
    args = [*PROTO, "-H", "x-forwarded-proto: http", "-d", "a"]
    _, fields, _ = curl(provider, f"{SERVICE}/Say", *args)
    assert not [name for name, _ in fields if "forwarded" in name]


@pytest.mark.parametrize("wire", ["grpc", "triple"])
@pytest.mark.parametrize("code", range(1, 18))
def test_every_code(tools, provider, wire, code):
    text = 'no "such" <thing> 100%'
    expect = text.replace("%", "%25") if wire == "grpc" else 'no \\"such\\" \\u003cthing\\u003e 100%'
    args = ["--text", f"code={code} text={text}", "--expect-status", code, "--expect-text", expect]
    call(tools, provider, "--wire", wire, "--method", f"{SERVICE}/Fail", *args)


STREAMS = [("server", "Down"), ("client", "Up"), ("bidi", "Chat")]


@pytest.mark.parametrize("wire", ["grpc", "triple"])
@pytest.mark.parametrize("kind, method", STREAMS)
@pytest.mark.parametrize("messages, size", [(0, 10), (1, 0), (100, 1000), (10, 1 << 20)])
def test_streams(tools, provider, wire, kind, method, messages, size):
    args = ["--type", kind, "--method", f"{SERVICE}/{method}", "--messages", messages]
    call(tools, provider, "--wire", wire, *args, "--size", size, "--count", 4, "--concurrency", 2)


def test_bidi_in_lockstep_with_gzip(tools, provider):
    args = ["--type", "bidi", "--method", f"{SERVICE}/Chat", "--lockstep", "--gzip"]
    call(tools, provider, *args, "--messages", 50, "--size", 5000)


def test_stream_that_fails_after_messages(tools, provider):
    args = ["--type", "server", "--method", f"{SERVICE}/Down", "--text", "count=2 size=5 code=9"]
    call(tools, provider, *args, "--expect-status", 9)


def test_slow_stream_of_a_few_milliseconds(tools, provider):
    args = ["--type", "server", "--method", f"{SERVICE}/Down", "--text", "count=5 size=8 every_ms=10"]
    call(tools, provider, *args)


@pytest.mark.parametrize("wire", ["grpc", "triple"])
def test_provider_keeps_the_deadline(tools, provider, wire):
    args = ["--metadata", "x-delay-us=400000", "--deadline-ms", 80, "--expect-status", 4]
    call(tools, provider, "--wire", wire, *args)


def test_cancel_leaves_the_connection_usable(tools, provider):
    args = ["--metadata", "x-delay-us=400000", "--cancel-ms", 20, "--expect-status", 1]
    call(tools, provider, *args, "--count", 20, "--concurrency", 10)
    call(tools, provider)


def test_unix_socket_and_v6(tools, start, tmp_path):
    call(tools, start("--unix", str(tmp_path / "p")), "--count", 10)
    call(tools, start("--bind", "::1"), "--count", 10)


# ---- the caller sees what is wrong ----


def test_caller_finds_a_reply_that_is_not_the_echo(tools, start):
    other = start("--reply-size", "16")
    for wire in ("grpc", "triple"):
        done = call(tools, other, "--wire", wire, "--size", 16, code=1)
        assert "reply differs" in done.stderr
        call(tools, other, "--wire", wire, "--size", 50, "--reply-size", 16)
        done = call(tools, other, "--wire", wire, "--size", 17, code=1)


def test_caller_finds_a_missing_status_and_a_swapped_reply(tools):
    """A peer of a few lines, by hand, that answers each of two calls with the other's bytes."""
    server = socket.create_server(("127.0.0.1", 0))

    def frame(kind, flags, stream, payload):
        return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(
            ">I", stream
        ) + payload

    def serve():
        peer, _ = server.accept()
        seen = b""
        bodies = {}
        peer.sendall(frame(4, 0, 0, b""))
        while len(bodies) < 2:
            data = peer.recv(65536)
            if not data:
                return
            seen += data
            at = 24
            bodies = {}
            while at + 9 <= len(seen):
                length = int.from_bytes(seen[at : at + 3], "big")
                if seen[at + 3] == 0:
                    stream = int.from_bytes(seen[at + 5 : at + 9], "big")
                    bodies[stream] = seen[at + 9 : at + 9 + length]
                at += 9 + length
        head = b"\x88\x0f\x10\x10application/grpc"  # :status 200, content-type
        trailers = b"\x00\x0bgrpc-status\x010"
        for stream, other in ((1, 3), (3, 1)):
            peer.sendall(frame(1, 4, stream, head) + frame(0, 0, stream, bodies[other]))
            peer.sendall(frame(1, 5, stream, trailers))
        peer.recv(65536)
        peer.close()

    thread = threading.Thread(target=serve)
    thread.start()
    done = subprocess.run(
        [tools / "echo-caller", "--target", f"127.0.0.1:{server.getsockname()[1]}"]
        + ["--count", "2", "--concurrency", "2", "--size", "64"],
        capture_output=True,
        text=True,
        timeout=30,
    )
    thread.join(10)
    server.close()
    assert done.returncode == 1 and done.stderr.count("another call's") == 2, done.stderr


def test_caller_ends_with_unavailable_when_nobody_listens(tools):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    done = subprocess.run(
        [tools / "echo-caller", "--target", f"127.0.0.1:{port}", "--expect-status", "14"],
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 1 and "no connection" in done.stderr and "FAILED" in done.stdout


# ---- the provider before clients that are not ours ----


@pytest.mark.parametrize("version", ["--http2-prior-knowledge", "--http1.1"])
def test_bare_echo_with_curl(provider, version):
    status, fields, body = curl(
        provider, f"{SERVICE}/Say", *PROTO, "-H", "x-a: 1", "-d", "hello", version=version
    )
    assert (status, body) == (200, b"hello")
    for field in [
        ("content-type", "application/proto"),
        ("content-length", "5"),
        ("x-a", "1"),
        ("trailer-tail-x-a", "1"),
    ]:
        assert field in fields


@pytest.mark.parametrize("version", ["--http2-prior-knowledge", "--http1.1"])
@pytest.mark.parametrize("chunked", [False, True])
def test_four_mebibytes_with_curl(provider, tmp_path, version, chunked):
    big = tmp_path / "big"
    big.write_bytes(os.urandom(4 << 20))
    extra = ["-H", "transfer-encoding: chunked"] if chunked else []
    _, fields, body = curl(
        provider, f"{SERVICE}/Say", *PROTO, *extra, "--data-binary", f"@{big}", version=version
    )
    assert body == big.read_bytes()
    assert not [name for name, _ in fields if name == "content-length"]  # as dubbo-go: over 4096


def test_content_length_up_to_4096_bytes_and_2048_on_http1(provider, tmp_path):
    for version, most in (("--http2-prior-knowledge", 4096), ("--http1.1", 2048)):
        for size in (0, most, most + 1):
            (tmp_path / "b").write_bytes(b"x" * size)
            _, fields, body = curl(
                provider,
                f"{SERVICE}/Say",
                *PROTO,
                "--data-binary",
                f"@{tmp_path / 'b'}",
                version=version,
            )
            assert len(body) == size
            assert (("content-length", str(size)) in fields) == (size <= most)


def test_no_content_length(start):
    for version in ("--http2-prior-knowledge", "--http1.1"):
        provider = start("--no-content-length")
        _, fields, body = curl(provider, f"{SERVICE}/Say", *PROTO, "-d", "hi", version=version)
        assert body == b"hi" and "content-length" not in dict(fields)


def test_http1_connection_is_kept(provider):
    done = subprocess.run(
        ["curl", "-sSv", "--http1.1", *PROTO, "-d", "hi"]
        + [f"http://{provider.target}{SERVICE}/Say"] * 3,
        capture_output=True,
        check=True,
        timeout=30,
    )
    assert done.stdout == b"hihihi" and done.stderr.count(b"Re-using existing connection") == 2


def exchange(provider, data):
    """Sends bytes, reads until the provider closes or has been silent for a while."""
    with socket.create_connection((provider.host, provider.port), timeout=1) as peer:
        peer.sendall(data)
        seen = b""
        try:
            while chunk := peer.recv(65536):
                seen += chunk
            return seen, True
        except TimeoutError:
            return seen, False


def request(body=b"hi", extra=b""):
    return (
        b"POST /tributary.demo.Echo/Say HTTP/1.1\r\nHost: a\r\nContent-Type: application/proto\r\n"
        + extra
        + b"Content-Length: %d\r\n\r\n" % len(body)
        + body
    )


def test_pipelined_and_bytewise_http1(provider):
    seen, closed = exchange(provider, request(b"one") + request(b"two", b"x-delay-us: 50000\r\n") * 2)
    assert not closed and seen.count(b"HTTP/1.1 200 OK") == 3 and seen.endswith(b"two")
    with socket.create_connection((provider.host, provider.port), timeout=5) as peer:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for i in request(b"PRI * HTTP"):
            peer.sendall(bytes([i]))
        seen = b""
        while not seen.endswith(b"PRI * HTTP"):
            seen += peer.recv(4096)


@pytest.mark.parametrize(
    "bad",
    [
        b"POST /tributary.demo.Echo/Say HTTP/1.1\r\nHost : a\r\n\r\n",
        b"POST /tributary.demo.Echo/Say\r\n\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\nabc",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        b"POST / HTTP/1.1\r\nA: b\rc\r\n\r\n",
    ],
)
def test_malformed_http1_is_refused(provider, bad):
    seen, closed = exchange(provider, bad)
    assert closed and seen.startswith(b"HTTP/1.1 400 ")


def test_http1_off(start):
    assert exchange(start("--http1", "off"), request()) == (b"", True)


def test_refusals_of_a_dubbo_go_provider(provider):
    say = f"{SERVICE}/Say"
    assert curl(provider, say, *PROTO, "-X", "PUT", "-d", "a")[0] == 405
    assert curl(provider, say, "-H", "content-type: text/plain", "-d", "a")[0] == 415
    assert curl(provider, say, "-H", "content-type: application/proto; charset=utf-8", "-d", "a")[0] == 415
    status, fields, body = curl(provider, f"{SERVICE}/Down", *PROTO, "-d", "a")
    assert (status, body) == (415, b"") and "application/grpc" in dict(fields)["accept-post"]
    status, fields, body = curl(provider, f"{SERVICE}/None", *GRPC, "-d", "a")
    assert (status, body) == (404, b"404 page not found\n") and "grpc-status" not in dict(fields)
    status, _, body = curl(provider, say, *PROTO, "-H", "triple-protocol-version: 2", "-d", "a")
    assert status == 400 and body.startswith(b'{"code":"invalid_argument"')
    for value, wanted in (("0", 408), ("-5", 408), ("abc", 400), ("12345678901", 400), ("1000", 200)):
        assert curl(provider, say, *PROTO, "-H", f"triple-timeout-ms: {value}", "-d", "a")[0] == wanted
    assert curl(provider, f"{say}?a=b", *PROTO, "-d", "a")[0] == 200
    assert curl(provider, f"{SERVICE}/say", *PROTO, "-d", "a")[0] == 200


def test_error_json_with_details(provider):
    status, fields, body = curl(
        provider, f"{SERVICE}/Fail", *PROTO, "-d", "code=17 details=1 text=it broke"
    )
    assert status == 500 and dict(fields)["content-type"] == "application/json"
    assert body == (
        b'{"code":"code_17","message":"it broke","details":[{"type":"google.rpc.ErrorInfo",'
        b'"value":"CgtFQ0hPX0ZBSUxFRBIOdHJpYnV0YXJ5LmRlbW8"}]}'
    )


def test_java_refusals(start):
    java33 = start("--wire", "framed", "--java33")
    status, fields, body = curl(java33, f"{SERVICE}/Say", *PROTO, "-d", "a")
    assert (status, dict(fields)["content-type"]) == (404, "application/json")
    assert body == b'{"message":"Invoker not found","status":"404"}'
    java32 = start("--wire", "framed", "--java32")
    status, fields, body = curl(java32, f"{SERVICE}/Say", *PROTO, "-d", "a")
    assert (status, dict(fields)["grpc-status"]) == (415, "13") and body


def test_wire_restricts(tools, start):
    framed, bare = start("--wire", "framed"), start("--wire", "bare")
    call(tools, framed, "--wire", "grpc")
    call(tools, bare, "--wire", "triple")
    assert curl(framed, f"{SERVICE}/Say", *PROTO, "-d", "a")[0] == 415
    assert curl(bare, f"{SERVICE}/Say", *GRPC, "-d", "a")[0] == 415


def test_offered_gzip_is_taken(provider):
    status, fields, body = curl(
        provider, f"{SERVICE}/Say", *PROTO, "--compressed", "-H", "accept-encoding: gzip", "-d", "aaaa"
    )
    assert (status, body) == (200, b"aaaa") and ("content-encoding", "gzip") in fields


@pytest.mark.skipif(not shutil.which("nghttp"), reason="nghttp (nghttp2-client) is not installed")
def test_framed_echo_with_nghttp(provider, tmp_path):
    (tmp_path / "m").write_bytes(b"\0\0\0\0\5hello")
    done = subprocess.run(
        ["nghttp", "-v", "-H:method: POST", "-H", "content-type: application/grpc"]
        + ["--no-dep", "-d", str(tmp_path / "m"), f"http://{provider.target}{SERVICE}/Say"],
        capture_output=True,
        check=True,
        timeout=30,
    )
    assert b"grpc-status: 0" in done.stdout
    assert b"content-type: application/grpc" in done.stdout


# ---- the record, the counts ----


def test_counts_tell_the_form_of_calls(tools, provider):
    call(tools, provider, "--count", 3)
    call(tools, provider, "--count", 4, "--wire", "triple")
    call(tools, provider, "--count", 2, "--wire", "triple", "--gzip")
    curl(provider, f"{SERVICE}/Say", *PROTO, "-d", "a", version="--http1.1")
    curl(provider, f"{SERVICE}/None", *PROTO, "-d", "a", version="--http1.1")
    provider.process.send_signal(signal.SIGUSR1)
    assert json.loads(provider.process.stdout.readline()) == {
        "framed": 3, "bare_h2": 6, "bare_h1": 1, "gzip_in": 2, "gzip_out": 2, "refused": 1,
    }


def test_record_tells_frames_fields_and_bytes(tools, start, tmp_path):
    record, other = tmp_path / "provider", tmp_path / "caller"
    provider = start("--record", str(record))
    call(tools, provider, "--wire", "triple", "--text", "hello", "--record", str(other))
    text = record.read_text()
    assert "recv c1 s1 HEADERS END_HEADERS len=" in text
    assert " | :path: /tributary.demo.Echo/Say | " in text and " | content-length: 5" in text
    assert "recv c1 s1 DATA END_STREAM len=5 | 68 65 6c 6c 6f | hello" in text
    assert "send c1 s1 DATA END_STREAM len=5 | 68 65 6c 6c 6f | hello" in text
    assert "send c1 s1 HEADERS" in other.read_text() and "recv c1 s1 DATA" in other.read_text()
    curl(provider, f"{SERVICE}/Say", *PROTO, "-d", "hello", version="--http1.1")
    text = record.read_text()
    assert "recv c2 HEAD | POST /tributary.demo.Echo/Say HTTP/1.1 | " in text
    assert "send c2 BODY len=5 | 68 65 6c 6c 6f | hello" in text
