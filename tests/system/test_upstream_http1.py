"""transport = http1: bare unary calls over kept HTTP/1.1 connections, everything else on HTTP/2."""
import socket
import threading
import time

import pytest
from conftest import wait_until_true
from h2peer import MSG, data, headers, request_fields
from scripted import INI, U

SAY = "/tributary.demo.Echo/Say"


class Http1Provider:
    """Scripted: script(connection, request) for each request; accepts any number of connections."""

    def __init__(self, script):
        self.script = script
        self.connections, self.requests, self.problems = [], [], []
        self.listening = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.target = "127.0.0.1:%d" % self.listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        try:
            while True:
                sock, _ = self.listening.accept()
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sock.settimeout(20)
                connection = Http1Connection(self, sock)
                self.connections.append(connection)
                threading.Thread(target=connection.run, daemon=True).start()
        except OSError:
            pass

    def close(self):
        self.listening.shutdown(socket.SHUT_RDWR)
        self.listening.close()
        for connection in self.connections:
            connection.close()
        assert not self.problems, self.problems


class Request:
    def __init__(self, line, fields, body):
        self.line, self.fields, self.body = line, fields, body

    def one(self, name):
        values = [value for key, value in self.fields if key == name]
        assert len(values) < 2, values
        return values[0] if values else None


class Http1Connection:
    def __init__(self, provider, sock):
        self.provider, self.sock, self.closed = provider, sock, False
        self.buffer = b""

    def run(self):
        try:
            while True:
                request = self.read()
                if not request:
                    break
                self.provider.requests.append(request)
                self.provider.script(self, request)
        except OSError:
            pass
        except Exception as problem:  # shown by close()
            self.provider.problems.append(repr(problem))
        self.closed = True

    def _more(self):
        part = self.sock.recv(65536)
        self.buffer += part
        return part

    def _until(self, mark):
        while mark not in self.buffer:
            if not self._more():
                return None
        found, _, self.buffer = self.buffer.partition(mark)
        return found

    def _exactly(self, count):
        while len(self.buffer) < count:
            if not self._more():
                raise OSError("closed inside a body")
        found, self.buffer = self.buffer[:count], self.buffer[count:]
        return found

    def read(self):
        head = self._until(b"\r\n\r\n")
        if head is None:
            return None
        line, *rest = head.decode().split("\r\n")
        fields = [(name.lower(), value.strip()) for name, _, value in (each.partition(":") for each in rest)]
        request = Request(line, fields, b"")
        if request.one("transfer-encoding"):
            assert request.one("content-length") is None
            while True:
                size = int(self._until(b"\r\n"), 16)
                request.body += self._exactly(size)
                assert self._exactly(2) == b"\r\n"
                if size == 0:
                    return request
        request.body = self._exactly(int(request.one("content-length")))
        return request

    def send(self, payload):
        self.sock.sendall(payload if isinstance(payload, bytes) else payload.encode())

    def reply(self, body, extra="", status="200 OK", kind="application/proto"):
        self.send(f"HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n{extra}\r\n".encode() + body)

    def chunked(self, parts, extra="", trailers=""):
        self.send(f"HTTP/1.1 200 OK\r\ncontent-type: application/proto\r\ntransfer-encoding: chunked\r\n{extra}\r\n")
        for part in parts:
            self.send(b"%x\r\n%s\r\n" % (len(part), part))
        self.send(f"0\r\n{trailers}\r\n")

    def close(self):
        self.closed = True
        try:
            self.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.sock.close()


def echoes(connection, request):
    connection.reply(request.body)


class Rig:
    def __init__(self, provider, proxy, client):
        self.provider, self.proxy, self.client = provider, proxy, client

    def endpoint(self):
        return self.proxy.stats()["upstreams"]["up"]["endpoints"][self.provider.target]

    def route(self, name="u"):
        return self.proxy.stats()["routes"][name]


@pytest.fixture
def rig(tributary):
    """rig(script, upstream=): a scripted HTTP/1.1 provider, the proxy, a client."""
    from h2peer import Client
    made = []

    def start(script=echoes, upstream="", route="", proxy=""):
        provider = Http1Provider(script)
        text = INI.format(endpoints=provider.target, proxy=proxy, listener="", route=route, more="",
                          upstream="transport = http1\n" + upstream)
        proxy = tributary(text=text)
        made.append(Rig(provider, proxy, Client(proxy.target)))
        return made[-1]
    yield start
    for each in made:
        each.client.close()
        if each.proxy.running():
            wait_until_true(lambda: all(r["active"] == 0 for r in each.proxy.stats()["routes"].values()), "rest")
        each.provider.close()


