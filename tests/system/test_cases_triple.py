"""Bare clients: Triple and Connect, over HTTP/2 and HTTP/1.1."""
import base64
import gzip
import http.client
import json

import pytest
from conftest import connect, split_target
from h2peer import MSG, bare, data, either, framed, headers, json_error, reset
from scripted import A, S, U, scripted  # noqa: F401

VERSION = ("triple-protocol-version", "0.1.0")


def triple(setup, path=U, body=b"hi", extra=(VERSION,), content_type="application/proto", length=True):
    fields = list(extra) + ([("content-length", str(len(body)))] if length else [])
    return setup.client.call(path, body, extra=fields, content_type=content_type, te=None)


def error_of(reply, status, code):
    assert (reply.http, reply.one("content-type")) == (status, "application/json"), (reply.heads, reply.body)
    assert int(reply.one("content-length")) == len(reply.body)
    error = json.loads(reply.body)
    assert error["code"] == code
    return error


# --- what passes ---

@pytest.mark.parametrize("path", [U, S, A])
@pytest.mark.parametrize("length", [True, False])
def test_a_bare_call_is_a_bare_call(scripted, path, length):
    """A bare request counts as call = unary, whatever the route says."""
    setup = scripted()
    reply = triple(setup, path, length=length)
    assert (reply.http, reply.one("content-type"), reply.body) == (200, "application/proto", b"hi")
    assert reply.one("content-length") == "2" and len(reply.heads) == 1
    request = setup.provider.requests[0]
    assert (request.one("content-type"), request.one("content-length"), request.body) == ("application/proto", "2", b"hi")
    assert request.one("triple-protocol-version") == "0.1.0" and request.one("te") is None


@pytest.mark.parametrize("wire", ["auto", "framed"])
@pytest.mark.parametrize("length", [True, False])
def test_a_bare_call_reaches_a_provider_that_takes_framing_only(scripted, wire, length):
    def answer(peer, stream):
        if stream.one("content-type").startswith("application/grpc"):
            framed(peer, stream, head=[("x-lead", "1")], trailers=[("x-trail", "2")])
        else:
            json_error(peer, stream, "404", '{"message":"Invoker not found","status":"404"}')
    setup = scripted(answer, upstream=f"wire = {wire}")
    for _ in range(2):
        reply = triple(setup, length=length)
        assert (reply.http, reply.body, reply.one("content-length")) == (200, b"hi", "2")
        assert (reply.one("x-lead"), reply.one("trailer-x-trail")) == ("1", "2")
    assert setup.provider.requests[-1].body == MSG("hi")


@pytest.mark.parametrize("codec", ["json", "hessian2", "msgpack"])
def test_other_codecs_pass_under_their_names(scripted, codec):
    setup = scripted()
    reply = triple(setup, content_type="application/" + codec)
    assert (reply.one("content-type"), reply.body) == ("application/" + codec, b"hi")
    assert setup.provider.requests[0].one("content-type") == "application/" + codec


def test_an_empty_message_is_a_message(scripted):
    setup = scripted(lambda peer, stream: bare(peer, stream, b""))
    reply = triple(setup, body=b"")
    assert (reply.http, reply.body, reply.one("content-length")) == (200, b"", "0")
    number = setup.client.open(U, extra=[VERSION], content_type="application/proto", te=None, end=True)
    assert setup.client.ended(number).http == 200


def test_trailers_of_a_bare_reply_keep_their_prefix(scripted):
    setup = scripted(lambda peer, stream: bare(peer, stream, extra=[("x-a", "1"), ("trailer-x-b", "2"), ("trailer-x-b", "3")]))
    reply = triple(setup)
    assert (reply.one("x-a"), reply.all("trailer-x-b")) == ("1", ["2", "3"])


# --- compression ---

def test_a_gzip_request_passes_compressed_and_the_length_is_that_of_the_wire(scripted):
    packed = gzip.compress(b"hello")
    setup = scripted(lambda peer, stream: bare(peer, stream, "ok"))
    assert triple(setup, body=packed, extra=[VERSION, ("content-encoding", "gzip")]).body == b"ok"
    request = setup.provider.requests[0]
    assert (request.body, request.one("content-encoding"), request.one("content-length")) == (packed, "gzip", str(len(packed)))


@pytest.mark.parametrize("length", [True, False])
@pytest.mark.parametrize("route", ["", "fast_path = off", "fast_path_max = 1"])
def test_a_gzip_request_is_inflated_for_a_provider_that_takes_framing_only(scripted, length, route):
    """However it would go by its length: it can be inflated only when it has ended."""
    packed = gzip.compress(bytes(range(256)) * 100)
    setup = scripted(upstream="wire = framed", route=route)
    number = setup.client.open(U, extra=[VERSION, ("content-encoding", "gzip")] + (
        [("content-length", str(len(packed)))] if length else []), content_type="application/proto", te=None)
    setup.client.raw(data(number, packed[:100]))
    setup.client.ping()
    setup.client.raw(data(number, packed[100:], end=True))
    assert setup.client.ended(number).body == bytes(range(256)) * 100
    request = setup.provider.requests[0]
    assert request.body == MSG(bytes(range(256)) * 100) and request.one("grpc-encoding") is None


