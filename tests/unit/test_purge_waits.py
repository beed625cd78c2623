"""Waits for a purge always end, also if its request fails or is never answered."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from quaestor.cdn_adapters.answers import Accepted
from quaestor.cdn_adapters.capabilities import Capabilities
from quaestor.cdn_adapters.purge_waits import PurgeWaits
from quaestor.errors import StoreError
from quaestor.purge_ports import QueuedPurge
from quaestor.store.outbox_memory import MemoryOutbox
from tests.support import PATIENCE_S, eventually
from tests.unit.test_purge_sender import LIMITED, Api

pytestmark = pytest.mark.anyio

UNLIMITED = replace(LIMITED, rates=())
each_way = pytest.mark.parametrize("capabilities", [LIMITED, UNLIMITED], ids=["by-lease", "own"])


class ForgetfulOutbox(MemoryOutbox):
    """Outbox that fails at the first acknowledgement."""

    def __init__(self) -> None:
        super().__init__()
        self.away = 1

    async def done(self, queue: str, held: Sequence[QueuedPurge], **options: Any) -> None:
        if self.away:
            self.away -= 1
            raise StoreError("the outbox is away")
        await super().done(queue, held, **options)


@each_way
async def test_a_purge_that_the_outbox_did_not_hear_of_is_waited_for_until_it_was_sent_again(
    capabilities: Capabilities,
) -> None:
    """The place has taken it, and nobody can write that down: it comes back by its lease, and so does the wait."""
    api = Api(capabilities)
    outbox = api.outbox = ForgetfulOutbox()
    async with api.sender(repurge_after_ms=3_600_000_000) as sender:
        wait = asyncio.ensure_future(api.purged(sender, "a"))
        await eventually(lambda: not outbox.away)
        api.now_ms += 60_000
        await asyncio.wait_for(wait, PATIENCE_S)
    assert api.sent == [("a",), ("a",)]


@each_way
@pytest.mark.parametrize("accepted", [False, True])
async def test_waits_end_with_their_sender(capabilities: Capabilities, accepted: bool) -> None:
    """Waits for a request under way, or for an unknown completion, end too: the outbox keeps the purge."""
    api = Api(replace(capabilities, asynchronous=accepted))
    if accepted:
        api.answers.extend([Accepted(ticket="1")] * 100_000)
    else:
        api.gate = asyncio.Event()
    async with api.sender() as sender:
        wait = asyncio.ensure_future(api.purged(sender, "a"))
        await eventually(lambda: len(api.requests) == 1)
    await asyncio.wait_for(wait, PATIENCE_S)


class SlowOutbox(MemoryOutbox):
    """An outbox that takes its time to put purges in."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.gate = False, asyncio.Event()

    async def put(self, queue: str, members: Sequence[str], **options: Any) -> None:
        self.asked = True
        await self.gate.wait()
        await super().put(queue, members, **options)


@each_way
async def test_a_purge_unknown_to_the_outbox_is_not_over(capabilities: Capabilities) -> None:
    """The watch asks the outbox what is still open just when a purge is being put in."""
    api = Api(capabilities)
    outbox = api.outbox = SlowOutbox()
    api.gate = asyncio.Event()
    async with api.sender() as sender:
        wait = asyncio.ensure_future(api.purged(sender, "a"))
        await eventually(lambda: outbox.asked)
        await sender.watched.look("ok")
        outbox.gate.set()
        await eventually(lambda: len(api.requests) == 1)
        await sender.watched.look("ok")
        assert not wait.done()
        api.gate.set()
        await asyncio.wait_for(wait, PATIENCE_S)


async def test_a_purge_sent_by_another_process_ends_only_earlier_waits() -> None:
    """A wait for the same purge that begins while the outbox is asked goes on."""
    waits = PurgeWaits()
    before = waits.expect(["a"])
    before.put = True
    asked_for = waits.put()
    later = waits.expect(["a"])
    later.put = True
    waits.over(asked_for)
    assert before.done.done()
    assert not later.done.done()
    assert waits.put() == {"a": [later]}
