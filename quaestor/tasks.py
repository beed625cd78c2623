"""Background tasks: their pauses and their end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, MutableMapping
from typing import Any, Final, TypeVar

T = TypeVar("T")
_PART: Final = 250
"""Members that are looked at in one go: less than a millisecond."""
_AGAIN_S: Final = 1.0
_MOST_DOUBLINGS: Final = 60
"""Above any pause. A power of two from an outage of days would not fit into a float."""


def pause_after(failures: int, *, first_s: float, longest_s: float) -> float:
    """Return the pause in seconds after this many failures in a row: doubled with each, up to the longest."""
    return min(first_s * 2.0 ** min(failures - 1, _MOST_DOUBLINGS), longest_s)


async def in_parts(members: Iterable[T]) -> AsyncIterator[T]:
    """Yield the present members of a large collection. Other tasks of the event loop run in between."""
    for number, member in enumerate(list(members), 1):
        yield member
        if number % _PART == 0:
            await asyncio.sleep(0)


async def ended(tasks: Iterable[asyncio.Task[Any] | None]) -> None:
    """Cancel these and return when they are over; what they raised is theirs. Tasks of other event loops are left alone.

    A task that goes on is cancelled again. Up to Python 3.11 asyncio.wait_for(), which the Redis client uses, forgets a
    cancellation that comes together with the answer. A loop would then run for ever. The caller's own cancellation is raised.
    """
    loop = asyncio.get_running_loop()
    left = {task for task in tasks if task is not None and task.get_loop() is loop and not task.done()}
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=_AGAIN_S)


async def client_left(receive: Callable[[], Awaitable[MutableMapping[str, Any]]]) -> None:
    """Return when the client of an HTTP request has gone. Other messages are dropped.

    receive: ASGI's.
    """
    while (await receive())["type"] != "http.disconnect":
        pass


class Rests:
    """Rests between the batches of a loop that empties a queue. A rest is as long as the last batch took, so that new items join
    the next batch. Rare items never wait; a steady flow costs half as many batches. Use from one event loop.

    most_s: the longest.
    """

    def __init__(self, most_s: float) -> None:
        self._most_s = most_s
        self._until_s = 0.0

    async def over(self) -> float:
        """Returns when the rest after the last batch is over; the loop's time then, for worked()."""
        loop = asyncio.get_running_loop()
        if (left_s := self._until_s - loop.time()) > 0:
            await asyncio.sleep(left_s)
        return loop.time()

    def worked(self, since_s: float) -> None:
        """Note that a batch that was begun then has been worked off."""
        now_s = asyncio.get_running_loop().time()
        self._until_s = now_s + min(now_s - since_s, self._most_s)
