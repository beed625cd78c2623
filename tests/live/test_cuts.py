"""Consistent cuts of a server, driven by hand: no cut is older than the client's results, and none contains newer writes."""

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


class Sent:
    """An outbox, its messages, and the cuts of its socket from version 0 on."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        self.outbox = Outbox()
        self.cuts = Cuts(self.outbox, lambda version: f"cut {version}", floor=0)
        self.queue = Queue()

    async def send(self, message: Any) -> None:
        self.messages.append(message["text"])

    def hold(self, subscription: Subscription, version: int | None, head: str, rest: Any = "") -> None:
        self.cuts.hold(subscription, Held(version, head, rest, self.queue, self.queue.generation))


async def test_cuts_never_go_back() -> None:
    """A subscription that lags begins behind a cut: the next cut waits until its result is as new as the others."""
    sent = Sent()
    sent.outbox.open(sent.send, drain=lambda: None)
    quick, new = Subscription(100, 100), Subscription(95, 95)
    sent.hold(quick, 100, "quick 100")
    sent.cuts.release([quick])
    sent.hold(new, 95, "new 95")
    sent.cuts.release([quick, new])
    assert sent.messages == ["quick 100", "cut 100"]
    new.version = new.contained = 100
    sent.cuts.release([quick, new])
    assert sent.messages == ["quick 100", "cut 100", "new 95", "cut 100"]


async def test_a_cut_waits_for_the_position_where_a_client_resumed() -> None:
    """A client of an earlier socket shows version 100 already."""
    sent = Sent()
    sent.outbox.open(sent.send, drain=lambda: None)
    resumed, slow = Subscription(100, 100), Subscription(95, 95)
    sent.cuts.seen(100)
    sent.hold(resumed, 0, "resumed")
    sent.cuts.release([resumed, slow])
    assert sent.messages == []
    slow.version = slow.contained = 100
    sent.cuts.release([resumed, slow])
    assert sent.messages == ["resumed", "cut 100"]


async def test_a_result_for_a_slow_client_is_made_at_its_cut() -> None:
    """The client takes the result later. Writes behind the cut are not in it."""
    sent = Sent()
    subscription = Subscription(100, 100)
    sent.hold(subscription, None, "", lambda: f"result {subscription.version}")
    sent.cuts.release([subscription])
    subscription.version = subscription.contained = 105
    sent.outbox.open(sent.send, drain=lambda: None)
    await sent.outbox.drain()
    assert sent.messages == ["result 100", "cut 100"]
