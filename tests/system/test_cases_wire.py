"""Bare or framed: refusals, the framed try, what is learnt, paths by configuration, replays."""
import gzip
import random
import time

import pytest
from h2peer import DATA, END_STREAM, MSG, NO_ERROR, bare, data, framed, headers, json_error, reset
from scripted import A, S, U, scripted  # noqa: F401

JAVA_404 = '{"message":"Invoker not found","status":"404"}'


def is_framed(stream):
    return stream.one("content-type").startswith("application/grpc")


def refuse_415(peer, stream, extra=(), body=b""):
    """dubbo-go and connect-go answer before they have read the request."""
    peer.raw(headers(stream.id, [(":status", "415"), ("accept-post", "application/grpc"), *extra], end=not body)
             + (data(stream.id, body, end=True) if body else b"") + reset(stream.id, NO_ERROR))


def refusing(refuse):
    def answer(peer, stream):
        framed(peer, stream) if is_framed(stream) else refuse(peer, stream)
    return answer


def go_415(peer, stream):
    refuse_415(peer, stream)


def java_32(peer, stream):
    refuse_415(peer, stream, [("grpc-status", "13"), ("grpc-message", "Content-Type is not supported"), ("content-type", "text/plain")],
               b"not supported")


def java_32_grpc_type(peer, stream):
    refuse_415(peer, stream, [("grpc-status", "13"), ("content-type", "application/grpc")])


def java_33(peer, stream):
    json_error(peer, stream, "404", JAVA_404)


def kinds(setup):
    return ["framed" if is_framed(request) else "bare" for request in setup.provider.requests]


# --- refusals and the framed try ---

@pytest.mark.parametrize("refuse", [go_415, java_32, java_32_grpc_type, java_33])
@pytest.mark.parametrize("path", [U, A])
def test_a_refused_bare_call_is_sent_again_framed(scripted, refuse, path):
    setup = scripted(refusing(refuse))
    setup.client.call(path).says(0, ["hi"])
    assert kinds(setup) == ["bare", "framed"]
    route = setup.route(path[1])
    assert route["path"]["fallback"] == 1 and route["retries"] == 0 and route["status"] == {"OK": 1}
    request = setup.provider.requests[1]
    assert request.body == MSG("hi") and request.one("content-length") is None and request.one("te") == "trailers"


@pytest.mark.parametrize("refuse, others", [(go_415, "bare"), (java_32, "framed"), (java_33, "framed")])
def test_what_a_refusal_teaches(scripted, refuse, others):
    """A 415 without grpc-status is about the method; one with it, or Java's 404, about the endpoint."""
    def answer(peer, stream):
        if not is_framed(stream) and stream.one(":path") == U:
            refuse(peer, stream)
        else:
            framed(peer, stream) if is_framed(stream) else bare(peer, stream)
    setup = scripted(answer)
    setup.client.call(U).says(0, ["hi"])
    setup.client.call(U).says(0, ["hi"])
    setup.client.call("/u.S/Other").says(0, ["hi"])
    assert kinds(setup) == ["bare", "framed", "framed", others]
    assert setup.endpoint()["wire"] == ("bare" if others == "bare" else "framed")


@pytest.mark.parametrize("refuse", [go_415, java_32, java_33])
@pytest.mark.parametrize("code", ["12"])
def test_nothing_is_learnt_when_the_framed_try_fails_as_well(scripted, refuse, code):
    def answer(peer, stream):
        framed(peer, stream, b"", code) if is_framed(stream) else refuse(peer, stream)
    setup = scripted(answer)
    setup.client.call(U).says(12)
    setup.client.call(U).says(12)
    assert kinds(setup) == ["bare", "framed"] * 2


@pytest.mark.parametrize("code", ["2", "5", "13", "17"])
def test_an_error_of_the_framed_try_teaches_all_the_same(scripted, code):
    def answer(peer, stream):
        framed(peer, stream, b"", code) if is_framed(stream) else java_33(peer, stream)
    setup = scripted(answer)
    setup.client.call(U)
    setup.client.call(U)
    assert kinds(setup) == ["bare", "framed", "framed"]


def test_a_contrary_answer_replaces_what_was_learnt(scripted):
    refused = []

    def answer(peer, stream):
        if is_framed(stream):
            framed(peer, stream)
        elif refused:
            java_33(peer, stream)
        else:
            bare(peer, stream)
    setup = scripted(answer)
    setup.client.call(U).says(0, ["hi"])
    refused.append(1)  # an older provider has taken its place
    setup.client.call(U).says(0, ["hi"])
    setup.client.call(U).says(0, ["hi"])
    assert kinds(setup) == ["bare", "bare", "framed", "framed"]


