"""HTTP itself: te, content types, methods, malformed fields, interim heads, push, other protocols on the port, metadata."""
import socket

import pytest
from conftest import connect
from h2peer import (HEADERS, MSG, PREFACE, PROTOCOL_ERROR, PUSH_PROMISE, bare, block, data, either, frame, framed, headers,
                    request_fields, settings)
from scripted import S, U, scripted  # noqa: F401

FRAMED_HEAD = [(":status", "200"), ("content-type", "application/grpc")]
PROTO_HEAD = [(":status", "200"), ("content-type", "application/proto")]


# --- te ---

@pytest.mark.parametrize("te", ["trailers", None])
def test_a_stream_reaches_the_provider_with_te_trailers(scripted, te):
    setup = scripted()
    setup.client.call(S, te=te).says(0, ["hi"])
    assert setup.provider.requests[0].all("te") == ["trailers"]


@pytest.mark.parametrize("te", ["trailers, deflate", "gzip"])
@pytest.mark.parametrize("path", [U, S])
def test_another_te_is_a_stream_error(scripted, te, path):
    setup = scripted()
    assert setup.client.call(path, te=te).reset == PROTOCOL_ERROR
    setup.client.call(path).says(0, ["hi"])
    assert len(setup.provider.requests) == 1


def test_a_bare_request_has_no_te(scripted):
    setup = scripted()
    setup.client.call(U).says(0, ["hi"])
    assert setup.provider.requests[0].all("te") == []


# --- content types ---

@pytest.mark.parametrize("content_type, codec", [
    ("application/grpc", "proto"), ("application/grpc+proto", "proto"), ("application/grpc+json", "json"),
    ("application/grpc+thrift", "thrift"), ("application/grpc+hessian2", "hessian2"), ("application/grpc+msgpack", "msgpack"),
    ("application/grpc;charset=utf-8", "proto"), ("application/grpc+proto; v=1", "proto"), ("Application/GRPC", "proto")])
@pytest.mark.parametrize("path", [U, S])
def test_a_codec_is_named_in_the_providers_form(scripted, content_type, codec, path):
    setup = scripted()
    reply = setup.client.call(path, content_type=content_type).says(0, ["hi"])
    suffix = "" if codec == "proto" else "+" + codec
    assert reply.one("content-type") == "application/grpc" + suffix
    assert setup.provider.requests[0].one("content-type") == ("application/" + codec if path == U else "application/grpc" + suffix)


@pytest.mark.parametrize("content_type", ["application/grpc-web+proto", "application/grpcfoo", "text/plain", None, "application/connect+proto",
                                          "application/grpc+"])
@pytest.mark.parametrize("path", [U, S])
def test_another_content_type_is_415(scripted, content_type, path):
    setup = scripted()
    reply = setup.client.call(path, content_type=content_type)
    assert (reply.http, reply.one("content-type")) == (415, "text/plain; charset=utf-8")
    assert reply.code is None and len(reply.body) < 100
    assert not setup.provider.requests
    setup.client.call(path).says(0, ["hi"])


def test_two_content_types_are_415(scripted):
    assert scripted().client.call(U, extra=[("content-type", "application/grpc")]).http == 415


@pytest.mark.parametrize("method", ["GET", "PUT", "OPTIONS", "DELETE"])
def test_another_method_is_405(scripted, method):
    setup = scripted()
    reply = setup.client.call(U, method=method)
    assert (reply.http, reply.one("allow")) == (405, "POST")
    assert not setup.provider.requests


def test_head_is_405_without_a_body(scripted):
    setup = scripted()
    number = setup.client.open(U, method="HEAD", end=True)
    reply = setup.client.ended(number)
    assert reply.http == 405 and not reply.body and reply.end == HEADERS


def test_a_refused_request_may_go_on_and_the_connection_stays(scripted):
    setup = scripted()
    number = setup.client.open(U, content_type="text/plain")
    reply = setup.client.ended(number)
    assert reply.http == 415
    setup.client.raw(data(number, bytes(16384)) * 8)
    setup.client.call(U).says(0, ["hi"])
    assert setup.client.goaway is None


def test_no_route_is_unimplemented(scripted):
    setup = scripted()
    assert "route" in setup.client.call("/nobody.Has/This").says(12, trailers_only=True).message
    assert setup.route("(none)")["status"] == {"UNIMPLEMENTED": 1}


# --- malformed requests ---

def fields_with(*extra, path=S):
    return request_fields(path, extra)


