"""Bodies: content-length, empty frames, cardinality, cut messages, flags, compression; both directions."""
import gzip
import threading
import time

import pytest
from conftest import wait_until_true
from h2peer import DATA, END_STREAM, MSG, PROTOCOL_ERROR, bare, data, framed, headers, json_error, request_fields
from scripted import A, S, U, scripted  # noqa: F401

PROTO = [(":status", "200"), ("content-type", "application/proto")]


def send_raw(client, path, frames, extra=(), head_end=False):
    """HEADERS and what frames(stream id) gives, in one segment; the reply."""
    number = client.new_id()
    client.raw(headers(number, request_fields(path, extra), head_end) + frames(number))
    return client.ended(number)


def upstream_length(request):
    value = request.one("content-length")
    return None if value is None else int(value)


# --- content-length of the request ---

@pytest.mark.parametrize("length", [1, 2, 3, 4])
def test_a_body_shorter_than_a_prefix_is_cut(scripted, length):
    setup = scripted()
    reply = setup.client.call(U, bytes(length), extra=[("content-length", str(length))]).says(13, trailers_only=True)
    assert "inside a message" in reply.message
    assert not setup.provider.requests


def test_content_length_0_is_no_message(scripted):
    setup = scripted()
    send_raw(setup.client, U, lambda i: b"", [("content-length", "0")], head_end=True).says(12, trailers_only=True)
    assert not setup.provider.requests


@pytest.mark.parametrize("path", [U, A])
def test_the_providers_length_is_that_of_the_message(scripted, path):
    setup = scripted()
    setup.client.call(path, MSG("hello"), extra=[("content-length", "10")]).says(0, ["hello"])
    request = setup.provider.requests[0]
    assert (request.one("content-type"), upstream_length(request), request.body) == ("application/proto", 5, b"hello")
    assert [flags & END_STREAM for kind, flags, _ in request.frames if kind == DATA] == [1], "one DATA with END_STREAM"


@pytest.mark.parametrize("path", [U, A])
def test_the_providers_length_of_a_compressed_message_is_the_compressed_one(scripted, path):
    packed = gzip.compress(b"hello" * 100)
    setup = scripted(lambda peer, stream: bare(peer, stream, "ok"))
    body = MSG(packed, 1)
    setup.client.call(path, body, extra=[("content-length", str(len(body))), ("grpc-encoding", "gzip")]).says(0, ["ok"])
    request = setup.provider.requests[0]
    assert (upstream_length(request), request.body, request.one("content-encoding")) == (len(packed), packed, "gzip")


def test_a_body_longer_than_its_content_length_is_a_stream_error(scripted):
    setup = scripted()
    healthy = setup.client.open(U)
    reply = setup.client.call(U, MSG(bytes(15)), extra=[("content-length", "9")])
    assert reply.reset == PROTOCOL_ERROR
    setup.client.raw(data(healthy, MSG("hi"), end=True))
    setup.client.ended(healthy).says(0, ["hi"])


# --- empty messages and replies ---

@pytest.mark.parametrize("answer", [
    lambda i: headers(i, PROTO + [("content-length", "0")], end=True),
    lambda i: headers(i, PROTO + [("content-length", "0")]) + data(i, end=True),
    lambda i: headers(i, PROTO, end=True),
    lambda i: headers(i, PROTO) + data(i, end=True)], ids=["length-head", "length-data", "head", "data"])
@pytest.mark.parametrize("path", [U, A])
def test_an_empty_message_is_a_message_both_ways(scripted, answer, path):
    setup = scripted(lambda peer, stream: peer.raw(answer(stream.id)))
    setup.client.call(path, MSG("")).says(0, [""])
    request = setup.provider.requests[0]
    assert (upstream_length(request), request.body, request.end) == (0, b"", DATA)


@pytest.mark.parametrize("extra, accept", [([], None), ([("content-encoding", "gzip")], "gzip"), ([("content-encoding", "gzip")], None)])
def test_a_reframed_reply_has_no_content_length(scripted, extra, accept):
    body = gzip.compress(b"0123456789") if extra else b"0123456789"
    setup = scripted(lambda peer, stream: bare(peer, stream, body, extra=extra))
    fields = [("grpc-accept-encoding", accept)] if accept else []
    reply = setup.client.call(U, extra=fields)
    plain = [gzip.decompress(payload) if flag else payload for flag, payload in reply.messages]
    assert plain == [b"0123456789"] and reply.one("content-length") is None and reply.code == 0