def start_many(client, count, path=U, body=MSG("hi"), extra=()):
    ids = [client.new_id() for _ in range(count)]
    client.raw(b"".join(headers(i, request_fields(path, extra)) + data(i, body, end=True) for i in ids))
    return ids


def test_a_unary_call_is_one_request_with_its_length(rig):
    setup = rig()
    setup.client.call(U, extra=[("x-user", "ada"), ("grpc-timeout", "5S")]).says(0, ["hi"])
    request, = setup.provider.requests
    assert request.line == "POST /u.S/Method HTTP/1.1"
    assert request.one("content-length") == "2" and request.body == b"hi"
    assert request.one("content-type") == "application/proto"
    assert request.one("host") == "test"
    assert request.one("triple-protocol-version") == "0.1.0"
    assert 4000 <= int(request.one("triple-timeout-ms")) <= 5000
    assert request.one("x-user") == "ada"
    for name in ("te", "connection", "transfer-encoding", "accept-encoding"):
        assert request.one(name) is None
    assert not [name for name, _ in request.fields if name.startswith("grpc-")]
    wait_until_true(lambda: setup.route()["path"]["fast"] == 1, "the call to be counted")


def test_sequential_calls_use_one_connection(rig):
    setup = rig()
    for _ in range(200):
        setup.client.call(U).says(0, ["hi"])
    assert len(setup.provider.connections) == 1
    assert setup.endpoint()["opened"] == 1


def test_the_connection_used_last_is_used_first(rig):
    """So that what a burst opened can age and close."""
    gate = threading.Event()

    def script(connection, request):
        if not gate.is_set():
            gate.wait(5)
        connection.tag = getattr(connection, "tag", 0) + 1
        connection.reply(request.body)
    setup = rig(script)
    ids = start_many(setup.client, 8)
    wait_until_true(lambda: len(setup.provider.requests) == 8, "8 connections")
    gate.set()
    assert [setup.client.ended(i).code for i in ids] == [0] * 8
    for _ in range(20):
        setup.client.call(U).says(0, ["hi"])
    counts = sorted(connection.tag for connection in setup.provider.connections)
    assert counts == [1] * 7 + [21]


@pytest.mark.parametrize("given, most", [("max_connections_http1 = 3", 3), ("max_connections = 2", 2)])
def test_connections_are_bounded_and_calls_wait(rig, given, most):
    running, peak, lock = [0], [0], threading.Lock()

    def script(connection, request):
        with lock:
            running[0] += 1
            peak[0] = max(peak[0], running[0])
        time.sleep(0.02)
        with lock:
            running[0] -= 1
        connection.reply(request.body)
    setup = rig(script, given)
    ids = start_many(setup.client, 30)
    assert [setup.client.ended(i).code for i in ids] == [0] * 30
    assert peak[0] <= most and len(setup.provider.connections) <= most


def test_waiting_calls_are_bounded_by_max_pending(rig):
    gate = threading.Event()

    def script(connection, request):
        gate.wait(5)
        connection.reply(request.body)
    setup = rig(script, "max_connections_http1 = 2\nmax_pending = 4")
    first = start_many(setup.client, 2)
    wait_until_true(lambda: len(setup.provider.requests) == 2, "both connections to be busy")
    ids = start_many(setup.client, 6)
    assert [setup.client.ended(i).code for i in ids[4:]] == [8, 8]
    gate.set()
    assert [setup.client.ended(i).code for i in first + ids[:4]] == [0] * 6


@pytest.mark.parametrize("size", [0, 1, 3000, 300000])
def test_chunked_replies(rig, size):
    body = bytes(i % 251 for i in range(size))
    parts = [body[i:i + 1000] for i in range(0, size, 1000)]
    setup = rig(lambda connection, request: connection.chunked(parts))
    for _ in range(3):
        setup.client.call(U).says(0, [body])
    assert len(setup.provider.connections) == 1


