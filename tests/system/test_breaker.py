"""What ill will, accidents and operators do to a running proxy: rubbish on the wire, windows played with, floods, peers that
die at any moment, reloads in storms, full disks, few descriptors, TLS gone wrong.

After each: the proxy serves as before, and at rest (no call, no stream, no byte of a body, no turn of the loop) soon after.
"""
import contextlib
import ctypes
import os
import random
import resource
import signal
import socket
import ssl
import struct
import subprocess
import threading
import time

import pytest
from conftest import connect, tool, wait_until_true
from h2peer import (CONTINUATION, DATA, END_HEADERS, ENHANCE_YOUR_CALM, GOAWAY, HEADERS, INITIAL_WINDOW_SIZE, MSG, PING, PREFACE,
                    PRIORITY, PUSH_PROMISE, RST_STREAM, SETTINGS, Client, Provider, bare, block, data, either, frame, framed,
                    headers, request_fields, reset, settings, window_update)
from scripted import A, INI, S, U, scripted  # noqa: F401
from test_upstream_tls import authority  # noqa: F401

FLOW_CONTROL_ERROR, FRAME_SIZE_ERROR, COMPRESSION_ERROR = 3, 6, 9
SAY = "/tributary.demo.Echo/Say"
CHAT = "/tributary.demo.Echo/Chat"


def cpu_ticks(pid):
    fields = open(f"/proc/{pid}/stat", encoding="ascii").read().rsplit(")", 1)[1].split()
    return int(fields[11]) + int(fields[12])


def resident_bytes(pid):
    return int(open(f"/proc/{pid}/statm", encoding="ascii").read().split()[1]) * resource.getpagesize()


def rests(stats):
    """Nothing of any call is left, upstream connections apart."""
    streams = sum(each["streams"] for each in stats["listeners"].values())
    streams += sum(end["streams"] for up in stats["upstreams"].values() for end in up["endpoints"].values())
    active = sum(route["active"] for route in stats["routes"].values())
    exact = all(route["started"] == route["calls"] == sum(route["status"].values()) for route in stats["routes"].values())
    return active == 0 and streams == 0 and stats["buffers"]["bytes"] == 0 and exact


def assert_at_rest(proxy, seconds=15):
    proxy.wait_for(rests, "a proxy at rest", seconds)
    wait_until_true(lambda: idle_for(proxy.pid, 0.4), "a loop that sleeps", seconds)


def idle_for(pid, seconds):
    before = cpu_ticks(pid)
    time.sleep(seconds)
    return cpu_ticks(pid) - before <= 2  # of 10 ms: what asks /stats costs as well


def assert_serves(setup):
    client = setup.new_client()
    for path in (U, S, A):
        client.call(path).says(0, ["hi"])
    client.close()


def send_tcp_reset(sock):
    """RST now, also while another thread reads: connect() to "unspecified" disconnects."""
    ctypes.CDLL(None).connect(sock.fileno(), bytes(16), 16)


# --- rubbish ---

def random_frame(rng):
    kind = rng.choice([DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, 8, CONTINUATION, rng.randrange(256)])
    stream = rng.choice([0, 1, 1, 3, 5, 2, rng.randrange(1 << 31)])
    payload = bytes(rng.randrange(256) for _ in range(rng.choice([0, 4, 5, 6, 8, 9, rng.randrange(64)])))
    if kind == HEADERS and rng.random() < 0.7:
        fields = request_fields(rng.choice([U, S, A, "/no/route"]), [("grpc-timeout", rng.choice(["1S", "x", "5m"]))])
        if rng.random() < 0.3:
            rng.shuffle(fields)
        payload = block(fields)
    if kind == DATA and rng.random() < 0.7:
        payload = MSG(payload)
    return frame(kind, rng.choice([0, 1, 4, 5, rng.randrange(256)]), stream, payload)


