"""A time limit for sends of which most end at once: such a send needs no timer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from functools import partial
from typing import Any


async def within(sending: Awaitable[None], seconds: float) -> None:
    """Await a send. Raises TimeoutError if it takes longer.

    The send begins in the caller's task. The timer starts when the send first waits: a server waits only for a slow client.
    """
    steps = sending.__await__()
    try:
        first = next(steps)
    except StopIteration:
        return
    async with asyncio.timeout(seconds):
        await _Begun(steps, first)


class _Begun:
    """An awaitable that has begun, and waits for the first time."""

    __slots__ = ("_first", "_steps")

    def __init__(self, steps: Generator[Any, Any, None], first: Any) -> None:
        self._steps = steps
        self._first = first

    def __await__(self) -> Generator[Any, Any, None]:
        """PEP 380's `yield from`, with the first value known."""
        waits_for = self._first
        step: Callable[[], Any]
        while True:
            try:
                value = yield waits_for
            except GeneratorExit:
                self._steps.close()
                raise
            except BaseException as error:
                step = partial(self._steps.throw, error)
            else:
                step = partial(self._steps.send, value)
            try:
                waits_for = step()
            except StopIteration:
                return
