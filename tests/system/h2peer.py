"""Scripted HTTP/2 peers for the system tests: a client C and a provider U whose every frame is ours.

Frames are built by hand, so that illegal ones are as easy as legal ones, and what the proxy sends is kept frame by
frame. A peer answers SETTINGS and PING and returns window for DATA by itself, unless told otherwise; everything else is
the test's. Every wait is bounded.

    client = Client(target)                         provider = Provider(answer)
    reply = client.call(path, MSG("hi"))            provider.requests[0].fields, .body, .frames
"""
import contextlib
import socket
import struct
import threading
import time

import hpack

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, END_HEADERS, PADDED, ACK = 1, 4, 8, 1
NO_ERROR, PROTOCOL_ERROR, CANCEL, ENHANCE_YOUR_CALM = 0, 1, 8, 11
HEADER_TABLE_SIZE, ENABLE_PUSH, MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE = 1, 2, 3, 4
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SECONDS = 10.0


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload


def _bytes(text):
    return text if isinstance(text, bytes) else text.encode()


def _length(number):
    """HPACK integer with a 7-bit prefix, Huffman bit off."""
    if number < 127:
        return bytes((number,))
    number, out = number - 127, bytearray((127,))
    while number >= 128:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes(out) + bytes((number,))


def block(fields):
    """A header block of literals without indexing: no state, nothing checked."""
    out = b""
    for name, value in fields:
        name, value = _bytes(name), _bytes(value)
        out += b"\0" + _length(len(name)) + name + _length(len(value)) + value
    return out


def headers(stream, fields, end=False):
    """HEADERS, and CONTINUATION where the block is longer than a frame."""
    rest, frames, kind = block(fields), b"", HEADERS
    while True:
        part, rest = rest[:16384], rest[16384:]
        flags = (END_STREAM if end and kind == HEADERS else 0) | (0 if rest else END_HEADERS)
        frames += frame(kind, flags, stream, part)
        kind = CONTINUATION
        if not rest:
            return frames


def data(stream, payload=b"", end=False, pad=None):
    payload = _bytes(payload)
    if pad is not None:
        return frame(DATA, PADDED | (END_STREAM if end else 0), stream, bytes((pad,)) + payload + bytes(pad))
    frames, most = b"", 16384
    while len(payload) > most:
        frames, payload = frames + frame(DATA, 0, stream, payload[:most]), payload[most:]
    return frames + frame(DATA, END_STREAM if end else 0, stream, payload)


def reset(stream, code):
    return frame(RST_STREAM, 0, stream, struct.pack(">I", code))


def settings(pairs=(), ack=False):
    return frame(SETTINGS, ACK if ack else 0, 0, b"".join(struct.pack(">HI", *pair) for pair in pairs))


def goaway(last, code=NO_ERROR, debug=b""):
    return frame(GOAWAY, 0, 0, struct.pack(">II", last, code) + debug)


def window_update(stream, increment):
    return frame(WINDOW_UPDATE, 0, stream, struct.pack(">I", increment))


def MSG(payload=b"", flag=0, length=None):
    """A gRPC message; length: what its prefix says, if that is not the truth."""
    payload = _bytes(payload)
    return struct.pack(">BI", flag, len(payload) if length is None else length) + payload


def messages(body):
    """The (flag, payload) pairs of a framed body; what is left over comes last as (None, bytes)."""
    found = []
    while len(body) >= 5 and len(body) >= 5 + struct.unpack(">I", body[1:5])[0]:
        length = struct.unpack(">I", body[1:5])[0]
        found.append((body[0], body[5:5 + length]))
        body = body[5 + length:]
    return found + ([(None, body)] if body else [])


