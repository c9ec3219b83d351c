"""Connections to providers: GOAWAY, stream limits, storms, keepalive, dead peers, descriptors; and the proxy's own end."""
import os
import resource
import signal
import socket
import threading
import time

import h2peer
from h2peer import ENHANCE_YOUR_CALM, MAX_CONCURRENT_STREAMS, MSG, NO_ERROR, PING, bare, data, either, frame, framed, goaway, settings
from scripted import A, S, U, scripted  # noqa: F401

class Load:
    """Calls from a few clients until stop(); codes: how they ended."""

    def __init__(self, setup, path=U, clients=4, pause=0.01, extra=()):
        self.codes, self.stopping = [], False
        self.threads = [threading.Thread(target=self._run, args=(setup.new_client(), path, pause, extra)) for _ in range(clients)]
        for thread in self.threads:
            thread.start()

    def _run(self, client, path, pause, extra):
        while not self.stopping:
            self.codes.append(client.call(path, extra=extra, seconds=30).code)
            time.sleep(pause)

    def stop(self):
        self.stopping = True
        for thread in self.threads:
            thread.join(40)
        return self.codes


# --- GOAWAY ---

def test_a_graceful_goaway_loses_no_call(scripted):
    hold = threading.Event()

    def answer(peer, stream):
        if stream.one(":path") == S:
            hold.wait(20)
            framed(peer, stream)
        else:
            bare(peer, stream)
    setup = scripted(answer)
    client = setup.client
    numbers = [client.open(S) for _ in range(3)]
    for number in numbers:
        client.raw(data(number, MSG("hi"), end=True))
    setup.proxy.wait_for(lambda stats: len(setup.provider.requests) == 3, "three open streams")
    load = Load(setup)
    first = setup.provider.peers[0]
    last = max(request.id for request in setup.provider.requests)
    first.raw(goaway(2**31 - 1))
    time.sleep(1)
    first.raw(goaway(max([last] + list(first.streams))))
    hold.set()
    for number in numbers:
        client.ended(number).says(0, ["hi"])
    time.sleep(0.3)
    first.close()
    time.sleep(0.3)
    codes = load.stop()
    assert len(codes) > 20 and set(codes) == {0}
    assert setup.endpoint()["failures"] == 0
    assert "level=error" not in setup.proxy.errors()


def test_a_goaway_after_every_tenth_request_loses_no_call(scripted):
    def answer(peer, stream):
        bare(peer, stream)
        if stream.id % 20 == 19:
            peer.raw(goaway(stream.id))
    setup = scripted(answer)
    for _ in range(100):
        setup.client.call(U).says(0, ["hi"])
    assert len(setup.provider.peers) > 3


def test_a_connection_after_a_goaway_starts_afresh(scripted):
    """Stream 1, nothing stale, no header table of the first provider's."""
    payload = bytes(range(256)) * 400
    seen = []

    def answer(peer, stream):
        if peer not in seen:
            seen.append(peer)
        if peer is seen[0]:
            peer.raw(h2peer.window_update(stream.id, 1 << 20) + goaway(0))
        else:
            peer.wait(lambda: stream.done, "its end")
            bare(peer, stream)
    setup = scripted(answer, whole=False, initial=((h2peer.HEADER_TABLE_SIZE, 0),))
    for _ in range(2):
        reply = setup.client.call(U, MSG(payload))
        assert (reply.code, reply.message, reply.messages) == (0, "", [(0, payload)])
    second = seen[1]
    assert sorted(second.streams) == [1, 3] and second.streams[1].body == payload
    assert second.settings_acks == 1 and second.goaway is None


# --- stream limits ---

