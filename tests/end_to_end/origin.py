"""A real HTTP origin behind a cache: it sends the answers of the test and records the requests."""

from __future__ import annotations

import base64
import hashlib
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from quaestor.testing.serving import served


@dataclass
class Answer:
    """body: None for one that counts the requests to its target."""

    headers: Mapping[str, str] = field(default_factory=dict)
    body: str | None = None
    status: int = 200


@dataclass
class Asked:
    method: str
    target: str
    headers: Message


class Origin:
    """answers: by path; `default` for the rest. asked: every request, in order."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.answers: dict[str, Answer] = {}
        self.default = Answer(headers={"cache-control": "no-store"})
        self.asked: list[Asked] = []
        self._held: dict[str, tuple[threading.Event, threading.Event]] = {}

    def count(self, target: str) -> int:
        """How often this target was fetched."""
        return sum(request.target == target and request.method == "GET" for request in self.asked)

    @contextmanager
    def held(self, path: str) -> Iterator[threading.Event]:
        """Requests for this path are answered with what was true when they came, but only after the block.

        Yields an event that is set when one has come.
        """
        came, go = threading.Event(), threading.Event()
        self._held[path] = (came, go)
        try:
            yield came
        finally:
            del self._held[path]
            go.set()

    def answer(self, request: Asked) -> tuple[Answer, str]:
        path = request.target.partition("?")[0]
        self.asked.append(request)
        answer = self.answers.get(path, self.default)
        body = f"{request.target} #{self.count(request.target)}" if answer.body is None else answer.body
        if path in self._held:
            came, go = self._held[path]
            came.set()
            go.wait(timeout=30)
        return answer, body


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    timeout = 30
    server: _Server

    def handle_any(self) -> None:
        if self.headers.get("upgrade", "").lower() == "websocket":
            self._echo()
            return
        length = int(self.headers.get("content-length", 0))
        self.rfile.read(length)
        answer, text = self.server.origin.answer(Asked(self.command, self.path, self.headers))
        body = text.encode()
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_HEAD = do_POST = do_PURGE = handle_any  # noqa: N815

    def _echo(self) -> None:
        """Accept a WebSocket (RFC 6455) and send back the first bytes that come, as they are."""
        guid = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        accept = base64.b64encode(hashlib.sha1((self.headers["sec-websocket-key"] + guid).encode()).digest())
        self.send_response(101)
        self.send_header("upgrade", "websocket")
        self.send_header("connection", "Upgrade")
        self.send_header("sec-websocket-accept", accept.decode())
        self.end_headers()
        self.wfile.write(self.rfile.read1(100))
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    origin: Origin


@contextmanager
def origin(port: int) -> Iterator[Origin]:
    """Runs on this loopback port until the block ends."""
    server = _Server(("127.0.0.1", port), _Handler)
    server.origin = Origin(port)
    with served(server):
        yield server.origin
