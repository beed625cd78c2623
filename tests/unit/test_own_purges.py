"""Purges that a process sends itself: one call reports many to the outbox, and each purge keeps its own record."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from quaestor.cdn_adapters.own_purges import OwnPurges
from quaestor.errors import StoreError
from quaestor.store.outbox_memory import MemoryOutbox
from tests.support import eventually

pytestmark = pytest.mark.anyio

NOW_MS = 1_700_000_000_000
UNTIL_MS = NOW_MS + 3_600_000


class GatedOutbox(MemoryOutbox):
    """Outbox that answers while its gate is open, and records each call."""

    def __init__(self, most: int = 1_000) -> None:
        super().__init__(most)
        self.gate = asyncio.Event()
        self.calls: list[tuple[str, tuple[str, ...]]] = []

    async def put(self, queue: str, members: Sequence[str], *, token: str = "", **options: Any) -> None:
        self.calls.append((token, tuple(members)))
        await self.gate.wait()
        await super().put(queue, members, token=token, **options)


def own_purges(outbox: MemoryOutbox) -> OwnPurges:
    names = iter(range(1_000))
    return OwnPurges(outbox, "q", token=lambda: f"t{next(names)}", lease_ms=30_000)


def put(own: OwnPurges, *members: str, until_ms: int = UNTIL_MS) -> asyncio.Task[None]:
    return asyncio.create_task(own.put(members, until_ms=until_ms, now_ms=NOW_MS, wake=lambda: None))


async def test_purges_put_in_during_a_call_to_the_outbox_go_in_one_call() -> None:
    """A hundred purges behind one under way cost one round trip; all of them may be sent meanwhile."""
    outbox = GatedOutbox()
    own = own_purges(outbox)
    puts = [put(own, "0tag first")]
    await eventually(lambda: len(outbox.calls) == 1)
    puts += [put(own, f"0tag {n}", until_ms=UNTIL_MS + n) for n in range(100)]
    await asyncio.sleep(0)
    assert len(own.take(1_000)) == 101, "nothing waits for the outbox"
    outbox.gate.set()
    await asyncio.gather(*puts)
    assert [len(members) for _, members in outbox.calls] == [1, 100]
    size = await outbox.size("q")
    assert (size.taken, size.until_ms) == (101, UNTIL_MS + 99)


async def test_two_purges_of_one_target_are_two() -> None:
    """The first may be done before the second was asked for: what ends it must not end the other."""
    outbox = GatedOutbox()
    own = own_purges(outbox)
    puts = [put(own, "0tag other"), put(own, "0tag a"), put(own, "0tag a", "0tag b")]
    await asyncio.sleep(0)
    _, first, second, _ = taken = own.take(10)
    assert first.member == second.member == "0tag a"
    assert first.token != second.token
    outbox.gate.set()
    await asyncio.gather(*puts)
    await own.recorded(taken)
    await outbox.done("q", [first], now_ms=NOW_MS)
    assert await outbox.open("q", ["0tag a"]) == [True]
    await outbox.done("q", [second], now_ms=NOW_MS)
    assert await outbox.open("q", ["0tag a"]) == [False]


async def test_all_that_the_outbox_refused_together_hear_of_it() -> None:
    """Each keeps its claim, and asks again."""
    outbox = GatedOutbox(most=1)
    own = own_purges(outbox)
    puts = [put(own, "0tag a")]
    await eventually(lambda: len(outbox.calls) == 1)
    puts += [put(own, "0tag b"), put(own, "0tag c"), put(own, "0tag d")]
    await asyncio.sleep(0)
    taken = own.take(10)
    outbox.gate.set()
    outcomes = await asyncio.gather(*puts, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [type(None), StoreError, StoreError, StoreError]
    await own.recorded(taken)
    assert await outbox.open("q", ["0tag a", "0tag b"]) == [True, False]


async def test_a_caller_that_stops_waiting_takes_no_purge_back() -> None:
    outbox = GatedOutbox()
    own = own_purges(outbox)
    first, second = put(own, "0tag a"), put(own, "0tag b")
    await eventually(lambda: len(outbox.calls) == 1)
    first.cancel()
    second.cancel()
    outbox.gate.set()
    await asyncio.wait([first, second])
    await own.recorded(own.take(10))
    assert await outbox.open("q", ["0tag a", "0tag b"]) == [True, True]
