"""Subscribed query in its stage: its maintained result, its subscriptions, what the cells know of it. No I/O, no clock."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from quaestor.incremental import (
    FollowedResult,
    PriorState,
    RenewalSettings,
    ResultEvent,
    changes_between,
)
from quaestor.incremental.sides import pack_members, sides_of
from quaestor.model import AfterImage, Cell, Query, Version, WriteKind
from quaestor.realtime.messages import Announcement, FullResult, ResultChange
from quaestor.realtime.propagation_limit import PropagationLimit
from quaestor.realtime.quotas import QueryCharge
from quaestor.realtime.reading import ReadRequest, ReadResult
from quaestor.realtime.snapshots import Snapshot
from quaestor.tasks import pause_after

_ALL_AT_ONCE: Final = (WriteKind.GAP, WriteKind.COLLECTION)
_FIRST_BACKOFF_S: Final = 0.1
_LONGEST_BACKOFF_S: Final = 10.0
_MOST_NAMED: Final = 1_000
"""The most subscriptions that a message names; with more, subscribers ask whether the message is for them."""


class Lease(NamedTuple):
    """Lease of one subscription.

    poll_interval_ms: the result is read again at most once in this time; 0: the stage's rule.
    exact: a subscriber wants an event for every write.
    """

    tenant: str
    expires_at_ms: int
    poll_interval_ms: int = 0
    exact: bool = False


@dataclass(slots=True)
class QueryRead:
    """Read of one query's result from the database.

    due_ms: earliest beginning of a requested read; None: none is requested.
    under_way: the query is being read.
    failures: consecutive failed reads.
    version: of the newest result that was read.
    request: the newest request.
    reached_ms: moment up to which the newest request reads every write.
    trust_images: whether pre-images of writes may be used.
    buffered: writes since the read began.
    dropped_version: newest write that the buffer had no room for.
    """

    due_ms: int | None = 0
    under_way: bool = False
    failures: int = 0
    version: Version = 0
    request: ReadRequest | None = None
    reached_ms: int = 0
    trust_images: bool = True
    buffered: list[AfterImage] = field(default_factory=list)
    dropped_version: Version = 0


@dataclass(slots=True)
class MessageStream:
    """Stream of a query's messages: the epoch of its stage, the number of the newest message, and the limit on changes."""

    epoch: str
    limit: PropagationLimit
    sequence: int = 0


