"""discovery = zookeeper and nacos, against small servers of the test's own that speak what the proxy needs of each."""
import contextlib
import http.server
import json
import socket
import struct
import threading
import time
import urllib.parse

import pytest
from conftest import wait_until_true
from h2peer import Client, Provider, either

SAY = "/tributary.demo.Echo/Say"
CHILD_CHANGED, CREATED = 4, 1


class ZooKeeper:
    """One node tree: path -> list of children. Sessions, pings, exists, getChildren with watches."""

    def __init__(self):
        self.nodes, self.lock = {}, threading.RLock()
        self.sessions, self.connections, self.known = [], 0, set()
        self.listen(0)

    def listen(self, port):
        self.listening = socket.create_server(("127.0.0.1", port))
        self.target = "127.0.0.1:%d" % self.listening.getsockname()[1]
        threading.Thread(target=self._accept, args=(self.listening,), daemon=True).start()

    def _accept(self, listening):
        try:
            while True:
                sock, _ = listening.accept()
                self.connections += 1
                session = ZooKeeperSession(self, sock)
                self.sessions.append(session)
                threading.Thread(target=session.run, daemon=True).start()
        except OSError:
            pass

    def set(self, path, children):
        """The node's children are these from now on; watches fire."""
        with self.lock:
            kind = CHILD_CHANGED if path in self.nodes else CREATED
            self.nodes[path] = list(children)
            for session in self.sessions:
                session.fire(path, kind)

    def forget_sessions(self):
        self.known.clear()

    def drop(self):
        """All connections, as when the server goes down."""
        for session in self.sessions:
            session.close()
        self.sessions = []

    def stop_listening(self):
        with contextlib.suppress(OSError):  # it may be closed already
            self.listening.shutdown(socket.SHUT_RDWR)
        self.listening.close()

    def close(self):
        self.stop_listening()
        self.drop()


class ZooKeeperSession:
    def __init__(self, server, sock):
        self.server, self.sock, self.watches = server, sock, set()
        self.sock.settimeout(30)

    def close(self):
        try:
            self.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.sock.close()

    def _exactly(self, count):
        got = b""
        while len(got) < count:
            part = self.sock.recv(count - len(got))
            if not part:
                raise OSError("closed")
            got += part
        return got

    def _packet(self):
        return self._exactly(struct.unpack(">i", self._exactly(4))[0])

    def _send(self, payload):
        self.sock.sendall(struct.pack(">i", len(payload)) + payload)

    def fire(self, path, kind):
        if path in self.watches:
            self.watches.discard(path)
            try:
                self._send(struct.pack(">iqi", -1, -1, 0) + struct.pack(">ii", kind, 3) + self._string(path))
            except OSError:
                pass

    @staticmethod
    def _string(text):
        return struct.pack(">i", len(text.encode())) + text.encode()

    def run(self):
        try:
            self._greet()
            while True:
                packet = self._packet()
                xid, kind = struct.unpack(">ii", packet[:8])
                with self.server.lock:
                    self._answer(xid, kind, packet[8:])
        except OSError:
            pass

    def _greet(self):
        _, _, timeout, session = struct.unpack(">iqiq", self._packet()[:24])
        if session and session not in self.server.known:  # expired: told by a session of 0
            self._send(struct.pack(">iiq", 0, 0, 0) + struct.pack(">i", 16) + bytes(16) + b"\0")
            raise OSError("expired")
        session = session or len(self.server.known) + 4711
        self.server.known.add(session)
        self._send(struct.pack(">iiq", 0, timeout, session) + struct.pack(">i", 16) + bytes(16) + b"\0")

    def _answer(self, xid, kind, body):
        error, payload = 0, b""
        if kind in (3, 8, 12):  # exists, getChildren, getChildren2
            length = struct.unpack(">i", body[:4])[0]
            path, watch = body[4:4 + length].decode(), body[4 + length]
            children = self.server.nodes.get(path)
            if watch and (children is not None or kind == 3):
                self.watches.add(path)
            if children is None:
                error = -101
            elif kind != 3:
                payload = struct.pack(">i", len(children)) + b"".join(map(self._string, children))
            if children is not None and kind in (3, 12):
                payload += bytes(68)  # Stat
        elif kind == 101:  # setWatches, after a reconnect: everything may have changed
            self._send(struct.pack(">iqi", xid, 1, 0))
            for path in self.server.nodes:
                self.watches.add(path)
                self.fire(path, CHILD_CHANGED)
            return
        self._send(struct.pack(">iqi", xid, 1, error) + payload)
        if kind == -11:
            raise OSError("closed by the client")


