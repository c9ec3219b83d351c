"""Deadlines, timeouts and cancellation."""
import time

import pytest
from h2peer import CANCEL, MSG, bare, data, headers, json_error, reset
from scripted import A, S, U, scripted  # noqa: F401

FRAMED_HEAD = [(":status", "200"), ("content-type", "application/grpc")]


def silent(peer, stream):
    pass


def timeout_ms(request):
    value = request.one("triple-timeout-ms")
    return None if value is None else int(value)


# --- the deadline is the proxy's ---

@pytest.mark.parametrize("path", [U, A])
def test_a_deadline_ends_a_unary_call(scripted, path):
    setup = scripted(silent)
    began = time.monotonic()
    setup.client.call(path, extra=[("grpc-timeout", "200m")]).says(4, trailers_only=True)
    assert 0.2 <= time.monotonic() - began < 0.8
    request = setup.provider.requests[0]
    request.peer.wait(lambda: request.reset == CANCEL, "RST_STREAM(CANCEL) at the provider")
    assert 100 < timeout_ms(request) <= 200
    assert setup.route(path[1])["status"] == {"DEADLINE_EXCEEDED": 1}


def test_a_deadline_ends_a_stream_after_its_first_message(scripted):
    def answer(peer, stream):
        peer.raw(headers(stream.id, FRAMED_HEAD) + data(stream.id, MSG("a")))
    setup = scripted(answer)
    setup.client.call(S, extra=[("grpc-timeout", "200m")]).says(4, ["a"])
    request = setup.provider.requests[0]
    request.peer.wait(lambda: request.reset == CANCEL, "RST_STREAM(CANCEL) at the provider")


def test_a_deadline_while_the_request_is_still_coming_ends_the_call(scripted):
    setup = scripted()
    number = setup.client.open(U, extra=[("grpc-timeout", "150m")])
    setup.client.raw(data(number, MSG(bytes(100))[:50]))
    setup.client.ended(number).says(4, trailers_only=True)
    assert not setup.provider.requests


def test_a_deadline_while_waiting_for_a_connection_ends_the_call(scripted):
    setup = scripted(initial=((3, 0),))  # a provider that grants no stream
    setup.client.call(U, extra=[("grpc-timeout", "200m")]).says(4, trailers_only=True)


@pytest.mark.parametrize("path, extra", [(U, []), (S, []), (S, [("grpc-timeout", "5S")])])
def test_the_routes_timeout_bounds_every_call(scripted, path, extra):
    setup = scripted(silent, route="timeout = 200ms")
    began = time.monotonic()
    setup.client.call(path, extra=extra).says(4)
    assert 0.2 <= time.monotonic() - began < 1


def test_the_clients_shorter_deadline_wins(scripted):
    setup = scripted(silent, route="timeout = 5s")
    began = time.monotonic()
    setup.client.call(U, extra=[("grpc-timeout", "150m")]).says(4)
    assert time.monotonic() - began < 1


@pytest.mark.parametrize("answer", [
    lambda peer, stream: json_error(peer, stream, "500", '{"code":"code_17","message":"context deadline exceeded"}'),
    lambda peer, stream: json_error(peer, stream, "500", '{"code":"unknown","message":"context deadline exceeded"}')])
def test_a_provider_whose_context_has_expired_too_does_not_change_the_code(scripted, answer):
    def at_the_deadline(peer, stream):
        time.sleep(max(0, stream.began + timeout_ms(stream) / 1000 - time.monotonic()))
        answer(peer, stream)
    setup = scripted(at_the_deadline)
    for _ in range(20):
        setup.client.call(U, extra=[("grpc-timeout", "40m")]).says(4)


def test_an_answer_near_the_deadline_is_the_answer_or_deadline_exceeded(scripted):
    def answer(peer, stream):
        time.sleep(0.05)
        bare(peer, stream)
    setup = scripted(answer)
    for turn in range(60):
        reply = setup.client.call(U, extra=[("grpc-timeout", f"{40 + turn % 20}m")])
        assert reply.reset is None and reply.code in (0, 4), (reply.heads, reply.reset)
        assert reply.messages == ([(0, b"hi")] if reply.code == 0 else []) or reply.code == 4


# --- grpc-timeout, malformed and tiny ---

@pytest.mark.parametrize("value", ["100000000n", "1", "S", "-1S", "+5S", "1s", "1 S", "1.5S", "", "1SS", "0x1S", "9" * 4096 + "S"])
@pytest.mark.parametrize("path", [U, S])
def test_a_malformed_timeout_is_internal(scripted, value, path):
    setup = scripted()
    reply = setup.client.call(path, extra=[("grpc-timeout", value)]).says(13, trailers_only=True)
    assert "grpc-timeout" in reply.message
    assert not setup.provider.requests


def test_two_timeouts_are_malformed(scripted):
    setup = scripted()
    setup.client.call(U, extra=[("grpc-timeout", "1S"), ("grpc-timeout", "9S")]).says(13, trailers_only=True)
    assert not setup.provider.requests


@pytest.mark.parametrize("value", ["0m", "0H", "0n", "00000000S"])
@pytest.mark.parametrize("path", [U, S])
def test_a_timeout_of_zero_is_over_at_once(scripted, value, path):
    setup = scripted()
    setup.client.call(path, extra=[("grpc-timeout", value)]).says(4, trailers_only=True)
    assert not setup.provider.requests


