"""Rolling restarts: of the proxy under a real grpc-go client, and of the providers behind it.

The client is tests/interop's load-client: grpc-go, no retries of its own, so every failure shows. What grpc-go does by itself is honour
GOAWAY: calls above the last stream go to another connection. Providers are dubbo-go's, which closes without GOAWAY, and Go's own HTTP/2
server, which sends one.
"""
import json
import pathlib
import signal
import socket
import sys
import threading
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "interop"))

import h2peer  # noqa: E402
from conftest import Program, connect, find_free_port, wait_until_true  # noqa: E402
from peers import go_programs  # noqa: E402, F401

RATE = 500
SAY = "/tributary.interop.Echo/Say"

INI = """
[proxy]
admin = {{admin}}
{proxy}
[listener main]
address = {address}
[upstream echo]
endpoints = {endpoints}
{upstream}
[route echo]
match = /tributary.interop.Echo/*
upstream = echo
{route}
"""

# graceful-provider takes nothing framed; with call = auto a client that is slow between head and body would be sent there framed.
BARE = "call = unary"


class Load:
    """load-client in the background."""

    def __init__(self, started, program, address, *options):
        command = [program, "-addr", address, "-rate", RATE, "-concurrency", 200, *options]
        self.program = started.add(Program(command, started.folder, started.name("load")))
        self.program.said("^STARTED")

    def result(self):
        assert self.program.wait(60) == 0, self.program.tail()
        report = json.loads(self.program.output())
        assert report["wrong_replies"] == 0, report
        assert report["skipped"] <= report["calls"] // 5, report  # a machine that is too slow for the load shows nothing
        return report


@pytest.fixture
def go_provider(started, go_programs):  # noqa: F811
    """go_provider(kind, port=0): a running provider; .target is its HOST:PORT."""
    def start(kind="dubbo-provider", port=0):
        program = started.add(Program([go_programs[kind], "--port", port], started.folder, started.name(kind)))
        program.target = program.said(r"^READY (\S+)", stream="out")[1]
        program.port = int(program.target.rpartition(":")[2])
        program.kind = kind
        return program
    return start


@pytest.fixture
def load(started, go_programs):  # noqa: F811
    def start(address, *options):
        return Load(started, go_programs["load-client"], address, *options)
    return start


@pytest.fixture
def proxy_at(tributary):
    """proxy_at(providers, address=): a proxy with two workers in front of those providers."""
    def start(providers, address="127.0.0.1:0", proxy="workers = 2", upstream="", route="", **more):
        endpoints = ", ".join(each.target for each in providers)
        return tributary(text=INI.format(address=address, endpoints=endpoints, proxy=proxy, upstream=upstream, route=route), **more)
    return start


def all_ok(report, seconds):
    assert report["by_status"] == {"OK": report["calls"]}, json.dumps(report)
    assert report["calls"] + report["skipped"] == RATE * seconds, report


# --- the proxy itself -------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["pick_first", "round_robin"])
def test_a_rolling_restart_of_the_proxy_fails_no_call(go_provider, proxy_at, load, policy):
    """There and back: a second proxy comes up, the first one leaves; then the first comes back and the second leaves."""
    provider = go_provider()
    first = proxy_at([provider])
    second_address = f"127.0.0.1:{find_free_port()}"
    clients = load(f"{first.target},{second_address}", "-seconds", 7, "-connections", 4, "-streams", "-delay", 5, "-policy", policy)
    time.sleep(1.5)
    second = proxy_at([provider], second_address)
    time.sleep(0.5)
    began = time.monotonic()
    first.stop()
    assert time.monotonic() - began < 3, "nothing runs longer than some milliseconds, so the drain is short"
    time.sleep(1)
    again = proxy_at([provider], first.target)
    time.sleep(0.5)
    on_second = second.route()["calls"]
    second.stop()
    report = clients.result()
    all_ok(report, 7)
    assert on_second > RATE / 2, "the second proxy had the calls while it was alone"
    assert again.route()["status"].keys() == {"OK"}
    assert again.route()["calls"] > RATE / 2, "and the first had them again"
    assert report["longest_gap_ms"] < 1000, report


