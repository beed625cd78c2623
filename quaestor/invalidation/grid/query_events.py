"""Effects of query pipeline entries on a cell: registrations, cancellations, usage reports, announcements, resize messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from quaestor.clock import Clock
from quaestor.errors import EventLayerError
from quaestor.event_layer import offsets
from quaestor.event_layer.codec import decode_query_event
from quaestor.invalidation.grid.cell_outbox import CellOutbox
from quaestor.invalidation.grid.event_authorization import authorized, lease_ms
from quaestor.invalidation.grid.lease_horizon import LeaseHorizon
from quaestor.invalidation.grid.resizing.messages import concerns_resizing
from quaestor.invalidation.grid.resizing.succession import Succession
from quaestor.invalidation.grid.subscription_events import SubscriptionEvents
from quaestor.invalidation.matching.node import MatchingNode
from quaestor.model import Activated, Cancellation, Invalidated, MatchType, Refused, Registration, Usage
from quaestor.observability.event_log import EventLog
from quaestor.ports import StreamEntry
from quaestor.realtime.codec import concerns_subscriptions

_NO_VERSION: Final = 0


class QueryEvents:
    """Consumer of single query events. Not thread-safe. Results go into the outbox, in order."""

    def __init__(
        self,
        node: MatchingNode,
        *,
        deployment: str,
        subscriptions: SubscriptionEvents,
        succession: Succession,
        leases: LeaseHorizon,
        outbox: CellOutbox,
        clock: Clock,
        telemetry: EventLog,
    ) -> None:
        self._node = node
        self._cell = node.cell
        self._deployment = deployment
        self._subscriptions = subscriptions
        self._succession = succession
        self._leases = leases
        self._outbox = outbox
        self._clock = clock
        self._telemetry = telemetry

    def take(self, entry: StreamEntry, *, refused: bool = False, inherited: bool = False) -> None:
        """Process an entry.

        refused: do not guard it, because the pipeline is too large (query_retention.py).
        inherited: the cell before this one may have activated it.
        """
        if concerns_subscriptions(entry.payload):
            self._keep(entry, self._subscriptions.take_query_event(entry.payload))
            return
        if concerns_resizing(entry.payload):
            if (registration := self._resized(entry)) is not None:
                self.take_over(entry, registration)
            return
        event = self._understood(entry)
        if isinstance(event, Cancellation):
            self._node.cancel(event)
        elif isinstance(event, Usage):
            self._node.used(event, now_ms=self._clock())
        elif event is not None:
            if refused:
                # A refusal alone is not enough: the cell before this one may have activated it.
                self._outbox.add(
                    self._node.give_up([event.id], now_ms=self._clock()) or [self.invalidated(event, MatchType.EVICTED)]
                )
            else:
                outcomes = self._fenced(event) if self._succession.fenced else self._registered(entry, event)
                self._outbox.add(outcomes)
                if inherited and any(isinstance(outcome, Refused) for outcome in outcomes):
                    # An app that relies on the other cell's activation ignores the refusal.
                    self._outbox.add([self.invalidated(event, MatchType.EVICTED)])

    def retained(self, entry: StreamEntry) -> Registration | Cancellation | None:
        """Return the registration or cancellation in an entry that the former cell has processed; None: another event."""
        if concerns_subscriptions(entry.payload):
            self._keep(entry, self._subscriptions.lease_of(entry.payload))
            return None
        event = self._resized(entry) if concerns_resizing(entry.payload) else self._understood(entry)
        if isinstance(event, Usage):
            self._node.used(event, now_ms=offsets.appended_at_ms(entry.offset))
            return None
        return event

    def take_over(self, entry: StreamEntry, registration: Registration) -> None:
        """Guard a registration that was active in another cell, as of its `since`, without a second activation."""
        for outcome in self._registered(entry, registration):
            if isinstance(outcome, Refused):
                self._outbox.add([self.invalidated(registration)])
            elif isinstance(outcome, Invalidated):
                self._outbox.add([outcome])

    def invalidated(self, registration: Registration, match_type: MatchType = MatchType.MATCH) -> Invalidated:
        """Return the notification that a registration can no longer be guarded, independent of any write."""
        return Invalidated(
            registration_ids=(registration.id,),
            query_id=registration.query_id,
            match_type=match_type,
            version=_NO_VERSION,
            key=None,
            written_at_ms=self._clock(),
            source=self._cell,
        )

    def _understood(self, entry: StreamEntry) -> Registration | Cancellation | Usage | None:
        """Return the event in an entry.

        None, with a log line, if it is unreadable: its sender then gets no activation, and does not cache.
        """
        try:
            return authorized(decode_query_event(entry.payload), self._deployment)
        except EventLayerError as error:
            self._unreadable(error)
            return None

    def _resized(self, entry: StreamEntry) -> Registration | None:
        try:
            registration = self._succession.take_query_event(entry)
            return None if registration is None else authorized(registration, self._deployment)
        except EventLayerError as error:  # the registration behind it was unreadable too: no response relies on it
            self._unreadable(error)
            return None

    def _unreadable(self, error: EventLayerError) -> None:
        self._telemetry.failure("event-layer", "cell.query_event_unreadable", error, cell=str(self._cell))

    def _keep(self, entry: StreamEntry, expires_at_ms: int) -> bool:
        """Note that the entry is needed until then; return whether such a lease is allowed."""
        at_ms = offsets.appended_at_ms(entry.offset)
        until_ms = lease_ms(expires_at_ms, since_ms=at_ms)
        self._leases.add(at_ms, until_ms)
        return until_ms > 0

    def _fenced(self, registration: Registration) -> Sequence[Activated | Refused | Invalidated]:
        reason = "the grid is being partitioned anew"
        return [Refused(registration_id=registration.id, cell=self._cell, reason=reason)]

    def _registered(
        self, entry: StreamEntry, registration: Registration
    ) -> Sequence[Activated | Refused | Invalidated]:
        if not self._keep(entry, registration.expires_at_ms):
            return [Refused(registration_id=registration.id, cell=self._cell, reason="its lease is over, or too long")]
        try:
            return self._node.register(registration, now_ms=self._clock())
        except Exception as error:  # one bad query must not stop the node
            self._telemetry.failure("matching", "cell.registration_failed", error, cell=str(self._cell))
            self._node.cancel(
                Cancellation(
                    tenant=registration.tenant, query_id=registration.query_id, registration_ids=(registration.id,)
                )
            )
            reason = f"matching failed: {error!r}"
            # A registration that is repeated with its contributors was active, and its app ignores a refusal.
            return [
                Refused(registration_id=registration.id, cell=self._cell, reason=reason),
                self.invalidated(registration, MatchType.EVICTED),
            ]