class Stream:
    """What the other side has sent on one stream."""

    def __init__(self, peer, number):
        self.peer, self.id = peer, number
        self.heads, self.head_times, self.frames = [], [], []  # frames: (kind, flags, length)
        self.body, self.data_times = b"", []
        self.end = None         # DATA or HEADERS: the frame that had END_STREAM
        self.reset = None       # the code of its RST_STREAM
        self.began, self.ended = time.monotonic(), None

    @property
    def done(self):
        return self.end is not None or self.reset is not None

    @property
    def fields(self):
        return self.heads[0] if self.heads else []

    def all(self, name):
        """All values of that field, in every block, in order."""
        return [value for head in self.heads for key, value in head if key == name]

    def one(self, name):
        """The one value; None without; a failure where there are several."""
        values = self.all(name)
        assert len(values) < 2, f"several {name}: {values}"
        return values[0] if values else None

    @property
    def http(self):
        return int(self.one(":status"))

    @property
    def code(self):
        value = self.one("grpc-status")
        return None if value is None else int(value)

    @property
    def message(self):
        return self.one("grpc-message") or ""

    @property
    def messages(self):
        return messages(self.body)

    def says(self, code, payloads=(), trailers_only=None):
        """Checks that this is a right gRPC reply with that code and those messages; returns itself."""
        seen = f"heads {self.heads}, body {self.body[:100]!r}, reset {self.reset}, end {self.end}, " \
               f"connection closed {self.peer.closed}, goaway {self.peer.goaway}"
        assert self.heads and self.reset in (None, NO_ERROR), seen
        assert self.http == 200 and self.one("content-type").startswith("application/grpc"), seen
        assert self.code == code, seen
        assert self.end == HEADERS, seen
        assert self.one("content-encoding") is None and self.one("content-length") is None, seen
        assert [payload for _, payload in self.messages] == [_bytes(payload) for payload in payloads], seen
        if trailers_only is not None:
            assert (len(self.heads) == 1 and not self.frames_of(DATA)) == trailers_only, seen
        return self

    def frames_of(self, kind):
        return [each for each in self.frames if each[0] == kind]


