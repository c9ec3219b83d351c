"""Streams: what leaves when, early answers, back-pressure, padding."""
import time

import pytest
from h2peer import CANCEL, INITIAL_WINDOW_SIZE, MSG, NO_ERROR, bare, data, framed, headers, messages, reset, window_update
from scripted import A, S, U, scripted  # noqa: F401

FRAMED_HEAD = [(":status", "200"), ("content-type", "application/grpc")]
STATUS_0 = [("grpc-status", "0")]
SOON = 0.5  # seconds: what must be at once, on a busy machine


# --- early answers ---

@pytest.mark.parametrize("build, code, payloads", [
    (lambda i: headers(i, FRAMED_HEAD) + data(i, MSG("m")) + headers(i, STATUS_0, end=True) + reset(i, CANCEL), 0, ["m"]),
    (lambda i: headers(i, FRAMED_HEAD) + data(i, MSG("m")) + headers(i, STATUS_0, end=True) + reset(i, NO_ERROR), 0, ["m"]),
    (lambda i: headers(i, FRAMED_HEAD + [("grpc-status", "8")], end=True) + reset(i, NO_ERROR), 8, [])],
    ids=["cancel", "no-error", "trailers-only"])
def test_an_early_answer_is_the_answer(scripted, build, code, payloads):
    setup = scripted(lambda peer, stream: peer.raw(build(stream.id)), whole=False)
    client = setup.client
    number = client.open(S)
    client.raw(data(number, MSG("first")))
    reply = client.ended(number).says(code, payloads)
    client.wait(lambda: reply.reset is not None, "the proxy's reset")
    assert reply.reset == NO_ERROR
    for _ in range(64):  # what comes too late is absorbed
        client.raw(data(number, bytes(16384)))
    assert client.ping() < 2
    assert client.goaway is None


def test_an_early_answer_ends_the_upload_and_the_connection_stays(scripted):
    answered = []

    def answer(peer, stream):
        if not answered:
            answered.append(1)
            peer.raw(headers(stream.id, FRAMED_HEAD + [("grpc-status", "8")], end=True) + reset(stream.id, NO_ERROR))
        else:
            peer.wait(lambda: stream.done, "its end")
            framed(peer, stream)
    setup = scripted(answer, whole=False)
    number = setup.client.open(S)
    setup.client.ended(number).says(8)
    setup.client.raw(data(number, bytes(16384)) * 64)
    setup.client.call(S).says(0, ["hi"])
    assert len(setup.provider.peers) == 1


def test_a_bare_answer_before_the_body_was_sent_is_the_answer(scripted):
    def answer(peer, stream):
        if stream.one("content-length") == "2":
            bare(peer, stream, "ok")
            return
        peer.raw(headers(stream.id, [(":status", "401"), ("content-length", "0")], end=True) + reset(stream.id, NO_ERROR))
    setup = scripted(answer, whole=False)
    setup.client.call(U).says(0, ["ok"])
    number = setup.client.open(U)
    setup.client.raw(data(number, MSG(bytes(4 << 20))[:30000]))  # over fast_path_max: cut through
    setup.client.ended(number).says(16)
    setup.client.call(U).says(0, ["ok"])


# --- nothing is held back ---

def test_reply_headers_come_before_the_first_message(scripted):
    def answer(peer, stream):
        peer.raw(headers(stream.id, FRAMED_HEAD + [("x-sess", "1")]))
        peer.wait(lambda: stream.done, "the request's end")
        framed_rest = data(stream.id, MSG("seen")) + headers(stream.id, STATUS_0, end=True)
        peer.raw(framed_rest)
    setup = scripted(answer, whole=False)
    client = setup.client
    began = time.monotonic()
    number = client.open(S)
    client.wait(lambda: client.streams[number].heads, "x-sess")
    assert ("x-sess", "1") in client.streams[number].heads[0] and time.monotonic() - began < SOON
    client.raw(data(number, MSG("go"), end=True))
    client.ended(number).says(0, ["seen"])