def test_a_lowered_stream_limit_is_kept_and_work_resumes(scripted):
    hold, most = threading.Event(), []

    def answer(peer, stream):
        most.append(sum(1 for each in peer.streams.values() if not getattr(each, "answered", False)))
        hold.wait(20)
        stream.answered = True
        bare(peer, stream)
    setup = scripted(answer, initial=((MAX_CONCURRENT_STREAMS, 100),), upstream="max_connections = 1")
    client = setup.client
    first = [client.open(U) for _ in range(10)]
    for number in first:
        client.raw(data(number, MSG("hi"), end=True))
    setup.proxy.wait_for(lambda stats: len(setup.provider.requests) == 10, "ten streams")
    peer = setup.provider.peers[0]
    peer.raw(settings(((MAX_CONCURRENT_STREAMS, 1),)))
    peer.wait(lambda: peer.settings_acks == 2, "the ACK")
    later = [client.open(U) for _ in range(5)]
    for number in later:
        client.raw(data(number, MSG("hi"), end=True))
    time.sleep(0.3)
    assert len(setup.provider.requests) == 10, "none is opened above the limit"
    hold.set()
    for number in first + later:
        client.ended(number).says(0, ["hi"])
    peer.raw(settings(((MAX_CONCURRENT_STREAMS, 0),)))
    peer.wait(lambda: peer.settings_acks == 3, "the ACK")
    number = client.open(U)
    client.raw(data(number, MSG("hi"), end=True))
    busy = cpu_seconds(setup.proxy.pid)
    time.sleep(1)
    assert cpu_seconds(setup.proxy.pid) - busy < 0.5, "waiting costs nothing"
    assert not client.streams[number].done
    peer.raw(settings(((MAX_CONCURRENT_STREAMS, 50),)))
    client.ended(number).says(0, ["hi"])
    assert len(setup.provider.peers) == 1


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_a_cold_start_with_many_calls_opens_no_more_connections_than_allowed(scripted):
    setup = scripted(upstream="max_connections = 4")
    clients = [setup.new_client() for _ in range(5)]
    numbers = [(client, client.open(U)) for client in clients for _ in range(100)]
    for client, number in numbers:
        client.raw(data(number, MSG("hi"), end=True))
    for client, number in numbers:
        client.ended(number, 30).says(0, ["hi"])
    assert 1 <= len(setup.provider.peers) <= 4


def test_a_provider_that_is_down_is_dialled_seldom_and_found_soon(scripted):
    setup = scripted()
    setup.client.call(U).says(0, ["hi"])
    port = int(setup.provider.target.rsplit(":", 1)[1])
    setup.provider.close()
    load = Load(setup, clients=4, pause=0.02)
    time.sleep(3)
    down = setup.proxy.stats()["upstreams"]["up"]["endpoints"][f"127.0.0.1:{port}"]
    assert down["failures"] < 25, "backoff"
    again = h2peer.Provider(either, port=port)
    try:
        came = time.monotonic()
        seen = len(load.codes)
        while 0 not in load.codes[seen:]:
            assert time.monotonic() - came < 2.5, "recovery within 2 s"
            time.sleep(0.01)
        time.sleep(0.2)
        codes = load.stop()
        assert set(codes) == {0, 14}
        assert set(codes[-10:]) == {0}
    finally:
        load.stopping = True
        again.close()


# --- keepalive and floods ---

def test_too_many_pings_of_the_proxy_is_survived(scripted):
    def answer(peer, stream):
        if len(setup.provider.peers) == 1:
            peer.raw(goaway(stream.id, ENHANCE_YOUR_CALM, b"too_many_pings"))
            bare(peer, stream)
        else:
            bare(peer, stream)
    setup = scripted(answer)
    setup.client.call(U).says(0, ["hi"])
    setup.client.call(U).says(0, ["hi"])
    assert len(setup.provider.peers) == 2


def test_a_flood_of_pings_is_bounded(scripted):
    setup = scripted()
    client = setup.new_client()
    for _ in range(200):
        client.raw(frame(PING, 0, 0, bytes(8)) * 1000)
        if client.closed:
            break
    client.wait(lambda: client.closed or len(client.pings) > 100000, "an end, or all answers", 30)
    setup.new_client().call(U).says(0, ["hi"])


def test_pings_without_streams_are_tolerated(scripted):
    setup = scripted()
    for _ in range(20):
        setup.client.ping()
        time.sleep(0.02)
    setup.client.call(U).says(0, ["hi"])


def test_a_client_that_resets_too_much_is_calmed(scripted):
    setup = scripted(lambda peer, stream: None, listener="reset_limit = 100/10s", whole=False)
    client = setup.new_client()
    for _ in range(300):
        number = client.open(S)
        client.raw(h2peer.reset(number, 8))
        if client.closed:
            break
    client.wait(lambda: client.closed, "the end")
    assert client.goaway[1] == ENHANCE_YOUR_CALM
    other = setup.new_client()
    assert other.ping() < 5


def test_streams_over_the_announced_limit_are_refused_and_the_others_go_on(scripted):
    hold = threading.Event()

    def answer(peer, stream):
        hold.wait(20)
        bare(peer, stream)
    setup = scripted(answer, listener="max_streams = 10")
    client = setup.client
    client.wait(lambda: client.settings.get(MAX_CONCURRENT_STREAMS) == 10, "SETTINGS")
    client.wait(lambda: client.settings_acks, "ACK")
    numbers = [client.open(U) for _ in range(15)]
    for number in numbers:
        client.raw(data(number, MSG("hi"), end=True))
    for number in numbers[10:]:
        assert client.ended(number).reset == 7
    hold.set()
    for number in numbers[:10]:
        client.ended(number).says(0, ["hi"])
    assert client.goaway is None


