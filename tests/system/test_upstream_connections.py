"""Connections to providers: how many, when they are made again, and what becomes of calls when they go."""
import random
import signal
import socket
import struct
import threading
import time

import pytest
from conftest import wait_until_true
from h2peer import (ENHANCE_YOUR_CALM, INITIAL_WINDOW_SIZE, MAX_CONCURRENT_STREAMS, MSG, PING, Client, Peer, Provider, data,
                    either, frame, goaway, headers, request_fields, reset, settings, window_update)
from scripted import A, S, U, scripted  # noqa: F401

SAY = "/tributary.demo.Echo/Say"
REFUSED_STREAM = 7
LAST = 0x7fffffff


class Load:
    """`rate` unary calls a second on a client, for as long as the block runs; then all replies are awaited."""

    def __init__(self, client, rate, path=U, extra=()):
        self.client, self.rate, self.path, self.extra = client, rate, path, extra
        self.ids, self.over = [], threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)

    def _run(self):
        began = time.monotonic()
        while not self.over.is_set():
            number = self.client.new_id()
            self.ids.append(number)
            self.client.raw(headers(number, request_fields(self.path, self.extra)) + data(number, MSG("hi"), end=True))
            time.sleep(max(0, began + len(self.ids) / self.rate - time.monotonic()))

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()

    def replies(self, seconds=10):
        return [self.client.ended(number, seconds) for number in self.ids]

    def codes(self, seconds=10):
        return [reply.code for reply in self.replies(seconds)]


def start_many(client, count, path=U, extra=()):
    """`count` calls in one segment; their ids."""
    ids = [client.new_id() for _ in range(count)]
    client.raw(b"".join(headers(i, request_fields(path, extra)) + data(i, MSG("hi"), end=True) for i in ids))
    return ids


def complaints(proxy):
    return [line for line in proxy.errors().splitlines() if "level=warn" in line or "level=error" in line]


# --- how many ---

def test_sequential_calls_use_one_connection(echo, tributary, call):
    provider = echo()
    proxy = tributary(provider)
    call(proxy, "--count", 500)
    assert proxy.endpoint(provider.target)["opened"] == 1


def test_each_worker_has_a_connection_of_its_own(echo, tributary, call):
    provider = echo()
    proxy = tributary(provider, proxy="workers = 2")
    call(proxy, "--count", 400, "--concurrency", 8, "--connections", 8)
    assert 1 <= proxy.endpoint(provider.target)["opened"] <= 2


def test_calls_read_in_one_turn_leave_in_one_write(scripted):
    setup = scripted()
    setup.client.call(U).says(0, ["hi"])
    before = setup.endpoint()["writes"]
    ids = start_many(setup.client, 64)
    assert all(setup.client.ended(i).code == 0 for i in ids)
    # One for the requests; window updates and the like may need a few more, 64 would not be merged.
    assert setup.endpoint()["writes"] - before <= 4


class LateSettings(Provider):
    """Says nothing on a new connection for a while."""

    def __init__(self, answer, delay_s, **options):
        self.delay_s, self.accepted = delay_s, []
        super().__init__(answer, **options)

    def _accept(self):
        try:
            while True:
                sock, _ = self.listening.accept()
                self.accepted.append(time.monotonic())
                threading.Thread(target=self._greet, args=(sock,), daemon=True).start()
        except OSError:
            pass

    def _greet(self, sock):
        time.sleep(self.delay_s)
        self.peers.append(Peer(sock, server=True, on_stream=self._on_stream, **self.options))


@pytest.fixture
def provider_of():
    """provider_of(kind, …): a Provider that is closed at the test's end."""
    made = []

    def make(kind, *arguments, **options):
        made.append(kind(*arguments, **options))
        return made[-1]
    yield make
    for each in made:
        each.close()


