"""Subscription of one process to one query, shared by all its subscribers there."""

from __future__ import annotations

import itertools
import uuid
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from quaestor.errors import SubscriptionError
from quaestor.event_layer.partitioning import query_partition
from quaestor.incremental import ResultEvent
from quaestor.model import GridShape
from quaestor.realtime.live import LiveResult, SharedResult
from quaestor.realtime.messages import Subscription, Unsubscription
from quaestor.realtime.notices import DeliveryChanged, DeliveryMode, Notice, Step, remedy

ASK_AGAIN_MS: Final = 1_000


class StageAddress(NamedTuple):
    """Address of the stage that is responsible for a query."""

    partition: int
    generation: int

    @classmethod
    def of(cls, query_id: str, shape: GridShape) -> StageAddress:
        """The address in a grid of this shape."""
        return cls(query_partition(query_id, shape.query_partitions), shape.generation)


class SubscriptionNames:
    """Names of the subscriptions of one process in the grid. No two processes give the same name."""

    def __init__(self) -> None:
        self._origin = uuid.uuid4().hex[:12]
        self._numbers = itertools.count(1)

    def next(self) -> str:
        """Return a new name."""
        return f"{self._origin}:{next(self._numbers)}"


@dataclass(slots=True, kw_only=True, eq=False)
class LocalSubscription:
    """Subscription of this process to one query. Guarded by the lock of its shared result.

    id: name of the subscription in the grid.
    stage: address of the stage that maintains it.
    live: the subscribers in this process.
    asked_ms: time of the last message to the stage; 0: none yet.
    """

    id: str
    query_id: str
    stage: StageAddress
    shared: SharedResult
    live: weakref.WeakSet[LiveResult] = field(default_factory=weakref.WeakSet)
    asked_ms: int = 0

    def add(self, live: LiveResult) -> None:
        """Add a subscriber. The stage receives a smaller poll interval soon."""
        if live.options.poll_interval_ms < self.poll_interval_ms:
            self.asked_ms = min(self.asked_ms, 1)
        self.live.add(live)

    def is_due(self, now_ms: int, *, extend_ms: int) -> bool:
        """Whether its stage has to receive its message again: never before it was sent for the first time."""
        every_ms = ASK_AGAIN_MS if self.shared.needs_full_result else extend_ms
        return self.asked_ms > 0 and now_ms - self.asked_ms >= every_ms

    def subscription(self, tenant: str, *, expires_at_ms: int) -> Subscription:
        """The message to its stage that begins it and renews its lease."""
        return Subscription(
            id=self.id,
            tenant=tenant,
            query_id=self.query_id,
            query=self.shared.query,
            fresh=self.shared.needs_full_result,
            expires_at_ms=expires_at_ms,
            exact=any(live.options.exact for live in self.live),
            poll_interval_ms=self.poll_interval_ms,
        )

    def parting(self, tenant: str, *, expires_at_ms: int) -> Subscription:
        """The message to its stage when this process ends: its lease ends soon. Until then another process may take over."""
        return replace(self.subscription(tenant, expires_at_ms=expires_at_ms), fresh=False)

    @property
    def poll_interval_ms(self) -> int:
        """Smallest poll interval of its subscribers."""
        return min((live.options.poll_interval_ms for live in self.live), default=0)

    def unsubscription(self) -> Unsubscription:
        """The message to its stage that ends it."""
        return Unsubscription(query_id=self.query_id, subscription_ids=(self.id,))

    def require_full_result(self) -> None:
        """Ask for the full result as soon as possible."""
        self.shared.needs_full_result, self.asked_ms = True, 1

    def rename(self, name: str) -> None:
        """Go on under another name, so that no older message can be taken for the answer. The old one's lease ends."""
        self.id = name
        self.shared.replica.reset(name)
        self.shared.needs_full_result, self.asked_ms = True, min(self.asked_ms, 1)

    def push(self, events: Sequence[ResultEvent | Notice], *, step: Step | None = None) -> None:
        """Send the events of one change, or notices, to all subscribers here.

        step: the position behind them.
        """
        for live in self.live:
            live.push(events, step=step)

    def take_lacking(self, lacking: tuple[str, ...] | None) -> None:
        """Take in which collections have no post-images. Ends the subscribers that need them, and tells the others."""
        before, self.shared.lacking = self.shared.delivery, lacking
        delivery = self.shared.delivery
        if delivery is not DeliveryMode.EXACT:
            for live in [live for live in self.live if live.options.exact]:
                live.fail(SubscriptionError(remedy(lacking or ()), retryable=False))
        if delivery is not before:
            self.push([DeliveryChanged(delivery=delivery, lacking=lacking or ())])

    def fail(self, error: SubscriptionError) -> None:
        """Tell all subscribers here that it has ended."""
        for live in self.live:
            live.fail(error)
