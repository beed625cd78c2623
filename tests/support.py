"""Waiting for something real to happen, with a deadline and no fixed sleeps; what runs meanwhile in a thread of its own."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import anyio

from benchmarks.setups import PATIENCE_S as PATIENCE_S

DEADLINE_S = 20.0
STEP_S = 0.005
PATIENT: dict[str, Any] = {
    "staleness_bound_ms": 20_000, "activation_deadline_ms": 20_000, "verification": False, "heartbeat_ms": 40,
}  # fmt: skip
"""Settings of tests that are not about delays and early refreshes.

A machine that stands still for a second must not bypass the cache, and handlers run only on requests.
The heartbeat is short because each start waits for one, and each end for two.
"""


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


def becomes(condition: Callable[[], bool], *, within_s: float = DEADLINE_S) -> None:
    """`eventually`, where no loop is running."""
    asyncio.run(eventually(condition, within_s=within_s))


@contextmanager
def killed_after(within_s: float, process: subprocess.Popen[str]) -> Iterator[None]:
    """Kills it if the block takes longer: what reads from it then meets its end."""
    timer = threading.Timer(within_s, process.kill)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


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