def test_a_burst_before_the_first_settings_opens_no_storm_of_connections(scripted, provider_of):
    late = provider_of(LateSettings, either, 0.3, initial=((INITIAL_WINDOW_SIZE, 1 << 24), (MAX_CONCURRENT_STREAMS, 250)))
    setup = scripted(endpoints=late.target, upstream="max_connections = 4")
    ids = start_many(setup.client, 500)
    assert [setup.client.ended(i).code for i in ids] == [0] * 500
    assert len(late.accepted) <= 4


def test_connections_are_bounded_when_streams_run_out(scripted):
    gate = threading.Event()

    def answer(peer, stream):
        gate.wait(10)
        either(peer, stream)
    setup = scripted(answer, upstream="max_connections = 3",
                     initial=((INITIAL_WINDOW_SIZE, 1 << 24), (MAX_CONCURRENT_STREAMS, 4)))
    setup.client.ping()
    time.sleep(0.2)  # the first connection's SETTINGS are known
    ids = start_many(setup.client, 20)
    time.sleep(0.5)
    assert len(setup.provider.peers) == 3
    assert len(setup.provider.requests) == 12
    gate.set()
    assert [setup.client.ended(i).code for i in ids] == [0] * 20


# --- waiting ---

def test_waiting_calls_are_bounded_by_max_pending(scripted):
    setup = scripted(upstream="max_connections = 1\nmax_pending = 5",
                     initial=((INITIAL_WINDOW_SIZE, 1 << 24), (MAX_CONCURRENT_STREAMS, 0)))
    time.sleep(0.3)
    ids = start_many(setup.client, 8)
    over = [setup.client.ended(i) for i in ids[5:]]
    assert [reply.code for reply in over] == [8, 8, 8]
    assert "max_pending" in over[0].message
    setup.provider.peers[0].raw(settings([(MAX_CONCURRENT_STREAMS, 100)]))
    assert [setup.client.ended(i).code for i in ids[:5]] == [0] * 5


def test_a_waiting_call_ends_at_its_deadline(scripted):
    setup = scripted(upstream="max_connections = 1",
                     initial=((INITIAL_WINDOW_SIZE, 1 << 24), (MAX_CONCURRENT_STREAMS, 0)))
    time.sleep(0.2)
    began = time.monotonic()
    setup.client.call(U, extra=[("grpc-timeout", "200m")]).says(4)
    assert 0.19 < time.monotonic() - began < 0.6
    assert not setup.provider.requests


