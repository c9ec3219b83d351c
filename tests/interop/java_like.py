"""A provider made by hand that refuses bare calls as dubbo-java does and records every frame it gets.

For what a real provider cannot show: which frames a call arrived in, and what the client's SETTINGS
and windows were. One thread a connection; replies are an empty message and status 0.
"""
import socket
import threading

import hpack
from hyperframe.frame import (DataFrame, Frame, GoAwayFrame, HeadersFrame, PingFrame, RstStreamFrame,
                              SettingsFrame, WindowUpdateFrame)

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


class Connection:
    """What one client connection sent."""

    def __init__(self):
        self.settings = None      # of the first SETTINGS frame, {id: value}
        self.frames = []          # all frames but SETTINGS and PING, in order
        self.headers = {}         # {stream: [(name, value)]}, text
        self.before_headers = []  # frames before the first HEADERS

    def of(self, stream):
        return [frame for frame in self.frames if frame.stream_id == stream]

    def resets(self):
        return [frame for frame in self.frames if isinstance(frame, RstStreamFrame)]

    def connection_credit(self):
        """What WINDOW_UPDATE gave the connection before the first request, on top of 65535."""
        return sum(frame.window_increment for frame in self.before_headers
                   if isinstance(frame, WindowUpdateFrame) and frame.stream_id == 0)


class JavaLike:
    """address; connections. kind "3.3" refuses with a JSON 404, "3.2" with 415 and status 13.

    answer = False: calls are never answered. reset_with: they are reset with that code, as by a full thread pool.
    """

    def __init__(self, kind="3.3", answer=True, reset_with=None):
        self.kind, self.answer, self.reset_with = kind, answer, reset_with
        self.connections = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listener.getsockname()[1]
        self.links = []
        threading.Thread(target=self._accept, daemon=True).start()

    def stop(self):
        self.listener.close()
        for link in self.links:
            link.close()

    def goaway(self):
        """Says NO_ERROR on every connection and keeps it open, as dubbo-java does whatever the reason."""
        for link, seen in zip(self.links, self.connections):
            link.sendall(GoAwayFrame(0, last_stream_id=max(seen.headers, default=0)).serialize())

    def calls(self):
        """[(headers as dict, frames)] of all calls, in order."""
        return [(dict(headers), each.of(stream)) for each in list(self.connections)
                for stream, headers in sorted(each.headers.items())]

    def _accept(self):
        while True:
            try:
                link, _ = self.listener.accept()
            except OSError:
                return
            self.links.append(link)
            self.connections.append(Connection())
            threading.Thread(target=self._serve, args=(link, self.connections[-1]), daemon=True).start()

    def _serve(self, link, seen):
        try:
            self._read(link, seen)
        except OSError:
            pass  # stop(), or the client has gone

    def _read(self, link, seen):
        decoder, encoder = hpack.Decoder(), hpack.Encoder()
        assert self._exactly(link, len(PREFACE)) == PREFACE
        ours = SettingsFrame(0, settings={SettingsFrame.MAX_CONCURRENT_STREAMS: 2 ** 31 - 1,
                                          SettingsFrame.INITIAL_WINDOW_SIZE: 8 << 20})
        link.sendall(ours.serialize() + WindowUpdateFrame(0, window_increment=16 << 20).serialize())
        while True:
            frame, length = Frame.parse_frame_header(memoryview(self._exactly(link, 9)))
            frame.parse_body(memoryview(self._exactly(link, length)))
            if isinstance(frame, SettingsFrame):
                if "ACK" not in frame.flags:
                    seen.settings = seen.settings or dict(frame.settings)
                    link.sendall(SettingsFrame(0, flags=["ACK"]).serialize())
                continue
            if isinstance(frame, PingFrame):
                if "ACK" not in frame.flags:
                    link.sendall(PingFrame(0, frame.opaque_data, flags=["ACK"]).serialize())
                continue
            if not seen.headers:
                seen.before_headers.append(frame)
            seen.frames.append(frame)
            if isinstance(frame, HeadersFrame):
                seen.headers[frame.stream_id] = [(str(name), str(value)) for name, value in decoder.decode(frame.data)]
            if isinstance(frame, HeadersFrame) and self.reset_with is not None:
                link.sendall(RstStreamFrame(frame.stream_id, error_code=self.reset_with).serialize())
            elif "END_STREAM" in frame.flags and self.answer:
                link.sendall(self._reply(frame.stream_id, dict(seen.headers[frame.stream_id]), encoder))

    def _reply(self, stream, request, encoder):
        def headers(fields, *flags):
            return HeadersFrame(stream, encoder.encode(fields), flags=["END_HEADERS", *flags]).serialize()

        def data(text, *flags):
            return DataFrame(stream, text, flags=list(flags)).serialize()

        if request["content-type"].startswith("application/grpc"):
            return (headers([(":status", "200"), ("te", "trailers"), ("content-type", "application/grpc")])
                    + data(b"\0\0\0\0\0") + headers([("grpc-status", "0")], "END_STREAM"))
        if self.kind == "3.3":
            return (headers([(":status", "404"), ("content-type", "application/json")])
                    + data(b'{"message":"Invoker not found","status":"404"}', "END_STREAM"))
        return (headers([(":status", "415"), ("content-type", "text/plain; encoding=utf-8"), ("grpc-status", "13"),
                         ("grpc-message", f"Content-Type '{request['content-type']}' is not supported")])
                + data(f"Content-Type '{request['content-type']}' is not supported".encode(), "END_STREAM"))

    @staticmethod
    def _exactly(link, length):
        got = b""
        while len(got) < length:
            part = link.recv(length - len(got))
            if not part:
                raise OSError("closed")
            got += part
        return got