@pytest.mark.parametrize("seed", range(4))
def test_random_frames_harm_nobody_else(scripted, seed):
    setup, rng = scripted(), random.Random(seed)
    for _ in range(60):
        with connect(setup.proxy.target) as sock:
            if rng.random() < 0.1:
                sock.sendall(bytes(rng.randrange(256) for _ in range(rng.randrange(300))))
            else:
                sock.sendall(PREFACE[:rng.choice([24, 24, 24, 24, rng.randrange(25)])])
                sock.sendall(b"".join([settings(), *(random_frame(rng) for _ in range(rng.randrange(12)))]))
            if rng.random() < 0.3:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    assert_serves(setup)
    assert_at_rest(setup.proxy)


@pytest.mark.parametrize("seed", range(4))
def test_random_frames_of_a_provider_harm_nobody_else(scripted, seed):
    rng = random.Random(seed)
    rubbish = True

    def answer(peer, stream):
        if not rubbish:
            return either(peer, stream)
        frames = [random_frame(rng) for _ in range(rng.randrange(1, 8))]
        if rng.random() < 0.5:
            frames.insert(0, headers(stream.id, [(":status", rng.choice(["200", "415", "100", "x"])), ("content-type", rng.choice(
                ["application/proto", "application/grpc", "application/json"])), ("content-length", str(rng.randrange(9)))], rng.random() < 0.2))
        peer.raw(b"".join(frames))
        peer.raw(reset(stream.id, rng.randrange(16)))
        return peer.close() if rng.random() < 0.3 else None
    setup = scripted(answer)
    for _ in range(40):
        for path in (U, S, A):
            reply = setup.client.call(path, extra=[("grpc-timeout", "2S")])
            assert reply.code is not None or reply.reset is not None
    rubbish = False
    wait_until_true(lambda: setup.client.call(U).code == 0, "a call that works again")
    assert_serves(setup)
    assert_at_rest(setup.proxy)


@pytest.mark.parametrize("path", [U, S, A])
def test_a_client_may_die_after_any_byte(scripted, path):
    setup = scripted()
    whole = PREFACE + settings() + headers(1, request_fields(path)) + data(1, MSG(b"x" * 40), end=True)
    for cut in range(0, len(whole), 3):
        with connect(setup.proxy.target) as sock:
            sock.sendall(whole[:cut])
            if cut % 2:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    assert_serves(setup)
    assert_at_rest(setup.proxy)


@pytest.mark.parametrize("end", ["close", "reset"])
@pytest.mark.parametrize("path", [U, S, A])
def test_a_provider_may_die_after_any_byte(scripted, path, end):
    cut = 0

    def answer(peer, stream):
        if cut is None:
            return either(peer, stream)
        if stream.one("content-type") == "application/grpc":
            reply = (headers(stream.id, [(":status", "200"), ("content-type", "application/grpc")]) + data(stream.id, MSG("hi")) +
                     headers(stream.id, [("grpc-status", "0")], end=True))
        else:
            reply = headers(stream.id, [(":status", "200"), ("content-type", "application/proto"), ("content-length", "2")]) + \
                data(stream.id, "hi", end=True)
        peer.raw(reply[:cut])
        return peer.close() if end == "close" else send_tcp_reset(peer.sock)
    setup = scripted(answer)
    for cut in range(0, 90, 6):  # noqa: B007 (answer reads it)
        reply = setup.client.call(path, extra=[("grpc-timeout", "5S")])
        assert reply.code in (0, 13, 14), (cut, reply.heads)
    cut = None
    wait_until_true(lambda: setup.client.call(U).code == 0, "a call that works again")
    assert_serves(setup)
    assert_at_rest(setup.proxy)


# --- windows ---

BIG = bytes(range(256)) * 4 * 1024 * 7  # 7 MiB: under max_message with its prefix