MALFORMED = {
    "connection": fields_with(("connection", "keep-alive")), "transfer-encoding": fields_with(("transfer-encoding", "chunked")),
    "keep-alive": fields_with(("keep-alive", "5")), "proxy-connection": fields_with(("proxy-connection", "x")),
    "upgrade": fields_with(("upgrade", "h2c")), "upper-case": fields_with(("X-A", "1")), "space-in-name": fields_with(("x a", "1")),
    "trailing-space": fields_with(("x-a", "1 ")), "cr": fields_with(("x-a", "1\r2")), "lf": fields_with(("x-a", "1\n2")),
    "nul": fields_with(("x-a", "1\0" "2")), "late-pseudo": request_fields(S)[:2] + request_fields(S)[3:] + [(":path", S)],
    "two-paths": request_fields(S) + [(":path", S)], "twice": [(":path", S)] + request_fields(S), "no-path": request_fields(S)[:2]
    + request_fields(S)[3:], "unknown-pseudo": [(":x", "1")] + request_fields(S), "empty-path": request_fields("")}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_request_is_a_stream_error(scripted, name):
    setup = scripted()
    client = setup.client
    other = client.open(S)
    number = client.new_id()
    client.raw(headers(number, MALFORMED[name]) + data(number, MSG("hi"), end=True))
    assert client.ended(number).reset == PROTOCOL_ERROR
    client.raw(data(other, MSG("hi"), end=True))
    client.ended(other).says(0, ["hi"])
    assert client.goaway is None


# --- malformed replies ---

@pytest.mark.parametrize("extra", [
    ("connection", "close"), ("transfer-encoding", "chunked"), ("keep-alive", "5"), ("upgrade", "h2c"), ("X-A", "1"), ("x a", "1"),
    ("x-a", "1\n2"), ("x-a", "1\0" "2"), (":path", "/")], ids=lambda pair: pair[0] + repr(pair[1]))
@pytest.mark.parametrize("where", ["head", "trailers"])
def test_a_malformed_reply_is_internal(scripted, extra, where):
    bad = [True]

    def answer(peer, stream):
        more = [extra] if bad else []
        head = FRAMED_HEAD + (more if where == "head" else [])
        peer.raw(headers(stream.id, head) + data(stream.id, MSG("m"))
                 + headers(stream.id, [("grpc-status", "0")] + (more if where == "trailers" else []), end=True))
    setup = scripted(answer)
    assert setup.client.call(S).code == 13
    bad.clear()
    setup.client.call(S).says(0, ["m"])
    assert len(setup.provider.peers) == 1, "the connection was kept"


def test_a_status_in_trailers_is_internal(scripted):
    setup = scripted(lambda peer, stream: peer.raw(headers(stream.id, FRAMED_HEAD) + data(stream.id, MSG("m")) + headers(
        stream.id, [(":status", "200"), ("grpc-status", "0")], end=True)))
    assert setup.client.call(S).code == 13


# --- interim heads ---

def interim(number, status):
    return headers(number, [(":status", str(status))])


@pytest.mark.parametrize("heads", [[100], [103, 103, 103], [100, 103]])
@pytest.mark.parametrize("path", [U, S])
def test_interim_heads_are_skipped(scripted, heads, path):
    def answer(peer, stream):
        peer.raw(b"".join(interim(stream.id, status) for status in heads))
        either(peer, stream)
    scripted(answer).client.call(path).says(0, ["hi"])


@pytest.mark.parametrize("frames", [
    lambda i: headers(i, [(":status", "103")], end=True), lambda i: interim(i, 101), lambda i: interim(i, 103) * 1000],
    ids=["ends", "101", "flood"])
@pytest.mark.parametrize("path", [U, S])
def test_interim_heads_that_may_not_be_are_internal(scripted, frames, path):
    assert scripted(lambda peer, stream: peer.raw(frames(stream.id))).client.call(path).code == 13


def test_an_interim_head_behind_the_final_one_is_internal(scripted):
    setup = scripted(lambda peer, stream: peer.raw(headers(stream.id, FRAMED_HEAD) + interim(stream.id, 100)))
    assert setup.client.call(S).code == 13


def test_expect_does_not_hold_up_an_upload(scripted):
    setup = scripted()
    setup.client.call(U, extra=[("expect", "100-continue")]).says(0, ["hi"])
    assert setup.provider.requests[0].one("expect") is None


# --- push ---

def test_push_is_off_in_both_directions(scripted):
    setup = scripted()
    setup.client.call(S).says(0, ["hi"])
    assert setup.provider.peers[0].settings[2] == 0