@pytest.mark.parametrize("path", [S, A])
def test_request_headers_come_before_the_first_message(scripted, path):
    setup = scripted(whole=False, answer=lambda peer, stream: peer.raw(headers(stream.id, FRAMED_HEAD)))
    number = setup.client.open(path)
    setup.client.wait(lambda: setup.client.streams[number].heads, "the provider's answer to HEADERS alone")
    request = setup.provider.requests[0]
    assert not request.body and not request.done
    setup.client.raw(reset(number, CANCEL))


def test_small_messages_each_come_at_once(scripted):
    def answer(peer, stream):
        peer.raw(headers(stream.id, FRAMED_HEAD))
        seen = 0
        while True:
            peer.wait(lambda: len(messages(stream.body)) > seen or stream.done, "a message")
            got = messages(stream.body)
            for _, payload in got[seen:]:
                peer.raw(data(stream.id, MSG(payload)))
            seen = len(got)
            if stream.done:
                break
        peer.raw(headers(stream.id, STATUS_0, end=True))
    setup = scripted(answer, whole=False)
    client = setup.client
    number = client.open(S)
    reply, times = client.streams[number], []
    for turn in range(300):
        began = time.monotonic()
        client.raw(data(number, MSG("%08d" % turn)))
        client.wait(lambda: len(messages(reply.body)) > turn, "the echo")
        times.append(time.monotonic() - began)
    client.raw(data(number, end=True))
    client.ended(number).says(0, ["%08d" % turn for turn in range(300)])
    times.sort()
    assert times[len(times) // 2] < 0.03, "no 40 ms of delayed ACKs in the usual round trip"


@pytest.mark.parametrize("variant", ["message", "no message", "pings", "many", "window"])
def test_late_trailers_leave_by_themselves(scripted, variant):
    sent = {}

    def answer(peer, stream):
        peer.raw(headers(stream.id, FRAMED_HEAD))
        if variant != "no message":
            peer.raw(data(stream.id, MSG("m")))
        time.sleep(0.5)
        sent[stream.one("x-number")] = time.monotonic()
        peer.raw(headers(stream.id, STATUS_0, end=True))
    setup = scripted(answer)
    client = setup.new_client(initial=((INITIAL_WINDOW_SIZE, 0 if variant == "window" else 65535),))
    numbers = []
    for index in range(100 if variant == "many" else 1):
        numbers.append(client.open(S, extra=[("x-number", str(index))], end=True))
    if variant == "pings":
        for _ in range(10):
            client.ping()
    if variant == "window":
        time.sleep(0.7)
        assert not client.streams[numbers[0]].body
        client.raw(window_update(numbers[0], 1000))
    for index, number in enumerate(numbers):
        reply = client.ended(number).says(0, [] if variant == "no message" else ["m"])
        if variant != "window":
            assert reply.ended - sent[str(index)] < (2 if variant == "many" else SOON)


# --- back-pressure ---

def test_a_client_that_does_not_read_stops_its_stream_and_nothing_else(scripted):
    sent = []

    def answer(peer, stream):
        if stream.one(":path") == U:
            bare(peer, stream)
            return
        peer.raw(headers(stream.id, FRAMED_HEAD))
        for _ in range(256):
            peer.send(stream.id, MSG(bytes(32763)), seconds=60)
            sent.append(32768)
        peer.raw(headers(stream.id, STATUS_0, end=True))
    setup = scripted(answer, proxy="stream_window = 256K")
    client = setup.new_client(credit=False, initial=((INITIAL_WINDOW_SIZE, 65535),))
    client.raw(window_update(0, 1 << 30))
    number = client.open(S, end=True)
    client.wait(lambda: len(client.streams[number].body) == 65535, "a window full")
    time.sleep(1)
    stuck = sum(sent)
    assert stuck < 1 << 20, "the provider was stopped"
    assert setup.proxy.stats()["buffers"]["bytes"] < 2 << 20
    assert client.ping() < 1
    client.call(U).says(0, ["hi"])
    client.credit = True
    client.raw(window_update(number, 1 << 24))
    reply = client.ended(number, 30)
    assert len(reply.body) == 256 * 32768 and reply.code == 0


def test_a_provider_that_does_not_read_stops_the_upload_and_nothing_else(scripted):
    def answer(peer, stream):
        if stream.one(":path") == U:
            bare(peer, stream)
            return
        peer.wait(lambda: stream.done, "its end", 30)
        framed(peer, stream, MSG(str(len(stream.body))))
    setup = scripted(answer, whole=False, proxy="stream_window = 256K", credit=False, initial=((INITIAL_WINDOW_SIZE, 65535),))
    client = setup.client
    number = client.open(S)
    client.wait(lambda: INITIAL_WINDOW_SIZE in client.settings, "SETTINGS")
    total, sent = 1 << 20, 0
    while sent < total and client._room(number) > 0:
        part = min(8192, client._room(number), total - sent)
        client.send(number, bytes(part) if sent else MSG(bytes(total - 5))[:part])
        sent += part
        time.sleep(0.002)
    assert sent < total, "back-pressure reached the client"
    assert client.ping() < 1
    request = setup.provider.requests[0]
    request.peer.raw(window_update(0, 1 << 24) + window_update(request.id, 1 << 24))
    client.send(number, bytes(total - sent), end=True, seconds=30)
    client.ended(number, 30).says(0, [str(total)])


def test_a_duplex_stream_that_is_blocked_in_both_directions_recovers(scripted):
    def answer(peer, stream):
        if stream.one(":path") == U:
            peer.wait(lambda: stream.done, "its end")
            bare(peer, stream)
            return
        peer.raw(headers(stream.id, FRAMED_HEAD))
        echoed = 0
        while True:
            peer.wait(lambda: len(stream.body) > echoed or stream.done, "more", 30)
            part = stream.body[echoed:]
            echoed += len(part)
            if part:
                peer.send(stream.id, part, seconds=60)
            elif stream.done:
                break
        peer.raw(headers(stream.id, STATUS_0, end=True))
    setup = scripted(answer, whole=False)
    client = setup.new_client(credit=False, initial=((INITIAL_WINDOW_SIZE, 65535),))
    client.raw(window_update(0, 1 << 30))
    number = client.open(S)
    body = b"".join(MSG(bytes(65531)) for _ in range(64))  # 4 MiB
    client.wait(lambda: INITIAL_WINDOW_SIZE in client.settings, "SETTINGS")
    sent = 0
    while client._room(number) > 0 and sent < len(body):  # until nothing goes any more
        part = body[sent:sent + min(16384, client._room(number))]
        client.send(number, part)
        sent += len(part)
        time.sleep(0.005)
    assert client.ping() < 1 and client.settings_acks
    client.call(U).says(0, ["hi"])
    client.credit = True
    client.raw(window_update(number, 1 << 24))
    client.send(number, body[sent:], end=True, seconds=60)
    reply = client.ended(number, 60)
    assert reply.body == body and reply.code == 0


# --- padding ---

def send_padded(peer, number, payload):
    """A byte a frame and 255 bytes of padding: each costs 257 of both windows."""
    for at in range(len(payload)):
        peer.wait(lambda: peer._room(number) >= 257, "window for a padded frame")
        with peer.changed:
            peer.window -= 257
            peer.stream_windows[number] = peer._stream_window(number) - 257
        peer.raw(data(number, payload[at:at + 1], pad=255))


def test_padding_costs_no_window(scripted):
    def answer(peer, stream):
        peer.raw(headers(stream.id, FRAMED_HEAD) + data(stream.id, b"", pad=10))
        send_padded(peer, stream.id, stream.body)
        peer.raw(headers(stream.id, STATUS_0, end=True))
    setup = scripted(answer, proxy="stream_window = 64K")
    client = setup.client
    message = MSG(bytes(range(200)) * 2)
    for _ in range(3):
        number = client.open(S)
        send_padded(client, number, message)
        client.raw(data(number, b"", end=True, pad=3))
        client.ended(number).says(0, [message[5:]])
    assert client.goaway is None


def test_illegal_padding_ends_the_connection(scripted):
    setup = scripted()
    client = setup.new_client()
    number = client.open(S)
    client.raw(b"\0\0\x05\0\x08" + number.to_bytes(4, "big") + b"\x05abcd")
    client.wait(lambda: client.closed, "the connection's end")
    assert client.goaway is None or client.goaway[1] == 1
    setup.new_client().call(S).says(0, ["hi"])