@pytest.mark.parametrize("path", [U, S, A])
def test_a_window_that_overflows_ends_the_stream_only(scripted, path):
    held = threading.Event()
    setup = scripted(lambda peer, stream: (held.wait(10), either(peer, stream)))
    client = setup.client
    bad = client.new_id()
    client.raw(headers(bad, request_fields(path)) + data(bad, MSG("hi"), end=True) + window_update(bad, 0x7fffffff))
    assert client.ended(bad).reset == FLOW_CONTROL_ERROR
    held.set()
    client.call(path).says(0, ["hi"])


def test_a_connection_window_that_overflows_ends_the_connection(scripted):
    setup = scripted()
    client = setup.new_client()
    client.raw(window_update(0, 0x7fffffff))
    client.wait(lambda: client.closed, "the end")
    assert client.goaway[1] == FLOW_CONTROL_ERROR
    assert_serves(setup)


@pytest.mark.parametrize("window", [0, 1])
def test_a_first_window_of_nothing_opened_later(scripted, window):
    """The reply waits in the proxy; a byte at a time, then all of it."""
    setup = scripted()
    client = setup.new_client(initial=((INITIAL_WINDOW_SIZE, window),), credit=False)
    number = client.open(U)
    client.send(number, MSG(b"x" * 3000), end=True)
    for _ in range(20):
        client.raw(window_update(number, 1))
        client.ping()
    client.wait(lambda: len(client.streams[number].body) == window + 20, "as many bytes as the window")
    client.raw(settings([(INITIAL_WINDOW_SIZE, 0)]) + settings([(INITIAL_WINDOW_SIZE, 100)]) + window_update(number, 1 << 20))
    client.ended(number).says(0, [b"x" * 3000])


def test_settings_may_take_window_away_below_zero(scripted):
    """A window that became negative by SETTINGS stalls the reply until it is positive again."""
    setup = scripted()
    client = setup.new_client(initial=((INITIAL_WINDOW_SIZE, 1000),), credit=False)
    client.raw(window_update(0, 1 << 20))
    number = client.open(U)
    client.send(number, MSG(b"y" * 5000), end=True)
    client.wait(lambda: len(client.streams[number].body) == 1000, "the first thousand")
    client.raw(settings([(INITIAL_WINDOW_SIZE, 0)]) + window_update(number, 500))  # -1000 + 500
    client.ping()
    assert len(client.streams[number].body) == 1000
    client.raw(window_update(number, 600))  # +100
    client.wait(lambda: len(client.streams[number].body) == 1100, "a hundred more")
    client.raw(window_update(number, 10000))
    client.ended(number).says(0, [b"y" * 5000])


@pytest.mark.parametrize("path", [U, S, A])
def test_large_messages_both_ways_through_windows_of_a_few_bytes(scripted, path):
    """Both peers announce 16 KiB per stream; credit returns as bytes come."""
    setup = scripted(initial=((INITIAL_WINDOW_SIZE, 16384),))
    client = setup.new_client(initial=((INITIAL_WINDOW_SIZE, 16384),))
    client.call(path, MSG(BIG), seconds=60).says(0, [BIG])


# --- floods ---

def flood(setup, payload, seconds=3.0):
    """Sends it again and again without reading much until the proxy ends the connection or time is over; whether it ended."""
    grown, before = 0, resident_bytes(setup.proxy.pid)
    sock = connect(setup.proxy.target)
    sock.sendall(PREFACE + settings())
    sock.settimeout(0.2)
    end, ended = time.monotonic() + seconds, False
    while time.monotonic() < end and not ended:
        try:
            sock.sendall(payload)
        except socket.timeout:
            pass
        except OSError:
            ended = True
        grown = max(grown, resident_bytes(setup.proxy.pid) - before)
    sock.close()
    return ended, grown


FLOODS = {
    "PING": frame(PING, 0, 0, b"12345678") * 1000,
    "SETTINGS": settings([(INITIAL_WINDOW_SIZE, 70000)]) * 1000,
    "empty SETTINGS": settings() * 1000,
    "PRIORITY": frame(PRIORITY, 0, 1, bytes(5)) * 1000,
    "unknown frames": frame(200, 0, 0, b"x" * 100) * 1000,
    "WINDOW_UPDATE": window_update(0, 1) * 1000,
}