def test_a_refused_call_that_was_not_held_is_unavailable_and_the_fact_is_forgotten(scripted):
    refused = []

    def answer(peer, stream):
        if is_framed(stream):
            peer.wait(lambda: stream.done, "its end")
            framed(peer, stream, MSG("ok"))
        elif refused:
            java_33(peer, stream)
        else:
            peer.wait(lambda: stream.done, "its end")
            bare(peer, stream, "ok")
    setup = scripted(answer, whole=False, route="fast_path_max = 1K")
    client = setup.client
    client.call(U, MSG(bytes(2000))).says(0, ["ok"])
    refused.append(1)
    number = client.open(U)
    client.raw(data(number, MSG(bytes(200000))[:100000]))  # cut through, and more than a replay keeps
    client.ended(number).says(14)
    client.call(U, MSG(bytes(2000))).says(0, ["ok"])
    assert kinds(setup) == ["bare", "bare", "bare", "framed"], "held once more, for nothing is known any longer"


def test_text_404_is_final(scripted):
    setup = scripted(lambda peer, stream: bare(peer, stream, "404 page not found\n", "404", "text/plain; charset=utf-8"))
    setup.client.call(U).says(12)
    assert kinds(setup) == ["bare"]


def test_json_404_without_code_is_an_error_for_a_json_call(scripted):
    setup = scripted(lambda peer, stream: json_error(peer, stream, "404", JAVA_404))
    setup.client.call(U, content_type="application/grpc+json").says(12)
    assert kinds(setup) == ["bare"]


def test_json_404_with_an_unknown_code_is_an_error(scripted):
    setup = scripted(lambda peer, stream: json_error(peer, stream, "404", '{"code":"odd","message":"m"}'))
    assert setup.client.call(U).says(12).message == "m"
    assert kinds(setup) == ["bare"]


@pytest.mark.parametrize("refuse", [go_415, java_32, java_33])
def test_wire_bare_insists(scripted, refuse):
    setup = scripted(refusing(refuse), upstream="wire = bare")
    reply = setup.client.call(U).says(2, trailers_only=True)
    assert "application/proto" in reply.message and "wire = auto" in reply.message
    assert kinds(setup) == ["bare"]


def test_wire_bare_does_not_insist_for_call_auto(scripted):
    setup = scripted(refusing(go_415), upstream="wire = bare")
    setup.client.call(A).says(0, ["hi"])
    assert kinds(setup) == ["bare", "framed"]


@pytest.mark.parametrize("answer, code, payloads", [
    (lambda peer, i: peer.raw(headers(i, [(":status", "200"), ("content-type", "application/grpc"), ("grpc-status", "12")], end=True)),
     12, []),
    (lambda peer, i: peer.raw(headers(i, [(":status", "200"), ("content-type", "application/grpc+proto")]) + data(i, MSG("m"))
                              + headers(i, [("grpc-status", "0")], end=True)), 0, ["m"]),
    (lambda peer, i: peer.raw(headers(i, [(":status", "200"), ("content-type", "application/grpc+proto")]) + data(i, MSG("m"), end=True)),
     13, ["m"])], ids=["trailers-only", "framed", "no-status"])
@pytest.mark.parametrize("wire", ["auto", "bare"])
def test_a_framed_answer_to_a_bare_request_is_framed_once(scripted, answer, code, payloads, wire):
    setup = scripted(lambda peer, stream: answer(peer, stream.id), upstream=f"wire = {wire}")
    reply = setup.client.call(U)
    assert reply.code == code and [payload for _, payload in reply.messages] == [p.encode() for p in payloads]
    assert kinds(setup) == ["bare"]


def test_facts_survive_reconnects_and_reloads(scripted):
    setup = scripted(refusing(java_33))
    setup.client.call(U).says(0, ["hi"])
    setup.provider.peers[0].close()
    setup.client.call(U).says(0, ["hi"])
    setup.proxy.reload(setup.proxy.file.read_text() + "\n[route more]\nmatch = /more.S/*\nupstream = up\n")
    setup.client.call(U).says(0, ["hi"])
    setup.client.call("/more.S/M", MSG("x") + MSG("y")).says(0, ["x", "y"])
    assert kinds(setup)[2:] == ["framed"] * 3


