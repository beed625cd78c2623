"""Collapsing: of several updates of a record within an interval only the newest is sent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from dataclasses import replace

from quaestor.incremental import ResultEvent
from quaestor.incremental.events import Shown, differences
from quaestor.live.websocket.events import SharedMatch
from quaestor.live.websocket.group import QueryGroup
from quaestor.query.bson_order import order_key


class Collapsing:
    """Collapsing for one subscription. Use from one event loop.

    send: takes the events that lead from the rows that were sent last to the present ones.
    """

    def __init__(self, group: QueryGroup, interval_ms: int, send: Callable[[SharedMatch], None]) -> None:
        self._group = group
        self._interval_s = interval_ms / 1000
        self._send = send
        self._shown: list[Shown] = list(group.rows)
        self._newest: dict[Hashable, ResultEvent] = {}
        self._sent_at_s = -self._interval_s
        self._due: asyncio.TimerHandle | None = None

    def offer(self, match: SharedMatch) -> None:
        """Note an event, to be sent when the interval since the last one is over."""
        self._newest[order_key(match.event.key)] = match.event
        if self._due is None:
            loop = asyncio.get_running_loop()
            self._due = loop.call_at(max(loop.time(), self._sent_at_s + self._interval_s), self._flush)

    def stop(self) -> None:
        """Send nothing any more."""
        if self._due is not None:
            self._due.cancel()

    def begin_anew(self) -> None:
        """The client has received the present rows."""
        self._shown, self._newest = list(self._group.rows), {}

    def _flush(self) -> None:
        self._due = None
        self._sent_at_s = asyncio.get_running_loop().time()
        before, rows, newest = self._shown, list(self._group.rows), self._newest
        self.begin_anew()
        known = {row.key: row.document for row in before}
        events = []
        for event in differences(before, rows, ordered=self._group.rows.ordered):
            cause = newest.get(order_key(event.key))
            if cause is not None:
                event = replace(event, operation=cause.operation, version=cause.version)
            events.append(event)
        for match in self._group.matched(events, before=known):
            self._send(match)
