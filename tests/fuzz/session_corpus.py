#!/usr/bin/python3
"""Writes the corpora of fuzz_server_session and fuzz_client_session: frames as tests/system/h2peer.py builds them.

    session_corpus.py            into corpus/server_session and corpus/client_session beside this file

The first byte of a file is the target's own (see the targets).
"""
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "system"))

from h2peer import (CONTINUATION, END_HEADERS, HEADERS, INITIAL_WINDOW_SIZE, MSG, PING, PREFACE, block, data, frame,  # noqa: E402
                    goaway, headers, request_fields, reset, settings, window_update)

U, S, A = "/u.S/M", "/s.S/M", "/a.S/M"
TRIPLE = {"content_type": "application/proto", "te": None}


def call(stream, path, body=MSG("hi"), extra=(), **more):
    return headers(stream, request_fields(path, extra, **more)) + data(stream, body, end=True)


SERVER = {  # after the preface and SETTINGS, which the target sends
    "unary": call(1, U),
    "stream": call(1, S, MSG("a") + MSG("b")),
    "auto": call(1, A),
    "three": call(1, U) + call(3, S) + call(5, A),
    "no-route": call(1, "/no/route"),
    "bare": call(1, U, b"hi", [("triple-protocol-version", "1.0.0"), ("triple-timeout-ms", "1000")], **TRIPLE),
    "json": call(1, U, b"{}", content_type="application/json", te=None),
    "deadline": call(1, U, extra=[("grpc-timeout", "10S"), ("x-bin", "aGk="), ("grpc-accept-encoding", "gzip")]),
    "gzip": call(1, U, MSG(bytes.fromhex("1f8b080000000000000303000000000000000000"), 1), [("grpc-encoding", "gzip")]),
    "cut": headers(1, request_fields(U)) + data(1, MSG("hi")[:5], end=True),
    "two": call(1, U, MSG("a") + MSG("b")),
    "long": call(1, A, MSG(b"x" * 300)) + call(3, U, MSG(b"y" * 300)),
    "padded": headers(1, request_fields(S)) + data(1, MSG("hi"), True, pad=9),
    "cancelled": headers(1, request_fields(S)) + data(1, MSG("hi")) + reset(1, 8) + call(3, U),
    "windows": settings([(INITIAL_WINDOW_SIZE, 0)]) + call(1, U) + call(3, S) + window_update(1, 9) + window_update(3, 99) +
    settings([(INITIAL_WINDOW_SIZE, 9)]),
    "ping": frame(PING, 0, 0, b"12345678") + call(1, U) + goaway(0),
    "continued": frame(HEADERS, 0, 1, block(request_fields(U)[:3])) + frame(CONTINUATION, END_HEADERS, 1, block(request_fields(U)[3:])) +
    data(1, MSG("hi"), end=True),
    "trailers": headers(1, request_fields(S)) + data(1, MSG("hi")) + headers(1, [("x-late", "1")], end=True),
    "length": call(1, U, extra=[("content-length", "7")]) + call(3, U, extra=[("content-length", "9")]),
    "te": call(1, U, te="gzip") + call(3, U, method="GET"),
}
SERVER_WHOLE = {
    "preface": PREFACE + settings() + call(1, U),
    "http1-post": b"POST /u.S/M HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}",
    "http1-chunked": b"POST /a.S/M HTTP/1.1\r\nhost: a\r\ncontent-type: application/proto\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
    "http1-both": b"POST /u.S/M HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "http1-two": b"GET / HTTP/1.1\r\nhost: a\r\n\r\nPOST /u.S/M HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\n"
                 b"content-type: application/json\r\ncontent-length: 2\r\n\r\n{}",
    "tls": bytes.fromhex("160301020001000001fc0303") + bytes(20),
}

