"""Followers: the clients of one followed answer, each with room for the newest answer only."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from quaestor.live.answers import FollowedAnswer, Scope


@dataclass(frozen=True, slots=True)
class End:
    """End of a stream.

    reason: one of vocabularies.FOLLOWER_ENDS, or the reason why an answer is not stored.
    answer: answer of the handler, which refuses the client or has failed; None: there is none.
    """

    reason: str
    answer: FollowedAnswer | None = None


class Follower:
    """Client of a followed answer. A slow client skips answers and always receives the last one: each offer replaces the earlier
    one.

    scope: ASGI's, as the client's request came.
    answer: newest answer that the client has not received.
    ended: end of the stream; None: it goes on.
    offered: entity tag of the answer that was offered last, since the follower has joined its present loop.
    at_once: sends an answer while the follower waits, so that no task wakes for it. False: the answer has to be kept. Raises no
        error. None: every answer is kept.
    """

    __slots__ = ("_due_s", "_timer", "_waiter", "answer", "at_once", "ended", "offered", "scope")

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.answer: FollowedAnswer | None = None
        self.ended: End | None = None
        self.offered = b""
        self.at_once: Callable[[FollowedAnswer], bool] | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._due_s = 0.0

    def offer(self, answer: FollowedAnswer) -> None:
        """Offer the client an answer, which is sent unless a newer one comes before."""
        self.offered = answer.etag
        waits = self._waiter is not None and not self._waiter.done()
        if self.at_once is None or not waits or not self.at_once(answer):
            self.answer = answer
            self.wake()

    def end(self, end: End) -> None:
        """End the stream. The first end counts."""
        self.ended = self.ended or end
        self.wake()
        self._stop_timer()

    async def news(self, *, within_s: float) -> FollowedAnswer | None:
        """Newest answer. None: the stream has ended, was woken, or there is none within the time."""
        if self.answer is None and self.ended is None:
            await self._wait(within_s)
        answer, self.answer = self.answer, None
        return answer

    def wait_on(self, within_s: float) -> None:
        """Let the present wait end so much later from now on, instead of at its own time."""
        self._due_s = asyncio.get_running_loop().time() + within_s

    def wake(self) -> None:
        """End the present wait."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def _wait(self, within_s: float) -> None:
        """Wait for an offer or the end. A wait that ends early keeps its timer for the next wait, because timers cost more."""
        loop = asyncio.get_running_loop()
        self._waiter = loop.create_future()
        self._due_s = loop.time() + within_s
        if self._timer is not None and self._timer.when() > self._due_s:
            self._stop_timer()
        if self._timer is None:
            self._timer = loop.call_at(self._due_s, self._look, loop)
        try:
            await self._waiter
        except asyncio.CancelledError:
            self._stop_timer()
            raise

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """End the present wait if its time is over."""
        self._timer = None
        if self._waiter is None or self._waiter.done():
            return
        if loop.time() >= self._due_s:
            self._waiter.set_result(None)
        else:
            self._timer = loop.call_at(self._due_s, self._look, loop)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Places:
    """Places of one process, limited in all and per client."""

    def __init__(self, *, most: int, most_of_one: int) -> None:
        self._most, self._most_of_one = most, most_of_one
        self._taken: dict[str, int] = {}
        self.total = 0

    def refusal(self, client: str) -> str:
        """Limit that refuses a client a place: "client", "process", or empty."""
        if self._taken.get(client, 0) >= self._most_of_one:
            return "client"
        return "process" if self.total >= self._most else ""

    def take(self, client: str) -> Callable[[], None]:
        """Take a place, and return the function that gives it back."""
        self.total += 1
        self._taken[client] = self._taken.get(client, 0) + 1

        def give_back() -> None:
            self.total -= 1
            left = self._taken[client] - 1
            if left:
                self._taken[client] = left
            else:
                del self._taken[client]

        return give_back