@pytest.mark.parametrize("kind", FLOODS)
def test_a_flood_without_reading_costs_no_memory(scripted, kind):
    setup = scripted()
    assert_serves(setup)
    _, grown = flood(setup, FLOODS[kind])
    assert grown < 24 << 20
    assert_serves(setup)
    assert_at_rest(setup.proxy)


@pytest.mark.parametrize("payload", [block([("x-many", "y" * 1000)] * 16), b""], ids=["full", "empty"])
def test_continuation_without_end_is_calmed(scripted, payload):
    setup = scripted()
    client = setup.new_client()
    # its own ACK of SETTINGS must not come between HEADERS and CONTINUATION
    client.wait(lambda: client.settings_acks, "the settings")
    client.raw(frame(HEADERS, 0, 1, block(request_fields(U))))
    for _ in range(20):
        client.raw(frame(CONTINUATION, 0, 1, payload) * 100)
    client.wait(lambda: client.closed, "the end")
    assert client.goaway[1] == ENHANCE_YOUR_CALM
    assert_serves(setup)
    assert_at_rest(setup.proxy)


@pytest.mark.parametrize("path", [U, S, "/no/route"])
def test_rapid_reset_is_calmed(scripted, path):
    setup = scripted(listener="reset_limit = 500/10s")
    client = setup.new_client()
    for _ in range(100):
        client.raw(b"".join(headers(number, request_fields(path)) + reset(number, 8)
                            for number in (client.new_id() for _ in range(20))))
    client.wait(lambda: client.closed, "the end")
    assert client.goaway[1] == ENHANCE_YOUR_CALM
    assert_serves(setup)
    assert_at_rest(setup.proxy)


def test_a_provider_that_floods_is_left(scripted):
    """PINGs and SETTINGS from a provider while a call runs: its memory is bounded, the call ends, others find another connection."""
    flooding = True

    def answer(peer, stream):
        if not flooding or peer is not setup.provider.peers[0]:
            return either(peer, stream)
        for _ in range(200):
            peer.raw(FLOODS["PING"] + FLOODS["SETTINGS"])
        return either(peer, stream)
    setup = scripted(answer)
    reply = setup.client.call(U, extra=[("grpc-timeout", "20S")], seconds=30)
    assert reply.code in (0, 14)
    flooding = False
    wait_until_true(lambda: setup.client.call(U).code == 0, "a call that works again")
    assert_at_rest(setup.proxy)


def test_two_hundred_fields_of_metadata_both_ways(scripted):
    many = [(f"x-field-{i}", f"value {i}") for i in range(200)]

    def answer(peer, stream):
        echoed = [(name, value) for name, value in stream.fields if name.startswith("x-field-")]
        if stream.one("content-type") == "application/grpc":
            return framed(peer, stream, head=echoed, trailers=[("t" + name, value) for name, value in echoed])
        return bare(peer, stream, extra=echoed)
    setup = scripted(answer)
    for path in (U, S, A):
        reply = setup.client.call(path, extra=many).says(0, ["hi"])
        assert [each for each in reply.heads[0] if each[0].startswith("x-field-")] == many
    assert len([each for each in reply.heads[-1] if each[0].startswith("tx-field-")]) in (0, 200)


# --- lies about lengths ---

@pytest.mark.parametrize("path", [U, S, A])
@pytest.mark.parametrize("length", ["0", "6", "8", "99999999999999999999", "-1", "7, 7", "x", "7x", "+7"])
def test_a_request_that_lies_about_its_length_ends_alone(scripted, path, length):
    setup = scripted()
    number = setup.client.new_id()  # the body is 7 bytes
    setup.client.raw(headers(number, request_fields(path, [("content-length", length)])) + data(number, MSG("hi"), end=True))
    reply = setup.client.ended(number)
    assert reply.reset is not None or reply.code not in (None, 0), reply.heads
    setup.client.call(path).says(0, ["hi"])