def test_an_error_has_no_content_length(scripted):
    setup = scripted(lambda peer, stream: json_error(peer, stream, "404", '{"code":"not_found","message":"what you asked for"}'))
    setup.client.call(U).says(5, trailers_only=True)


# --- empty DATA frames ---

@pytest.mark.parametrize("path", [U, S])
def test_empty_data_frames_are_nothing(scripted, path):
    message = MSG("hello")
    setup = scripted()
    send_raw(setup.client, path, lambda i: data(i) + data(i, message[:3]) + data(i) + data(i, message[3:]) + data(i)
             + data(i, end=True)).says(0, ["hello"])


def test_empty_data_frames_between_messages_of_a_reply_are_nothing(scripted):
    def answer(peer, stream):
        i = stream.id
        peer.raw(headers(i, [(":status", "200"), ("content-type", "application/grpc")]) + data(i) + data(i, MSG("a")) + data(i)
                 + data(i, MSG("b")) + data(i) + headers(i, [("grpc-status", "0")], end=True))
    scripted(answer).client.call(S).says(0, ["a", "b"])


def test_a_flood_of_empty_data_frames_is_bounded(scripted):
    setup = scripted()
    number = setup.client.open(U)
    for _ in range(100):
        setup.client.raw(data(number) * 1000)
    setup.client.wait(lambda: setup.client.closed, "the connection's end")
    assert setup.client.goaway is None or setup.client.goaway[1] == 11
    setup.new_client().call(U).says(0, ["hi"])


# --- how many messages ---

@pytest.mark.parametrize("frames, head_end", [
    (lambda i: b"", True), (lambda i: data(i, end=True), False), (lambda i: headers(i, [("x-trailer", "1")], end=True), False)],
    ids=["headers", "data", "trailers"])
def test_a_unary_call_without_a_message_is_unimplemented(scripted, frames, head_end):
    setup = scripted()
    send_raw(setup.client, U, frames, head_end=head_end).says(12, trailers_only=True)
    assert not setup.provider.requests


def test_a_unary_call_with_two_messages_is_unimplemented(scripted):
    setup = scripted()
    setup.client.call(U, MSG("a") + MSG("b")).says(12, trailers_only=True)
    assert not setup.provider.requests


@pytest.mark.parametrize("path", [S, A])
def test_a_client_stream_may_have_no_message_or_several(scripted, path):
    setup = scripted()
    setup.client.call(path, b"").says(0)
    setup.client.call(path, MSG("a") + MSG("b")).says(0, ["a", "b"])
    assert [r.one("content-type") for r in setup.provider.requests] == ["application/grpc"] * 2


def test_status_ok_without_a_message_to_a_unary_call_is_internal(scripted):
    scripted(lambda peer, stream: framed(peer, stream, b""), upstream="wire = framed").client.call(U).says(13)


def test_two_messages_to_a_unary_call_are_unimplemented(scripted):
    reply = scripted(lambda peer, stream: framed(peer, stream, MSG("a") + MSG("b")), upstream="wire = framed").client.call(U)
    assert reply.code == 12


# --- cut messages ---

@pytest.mark.parametrize("body", [MSG(bytes(60), length=100), b"\0\0\0"], ids=["message", "prefix"])
def test_a_cut_unary_request_is_internal(scripted, body):
    setup = scripted()
    setup.client.call(U, body).says(13, trailers_only=True)
    assert not setup.provider.requests


@pytest.mark.parametrize("body", [MSG(bytes(60), length=100), b"\0\0\0"], ids=["message", "prefix"])
def test_a_cut_stream_is_relayed_as_it_is(scripted, body):
    setup = scripted(lambda peer, stream: framed(peer, stream, body))
    reply = setup.client.call(S, body)
    assert (reply.body, reply.code) == (body, 0), "the client sees for itself that it is cut"
    assert setup.provider.requests[0].body == body


def test_a_cut_reply_to_a_unary_call_is_internal(scripted):
    setup = scripted(lambda peer, stream: framed(peer, stream, MSG(bytes(60), length=100)), upstream="wire = framed")
    assert setup.client.call(U).code == 13


# --- encodings of requests ---

@pytest.mark.parametrize("name", ["snappy", "GZIP", "gzip,gzip", "deflate"])
def test_an_unknown_encoding_is_unimplemented_and_harms_nobody_else(scripted, name):
    setup = scripted()
    parallel = setup.client.open(U)
    reply = setup.client.call(U, MSG("x", 1), extra=[("grpc-encoding", name)]).says(12, trailers_only=True)
    assert reply.one("grpc-accept-encoding") == "identity,gzip"
    assert not setup.provider.requests
    setup.client.call(U, MSG("x", 0), extra=[("grpc-encoding", name)]).says(12)  # decided: whatever the flag says
    setup.client.raw(data(parallel, MSG("hi"), end=True))
    setup.client.ended(parallel).says(0, ["hi"])


