"""Statuses from the provider's wire to the client's: trailers, Trailers-Only, JSON errors, pages, resets, details."""
import base64
import json
import socket
import threading

import pytest
from h2peer import HEADERS, MSG, bare, data, framed, headers, json_error, reset
from scripted import A, S, U, scripted  # noqa: F401

OK_HEAD = [(":status", "200"), ("content-type", "application/grpc")]
STATUS_7 = [("grpc-status", "7"), ("grpc-message", "nope")]


def raw_answer(build):
    """answer() that sends build(stream id), one segment."""
    return lambda peer, stream: peer.raw(build(stream.id))


# --- a status in trailers, with or without messages ---

def test_an_error_in_the_only_header_block_is_an_error(scripted):
    setup = scripted(raw_answer(lambda i: headers(i, OK_HEAD + STATUS_7, end=True)))
    reply = setup.client.call(S).says(7, trailers_only=True)
    assert reply.message == "nope"
    assert setup.route("s")["status"] == {"PERMISSION_DENIED": 1}


@pytest.mark.parametrize("payloads", [[], ["one"]])
def test_unannounced_trailers_arrive(scripted, payloads):
    setup = scripted(raw_answer(lambda i: headers(i, OK_HEAD) + b"".join(data(i, MSG(p)) for p in payloads)
                                + headers(i, STATUS_7 + [("x-cost", "9")], end=True)))
    reply = setup.client.call(S).says(7, payloads)
    assert (reply.message, reply.one("x-cost")) == ("nope", "9")
    assert setup.route("s")["status"] == {"PERMISSION_DENIED": 1}


def test_a_trailers_only_reply_stays_one_frame(scripted):
    setup = scripted(raw_answer(lambda i: headers(i, OK_HEAD + [("grpc-status", "12")], end=True)))
    reply = setup.client.call(S).says(12, trailers_only=True)
    assert [kind for kind, _, _ in reply.frames] == [HEADERS]


@pytest.mark.parametrize("path", [U, S, A])
def test_the_proxys_own_error_is_one_frame(scripted, path):
    setup = scripted(endpoints="127.0.0.1:1")
    reply = setup.client.call(path).says(14, trailers_only=True)
    assert [kind for kind, _, _ in reply.frames] == [HEADERS]
    assert "route" in reply.message


@pytest.mark.parametrize("tail, code", [("data", 2), ("head", 2), ("close", 14)])
def test_a_reply_without_a_status_is_never_ok(scripted, tail, code):
    def answer(peer, stream):
        if tail == "head":
            peer.raw(headers(stream.id, OK_HEAD, end=True))
            return
        peer.raw(headers(stream.id, OK_HEAD) + data(stream.id, MSG("a")) + (data(stream.id, end=True) if tail == "data" else b""))
        if tail == "close":
            peer.close()
    reply = scripted(answer).client.call(S)
    reply.says(code, [] if tail == "head" else ["a"])


# --- upstreams that are none ---

def serve_raw(handle):
    """A TCP server that speaks anything; its address."""
    listening = socket.create_server(("127.0.0.1", 0))

    def run():
        while True:
            try:
                sock, _ = listening.accept()
            except OSError:
                return
            handle(sock)
    threading.Thread(target=run, daemon=True).start()
    return listening, "127.0.0.1:%d" % listening.getsockname()[1]


