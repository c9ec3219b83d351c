"""Java providers behind the proxy: what is learnt, counted and sent, one proxy of its own for each test.

The calls are made from Python, by grpcio or by hand; the providers are real ones, and JavaLike where a
test has to see the frames that a provider gets.
"""
import http.client
import json
import re
import socket
import subprocess
import threading
import time

import grpc
import h2.config
import h2.connection
import h2.events
import pytest
from hyperframe.frame import DataFrame, HeadersFrame, SettingsFrame

from java_like import JavaLike
from java_peers import (JAVA_INTERFACE, JAVA_PROVIDERS, SERVICE, WRAPPER_SERVICE, java_provider,  # noqa: F401
                        java_providers, name_of, python_client, run_cases)
from peers import Proxy, check_case, go_programs, go_provider, tributary_binary  # noqa: F401


def one_route(endpoints, route=None, upstream=None, **more):
    return {"upstream echo": {"endpoints": endpoints, **(upstream or {})},
            "route echo": {"match": "*", "upstream": "echo", **(route or {})}, **more}


class Setup:
    """A proxy of one test's own, and grpcio channels to it."""

    def __init__(self, folder):
        self.folder, self.opened = folder, []
        self.proxy = None

    def start(self, sections, listeners=("main",)):
        self.proxy = Proxy(list(listeners), sections, self.folder).start()
        return self.client()

    def client(self, listener="main", service=SERVICE):
        client = python_client(self.proxy.address[listener], service)
        self.opened.append(client)
        return client

    def route(self, name="echo"):
        return self.proxy.stats()["routes"][name]

    def endpoints(self):
        return self.proxy.stats()["upstreams"]["echo"]["endpoints"]

    def endpoint(self):
        return next(iter(self.endpoints().values()))

    def settled(self, name="echo"):
        """The route's stats once no call is active: they are written when a call has ended."""
        for _ in range(100):
            route = self.route(name)
            if route["active"] == 0:
                return route
            time.sleep(0.02)
        raise AssertionError(f"calls that do not end: {route}")

    def stop(self):
        for client in self.opened:
            client.channel.close()
        if self.proxy and self.proxy.process:
            self.proxy.stop()


@pytest.fixture
def setup(tmp_path):
    setup = Setup(tmp_path)
    yield setup
    setup.stop()


JAVA = pytest.mark.parametrize("java", list(JAVA_PROVIDERS), ids=name_of)


def say(client, count=1, **fields):
    """That many calls one after another; the last reply."""
    for number in range(count):
        request = client.pb.SayRequest(text=f"call {number}", **fields)
        reply = client.say(request, timeout=15)
        if not fields.get("reply_bytes"):
            assert reply.text == request.text
    return reply


def status_of(call):
    try:
        call()
    except grpc.RpcError as error:
        return error.code()
    return grpc.StatusCode.OK


# --- the learnt form ------------------------------------------------------------------------------

@JAVA
def test_auto_learns_the_form_once_per_endpoint(setup, java_providers, java):
    client = setup.start(one_route(java_providers[java].address, {"call": "unary"}))
    say(client, 20)
    # Java takes nothing bare, so what one method taught holds for the others.
    client.cancelled()
    route = setup.settled()
    assert route["status"] == {"OK": 21}
    assert route["path"]["fallback"] == 1
    assert route["path"]["framed"] == 20
    assert route["retries"] == 0, "a fallback is no retry"
    assert setup.endpoint()["wire"] == "framed"


@JAVA
def test_auto_needs_at_most_one_second_try_whatever_the_kind_of_call(setup, java_providers, java):
    client = setup.start(one_route(java_providers[java].address))
    say(client, 10)
    requests = client.numbered()
    assert client.collect(iter(requests), timeout=15).index == len(requests)
    assert len(list(client.expand(client.pb.SayRequest(count=5), timeout=15))) == 5
    say(client, 10)
    route = setup.settled()
    assert route["status"] == {"OK": 22}
    assert route["path"]["fallback"] <= 1
    assert route["path"]["framed"] >= 21
    assert route["path"]["fast"] == route["path"]["relay"] == route["path"]["cut_through"] == 0


