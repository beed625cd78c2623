"""Background tasks and their end."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Final

_AGAIN_S: Final = 1.0


async def ended(tasks: Iterable[asyncio.Task[Any] | None]) -> None:
    """Cancel these and return when they are over; what they raised is theirs. Those of other event loops are left alone.

    A task is asked again while it goes on: up to Python 3.11 asyncio.wait_for(), which the Redis client uses, forgets a
    cancellation that comes together with the answer, and a loop would run for ever. The caller's own cancellation is raised.
    """
    loop = asyncio.get_running_loop()
    left = {task for task in tasks if task is not None and task.get_loop() is loop and not task.done()}
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=_AGAIN_S)
