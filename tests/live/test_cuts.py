"""Consistent cuts, driven by hand: no cut is older than what the client has seen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from quaestor.live.websocket.cuts import Cuts, Held
from quaestor.live.websocket.outbox import Outbox, Queue
from tests.support import eventually

pytestmark = pytest.mark.anyio


@dataclass(eq=False)
class Subscription:
    version: int
    contained: int | None


async def test_a_cut_that_is_older_than_what_was_shown_is_not_announced() -> None:
    """A subscription sent a result of version 100 before the cuts began; another is at 95 only."""
    sent: list[str] = []

    async def send(message: Any) -> None:
        sent.append(message["text"])

    outbox = Outbox()
    outbox.open(send, drain=lambda: None)
    quick, slow = Subscription(100, 100), Subscription(95, 95)
    cuts = Cuts(outbox, lambda version: f"cut {version}", floor=100)
    queue = Queue()
    cuts.hold(slow, Held(95, "slow 95", "", queue, queue.generation))
    cuts.release([quick, slow])
    assert sent == []
    slow.version = slow.contained = 101
    cuts.release([quick, slow])
    await eventually(lambda: sent == ["slow 95", "cut 100"])