@pytest.mark.parametrize("size", [0, 1, 100000, 3000000])
def test_replies_with_a_length(rig, size):
    body = bytes(size)
    setup = rig(lambda connection, request: connection.reply(body))
    for _ in range(2):
        setup.client.call(U).says(0, [body])
    assert len(setup.provider.connections) == 1


def test_big_requests(rig):
    body = bytes(range(256)) * 8192
    setup = rig()
    setup.client.call(U, MSG(body)).says(0, [body])
    assert setup.provider.requests[0].one("content-length") == str(len(body))


def test_what_is_relayed_without_a_length_is_chunked(rig):
    setup = rig(upstream="wire = bare", route="fast_path = off")
    client, message = setup.client, MSG("x" * 5000)
    number = client.open(U)
    client.raw(data(number, message[:1000]))
    client.ping()
    client.raw(data(number, message[1000:], end=True))
    client.ended(number).says(0, ["x" * 5000])
    request, = setup.provider.requests
    assert request.one("transfer-encoding") == "chunked" and request.one("content-length") is None
    wait_until_true(lambda: setup.route()["path"]["relay"] == 1, "the call to be counted")


def test_metadata_and_trailers_come_back(rig):
    setup = rig(lambda connection, request: connection.reply(request.body, "x-lead: 1\r\ntrailer-x-cost: 9\r\nkeep-alive: 5\r\n"))
    reply = setup.client.call(U).says(0, ["hi"])
    assert reply.one("x-lead") == "1" and reply.one("x-cost") == "9" and reply.one("keep-alive") is None
    assert ("x-cost", "9") in reply.heads[1]


def test_an_error_is_read_and_the_connection_kept(rig):
    def script(connection, request):
        connection.reply(b'{"code":"not_found","message":"no such thing"}', status="404 Not Found", kind="application/json")
    setup = rig(script)
    for _ in range(3):
        assert setup.client.call(U).says(5).message == "no such thing"
    assert len(setup.provider.connections) == 1


def test_connection_close_is_obeyed(rig):
    setup = rig(lambda connection, request: connection.reply(request.body, "connection: close\r\n"))
    for _ in range(5):
        setup.client.call(U).says(0, ["hi"])
    assert len(setup.provider.connections) == 5
    assert setup.endpoint()["failures"] == 0


def test_a_provider_that_closes_idle_connections_costs_no_call(rig):
    def script(connection, request):
        connection.reply(request.body)
        connection.close()
    setup = rig(script)
    for _ in range(20):
        setup.client.call(U).says(0, ["hi"])
        wait_until_true(lambda: setup.endpoint()["connections"] == 0, "the close to be noticed")
    assert setup.endpoint()["failures"] == 0


def test_no_call_is_executed_twice(rig):
    """A provider that takes a request and closes without an answer: whether it was executed nobody knows, so the call ends
    UNAVAILABLE, on fresh and on kept connections, and the request is not sent again."""
    def script(connection, request):
        if b"ok" in request.body:
            connection.reply(request.body)
        else:
            connection.close()
    setup = rig(script, "max_connections_http1 = 4")
    for n in range(10):
        setup.client.call(U, MSG(f"ok {n}")).says(0, [f"ok {n}"])
        setup.client.call(U, MSG(f"lost {n}")).says(14)
    bodies = [request.body for request in setup.provider.requests]
    assert len(bodies) == len(set(bodies)) == 20
    assert setup.route()["retries"] == 0


def test_racing_with_a_provider_that_closes_duplicates_nothing(rig):
    """The provider closes every kept connection at a random moment; calls end OK or UNAVAILABLE, none runs twice."""
    import random

    def script(connection, request):
        connection.reply(request.body)
        if random.random() < 0.3:
            threading.Timer(random.random() * 0.004, connection.close).start()
    setup = rig(script)
    codes = []
    for n in range(400):
        codes.append(setup.client.call(U, MSG(f"call {n}")).code)
        time.sleep(random.random() * 0.004)
    bodies = [request.body for request in setup.provider.requests]
    assert len(bodies) == len(set(bodies))
    assert set(codes) <= {0, 14} and codes.count(14) < 40