def url(target, scheme="tri", service="org.foo.Greeter"):
    return urllib.parse.quote(f"{scheme}://{target}/{service}?side=provider&version=1.0", safe="")


@pytest.fixture
def zookeeper():
    server = ZooKeeper()
    yield server
    server.close()


@pytest.fixture
def provider_of():
    made = []

    def make():
        made.append(Provider(either))
        return made[-1]
    yield make
    for each in made:
        each.close()


@pytest.fixture
def client_of():
    made = []

    def make(proxy):
        made.append(Client(proxy.target))
        return made[-1]
    yield make
    for each in made:
        each.close()


def known(proxy):
    return sorted(proxy.stats()["upstreams"].get("echo", {}).get("endpoints", {}))


def start(tributary, source, discovery="zookeeper"):
    return tributary(source, upstream=f"discovery = {discovery}\nlb_policy = round_robin", route="call = unary")


@pytest.mark.parametrize("path", ["/dubbo/org.foo.Greeter", "/dubbo/org.foo.Greeter/providers"])
def test_providers_of_an_interface(zookeeper, tributary, provider_of, client_of, path):
    first, second = provider_of(), provider_of()
    node = "/dubbo/org.foo.Greeter/providers"
    zookeeper.set(node, [url(first.target), url("127.0.0.1:9", scheme="dubbo"), "junk"])
    proxy = start(tributary, zookeeper.target + path)
    client = client_of(proxy)
    client.call(SAY).says(0, ["hi"])
    assert known(proxy) == [first.target]
    zookeeper.set(node, [url(first.target), url(second.target)])
    wait_until_true(lambda: len(known(proxy)) == 2, "the second provider", 5)
    for _ in range(4):
        client.call(SAY).says(0, ["hi"])
    assert second.requests
    zookeeper.set(node, [url(second.target)])
    wait_until_true(lambda: known(proxy) == [second.target], "the first provider to go", 5)
    client.call(SAY).says(0, ["hi"])


def test_instances_of_an_application(zookeeper, tributary, provider_of, client_of):
    provider = provider_of()
    zookeeper.set("/services/greeter", [provider.target])
    proxy = start(tributary, zookeeper.target + "/services/greeter")
    client_of(proxy).call(SAY).says(0, ["hi"])


def test_a_node_that_comes_later(zookeeper, tributary, provider_of, client_of):
    provider = provider_of()
    proxy = start(tributary, zookeeper.target + "/dubbo/org.foo.Greeter")
    client = client_of(proxy)
    assert "no such node" in client.call(SAY).says(14).message
    zookeeper.set("/dubbo/org.foo.Greeter/providers", [url(provider.target)])
    wait_until_true(lambda: client.call(SAY).code == 0, "the node to be seen", 5)


def test_the_list_stays_when_providers_or_the_registry_vanish(zookeeper, tributary, provider_of, client_of):
    provider = provider_of()
    node = "/dubbo/org.foo.Greeter/providers"
    zookeeper.set(node, [url(provider.target)])
    proxy = start(tributary, zookeeper.target + "/dubbo/org.foo.Greeter")
    client = client_of(proxy)
    client.call(SAY).says(0, ["hi"])
    zookeeper.set(node, [])
    proxy.said("it lists no provider", 5)
    client.call(SAY).says(0, ["hi"])
    zookeeper.stop_listening()
    zookeeper.drop()
    proxy.said("the connection was lost", 5)
    client.call(SAY).says(0, ["hi"])


def test_a_registry_that_is_back_is_followed_again(zookeeper, tributary, provider_of, client_of):
    first, second = provider_of(), provider_of()
    node, port = "/dubbo/org.foo.Greeter/providers", int(zookeeper.target.rpartition(":")[2])
    zookeeper.set(node, [url(first.target)])
    proxy = start(tributary, zookeeper.target + "/dubbo/org.foo.Greeter")
    client_of(proxy).call(SAY).says(0, ["hi"])
    zookeeper.stop_listening()
    zookeeper.drop()
    zookeeper.forget_sessions()  # the session expires meanwhile
    zookeeper.nodes[node] = [url(second.target)]
    zookeeper.listen(port)
    wait_until_true(lambda: known(proxy) == [second.target], "the new list", 20)


