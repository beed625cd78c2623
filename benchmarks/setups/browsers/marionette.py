"""Marionette, Firefox's own protocol: lines of JSON with their length, and scripts with the rights of the browser itself."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator
from typing import Any

from benchmarks.setups.browsers.browser import PATIENCE_S, BrowserError


class Marionette:
    """One connection, which is one session."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._pending = b""
        self._last = 0
        self._message()  # who it is

    def call(self, command: str, **params: Any) -> Any:
        """Return the result of a command."""
        self._last += 1
        message = json.dumps([0, self._last, command, params]).encode()
        self._socket.sendall(b"%d:%b" % (len(message), message))
        _, _, error, result = self._message()
        if error:
            raise BrowserError(f"{command}: {error['error']}: {error['message']}")
        return result

    def run(self, script: str) -> Any:
        """Run the body of a function in the browser's own window, and return its result."""
        self.call("Marionette:SetContext", value="chrome")
        return self.call("WebDriver:ExecuteScript", script=script, args=[])["value"]

    def _message(self) -> Any:
        while True:
            length, colon, rest = self._pending.partition(b":")
            if colon and len(rest) >= int(length):
                self._pending = rest[int(length) :]
                return json.loads(rest[: int(length)])
            try:
                piece = self._socket.recv(65536)
            except TimeoutError:
                raise BrowserError(f"no answer within {PATIENCE_S} s") from None
            if not piece:
                raise BrowserError("the browser has ended")
            self._pending += piece


@contextlib.contextmanager
def connected(port: int) -> Iterator[Marionette]:
    """A connection to a port of this machine until the block ends."""
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as connection:
        yield Marionette(connection)