def test_an_unknown_encoding_of_a_stream_is_the_providers_affair(scripted):
    setup = scripted(lambda peer, stream: framed(peer, stream, b"", "12"))
    setup.client.call(S, MSG("x", 1), extra=[("grpc-encoding", "snappy")]).says(12)
    assert setup.provider.requests[0].one("grpc-encoding") == "snappy"


@pytest.mark.parametrize("encoding", [None, "identity"])
@pytest.mark.parametrize("path", [U, S, A])
def test_the_compressed_flag_without_an_encoding_is_internal(scripted, encoding, path):
    reply = scripted().client.call(path, MSG("abc", 1), extra=[("grpc-encoding", encoding)] if encoding else [])
    assert reply.code == 13 and "flag" in reply.message


@pytest.mark.parametrize("flag", [2, 255])
@pytest.mark.parametrize("path", [U, S, A])
def test_a_reserved_flag_is_internal(scripted, flag, path):
    reply = scripted().client.call(path, MSG("abc", flag), extra=[("grpc-encoding", "gzip")])
    assert reply.code == 13 and "flag" in reply.message


def test_identity_with_flag_0_works(scripted):
    scripted().client.call(U, MSG("abc"), extra=[("grpc-encoding", "identity")]).says(0, ["abc"])


@pytest.mark.parametrize("body", [b"", b"x", gzip.compress(b"hello")[:-4], gzip.compress(b"hello") + b"tail"],
                         ids=["empty", "rubbish", "cut", "tail"])
def test_what_does_not_decompress_towards_a_provider_that_needs_it_plain_is_internal(scripted, body):
    setup = scripted(upstream="wire = framed")
    reply = setup.client.call(U, MSG(body, 1), extra=[("grpc-encoding", "gzip")])
    if body:
        reply.says(13)
    else:
        reply.says(0, [""])


def test_a_provider_that_takes_framing_only_gets_plain_messages(scripted):
    setup = scripted(upstream="wire = framed")
    body = MSG(gzip.compress(b"hello"), 1)
    for path in (U, S, A):
        setup.client.call(path, body, extra=[("grpc-encoding", "gzip")]).says(0, ["hello"])
    assert {(r.one("grpc-encoding"), r.body) for r in setup.provider.requests} == {(None, MSG("hello"))}


def test_an_unknown_encoding_towards_a_provider_that_takes_framing_only_is_refused(scripted):
    setup = scripted(upstream="wire = framed")
    reply = setup.client.call(U, MSG("x", 1), extra=[("grpc-encoding", "snappy")]).says(12)
    assert "snappy" not in reply.one("grpc-accept-encoding")


# --- encodings of replies ---

@pytest.mark.parametrize("answer, code", [
    (lambda peer, i: peer.raw(headers(i, PROTO + [("content-encoding", "gzip"), ("content-length", "0")], end=True)), 0),
    (lambda peer, i: peer.raw(headers(i, PROTO + [("content-encoding", "gzip")]) + data(i, end=True)), 0),
    (lambda peer, i: peer.raw(headers(i, [(":status", "503"), ("content-encoding", "gzip")], end=True)), 14),
    (lambda peer, i: peer.raw(headers(i, PROTO + [("content-encoding", "gzip")]) + data(i, gzip.compress(b""), end=True)), 0)],
    ids=["head", "data", "503", "gzip-of-nothing"])
@pytest.mark.parametrize("accept", [[], [("grpc-accept-encoding", "gzip")]])
def test_a_compressed_nothing_is_an_empty_message(scripted, answer, code, accept):
    reply = scripted(lambda peer, stream: answer(peer, stream.id)).client.call(U, extra=accept)
    assert reply.code == code
    assert [gzip.decompress(p) if flag else p for flag, p in reply.messages] == ([b""] if code == 0 else [])


@pytest.mark.parametrize("offer, takes", [(None, False), ("identity", False), ("gzip , identity", True), ("br,snappy", False),
                                          ("gzip;q=0", False)])
