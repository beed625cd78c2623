"""Sends of which most end at once: such a send needs no timer, and no task of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from functools import partial
from typing import Any


async def within(sending: Awaitable[None], seconds: float) -> None:
    """Await a send. Raises TimeoutError if it takes longer.

    The send begins in the caller's task. The timer starts when the send first waits: a server waits only for a slow client.
    """
    rest = begin(sending)
    if rest is not None:
        async with asyncio.timeout(seconds):
            await rest


def begin(sending: Awaitable[None]) -> BegunSend | None:
    """Begin a send, up to its first wait. Return its rest; None: it has ended. Raises what the send raises."""
    steps = sending.__await__()
    try:
        return BegunSend(steps, next(steps))
    except StopIteration:
        return None


class BegunSend:
    """Send that has begun, and waits for the first time. Another task may await its rest, once."""

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