@pytest.mark.parametrize("path", [U, S, A])
@pytest.mark.parametrize("length", ["0", "1", "3", "99999999999999999999", "-1", "2, 2", "x"])
def test_a_reply_that_lies_about_its_length_is_an_error(scripted, path, length):
    lying = True

    def answer(peer, stream):
        if not lying:
            return either(peer, stream)
        grpc = stream.one("content-type") == "application/grpc"
        peer.raw(headers(stream.id, [(":status", "200"), ("content-type", "application/grpc" if grpc else "application/proto"),
                                     ("content-length", length)]) +
                 data(stream.id, MSG("hi") if grpc else "hi", end=not grpc) +
                 (headers(stream.id, [("grpc-status", "0")], end=True) if grpc else b""))
    setup = scripted(answer)
    reply = setup.client.call(path, extra=[("grpc-timeout", "5S")])
    assert reply.code in (2, 13), (reply.heads, reply.reset)
    lying = False
    assert_serves(setup)


# --- load that goes on while something happens ---

class Load:
    """Calls of all four kinds through the proxy until stopped; their codes. A call that does not end in time fails the test."""

    KINDS = [["--method", SAY], ["--method", SAY, "--size", "100000"], ["--type", "server"], ["--type", "client"], ["--type", "bidi"]]

    def __init__(self, target, expect="0", kinds=None):
        self.target, self.expect, self.stopped = target, expect, threading.Event()
        self.rounds, self.failures = 0, []
        self.threads = [threading.Thread(target=self.run, args=(kind,), daemon=True) for kind in kinds or self.KINDS]
        for thread in self.threads:
            thread.start()

    def run(self, kind):
        methods = {"server": "Down", "client": "Up", "bidi": "Chat"}
        method = [] if "--method" in kind else ["--method", "/tributary.demo.Echo/" + methods[kind[1]]]
        while not self.stopped.is_set():
            done = subprocess.run([tool("echo-caller"), "--target", self.target, *kind, *method, "--count", "200", "--concurrency", "10",
                                   "--deadline-ms", "20000"], capture_output=True, text=True, timeout=90)
            self.rounds += 1
            if done.returncode != 0:
                self.failures.append(f"{kind}: {done.stdout}{done.stderr}"[-600:])

    def stop(self):
        self.stopped.set()
        for thread in self.threads:
            thread.join(120)
            assert not thread.is_alive(), "a call that never ended"
        return self.failures


def test_a_storm_of_reloads_costs_no_call(echo, tributary):
    """HUP a hundred times, the file replaced by good, bad, half-written and missing ones in between."""
    proxy = tributary(echo(), proxy="workers = 2")
    good = proxy.file.read_text()
    load = Load(proxy.target)
    rng = random.Random(1)
    for i in range(100):
        kind = i % 5
        if kind == 0:
            proxy.file.write_text(good.replace("workers = 2", f"workers = 2\nmax_message = {8 + i}M"))
        elif kind == 1:
            proxy.file.write_text(good[:rng.randrange(len(good))])
        elif kind == 2:
            proxy.file.unlink()
        elif kind == 3:
            proxy.file.write_bytes(bytes(rng.randrange(256) for _ in range(2000)))
        else:
            proxy.file.write_text(good)
        proxy.send(signal.SIGHUP)
        time.sleep(rng.choice([0, 0.001, 0.02]))
    assert load.stop() == [] and load.rounds >= 5
    proxy.file.write_text(good)
    proxy.send(signal.SIGHUP)
    proxy.wait_for(lambda stats: stats["config"]["error"] is None, "the good configuration")
    assert_at_rest(proxy)


