"""A connection by WebDriver BiDi: JSON over a WebSocket."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, CloseConnection, Event, Message, Ping, Request, TextMessage

from benchmarks.setups.browsers.browser import PATIENCE_S, BrowserError


class BiDi:
    """One session's connection."""

    def __init__(self, connection: socket.socket, url: str) -> None:
        self._socket = connection
        self._protocol = WSConnection(ConnectionType.CLIENT)
        self._last = 0
        parts = urlsplit(url)
        self._send(Request(host=parts.netloc, target=parts.path))
        while not isinstance(self._event(), AcceptConnection):
            pass

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Return the result of a method of the protocol."""
        self._last += 1
        self._send(Message(json.dumps({"id": self._last, "method": method, "params": params})))
        while True:
            answer = self._message()
            if answer.get("id") == self._last:
                if answer["type"] == "error":
                    raise BrowserError(f"{method}: {answer['error']}: {answer['message'][:1000]}")
                result: dict[str, Any] = answer["result"]
                return result

    def _message(self) -> dict[str, Any]:
        text = ""
        while True:
            event = self._event()
            if isinstance(event, TextMessage):
                text += event.data
                if event.message_finished:
                    return dict(json.loads(text))
            elif isinstance(event, Ping):
                self._send(event.response())
            elif isinstance(event, CloseConnection):
                raise BrowserError("the browser has ended")

    def _event(self) -> Event:
        while (event := next(self._protocol.events(), None)) is None:
            try:
                piece = self._socket.recv(65536)
            except TimeoutError:
                raise BrowserError(f"no answer within {PATIENCE_S} s") from None
            self._protocol.receive_data(piece or None)
        return event

    def _send(self, event: Event) -> None:
        self._socket.sendall(self._protocol.send(event))


@contextlib.contextmanager
def connected(url: str) -> Iterator[BiDi]:
    """A connection to a session's URL until the block ends."""
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port), PATIENCE_S) as connection:
        yield BiDi(connection, url)
