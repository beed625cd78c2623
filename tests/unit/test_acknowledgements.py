"""Acknowledgements of purges: those of one answer reach the outbox in one call, and none is forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from quaestor.cdn_adapters.acknowledgements import Acknowledgements
from quaestor.errors import StoreError
from quaestor.purge_ports import QueuedPurge
from quaestor.store.outbox_memory import MemoryOutbox
from tests.support import eventually
from tests.unit.test_side_by_side import LATER_MS, Held, put_all

pytestmark = pytest.mark.anyio


class GatedOutbox(MemoryOutbox):
    """Outbox that accepts acknowledgements while its gate is open, and counts those of each call."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.acknowledged: list[int] = []

    async def done(self, queue: str, taken: Sequence[QueuedPurge], **options: Any) -> None:
        self.acknowledged.append(len(taken))
        await self.gate.wait()
        await super().done(queue, taken, **options)


async def test_acknowledgements_during_a_call_to_the_outbox_go_in_the_next_one() -> None:
    """The place's room is free as soon as it has answered, before the outbox knows."""
    api = Held()
    outbox = api.outbox = GatedOutbox()
    async with api.sender(repurge_after_ms=LATER_MS) as sender:
        waits = await put_all(api, sender, *(f"t{n}" for n in range(30)))
        while len(api.requests) < 30 or api.open:
            await eventually(lambda: bool(api.open))
            api.answer_all()
            await asyncio.sleep(0)
        for _ in range(20):
            await asyncio.sleep(0)
        assert not any(wait.done() for wait in waits)
        outbox.gate.set()
        await asyncio.gather(*waits)
        size = await outbox.size(sender.queue)
        assert (size.waiting, size.taken, size.oldest_ms) == (0, 0, None)
    assert sum(outbox.acknowledged) == 30
    assert len(outbox.acknowledged) == 2


async def test_a_failed_report_fails_all_its_purges_and_the_next_report_is_sent() -> None:
    answers = iter([StoreError("away"), None])
    gate = asyncio.Event()
    batches: list[list[str]] = []

    async def tell(held: Sequence[QueuedPurge]) -> None:
        batches.append([purge.member for purge in held])
        await gate.wait()
        if (error := next(answers)) is not None:
            raise error

    acknowledgements = Acknowledgements(tell)
    done = [
        asyncio.create_task(acknowledgements.done([QueuedPurge(member, "t", 0, 0, 0)])) for member in ("a", "b", "c")
    ]
    await eventually(lambda: len(batches) == 1)
    done.append(asyncio.create_task(acknowledgements.done([QueuedPurge("d", "t", 0, 0, 0)])))
    await asyncio.sleep(0)
    gate.set()
    outcomes = await asyncio.gather(*done, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [StoreError] * 3 + [type(None)]
    assert batches == [["a", "b", "c"], ["d"]]
    await acknowledgements.aclose()


async def test_a_purge_answered_but_not_reported_at_the_sender_s_end_comes_back() -> None:
    """The purge is sent once more; otherwise the repetition a moment later would be lost."""
    api = Held()
    outbox = api.outbox = GatedOutbox()
    async with api.sender(repurge_after_ms=LATER_MS) as sender:
        waits = await put_all(api, sender, "a", "b", "c")
        await eventually(lambda: len(api.open) == 3)
        api.answer("a", "b")
        await eventually(lambda: len(outbox.acknowledged) == 1)
    size = await outbox.size(sender.queue)
    assert (size.waiting, size.taken) == (3, 0)
    await asyncio.gather(*waits)
