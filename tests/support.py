"""Waiting for something real to happen, with a deadline and no fixed sleeps; what runs meanwhile in a thread of its own."""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import anyio

DEADLINE_S = 20.0
STEP_S = 0.005
PATIENT: dict[str, Any] = {"staleness_bound_ms": 20_000, "activation_deadline_ms": 20_000, "verification": False}
"""Settings where neither is the subject: a machine that stands still for a second must not bypass the cache, and handlers run
when they are asked for."""
PATIENCE_S = 20.0
"""A time limit of the product where it is not the subject: long enough for a machine that stands still meanwhile."""


async def eventually(condition: Callable[[], bool | Awaitable[bool]], *, within_s: float = DEADLINE_S) -> None:
    """Returns once condition() holds; fails the test if it does not within the deadline."""
    end = time.monotonic() + within_s
    while True:
        held = condition()
        if inspect.isawaitable(held):
            held = await held
        if held:
            return
        if time.monotonic() > end:
            raise AssertionError(f"did not hold within {within_s} s: {inspect.getsource(condition).strip()}")
        await anyio.sleep(STEP_S)


class Loop:
    """A thread that runs a loop until it is killed: no last words, nothing saved that was not saved before."""

    def __init__(self, run: Callable[[threading.Event], None]) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=run, args=(self._stop,), daemon=True)
        self._thread.start()

    def kill(self, within_s: float = DEADLINE_S) -> None:
        self._stop.set()
        self._thread.join(within_s)
        assert not self._thread.is_alive()


@contextmanager
def running(run: Callable[[threading.Event], None], *, within_s: float = DEADLINE_S) -> Iterator[None]:
    """A Loop that is killed at the end; it must be over within_s after that."""
    loop = Loop(run)
    try:
        yield
    finally:
        loop.kill(within_s)
