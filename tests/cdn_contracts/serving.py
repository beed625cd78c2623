"""A contract on a port of this machine: requests recorded as they came, answers as the contract says, faults on demand."""

from __future__ import annotations

import json
import socket
import ssl
import struct
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Protocol
from urllib.parse import parse_qsl, urlsplit

from quaestor.testing.serving import served as in_a_thread


@dataclass(frozen=True, slots=True)
class Received:
    """A request as it came.

    target: path and query as they were on the wire.
    fields: names in lower case.
    """

    method: str
    target: str
    fields: dict[str, str]
    body: bytes

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    @property
    def query(self) -> dict[str, str]:
        return dict(parse_qsl(urlsplit(self.target).query, keep_blank_values=True))

    def json(self) -> object:
        return json.loads(self.body)


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer of a contract."""

    status: int
    body: bytes = b""
    fields: dict[str, str] = field(default_factory=dict)


def json_reply(status: int, value: object, **fields: str) -> Reply:
    """An answer in JSON. An underscore in a field's name is a hyphen."""
    named = {name.replace("_", "-"): text for name, text in fields.items()}
    return Reply(status, json.dumps(value).encode(), {"content-type": "application/json"} | named)


CUT = Reply(0)
"""The connection is reset without an answer."""
HTML = Reply(200, b"<!doctype html><html><body>Welcome</body></html>", {"content-type": "text/html"})
"""The answer of a captive portal, or of a wrong base URL: 200, and nothing was purged."""
BROKEN = Reply(503, b"<html>Service Unavailable</html>", {"content-type": "text/html"})


class Contract(Protocol):
    """The promises of a provider's documentation. Called for one request at a time."""

    def answer(self, request: Received) -> Reply: ...


@dataclass(slots=True)
class Served:
    """A contract that is being served.

    requests: in the order of arrival, including requests that met a fault.
    faults: the next answers, instead of the contract's.
    """

    contract: Contract
    url: str = ""
    requests: list[Received] = field(default_factory=list)
    faults: deque[Reply] = field(default_factory=deque)
    lock: threading.Lock = field(default_factory=threading.Lock)


@contextmanager
def serving(contract: Contract, *, tls: ssl.SSLContext | None = None) -> Iterator[Served]:
    """Serve it on a free port until the block ends; over https if there is a context."""
    served = Served(contract)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _any(self) -> None:
            length = int(self.headers.get("content-length") or 0)
            received = Received(self.command, self.path, _lower(self.headers), self.rfile.read(length))
            with served.lock:
                served.requests.append(received)
                reply = served.faults.popleft() if served.faults else contract.answer(received)
            if reply is CUT:
                # Linger 0: the peer is sent a reset, not an orderly end.
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.connection.close()
                self.close_connection = True
                return
            self.send_response(reply.status)
            for name, value in reply.fields.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(reply.body)))
            self.end_headers()
            self.wfile.write(reply.body)

        do_GET = do_POST = do_PUT = do_DELETE = do_PURGE = _any  # noqa: N815

        def handle(self) -> None:
            with suppress(OSError):  # a handshake that failed, or a connection that was reset
                super().handle()

        def finish(self) -> None:
            with suppress(OSError, ValueError):  # cut on purpose
                super().finish()

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    served.url = f"http://127.0.0.1:{server.server_port}"
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        served.url = served.url.replace("http:", "https:")
    with in_a_thread(server):
        yield served


def _lower(headers: Message) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


class TokenBucket:
    """Tokens that come back at a steady rate. Time passes only when `pass_time` is called."""

    def __init__(self, capacity: float, per_s: float) -> None:
        self.capacity = capacity
        self.per_s = per_s
        self.tokens = capacity

    def take(self, count: float = 1) -> bool:
        """Whether there were so many; if not, none is taken."""
        if count > self.tokens:
            return False
        self.tokens -= count
        return True

    def wait_s(self, count: float = 1) -> float:
        """How long until so many are there."""
        return max(0.0, (count - self.tokens) / self.per_s)

    def pass_time(self, seconds: float) -> None:
        self.tokens = min(self.capacity, self.tokens + seconds * self.per_s)