def test_a_push_ends_the_providers_connection_and_the_pool_replaces_it(scripted):
    bad = [True]

    def answer(peer, stream):
        if bad:
            promised = block(request_fields("/pushed"))
            peer.raw(headers(stream.id, FRAMED_HEAD) + frame(PUSH_PROMISE, 4, stream.id, b"\0\0\0\2" + promised))
        else:
            either(peer, stream)
    setup = scripted(answer)
    assert setup.client.call(S).code in (13, 14)
    bad.clear()
    setup.client.call(S).says(0, ["hi"])
    assert len(setup.provider.peers) == 2


def test_a_client_that_pushes_loses_its_connection(scripted):
    setup = scripted()
    client = setup.new_client()
    number = client.open(S)
    client.raw(frame(PUSH_PROMISE, 4, number, b"\0\0\0\2" + block(request_fields("/pushed"))))
    client.wait(lambda: client.closed, "the connection's end")
    assert client.goaway[1] == PROTOCOL_ERROR


# --- what is no prior knowledge ---

def until_closed(sock, seconds=15):
    sock.settimeout(seconds)
    got = b""
    while True:
        try:
            part = sock.recv(4096)
        except ConnectionError:
            return got
        if not part:
            return got
        got += part


def test_http1_that_is_no_rpc_gets_an_http1_answer(scripted):
    with connect(scripted().proxy.target) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        assert until_closed(sock).startswith(b"HTTP/1.1 405 ")


def test_an_upgrade_to_h2c_is_ignored(scripted):
    with connect(scripted().proxy.target) as sock:
        sock.sendall(b"POST /u.S/Method HTTP/1.1\r\nhost: x\r\nconnection: Upgrade, HTTP2-Settings, close\r\nupgrade: h2c\r\n"
                     b"http2-settings: AAMAAABkAAQAAP__\r\ncontent-type: application/proto\r\ncontent-length: 2\r\n\r\nhi")
        answer = until_closed(sock)
        assert answer.startswith(b"HTTP/1.1 200 ") and answer.endswith(b"\r\n\r\nhi")


def test_a_tls_hello_is_closed(scripted):
    with connect(scripted().proxy.target) as sock:
        sock.sendall(bytes.fromhex("16030102000100 01fc 0303") + bytes(512))
        assert until_closed(sock) == b""


def test_a_preface_byte_by_byte_works(scripted):
    setup = scripted()
    with connect(setup.proxy.target) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in PREFACE + settings() + headers(1, request_fields(U)) + data(1, MSG("hi"), end=True):
            sock.sendall(bytes((byte,)))
        setup.proxy.wait_for(lambda stats: stats["routes"]["u"]["status"] == {"OK": 1}, "the call")


@pytest.mark.parametrize("first", [PREFACE[:10], PREFACE, b"PRI"], ids=["ten-bytes", "no-settings", "three-bytes"])
def test_a_silent_peer_is_closed_by_a_timeout(scripted, first):
    with connect(scripted().proxy.target) as sock:
        sock.sendall(first)
        until_closed(sock)


def test_settings_of_an_illegal_length_are_a_frame_size_error(scripted):
    setup = scripted()
    client = setup.new_client()
    client.raw(frame(4, 0, 0, bytes(5)))
    client.wait(lambda: client.closed, "the connection's end")
    assert client.goaway[1] == 6


def test_unknown_settings_are_ignored(scripted):
    client = scripted().new_client(initial=((0x99, 7), (4, 1 << 20)))
    client.call(U).says(0, ["hi"])


def test_connecting_and_leaving_harms_nobody(scripted):
    setup = scripted()
    for _ in range(50):
        connect(setup.proxy.target).close()
    setup.client.call(U).says(0, ["hi"])
    setup.proxy.wait_for(lambda stats: stats["listeners"]["main"]["connections"] == 1, "the others' end")


def test_the_stats_port_survives_http2(scripted):
    setup = scripted()
    with connect(setup.proxy.admin) as sock:
        sock.sendall(PREFACE + settings())
        until_closed(sock)
    assert setup.proxy.get("/live").status == 200


# --- metadata ---