@JAVA
def test_framed_makes_no_bare_try(setup, java_providers, java):
    client = setup.start(one_route(java_providers[java].address, {"call": "unary"}, {"wire": "framed"}))
    say(client, 20)
    route = setup.settled()
    assert route["path"]["framed"] == 20
    assert route["path"]["fallback"] == 0
    assert route["status"] == {"OK": 20}


@JAVA
def test_bare_says_what_would_help(setup, java_providers, java):
    client = setup.start(one_route(java_providers[java].address, {"call": "unary"}, {"wire": "bare"}))
    with pytest.raises(grpc.RpcError) as failed:
        say(client)
    assert failed.value.code() == grpc.StatusCode.UNKNOWN
    assert "wire = auto" in failed.value.details()


@JAVA
def test_learnt_form_survives_a_crash_a_reconnect_and_a_reload(setup, java):
    provider = java_provider(java).start()
    try:
        client = setup.start(one_route(provider.address, {"call": "unary"}))
        say(client, 3)
        waiting = client.say.future(client.pb.SayRequest(delay_ms=5000), timeout=15)
        time.sleep(0.3)
        provider.kill()
        assert waiting.code() == grpc.StatusCode.UNAVAILABLE, "a call under way is lost with the provider"
        provider.start()
        client.say(client.pb.SayRequest(text="back"), timeout=15, wait_for_ready=True)
        say(client, 3)
        config = setup.proxy.reload(setup.proxy.text(one_route(provider.address, {"call": "unary", "timeout": "9s"})))
        assert config["error"] is None
        say(client, 3)
        route = setup.settled()
        assert route["path"]["fallback"] == 1
        assert setup.endpoint()["wire"] == "framed"
    finally:
        provider.stop()


def test_go_and_java_behind_one_upstream_each_in_its_own_form(setup, java_providers, go_provider):
    endpoints = ", ".join([go_provider.address, *(each.address for each in java_providers.values())])
    client = setup.start(one_route(endpoints, {"call": "unary"}, {"lb_policy": "round_robin"}))
    say(client, 30)
    route = setup.settled()
    assert route["status"] == {"OK": 30}
    assert route["path"]["fast"] == 10, route["path"]
    assert route["path"]["fallback"] == 2, route["path"]
    assert route["path"]["framed"] == 18, route["path"]
    wires = {address: each["wire"] for address, each in setup.endpoints().items()}
    assert wires[go_provider.address] == "bare"
    assert [wires[each.address] for each in java_providers.values()] == ["framed", "framed"]


def test_streams_go_to_go_and_java_alike(setup, java_providers, go_provider):
    endpoints = ", ".join([go_provider.address, *(each.address for each in java_providers.values())])
    client = setup.start(one_route(endpoints, upstream={"lb_policy": "round_robin"}))
    for _ in range(6):
        assert [r.index for r in client.expand(client.pb.SayRequest(count=5), timeout=15)] == [0, 1, 2, 3, 4]
        assert client.collect(iter(client.numbered()), timeout=15).index == 20
        assert [r.text for r in client.chat(iter(client.numbered()), timeout=15)] == [f"n{i}" for i in range(20)]
    assert setup.settled()["status"] == {"OK": 18}


@JAVA
def test_workers_tell_each_other_what_they_learnt(setup, java_providers, java):
    setup.start(one_route(java_providers[java].address, {"call": "unary"}, proxy={"workers": 2}))
    say(setup.client())
    time.sleep(0.2)
    for _ in range(8):  # a connection each: both workers get some
        say(setup.client(), 2)
    route = setup.settled()
    assert route["status"] == {"OK": 17}
    assert route["path"]["fallback"] == 1


def test_http1_transport_to_3_3_goes_on_framed_over_http2(setup, java_providers):
    client = setup.start(one_route(java_providers["dubbo-java 3.3"].address, {"call": "unary"}, {"transport": "http1"}))
    say(client, 10)
    route = setup.settled()
    assert route["status"] == {"OK": 10}
    assert (route["path"]["fallback"], route["path"]["framed"]) == (1, 9)


def post_json(address, path, body):
    """(status, decoded reply) of one JSON call over HTTP/1.1, as curl makes it."""
    connection = http.client.HTTPConnection(address, timeout=10)
    try:
        connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
        reply = connection.getresponse()
        return reply.status, json.loads(reply.read())
    finally:
        connection.close()