def test_a_configmap_is_followed(echo, tributary, tmp_path, call):
    """As kubelet does it: file -> ..data/file, ..data -> a folder, and ..data is renamed over. Twenty times, under load."""
    proxy = tributary(echo(), text=None)
    good = proxy.file.read_text()
    mount = tmp_path / "mount"
    mount.mkdir()

    def publish(number):
        folder = mount / f"..{number}"
        folder.mkdir()
        (folder / "tributary.ini").write_text(good.replace(f"admin = {proxy.admin}", f"admin = {proxy.admin}\nmax_message = {number + 8}M"))
        (mount / "..new").symlink_to(folder.name)
        os.rename(mount / "..new", mount / "..data")
    publish(0)
    proxy.file.unlink()
    (mount / "tributary.ini").symlink_to("..data/tributary.ini")
    proxy.file.symlink_to(mount / "tributary.ini")
    proxy.wait_for(lambda stats: stats["config"]["generation"] == 2, "the first one")
    load = Load(proxy.target, kinds=Load.KINDS[:1])
    for number in range(1, 6):
        publish(number)
        proxy.wait_for(lambda _: f"max_message = {number + 8}M" in proxy.get("/config").text, "the next one")  # noqa: B023
    assert load.stop() == []
    assert proxy.stats()["config"] == {"generation": 7, "error": None}
    assert_at_rest(proxy)


def test_term_under_load_ends_every_call(echo, tributary):
    """All calls end with a code the client understands, in time, and the exit code is 0."""
    proxy = tributary(echo(), proxy="workers = 2\ndrain_timeout = 5s")
    load = Load(proxy.target)
    wait_until_true(lambda: load.rounds >= 2, "some load", 60)
    began = time.monotonic()
    proxy.send(signal.SIGTERM)
    assert proxy.wait() == 0
    assert time.monotonic() - began < 8
    load.stop()


@pytest.mark.parametrize("how", ["kill", "freeze"])
@pytest.mark.parametrize("transport", ["h2", "http1"])
def test_providers_killed_and_frozen_under_load(started, echo, tributary, call, tmp_path, how, transport):
    """One of two providers dies (and another takes its port) or stands still for a while, five times. Calls may fail but all end."""
    stable, shaky = echo(), echo()
    port = shaky.target.rpartition(":")[2]
    proxy = tributary([stable, shaky], upstream=f"transport = {transport}")
    load = Load(proxy.target)
    for _ in range(5):
        time.sleep(0.3)
        if how == "freeze":
            shaky.send(signal.SIGSTOP)
            time.sleep(0.5)
            shaky.send(signal.SIGCONT)
        else:
            shaky.popen.kill()
            shaky.popen.wait()
            started.programs.remove(shaky)
            time.sleep(0.1)
            shaky = echo("--port", port)
    load.stop()
    wait_until_true(lambda: proxy.endpoint(shaky.target)["state"] in ("ready", "idle", "backoff"), "the endpoint")
    wait_until_true(lambda: succeeds(proxy), "calls that succeed again", 15)
    assert_at_rest(proxy)