def test_a_gzip_message_is_inflated_for_the_framed_try_towards_java(scripted):
    import gzip
    setup = scripted(refusing(java_33))
    setup.client.call(U, MSG(gzip.compress(b"hello"), 1), extra=[("grpc-encoding", "gzip")]).says(0, ["hello"])
    request = setup.provider.requests[1]
    assert request.body == MSG("hello") and request.one("grpc-encoding") is None


# --- paths by configuration ---

@pytest.mark.parametrize("route, path, names", [
    ("fast_path = on", U, ["fast", "fast"]), ("fast_path = off", U, ["framed", "framed"]), ("fast_path = off", A, ["framed", "framed"]),
    ("content_length = off", U, ["fast", "fast"]), ("fast_path_max = 1", U, ["fast", "cut_through"])])
def test_the_path_of_a_call(scripted, route, path, names):
    setup = scripted(route=route)
    for _ in names:
        setup.client.call(path).says(0, ["hi"])
    want = {name: names.count(name) for name in ("fast", "cut_through", "relay", "framed", "fallback")}
    assert setup.route(path[1])["path"] == want
    lengths = {request.one("content-length") for request in setup.provider.requests if not is_framed(request)}
    assert lengths <= ({None} if "content_length" in route else {"2"})


def test_fast_path_off_with_wire_bare_is_relay_without_a_length(scripted):
    setup = scripted(route="fast_path = off", upstream="wire = bare")
    setup.client.call(U).says(0, ["hi"])
    assert setup.route("u")["path"]["relay"] == 1
    assert setup.provider.requests[0].one("content-length") is None and setup.provider.requests[0].body == b"hi"


def test_a_share_of_calls_is_every_tenth(scripted):
    setup = scripted(route="fast_path = 10%", upstream="wire = bare")
    for _ in range(30):
        setup.client.call(U).says(0, ["hi"])
    assert setup.route("u")["path"]["fast"] == 3 and setup.route("u")["path"]["relay"] == 27


@pytest.mark.parametrize("path, form", [(U, "bare"), (S, "framed"), (A, "bare")])
def test_the_form_of_a_short_call(scripted, path, form):
    setup = scripted()
    setup.client.call(path).says(0, ["hi"])
    assert kinds(setup) == [form]


def test_auto_with_end_stream_in_a_later_turn_is_a_stream_until_the_method_is_known_to_be_unary(scripted):
    setup = scripted()
    client = setup.client

    def in_two():
        number = client.open(A)
        client.raw(data(number, MSG("hi")))
        time.sleep(0.1)
        client.raw(data(number, end=True))
        return client.ended(number).says(0, ["hi"])
    in_two()
    client.call(A).says(0, ["hi"])
    in_two()
    assert kinds(setup) == ["framed", "bare", "bare"]


def test_auto_with_three_data_frames_in_one_segment_is_unary(scripted):
    """What dubbo-go sends: prefix, message, empty END_STREAM."""
    setup = scripted()
    client, number = setup.client, setup.client.new_id()
    from h2peer import request_fields
    client.raw(headers(number, request_fields(A)) + data(number, MSG("hi")[:5]) + data(number, b"hi") + data(number, end=True))
    client.ended(number).says(0, ["hi"])
    assert kinds(setup) == ["bare"]


@pytest.mark.parametrize("path", [U, A])
def test_a_whole_unary_request_leaves_in_one_data_frame_with_end_stream(scripted, path):
    for upstream in ("", "wire = framed"):
        setup = scripted(upstream=upstream)
        setup.client.call(path).says(0, ["hi"])
        frames = setup.provider.requests[0].frames_of(DATA)
        assert [flags & END_STREAM for _, flags, _ in frames] == [1], upstream


# --- replays ---

@pytest.mark.parametrize("path", [U, S, A])
def test_a_call_above_the_last_stream_of_a_goaway_is_sent_again(scripted, path):
    from h2peer import either, goaway
    seen = []

    def answer(peer, stream):
        seen.append(peer)
        if len(seen) == 1:
            peer.raw(goaway(0))
            time.sleep(0.1)
            peer.close()
        else:
            either(peer, stream)
    setup = scripted(answer)
    setup.client.call(path).says(0, ["hi"])
    assert len(set(seen)) == 2 and setup.route(path[1])["retries"] == 1


def test_replay_off_sends_nothing_twice(scripted):
    setup = scripted(lambda peer, stream: peer.raw(reset(stream.id, 7)), route="replay = off")
    setup.client.call(U).says(14)
    assert len(setup.provider.requests) == 1