def test_a_successor_on_the_same_address_starts_as_soon_as_the_old_one_drains(go_provider, proxy_at, load):
    """The second proxy is refused while the first one listens; from TERM on the port is free, while the old one's calls still run."""
    provider = go_provider()
    old = proxy_at([provider])
    early = proxy_at([provider], old.target, ready=False)
    assert early.wait() == 2
    assert len(early.errors().splitlines()) == 1 and f"cannot listen on {old.target}: address already in use" in early.errors().lower()
    slow = load(old.target, "-seconds", 2, "-delay", 1500)
    patient = load(old.target, "-seconds", 4, "-wait-for-ready")
    time.sleep(1)
    old.send(signal.SIGTERM)
    old.said("draining")
    wait_until_true(lambda: not listens(old.target), "the port freed")
    assert old.running(), "calls of 1.5 s still run"
    new = proxy_at([provider], old.target)
    assert old.running(), "the new one came up beside the old one"
    assert old.wait(10) == 0
    all_ok(patient.result(), 4)
    report = slow.program.wait(30), json.loads(slow.program.output())
    broken = {text: count for text, count in report[1]["messages"].items() if "Error while dialing" not in text}
    assert not broken, "what had begun on the old proxy ended there"
    assert new.route()["calls"] > RATE


def listens(target):
    host, port = target.rsplit(":", 1)
    try:
        socket.create_connection((host, int(port)), 1).close()
        return True
    except ConnectionRefusedError:
        return False


# --- providers behind it -------------------------------------------------------------------------------


def restart(go_provider, provider, number):
    """Ends the provider with that signal and starts another on its port, half a second later; it, and when the first was told to go."""
    told_ms = time.time() * 1000
    provider.send(number)
    provider.popen.wait(20)
    time.sleep(0.5)
    return go_provider(provider.kind, provider.port), told_ms


def counts_agree(proxy, report):
    """What the client saw is what the proxy counted."""
    route = proxy.wait_for(lambda stats: stats["routes"]["echo"]["active"] == 0)["routes"]["echo"]
    client = {"OK": report["by_status"].get("OK", 0), "UNAVAILABLE": report["by_status"].get("Unavailable", 0)}
    assert {name: route["status"].get(name, 0) for name in client} == client, (route, report)
    assert route["started"] == route["calls"] == report["calls"], (route, report)


TRANSPORTS = pytest.mark.parametrize("transport", ["h2", "http1"])


def test_goaway_of_one_of_two_providers_fails_no_call(go_provider, proxy_at, load):
    providers = [go_provider("graceful-provider") for _ in range(2)]
    proxy = proxy_at(providers, route=BARE)
    clients = load(proxy.target, "-seconds", 6, "-connections", 4, "-delay", 10)
    for i in range(2):
        time.sleep(1)
        providers[i], _ = restart(go_provider, providers[i], signal.SIGTERM)
        proxy.wait_for(lambda stats: stats["upstreams"]["echo"]["endpoints"][providers[i].target]["streams"] > 0, "calls again")
    report = clients.result()
    all_ok(report, 6)
    counts_agree(proxy, report)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["term", "kill"])
@TRANSPORTS
def test_dubbo_go_leaving_one_of_two_costs_only_what_it_had_taken(go_provider, proxy_at, load, transport, number):
    """On TERM dubbo-go sends no GOAWAY and cuts what runs, here after 0.1 s: what it had taken may have been processed, so it is not sent
    again. All other calls find the second provider."""
    providers = [go_provider() for _ in range(2)]
    proxy = proxy_at(providers, upstream=f"transport = {transport}")
    clients = load(proxy.target, "-seconds", 6, "-connections", 4, "-delay", 20)
    time.sleep(1.5)
    providers[0], told_ms = restart(go_provider, providers[0], number)
    proxy.wait_for(lambda stats: stats["upstreams"]["echo"]["endpoints"][providers[0].target]["streams"] > 0, "calls again")
    report = clients.result()
    # 500/s of 20 ms each: some ten run at a time, five of them there; on a busy machine each takes longer, and so more run.
    assert report["by_status"].get("Unavailable", 0) <= 20 + RATE * report["latency_p99_us"] / 1e6, report
    assert all("lost before the answer" in text for text in report["messages"]), report
    if number == signal.SIGKILL:
        assert report["by_status"].get("Unavailable", 0) > 0, "the crash hit no call: the test shows nothing"
    if report["messages"]:
        assert told_ms - 50 <= report["first_failure_ms"] <= report["last_failure_ms"] <= told_ms + 500, (told_ms, report)
    counts_agree(proxy, report)


@pytest.mark.parametrize("kind, number", [("graceful-provider", signal.SIGTERM), ("dubbo-provider", signal.SIGTERM),
                                          ("dubbo-provider", signal.SIGKILL)])
