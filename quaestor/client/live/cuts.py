"""Cuts of one client: its streams take messages as they come, and show them together when the server announces a cut."""

from __future__ import annotations

from typing import Any

from quaestor.client.live.rows import Message
from quaestor.client.live.streams import LiveStream

Stream = LiveStream[Any]


class ClientCuts:
    """Cuts of the streams of one client. Use from one event loop."""

    def __init__(self) -> None:
        self._on = False
        self._changed: dict[str, Stream] = {}
        """Streams that took messages since they last showed."""
        self._begun: set[str] = set()
        """Ids of streams that received a result."""
        self._behind: set[str] = set()
        """Ids of streams that wait for a new result, and show an older cut until then."""
        self._whole = False
        """Whether no message came since the newest cut."""

    def turn(self, *, on: bool) -> None:
        """Show everything. From now on show at cuts only, or at once."""
        self._on = False
        self._show()
        self._on = self._whole = on

    def reopen(self, *, on: bool) -> None:
        """Begin a new socket, with cuts or without. Streams keep what they did not show."""
        self._on, self._whole = on, False

    def ask(self, stream: Stream) -> None:
        """Note that a stream asks for its result or its events."""
        if stream.id in self._begun:
            self._behind.add(stream.id)

    def take(self, stream: Stream, message: Message) -> bool:
        """Take a message for a stream. Return whether the result has to be read anew."""
        kind = message["type"]
        if kind == "refreshed":
            self.ask(stream)
        elif kind in ("result", "resumed"):
            self._begun.add(stream.id)
            self._behind.discard(stream.id)
        broken = stream.take(message, held=self._on)
        if broken:
            self.ask(stream)
        if self._on:
            self._whole = False
            self._changed[stream.id] = stream
        return broken

    def cut(self) -> None:
        """Take the announcement of the server: the messages so far belong together."""
        self._whole = True
        self._show()

    def leave(self, stream: Stream) -> None:
        """Forget a stream that has ended. The other streams wait for it no more."""
        self._changed.pop(stream.id, None)
        self._begun.discard(stream.id)
        self._behind.discard(stream.id)
        self._show()

    def _show(self) -> None:
        if self._on and (self._behind or not self._whole):
            return
        changed, self._changed = self._changed, {}
        for stream in changed.values():
            stream.show()