class Peer:
    """One connection and its reader thread."""

    def __init__(self, sock, server, on_stream=None, credit=True, initial=(), record=True):
        self.sock, self.server, self.on_stream, self.credit = sock, server, on_stream, credit
        self.changed = threading.Condition()
        self.streams, self.settings, self.pings, self.goaways = {}, {}, [], []
        self.goaway, self.closed, self.settings_acks, self.frame_count = None, False, 0, 0
        self.decoder = hpack.Decoder()
        self.decoder.max_header_list_size = 1 << 20
        self.partial = None  # (stream, flags, block) while CONTINUATION is awaited
        self.window, self.stream_windows = 65535, {}
        self.next_id = 1
        self.lock = threading.Lock()
        sock.settimeout(SECONDS)
        first = settings(initial or ((INITIAL_WINDOW_SIZE, 1 << 24),)) + (window_update(0, 1 << 28) if credit else b"")
        self.raw((b"" if server else PREFACE) + first)
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    # --- sending ---

    def raw(self, payload):
        """These bytes, now, in one send()."""
        with self.lock, contextlib.suppress(OSError):
            self.sock.sendall(payload)

    def send(self, stream, payload, end=False, seconds=SECONDS):
        """DATA as the proxy's windows allow."""
        payload, limit = _bytes(payload), time.monotonic() + seconds
        while True:
            with self.changed:
                room = self.changed.wait_for(lambda: self._over(stream) or not payload or self._room(stream) > 0,
                                             max(0, limit - time.monotonic()))
                if self._over(stream):
                    return
                assert room, f"no window for {len(payload)} bytes on stream {stream}"
                part = payload[:max(0, min(self._room(stream), 16384))]
                self.window -= len(part)
                self.stream_windows[stream] = self._stream_window(stream) - len(part)
            payload = payload[len(part):]
            self.raw(data(stream, part, end and not payload))
            if not payload:
                return

    def _over(self, number):
        """The other side wants no more of this stream."""
        return self.closed or (number in self.streams and self.streams[number].reset is not None)

    def _stream_window(self, stream):
        return self.stream_windows.get(stream, self.settings.get(INITIAL_WINDOW_SIZE, 65535))

    def _room(self, stream):
        return min(self.window, self._stream_window(stream))

    def close(self):
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        self.sock.close()

    # --- receiving ---

    def wait(self, condition, what="the peer", seconds=SECONDS):
        with self.changed:
            value = self.changed.wait_for(condition, seconds)
        assert value, f"{what}: not within {seconds} s; streams {[(s.id, s.heads, s.body[:60], s.end, s.reset) for s in self.streams.values()]}, " \
                      f"goaway {self.goaway}, closed {self.closed}"
        return value

    def ended(self, stream, seconds=SECONDS):
        """Waits for the end of the stream (or of the connection); the Stream."""
        found = self.streams.setdefault(stream, Stream(self, stream))
        self.wait(lambda: found.done or self.closed, f"end of stream {stream}", seconds)
        return found

    def ping(self, seconds=SECONDS):
        """Round trip; its seconds."""
        before, began = len(self.pings), time.monotonic()
        self.raw(frame(PING, 0, 0, b"abcdefgh"))
        self.wait(lambda: len(self.pings) > before, "PING's ACK", seconds)
        return time.monotonic() - began

    def _exactly(self, count):
        got = bytearray()
        while len(got) < count:
            try:
                part = self.sock.recv(count - len(got))
            except socket.timeout:
                continue
            if not part:
                raise OSError("closed")
            got += part
        return bytes(got)

    def _read(self):
        with contextlib.suppress(OSError, ValueError):
            if self.server and self._exactly(len(PREFACE)) != PREFACE:
                raise OSError("no preface")
            while True:
                head = self._exactly(9)
                length, kind, flags = int.from_bytes(head[:3], "big"), head[3], head[4]
                stream = int.from_bytes(head[5:], "big") & 0x7fffffff
                payload = self._exactly(length)
                with self.changed:
                    self.frame_count += 1
                    started = self._take(kind, flags, stream, payload)
                    self.changed.notify_all()
                if started:
                    threading.Thread(target=self.on_stream, args=(self, started), daemon=True).start()
        with self.changed:
            self.closed = True
            self.changed.notify_all()

    def _stream(self, number):
        return self.streams.setdefault(number, Stream(self, number))

    def _take(self, kind, flags, number, payload):
        """One frame; the stream that it begins, where a handler waits for those."""
        if kind == SETTINGS and not flags & ACK:
            for at in range(0, len(payload), 6):
                key, value = struct.unpack(">HI", payload[at:at + 6])
                if key == INITIAL_WINDOW_SIZE:
                    more = value - self.settings.get(key, 65535)
                    self.stream_windows = {each: window + more for each, window in self.stream_windows.items()}
                self.settings[key] = value
            self.raw(settings(ack=True))
        elif kind == SETTINGS:
            self.settings_acks += 1
        elif kind == PING and flags & ACK:
            self.pings.append(time.monotonic())
        elif kind == PING:
            self.raw(frame(PING, ACK, 0, payload))
        elif kind == GOAWAY:
            self.goaway = struct.unpack(">II", payload[:8])  # the last one
            self.goaways.append(self.goaway)
        elif kind == WINDOW_UPDATE:
            more = struct.unpack(">I", payload)[0]
            if number == 0:
                self.window += more
            else:
                self.stream_windows[number] = self._stream_window(number) + more
        elif kind == RST_STREAM:
            stream = self._stream(number)
            stream.reset, stream.ended = struct.unpack(">I", payload)[0], time.monotonic()
        elif kind == DATA:
            self._take_data(self._stream(number), flags, payload)
        elif kind in (HEADERS, CONTINUATION):
            return self._take_block(kind, flags, number, payload)
        return None

    def _take_data(self, stream, flags, payload):
        stream.frames.append((DATA, flags, len(payload)))
        if flags & PADDED:
            payload = payload[1:len(payload) - payload[0]]
        stream.body += payload
        stream.data_times.append(time.monotonic())
        if flags & END_STREAM:
            stream.end, stream.ended = DATA, time.monotonic()
        elif self.credit and payload:
            self.raw(window_update(stream.id, len(payload)))

    def _take_block(self, kind, flags, number, payload):
        if kind == HEADERS:
            self.partial = (flags, b"")
        flags_first, so_far = self.partial
        self.partial = (flags_first, so_far + payload)
        if not flags & END_HEADERS:
            return None
        stream = self._stream(number)
        fields = [(name, value) for name, value in self.decoder.decode(self.partial[1], raw=True)]
        stream.heads.append([(name.decode("latin-1"), value.decode("latin-1")) for name, value in fields])
        stream.head_times.append(time.monotonic())
        stream.frames.append((HEADERS, flags_first, len(self.partial[1])))
        if flags_first & END_STREAM:
            stream.end, stream.ended = HEADERS, time.monotonic()
        return stream if self.on_stream and len(stream.heads) == 1 else None