class SubscribedQuery:
    """One subscribed query. Not thread-safe.

    subscriptions: their leases by id.
    charge: of its tenants (see quotas.py).
    read: of its result from the database.
    token: of the newest announcement, "" before it.
    lacking: its collections without post-images, as of the newest read or of writes that came without one since.
    retell: `lacking` has changed, and subscribers have not received the change.
    exact: a subscriber needs an event for every change, so each read checks for post-images anew.
    looked_again: subscriptions that caused such a check.
    """

    def __init__(
        self, query_id: str, query: Query, *, epoch: str, settings: RenewalSettings, propagation_ms: int = 0
    ) -> None:
        self.query_id = query_id
        self.query = query
        self.subscriptions: dict[str, Lease] = {}
        self.charge = QueryCharge()
        self.read = QueryRead()
        self.token = ""
        self.lacking: tuple[str, ...] = ()
        self.retell = False
        self.looked_again: set[str] = set()
        self._settings = settings
        self._maintained: FollowedResult | None = None
        self._stream = MessageStream(epoch, PropagationLimit(propagation_ms))
        self._seen: Version = 0
        self._ready: set[Cell] = set()

    @property
    def has_result(self) -> bool:
        """Whether there is a result to send."""
        return self._maintained is not None

    @property
    def exact(self) -> bool:
        """Whether a subscriber wants an event for every write. O(app processes that follow the query)."""
        return any(lease.exact for lease in self.subscriptions.values())

    @property
    def is_to_be_read(self) -> bool:
        """Whether it is being read, or will be."""
        return self.read.under_way or self.read.due_ms is not None

    def is_caught_up(self, cells: int) -> bool:
        """Whether every write that the cells find reaches a result that is not waiting to be read again."""
        current = self._maintained is not None and self._maintained.renewal is None
        waits = self.read.under_way or self.read.due_ms is not None or self.change_due_ms is not None
        return current and not waits and len(self._ready) == cells

    @property
    def change_due_ms(self) -> int | None:
        """Moment at which a change that the propagation limit holds back may be sent; None: none waits."""
        return self._stream.limit.due_ms

    def due_changes(self, *, now_ms: int) -> ResultChange | None:
        """Return the changes whose time has come. With a subscriber to every change, all of them."""
        events = self._stream.limit.flush(now_ms=now_ms) if self.exact else self._stream.limit.due(now_ms=now_ms)
        return self._change(events, self._seen, 0) if events else None

    def held_changes(self, *, now_ms: int) -> ResultChange | None:
        """Return all changes that the propagation limit holds back, so that the full result is not newer than the stream."""
        events = self._stream.limit.flush(now_ms=now_ms)
        return self._change(events, self._seen, 0) if events else None

    def apply(self, image: AfterImage, *, now_ms: int) -> ResultChange | None:
        """Apply a write that concerns the query. Requests a renewal where one is needed (`read.due_ms`)."""
        if self.read.under_way:
            self._buffer(image)
        if self._maintained is None:
            return None
        events = self._limited(self._apply(image), now_ms)
        self._schedule_renewal(now_ms)
        return self._change(events, image.version, image.wall_ms) if events else None

    def _limited(self, events: list[ResultEvent], now_ms: int) -> list[ResultEvent]:
        if self.exact:
            return [*self._stream.limit.flush(now_ms=now_ms), *events]
        return self._stream.limit.offer(events, now_ms=now_ms) if events else events

    def _apply(self, image: AfterImage) -> list[ResultEvent]:
        maintained = self._maintained
        if maintained is None or (image.kind in _ALL_AT_ONCE and 0 < image.version <= self.read.version):
            return []  # of several write partitions, or replayed: what was read is newer
        self._seen = max(self._seen, image.version)
        if maintained.maintenance.recomputation is not None:
            return maintained.apply(image)
        looked_up = image.kind is WriteKind.UPDATE and not image.after_exact and image.version > self.read.version
        if looked_up and image.namespace not in self.lacking:
            self.lacking, self.retell = (*self.lacking, image.namespace), True
        if maintained.maintenance.prior_state is PriorState.BEFORE_IMAGES and not _exact(image):
            self.read.trust_images = False
        return maintained.apply(image)

    def _buffer(self, image: AfterImage) -> None:
        """Keep a write that the running read may not contain.

        The cells find the write again once the read is announced to them. Until then they match by an earlier announcement:
        without this write, later writes would make a result that never existed.
        """
        if len(self.read.buffered) >= self._settings.most_waiting:
            self.read.dropped_version = max(self.read.dropped_version, *(write.version for write in self.read.buffered))
            self.read.buffered.clear()
        self.read.buffered.append(image)

    def request_read(self, reason: str, *, now_ms: int, after_ms: int = 0) -> None:
        """Request a read, because the cells cannot be relied on for what came in between."""
        due_ms = now_ms + after_ms
        if self._maintained is not None:
            self._maintained.ask(reason)
            due_ms = max(due_ms, self._not_before_ms(self._maintained))
        self._ready.clear()
        self.read.due_ms = due_ms if self.read.due_ms is None else max(due_ms, self.read.due_ms)

    def begin_read(self, *, reached: Version, reached_ms: int = 0) -> ReadRequest:
        """Begin a read; returns what to read.

        reached: by all cells; what is newer they find again, so what is read need not be newer.
        reached_ms: the same as a moment.
        """
        maintained = self._maintained
        self.read.under_way, self.read.due_ms = True, None
        self.read.buffered.clear()
        self.read.dropped_version = 0
        self.read.reached_ms = reached_ms
        renewal = None if maintained is None else maintained.renewal
        self.read.request = ReadRequest(
            query_id=self.query_id,
            query=self.query,
            at_least=self._seen if renewal is None else max(self._seen, renewal.at_least),
            recent=reached if maintained is not None and not self.read.failures else 0,
            memory=None if maintained is None else maintained.maintenance.prior_state,
            queries=() if maintained is None else maintained.bootstrap(),
            trust_images=self.read.trust_images,
            exact=self.exact,
            settings=self._settings,
        )
        return self.read.request

    def awaits(self, request: ReadRequest) -> bool:
        """Whether this is the read that was begun last."""
        return self.read.under_way and request is self.read.request

    def accept(self, result: ReadResult, *, now_ms: int) -> tuple[bool, list[ResultChange | FullResult]]:
        """Take over a read as the result. Returns whether it was accepted, and the messages for the subscribers.

        A read that is no longer needed is not accepted. A read that is too old is not accepted, and requested again.
        """
        self.read.under_way, self.read.failures = False, 0
        version, maintained = result.snapshot.version, self._maintained
        messages: list[ResultChange | FullResult] = []
        if result.maintained is not None and version < self.read.dropped_version:
            self.request_read("more was written while it was read than could be kept", now_ms=now_ms)
            return False, []
        if result.maintained is not None:
            self.read.version, self.lacking = version, result.lacking
            messages = self._replaced(result.maintained, version)
        elif maintained is None or (maintained.renewal is None and version < self._seen):
            return False, []
        else:
            try:
                events = maintained.renew(result.snapshot.own, version, foreign=result.snapshot.foreign, now_ms=now_ms)
            except ValueError:
                self.request_read("what was read is older than what was seen meanwhile", now_ms=now_ms)
                return False, []
            self.read.version, self._seen = version, max(self._seen, version)
            recomputed = maintained.maintenance.recomputation is not None
            events = self._limited(events, now_ms)
            if events or recomputed:  # every reading of a recomputed result is progress
                newest = version if recomputed else self._seen
                messages.append(self._change(events, newest, 0, reread=True))
            if self.lacking != result.lacking:
                self.lacking = result.lacking
                messages.append(self.retold())
        self._schedule_renewal(now_ms)
        return True, messages

    def read_failed(self, *, now_ms: int) -> None:
        """Read again later, with growing pauses: it could not be read."""
        self.read.under_way = False
        self.read.failures += 1
        after_s = pause_after(self.read.failures, first_s=_FIRST_BACKOFF_S, longest_s=_LONGEST_BACKOFF_S)
        self.read.due_ms = now_ms + round(1_000 * after_s)

    def announcement(
        self, snapshot: Snapshot, *, write_partitions: int, token: str, expires_at_ms: int
    ) -> Announcement:
        """Announcement to the cells of what was read."""
        assert self._maintained is not None
        self.token = token
        self._ready.clear()
        maintenance = self._maintained.maintenance
        members = None
        if maintenance.prior_state is PriorState.MEMBERSHIP:
            namespaces = [side.namespace for side in sides_of(maintenance)]
            records = [snapshot.own, *(snapshot.foreign[query.namespace] for query in maintenance.foreign())]
            members = tuple(
                pack_members(namespace, (record["_id"] for record in members), write_partitions)
                for namespace, members in zip(namespaces, records, strict=True)
            )
        return Announcement(
            query_id=self.query_id,
            token=self.token,
            query=self.query,
            memory=maintenance.prior_state,
            version=snapshot.version,
            members=members,
            expires_at_ms=expires_at_ms,
        )

    def cell_ready(self, cell: Cell, token: str) -> None:
        """Take in that a cell matches the announcement of this token."""
        if token == self.token:
            self._ready.add(cell)

    def full_result(self, subscription_ids: tuple[str, ...] | None) -> FullResult:
        """Message with the full result, for these subscriptions. O(its length)."""
        assert self._maintained is not None
        rows = tuple((event.key, event.document) for event in self._maintained.initial_events())
        return FullResult(
            query_id=self.query_id,
            subscription_ids=subscription_ids,
            epoch=self._stream.epoch,
            sequence=self._stream.sequence,
            version=self._seen,
            ordered=self._maintained.maintenance.ordered,
            rows=rows,
            lacking=self.lacking,
            read_version=self.read.version,
        )

    def forget(self, before: Version) -> None:
        """Forget what is kept for images older than this: none arrives any more."""
        if self._maintained is not None:
            self._maintained.forget(before)

    def _replaced(self, maintained: FollowedResult, version: Version) -> list[ResultChange | FullResult]:
        events = [] if self._maintained is None else changes_between(self._maintained, maintained, version)
        events = [*self._stream.limit.flush(now_ms=0), *events]
        self._stream.limit.clear()
        self._maintained = maintained
        self._seen = max(self._seen, version)
        change = [self._change(events, version, 0, reread=True)] if events else []
        for image in self.read.buffered:
            if image.version > version or not image.version:
                self._apply(image)
        self.read.buffered.clear()
        return [*change, self.retold()]

    def retold(self) -> FullResult:
        """Message with the full result for all subscribers, newer than all earlier messages."""
        self._stream.sequence += 1
        self.retell = False
        ids = tuple(self.subscriptions)
        return self.full_result(ids if len(ids) <= _MOST_NAMED else None)

    def _change(
        self, events: list[ResultEvent], version: Version, written_at_ms: int, *, reread: bool = False
    ) -> ResultChange:
        self._stream.sequence += 1
        return ResultChange(
            query_id=self.query_id,
            epoch=self._stream.epoch,
            sequence=self._stream.sequence,
            version=version,
            written_at_ms=written_at_ms,
            events=tuple(events),
            reread=reread,
            fresh_as_of_ms=self.read.reached_ms if reread else 0,
        )

    def _schedule_renewal(self, now_ms: int) -> None:
        maintained = self._maintained
        if maintained is None or maintained.renewal is None or self.read.under_way or self.read.due_ms is not None:
            return
        self.read.due_ms = max(now_ms, self._not_before_ms(maintained))

    def reschedule(self, now_ms: int) -> None:
        """Read earlier if a new subscription allows it."""
        maintained, due_ms = self._maintained, self.read.due_ms
        if maintained is not None and due_ms is not None and not self.read.failures:
            self.read.due_ms = min(due_ms, max(now_ms, self._not_before_ms(maintained)))

    def _not_before_ms(self, maintained: FollowedResult) -> int:
        """Return the time before which the poll limit allows no read. The subscription that allows most reads decides."""
        own = self._settings.poll_interval_ms
        leases = self.subscriptions.values()
        maintained.pace.interval_ms = min((lease.poll_interval_ms or own for lease in leases), default=own)
        return maintained.pace.not_before_ms


def _exact(image: AfterImage) -> bool:
    return image.kind in _ALL_AT_ONCE or (image.before_known and (image.kind is WriteKind.DELETE or image.after_exact))