def test_json_reaches_a_plain_java_service_of_3_3(setup, java_providers):
    setup.start(one_route(java_providers["dubbo-java 3.3"].address))
    address = setup.proxy.address["main"]
    assert post_json(address, f"/{WRAPPER_SERVICE}/greet", ["ann"]) == (200, "hello ann")
    # Errors of 3.3 are JSON without code, as its refusals of protobuf are: these are final all the same.
    assert post_json(address, f"/{WRAPPER_SERVICE}/crash", ["on purpose"]) == (
        500, {"code": "unknown", "message": "on purpose"})
    status, error = post_json(address, "/no.such.Service/X", [1])
    assert (status, error["code"]) == (404, "unimplemented")
    route = setup.settled()
    assert route["calls"] == 3
    assert route["path"]["fallback"] == route["path"]["framed"] == 0


def test_json_and_protobuf_are_learnt_apart(setup, java_providers):
    client = setup.start(one_route(java_providers["dubbo-java 3.3"].address, {"call": "unary"}))
    for _ in range(3):
        say(client, 2)
        assert post_json(setup.proxy.address["main"], f"/{WRAPPER_SERVICE}/greet", ["ann"]) == (200, "hello ann")
    path = setup.settled()["path"]
    assert (path["fallback"], path["framed"], path["fast"]) == (1, 5, 3)


@JAVA
def test_explain_names_the_learnt_form_and_why(setup, java_providers, java):
    client = setup.start(one_route(java_providers[java].address, {"call": "unary"}))
    say(client, 2)
    told = subprocess.run([tributary_binary(), "-c", setup.proxy.file, "--explain", f"/{SERVICE}/Say"], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=20)
    assert told.returncode == 0, told.stdout
    assert java_providers[java].address in told.stdout
    assert "framed" in told.stdout
    assert re.search(r"\b(404|415)\b", told.stdout), f"no reason in:\n{told.stdout}"
    assert re.search(r"framed", setup.proxy.process.output(200)), "the log names the learnt form too"


# --- what a Java provider gets to see, frame by frame -----------------------------------------------------

@pytest.fixture(params=["3.3", "3.2"])
def java_like(request):
    provider = JavaLike(request.param)
    yield provider
    provider.stop()


def test_bare_once_then_framed_in_one_data_frame(setup, java_like):
    client = setup.start(one_route(java_like.address, {"call": "unary"}))
    request = client.pb.SayRequest(text="hello")
    for _ in range(3):
        client.say(request, timeout=15)
    message = request.SerializeToString()
    (bare, bare_frames), *framed = java_like.calls()
    assert bare["content-type"] == "application/proto"
    assert bare["content-length"] == str(len(message))
    assert [frame.data for frame in bare_frames if isinstance(frame, DataFrame)] == [message]
    assert len(framed) == 3
    for headers, frames in framed:
        assert headers["content-type"].startswith("application/grpc")
        assert headers["te"] == "trailers"
        assert not {"content-length", "grpc-encoding", "accept-encoding", "triple-protocol-version"} & set(headers)
        start, *rest = frames
        assert isinstance(start, HeadersFrame) and "END_STREAM" not in start.flags
        assert [type(frame) for frame in rest] == [DataFrame]
        assert rest[0].data == b"\0" + len(message).to_bytes(4, "big") + message
        assert "END_STREAM" in rest[0].flags


def test_a_call_without_a_message_does_not_end_with_its_headers(setup, java_like):
    client = setup.start(one_route(java_like.address, upstream={"wire": "framed"}))
    list(client.chat(iter([]), timeout=15))
    (_, frames), = java_like.calls()
    assert "END_STREAM" not in frames[0].flags
    assert [type(frame) for frame in frames] == [HeadersFrame, DataFrame]
    assert frames[1].data == b"" and "END_STREAM" in frames[1].flags


def test_settings_and_connection_window_are_what_java_needs(setup, java_like):
    client = setup.start(one_route(java_like.address))
    client.say(client.pb.SayRequest(text="x"), timeout=15)
    connection, = java_like.connections
    assert SettingsFrame.INITIAL_WINDOW_SIZE in connection.settings, "3.3 miscounts without it"
    assert connection.settings[SettingsFrame.INITIAL_WINDOW_SIZE] <= 16 << 20
    assert 512 << 20 <= connection.connection_credit() < 2 ** 31 - 1 - 65535
    assert connection.settings.get(SettingsFrame.ENABLE_PUSH) == 0