@pytest.mark.parametrize("length", [True, False])
@pytest.mark.parametrize("encoding", ["gzip", None])
def test_a_refusal_before_a_cut_through_bare_request_has_ended_harms_nobody(scripted, length, encoding):
    """It cannot be framed any more: no length, or not to be inflated. The fact is forgotten, the call UNAVAILABLE."""
    refused = []

    def answer(peer, stream):
        if stream.one("content-type").startswith("application/grpc"):
            peer.wait(lambda: stream.done, "its end")
            framed(peer, stream, MSG("ok"))
        elif refused:
            json_error(peer, stream, "404", '{"message":"Invoker not found","status":"404"}')
        else:
            peer.wait(lambda: stream.done, "its end")
            bare(peer, stream, "ok")
    setup = scripted(answer, whole=False, route="fast_path_max = 1")
    client = setup.client
    assert triple(setup).body == b"ok"
    refused.append(1)
    packed = gzip.compress(b"hello" * 10) if encoding else b"hello" * 10
    fields = [VERSION] + ([("content-encoding", "gzip")] if encoding else []) + (
        [("content-length", str(len(packed)))] if length else [])
    number = client.open(U, extra=fields, content_type="application/proto", te=None)
    client.raw(data(number, packed[:20]))
    setup.proxy.wait_for(lambda stats: client.streams[number].done or len(setup.provider.requests) == 3, "a decision")
    if client.streams[number].done:
        error_of(client.streams[number], 503, "unavailable")
    else:  # length known, nothing to inflate: framed from its kept beginning
        assert length and not encoding
        client.raw(data(number, packed[20:], end=True))
        assert client.ended(number).body == b"ok"
    assert triple(setup).body == b"ok"


def test_an_unknown_encoding_is_unimplemented(scripted):
    setup = scripted()
    error_of(triple(setup, extra=[VERSION, ("content-encoding", "br")]), 404, "unimplemented")
    assert not setup.provider.requests


@pytest.mark.parametrize("accept", [True, False])
def test_a_gzip_reply_is_inflated_where_it_was_not_asked_for(scripted, accept):
    packed = gzip.compress(b"hello")
    setup = scripted(lambda peer, stream: bare(peer, stream, packed, extra=[("content-encoding", "gzip")]))
    reply = triple(setup, extra=[VERSION] + ([("accept-encoding", "gzip")] if accept else []))
    want = packed if accept else b"hello"
    assert (reply.body, reply.one("content-length")) == (want, str(len(want)))
    assert reply.one("content-encoding") == ("gzip" if accept else None)


# --- versions and timeouts as dubbo-go answers them ---

@pytest.mark.parametrize("value", ["0.2.0", "1", "x" * 100])
def test_a_wrong_version_is_invalid_argument(scripted, value):
    setup = scripted()
    error = error_of(triple(setup, extra=[("triple-protocol-version", value)]), 400, "invalid_argument")
    assert "triple-protocol-version must be" in error["message"]
    assert not setup.provider.requests


@pytest.mark.parametrize("extra", [[], [("triple-protocol-version", "")], [VERSION]])
def test_an_absent_or_empty_version_is_accepted(scripted, extra):
    assert triple(scripted(), extra=extra).body == b"hi"


@pytest.mark.parametrize("value", ["abc", "99999999999", "1.5", "1s"])
def test_a_malformed_timeout_is_invalid_argument(scripted, value):
    setup = scripted()
    error_of(triple(setup, extra=[VERSION, ("triple-timeout-ms", value)]), 400, "invalid_argument")
    assert not setup.provider.requests


@pytest.mark.parametrize("value", ["0", "-5"])
def test_a_timeout_of_nothing_is_over_at_once(scripted, value):
    setup = scripted()
    error_of(triple(setup, extra=[VERSION, ("triple-timeout-ms", value)]), 408, "deadline_exceeded")
    assert not setup.provider.requests


def test_the_timeout_travels_and_ends_the_call(scripted):
    setup = scripted(lambda peer, stream: None)
    error_of(triple(setup, extra=[VERSION, ("triple-timeout-ms", "200")]), 408, "deadline_exceeded")
    assert 100 < int(setup.provider.requests[0].one("triple-timeout-ms")) <= 200