def request_fields(path, extra=(), content_type="application/grpc", te="trailers", method="POST"):
    fields = [(":method", method), (":scheme", "http"), (":path", path), (":authority", "test")]
    fields += [("te", te)] if te else []
    fields += [("content-type", content_type)] if content_type else []
    return fields + list(extra)


class Client(Peer):
    """C: a client of the proxy."""

    def __init__(self, target, **options):
        host, _, port = target.rpartition(":")
        sock = socket.create_connection((host.strip("[]"), int(port)), timeout=SECONDS)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        super().__init__(sock, server=False, **options)

    def new_id(self):
        number, self.next_id = self.next_id, self.next_id + 2
        self.streams[number] = Stream(self, number)
        return number

    def open(self, path, extra=(), end=False, **more):
        """Sends HEADERS; the stream's id."""
        number = self.new_id()
        self.raw(headers(number, request_fields(path, extra, **more), end))
        return number

    def call(self, path, body=MSG("hi"), extra=(), seconds=SECONDS, **more):
        """HEADERS and DATA with END_STREAM, in one segment where it is short; waits for the reply's end."""
        number = self.new_id()
        head = headers(number, request_fields(path, extra, **more))
        if len(body) <= 8192:
            self.raw(head + data(number, body, end=True))
        else:
            self.raw(head)
            self.send(number, body, end=True, seconds=seconds)
        return self.ended(number, seconds)


class Provider:
    """U: accepts connections; `answer(peer, stream)` runs in a thread of its own when a request's head has come."""

    def __init__(self, answer, whole=True, port=0, **options):
        """whole: answer() is called when the request has ended."""
        self.answer, self.whole, self.options = answer, whole, options
        self.peers, self.requests = [], []
        self.problems = []
        self.listening = socket.create_server(("127.0.0.1", port), backlog=128)
        self.target = "127.0.0.1:%d" % self.listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self.listening.accept()
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self.peers.append(Peer(sock, server=True, on_stream=self._on_stream, **self.options))

    def _on_stream(self, peer, stream):
        self.requests.append(stream)
        if self.whole:
            with peer.changed:
                peer.changed.wait_for(lambda: stream.done or peer.closed, 60)
            if stream.reset is not None or peer.closed:
                return
        try:
            self.answer(peer, stream)
        except Exception as problem:  # shown by close(): a thread's failure fails no test
            self.problems.append(repr(problem))

    def close(self):
        with contextlib.suppress(OSError):
            self.listening.shutdown(socket.SHUT_RDWR)
        self.listening.close()
        for peer in self.peers:
            peer.close()
        assert not self.problems, self.problems


def bare(peer, stream, body=None, status="200", content_type="application/proto", extra=(), length=True):
    """A Triple reply: HEADERS, DATA with END_STREAM. body None: the request's."""
    body = stream.body if body is None else _bytes(body)
    fields = [(":status", status), ("content-type", content_type)]
    fields += [("content-length", str(len(body)))] if length else []
    peer.raw(headers(stream.id, fields + list(extra)))
    peer.send(stream.id, body, end=True)


def framed(peer, stream, body=None, code="0", head=(), trailers=(), content_type="application/grpc"):
    """A gRPC reply: HEADERS, DATA, trailers. body None: the request's."""
    peer.raw(headers(stream.id, [(":status", "200"), ("content-type", content_type), *head]))
    body = stream.body if body is None else _bytes(body)
    if body:
        peer.send(stream.id, body)
    peer.raw(headers(stream.id, [("grpc-status", code), *trailers], end=True))


def json_error(peer, stream, status, text, extra=()):
    bare(peer, stream, text, status, "application/json", extra)


def either(peer, stream):
    """Echoes in the form of the request."""
    kind = stream.one("content-type")
    framed(peer, stream) if kind.startswith("application/grpc") else bare(peer, stream, content_type=kind)