# --- peers that are silent, and descriptors ---

def test_a_silent_provider_costs_its_calls_their_deadline_and_nobody_else(scripted):
    setup = scripted(lambda peer, stream: None)
    client = setup.client
    number = client.open(S)
    client.raw(data(number, MSG("hi"), end=True))
    client.call(U, extra=[("grpc-timeout", "300m")]).says(4)
    assert not client.streams[number].done and client.ping() < 1
    client.raw(h2peer.reset(number, 8))


def test_a_proxy_without_descriptors_keeps_its_calls_and_goes_on_later(scripted):
    setup = scripted()
    setup.client.call(U).says(0, ["hi"])
    open_now = len(os.listdir(f"/proc/{setup.proxy.pid}/fd"))
    resource.prlimit(setup.proxy.pid, resource.RLIMIT_NOFILE, (open_now + 10, open_now + 10))
    host, port = setup.proxy.target.rsplit(":", 1)
    crowd = []
    for _ in range(40):
        crowd.append(socket.create_connection((host, int(port)), timeout=5))
    time.sleep(0.3)
    busy = cpu_seconds(setup.proxy.pid)
    setup.client.call(U).says(0, ["hi"])
    time.sleep(1)
    assert cpu_seconds(setup.proxy.pid) - busy < 0.5, "no spinning"
    for sock in crowd:
        sock.close()
    setup.new_client().call(U, seconds=20).says(0, ["hi"])


# --- the proxy's own end ---

def test_a_drain_finishes_what_runs_and_accepts_what_was_queued(scripted):
    hold = threading.Event()

    def answer(peer, stream):
        if stream.one(":path") == S:
            hold.wait(20)
        either(peer, stream)
    setup = scripted(answer)
    client = setup.client
    number = client.open(S)
    client.raw(data(number, MSG("hi"), end=True))
    setup.proxy.wait_for(lambda stats: setup.provider.requests, "the stream")
    os.kill(setup.proxy.pid, signal.SIGSTOP)
    late = []
    for _ in range(20):  # they lie in the kernel's queue when the drain begins
        late.append(h2peer.Client(setup.proxy.target))
        setup.clients.append(late[-1])
    setup.proxy.send(signal.SIGTERM)
    numbers = []
    for each in late:
        numbers.append(each.open(U))
        each.raw(data(numbers[-1], MSG("late"), end=True))
    os.kill(setup.proxy.pid, signal.SIGCONT)
    for each, which in zip(late, numbers):
        each.ended(which, 20).says(0, ["late"])
    client.wait(lambda: client.goaway is not None, "GOAWAY")
    hold.set()
    client.ended(number).says(0, ["hi"])
    for each in late + [client]:
        each.wait(lambda: each.closed, "the connection's end")
        assert each.goaway[1] == NO_ERROR
    assert setup.proxy.wait(10) == 0


def test_what_is_left_at_drain_timeout_ends_unavailable(scripted):
    setup = scripted(lambda peer, stream: None, proxy="drain_timeout = 1s", whole=False)
    client = setup.client
    numbers = [client.open(path) for path in (U, S, A)]
    client.raw(data(numbers[0], MSG("hi"), end=True))
    client.raw(data(numbers[1], MSG("hi")))
    setup.proxy.wait_for(lambda stats: len(setup.provider.requests) == 3, "the calls")
    half = setup.new_client()  # its head is not complete
    half.raw(h2peer.frame(1, 0, 1, h2peer.block(h2peer.request_fields(U))))
    setup.proxy.send(signal.SIGTERM)
    for number in numbers:
        reply = client.ended(number).says(14)
        assert "stopping" in reply.message
    assert setup.proxy.wait(10) == 0


def test_a_second_term_stops_now(scripted):
    setup = scripted(lambda peer, stream: None)
    number = setup.client.open(S, end=True)
    setup.proxy.wait_for(lambda stats: setup.provider.requests, "the call")
    setup.proxy.send(signal.SIGTERM)
    time.sleep(0.2)
    setup.proxy.send(signal.SIGTERM)
    setup.client.ended(number).says(14)
    assert setup.proxy.wait(10) == 0