@pytest.mark.parametrize("extra", [[("grpc-timeout", "1n")], [("triple-timeout-ms", "")]])
def test_what_is_no_timeout_in_this_form_is_none(scripted, extra):
    setup = scripted()
    assert triple(setup, extra=[VERSION, *extra]).body == b"hi"
    names = {name for name, _ in setup.provider.requests[0].fields}
    assert not names & {"triple-timeout-ms", "grpc-timeout"}


# --- errors ---

def test_the_providers_error_passes_untouched(scripted):
    text = '{"code":"failed_precondition","message":"a \\u003c b","details":[{"type":"t.T","value":"CgIIBQ","debug":{"x":1}}],"more":1}'
    setup = scripted(lambda peer, stream: json_error(peer, stream, "412", text, [("x-a", "1"), ("trailer-x-b", "2")]))
    reply = triple(setup)
    error_of(reply, 412, "failed_precondition")
    assert reply.body.decode() == text and (reply.one("x-a"), reply.one("trailer-x-b")) == ("1", "2")


def test_code_17_stays_code_17(scripted):
    setup = scripted(lambda peer, stream: json_error(peer, stream, "500", '{"code":"code_17","message":"biz"}'))
    assert error_of(triple(setup), 500, "code_17")["message"] == "biz"


def test_framed_errors_become_json_with_their_details(scripted):
    details = base64.b64encode(bytes.fromhex("0805120162") + b"\x1a\x23\x0a\x1ctype.googleapis.com/acme.Why\x12\x03abc").decode().rstrip("=")
    setup = scripted(lambda peer, stream: framed(peer, stream, b"", "5", trailers=[
        ("grpc-message", "b%C3%BC"), ("grpc-status-details-bin", details), ("x-t", "1")]), upstream="wire = framed")
    reply = triple(setup)
    error = error_of(reply, 404, "not_found")
    assert error["message"] == "bü" and error["details"] == [{"type": "acme.Why", "value": "YWJj"}]
    assert reply.one("trailer-x-t") == "1" and reply.one("trailer-grpc-status-details-bin") is None


@pytest.mark.parametrize("code, status, name", [(1, 408, "canceled"), (3, 400, "invalid_argument"), (8, 429, "resource_exhausted"),
                                                (10, 409, "aborted"), (16, 401, "unauthenticated"), (17, 500, "code_17"), (42, 500, "unknown")])
def test_codes_have_their_http_status(scripted, code, status, name):
    setup = scripted(lambda peer, stream: framed(peer, stream, b"", str(code)), upstream="wire = framed")
    error_of(triple(setup), status, name)


@pytest.mark.parametrize("code, status, name", [(17, 500, "unknown"), (1, 499, "canceled"), (4, 504, "deadline_exceeded"), (12, 501, "unimplemented"),
                                                (9, 400, "failed_precondition")])
def test_connect_clients_get_connects_codes(scripted, code, status, name):
    setup = scripted(lambda peer, stream: framed(peer, stream, b"", str(code)), upstream="wire = framed")
    error_of(triple(setup, extra=[("connect-protocol-version", "1")]), status, name)


def test_a_connect_client_gets_no_code_17_from_a_bare_provider_either(scripted):
    setup = scripted(lambda peer, stream: json_error(peer, stream, "500", '{"code":"code_17","message":"biz"}'))
    assert error_of(triple(setup, extra=[("connect-protocol-version", "1")]), 500, "unknown")["message"] == "biz"


def test_the_proxys_own_errors_are_json_with_error_info(scripted):
    setup = scripted(endpoints="127.0.0.1:1")
    error = error_of(triple(setup), 503, "unavailable")
    assert "route u" in error["message"] and error["details"][0]["type"] == "google.rpc.ErrorInfo"
    assert b"tributary" in base64.b64decode(error["details"][0]["value"] + "==")
    error_of(triple(setup, "/no.Such/Method"), 404, "unimplemented")


def test_a_broken_reply_body_is_a_reset(scripted):
    """200 is out: nothing else can still be said."""
    def answer(peer, stream):
        peer.raw(headers(stream.id, [(":status", "200"), ("content-type", "application/proto"), ("content-length", "100")])
                 + data(stream.id, "part") + reset(stream.id, 2))
    reply = triple(scripted(answer))
    assert reply.reset not in (None, 0)


def test_a_path_that_names_no_method_is_404(scripted):
    setup = scripted()
    for path in ("/", "/x", "/x/", "//"):
        reply = triple(setup, path)
        assert (reply.http, reply.one("content-type")) == (404, "text/plain; charset=utf-8")


def test_report_trailers_are_prefixed(scripted):
    setup = scripted(route="report = on")
    assert triple(setup).one("trailer-tributary-path") == "fast"
    assert triple(setup, extra=[("triple-protocol-version", "9")]).one("trailer-tributary-overhead-us")