def test_a_stream_that_may_have_been_processed_is_never_sent_again(scripted):
    setup = scripted(lambda peer, stream: peer.close())
    setup.client.call(U).says(14)
    time.sleep(0.3)  # the endpoint's backoff
    setup.client.call(S).says(14)
    assert len(setup.provider.requests) == 2


def test_a_replay_of_a_stream_repeats_what_it_has_sent(scripted):
    from h2peer import either
    seen = []

    def answer(peer, stream):
        seen.append(stream)
        if len(seen) == 1:
            peer.wait(lambda: len(stream.body) >= len(MSG("one")), "the first message")
            peer.raw(reset(stream.id, 7))
            return
        peer.wait(lambda: stream.done, "its end")
        either(peer, stream)
    setup = scripted(answer, whole=False)
    number = setup.client.open(S)
    setup.client.raw(data(number, MSG("one")))
    setup.proxy.wait_for(lambda stats: len(seen) == 2, "the second try")
    setup.client.raw(data(number, MSG("two"), end=True))
    setup.client.ended(number).says(0, ["one", "two"])


@pytest.mark.parametrize("path, total, first", [
    (U, 1 << 20, 60 << 10), (U, 64 << 10, 40 << 10), (S, 200 << 10, 60 << 10)])
def test_what_comes_while_a_second_try_waits_for_its_stream_is_part_of_it(scripted, path, total, first):
    from h2peer import MAX_CONCURRENT_STREAMS, either, settings
    seen, message = [], MSG(bytes(range(256)) * (total // 256) + bytes(total % 256))

    def answer(peer, stream):
        seen.append(stream)
        if len(seen) == 2:
            peer.wait(lambda: len(stream.body) >= first - 5, "the first part")
            peer.raw(settings([(MAX_CONCURRENT_STREAMS, 0)]))
            time.sleep(0.1)
            peer.raw(reset(stream.id, 7))
            time.sleep(0.6)
            peer.raw(settings([(MAX_CONCURRENT_STREAMS, 10)]))
            return
        peer.wait(lambda: stream.done, "its end")
        either(peer, stream)
    setup = scripted(answer, whole=False, upstream="connections = 1\nmax_connections = 1")
    client = setup.client
    client.call(path, MSG("hi")).says(0, ["hi"])
    number = client.open(path)
    client.send(number, message[:first])
    time.sleep(0.4)
    client.send(number, message[first:], end=True)
    reply = client.ended(number)
    assert reply.code == 0 and reply.messages == [(0, message[5:])] and len(seen) == 3


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("path, size", [(U, 100000), (S, 40000), (S, 3000)])
def test_a_replay_in_the_middle_of_a_message_that_is_inflated_begins_anew(scripted, path, size, compressed):
    from h2peer import either
    seen, payload = [], random.Random(1).randbytes(size)

    def answer(peer, stream):
        seen.append(stream)
        if len(seen) == 1:
            time.sleep(0.2)
            peer.raw(reset(stream.id, 7))
            return
        peer.wait(lambda: stream.done, "its end")
        either(peer, stream)
    setup = scripted(answer, whole=False, upstream="wire = framed")
    message = MSG(gzip.compress(payload), 1) if compressed else MSG(payload)
    number = setup.client.open(path, [("grpc-encoding", "gzip")])
    setup.client.send(number, message[:size // 2])
    time.sleep(0.4)
    setup.client.send(number, message[size // 2:], end=True)
    reply = setup.client.ended(number)
    assert reply.code == 0 and reply.messages == [(0, payload)]


# --- report ---

def test_report_tells_path_and_overhead(scripted):
    setup = scripted(route="report = on")
    reply = setup.client.call(U).says(0, ["hi"])
    assert reply.one("tributary-path") == "fast" and int(reply.one("tributary-overhead-us")) >= 0
    assert "tributary-path" in dict(reply.heads[1])
    assert setup.client.call(S).says(0, ["hi"]).one("tributary-path") == "framed"


def test_report_comes_with_errors_too(scripted):
    setup = scripted(lambda peer, stream: json_error(peer, stream, "404", '{"code":"not_found"}'), route="report = on")
    assert setup.client.call(U).says(5).one("tributary-path") == "fast"
    reply = setup.client.call(U, b"").says(12)
    assert reply.one("tributary-path") is None and int(reply.one("tributary-overhead-us")) >= 0


def test_report_of_a_deadline_is_not_the_providers_time(scripted):
    setup = scripted(lambda peer, stream: None, route="report = on")
    reply = setup.client.call(U, extra=[("grpc-timeout", "300m")]).says(4)
    assert int(reply.one("tributary-overhead-us")) < 200000