@pytest.mark.parametrize("value", ["1n", "999u", "999999n", "1500u"])
def test_a_timeout_below_a_millisecond_is_rounded_up_never_lost(scripted, value):
    def answer(peer, stream):
        time.sleep(0.02)
        bare(peer, stream)
    setup = scripted(answer)
    setup.client.call(U, extra=[("grpc-timeout", value)]).says(4)
    assert all(timeout_ms(request) in (1, 2) for request in setup.provider.requests)


def test_a_stream_gets_the_time_that_is_left_as_grpc_timeout(scripted):
    setup = scripted()
    setup.client.call(S, extra=[("grpc-timeout", "5S")]).says(0, ["hi"])
    value = setup.provider.requests[0].one("grpc-timeout")
    assert value[-1] == "u" and 4_000_000 < int(value[:-1]) <= 5_000_000
    assert setup.provider.requests[0].one("triple-timeout-ms") is None


def test_no_timeout_is_no_timeout(scripted):
    setup = scripted()
    setup.client.call(U).says(0, ["hi"])
    setup.client.call(S).says(0, ["hi"])
    names = {name for request in setup.provider.requests for name, _ in request.fields}
    assert not names & {"grpc-timeout", "triple-timeout-ms", "timeout"}


def test_the_longest_timeout_is_no_overflow(scripted):
    setup = scripted()
    setup.client.call(U, extra=[("grpc-timeout", "99999999H")]).says(0, ["hi"])
    assert timeout_ms(setup.provider.requests[0]) == 9999999999


# --- quiet streams ---

@pytest.mark.parametrize("direction", ["provider", "client", "none"])
def test_a_quiet_stream_lives(scripted, direction):
    """Shortened: no key of the proxy is an idle timeout, so seconds show what minutes would."""
    def answer(peer, stream):
        peer.raw(headers(stream.id, FRAMED_HEAD))
        if direction == "provider":
            for _ in range(3):
                time.sleep(1)
                peer.raw(data(stream.id, MSG("tick")))
        peer.wait(lambda: stream.done, "the client's end", 20)
        peer.raw(headers(stream.id, [("grpc-status", "0")], end=True))
    setup = scripted(answer, whole=False)
    number = setup.client.open(S)
    for _ in range(3):
        time.sleep(1)
        assert setup.client.ping() < 1
        if direction == "client":
            setup.client.raw(data(number, MSG("tick")))
    setup.client.raw(data(number, end=True))
    setup.client.ended(number).says(0, ["tick"] * (3 if direction == "provider" else 0))


# --- cancellation ---

def cancelled(setup, number):
    setup.client.raw(reset(number, CANCEL))


def test_cancelling_a_unary_call_cancels_it_at_the_provider(scripted):
    setup = scripted(silent)
    number = setup.client.open(U)
    setup.client.raw(data(number, MSG("hi"), end=True))
    setup.proxy.wait_for(lambda stats: setup.provider.requests, "the request")
    cancelled(setup, number)
    request = setup.provider.requests[0]
    request.peer.wait(lambda: request.reset == CANCEL, "RST_STREAM(CANCEL) at the provider")
    setup.proxy.wait_for(lambda stats: stats["routes"]["u"]["status"] == {"CANCELLED": 1}, "the count")
    assert setup.route("u")["resets"]["downstream"] == 1


def test_cancelling_while_the_body_is_held_contacts_nobody(scripted):
    setup = scripted()
    number = setup.client.open(U)
    setup.client.raw(data(number, MSG(bytes(100))[:50]))
    cancelled(setup, number)
    setup.proxy.wait_for(lambda stats: stats["routes"]["u"]["calls"] == 1, "the call's end")
    setup.client.call(U).says(0, ["hi"])
    assert len(setup.provider.requests) == 1


def test_cancelling_a_stream_in_its_middle_cancels_it_at_the_provider(scripted):
    def answer(peer, stream):
        peer.raw(headers(stream.id, FRAMED_HEAD) + data(stream.id, MSG("a")))
    setup = scripted(answer, whole=False)
    number = setup.client.open(S)
    setup.client.wait(lambda: setup.client.streams[number].body, "the first message")
    cancelled(setup, number)
    request = setup.provider.requests[0]
    request.peer.wait(lambda: request.reset == CANCEL, "RST_STREAM(CANCEL) at the provider")


def test_cancelling_while_waiting_for_a_connection_ends_the_call(scripted):
    setup = scripted(initial=((3, 0),))
    number = setup.client.open(U)
    setup.client.raw(data(number, MSG("hi"), end=True))
    time.sleep(0.1)
    cancelled(setup, number)
    setup.proxy.wait_for(lambda stats: stats["routes"]["u"]["status"] == {"CANCELLED": 1}, "the count")


@pytest.mark.parametrize("path", [U, S])
def test_a_client_that_goes_cancels_its_calls(scripted, path):
    setup = scripted(silent, whole=False)
    client = setup.new_client()
    number = client.open(path)
    client.raw(data(number, MSG("hi"), end=True))
    setup.proxy.wait_for(lambda stats: setup.provider.requests, "the request")
    client.close()
    request = setup.provider.requests[0]
    request.peer.wait(lambda: request.reset == CANCEL, "RST_STREAM(CANCEL) at the provider")
    setup.proxy.wait_for(lambda stats: stats["routes"][path[1]]["status"] == {"CANCELLED": 1}, "the count")