@pytest.mark.parametrize("forward", ["off", "on"])
def test_a_reply_is_in_an_encoding_that_the_client_takes(scripted, offer, takes, forward):
    packed = gzip.compress(b"hello" * 50)
    setup = scripted(lambda peer, stream: bare(peer, stream, packed, extra=[("content-encoding", "gzip")]),
                     upstream=f"forward_accept_encoding = {forward}")
    reply = setup.client.call(U, extra=[("grpc-accept-encoding", offer)] if offer else [])
    assert reply.code == 0 and reply.one("content-encoding") is None
    if takes:
        assert reply.messages == [(1, packed)] and reply.one("grpc-encoding") == "gzip"
    else:
        assert reply.messages == [(0, b"hello" * 50)] and reply.one("grpc-encoding") is None
    request = setup.provider.requests[0]
    assert request.one("accept-encoding") == ("gzip" if takes and forward == "on" else None)
    assert request.one("grpc-accept-encoding") is None


def test_framed_replies_in_an_encoding_that_the_client_does_not_take_are_inflated(scripted):
    body = MSG(gzip.compress(b"one"), 1) + MSG("two") + MSG(gzip.compress(b""), 1) + MSG("", 1)
    setup = scripted(lambda peer, stream: framed(peer, stream, body, head=[("grpc-encoding", "gzip")]))
    reply = setup.client.call(S).says(0, ["one", "two", "", ""])
    assert [flag for flag, _ in reply.messages] == [0] * 4 and reply.one("grpc-encoding") is None
    reply = setup.client.call(S, extra=[("grpc-accept-encoding", "identity,gzip")])
    assert reply.body == body, "compressed bytes stay compressed"


def test_an_unknown_reply_encoding_passes_to_a_client_that_takes_it(scripted):
    setup = scripted(lambda peer, stream: framed(peer, stream, MSG("zz", 1), head=[("grpc-encoding", "snappy")]))
    reply = setup.client.call(S, extra=[("grpc-accept-encoding", "snappy")])
    assert reply.messages == [(1, b"zz")] and reply.one("grpc-encoding") == "snappy"
    assert setup.client.call(S).code == 13


def test_a_compressed_json_error_is_read(scripted):
    setup = scripted(lambda peer, stream: json_error(peer, stream, "404", gzip.compress(b'{"code":"not_found","message":"m"}'),
                                                     [("content-encoding", "gzip")]))
    assert setup.client.call(U).says(5).message == "m"


def test_a_decompression_bomb_ends_at_max_message(scripted):
    bomb = gzip.compress(bytes(50 << 20))
    setup = scripted(lambda peer, stream: bare(peer, stream, bomb, extra=[("content-encoding", "gzip")]), proxy="max_message = 1M")
    setup.client.call(U).says(8)


# --- sizes ---

@pytest.mark.parametrize("path", [U, S, A])
def test_a_message_of_max_message_passes_and_one_byte_more_is_too_long(scripted, path):
    setup = scripted(proxy="max_message = 256K")
    client = setup.client
    for size, code in ((256 * 1024, 0), (256 * 1024 + 1, 8)):
        assert client.call(path, MSG(bytes(size))).code == code
    assert client.ping() < 5 and client.goaway is None


@pytest.mark.parametrize("length", [True, False])
def test_a_reply_over_max_message_is_resource_exhausted(scripted, length):
    setup = scripted(lambda peer, stream: bare(peer, stream, bytes(300000), length=length), proxy="max_message = 256K")
    assert setup.client.call(U).code == 8