def test_nothing_of_the_proxy_s_own_becomes_an_attachment(setup, java_like):
    # Java makes every request header an attachment that travels on to the next service.
    client = setup.start(one_route(java_like.address, upstream={"wire": "framed"}))
    client.say(client.pb.SayRequest(text="x"), timeout=15, metadata=(("x-mine", "1"), ("traceparent", "00-aa-bb-01")))
    (headers, _), = java_like.calls()
    expected = {":method", ":scheme", ":path", ":authority", "content-type", "te", "grpc-timeout", "user-agent",
                "x-mine", "traceparent", "grpc-accept-encoding"}
    assert set(headers) <= expected
    assert {"x-mine", "traceparent", "grpc-timeout"} <= set(headers)


def test_resets_stay_below_what_java_takes_on_a_connection(setup):
    provider = JavaLike("3.3", answer=False)
    try:
        client = setup.start(one_route(provider.address, upstream={"wire": "framed"}))
        for _ in range(260):
            call = client.say.future(client.pb.SayRequest(text="x"), timeout=15)
            call.cancel()
        calls = [client.say.future(client.pb.SayRequest(text="x"), timeout=15) for _ in range(260)]
        for _ in range(100):
            if len(provider.calls()) >= 260:
                break
            time.sleep(0.05)
        for call in calls:
            call.cancel()
        time.sleep(1)
        assert len(provider.calls()) >= 260, "the calls did not reach the provider: the test shows nothing"
        assert max(len(each.resets()) for each in provider.connections) <= 200
    finally:
        provider.stop()


@pytest.mark.parametrize("code", [0x1f4, 8], ids=["3.3", "3.2"])
def test_a_provider_s_reset_is_not_answered_by_a_reset(setup, code):
    # RFC 9113 5.4.2 forbids it, and each would count at a provider that bears 200.
    provider = JavaLike(reset_with=code)
    try:
        client = setup.start(one_route(provider.address, upstream={"wire": "framed"}))
        calls = [client.say.future(client.pb.SayRequest(text="x"), timeout=5) for _ in range(50)]
        assert {call.code() for call in calls} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
        time.sleep(0.2)
        assert sum(len(each.resets()) for each in provider.connections) == 0
    finally:
        provider.stop()


def test_streams_that_never_end_after_a_goaway_end_unavailable(setup):
    provider = JavaLike("3.3", answer=False)
    try:
        client = setup.start(one_route(provider.address, upstream={"wire": "framed"}))
        call = client.say.future(client.pb.SayRequest(text="x"), timeout=30)
        for _ in range(100):
            if provider.calls():
                break
            time.sleep(0.05)
        provider.goaway()
        start = time.monotonic()
        provider.answer = True
        time.sleep(0.2)
        client.say(client.pb.SayRequest(text="y"), timeout=5)
        assert len(provider.connections) == 2, "new calls take a new connection"
        assert call.code() == grpc.StatusCode.UNAVAILABLE
        assert 8 <= time.monotonic() - start <= 15
    finally:
        provider.stop()


# --- errors, as a client reads them from the wire ------------------------------------------------------

def raw_call(target, path, message, headers=(), seconds=10):
    """One unary call by hand: (response headers, body, trailers, seconds it took). Nothing is decoded."""
    connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True, header_encoding=None))
    host, port = target.rsplit(":", 1)
    got, body, ended = [], b"", False
    start = time.monotonic()
    with socket.create_connection((host, int(port)), timeout=seconds) as link:
        connection.initiate_connection()
        connection.send_headers(1, [
            (":method", "POST"), (":scheme", "http"), (":path", path), (":authority", target),
            ("content-type", "application/grpc"), ("te", "trailers"), *headers])
        connection.send_data(1, b"\0" + len(message).to_bytes(4, "big") + message, end_stream=True)
        link.sendall(connection.data_to_send())
        while not ended:
            data = link.recv(65536)
            assert data, "the connection was closed before the reply's end"
            for event in connection.receive_data(data):
                if isinstance(event, (h2.events.ResponseReceived, h2.events.TrailersReceived)):
                    got.append({name.decode(): value for name, value in event.headers})
                elif isinstance(event, h2.events.DataReceived):
                    body += event.data
                    connection.acknowledge_received_data(event.flow_controlled_length, 1)
                elif isinstance(event, h2.events.StreamEnded):
                    ended = True
                elif isinstance(event, h2.events.StreamReset):
                    raise AssertionError(f"the stream was reset with {event.error_code}")
            link.sendall(connection.data_to_send())
    return got[0], body, got[-1], time.monotonic() - start