def test_a_cancelled_call_closes_its_connection(rig):
    got = threading.Event()

    def script(connection, request):
        if request.body == b"slow":
            got.set()
            assert connection.sock.recv(1) == b""
            connection.closed = True
        else:
            connection.reply(request.body)
    setup = rig(script)
    number = start_many(setup.client, 1, body=MSG("slow"))[0]
    assert got.wait(5)
    from h2peer import reset
    setup.client.raw(reset(number, 8))
    wait_until_true(lambda: setup.provider.connections[0].closed, "the connection to close")
    setup.client.call(U).says(0, ["hi"])
    assert setup.endpoint()["failures"] == 0


def test_a_deadline_ends_the_call_and_its_connection(rig):
    def script(connection, request):
        connection.sock.recv(1)
        connection.closed = True
    setup = rig(script)
    began = time.monotonic()
    setup.client.call(U, extra=[("grpc-timeout", "200m")]).says(4)
    assert 0.19 < time.monotonic() - began < 0.6
    wait_until_true(lambda: setup.provider.connections[0].closed, "the connection to close")


@pytest.mark.parametrize("answer, code", [
    (b"HTTP/1.1 200 OK\r\ncontent-type: application/proto\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nhi", 13),
    (b"HTTP/1.1 200 OK\r\ncontent-type: application/proto\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\nhi", 13),
    (b"HTTP/1.1 200 OK\r\ncontent-type: application/proto\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", 13),
    (b"SSH-2.0-OpenSSH\r\n\r\n", 13),
    (b"HTTP/1.1 200 OK\r\ncontent-type: application/proto\r\ncontent-length: 10\r\n\r\nhalf", 14),
], ids=["two-lengths", "length-and-chunked", "bad-chunk", "no-http", "cut"])
def test_a_broken_reply_is_an_error_and_ends_the_connection(rig, answer, code):
    def script(connection, request):
        if request.body == b"hi":
            connection.send(answer)
            time.sleep(0.1)
            connection.close()
        else:
            connection.reply(request.body)
    setup = rig(script)
    setup.client.call(U, MSG("good")).says(0, ["good"])
    assert setup.client.call(U).code == code
    setup.client.call(U, MSG("good")).says(0, ["good"])
    assert len(setup.provider.connections) == 2


def test_bytes_that_nobody_asked_for_reach_no_call(rig):
    def script(connection, request):
        connection.reply(request.body)
        if request.body == b"hi":
            connection.reply(b"stale")
    setup = rig(script)
    setup.client.call(U).says(0, ["hi"])
    time.sleep(0.1)
    setup.client.call(U, MSG("next")).says(0, ["next"])


def test_a_dead_provider_is_dialled_seldom(tributary, free_port):
    from h2peer import Client
    target = f"127.0.0.1:{free_port()}"
    proxy = tributary(target, upstream="transport = http1", route="call = unary")
    client = Client(proxy.target)
    began = time.monotonic()
    while time.monotonic() - began < 2:
        client.call(SAY).says(14)
        time.sleep(0.005)
    assert proxy.endpoint(target)["failures"] <= 9
    client.close()


def test_streams_and_framed_calls_stay_on_http2(echo, tributary, call):
    provider = echo()
    proxy = tributary(provider, upstream="transport = http1")
    call(proxy, "--count", 20, "--concurrency", 4)
    call(proxy, "--count", 5, "--type", "bidi", "--method", "/tributary.demo.Echo/Chat")
    call(proxy, "--count", 5, "--type", "server", "--method", "/tributary.demo.Echo/Down", "--text", "count=3 size=8")
    path = proxy.route()["path"]
    assert path["fast"] == 20 and path["framed"] + path["fallback"] == 10


def test_a_refused_bare_call_goes_framed_on_http2(echo, tributary, call):
    provider = echo("--wire", "framed")
    proxy = tributary(provider, upstream="transport = http1", route="call = unary")
    call(proxy, "--count", 10)
    path = proxy.route()["path"]
    assert path["fallback"] == 1 and path["framed"] == 9, path


def test_load_over_two_workers(echo, tributary, call):
    provider = echo()
    proxy = tributary(provider, upstream="transport = http1", proxy="workers = 2", route="call = unary")
    call(proxy, "--count", 3000, "--concurrency", 64, "--connections", 8, "--size", 700)
    assert proxy.route()["path"]["fast"] == 3000
    assert proxy.endpoint(provider.target)["opened"] <= 200