def test_a_message_over_max_message_is_refused_by_its_length(scripted):
    setup = scripted(proxy="max_message = 64K")
    number = setup.client.open(U, extra=[VERSION, ("content-length", "65537")], content_type="application/proto", te=None)
    error_of(setup.client.ended(number), 429, "resource_exhausted")


# --- HTTP/1.1 ---

def h1(setup):
    return http.client.HTTPConnection(*split_target(setup.proxy.target), timeout=10)


def post(connection, body=b'{"a":1}', path=U, headers=None, **more):
    connection.request("POST", path, body, {"content-type": "application/json", **(headers or {})}, **more)
    reply = connection.getresponse()
    return reply, reply.read()


def test_json_over_http1_with_keep_alive(scripted):
    setup = scripted()
    connection = h1(setup)
    for _ in range(5):
        reply, body = post(connection)
        assert (reply.status, reply.getheader("content-type"), body) == (200, "application/json", b'{"a":1}')
        assert reply.getheader("content-length") == "7" and reply.getheader("transfer-encoding") is None
    stats = setup.proxy.stats()["listeners"]["main"]
    assert stats["accepted"] == 1
    request = setup.provider.requests[0]
    assert request.one("content-length") == "7" and request.one(":authority") == setup.proxy.target
    assert request.one("host") is None and request.one("accept-encoding") is None
    connection.close()


def test_a_chunked_http1_request_has_a_length_at_the_provider(scripted):
    setup = scripted()
    connection = h1(setup)
    for _ in range(2):
        reply, body = post(connection, iter([b'{"a"', b":", b"1}"]), encode_chunked=True, headers={"transfer-encoding": "chunked"})
        assert (reply.status, body) == (200, b'{"a":1}')
    assert setup.provider.requests[0].one("content-length") == "7"
    assert setup.provider.requests[0].one("transfer-encoding") is None
    connection.close()


def test_errors_over_http1_keep_the_connection(scripted):
    setup = scripted(lambda peer, stream: json_error(peer, stream, "404", '{"code":"not_found"}'))
    connection = h1(setup)
    for _ in range(3):
        reply, body = post(connection)
        assert (reply.status, body) == (404, b'{"code":"not_found"}')
    connection.close()
    assert setup.proxy.stats()["listeners"]["main"]["accepted"] == 1


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT"])
def test_other_methods_over_http1_are_405_and_keep_the_connection(scripted, method):
    setup = scripted()
    connection = h1(setup)
    for _ in range(2):
        connection.request(method, U, headers={"content-type": "application/json"})
        reply = connection.getresponse()
        body = reply.read()
        assert reply.status == 405 and reply.getheader("allow") == "POST" and (not body) == (method == "HEAD")
    reply, body = post(connection)
    assert (reply.status, body) == (200, b'{"a":1}')
    connection.close()
    assert setup.proxy.stats()["listeners"]["main"]["accepted"] == 1


def test_another_content_type_over_http1_is_415(scripted):
    reply, _ = post(h1(scripted()), headers={"content-type": "text/plain"})
    assert reply.status == 415


def test_grpc_over_http1_is_refused(scripted):
    """There are no trailers to be had: 415, before anything reaches the provider."""
    setup = scripted()
    reply, _ = post(h1(setup), MSG("hi"), headers={"content-type": "application/grpc"})
    assert reply.status == 415 and not setup.provider.requests


def test_an_expected_continue_is_answered(scripted):
    setup = scripted()
    with connect(setup.proxy.target) as sock:
        sock.sendall(b"POST /u.S/Method HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 2\r\n"
                     b"expect: 100-continue\r\nconnection: close\r\n\r\n")
        assert sock.recv(1000).startswith(b"HTTP/1.1 100 ")
        sock.sendall(b"{}")
        answer = b""
        while part := sock.recv(1000):
            answer += part
        assert answer.startswith(b"HTTP/1.1 200 ") and answer.endswith(b"{}")


def test_a_large_body_over_http1_arrives_both_ways(scripted):
    setup = scripted()
    payload = b'"' + b"x" * (3 << 20) + b'"'
    connection = h1(setup)
    reply, body = post(connection, payload)
    assert (reply.status, body) == (200, payload)
    reply, body = post(connection, payload)
    assert (reply.status, body) == (200, payload)
    connection.close()


def test_a_deadline_over_http1_is_408_and_keeps_the_connection(scripted):
    setup = scripted(lambda peer, stream: None if stream.one("triple-timeout-ms") else either(peer, stream))
    connection = h1(setup)
    reply, body = post(connection, headers={"triple-timeout-ms": "100"})
    assert reply.status == 408 and json.loads(body)["code"] == "deadline_exceeded"
    assert post(connection)[0].status == 200
    connection.close()
    assert setup.proxy.stats()["listeners"]["main"]["accepted"] == 1