@pytest.mark.parametrize("size", [64 << 10, (64 << 10) + 1, 5 << 20])
def test_messages_around_fast_path_max_arrive_with_their_length(scripted, size):
    setup = scripted()
    setup.client.call(U).says(0, ["hi"])  # from here on the method is known to be taken bare
    client = setup.client
    payload = bytes(range(256)) * (size // 256) + bytes(size % 256)
    reply = client.call(U, MSG(payload), seconds=30)
    assert reply.code == 0 and reply.messages == [(0, payload)]
    assert upstream_length(setup.provider.requests[-1]) == size
    path = setup.route("u")["path"]
    assert path["cut_through"] == (1 if size > 64 << 10 else 0) and path["fast"] + path["cut_through"] == 2


def test_a_reply_of_a_mebibyte_without_length_arrives_with_default_windows(scripted):
    setup = scripted(lambda peer, stream: bare(peer, stream, bytes(1 << 20), length=False), proxy="stream_window = 64K")
    reply = setup.client.call(U, seconds=30)
    assert reply.code == 0 and reply.messages == [(0, bytes(1 << 20))]


def test_a_message_that_no_budget_is_left_for_is_resource_exhausted_and_others_go_on(scripted):
    setup = scripted(proxy="buffer_budget = 1M")
    client = setup.client
    number = client.open(U)
    client.send(number, MSG(bytes(3 << 20))[:2 << 20])
    client.wait(lambda: client.streams[number].done, "the answer")
    assert client.streams[number].code == 8
    client.call(U).says(0, ["hi"])
    client.raw(data(number, bytes(1 << 19), end=True))  # late DATA of the ended call
    client.call(U).says(0, ["hi"])


@pytest.mark.parametrize("size", [5000, 10000])
def test_calls_that_wait_do_not_pin_what_was_read_beside_them(scripted, size):
    """100 slow calls of a few kB in 4 MiB, 7 fast ones read together with each."""
    go_on = threading.Event()

    def answer(peer, stream):
        if stream.one("x-slow"):
            go_on.wait(60)
        bare(peer, stream)
    setup = scripted(answer, proxy="buffer_budget = 4M", listener="max_streams = 1000")
    client, payload = setup.client, bytes(range(250)) * (size // 250)
    client.call(U).says(0, ["hi"])
    slow = []
    for _ in range(100):
        slow.append(client.new_id())
        fast = [client.new_id() for _ in range(7)]
        burst = headers(slow[-1], request_fields(U, [("x-slow", "1")])) + data(slow[-1], MSG(payload), True)
        client.raw(burst + b"".join(headers(i, request_fields(U)) + data(i, MSG(payload), True) for i in fast))
        assert [client.ended(i).code for i in fast] == [0] * 7
    assert setup.proxy.stats()["buffers"]["bytes"] < 3 << 20
    go_on.set()
    for number in slow:
        client.ended(number).says(0, [payload])


def test_complete_calls_that_wait_for_their_answers_give_up_what_they_keep_for_a_replay(scripted):
    go_on = threading.Event()

    def answer(peer, stream):
        go_on.wait(60)
        bare(peer, stream)
    setup = scripted(answer, proxy="buffer_budget = 2M", listener="max_streams = 1000", upstream="wire = bare")
    client, payload, numbers = setup.client, bytes(range(250)) * 20, []
    for _ in range(300):
        numbers.append(client.new_id())
        client.raw(headers(numbers[-1], request_fields(U)) + data(numbers[-1], MSG(payload), True))
        time.sleep(0.001)  # each is read by itself
    wait_until_true(lambda: len(setup.provider.requests) == 300, "all requests at the provider")
    assert setup.proxy.stats()["buffers"]["bytes"] < 2 << 20
    go_on.set()
    for number in numbers:
        client.ended(number, 30).says(0, [payload])


@pytest.mark.parametrize("size, frame", [(200000, 2100), (200000, 4095), (30000, 1)])
def test_a_body_in_short_frames_fits_a_small_budget(scripted, size, frame):
    setup = scripted(proxy="buffer_budget = 1M", route="fast_path_max = 16K")
    client, payload = setup.client, bytes(range(250)) * (size // 250)
    client.call(A).says(0, ["hi"])  # from here on it is known to be unary
    message = MSG(payload)
    for _ in range(3):
        number = client.new_id()
        frames = [data(number, message[at:at + frame], at + frame >= len(message)) for at in range(0, len(message), frame)]
        client.raw(headers(number, request_fields(A)) + b"".join(frames))
        client.ended(number, 30).says(0, [payload])
    assert setup.proxy.stats()["buffers"]["peak_bytes"] < 600 << 10


def test_small_bodies_are_served_while_a_large_one_fills_the_budget(scripted):
    setup = scripted(proxy="buffer_budget = 4M\nmax_message = 8M")
    client = setup.client
    number = client.open(U)
    payload = bytes(3 << 20)
    client.send(number, MSG(payload)[:(3 << 20) - 100], seconds=30)
    time.sleep(0.2)
    for _ in range(20):
        client.call(U, MSG(bytes(10000))).says(0, [bytes(10000)])
    client.send(number, MSG(payload)[(3 << 20) - 100:], end=True)
    assert client.ended(number, 30).code in (0, 8)


def test_concurrent_calls_of_all_kinds_keep_their_bodies_apart(scripted):
    setup = scripted()
    problems = []

    def run(index):
        client = setup.new_client()
        for turn in range(10):
            payload = b"%d/%d " % (index, turn) * (1 + turn * 500)
            for path in (U, S, A):
                reply = client.call(path, MSG(payload), seconds=30)
                if reply.code != 0 or reply.messages != [(0, payload)]:
                    problems.append((index, turn, path, reply.heads))
    threads = [threading.Thread(target=run, args=(index,)) for index in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not problems
