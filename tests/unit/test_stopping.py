"""Stopping a part may itself be cancelled: the cancellation of the stopper is not taken for that of the part."""

from __future__ import annotations

import asyncio

import pytest

from quaestor.middleware.interface import Receive, Scope, Send
from quaestor.middleware.refresh import Refreshes
from quaestor.observability.telemetry import Telemetry
from quaestor.runtime.supervision.supervisor import Supervisor
from quaestor.tasks import ended


@pytest.mark.anyio
async def test_stopping_the_refreshes_can_be_cancelled() -> None:
    began, ending, end = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def slow_to_end(_scope: Scope, _receive: Receive, _send: Send) -> None:
        try:
            began.set()
            await end.wait()
        finally:
            ending.set()
            await end.wait()

    refreshes = Refreshes(Telemetry(), Supervisor(Telemetry()))
    refreshes.start({"type": "http", "method": "GET", "headers": []}, slow_to_end)
    await began.wait()
    stopping = asyncio.create_task(refreshes.stop())
    await ending.wait()
    stopping.cancel()
    asyncio.get_running_loop().call_soon(end.set)
    with pytest.raises(asyncio.CancelledError):
        await stopping


@pytest.mark.anyio
async def test_a_task_that_ignores_its_cancellation_is_cancelled_again() -> None:
    """As the Redis client does up to Python 3.11, when the cancellation comes together with the answer."""
    began, cancellations = asyncio.Event(), 0

    async def forgetful() -> None:
        nonlocal cancellations
        while cancellations < 2:
            try:
                began.set()
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                cancellations += 1

    task = asyncio.create_task(forgetful())
    await began.wait()
    await ended((task, None))
    assert task.done()
    assert cancellations == 2