def speak_http1(sock):
    sock.recv(1000)
    sock.sendall(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
    sock.close()


def speak_tls(sock):
    sock.recv(1000)
    sock.sendall(bytes.fromhex("15030100020246"))  # a fatal alert
    sock.close()


@pytest.mark.parametrize("handle", [lambda sock: sock.close(), speak_http1, speak_tls], ids=["closes", "http1", "tls"])
@pytest.mark.parametrize("path", [U, S])
def test_an_upstream_that_speaks_no_http2_is_unavailable(scripted, handle, path):
    listening, target = serve_raw(handle)
    with listening:
        reply = scripted(endpoints=target).client.call(path).says(14, trailers_only=True)
        assert reply.message.isascii()


@pytest.mark.parametrize("path", [U, S])
def test_a_name_that_resolves_to_nothing_is_unavailable(scripted, path):
    reply = scripted(endpoints="no-such-host.invalid:80", upstream="discovery = dns").client.call(path)
    reply.says(14, trailers_only=True)


# --- pages and other answers that are no protocol ---

PAGE = "<html>" + "x" * 2048 + "</html>"


@pytest.mark.parametrize("status, kind, body, code", [
    ("502", "text/html", PAGE, 14), ("503", "text/plain", "busy", 14), ("401", "text/html", PAGE, 16),
    ("404", "text/plain", "404 page not found\n", 12), ("200", "text/html", PAGE, 13), ("200", "application/json", "{}", 13),
    ("204", None, "", 2), ("302", "text/html", "", 2), ("403", "text/plain", "", 7), ("429", "text/plain", "", 14),
    ("431", "text/plain", "", 8), ("413", "text/plain", "", 8), ("418", "text/plain", "", 2)])
def test_a_page_is_an_error_by_its_http_status(scripted, status, kind, body, code):
    def answer(peer, stream):
        fields = [(":status", status)] + ([("content-type", kind)] if kind else [])
        fields += [("location", "http://127.0.0.1:1/")] if status == "302" else []
        peer.raw(headers(stream.id, fields, end=not body) + (data(stream.id, body, end=True) if body else b""))
    setup = scripted(answer, upstream="wire = bare")
    reply = setup.client.call(U).says(code, trailers_only=True)
    assert "html" not in reply.message.replace("text/html", "")
    assert len(setup.provider.requests) == 1


def test_a_page_longer_than_any_message_is_an_error_by_its_http_status(scripted):
    setup = scripted(lambda peer, stream: bare(peer, stream, "x" * 300000, "503", "text/html"), proxy="max_message = 64K")
    setup.client.call(U).says(14, trailers_only=True)


# --- codes of JSON errors ---

@pytest.mark.parametrize("name, code", [
    ("code_17", 2), ("code_0", 2), ("code_5", 2), ("code_99", 2), ("code_-1", 2), ("code_18446744073709551616", 2),
    ("CODE_17", 2), ("code_", 2), ("ok", 2), ("", 2), ("internal", 13), ("unavailable", 14), ("resource_exhausted", 8)])
def test_a_json_code_never_turns_into_success(scripted, name, code):
    setup = scripted(lambda peer, stream: json_error(peer, stream, "500", json.dumps({"code": name, "message": "biz"})))
    reply = setup.client.call(U).says(code, trailers_only=True)
    assert reply.message == "biz"
    assert len(setup.provider.requests) == 1, "never sent again"


def test_code_17_keeps_its_number_beside_unknown(scripted):
    setup = scripted(lambda peer, stream: json_error(peer, stream, "500", '{"code":"code_17","message":"biz"}'))
    reply = setup.client.call(U).says(2)
    assert reply.one("tri-status-code") == "17"
    details = base64.b64decode(reply.one("grpc-status-details-bin") + "==")
    assert b"TRIPLE_BUSINESS_ERROR" in details and b"dubbo.apache.org" in details
    assert details.startswith(b"\x08\x02"), "the details' code is the trailer's"


@pytest.mark.parametrize("agent, extra", [("grpc-go-triple/0.1.0 (go1.26.8)", []), (None, [("tri-consumer-appname", "app")])])
@pytest.mark.parametrize("path", [U, S])
def test_code_17_stays_17_for_dubbo_clients(scripted, agent, extra, path):
    def answer(peer, stream):
        if path == U:
            json_error(peer, stream, "500", '{"code":"code_17","message":"a+b"}')
        else:
            framed(peer, stream, b"", "17", trailers=[("grpc-message", "a+b")])
    fields = extra + ([("user-agent", agent)] if agent else [])
    reply = scripted(answer).client.call(path, extra=fields).says(17)
    assert reply.message == "a%2Bb", "dubbo-java URL-decodes messages"
    assert reply.one("tri-status-code") is None


def test_framed_code_17_is_unknown_with_its_details_for_grpc_clients(scripted):
    details = base64.b64encode(bytes.fromhex("0811120362697a1a060a0161120162")).rstrip(b"=").decode()
    setup = scripted(lambda peer, stream: framed(peer, stream, b"", "17", trailers=[
        ("grpc-message", "biz"), ("grpc-status-details-bin", details)]))
    reply = setup.client.call(S).says(2)
    proto = base64.b64decode(reply.one("grpc-status-details-bin") + "==")
    assert proto.startswith(bytes.fromhex("0802120362697a1a060a0161120162")), "the provider's first, with our code"
    assert b"TRIPLE_BUSINESS_ERROR" in proto and reply.one("tri-status-code") == "17"


# --- details ---

def detail_bytes(reply):
    value = reply.one("grpc-status-details-bin")
    if value is None:
        return None
    assert "=" not in value, "unpadded"
    return base64.b64decode(value + "=" * (-len(value) % 4))


@pytest.mark.parametrize("value", ["CgIIBQ", "CgIIBQ=="])
def test_detail_values_arrive_with_and_without_padding(scripted, value):
    text = json.dumps({"code": "invalid_argument", "message": "m", "details": [{"type": "t.T", "value": value}]})
    reply = scripted(lambda peer, stream: json_error(peer, stream, "400", text)).client.call(U).says(3)
    assert bytes.fromhex("0a020805") in detail_bytes(reply)


@pytest.mark.parametrize("value", ["-_8", "!!!", "A", "A" * (1 << 20)], ids=["url", "signs", "one", "1M"])
def test_details_that_cannot_be_read_or_carried_leave_code_and_message(scripted, value):
    text = json.dumps({"code": "invalid_argument", "message": "m", "details": [{"type": "t.T", "value": value}]})
    reply = scripted(lambda peer, stream: json_error(peer, stream, "400", text)).client.call(U).says(3)
    assert reply.message == "m" and not detail_bytes(reply)


def test_an_empty_detail_value_is_a_detail(scripted):
    text = json.dumps({"code": "invalid_argument", "message": "m", "details": [{"type": "t.T", "value": ""}]})
    reply = scripted(lambda peer, stream: json_error(peer, stream, "400", text)).client.call(U).says(3)
    name = b"type.googleapis.com/t.T"
    assert detail_bytes(reply) == b"\x08\x03\x12\x01m\x1a" + bytes((len(name) + 2, 0x0a, len(name))) + name


@pytest.mark.parametrize("code, want", [("bogus", 12), ("not_found", 5)])
def test_the_code_in_the_details_is_the_code_of_the_reply(scripted, code, want):
    text = json.dumps({"code": code, "message": "m", "details": [{"type": "t.T", "value": "CgIIBQ"}]})
    reply = scripted(lambda peer, stream: json_error(peer, stream, "404", text)).client.call(U).says(want)
    assert detail_bytes(reply).startswith(bytes((8, want, 0x12, 1)) + b"m")


def test_framed_details_pass_byte_for_byte(scripted):
    reply = scripted(lambda peer, stream: framed(peer, stream, b"", "5", trailers=[
        ("grpc-message", "m"), ("grpc-status-details-bin", "CAMSAW0=")])).client.call(S).says(5)
    assert reply.one("grpc-status-details-bin") == "CAMSAW0="


def test_details_keep_order_types_and_bytes(scripted):
    nested = {}
    for _ in range(60):
        nested = {"a": nested}
    text = json.dumps({"code": "failed_precondition", "extra": 1, "details": [
        {"type": "acme.v1.Unknown", "value": "AQID", "debug": nested},
        {"type": "type.googleapis.com/google.rpc.RetryInfo", "value": "CgIIBQ", "more": [1]},
        {"type": "example.com/x.Y", "value": "AA"}]})
    reply = scripted(lambda peer, stream: json_error(peer, stream, "412", text)).client.call(U).says(9)
    proto = detail_bytes(reply)
    names = [b"type.googleapis.com/acme.v1.Unknown\x12\x03\x01\x02\x03",
             b"type.googleapis.com/google.rpc.RetryInfo\x12\x04\x0a\x02\x08\x05", b"example.com/x.Y\x12\x01\x00"]
    places = [proto.find(name) for name in names]
    assert -1 not in places and places == sorted(places), proto


@pytest.mark.parametrize("length", [7000, 9000, 300000])
def test_a_long_message_is_cut_to_what_clients_take_and_the_details_agree(scripted, length):
    text = json.dumps({"code": "internal", "message": "ü" * length, "details": [{"type": "t.T", "value": "CgIIBQ"}]})
    reply = scripted(lambda peer, stream: json_error(peer, stream, "500", text)).client.call(U).says(13)
    size = sum(len(name) + len(value) + 32 for head in reply.heads for name, value in head)
    assert size <= 8192
    message = bytes.fromhex(reply.message.replace("%", "")).decode()
    assert 100 < len(message) < length and set(message) == {"ü"}
    assert message.encode() in detail_bytes(reply)
    assert b"type.googleapis.com/t.T" in detail_bytes(reply)
    at = detail_bytes(reply).index(message.encode())
    assert detail_bytes(reply)[at + len(message.encode())] == 0x1a, "Status.message ends where the message does"


def test_many_trailers_leave_less_room_for_the_message(scripted):
    setup = scripted(lambda peer, stream: framed(peer, stream, b"", "13", trailers=[
        ("grpc-message", "m" * 6000), ("x-big", "b" * 5000)]))
    reply = setup.client.call(S).says(13)
    assert sum(len(name) + len(value) + 32 for name, value in reply.heads[-1]) <= 8192
    assert len(reply.one("x-big")) == 5000 and 500 < len(reply.message) < 6000


# --- fields that must not pass, and metadata that must ---

def test_reserved_names_in_a_bare_reply_do_not_reach_the_client(scripted):
    extra = [("grpc-status", "13"), ("trailer-grpc-status", "13"), ("trailer-grpc-message", "x"), ("trailer-content-type", "a/b"),
             ("grpc-encoding", "gzip"), ("trailer-te", "x"), ("trailer-connection", "close"), ("alt-svc", "x"),
             ("accept-encoding", "gzip"), ("server", "s"), ("te", "trailers")]
    reply = scripted(lambda peer, stream: bare(peer, stream, extra=extra)).client.call(U).says(0, ["hi"])
    names = [name for head in reply.heads for name, _ in head]
    assert sorted(names) == [":status", "content-type", "grpc-status"]


def test_two_content_types_are_a_bad_reply(scripted):
    scripted(lambda peer, stream: bare(peer, stream, extra=[("content-type", "application/json")])).client.call(U).says(13)


def test_metadata_of_an_error_arrives(scripted):
    extra = [("x-lead", "a"), ("trailer-x-retry", "1"), ("trailer-x-retry", "1"), ("trailer-x-b-bin", "AQI")]
    reply = scripted(lambda peer, stream: json_error(peer, stream, "404", '{"code":"not_found"}', extra)).client.call(U).says(5)
    assert (reply.all("x-lead"), reply.all("x-retry"), reply.all("x-b-bin")) == (["a"], ["1", "1"], ["AQI"])


def test_prefixed_trailers_of_a_bare_reply_arrive_as_trailers(scripted):
    extra = [("trailer-x-cost", "9"), ("trailer-", "e"), ("trailer", "x-cost"), ("trailers-x", "y")]
    reply = scripted(lambda peer, stream: bare(peer, stream, extra=extra)).client.call(U).says(0, ["hi"])
    assert ("x-cost", "9") in reply.heads[1] and ("x-cost", "9") not in reply.heads[0]
    names = [name for head in reply.heads for name, _ in head]
    assert not [name for name in names if name in ("trailer-", "trailer", "trailer-x-cost")]
    assert ("trailers-x", "y") in reply.heads[0]


# --- resets ---

RESETS = [(0, 13), (1, 13), (2, 13), (3, 13), (4, 13), (5, 13), (6, 13), (7, 14), (8, 1), (9, 13), (10, 13), (11, 8), (12, 7), (13, 13),
          (0xff, 13), (0x1f4, 8)]


@pytest.mark.parametrize("after", ["nothing", "head", "message"])
@pytest.mark.parametrize("path", [U, S])
def test_a_reset_of_the_provider_is_its_code(scripted, path, after):
    def answer(peer, stream):
        code = int(stream.one("x-code"))
        kind = "application/proto" if path == U else "application/grpc"
        frames = b""
        if after != "nothing":
            frames += headers(stream.id, [(":status", "200"), ("content-type", kind)])
        if after == "message":
            frames += data(stream.id, "part" if path == U else MSG("part"))
        peer.raw(frames + reset(stream.id, code))
    setup = scripted(answer, route="replay = off")
    for h2_code, code in RESETS:
        reply = setup.client.call(path, extra=[("x-code", str(h2_code))])
        assert reply.code == code, (h2_code, reply.heads)
        assert reply.end == HEADERS
    assert setup.client.goaway is None


def test_a_refused_stream_is_sent_again(scripted):
    seen = []

    def answer(peer, stream):
        seen.append(stream.body)
        if len(seen) == 1:
            peer.raw(reset(stream.id, 7))
        else:
            bare(peer, stream)
    setup = scripted(answer)
    setup.client.call(U).says(0, ["hi"])
    assert seen == [b"hi", b"hi"]
    assert setup.route("u")["retries"] == 1


@pytest.mark.parametrize("path", [U, S])
def test_a_stream_refused_for_good_is_unavailable_after_a_few_tries(scripted, path):
    setup = scripted(lambda peer, stream: peer.raw(reset(stream.id, 7)), whole=False)
    setup.client.call(path).says(14, trailers_only=True)
    assert len(setup.provider.requests) == 5


def test_cancel_of_an_endpoint_that_takes_framing_only_is_resource_exhausted(scripted):
    """dubbo-java 3.2 with a full thread pool."""
    setup = scripted(lambda peer, stream: peer.raw(reset(stream.id, 8)), upstream="wire = framed")
    setup.client.call(U).says(8, trailers_only=True)


# --- Java's framed errors ---

def test_a_framed_error_with_another_http_status_and_a_raw_message_keeps_its_status(scripted):
    message = "first line\nsecond 100% of %41 + \xe9"
    setup = scripted(lambda peer, stream: peer.raw(headers(stream.id, [
        (":status", "500"), ("content-type", "application/grpc"), ("grpc-status", "5"),
        ("grpc-message", message.encode("latin-1"))], end=True)))
    reply = setup.client.call(S).says(5, trailers_only=True)
    assert reply.message == "first line%0Asecond 100%25 of %2541 + %C3%A9"


@pytest.mark.parametrize("sent, want", [
    ("plain %41 %zz", "plain A %25zz"), ("caf%C3%A9", "caf%C3%A9"), ("caf\xc3\xa9 %41", "caf%C3%A9 %2541"), ("caf\xe9", "caf%C3%A9")])
def test_a_message_with_status_200_is_decoded_unless_it_is_visibly_raw(scripted, sent, want):
    setup = scripted(lambda peer, stream: framed(peer, stream, b"", "5", trailers=[("grpc-message", sent.encode("latin-1"))]))
    assert setup.client.call(S).says(5).message == want


@pytest.mark.parametrize("value", ["", "x", "-1", "1000"])
def test_a_malformed_grpc_status_is_unknown(scripted, value):
    scripted(lambda peer, stream: framed(peer, stream, trailers=[], code=value)).client.call(S).says(2, ["hi"])


def test_a_status_above_17_passes(scripted):
    scripted(lambda peer, stream: framed(peer, stream, b"", "42")).client.call(S).says(42)


# --- Java services without IDL ---

def java_33_wrapper(peer, stream):
    framed(peer, stream, MSG("a serialized exception"), head=[("tri-exception-code", "3")])


def java_32_wrapper(peer, stream):
    stack = b"java.io.IOException: Unexpected ... ReflectionPackableMethod$WrapRequestUnpack.unpack"
    info = b"\x0a" + bytes((len(stack),)) + stack
    name = b"type.googleapis.com/google.rpc.DebugInfo"
    detail = b"\x0a" + bytes((len(name),)) + name + b"\x12" + bytes((len(info),)) + info
    status = b"\x08\x02\x1a" + bytes((len(detail) % 128 | 128, len(detail) // 128)) + detail
    framed(peer, stream, b"", "2", trailers=[("grpc-message", "Server%20error"),
                                             ("grpc-status-details-bin", base64.b64encode(status).decode().rstrip("="))])


@pytest.mark.parametrize("answer", [java_33_wrapper, java_32_wrapper])
def test_a_grpc_client_of_a_wrapper_service_is_told_so(scripted, answer):
    reply = scripted(answer, upstream="wire = framed").client.call(S)
    assert reply.code == 2 and "wrapper" in reply.message


def test_a_dubbo_client_of_a_wrapper_service_gets_what_it_understands(scripted):
    setup = scripted(java_33_wrapper, upstream="wire = framed")
    reply = setup.client.call(S, extra=[("tri-consumer-appname", "app")]).says(0, ["a serialized exception"])
    assert reply.one("tri-exception-code") == "3"
