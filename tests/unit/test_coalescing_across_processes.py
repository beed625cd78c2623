"""A flight that waits for another process ends when it is stopped, and returns a granted lease."""

from __future__ import annotations

import asyncio

import pytest

from quaestor.model import CachedResponse
from quaestor.ports import Turn
from quaestor.read_path.coalescing import Landing, RequestCoalescing
from tests.support import eventually

pytestmark = pytest.mark.anyio


class ForgetfulLeases:
    """Answers at the very moment of a cancellation, which is lost: as asyncio.wait_for() did up to Python 3.11."""

    def __init__(self, turn: Turn) -> None:
        self.turn = turn
        self.asked = 0
        self.released: list[str] = []
        self.holders: list[str] = []

    async def take(
        self, key: str, *, holder: str, lease_ms: int, passing: CachedResponse | None = None
    ) -> CachedResponse | Turn:
        self.asked += 1
        self.holders.append(holder)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return self.turn
        raise AssertionError

    async def renew(self, key: str, *, holder: str, lease_ms: int) -> None: ...

    async def release(self, key: str, *, holder: str, uncoalesced_ms: int) -> None:
        self.released.append(holder)


@pytest.mark.parametrize("turn", [Turn.THEIRS, Turn.MINE])
async def test_a_cancellation_is_not_lost_and_a_lease_not_kept(turn: Turn) -> None:
    leases = ForgetfulLeases(turn)
    flights = RequestCoalescing(leases)
    flight = flights.lead("k")
    task = asyncio.create_task(flight.fetch(lambda _: True))
    await eventually(lambda: leases.asked == 1)
    task.cancel()
    await asyncio.wait((task,), timeout=5)
    assert task.cancelled()
    flight.land(Landing.LEFT)
    await flights.settle()
    assert leases.released == leases.holders