def test_the_restart_of_the_only_provider_fails_calls_only_while_it_is_away(go_provider, proxy_at, load, kind, number):
    provider = go_provider(kind)
    proxy = proxy_at([provider], route=BARE)
    clients = load(proxy.target, "-seconds", 6, "-connections", 4, "-delay", 10)
    time.sleep(1.5)
    provider, told_ms = restart(go_provider, provider, number)
    back_ms = time.time() * 1000
    report = clients.result()
    assert set(report["by_status"]) == {"OK", "Unavailable"}, report
    assert report["first_failure_ms"] >= told_ms - 50, (told_ms, report)
    assert report["last_failure_ms"] <= back_ms + 1500, "backoff is at most a second and a fifth of it"
    away = report["last_failure_ms"] - told_ms
    assert report["by_status"]["Unavailable"] <= RATE * (away / 1000 + report["latency_p99_us"] / 1e6) + 20, report
    if kind == "graceful-provider":
        assert not any("lost before the answer" in text for text in report["messages"]), report
    counts_agree(proxy, report)


# --- the drain, step by step -------------------------------------------------------------------------------

SCRIPTED_INI = """
[proxy]
admin = {{admin}}
probe = {{probe}}
{proxy}
[listener main]
address = 127.0.0.1:0
[upstream up]
endpoints = {endpoint}
[route r]
match = *
upstream = up
"""


class Held:
    """A provider that answers when told."""

    def __init__(self):
        self.go = threading.Event()
        self.provider = h2peer.Provider(self.answer)

    def answer(self, peer, stream):
        self.go.wait(30)
        h2peer.either(peer, stream)


@pytest.fixture
def drained(tributary):
    """drained(proxy=lines): a proxy before a provider that holds its answers; (proxy, held)."""
    helds = []

    def start(proxy=""):
        helds.append(Held())
        text = SCRIPTED_INI.format(proxy=proxy, endpoint=helds[-1].provider.target)
        return tributary(text=text), helds[-1]
    yield start
    for held in helds:
        held.go.set()
        held.provider.close()


class Client(h2peer.Client):
    """Keeps every GOAWAY, and may be slow to answer PING."""

    def __init__(self, target, ack=True):
        self.told_away, self.ack = [], ack
        super().__init__(target)

    def _take(self, kind, flags, number, payload):
        if kind == h2peer.GOAWAY:
            self.told_away.append((int.from_bytes(payload[:4], "big"), int.from_bytes(payload[4:8], "big"), time.monotonic()))
        if kind == h2peer.PING and not flags & h2peer.ACK and not self.ack:
            return None
        return super()._take(kind, flags, number, payload)

    def start_call(self, path="/u.S/Method"):
        number = self.open(path)
        self.raw(h2peer.data(number, h2peer.MSG("hi"), end=True))
        return number


LAST = (1 << 31) - 1


def test_goaway_comes_twice_and_running_calls_end(drained):
    proxy, held = drained()
    client, idle = Client(proxy.target), Client(proxy.target)
    first = client.start_call()
    idle.ping()
    proxy.wait_for(lambda stats: stats["routes"]["r"]["active"] == 1)
    proxy.send(signal.SIGTERM)
    client.wait(lambda: len(client.told_away) == 2, "both GOAWAYs")
    assert [each[:2] for each in client.told_away] == [(LAST, 0), (first, 0)]
    idle.wait(lambda: idle.closed, "an idle connection's end")
    assert [each[:2] for each in idle.told_away] == [(LAST, 0), (0, 0)]
    assert not client.closed and proxy.running()
    held.go.set()
    client.ended(first).says(0, ["hi"])
    client.wait(lambda: client.closed, "the connection's end")
    assert proxy.wait(5) == 0


def test_a_call_sent_between_the_goaways_is_served_and_a_later_one_is_not_taken(drained):
    proxy, held = drained()
    client = Client(proxy.target, ack=False)
    first = client.start_call()
    proxy.wait_for(lambda stats: stats["routes"]["r"]["active"] == 1)
    proxy.send(signal.SIGTERM)
    client.wait(lambda: client.told_away, "the first GOAWAY")
    between = client.start_call()
    client.wait(lambda: len(client.told_away) == 2, "the second GOAWAY without a PING's ACK", 3)
    (_, _, told), (last, _, again) = client.told_away
    assert last == between and 0.9 <= again - told <= 2
    client.start_call()
    held.go.set()
    client.ended(first).says(0, ["hi"])
    client.ended(between).says(0, ["hi"])
    client.wait(lambda: client.closed, "the connection's end")
    assert len(held.provider.requests) == 2
    assert proxy.wait(5) == 0