def failing(client, code, message):
    return client.failing(code, message).SerializeToString()


MESSAGES = {"line-feeds": "one\ntwo\r\nthree", "percent": "100% of %41 %zz", "plus": "a+b c", "latin-1": "caf\u00e9",
            "quote": 'say "x" \\ <y>', "long": "x" * 5000, "tab": "a\tb", "blanks": "a  b"}


@JAVA
@pytest.mark.parametrize("name", MESSAGES)
def test_error_message_is_printable_ascii_on_the_wire_and_whole_when_decoded(setup, java_providers, java, name):
    client = setup.start(one_route(java_providers[java].address))
    text = MESSAGES[name]
    for _ in range(2):  # learning, then learnt
        headers, body, trailers, _ = raw_call(setup.proxy.address["main"], f"/{SERVICE}/Say", failing(client, 9, text))
        assert headers[":status"] == b"200"
        assert headers["content-type"].startswith(b"application/grpc")
        assert body == b""
        assert trailers["grpc-status"] == b"9"
        assert re.fullmatch(rb"[\x20-\x7e]*", trailers["grpc-message"]), trailers["grpc-message"]
    with pytest.raises(grpc.RpcError) as failed:
        client.say(client.failing(9, text), timeout=15)
    wanted = text[:900] if java == "dubbo-java 3.2" else text  # 3.2 cuts at 1024 bytes
    assert wanted in failed.value.details()


@JAVA
def test_details_message_for_java_consumers_is_what_they_decode(setup, go_provider, java):
    # They take the message from grpc-status-details-bin where there is one, and percent-decode that too.
    setup.start(one_route(go_provider.address, {"call": "stream"}))
    lines = run_cases(java, setup.proxy.address["main"], ["error", "codes", "raw_message"])
    for case in ("error", "codes", "raw_message"):
        check_case(lines, case)


def test_details_message_of_3_2_is_the_message_once_it_has_passed_the_proxy(setup, java_providers):
    client = setup.start(one_route(java_providers["dubbo-java 3.2"].address))
    for text in ("no such thing: 100% + two", "caf\u00e9\nline two", "plain"):
        with pytest.raises(grpc.RpcError) as failed:
            client.say(client.failing(9, text), timeout=15)
        assert failed.value.details() == text
        binary = dict(failed.value.trailing_metadata()).get("grpc-status-details-bin")
        # Status{code = 1: 9, message = 2: text}; what follows are the details.
        assert binary is None or binary.startswith(b"\x08\x09\x12" + bytes([len(text.encode())]) + text.encode())


@JAVA
@pytest.mark.parametrize("path,wanted", [("/no.such.Service/Say", 12), (f"/{SERVICE}/NoSuch", None)])
def test_unknown_names_end_as_the_provider_says(setup, java_providers, java, path, wanted):
    setup.start(one_route(java_providers[java].address))
    _, _, direct, _ = raw_call(java_providers[java].address, path, b"")
    for _ in range(2):
        headers, _, trailers, _ = raw_call(setup.proxy.address["main"], path, b"")
        assert headers[":status"] == b"200"
        assert trailers["grpc-status"] == direct["grpc-status"]
        assert wanted is None or trailers["grpc-status"] == str(wanted).encode()


# --- deadlines and cancellation -------------------------------------------------------------------------

@JAVA
def test_the_proxy_owns_the_deadline(setup, java_providers, java):
    client = setup.start(one_route(java_providers[java].address))
    slow = client.pb.SayRequest(delay_ms=1500).SerializeToString()
    for _ in range(3):
        _, _, trailers, seconds = raw_call(setup.proxy.address["main"], f"/{SERVICE}/Say", slow,
                                           [("grpc-timeout", "250m")])
        assert trailers["grpc-status"] == b"4"
        assert 0.24 <= seconds <= 0.6
    assert setup.settled()["status"] == {"DEADLINE_EXCEEDED": 3}


