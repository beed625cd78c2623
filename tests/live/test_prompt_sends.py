"""Sends with a time limit: at once, after a wait, too slow, and cancelled."""

from __future__ import annotations

import asyncio

import pytest

from quaestor.live.prompt_sends import within

pytestmark = pytest.mark.anyio


async def test_a_send_that_waits_twice_is_completed() -> None:
    passed = [asyncio.get_running_loop().create_future() for _ in range(2)]
    steps: list[object] = []

    async def send() -> None:
        steps.append(await passed[0])
        steps.append(await passed[1])

    sending = asyncio.ensure_future(within(send(), 60))
    for value, future in enumerate(passed):
        await asyncio.sleep(0)
        future.set_result(value)
    await sending
    assert steps == [0, 1]


async def test_a_send_at_once_and_an_error_at_once_need_no_loop_turn() -> None:
    sent: list[int] = []

    async def send() -> None:
        sent.append(1)

    async def fail() -> None:
        raise OSError("closed")

    await within(send(), 0)
    assert sent == [1]
    with pytest.raises(OSError, match="closed"):
        await within(fail(), 0)


async def test_a_send_beyond_the_limit_is_cancelled_and_raises_timeout_error() -> None:
    ended: list[str] = []

    async def send() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)  # a second wait, inside the cancelled send
            ended.append("send")

    with pytest.raises(TimeoutError):
        await within(send(), 0)
    assert ended == ["send"]


async def test_the_senders_error_after_a_wait_reaches_the_caller() -> None:
    async def send() -> None:
        await asyncio.sleep(0)
        raise OSError("closed")

    with pytest.raises(OSError, match="closed"):
        await within(send(), 60)


async def test_cancelling_the_caller_cancels_the_send() -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    async def send() -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    sending = asyncio.ensure_future(within(send(), 60))
    await began.wait()
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    assert ended.is_set()