def succeeds(proxy, *options):
    done = subprocess.run([tool("echo-caller"), "--target", proxy.target, "--count", "50", "--deadline-ms", "5000", *options],
                          capture_output=True, text=True, timeout=60)
    return done.returncode == 0


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_clients_killed_and_frozen_under_load(echo, tributary, number):
    proxy = tributary(echo(), proxy="workers = 2")
    for kind in (["--size", "1000000"], ["--type", "bidi", "--method", CHAT, "--messages", "100000", "--size", "10000"]):
        callers = [subprocess.Popen([tool("echo-caller"), "--target", proxy.target, "--count", "100000", "--concurrency", "20", *kind],
                                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for _ in range(3)]
        time.sleep(0.7)
        for caller in callers:
            caller.send_signal(number)
        if number == signal.SIGSTOP:
            time.sleep(0.3)
            assert succeeds(proxy)  # others are served while they stand still
        for caller in callers:
            caller.kill()
            caller.wait()
    assert succeeds(proxy)
    assert_at_rest(proxy)


# --- what the machine does not give ---

def test_logs_on_a_full_disk_cost_no_call(echo, tributary, call):
    proxy = tributary(echo(), proxy="access_log = /dev/full")
    call(proxy, "--count", 500, "--concurrency", 10)
    full = proxy.file.read_text().replace("access_log = /dev/full", "access_log = /dev/full\nlog = /dev/full")
    proxy.reload(full)
    call(proxy, "--count", 500, "--concurrency", 10)
    assert_at_rest(proxy)


def test_few_descriptors(echo, tributary):
    """64 descriptors, 200 connections: who gets one is served, the loop does not spin, and all is well when they have gone."""
    proxy = tributary(echo())
    resource.prlimit(proxy.pid, resource.RLIMIT_NOFILE, (64, 64))
    socks = []
    for _ in range(200):
        sock = connect(proxy.target)
        sock.sendall(PREFACE + settings())
        socks.append(sock)
    time.sleep(0.5)
    before = cpu_ticks(proxy.pid)
    time.sleep(1)
    assert cpu_ticks(proxy.pid) - before < 30
    for sock in socks:
        sock.close()
    wait_until_true(lambda: succeeds(proxy), "calls that succeed again", 15)
    assert_at_rest(proxy)


def test_thousands_of_connections_and_streams(scripted):
    """2000 connections of which 20 have 1000 streams each; then all leave without a word. Memory comes back."""
    setup = scripted(lambda peer, stream: None)
    before = resident_bytes(setup.proxy.pid)
    idle = []
    for _ in range(2000):
        sock = connect(setup.proxy.target)
        sock.sendall(PREFACE + settings())
        idle.append(sock)
    busy = [setup.new_client() for _ in range(20)]
    for client in busy:
        client.raw(b"".join(headers(client.new_id(), request_fields(S)) for _ in range(1000)))
    setup.proxy.wait_for(lambda stats: stats["listeners"]["main"]["connections"] == 2020, "all connections", 30)
    setup.proxy.wait_for(lambda stats: stats["routes"]["s"]["started"] == 20000, "all streams", 60)
    for sock in [*idle, *(client.sock for client in busy)]:
        send_tcp_reset(sock)
    setup.proxy.wait_for(lambda stats: stats["listeners"]["main"]["connections"] == 0, "nobody", 30)
    assert_at_rest(setup.proxy, 30)
    setup.provider.answer = either
    assert_serves(setup)
    if "asan" not in os.environ.get("TRIBUTARY_BIN", ""):
        wait_until_true(lambda: resident_bytes(setup.proxy.pid) < before + (16 << 20), "memory given back", 20)


def test_ipv6_and_unix_sockets_on_both_sides(echo, tributary, call, tmp_path):
    for bind in (["--bind", "::1"], ["--unix", tmp_path / "provider.sock"]):
        provider = echo(*bind)
        for address in ("[::1]:0", f"unix:{tmp_path / 'proxy.sock'}"):
            proxy = tributary(provider, address=address, proxy="workers = 2")
            call(proxy, "--count", 100, "--concurrency", 20, "--connections", 4)
            call(proxy, "--type", "bidi", "--method", CHAT, "--count", 20, "--connections", 4)
            assert_at_rest(proxy)
            proxy.stop()


# --- slow ones ---

def test_slow_writers_do_not_hold_up_others_and_are_left(scripted):
    """A byte of the preface each 100 ms, a header block that never ends, a body that never ends."""
    setup = scripted()
    slow = [connect(setup.proxy.target) for _ in range(50)]
    for i in range(24):
        for sock in slow:
            sock.sendall(PREFACE[i:i + 1])
    half_block = connect(setup.proxy.target)
    half_block.sendall(PREFACE + settings() + frame(HEADERS, 0, 1, block(request_fields(U))))
    client = setup.new_client()
    body = client.open(U, [("grpc-timeout", "1S")])
    client.raw(data(body, MSG(b"x" * 100)[:50]))
    assert_serves(setup)
    assert client.ended(body).code == 4
    for sock in [*slow, half_block]:
        sock.close()
    assert_at_rest(setup.proxy)


# --- TLS at the listener ---

def tls_client(target, authority_file, cert=None, alpn="h2"):
    context = ssl.create_default_context(cafile=authority_file)
    context.set_alpn_protocols([alpn])
    if cert:
        context.load_cert_chain(*cert)
    raw = connect(target)
    return context.wrap_socket(raw, server_hostname="127.0.0.1")


def speaks(sock):
    """SETTINGS come over it: the proxy takes it for HTTP/2 and has let it in."""
    sock.settimeout(5)
    try:
        sock.sendall(PREFACE + settings())
        return len(sock.recv(100)) > 9
    except OSError:
        return False
    finally:
        sock.close()


def test_a_listener_that_asks_for_certificates(echo, tributary, authority, tmp_path, call):  # noqa: F811
    cert, key = authority.issue("IP:127.0.0.1")
    mine = authority.issue("DNS:client.test")
    expired = tmp_path / "old.pem", tmp_path / "old.key"
    authority.openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=old",
                      "-keyout", expired[1], "-out", tmp_path / "old.csr")
    authority.openssl("x509", "-req", "-in", tmp_path / "old.csr", "-CA", authority.file, "-CAkey", authority.key, "-CAcreateserial",
                      "-days", "-1", "-out", expired[0])
    stranger = tmp_path / "self.pem", tmp_path / "self.key"
    authority.openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=self",
                      "-keyout", stranger[1], "-out", stranger[0])
    proxy = tributary(echo(), listener=f"tls_cert = {cert}\ntls_key = {key}\ntls_client_ca = {authority.file}", proxy="workers = 2")
    assert speaks(tls_client(proxy.target, authority.file, mine))
    for bad in (None, expired, stranger):
        try:
            sock = tls_client(proxy.target, authority.file, bad)
        except OSError:
            continue
        assert not speaks(sock), bad
    # Clear text, half a hello, a hello and rubbish, renegotiation's bytes: closed, and nobody else notices.
    for rubbish in (PREFACE + settings(), b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(40), os.urandom(500)):
        with connect(proxy.target) as sock:
            sock.sendall(rubbish)
            sock.shutdown(socket.SHUT_WR)
            sock.settimeout(5)
            with contextlib.suppress(ConnectionError):
                while sock.recv(4096):
                    pass
    assert speaks(tls_client(proxy.target, authority.file, mine))
    assert_at_rest(proxy)