@JAVA
def test_an_answer_near_the_deadline_is_the_reply_or_deadline_exceeded(setup, java_providers, java):
    # Java answers a call that it finished too late with 408 and status 2 (3.3) or 4 (3.2).
    client = setup.start(one_route(java_providers[java].address))
    say(client)
    body = client.pb.SayRequest(delay_ms=100).SerializeToString()
    codes = set()
    for timeout_ms in range(95, 125):
        _, _, trailers, _ = raw_call(setup.proxy.address["main"], f"/{SERVICE}/Say", body,
                                     [("grpc-timeout", f"{timeout_ms}m")])
        codes.add(trailers["grpc-status"])
    assert codes <= {b"0", b"4"}
    assert b"4" in codes


@JAVA
def test_cancelled_streams_do_not_cost_other_calls_their_connection(setup, java_providers, java):
    # A Java provider ends a connection that sees more than 200 resets in 30 s.
    client = setup.start(one_route(java_providers[java].address))
    say(client)
    failures, stop = [], threading.Event()

    def others():
        while not stop.is_set():
            code = status_of(lambda: client.say(client.pb.SayRequest(text="x", delay_ms=20), timeout=15))
            if code != grpc.StatusCode.OK:
                failures.append(code)

    thread = threading.Thread(target=others)
    thread.start()
    try:
        for _ in range(300):
            call = client.expand(client.pb.SayRequest(count=3, gap_ms=100), timeout=15)
            next(call)
            call.cancel()
    finally:
        stop.set()
        thread.join()
    assert not failures, f"{len(failures)} other calls failed: {failures[:5]}"
    say(client, 20)
    assert setup.endpoint()["opened"] <= 4, "a new connection for each budget of resets that is spent"


def test_every_cancellation_reaches_dubbo_go(setup, go_provider):
    # The budget of resets is for Java's sake; nobody else's handlers should work on for a client that is gone.
    client = setup.start(one_route(go_provider.address))
    before = client.cancelled()
    for _ in range(250):
        call = client.expand(client.pb.SayRequest(count=1000, gap_ms=20), timeout=60)
        next(call)
        call.cancel()
    for _ in range(100):
        if client.cancelled() - before >= 250:
            break
        time.sleep(0.05)
    assert client.cancelled() - before == 250


@JAVA
def test_bursts_of_cancelled_streams_leave_nothing_running_at_the_provider(setup, java):
    # Streams that are dropped and not reset keep a thread of the provider's 200 each.
    provider = java_provider(java).start()
    try:
        client = setup.start(one_route(provider.address))
        for _ in range(3):
            for _ in range(150):
                call = client.expand(client.pb.SayRequest(count=500, gap_ms=20), timeout=60)
                next(call)
                call.cancel()
            say(client, 5)
        for _ in range(60):
            if setup.endpoint()["streams"] == 0:
                break
            time.sleep(0.05)
        assert setup.endpoint()["streams"] == 0
        say(client, 5)
    finally:
        provider.kill()


# --- windows and sizes ----------------------------------------------------------------------------------

@JAVA
def test_large_replies_side_by_side_on_one_connection(setup, java_providers, java):
    client = setup.start(one_route(java_providers[java].address, proxy={"max_message": "16M"}))
    say(client)
    calls = [client.say.future(client.pb.SayRequest(reply_bytes=6 << 20), timeout=30) for _ in range(6)]
    for call in calls:
        assert len(call.result().payload) == 6 << 20
    assert setup.endpoint()["opened"] == 1


@JAVA
def test_a_slow_reader_does_not_stop_other_calls(setup, java_providers, java):
    client = setup.start(one_route(java_providers[java].address))
    slow = setup.client()
    stream = slow.expand(slow.pb.SayRequest(count=60, reply_bytes=256 << 10), timeout=60)
    next(stream)
    time.sleep(0.5)  # by now every window on the way is full
    start = time.monotonic()
    say(client, 20)
    assert time.monotonic() - start < 5
    assert sum(1 for _ in stream) == 59


