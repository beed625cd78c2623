"""Subscribed queries of one stage in one epoch: who is subscribed to them, which of them have to be read, what they cost.

Decides what the stage does for an event; messages go to its outbox, reads to its reader pool. No event layer, no clock.
"""

from __future__ import annotations

from typing import Final

from quaestor.errors import DatabaseError, QueryError
from quaestor.model import GridShape
from quaestor.observability.telemetry import Telemetry
from quaestor.realtime.due_times import DueTimes
from quaestor.realtime.epoch import Epoch
from quaestor.realtime.messages import (
    CellProgress,
    CellReady,
    FullResult,
    MatchedWrite,
    MatchingLost,
    QueriesEnded,
    ResultChange,
    Subscription,
    SubscriptionsEnded,
)
from quaestor.realtime.outbox import Outbox
from quaestor.realtime.progress import PartitionProgress
from quaestor.realtime.quotas import QuotaError, Quotas
from quaestor.realtime.reader_pool import ReaderPool, ReadOutcome
from quaestor.realtime.reading import ReadResult
from quaestor.realtime.round_robin import RoundRobinQueue
from quaestor.realtime.rules import StageRules
from quaestor.realtime.stats import StageMeter
from quaestor.realtime.subscribed_query import Lease, SubscribedQuery

_BEHIND_IN_A_MS: Final = 100
"""Queries that are behind for each millisecond between two reports: with 10,000 of them a report comes every 100 ms."""


