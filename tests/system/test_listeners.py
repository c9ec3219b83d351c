"""Listeners: limits of connections, their age, sockets, several of them, and what HUP changes."""
import os
import socket
import subprocess
import time

import h2peer
import pytest
from conftest import Program, binary, connect, wait_until_true
from h2peer import MSG, NO_ERROR, either

ONE = """
[proxy]
admin = {admin}
%(proxy)s
[listener main]
address = %(address)s
%(listener)s
[upstream up]
endpoints = %(target)s
[route all]
match = *
upstream = up
"""
PATH = "/a.S/Method"


class Front:
    """A provider and a proxy in front of it; clients are closed at the end."""

    def __init__(self, tributary, text=ONE, ready=True, **parts):
        self.provider = h2peer.Provider(either)
        self.values = dict(dict(proxy="", listener="", address="127.0.0.1:0"), target=self.provider.target, **parts)
        self.proxy = tributary(text=text % self.values, ready=ready)
        self.clients = []

    def client(self, target=None, **options):
        self.clients.append(h2peer.Client(target or self.proxy.target, **options))
        return self.clients[-1]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for client in self.clients:
            client.close()
        self.provider.close()


def test_a_connection_over_the_limit_waits_for_another_to_leave(tributary):
    with Front(tributary, listener="max_connections = 2") as front:
        first, second = front.client(), front.client()
        first.call(PATH).says(0, ["hi"])
        second.call(PATH).says(0, ["hi"])
        third = front.client()
        number = third.open(PATH)
        third.raw(h2peer.data(number, MSG("hi"), end=True))
        time.sleep(0.3)
        assert not third.settings, "it lies in the kernel's queue"
        assert front.proxy.stats()["listeners"]["main"]["connections"] == 2
        first.close()
        third.ended(number).says(0, ["hi"])


def test_a_connection_over_its_age_is_asked_to_leave_and_its_calls_end(tributary):
    with Front(tributary, listener="max_connection_age = 500ms") as front:
        client = front.client()
        number = client.open(PATH)
        client.wait(lambda: client.goaway is not None, "GOAWAY", 5)
        assert client.goaways[0] == (2**31 - 1, NO_ERROR)
        client.raw(h2peer.data(number, MSG("hi"), end=True))
        client.ended(number).says(0, ["hi"])
        client.wait(lambda: client.closed, "the end", 5)
        front.client().call(PATH).says(0, ["hi"])


def test_a_stale_unix_socket_is_replaced_and_removed_in_the_end(tributary, tmp_path):
    path = tmp_path / "s"
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(str(path))
    stale.close()
    with Front(tributary, address=f"unix:{path}") as front:
        assert oct(os.stat(path).st_mode & 0o777) == "0o660"
        with connect(f"unix:{path}") as sock:
            sock.sendall(b"POST /a.S/M HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 2\r\n"
                         b"connection: close\r\n\r\n{}")
            answer = b""
            while part := sock.recv(1000):
                answer += part
            assert answer.startswith(b"HTTP/1.1 200 ")
        front.proxy.stop()
        assert not path.exists()


def cannot_start(tributary, address):
    with Front(tributary, address=address, ready=False) as front:
        assert front.proxy.wait(10) == 2
        return front.proxy.errors() + front.proxy.output()


def test_a_port_that_is_taken_is_exit_code_2(tributary):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert str(port) in cannot_start(tributary, f"127.0.0.1:{port}")


def test_a_unix_path_that_is_alive_or_a_file_is_exit_code_2(tributary, tmp_path):
    alive = socket.socket(socket.AF_UNIX)
    alive.bind(str(tmp_path / "alive"))
    alive.listen(1)
    (tmp_path / "file").write_text("precious")
    cannot_start(tributary, f"unix:{tmp_path}/alive")
    cannot_start(tributary, f"unix:{tmp_path}/file")
    assert (tmp_path / "file").read_text() == "precious"
    alive.close()


def test_two_workers_share_a_port_and_all_calls_end_well(tributary):
    with Front(tributary, proxy="workers = 2") as front:
        for _ in range(20):
            front.client().call(PATH).says(0, ["hi"])
        stats = front.proxy.wait_for(lambda stats: stats["routes"]["all"]["calls"] == 20, "20 calls counted")
        assert stats["listeners"]["main"]["accepted"] == 20 and stats["routes"]["all"]["status"] == {"OK": 20}


def listens(target):
    try:
        connect(target, 2).close()
    except ConnectionRefusedError:
        return False
    return True


TWO = ONE + """
[listener second]
address = %(second)s
"""


def test_listeners_come_and_go_on_hup(tributary, free_port):
    second = f"127.0.0.1:{free_port()}"
    with Front(tributary, text=ONE) as front:
        text = front.proxy.file.read_text()
        with_second = text + f"\n[listener second]\naddress = {second}\n"
        assert front.proxy.reload(with_second)["error"] is None
        wait_until_true(lambda: listens(second), "the workers' new listener")
        client = front.client(second)
        client.call(PATH).says(0, ["hi"])
        assert front.proxy.reload(text)["error"] is None
        client.wait(lambda: client.goaway is not None, "GOAWAY on the listener that went")
        client.wait(lambda: client.closed, "its end")
        assert not listens(second)
        front.client().call(PATH).says(0, ["hi"])


def test_a_listener_is_a_condition_of_routes(tributary, free_port):
    second = f"127.0.0.1:{free_port()}"
    text = TWO.replace("match = *", "match = *\nlistener = second")
    with Front(tributary, text=text, second=second) as front:
        front.client().call(PATH).says(12)
        front.client(second).call(PATH).says(0, ["hi"])


def test_a_listener_whose_port_another_socket_takes_is_an_error_of_the_start(started, tmp_path):
    """The kernel chooses the admin's port for the listener too, as the one port there is: never a proxy that runs without listening."""
    prepare = "ip link set lo up && echo 47000 47000 >/proc/sys/net/ipv4/ip_local_port_range"
    if os.geteuid() != 0 or subprocess.run(["unshare", "-n", "sh", "-c", prepare], capture_output=True).returncode != 0:
        message = "needs root and network namespaces"
        pytest.fail(message) if os.environ.get("CI") == "true" else pytest.skip(message)
    file = tmp_path / "taken.ini"
    file.write_text("[proxy]\nadmin = 127.0.0.1:47000\n[listener main]\naddress = 127.0.0.1:0\n"
                    "[upstream u]\nendpoints = 127.0.0.1:1\n[route r]\nmatch = *\nupstream = u\n")
    program = started.add(Program(["unshare", "-n", "sh", "-c", f"{prepare} && exec {binary()} -c {file}"], tmp_path, "taken"))
    assert program.wait(10) == 2
    assert "tributary: admin: cannot listen on 127.0.0.1:47000: address already in use" in program.errors()
