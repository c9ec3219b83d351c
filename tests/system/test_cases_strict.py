"""python3-h2 as the client: it checks lengths, field names, pseudo-headers and the order of frames for itself."""
import gzip

import h2.config
import h2.connection
import h2.events
import pytest
from conftest import connect
from h2peer import MSG, bare, framed, json_error, messages, request_fields
from scripted import A, S, U, scripted  # noqa: F401


def strict_call(target, path, body, content_type="application/grpc", extra=()):
    """One call; (fields of each block, body). Anything illegal raises h2's ProtocolError."""
    connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True, header_encoding="utf-8"))
    with connect(target) as sock:
        connection.initiate_connection()
        te = "trailers" if content_type.startswith("application/grpc") else None
        connection.send_headers(1, request_fields(path, extra, content_type, te))
        connection.send_data(1, body, end_stream=True)
        sock.sendall(connection.data_to_send())
        blocks, got = [], b""
        while True:
            for event in connection.receive_data(sock.recv(65536)):
                if isinstance(event, (h2.events.ResponseReceived, h2.events.TrailersReceived)):
                    blocks.append(list(event.headers))
                elif isinstance(event, h2.events.DataReceived):
                    got += event.data
                    connection.acknowledge_received_data(event.flow_controlled_length, 1)
                elif isinstance(event, (h2.events.StreamReset, h2.events.ConnectionTerminated)):
                    raise AssertionError(event)
                elif isinstance(event, h2.events.StreamEnded):
                    return blocks, got
            sock.sendall(connection.data_to_send())


PACKED = gzip.compress(b"0123456789")


@pytest.mark.parametrize("answer, code, payloads", [
    (lambda peer, stream: bare(peer, stream, "0123456789"), "0", [b"0123456789"]),
    (lambda peer, stream: bare(peer, stream, PACKED, extra=[("content-encoding", "gzip")]), "0", [b"0123456789"]),
    (lambda peer, stream: json_error(peer, stream, "404", '{"code":"not_found","message":"no such thing anywhere in here"}'), "5", []),
    (lambda peer, stream: bare(peer, stream, "", extra=[("trailer-x-a", "1")]), "0", [b""])], ids=["plain", "gzip", "error", "empty"])
@pytest.mark.parametrize("path", [U, A])
def test_a_strict_client_takes_every_reply(scripted, answer, code, payloads, path):
    blocks, body = strict_call(scripted(answer).proxy.target, path, MSG("hi"))
    assert dict(blocks[-1])["grpc-status"] == code
    assert [payload for _, payload in messages(body)] == payloads
    assert not [name for block in blocks for name, _ in block if name == "content-length"]


def test_a_strict_client_takes_a_stream(scripted):
    setup = scripted(lambda peer, stream: framed(peer, stream, MSG("a") + MSG("b"), trailers=[("x-t", "1")]))
    blocks, body = strict_call(setup.proxy.target, S, MSG("hi"))
    assert dict(blocks[1]) == {"grpc-status": "0", "x-t": "1"} and len(messages(body)) == 2


@pytest.mark.parametrize("answer, status, size", [
    (lambda peer, stream: bare(peer, stream, PACKED, extra=[("content-encoding", "gzip")]), "200", 10),
    (lambda peer, stream: bare(peer, stream, bytes(100000)), "200", 100000),
    (lambda peer, stream: bare(peer, stream, bytes(5000), length=False), "200", 5000),
    (lambda peer, stream: json_error(peer, stream, "404", '{"code":"not_found"}'), "404", 20)], ids=["gzip", "long", "no length", "error"])
def test_a_strict_bare_client_takes_every_reply(scripted, answer, status, size):
    blocks, body = strict_call(scripted(answer).proxy.target, U, b"hi", "application/proto")
    assert dict(blocks[0])[":status"] == status and len(body) == size