class StageQueries:
    """Subscribed queries of one stage in one epoch. Not thread-safe.

    keep_ms: how long writes may be repeated.
    quotas: what the tenants use.
    progress: of the cells.
    """

    def __init__(
        self,
        epoch: Epoch,
        shape: GridShape,
        *,
        rules: StageRules,
        keep_ms: int,
        outbox: Outbox,
        meter: StageMeter,
        telemetry: Telemetry,
    ) -> None:
        self.quotas = Quotas(max_queries=rules.max_queries, max_bytes=rules.max_bytes)
        self.progress = PartitionProgress(shape, keep_ms=keep_ms)
        self._epoch = epoch
        self._cells = shape.write_partitions
        self._rules = rules
        self._outbox = outbox
        self._meter = meter
        self._telemetry = telemetry
        self._queries: dict[str, SubscribedQuery] = {}
        self._to_read = RoundRobinQueue()
        self._limited: DueTimes[str] = DueTimes()
        self._expiring: DueTimes[str] = DueTimes()
        self._reported_ms = 0

    def __len__(self) -> int:
        return len(self._queries)

    @property
    def reads_wait(self) -> bool:
        """Whether a query waits to be read."""
        return bool(self._to_read)

    def subscribe(self, event: Subscription, now_ms: int, *, admitted_before: bool) -> None:
        """Begin or renew a subscription.

        admitted_before: a stage before this one, or this one, has had it already.
        """
        query = self._queries.get(event.query_id)
        known = query is not None
        if query is None:
            query = SubscribedQuery(
                event.query_id,
                event.query,
                epoch=self._epoch.next("e"),
                settings=self._rules.renewal,
                propagation_ms=self._rules.propagation_ms,
            )
        if event.id not in query.subscriptions:
            try:
                if len(query.subscriptions) >= self._rules.max_subscriptions:
                    raise QuotaError(f"{self._rules.max_subscriptions} app servers follow this query already")
                self.quotas.admit(query.charge, event.tenant, admitted_before=admitted_before)
            except QuotaError as error:
                self._meter.refused += 1
                self._outbox.refuse(event, str(error))
                return
        query.subscriptions[event.id] = Lease(event.tenant, event.expires_at_ms, event.poll_interval_ms, event.exact)
        self._expiring.advance(event.query_id, event.expires_at_ms)
        query.reschedule(now_ms)
        if not known:
            self._queries[event.query_id] = query
            self._enqueue(query)
        if not event.fresh or not query.has_result:
            return
        if event.exact and query.lacking and event.id not in query.looked_again:
            query.looked_again.add(event.id)
            self._request_read(query, "post-images may have been switched on", now_ms)
        if not (event.exact and query.lacking and query.is_to_be_read):  # it asks again
            if (held := query.held_changes(now_ms=now_ms)) is not None:
                self._tell(held)
            self._tell(query.full_result((event.id,)))

    def unsubscribe(self, query_id: str, subscription_ids: tuple[str, ...]) -> None:
        """End subscriptions. Unknown ids are ignored."""
        query = self._queries.get(query_id)
        if query is None:
            return
        query.looked_again.difference_update(subscription_ids)
        for subscription_id in subscription_ids:
            if (subscription := query.subscriptions.pop(subscription_id, None)) is not None:
                self.quotas.release(query.charge, subscription.tenant)
        if not query.subscriptions:
            self._drop(query)
            self._outbox.to_cells(QueriesEnded(query_ids=(query.query_id,)))

    def apply(self, event: MatchedWrite, now_ms: int) -> None:
        """Apply a write to the results that it concerns."""
        concerned = self._queries.values() if event.query_ids is None else map(self._queries.get, event.query_ids)
        for query in list(concerned):
            if query is None:
                continue
            try:
                self._meter.matched += 1
                change = query.apply(event.image, now_ms=now_ms)
                if change is not None:
                    self.quotas.charge_growth(query.charge, change.growth)
                    self._tell(change)
                self._schedule_held_back(query)
                if query.retell:
                    self._tell(query.retold())
            except Exception as error:  # one bad query must not stop the stage
                self._fail_unexpectedly(query, error)
                continue
            if query.read.due_ms is not None:
                self._enqueue(query)

    def send_due_changes(self, now_ms: int) -> bool:
        """Send the changes that the propagation limit held back until now. Returns whether others wait."""
        for query_id in list(self._limited.due(now_ms)):
            query = self._queries.get(query_id)
            if query is None:
                continue
            if (change := query.due_changes(now_ms=now_ms)) is not None:
                self._tell(change)
            self._schedule_held_back(query)
        return bool(self._limited)

    def cell_ready(self, event: CellReady) -> None:
        """Take in that a cell matches a query."""
        if (query := self._queries.get(event.query_id)) is not None:
            query.cell_ready(event.cell, event.token)

    def matching_lost(self, event: MatchingLost, now_ms: int) -> None:
        """Read a query again that a cell does not match, or end it."""
        query = self._queries.get(event.query_id)
        if query is None or query.token != event.token:
            return
        if event.final:
            self._fail(query, event.reason)
        else:
            self._request_read(query, event.reason, now_ms)

    def cell_progress(self, event: CellProgress, now_ms: int) -> None:
        """Take in how far a cell has got."""
        self.progress.record(event, now_ms=now_ms)

    def request_all(self, reason: str, now_ms: int) -> None:
        """Read every query again, because some of its writes may have been missed."""
        for query in self._queries.values():
            self._request_read(query, reason, now_ms)

    def submit_reads(self, readers: ReaderPool, now_ms: int) -> None:
        """Begin the reads that are due, as far as readers are free."""
        for query_id in self._to_read if readers.free else ():
            if not readers.free:
                return
            query = self._queries[query_id]
            if query.read.due_ms is None:
                self._to_read.remove(query_id)
            elif not query.read.under_way and query.read.due_ms <= now_ms:
                self._to_read.remove(query_id)
                readers.submit(query.begin_read(reached=self.progress.version, reached_ms=self.progress.fresh_as_of_ms))

    def read_ended(self, outcome: ReadOutcome, now_ms: int) -> None:
        """Take over what was read, or decide what a failure means."""
        query = self._queries.get(outcome.request.query_id)
        if query is None or not query.awaits(outcome.request):
            return
        try:
            if not isinstance(outcome.result, ReadResult):
                raise outcome.result
            self._accept(query, outcome.result, now_ms)
        except QuotaError as error:
            self._refuse(query, str(error))
        except QueryError as error:
            self._fail(query, str(error))
        except DatabaseError as error:
            self._telemetry.failure("mongodb", "stage.read_failed", error, query_id=query.query_id)
            if not error.retryable and not query.has_result:
                self._fail(query, str(error))
                return
            query.read_failed(now_ms=now_ms)
            self._enqueue(query)
        except Exception as error:  # one bad query must not stop the stage
            self._fail_unexpectedly(query, error)

    def report_progress(self, now_ms: int) -> None:
        """Tell subscribers how far the results have got, if they have got further. O(queries behind), so seldom if many are."""
        if 0 <= now_ms - self._reported_ms < len(self.progress.behind) // _BEHIND_IN_A_MS:
            return
        self._reported_ms = now_ms
        waiting = [self._queries[name] for name in self.progress.behind if name in self._queries]
        behind = {query.query_id for query in waiting if not query.is_caught_up(self._cells)}
        report = self.progress.report(self._epoch.name, behind)
        if report is not None and self._queries:
            self._outbox.to_subscribers(report)

    def expire(self, now_ms: int) -> None:
        """End subscriptions whose leases are over. Looks only at queries with a lease that was to end by now."""
        for query_id in list(self._expiring.due(now_ms)):
            query = self._queries.get(query_id)
            if query is None:
                continue
            ended = tuple(name for name, lease in query.subscriptions.items() if lease.expires_at_ms <= now_ms)
            if ended:
                self._outbox.to_subscribers(
                    SubscriptionsEnded(
                        query_id=query_id, subscription_ids=ended, reason="its lease was over", again=True
                    )
                )
                self.unsubscribe(query_id, ended)
            if query.subscriptions:
                self._expiring.schedule(query_id, min(lease.expires_at_ms for lease in query.subscriptions.values()))

    def renew_leases(self, now_ms: int) -> None:
        """Renew the leases at the cells; a cell that does not know a query reports it."""
        pairs = [(query_id, query.token) for query_id, query in self._queries.items() if query.token]
        self._outbox.renew_leases(pairs, expires_at_ms=now_ms + self._rules.lease_ms)

    def forget_replayed(self, now_ms: int) -> None:
        """Forget the state kept for repeated writes, once no write is repeated any more."""
        horizon = self.progress.replay_horizon(now_ms)
        if horizon:
            for query in self._queries.values():
                query.forget(horizon)

    def enforce_memory(self) -> None:
        """End the largest query of the tenant with the most, as long as results have grown beyond all that may be kept."""
        while self.quotas.exceeded:
            tenant = self.quotas.largest_tenant
            theirs = (query for query in self._queries.values() if tenant in query.charge.subscriptions)
            query = max(theirs, key=lambda query: query.charge.bytes)
            self._refuse(query, f"its result has grown to {query.charge.bytes} bytes, and there is no room: narrow it")

    def _schedule_held_back(self, query: SubscribedQuery) -> None:
        """Schedule the changes that the propagation limit holds back; until they are sent, the result lags."""
        if (due_ms := query.change_due_ms) is not None:
            self._limited.schedule(query.query_id, due_ms)
            self.progress.behind.add(query.query_id)

    def _accept(self, query: SubscribedQuery, result: ReadResult, now_ms: int) -> None:
        first = not query.has_result
        self._meter.renewals += not first
        accepted, messages = query.accept(result, now_ms=now_ms)
        self._schedule_held_back(query)
        snapshot = result.snapshot
        if accepted:
            number = len(snapshot.own) + sum(map(len, snapshot.foreign.values()))
            self.quotas.charge_result(query.charge, snapshot.own, number=number, first=first)
        if not all(map(self._tell, messages)):
            return
        if accepted:
            announcement = query.announcement(
                snapshot,
                write_partitions=self._cells,
                token=self._epoch.next("t"),
                expires_at_ms=now_ms + self._rules.lease_ms,
            )
            self._outbox.to_cells(announcement)
        if query.read.due_ms is not None:
            self._enqueue(query)

    def _request_read(self, query: SubscribedQuery, reason: str, now_ms: int) -> None:
        query.request_read(reason, now_ms=now_ms)
        self._enqueue(query)

    def _enqueue(self, query: SubscribedQuery) -> None:
        """Schedule a read of the query, which is behind until then."""
        self._to_read.add(query.query_id, next(iter(query.charge.subscriptions), ""))
        self.progress.behind.add(query.query_id)

    def _tell(self, message: FullResult | ResultChange) -> bool:
        """False: it cannot be sent; the query has failed instead."""
        reason = self._outbox.to_subscribers(message)
        query = self._queries.get(message.query_id)
        if reason is not None and query is not None:
            self._fail(query, reason)
        return reason is None

    def _refuse(self, query: SubscribedQuery, reason: str) -> None:
        self._meter.refused += len(query.subscriptions)
        self._fail(query, reason)

    def _fail_unexpectedly(self, query: SubscribedQuery, error: Exception) -> None:
        self._telemetry.failure("matching", "stage.query_failed", repr(error), query_id=query.query_id)
        self._fail(query, f"it could not be maintained: {error!r}")

    def _fail(self, query: SubscribedQuery, reason: str) -> None:
        """End the query for all its subscribers."""
        self._telemetry.event("stage.query_refused", query_id=query.query_id, reason=reason)
        self._drop(query)
        ended = SubscriptionsEnded(query_id=query.query_id, subscription_ids=None, reason=reason[:1_000])
        self._outbox.to_subscribers(ended)
        if query.token:
            self._outbox.to_cells(QueriesEnded(query_ids=(query.query_id,)))

    def _drop(self, query: SubscribedQuery) -> None:
        self.quotas.release_all(query.charge)
        self._queries.pop(query.query_id, None)
        self._to_read.remove(query.query_id)
