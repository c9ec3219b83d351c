"""scale.py, half_load.py and java_suite.py: what they send and decide, and one small run of each that is quick."""

import os
import pathlib
import socket
import subprocess
import sys
import threading

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import bench_load
import bench_peers
import bench_targets
import half_load
import java_suite
import scale


def test_idle_connections_have_made_a_call_each_and_stay():
    provider = bench_targets.Provider(bench_load.find_build()[1], None)
    try:
        idle = scale.Idle(provider.port, 7)
        assert provider.counts()["framed"] == 7
        links = [os.readlink(link) for link in pathlib.Path(f"/proc/{provider.pid}/fd").iterdir()]
        assert sum(link.startswith("socket:") for link in links) >= 7
        for connection in idle.sockets:  # open, and told nothing more but the ACK of its SETTINGS
            connection.settimeout(0.1)
            with pytest.raises(TimeoutError):
                while True:
                    assert connection.recv(100)
        idle.close()
    finally:
        provider.stop()


def test_an_idle_connection_that_is_closed_is_told():
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=lambda: server.accept()[0].close(), daemon=True).start()
        with pytest.raises((RuntimeError, ConnectionError)):
            scale.Idle(server.getsockname()[1], 1)


def test_scaled_configurations():
    class Shown(scale.ManyRoutes):
        ports = [1, 2, 3]

        def __init__(self, folder):
            self.name, self.folder, self.port = "shown", folder, 4

    if not os.environ.get("TRIBUTARY_BIN"):
        pytest.skip("TRIBUTARY_BIN does not name the proxy's binary")
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        command = Shown(pathlib.Path(folder)).command()
        text = pathlib.Path(command[-1]).read_text()
        assert text.count("[route ") == 1000 and text.count("endpoints = ") == 3
        done = subprocess.run([*command, "--check"], capture_output=True, text=True, timeout=30)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("kept_below, rate", [(10000, 8000), (7000, 6000), (5000, 4500)])
def test_the_rate_is_lowered_until_all_keep_it(monkeypatch, kept_below, rate):
    monkeypatch.setattr(half_load, "open_loop", lambda options, target, size, at: {"qps": min(at, kept_below)})
    assert half_load.rate_that_all_keep(None, {"one": None}, 128, 8000) == rate


def test_a_rate_that_nobody_keeps_ends_it(monkeypatch):
    monkeypatch.setattr(half_load, "open_loop", lambda options, target, size, at: {"qps": at / 2})
    with pytest.raises(RuntimeError, match="busy"):
        half_load.rate_that_all_keep(None, {"one": None}, 128, 8000)


@pytest.mark.parametrize("first, good", [(1.5, True), (2.0, True), (2.1, False)])
def test_more_latency_than_the_other_is_told(capsys, first, good):
    rows = {"direct": {"p50": 1.0}, "ours": {"p50": first}, "theirs": {"p50": 2.0}}
    assert half_load.verdict(128, rows, "ours", "theirs") is good
    assert ("MORE" in capsys.readouterr().out) is not good


def test_user_messages_are_protobuf():
    fields = list(bench_peers.fields(java_suite.user(42)))
    assert fields[0] == (1, 42) and dict(fields)[5] == b"user42@example.org"
    packed = dict(fields)[9]
    assert len(packed) == 2 * 9 + 2 - 1 and packed.startswith(b"\x64\xc8\x01")  # 100 is one byte, 200 is two
    request, reply = java_suite.messages()["listUser"]
    assert list(bench_peers.fields(request)) == [(1, 7)]
    users = [value for number, value in bench_peers.fields(reply) if number == 3]
    assert [dict(bench_peers.fields(each))[1] for each in users] == list(range(105, 120))
    assert java_suite.encoded((1, 0), (2, "")) == b"\x12\x00"  # a zero stays out