# The proxy's calls are 1 (/u.S/M, bare), 3 (/s.S/M, framed) and 5 (/a.S/M, bare), in whatever order it opens them.
PROTO = [(":status", "200"), ("content-type", "application/proto")]
GRPC = [(":status", "200"), ("content-type", "application/grpc")]


def each(reply):
    return settings() + b"".join(reply(stream) for stream in (1, 3, 5))


def json(status, text):
    return lambda s: headers(s, [(":status", status), ("content-type", "application/json")]) + data(s, text, end=True)


CLIENT = {
    "bare": each(lambda s: headers(s, [*PROTO, ("content-length", "2")]) + data(s, "hi", end=True)),
    "framed": each(lambda s: headers(s, GRPC) + data(s, MSG("hi")) + headers(s, [("grpc-status", "0")], end=True)),
    "mixed": settings() + b"".join(headers(s, PROTO) + data(s, "hi", end=True) for s in (1, 5)) +
    headers(3, GRPC) + data(3, MSG("hi")) + headers(3, [("grpc-status", "0")], end=True),
    "trailers-only": each(lambda s: headers(s, [*GRPC, ("grpc-status", "5"), ("grpc-message", "a%20b")], end=True)),
    "details": each(lambda s: headers(s, [*GRPC, ("grpc-status", "5"), ("grpc-status-details-bin", "CAUSAWE")], end=True)),
    "json": each(json("404", '{"code":"not_found","message":"m","details":[{"type":"a.B","value":"CgE"}]}')),
    "json-no-code": each(json("404", "{}")),
    "refused": each(lambda s: headers(s, [(":status", "415"), ("content-length", "0")], end=True)),
    "refused-java": each(lambda s: headers(s, [(":status", "415"), ("content-type", "application/grpc"), ("grpc-status", "13")], end=True)),
    "refused-then": each(lambda s: headers(s, [(":status", "415")], end=True)) +
    b"".join(headers(s, GRPC) + data(s, MSG("hi")) + headers(s, [("grpc-status", "0")], end=True) for s in (3, 7, 9)),
    "reset": each(lambda s: reset(s, 7)) + goaway(5),
    "goaway": settings() + goaway(1) + headers(1, PROTO) + data(1, "hi", end=True),
    "interim": each(lambda s: headers(s, [(":status", "100")]) + headers(s, PROTO) + data(s, "hi", end=True)),
    "early": each(lambda s: headers(s, GRPC) + data(s, MSG("a") + MSG("b")[:3])),
    "two": each(lambda s: headers(s, GRPC) + data(s, MSG("a") + MSG("b")) + headers(s, [("grpc-status", "0")], end=True)),
    "windows": settings([(INITIAL_WINDOW_SIZE, 0), (3, 1)]) + window_update(1, 1) + window_update(0, 9) + settings([(3, 0)]) +
    frame(PING, 0, 0, b"12345678"),
    "page": each(lambda s: headers(s, [(":status", "502"), ("content-type", "text/html")]) + data(s, "<html>", end=True)),
    "gzip": each(lambda s: headers(s, [*PROTO, ("content-encoding", "gzip")]) +
                 data(s, bytes.fromhex("1f8b080000000000000303000000000000000000"), end=True)),
}


def write(folder, files):
    folder = HERE / "corpus" / folder
    folder.mkdir(parents=True, exist_ok=True)
    for name, payload in files:
        (folder / name).write_bytes(payload)


if __name__ == "__main__":
    server = [(name, b"\x40" + payload) for name, payload in SERVER.items()]
    server += [("pieces-" + name, bytes((0xc2,)) + SERVER[name]) for name in ("three", "bare", "windows", "long")]
    server += [("whole-" + name, b"\x00" + payload) for name, payload in SERVER_WHOLE.items()]
    write("server_session", server)
    client = [(name, b"\x00" + payload) for name, payload in CLIENT.items()]
    client += [("pieces-" + name, bytes((0x82,)) + CLIENT[name]) for name in ("bare", "framed", "refused-then", "goaway")]
    write("client_session", client)
