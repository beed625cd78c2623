"""Subscription of one process to one query, shared by all its subscribers there."""

from __future__ import annotations

import itertools
import uuid
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from quaestor.errors import SubscriptionError
from quaestor.event_layer.partitioning import query_partition
from quaestor.incremental import ResultEvent
from quaestor.model import GridShape
from quaestor.realtime.due_times import DueTimes
from quaestor.realtime.live import LiveResult, SharedResult
from quaestor.realtime.messages import Subscription, Unsubscription
from quaestor.realtime.notices import DeliveryChanged, DeliveryMode, Notice, Step, remedy

ASK_AGAIN_MS: Final = 1_000
_AT_ONCE: Final = 1
"""Time of the last message of a subscription whose next message is due at once."""


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


class MessageTimes:
    """Times of the next messages to the stages, by query.

    requests: of messages that are sent as soon as they are due: requests for full results, smaller poll intervals.
    leases: of messages that extend leases.
    """

    __slots__ = ("leases", "requests")

    def __init__(self) -> None:
        self.requests: DueTimes[str] = DueTimes()
        self.leases: DueTimes[str] = DueTimes()

    def cancel(self, query_id: str) -> None:
        """Send no more messages of this query."""
        self.requests.cancel(query_id)
        self.leases.cancel(query_id)


class SubscriberRef(weakref.ref[LiveResult]):
    """Weak reference to a subscriber. A subscriber that the garbage collector has taken has left.

    query_id: of its query.
    key: of the reference in its subscription.
    """

    __slots__ = ("key", "query_id")
    query_id: str
    key: int


@dataclass(slots=True, kw_only=True, eq=False)
class LocalSubscription:
    """Subscription of this process to one query. Guarded by the lock of its shared result.

    id: name of the subscription in the grid.
    stage: address of the stage that maintains it.
    times: of the next messages to the stages.
    references: to the subscribers in this process.
    asked_ms: time of the last message to the stage; 0: none yet.
    number: among the subscriptions of the process (gc_freezing.py).
    """

    id: str
    query_id: str
    stage: StageAddress
    shared: SharedResult
    times: MessageTimes
    references: dict[int, SubscriberRef] = field(default_factory=dict)
    asked_ms: int = 0
    number: int = 0

    @property
    def subscribers(self) -> Iterator[LiveResult]:
        """The subscribers in this process, without collected ones."""
        for reference in self.references.values():
            live = reference()
            if live is not None:
                yield live

    def add(self, live: LiveResult, *, gone: Callable[[SubscriberRef], None]) -> None:
        """Add a subscriber. The stage receives a smaller poll interval soon.

        gone: called when the subscriber is collected, in any thread, without the lock.
        """
        if live.options.poll_interval_ms < self.poll_interval_ms:
            self._hurry()
        reference = SubscriberRef(live, gone)
        reference.query_id, reference.key = self.query_id, id(live)
        self.references[reference.key] = reference

    def discard(self, live: LiveResult) -> bool:
        """Remove a subscriber; whether it was there."""
        return self.references.pop(id(live), None) is not None

    def forget(self, reference: SubscriberRef) -> bool:
        """Remove a collected subscriber; whether it was there."""
        if self.references.get(reference.key) is not reference:
            return False
        del self.references[reference.key]
        return True

    def asked(self, now_ms: int, *, extend_ms: int) -> None:
        """Take in that its stage receives its message now. The next one is due a while later."""
        self.asked_ms = now_ms
        self._schedule(extend_ms)

    def is_due(self, now_ms: int, *, extend_ms: int, request: bool) -> bool:
        """Whether its stage has to receive its message again, at a due time. If not, its next due time is set.

        request: the due time is that of a request, and not of a lease.
        """
        if request is self._is_request and now_ms >= self.asked_ms + self._every_ms(extend_ms):
            return True
        self._schedule(extend_ms)
        return False

    @property
    def _is_request(self) -> bool:
        return self.shared.needs_full_result or self.asked_ms == _AT_ONCE

    def _schedule(self, extend_ms: int) -> None:
        times = self.times.requests if self._is_request else self.times.leases
        times.schedule(self.query_id, self.asked_ms + self._every_ms(extend_ms))

    def _every_ms(self, extend_ms: int) -> int:
        return ASK_AGAIN_MS if self.shared.needs_full_result else extend_ms

    def _hurry(self) -> None:
        """Send its stage the message as soon as possible, unless it waits for the first one."""
        if self.asked_ms:
            self.asked_ms = _AT_ONCE
            self.times.requests.schedule(self.query_id, _AT_ONCE)

    def subscription(self, tenant: str, *, expires_at_ms: int) -> Subscription:
        """The message to its stage that begins it and renews its lease."""
        return Subscription(
            id=self.id,
            tenant=tenant,
            query_id=self.query_id,
            query=self.shared.query,
            fresh=self.shared.needs_full_result,
            expires_at_ms=expires_at_ms,
            exact=any(live.options.exact for live in self.subscribers),
            poll_interval_ms=self.poll_interval_ms,
        )

    def parting(self, tenant: str, *, expires_at_ms: int) -> Subscription:
        """The message to its stage when this process ends: its lease ends soon. Until then another process may take over."""
        return replace(self.subscription(tenant, expires_at_ms=expires_at_ms), fresh=False)

    @property
    def poll_interval_ms(self) -> int:
        """Smallest poll interval of its subscribers."""
        return min((live.options.poll_interval_ms for live in self.subscribers), default=0)

    def unsubscription(self) -> Unsubscription:
        """The message to its stage that ends it."""
        return Unsubscription(query_id=self.query_id, subscription_ids=(self.id,))

    def require_full_result(self) -> None:
        """Ask for the full result as soon as possible."""
        self.shared.needs_full_result = True
        self._hurry()

    def rename(self, name: str) -> None:
        """Go on under another name, so that no older message can be taken for the answer. The old one's lease ends."""
        self.id = name
        self.shared.replica.reset(name)
        self.require_full_result()

    def push(self, events: Sequence[ResultEvent | Notice], *, step: Step | None = None) -> None:
        """Send the events of one change, or notices, to all subscribers here.

        step: the position behind them.
        """
        for live in self.subscribers:
            live.push(events, step=step)

    def take_lacking(self, lacking: tuple[str, ...] | None) -> None:
        """Take in which collections have no post-images. Ends the subscribers that need them, and tells the others."""
        before, self.shared.lacking = self.shared.delivery, lacking
        delivery = self.shared.delivery
        if delivery is not DeliveryMode.EXACT:
            for live in [live for live in self.subscribers if live.options.exact]:
                live.fail(SubscriptionError(remedy(lacking or ()), retryable=False))
        if delivery is not before:
            self.push([DeliveryChanged(delivery=delivery, lacking=lacking or ())])

    def fail(self, error: SubscriptionError) -> None:
        """Tell all subscribers here that it has ended."""
        for live in self.subscribers:
            live.fail(error)