def test_a_reply_over_the_provider_s_own_limit_is_reported(setup, java_providers):
    client = setup.start(one_route(java_providers["dubbo-java 3.3"].address, proxy={"max_message": "16M"}))
    with pytest.raises(grpc.RpcError) as failed:
        say(client, reply_bytes=9 << 20)
    assert failed.value.code() in (grpc.StatusCode.UNKNOWN, grpc.StatusCode.RESOURCE_EXHAUSTED)
    assert "Too Large" in failed.value.details()
    say(client, 3)


@JAVA
def test_a_full_thread_pool_is_resource_exhausted(setup, java_providers, java):
    client = setup.start(one_route(java_providers[java].address))
    say(client)
    calls = [client.say.future(client.pb.SayRequest(delay_ms=1000), timeout=6) for _ in range(260)]
    codes = [call.code() for call in calls]
    assert codes.count(grpc.StatusCode.OK) >= 190
    refused = {grpc.StatusCode.RESOURCE_EXHAUSTED}
    if java == "dubbo-java 3.2":
        refused.add(grpc.StatusCode.DEADLINE_EXCEEDED)  # it forgets some that it has no thread for
    assert set(codes) - {grpc.StatusCode.OK} <= refused, set(codes)
    say(client, 3)


# --- names ------------------------------------------------------------------------------------------------

@JAVA
def test_set_service_group_and_version_choose_the_implementation(setup, java_providers, java):
    sections = {"upstream echo": {"endpoints": java_providers[java].address}}
    routes = {"plain": {}, "grey": {"set_group": "grey", "set_version": "2.0"}, "next": {"set_version": "1.1"}}
    for name, keys in routes.items():
        sections[f"route {name}"] = {"match": f"/{SERVICE}/*", "listener": name, "upstream": "echo",
                                     "set_service": JAVA_INTERFACE, **keys}
    setup.start(sections, ["main", *routes])
    seen = {}
    for name in routes:
        client = setup.client(name)
        seen[name] = {say(client).implementation for _ in range(3)}
        streamed = client.expand(client.pb.SayRequest(count=1), timeout=15)
        seen[name] |= {reply.implementation for reply in streamed}
    assert seen == {"plain": {"/"}, "grey": {"grey/2.0"}, "next": {"/1.1"}}


@JAVA
def test_set_service_gives_a_public_name_to_a_java_interface(setup, java_providers, java):
    setup.start(one_route(java_providers[java].address, {"match": "/shop.v1.Greeting/*", "set_service": SERVICE}))
    assert say(setup.client(service="shop.v1.Greeting"), 3).implementation == "/"


def test_set_group_and_version_on_a_route_to_dubbo_go(setup, go_provider):
    client = setup.start(one_route(go_provider.address, {"set_group": "grey", "set_version": "2.0"}))
    assert say(client, 3).implementation == "grey/2.0"


def lower_case_say(client):
    method = client.channel.unary_unary(f"/{SERVICE}/say", request_serializer=client.pb.SayRequest.SerializeToString,
                                        response_deserializer=client.pb.SayReply.FromString)
    return status_of(lambda: method(client.pb.SayRequest(text="x"), timeout=15))


def test_a_method_name_with_a_lower_case_first_letter_reaches_dubbo_go(setup, go_provider):
    assert lower_case_say(setup.start(one_route(go_provider.address))) == grpc.StatusCode.OK


@JAVA
def test_a_lower_case_method_of_a_java_stub_ends_as_directly(setup, java_providers, java):
    direct = python_client(java_providers[java].address)
    wanted = lower_case_say(direct)
    direct.channel.close()
    client = setup.start(one_route(java_providers[java].address))
    assert [lower_case_say(client) for _ in range(2)] == [wanted, wanted]


@JAVA
def test_a_wrapper_service_called_by_a_plain_grpc_client_is_told_so(setup, java_providers, java):
    client = setup.start(one_route(java_providers[java].address))
    method = client.channel.unary_unary(f"/{WRAPPER_SERVICE}/greet", request_serializer=None,
                                        response_deserializer=None)
    body = client.pb.SayRequest(text="ann").SerializeToString()
    for _ in range(2):
        with pytest.raises(grpc.RpcError) as failed:
            method(body, timeout=15)
        assert failed.value.code() != grpc.StatusCode.OK
        assert "wrapper" in failed.value.details().lower(), failed.value.details()
