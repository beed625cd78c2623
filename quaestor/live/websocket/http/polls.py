"""Long polls of live queries: members of a query's group, which wait for its next change."""

from __future__ import annotations

import asyncio
from typing import Final

from quaestor.live.websocket.events import SharedMatch
from quaestor.live.websocket.problems import ProtocolError
from quaestor.realtime.notices import Notice

LONGEST_WAIT_MS: Final = 30_000
"""The longest wait of a poll. Proxies give up on an answer after 60 s."""


class Poll:
    """Long poll of one request: a `Member` of the group of its query.

    problem: why the query is followed no longer.
    left: whether the client has gone.
    """

    def __init__(self) -> None:
        self.problem: ProtocolError | None = None
        self.left = False
        self._wake = asyncio.Event()

    def offer(self, match: SharedMatch) -> None:
        """Take an event of the query."""
        self._wake.set()

    def notify(self, notice: Notice) -> None:
        """Take a notice, which no answer needs."""

    def fail(self, problem: ProtocolError) -> None:
        """Take the end of the query."""
        self.problem = problem
        self._wake.set()

    def leave(self) -> None:
        """Wait no longer."""
        self.left = True
        self._wake.set()

    async def wait(self, within_s: float) -> None:
        """Wait for an event, an end, or the end of the time."""
        try:
            async with asyncio.timeout(within_s):
                await self._wake.wait()
        except TimeoutError:
            return


def slot(now_ms: int, *, wait_ms: int, cursor: int) -> tuple[int, int]:
    """End of a wait that begins now, and the cursor behind it.

    The waits of all clients end together, at multiples of 4/5 of `wait_ms`. All clients then continue with the same cursor, and
    caches join their polls again. Each wait takes between 1/5 of `wait_ms` and the whole of it.

    cursor: of the client. The next one is always greater, so the client never meets the answer again that it has just received.
    """
    length_ms = max(1, wait_ms * 4 // 5)
    number = (now_ms + length_ms // 4) // length_ms + 1
    return number * length_ms, max(number, cursor + 1)