SENT = [("x-a", "1"), ("x-a", "2"), ("x-b-bin", "AQI"), ("x-b-bin", "AQI="), ("x-b-bin", "AQI,AwQ="), ("x-c", "a, b"), ("authorization", "t"),
        ("user-agent", "grpc-test/1"), ("tri-service-version", "1.0"), ("tri-service-group", "g"), ("tri-consumer-appname", "app"),
        ("traceparent", "00-1-2-03"), ("cookie", "a=1"), ("cookie", "b=2"), ("grpc-trace-bin", "AA"), ("grpc-foo", "x"),
        ("grpc-accept-encoding", "gzip"), ("accept-encoding", "identity"), ("x-empty", "")]
CUSTOM = ("x-a", "x-b-bin", "x-c", "authorization", "tri-consumer-appname", "traceparent", "x-empty")


@pytest.mark.parametrize("path", [U, S])
def test_metadata_reaches_the_provider_as_it_was(scripted, path):
    setup = scripted()
    setup.client.call(path, extra=SENT).says(0, ["hi"])
    request = setup.provider.requests[0]
    got = [pair for pair in request.fields if pair[0] in CUSTOM]
    assert got == [pair for pair in SENT if pair[0] in CUSTOM]
    assert request.one("user-agent") == "grpc-test/1"
    assert (request.one("tri-service-version"), request.one("tri-service-group")) == ("1.0", "g")
    assert "; ".join(request.all("cookie")) == "a=1; b=2"
    assert request.one(":authority") == "test"
    names = {name for name, _ in request.fields}
    assert not names & {"host", "grpc-accept-encoding", "accept-encoding", "x-forwarded-for", "via", "forwarded"}
    grpc = sorted(name for name in names if name.startswith("grpc-"))
    assert grpc == ([] if path == U else ["grpc-foo", "grpc-trace-bin"])


def test_metadata_of_a_bare_reply_reaches_the_client_as_it_was(scripted):
    lead = [pair for pair in SENT if pair[0] in CUSTOM]
    setup = scripted(lambda peer, stream: bare(peer, stream, extra=lead + [("trailer-" + name, value) for name, value in lead]))
    reply = setup.client.call(U).says(0, ["hi"])
    assert [pair for pair in reply.heads[0] if pair[0] in CUSTOM] == lead
    assert [pair for pair in reply.heads[1] if pair[0] in CUSTOM] == lead


def test_metadata_of_a_framed_reply_reaches_the_client_as_it_was(scripted):
    lead = [pair for pair in SENT if pair[0] in CUSTOM]
    reply = scripted(lambda peer, stream: framed(peer, stream, head=lead, trailers=lead)).client.call(S).says(0, ["hi"])
    assert [pair for pair in reply.heads[0] if pair[0] in CUSTOM] == lead
    assert [pair for pair in reply.heads[1] if pair[0] in CUSTOM] == lead


@pytest.mark.parametrize("path", [U, S])
def test_nine_kibibytes_of_metadata_pass(scripted, path):
    setup = scripted()
    extra = [("x-%d" % index, "v" * 900) for index in range(10)]
    setup.client.call(path, extra=extra).says(0, ["hi"])
    assert [pair for pair in setup.provider.requests[0].fields if pair[0].startswith("x-")] == extra


@pytest.mark.parametrize("path", [U, S])
def test_metadata_over_the_limit_is_resource_exhausted(scripted, path):
    setup = scripted()
    reply = setup.client.call(path, extra=[("x-%d" % index, "v" * 900) for index in range(80)])
    reply.says(8, trailers_only=True)
    assert not setup.provider.requests
    setup.client.call(path).says(0, ["hi"])


def test_a_host_field_without_authority_becomes_the_authority(scripted):
    setup = scripted()
    number = setup.client.new_id()
    fields = [pair for pair in request_fields(U) if pair[0] != ":authority"] + [("host", "who")]
    setup.client.raw(headers(number, fields) + data(number, MSG("hi"), end=True))
    setup.client.ended(number).says(0, ["hi"])
    assert setup.provider.requests[0].one(":authority") == "who" and setup.provider.requests[0].one("host") is None


def test_the_route_names_service_group_version_and_headers(scripted):
    setup = scripted(route="set_service = org.Other\nset_group = g\nset_version = 2.0\nset_header = x-env: prod\nset_header = x-a: mine")
    setup.client.call(U + "?q=1", extra=[("x-a", "1"), ("x-b", "2"), ("tri-service-group", "theirs")]).says(0, ["hi"])
    request = setup.provider.requests[0]
    assert request.one(":path") == "/org.Other/Method"
    assert (request.one("tri-service-group"), request.one("tri-service-version")) == ("g", "2.0")
    assert (request.all("x-a"), request.one("x-env"), request.one("x-b")) == (["mine"], "prod", "2")
