"""Whoever waits for a purge hears of it in the end, whatever becomes of the request that it was part of."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from cdn_adapters.answers import Accepted
from cdn_adapters.capabilities import Capabilities
from quaestor.errors import StoreError
from quaestor.purge_ports import QueuedPurge
from quaestor.store.outbox_memory import MemoryOutbox
from tests.support import PATIENCE_S, eventually
from tests.unit.test_purge_sender import LIMITED, Api

pytestmark = pytest.mark.anyio

UNLIMITED = replace(LIMITED, rates=())
each_way = pytest.mark.parametrize("capabilities", [LIMITED, UNLIMITED], ids=["by-lease", "own"])


class ForgetfulOutbox(MemoryOutbox):
    """An outbox that is away when it is first told that something is done."""

    def __init__(self) -> None:
        super().__init__()
        self.away = 1

    async def done(self, queue: str, held: Sequence[QueuedPurge], **told: Any) -> None:
        if self.away:
            self.away -= 1
            raise StoreError("the outbox is away")
        await super().done(queue, held, **told)


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
async def test_nobody_waits_for_a_sender_that_has_ended(capabilities: Capabilities, accepted: bool) -> None:
    """Also for a request that was under way, or whose completion is not known: the outbox keeps it."""
    api = Api(replace(capabilities, asynchronous=accepted))
    if accepted:
        api.answers.extend([Accepted(ticket="1")] * 100_000)
    else:
        api.gate = asyncio.Event()
    async with api.sender() as sender:
        wait = asyncio.ensure_future(api.purged(sender, "a"))
        await eventually(lambda: len(api.requests) == 1)
    await asyncio.wait_for(wait, PATIENCE_S)
