"""The grpcio client of the interop tests: the cases of the other gRPC clients.

--target HOST:PORT --pb DIR [--cases a,b,c] [--service NAME]; one line of JSON for each case. DIR holds
echo_pb2.py, made by protoc. Every call has a deadline, so that no case can hang.
"""

import argparse
import base64
import json
import queue
import sys
import time

import grpc

FOUR_MIB = 4 * 1024 * 1024
LENGTH = 20
ERROR_TEXT = "no such thing: 100% + two"
TRAILER = "x-interop-trailer"
HEADER = "x-interop-header"
LIMIT_S = 15


def payload(length):
    """Bytes that repeat with a period that no buffer size divides, so that a shifted copy is seen."""
    return bytes(i % 251 for i in range(251)) * (length // 251) + bytes(range(length % 251))


class Client:
    def __init__(self, target, service, pb):
        self.pb = pb
        self.channel = grpc.insecure_channel(target, options=[
            ("grpc.max_receive_message_length", 16 * 1024 * 1024),
            ("grpc.enable_retries", 0),
            ("grpc.use_local_subchannel_pool", 1),
        ])
        codec = {"request_serializer": pb.SayRequest.SerializeToString,
                 "response_deserializer": pb.SayReply.FromString}
        self.say = self.channel.unary_unary(f"/{service}/Say", **codec)
        self.expand = self.channel.unary_stream(f"/{service}/Expand", **codec)
        self.collect = self.channel.stream_unary(f"/{service}/Collect", **codec)
        self.chat = self.channel.stream_stream(f"/{service}/Chat", **codec)
        self.count = self.channel.unary_unary(
            f"/{service}/Count", request_serializer=pb.CountRequest.SerializeToString,
            response_deserializer=pb.CountReply.FromString)

    def cancelled(self):
        return self.count(self.pb.CountRequest(), timeout=LIMIT_S).cancelled

    def failing(self, code, message):
        return self.pb.SayRequest(text="fails", fail=self.pb.Failure(code=code, message=message),
                                  trailing=[self.pb.Entry(key=TRAILER, value="kept")])

    def numbered(self):
        return [self.pb.SayRequest(text=f"n{i}", payload=payload(100 + i)) for i in range(LENGTH)]


def echoed(request, reply):
    assert reply.text == request.text, f"text: {reply.text[:100]!r}"
    assert reply.payload == request.payload, f"payload of {len(reply.payload)} bytes"


def in_order(replies, count):
    assert [each.index for each in replies] == list(range(count)), [each.index for each in replies]


def fails(call):
    """The error that call() ends with."""
    try:
        call()
    except grpc.RpcError as error:
        return error
    raise AssertionError("the call went well, an error was wanted")


def code_of(error):
    return error.code().value[0]


def case_unary(client, _facts):
    request = client.pb.SayRequest(text="hello", payload=payload(64))
    echoed(request, client.say(request, timeout=LIMIT_S))


def case_error(client, facts):
    error = fails(lambda: client.say(client.failing(5, ERROR_TEXT), timeout=LIMIT_S))
    facts["message"] = error.details()
    facts["metadata"] = dict(error.trailing_metadata() or ()).get(TRAILER) == "kept"
    assert code_of(error) == 5, error
    assert ERROR_TEXT in error.details(), error.details()


def case_deadline(client, facts):
    start = time.monotonic()
    error = fails(lambda: client.say(client.pb.SayRequest(text="slow", delay_ms=1500), timeout=0.3))
    seconds = time.monotonic() - start
    assert code_of(error) == 4, error
    assert 0.25 <= seconds <= 1.0, f"deadline after {seconds:.3f} s"
    case_unary(client, facts)


def case_cancel(client, facts):
    call = client.say.future(client.pb.SayRequest(text="slow", delay_ms=2000), timeout=LIMIT_S)
    time.sleep(0.2)
    assert call.cancel(), "the call could be cancelled"
    assert call.cancelled()
    case_unary(client, facts)


def case_server(client, _facts):
    replies = list(client.expand(client.pb.SayRequest(text="stream", count=LENGTH, gap_ms=2), timeout=LIMIT_S))
    in_order(replies, LENGTH)


def case_client(client, _facts):
    requests = client.numbered()
    reply = client.collect(iter(requests), timeout=LIMIT_S)
    assert reply.index == LENGTH, reply.index
    assert reply.total_bytes == sum(len(each.payload) for each in requests), reply.total_bytes


def case_bidi(client, _facts):
    outgoing = queue.Queue()
    replies = client.chat(iter(outgoing.get, None), timeout=LIMIT_S)
    try:
        for request in client.numbered():
            outgoing.put(request)
            echoed(request, next(replies))
    finally:
        outgoing.put(None)
    assert next(replies, None) is None, "a reply too many"


def case_big(client, _facts):
    request = client.pb.SayRequest(text="big", payload=payload(FOUR_MIB))
    echoed(request, client.say(request, timeout=LIMIT_S))


def case_gzip(client, _facts):
    request = client.pb.SayRequest(text="squeezed" * 8192)
    echoed(request, client.say(request, timeout=LIMIT_S, compression=grpc.Compression.Gzip))


def case_codes(client, _facts):
    for code in range(1, 17):
        error = fails(lambda wanted=code: client.say(client.failing(wanted, f"code {wanted}"), timeout=LIMIT_S))
        assert code_of(error) == code, error
        assert f"code {code}" in error.details(), error.details()


def case_raw_message(client, facts):
    text = "50% + caf\u00e9\nline two"
    error = fails(lambda: client.say(client.failing(9, text), timeout=LIMIT_S))
    facts["message"] = error.details()
    assert code_of(error) == 9, error
    assert text in error.details(), error.details()


def case_metadata(client, facts):
    request = client.pb.SayRequest(
        want_headers=True, leading=[client.pb.Entry(key="x-interop-leading", value="first")],
        trailing=[client.pb.Entry(key=TRAILER, value="last")])
    reply, call = client.say.with_call(request, timeout=LIMIT_S, metadata=(
        (HEADER, "text value"), ("x-interop-bin", b"\x00\x01\x02\xfe\xff")))
    facts["leading"] = str(dict(call.initial_metadata()).get("x-interop-leading"))
    facts["trailing"] = str(dict(call.trailing_metadata()).get(TRAILER))
    seen = {entry.key: entry.value for entry in reply.headers}
    facts["headers"] = " ".join(sorted(seen))
    assert seen.get(HEADER) == "text value", seen
    assert base64.b64decode(seen["x-interop-bin"].rstrip("=") + "=") == b"\x00\x01\x02\xfe\xff", seen


def case_cancel_stream(client, _facts):
    before = client.cancelled()
    call = client.expand(client.pb.SayRequest(text="stream", count=100, gap_ms=50), timeout=LIMIT_S)
    in_order([next(call) for _ in range(3)], 3)
    call.cancel()
    for _ in range(40):
        if client.cancelled() != before:
            break
        time.sleep(0.05)
    assert client.cancelled() > before, "the provider saw a cancelled call"


def case_stream_error(client, _facts):
    request = client.pb.SayRequest(text="stream", count=10, gap_ms=1, fail=client.pb.Failure(
        code=8, message="enough of it", after=3))
    replies = []
    error = fails(lambda: replies.extend(iter(client.expand(request, timeout=LIMIT_S).__next__, None)))
    assert code_of(error) == 8, error
    assert "enough of it" in error.details(), error.details()


def case_empty(client, _facts):
    reply = client.say(client.pb.SayRequest(empty_reply=True), timeout=LIMIT_S)
    assert reply == client.pb.SayReply(), reply


def case_concurrent(client, _facts):
    requests = [client.pb.SayRequest(text=f"c{i}", payload=payload(64)) for i in range(100)]
    calls = [client.say.future(request, timeout=LIMIT_S) for request in requests]
    for request, call in zip(requests, calls):
        echoed(request, call.result())


CASES = {name[len("case_"):]: body for name, body in list(globals().items()) if name.startswith("case_")}


def run_one(name, client):
    facts = {}
    detail = ""
    try:
        CASES[name](client, facts)
    except KeyError as error:
        detail = f"no such case or entry: {error}"
    except Exception as error:  # each case's failure is a line, whatever it is
        detail = f"{type(error).__name__}: {error}".replace("\n", " | ") or "failed"
    print(json.dumps({"case": name, "ok": not detail, "detail": detail[:600], "facts": facts}), flush=True)
    return not detail


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--target", required=True)
    parser.add_argument("--pb", required=True)
    parser.add_argument("--cases", default="")
    parser.add_argument("--service", default="tributary.interop.Echo")
    given = parser.parse_args()
    sys.path.insert(0, given.pb)
    import echo_pb2

    client = Client(given.target, given.service, echo_pb2)
    wanted = given.cases.split(",") if given.cases else list(CASES)
    results = [run_one(name, client) for name in wanted]
    client.channel.close()
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
