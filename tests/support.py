"""Waiting for something real to happen, with a deadline and no fixed sleeps."""

from __future__ import annotations

import inspect
import time
from collections.abc import Awaitable, Callable

import anyio

DEADLINE_S = 20.0
STEP_S = 0.005


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