def test_a_stop_does_not_wait_for_the_registry(zookeeper, tributary, provider_of):
    zookeeper.set("/services/greeter", [provider_of().target])
    proxy = start(tributary, zookeeper.target + "/services/greeter")
    began = time.monotonic()
    proxy.stop()
    assert time.monotonic() - began < 1


def test_a_reload_moves_to_another_node(zookeeper, tributary, provider_of, client_of):
    first, second = provider_of(), provider_of()
    zookeeper.set("/services/one", [first.target])
    zookeeper.set("/services/two", [second.target])
    proxy = start(tributary, zookeeper.target + "/services/one")
    client = client_of(proxy)
    client.call(SAY).says(0, ["hi"])
    assert proxy.reload(proxy.file.read_text().replace("/services/one", "/services/two"))["error"] is None
    wait_until_true(lambda: known(proxy) == [second.target], "the other node's list", 5)
    client.call(SAY).says(0, ["hi"])


# --- Nacos ---

class Nacos:
    """GET /nacos/v1/ns/instance/list; what is asked is kept."""

    def __init__(self):
        self.asked, self.instances, self.status, self.raw = [], {}, 200, None
        nacos = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                parts = urllib.parse.urlsplit(self.path)
                query = dict(urllib.parse.parse_qsl(parts.query))
                nacos.asked.append((parts.path, query))
                body = nacos.raw or json.dumps({"name": query.get("serviceName"),
                                                "hosts": nacos.instances.get(query.get("serviceName"), [])}).encode()
                self.send_response(nacos.status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.target = "127.0.0.1:%d" % self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def nacos():
    server = Nacos()
    yield server
    server.close()


def instance(target, **more):
    ip, _, port = target.rpartition(":")
    return {"ip": ip, "port": int(port), "healthy": True, "enabled": True, "weight": 1.0, **more}


SERVICE = "providers:org.foo.Greeter:1.0:"


def test_instances_of_a_nacos_service(nacos, tributary, provider_of, client_of):
    first, second = provider_of(), provider_of()
    nacos.instances[SERVICE] = [instance(first.target), instance("127.0.0.1:9", healthy=False),
                                instance("127.0.0.2:9", enabled=False), instance("127.0.0.3:9", weight=0)]
    proxy = start(tributary, f"{nacos.target}/{SERVICE}?groupName=grey&namespaceId=test", "nacos")
    client = client_of(proxy)
    client.call(SAY).says(0, ["hi"])
    assert known(proxy) == [first.target]
    path, query = nacos.asked[0]
    assert path == "/nacos/v1/ns/instance/list"
    assert (query["serviceName"], query["groupName"], query["namespaceId"]) == (SERVICE, "grey", "test")
    nacos.instances[SERVICE] = [instance(second.target)]
    wait_until_true(lambda: known(proxy) == [second.target], "the second instance", 8)
    client.call(SAY).says(0, ["hi"])


def test_another_nacos_server_is_asked_when_the_first_is_down(nacos, tributary, provider_of, client_of, free_port):
    provider = provider_of()
    nacos.instances[SERVICE] = [instance(provider.target)]
    proxy = start(tributary, [f"127.0.0.1:{free_port()}/{SERVICE}", nacos.target], "nacos")
    client_of(proxy).call(SAY).says(0, ["hi"])


@pytest.mark.parametrize("raw, status", [(b"<html>", 200), (b'{"hosts": 5}', 200), (b"[]", 200), (b"no", 500)])
def test_a_broken_nacos_answer_changes_nothing(nacos, tributary, provider_of, client_of, raw, status):
    provider = provider_of()
    nacos.instances[SERVICE] = [instance(provider.target)]
    proxy = start(tributary, f"{nacos.target}/{SERVICE}", "nacos")
    client = client_of(proxy)
    client.call(SAY).says(0, ["hi"])
    nacos.raw, nacos.status = raw, status
    count = len(nacos.asked)
    wait_until_true(lambda: len(nacos.asked) > count, "the next question", 8)
    proxy.said("level=warn tag=registry", 5)
    client.call(SAY).says(0, ["hi"])
    assert known(proxy) == [provider.target]