@pytest.mark.parametrize("workers", [1, 2])
def test_connections_that_wait_in_the_kernel_at_term_are_served(drained, workers):
    """A stopped process takes nothing, so all of these, and TERM, wait for it when it goes on."""
    proxy, held = drained(f"workers = {workers}")
    held.go.set()
    proxy.send(signal.SIGSTOP)
    clients = [Client(proxy.target) for _ in range(40)]
    calls = [client.start_call() for client in clients]
    plain = [http1_post(proxy.target) for _ in range(10)]
    proxy.send(signal.SIGTERM)
    proxy.send(signal.SIGCONT)
    for client, number in zip(clients, calls):
        client.ended(number).says(0, ["hi"])
    for each in plain:
        assert http1_reply(each).startswith(b"HTTP/1.1 200 "), "a bare call over HTTP/1.1"
    assert proxy.wait(5) == 0


def http1_post(target, body=b"hi"):
    sock = connect(target)
    sock.sendall(b"POST /u.S/Method HTTP/1.1\r\nhost: x\r\ncontent-type: application/proto\r\n"
                 b"content-length: %d\r\n\r\n%s" % (len(body), body))
    return sock


def http1_reply(sock, body=b"hi"):
    got = b""
    while not got.endswith(b"\r\n\r\n" + body):
        part = sock.recv(65536)
        assert part, got
        got += part
    return got


def test_http1_connections_end_with_the_call_they_carry(drained):
    proxy, held = drained()
    held.go.set()
    idle = http1_post(proxy.target)
    assert b"connection: close" not in http1_reply(idle).lower()
    held.go.clear()
    busy = http1_post(proxy.target)
    proxy.wait_for(lambda stats: stats["routes"]["r"]["active"] == 1)
    proxy.send(signal.SIGTERM)
    assert idle.recv(1) == b"", "an idle one is closed"
    held.go.set()
    reply = http1_reply(busy)
    assert reply.startswith(b"HTTP/1.1 200 ") and b"connection: close" in reply.lower()
    assert busy.recv(1) == b""
    assert proxy.wait(5) == 0


def test_admin_and_probe_answer_until_the_last_call_has_ended(drained, http_get):
    proxy, held = drained()
    client = Client(proxy.target)
    call = client.start_call()
    proxy.wait_for(lambda stats: stats["routes"]["r"]["active"] == 1)
    proxy.send(signal.SIGTERM)
    client.wait(lambda: len(client.told_away) == 2, "both GOAWAYs")
    assert not listens(proxy.target)
    for where in (proxy.admin, proxy.probe):
        assert http_get(where, "/live").status == 200
        assert http_get(where, "/ready").status == 503
        assert 'tributary_calls_active{route="r"} 1' in http_get(where, "/metrics").text
    held.go.set()
    client.ended(call).says(0, ["hi"])
    assert proxy.wait(5) == 0


def test_drain_timeout_counts_from_term_and_ends_the_rest_unavailable(drained):
    proxy, _ = drained("drain_timeout = 1500ms\ndrain_delay = 500ms")
    client = Client(proxy.target)
    call = client.start_call()
    proxy.wait_for(lambda stats: stats["routes"]["r"]["active"] == 1)
    began = time.monotonic()
    proxy.send(signal.SIGTERM)
    reply = client.ended(call).says(14, trailers_only=True)
    assert 1.4 <= time.monotonic() - began <= 2.5
    assert "tributary" in reply.message
    assert proxy.wait(5) == 0
    assert "drain_timeout" in proxy.errors()


def test_during_drain_delay_all_is_served_as_before(drained, http_get):
    proxy, held = drained("drain_delay = 1s")
    held.go.set()
    old = Client(proxy.target)
    old.call("/u.S/Method").says(0, ["hi"])
    began = time.monotonic()
    proxy.send(signal.SIGTERM)
    wait_until_true(lambda: http_get(proxy.probe, "/ready").status == 503, "not ready")
    Client(proxy.target).call("/u.S/Method").says(0, ["hi"])
    old.call("/u.S/Method").says(0, ["hi"])
    assert not old.told_away and time.monotonic() - began < 1
    old.wait(lambda: old.closed, "the drain")
    assert proxy.wait(5) == 0
    assert 0.9 <= time.monotonic() - began <= 3


@pytest.mark.parametrize("signals", [[signal.SIGINT], [signal.SIGTERM, signal.SIGTERM], [signal.SIGTERM, signal.SIGINT]],
                         ids=["int", "term-term", "term-int"])
def test_int_or_a_second_term_stops_now(drained, signals):
    proxy, _ = drained("drain_delay = 10s")
    client = Client(proxy.target)
    call = client.start_call()
    proxy.wait_for(lambda stats: stats["routes"]["r"]["active"] == 1)
    began = time.monotonic()
    for number in signals:
        proxy.send(number)
        time.sleep(0.2)
    client.ended(call).says(14, trailers_only=True)
    assert proxy.wait(5) == 0
    assert time.monotonic() - began < 2