def cpu_seconds(proxy):
    with open(f"/proc/{proxy.pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / 100


def test_a_lowered_limit_is_kept_and_a_raised_one_used(scripted):
    """The provider's MAX_CONCURRENT_STREAMS goes 100, 1, 0, 50 while calls run."""
    gates = {}

    def answer(peer, stream):
        gate = gates.setdefault(len(gates), threading.Event())
        gate.wait(20)
        either(peer, stream)
    setup = scripted(answer, upstream="max_connections = 1",
                     initial=((INITIAL_WINDOW_SIZE, 1 << 24), (MAX_CONCURRENT_STREAMS, 100)))
    first = start_many(setup.client, 10)
    provider = setup.provider
    peer_wait(provider, lambda: len(provider.requests) == 10)
    peer = provider.peers[0]
    acks = peer.settings_acks
    peer.raw(settings([(MAX_CONCURRENT_STREAMS, 1)]))
    peer.wait(lambda: peer.settings_acks > acks, "ACK")
    second = start_many(setup.client, 3)
    time.sleep(0.3)
    assert len(provider.requests) == 10
    acks = peer.settings_acks
    peer.raw(settings([(MAX_CONCURRENT_STREAMS, 0)]))
    peer.wait(lambda: peer.settings_acks > acks, "ACK")
    for gate in list(gates.values()):
        gate.set()
    assert [setup.client.ended(i).code for i in first] == [0] * 10
    used = cpu_seconds(setup.proxy)
    time.sleep(0.5)
    assert len(provider.requests) == 10
    assert cpu_seconds(setup.proxy) - used < 0.2  # waits, does not spin
    peer.raw(settings([(MAX_CONCURRENT_STREAMS, 50)]))
    peer_wait(provider, lambda: len(provider.requests) == 13)
    for gate in list(gates.values()):
        gate.set()
    assert [setup.client.ended(i).code for i in second] == [0] * 3


def peer_wait(provider, condition, seconds=10):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{len(provider.requests)} requests, {len(provider.peers)} connections"
        time.sleep(0.01)


# --- GOAWAY ---

class GoesAway:
    """answer() of a provider that sends GOAWAY after every `every`-th request of a connection, as a draining server does."""

    def __init__(self, every):
        self.every, self.lock, self.count = every, threading.Lock(), {}

    def __call__(self, peer, stream):
        with self.lock:
            seen = self.count[peer] = self.count.get(peer, 0) + 1
        if seen == self.every:
            peer.raw(goaway(LAST))
            peer.ping()  # what crossed it is here now
            peer.raw(goaway(max(peer.streams)))
        either(peer, stream)


def test_goaway_after_every_tenth_request_fails_no_call(scripted):
    setup = scripted(GoesAway(10))
    with Load(setup.client, 100) as load:
        time.sleep(3)
    assert set(load.codes()) == {0}
    endpoint = setup.endpoint()
    assert endpoint["failures"] == 0
    assert endpoint["opened"] >= len(load.ids) / 10 / 2
    assert not complaints(setup.proxy)


def test_streams_of_a_connection_that_goes_away_finish_there(scripted):
    held = []

    def answer(peer, stream):
        if len(held) < 3:
            held.append((peer, stream))
        else:
            either(peer, stream)
    setup = scripted(answer)
    old = start_many(setup.client, 3)
    peer_wait(setup.provider, lambda: len(held) == 3)
    peer = held[0][0]
    peer.raw(goaway(LAST))
    time.sleep(0.1)
    setup.client.call(U).says(0, ["hi"])
    assert len(setup.provider.peers) == 2 and setup.provider.requests[-1].peer is not peer
    time.sleep(0.9)
    for _, stream in held:
        either(peer, stream)
    peer.raw(goaway(max(stream.id for _, stream in held)))
    assert [setup.client.ended(i).code for i in old] == [0] * 3
    assert setup.endpoint()["failures"] == 0 and not complaints(setup.proxy)
    peer.wait(lambda: peer.closed, "the old connection's end")


def test_a_refused_stream_is_sent_again(scripted):
    seen = []

    def answer(peer, stream):
        seen.append(stream.id)
        if len(seen) == 1:
            peer.raw(reset(stream.id, REFUSED_STREAM))
        else:
            either(peer, stream)
    setup = scripted(answer)
    setup.client.call(U).says(0, ["hi"])
    assert len(seen) == 2 and setup.route("u")["retries"] == 1


def test_a_provider_that_refuses_everything_ends_the_call_unavailable(scripted):
    setup = scripted(lambda peer, stream: peer.raw(reset(stream.id, REFUSED_STREAM)))
    setup.client.call(U).says(14)
    assert 2 <= len(setup.provider.requests) <= 5


def test_what_moves_to_another_connection_begins_afresh_there(scripted):
    """cases.md 33: nothing of the old connection's numbers, windows or header table reaches the new one."""
    body = bytes(range(256)) * 400

    def answer(peer, stream):
        if peer is setup.provider.peers[0]:
            peer.raw(frame(PING, 0, 0, b"12345678"))
            peer.raw(goaway(0))
            return
        either(peer, stream)
    setup = scripted(answer)
    setup.client.call(U, MSG(body)).says(0, [body])
    first, second = setup.provider.peers
    assert list(second.streams) == [1] and second.streams[1].body == body
    assert second.settings and second.settings_acks == 1 and not second.pings
    first.wait(lambda: first.closed, "the old connection's end")


def test_goaway_before_any_use_is_paced(scripted):
    """A provider that sends every connection away at once, at 200 calls a second: no hot loop of dials."""
    accepted = []

    def answer(peer, stream):
        accepted.append(peer)
        peer.raw(goaway(0, ENHANCE_YOUR_CALM, b"too_many_pings"))
    setup = scripted(answer, whole=False)
    with Load(setup.client, 200) as load:
        time.sleep(3)
    assert set(load.codes()) == {14}
    assert len(setup.provider.peers) <= 12  # 5 in the first second, then about one in each


# --- down and up ---

@pytest.mark.parametrize("path", [U, S, A])
@pytest.mark.parametrize("manner", ["refuses", "closes", "resets", "http1", "tls"])
def test_a_provider_that_speaks_no_http2_is_unavailable(scripted, free_port, manner, path):
    over, accepted = threading.Event(), []

    def serve(listening):
        replies = {"http1": b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
                   "tls": bytes.fromhex("15030100020228")}
        while not over.is_set():
            try:
                sock, _ = listening.accept()
            except OSError:
                return
            accepted.append(time.monotonic())
            if manner == "resets":
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            if manner in replies:
                sock.sendall(replies[manner])
                time.sleep(0.05)
            sock.close()
    target = f"127.0.0.1:{free_port()}"
    listening = None
    if manner != "refuses":
        listening = socket.create_server(("127.0.0.1", 0))
        target = "127.0.0.1:%d" % listening.getsockname()[1]
        threading.Thread(target=serve, args=(listening,), daemon=True).start()
    try:
        setup = scripted(endpoints=target)
        for _ in range(10):
            reply = setup.client.call(path).says(14, trailers_only=True)
            assert reply.message.isascii() and len(reply.message) < 300
            time.sleep(0.05)
        assert len(accepted) <= 9
    finally:
        over.set()
        if listening:
            listening.shutdown(socket.SHUT_RDWR)
            listening.close()


def test_a_provider_that_is_down_is_dialled_seldom_and_found_again(scripted, free_port, provider_of):
    port = free_port()
    setup = scripted(endpoints=f"127.0.0.1:{port}")
    address = f"127.0.0.1:{port}"

    def failures():
        return setup.proxy.stats()["upstreams"]["up"]["endpoints"][address]["failures"]
    client = setup.client
    with Load(client, 200) as load:
        time.sleep(1)
        before, began = failures(), time.monotonic()
        time.sleep(2)
        assert (failures() - before) / (time.monotonic() - began) < 9
        down = time.monotonic()
        provider_of(Provider, either, port=port)
        setup.proxy.wait_for(lambda stats: stats["routes"]["u"]["status"].get("OK"), "recovery", 5)
        assert time.monotonic() - down < 2
        time.sleep(0.3)
    replies = load.replies()
    assert {reply.code for reply in replies} == {0, 14}
    assert all(reply.ended - reply.began < 1 for reply in replies)
    assert not client.closed and client.goaway is None
    assert replies[-1].code == 0


def test_killed_and_started_again_under_load(tributary, echo, started):
    """Every call ends with a status, and the client's connection stays."""
    provider = echo()
    port = provider.target.rpartition(":")[2]
    proxy = tributary(provider, route="call = unary")
    client = Client(proxy.target)

    def answered():
        return proxy.route()["status"].get("OK", 0)
    with Load(client, 300, SAY) as load:
        time.sleep(0.7)
        provider.popen.kill()
        provider.popen.wait()
        started.programs.remove(provider)
        time.sleep(0.7)
        seen, back = answered(), time.monotonic()
        echo("--port", port)
        wait_until_true(lambda: answered() > seen, "recovery", 5)
        assert time.monotonic() - back < 2
        time.sleep(0.3)
    codes = load.codes()
    assert set(codes) == {0, 14} and codes[-1] == 0
    assert not client.closed
    client.close()


def test_a_frozen_provider_is_noticed(echo, tributary, started):
    """cases.md 37: SIGSTOP with an idle connection in the pool. A call with a deadline ends by it; one without when the PING
    was not answered; then a fresh connection is tried, and used once the provider goes on."""
    provider = echo()
    proxy = tributary(provider, route="call = unary")
    client = Client(proxy.target)
    client.call(SAY).says(0, ["hi"])
    provider.send(signal.SIGSTOP)
    try:
        began = time.monotonic()
        client.call(SAY, extra=[("grpc-timeout", "1S")]).says(4)
        assert 0.9 < time.monotonic() - began < 1.5
        client.call(SAY, seconds=30).says(14)
        assert time.monotonic() - began < 23
        client.call(SAY, seconds=30).says(14)  # the kernel accepts the new connection, nobody speaks on it
        assert time.monotonic() - began < 30
    finally:
        provider.send(signal.SIGCONT)
    proxy.wait_for(lambda stats: stats["upstreams"]["echo"]["endpoints"][provider.target]["state"] == "ready", "recovery", 5)
    client.call(SAY).says(0, ["hi"])
    client.close()


# --- several endpoints ---

def test_round_robin_is_even(tributary, provider_of):
    providers = [provider_of(Provider, either) for _ in range(3)]
    proxy = tributary([each.target for each in providers], upstream="lb_policy = round_robin", route="call = unary")
    client = Client(proxy.target)
    for _ in range(30):
        client.call(SAY).says(0, ["hi"])
    assert [len(each.requests) for each in providers] == [10, 10, 10]
    client.close()


def test_least_request_avoids_the_busy_one(tributary, provider_of):
    gate = threading.Event()

    def slow(peer, stream):
        gate.wait(10)
        either(peer, stream)
    busy, free = provider_of(Provider, slow), provider_of(Provider, either)
    proxy = tributary([busy.target, free.target], route="call = unary")
    client = Client(proxy.target)
    ids = start_many(client, 100, SAY)
    time.sleep(0.3)
    more = [client.call(SAY).code for _ in range(50)]
    assert more == [0] * 50  # none of these went to the busy one
    assert len(busy.requests) < 70
    gate.set()
    assert [client.ended(i).code for i in ids] == [0] * 100
    client.close()


@pytest.mark.parametrize("policy", ["round_robin", "least_request"])
def test_a_dead_endpoint_among_several_costs_no_call(tributary, provider_of, free_port, policy):
    alive = [provider_of(Provider, either) for _ in range(2)]
    dead = f"127.0.0.1:{free_port()}"
    proxy = tributary([alive[0].target, dead, alive[1].target], upstream=f"lb_policy = {policy}", route="call = unary")
    client = Client(proxy.target)
    slowest = 0
    for _ in range(100):
        reply = client.call(SAY).says(0, ["hi"])
        slowest = max(slowest, reply.ended - reply.began)
    assert slowest < 0.5
    assert all(len(each.requests) > 20 for each in alive)
    assert proxy.endpoint(dead)["state"] == "backoff"
    client.close()


def test_an_endpoint_that_does_not_answer_is_skipped_after_the_first(tributary, provider_of):
    """A full listen queue drops SYNs: connect_timeout passes once, not for every call."""
    hole = socket.socket()
    hole.bind(("127.0.0.1", 0))
    hole.listen(0)
    fillers = []
    for _ in range(4):
        filler = socket.socket()
        filler.setblocking(False)
        filler.connect_ex(hole.getsockname())
        fillers.append(filler)
    alive = provider_of(Provider, either)
    proxy = tributary(["127.0.0.1:%d" % hole.getsockname()[1], alive.target],
                      upstream="connect_timeout = 300ms\nlb_policy = round_robin", route="call = unary")
    time.sleep(0.5)
    client = Client(proxy.target)
    began = time.monotonic()
    for _ in range(50):
        client.call(SAY).says(0, ["hi"])
    assert time.monotonic() - began < 2
    client.close()
    for each in (*fillers, hole):
        each.close()


def test_a_hundred_endpoints(echo, tributary, call):
    port = echo("--bind", "0.0.0.0").target.rpartition(":")[2]
    targets = [f"127.0.0.{n}:{port}" for n in range(1, 101)]
    proxy = tributary(targets, upstream="lb_policy = round_robin", route="call = unary")
    call(proxy, "--count", 2000, "--concurrency", 50)
    endpoints = proxy.stats()["upstreams"]["echo"]["endpoints"]
    assert len(endpoints) == 100
    assert {each["upstream_us"]["count"] for each in endpoints.values()} == {20}
    assert all(each["opened"] == 1 for each in endpoints.values())


@pytest.mark.parametrize("transport", ["h2", "http1"])
def test_a_provider_on_a_unix_socket(echo, tributary, call, tmp_path, transport):
    provider = echo("--unix", tmp_path / "provider.sock")
    proxy = tributary(provider, upstream=f"transport = {transport}", route="call = unary")
    call(proxy, "--count", 50, "--concurrency", 5)
    assert proxy.endpoint(provider.target)["state"] == "ready"
    assert proxy.route()["status"] == {"OK": 50}


# --- reload and stop ---

def endpoints_in(text, target):
    return "\n".join(f"endpoints = {target}" if line.startswith("endpoints") else line for line in text.splitlines()) + "\n"


def test_endpoints_change_under_load_without_a_lost_call(scripted, provider_of):
    def slowly(peer, stream):
        time.sleep(0.03)
        either(peer, stream)
    other = provider_of(Provider, slowly)
    setup = scripted(slowly)
    text = setup.proxy.file.read_text()
    with Load(setup.client, 200) as load:
        for target in (other.target, setup.provider.target, other.target):
            time.sleep(0.4)
            assert setup.proxy.reload(endpoints_in(text, target))["error"] is None
        time.sleep(0.4)
    assert set(load.codes()) == {0}
    assert len(other.requests) > 50 and len(setup.provider.requests) > 50
    setup.provider.peers[-1].wait(lambda: setup.provider.peers[-1].closed, "the removed endpoint's connection to close")


def test_a_stream_goes_on_when_its_endpoint_is_removed(scripted, provider_of):
    def echo_each(peer, stream):
        peer.raw(headers(stream.id, [(":status", "200"), ("content-type", "application/grpc")]))
        seen = 0
        while not stream.done:
            with peer.changed:
                peer.changed.wait_for(lambda: len(stream.body) > seen or stream.done or peer.closed, 10)
            if peer.closed:
                return
            fresh, seen = stream.body[seen:], len(stream.body)
            if fresh:
                peer.raw(data(stream.id, fresh))
        peer.raw(headers(stream.id, [("grpc-status", "0")], end=True))
    other = provider_of(Provider, either)
    setup = scripted(echo_each, whole=False)
    number = setup.client.open(S)
    stream = setup.client.streams[number]
    setup.client.raw(data(number, MSG("one")))
    setup.client.wait(lambda: stream.body == MSG("one"), "the first echo")
    text = setup.proxy.file.read_text()
    assert setup.proxy.reload(endpoints_in(text, other.target))["error"] is None
    setup.client.call(U).says(0, ["hi"])
    assert len(other.requests) == 1
    setup.client.raw(data(number, MSG("two")))
    setup.client.wait(lambda: stream.body == MSG("one") + MSG("two"), "the second echo")
    setup.client.raw(data(number, end=True))
    setup.client.ended(number).says(0, ["one", "two"])


def test_an_upstream_that_is_renamed_finishes_what_runs(scripted):
    gate = threading.Event()

    def answer(peer, stream):
        gate.wait(10)
        either(peer, stream)
    setup = scripted(answer)
    ids = start_many(setup.client, 5)
    peer_wait(setup.provider, lambda: len(setup.provider.requests) == 5)
    text = setup.proxy.file.read_text().replace("[upstream up]", "[upstream other]").replace("upstream = up", "upstream = other")
    assert setup.proxy.reload(text)["error"] is None
    gate.set()
    assert [setup.client.ended(i).code for i in ids] == [0] * 5
    setup.client.call(U).says(0, ["hi"])
    first = setup.provider.peers[0]
    first.wait(lambda: first.closed, "the old connection's end")


def test_stopping_does_not_wait_for_idle_providers(scripted):
    setup = scripted()
    setup.client.call(U).says(0, ["hi"])
    peer = setup.provider.peers[0]
    setup.client.close()
    began = time.monotonic()
    setup.proxy.stop()
    assert time.monotonic() - began < 1
    assert peer.goaway is not None and peer.goaway[1] == 0


def test_a_provider_that_reads_nothing_does_not_hold_up_a_stop(scripted):
    """Its socket is full: what is left for it is given up."""
    def answer(peer, stream):
        pass
    setup = scripted(answer, whole=False, credit=False, initial=((INITIAL_WINDOW_SIZE, LAST),))
    client = setup.client
    number = client.open(S)
    peer_wait(setup.provider, lambda: setup.provider.requests)
    frozen = setup.provider.peers[0]
    frozen.raw(window_update(0, 1 << 30))
    with frozen.changed:  # its reader waits for this lock from now on
        for _ in range(60):
            client.raw(data(number, MSG(b"x" * 200000)))
            time.sleep(0.005)
        began = time.monotonic()
        setup.proxy.send(signal.SIGINT)
        assert setup.proxy.wait(10) == 0
        assert time.monotonic() - began < 3


@pytest.mark.parametrize("transport", ["h2", "http1"])
def test_everything_at_once(echo, tributary, started, free_port, transport):
    """Two workers, three providers that are killed, frozen and started again, endpoints that come and go by reload: every
    call ends with a status, and when all is well again so are the calls."""
    dice = random.Random(4)
    ports = [free_port() for _ in range(3)]
    providers = {port: echo("--port", port) for port in ports}
    targets = [f"127.0.0.1:{port}" for port in ports]
    proxy = tributary(targets, proxy="workers = 2", upstream=f"transport = {transport}\nconnect_timeout = 200ms", route="call = unary")
    text = proxy.file.read_text()
    clients = [Client(proxy.target) for _ in range(4)]
    loads = [Load(client, 80, SAY, [("grpc-timeout", "2S")]) for client in clients]
    for load in loads:
        load.__enter__()
    for _ in range(16):
        port = dice.choice(ports)
        what = dice.choice(["kill", "freeze", "reload", "restart"])
        if what == "reload":
            some = dice.sample(targets, dice.randint(1, 3))
            assert proxy.reload(endpoints_in(text, ", ".join(some)))["error"] is None
        elif what == "freeze":
            providers[port].send(signal.SIGSTOP)
            time.sleep(0.3)
            providers[port].send(signal.SIGCONT)
        else:
            started.programs.remove(providers[port])
            providers[port].popen.send_signal(signal.SIGKILL if what == "kill" else signal.SIGTERM)
            providers[port].wait()
            time.sleep(0.2)
            providers[port] = echo("--port", port)
        time.sleep(0.1)
    assert proxy.reload(endpoints_in(text, ", ".join(targets)))["error"] is None

    def well(stats):
        endpoints = stats["upstreams"]["echo"]["endpoints"]
        return all(endpoints.get(target, {}).get("state") in ("ready", "idle") for target in targets)
    proxy.wait_for(well, "recovery", 5)
    for load in loads:
        load.__exit__()
    codes = [code for load in loads for code in load.codes()]
    assert set(codes) <= {0, 4, 14} and codes.count(0) > len(codes) / 2
    for client in clients:
        for _ in range(20):
            client.call(SAY).says(0, ["hi"])
        client.close()