def test_tls_on_both_sides_under_load(echo, tributary, authority, call):  # noqa: F811
    """caller -> clear -> proxy -> mutual TLS -> proxy -> provider; clients die in between; then the certificate changes by reload."""
    cert, key = authority.issue("IP:127.0.0.1")
    mine = authority.issue("DNS:client.test")
    inner = tributary(echo(), listener=f"tls_cert = {cert}\ntls_key = {key}\ntls_client_ca = {authority.file}")
    outer = tributary(inner.target, upstream=f"tls = on\ntls_ca = {authority.file}\ntls_cert = {mine[0]}\ntls_key = {mine[1]}")
    # Not server streams: the outer proxy tries them bare, and a bare call is a unary one for the inner.
    load = Load(outer.target, kinds=[kind for kind in Load.KINDS if "server" not in kind])
    for _ in range(3):
        caller = subprocess.Popen([tool("echo-caller"), "--target", outer.target, "--count", "1000", "--concurrency", "20", "--size", "300000"],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(0.4)
        caller.kill()
        caller.wait()
    again = authority.issue("IP:127.0.0.1")
    assert inner.reload(inner.file.read_text().replace(str(cert), str(again[0])).replace(str(key), str(again[1])))["error"] is None
    assert inner.reload(inner.file.read_text().replace(str(again[0]), str(again[1])))["error"] is not None
    assert load.stop() == []
    call(outer, "--size", 8 << 20 >> 1, "--count", 3)
    assert_at_rest(outer)
    assert_at_rest(inner)
