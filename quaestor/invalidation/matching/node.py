"""Matching node: one cell of the grid, as a pure state machine. No clock, no I/O; time is an argument.

Registrations are one-shot: a cached result needs only its first change. The node keeps the result as it was read, and
forgets the registration when it fires. namespace.py and index.py find the registrations that a write concerns, and change.py
judges them. retention.py replays writes for a registration that arrives after them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import nlargest
from typing import Final

from quaestor.errors import QueryError
from quaestor.gc_freezing import GcFreezing
from quaestor.invalidation.matching.active import ActiveQueries
from quaestor.invalidation.matching.boundary import boundary_of
from quaestor.invalidation.matching.clock_watches import Watch
from quaestor.invalidation.matching.compact_set import elements
from quaestor.invalidation.matching.demand import Demand
from quaestor.invalidation.matching.entities import ActiveQuery, LiveRegistration, Tenant
from quaestor.invalidation.matching.eviction import Eviction, NoRoomError
from quaestor.invalidation.matching.live_registrations import LiveRegistrations
from quaestor.invalidation.matching.namespace import Changes
from quaestor.invalidation.matching.node_limits import NodeLimits
from quaestor.invalidation.matching.notifications import due_notifications, eviction_notification, invalidations
from quaestor.invalidation.matching.predicates import Predicates
from quaestor.invalidation.matching.record_hashes import RecordHashes
from quaestor.invalidation.matching.retained_writes import RetainedWrites
from quaestor.invalidation.matching.subscription_matching import SubscribedQueries
from quaestor.invalidation.matching.tally import Tally
from quaestor.invalidation.matching.waiting_contributors import WaitingContributors
from quaestor.model import (
    Activated,
    AfterImage,
    Cancellation,
    Cell,
    GridShape,
    Invalidated,
    MatchType,
    Refused,
    Registration,
    Usage,
    Version,
    WriteKind,
)
from quaestor.namespaces import covers
from quaestor.planning.plan_parts import Window

_Payload = bytes
"""Within the class, `bytes` is its property."""
_UNORDERED: Final = (WriteKind.TICK, WriteKind.GAP)
"""Kinds of events that have a meaning only in order."""

Outcome = Activated | Refused | Invalidated


class MatchingNode:
    """Matcher of the registrations of one query partition against the writes of one write partition. Not thread-safe.

    retention_ms: time for which writes are kept for replay.
    limits: of its content.
    freeze_every: see gc_freezing.py; only for a process of its own.
    watermark: newest version seen.
    fresh_as_of_ms: wall time up to which every write has been seen, by ingest's clock.
    tally: cost of the matching so far.
    subscriptions: queries that subscribers follow.
    """

    def __init__(
        self,
        cell: Cell,
        shape: GridShape,
        *,
        retention_ms: int,
        limits: NodeLimits | None = None,
        freeze_every: int = 0,
    ) -> None:
        limits = limits or NodeLimits()
        self.cell = cell
        self.shape = shape
        self.watermark: Version = 0
        self.fresh_as_of_ms = 0
        self.tally = Tally()
        self._hashes = RecordHashes(cell, shape)
        self._writes = RetainedWrites(self._hashes, limits, self.tally, retention_ms=retention_ms)
        self._active = ActiveQueries()
        self._live = LiveRegistrations()
        self._predicates = Predicates()
        self._gc_freezing = GcFreezing(freeze_every)
        self._waiting = WaitingContributors(self._hashes, shape)
        self.subscriptions = SubscribedQueries(
            self._active.namespaces,
            self._writes.in_order,
            self._predicates,
            self.tally,
            max_queries=limits.max_registrations,
            max_unindexed=limits.max_unindexed // 2,
            max_bytes=limits.max_bytes // 2,
        )
        self._eviction = Eviction(
            self._active,
            Demand(),
            limits.of_eviction,
            self.tally.trial_rates,
            taken=lambda: self.subscriptions.held_bytes,
        )

    @property
    def guards_nothing(self) -> bool:
        """Whether the node has no live registration and no subscribed query."""
        return not self._live and not self.subscriptions

    @property
    def registrations(self) -> int:
        """Number of live registrations."""
        return len(self._live)

    @property
    def queries(self) -> int:
        """Number of different queries among the live registrations."""
        return len(self._active)

    @property
    def bytes(self) -> int:
        """Estimated bytes of queries, registrations and subscribed queries (see memory_estimates.py)."""
        return self._active.tenants.bytes + self.subscriptions.held_bytes

    def register(self, registration: Registration, *, now_ms: int) -> list[Outcome]:
        """Match this result from now on, and against the retained writes that are newer than its `since`.

        Returns Activated, or Refused (nothing is kept), or Invalidated if a retained write has changed the result.
        Registrations evicted for its room come before. A repeated registration of a live id confirms it, and supplies its
        contributors if it carries them. O(size of query and result + writes replayed).
        """
        known = self._live.get(registration.id)
        if known is not None:
            if (known.query.query_id, known.query.tenant.name) != (registration.query_id, registration.tenant):
                taken = "its id belongs to another registration"
                return [Refused(registration_id=registration.id, cell=self.cell, reason=taken)]
            return self._supplied(known, registration, now_ms)
        if (reason := self._refusal(registration, now_ms)) is not None:
            return [Refused(registration_id=registration.id, cell=self.cell, reason=reason)]
        try:
            live = self._admit(registration, now_ms)
        except QueryError as error:
            return [Refused(registration_id=registration.id, cell=self.cell, reason=str(error))]
        gone: list[Outcome] = []
        try:
            for query in self._eviction.make_room(live.query, now_ms=now_ms):
                gone += self._evict(query, now_ms)
        except NoRoomError as full:
            self._forget(live)
            return [*gone, Refused(registration_id=registration.id, cell=self.cell, reason=str(full))]
        return gone + self._caught_up(live, registration, now_ms)

    def _caught_up(self, live: LiveRegistration, registration: Registration, now_ms: int) -> list[Outcome]:
        """Return the outcome of the writes between the read and its registration."""
        gone: list[Outcome] = [*self._replay(live, registration.since)]
        if registration.watch is not None and not gone:
            newer = self._writes.in_order.newer_than(registration.watch.since, live.query.rules.namespaces)
            if self._active.watches.caught_up(live, newer, now_ms=now_ms):
                gone += self._fire_due([live], now_ms)
        return gone or self._supplied(live, registration, now_ms)

    def _replay(self, live: LiveRegistration, since: Version) -> list[Invalidated]:
        for entry in self._writes.newer_than(since, live.query.rules.namespaces, watermark=self.watermark):
            change = self._active.replayed(live, entry, self._predicates, self.tally)
            if change is not None:
                return self._fire({live: change}, entry.image)
        return []

    def _supplied(self, live: LiveRegistration, registration: Registration, now_ms: int) -> list[Outcome]:
        """Return the outcome of a registration's contributors, if it has any: they judge it from their version on."""
        gone: list[Outcome] = []
        if self._waiting.add(live, registration, floor=self._writes.in_order.floor):
            gone += self._supply_reached(self.watermark - 1)
        return [*gone, self._activated(live, now_ms)] if live.id in self._live else gone

    def _supply_reached(self, version: Version) -> list[Invalidated]:
        """Judge by contributors up to this version, and replay the writes after each."""
        gone: list[Invalidated] = []
        for registration_id, at, known in self._waiting.reached(version):
            live = self._live.get(registration_id)
            if live is not None:
                self._active.supply(live, known)
                gone += self._replay(live, at)
        return gone

    def cancel(self, cancellation: Cancellation) -> None:
        """Forget these registrations; unknown ones are ignored."""
        for registration_id in cancellation.registration_ids:
            live = self._live.get(registration_id)
            if live is not None:
                self._forget(live)

    def give_up(self, registration_ids: Iterable[str], *, now_ms: int) -> list[Invalidated]:
        """Forget the live ones of these registrations and report them. Unlike after an eviction, they may return at once.

        O(ids).
        """
        given_up: dict[str, list[LiveRegistration]] = {}
        for registration_id in registration_ids:
            if (live := self._live.get(registration_id)) is not None:
                self._forget(live)
                given_up.setdefault(live.query.query_id, []).append(live)
        return [self._evicted(query_id, lives, now_ms) for query_id, lives in given_up.items()]

    def used(self, usage: Usage, *, now_ms: int) -> None:
        """See Demand."""
        self._eviction.demand.used(usage, self._live, now_ms=now_ms)

    def take_failures(self) -> list[str]:
        """Return the ids of queries whose predicates raised since the last call, once per failure; at most the last hundred."""
        return self._eviction.demand.take_failures()

    def largest_tenants(self, *, most: int = 10) -> list[tuple[Tenant, float]]:
        """Return the tenants with the most bytes, each with the trials of its predicates per second. O(tenants)."""
        largest = nlargest(most, self._active.tenants.all(), key=lambda tenant: tenant.bytes)
        return [(tenant, self.tally.trial_rates.tried_hz(tenant)) for tenant in largest]

    def process(self, image: AfterImage, *, now_ms: int, encoded: int = 0) -> list[Invalidated]:
        """Take in one event; forget and return the registrations whose results it changes.

        Stale and repeated images are ignored. O(paths in use + queries tried + registrations fired).

        encoded: size of the event in the pipeline, in bytes.
        """
        gone: list[Invalidated] = []
        if self._waiting and image.version >= self.watermark:
            # A version may have several writes: only the next version proves that all of them have been matched.
            gone = self._supply_reached(image.version - (image.kind is not WriteKind.TICK))
        return gone + self._taken_in(image, now_ms, encoded)

    def pass_over(self, namespace: str, version: Version, payload: _Payload, *, now_ms: int) -> bool:
        """Take in a record's write as its payload, unread, if no query reads its namespace; return whether it was. O(1)."""
        if namespace in self._active.namespaces or self._waiting:
            return False
        self.watermark = max(self.watermark, version)
        self._writes.in_order.keep_unread(namespace, version, payload, now_ms=now_ms)
        self._gc_freezing.allocated()
        self.tally.writes += 1
        self.tally.tried_last = 0
        return True

    def overtake(self, image: AfterImage, *, now_ms: int) -> list[Invalidated]:
        """Match an early write: forget and return the registrations that it changes.

        The same write comes again in order. Until then the node keeps it for new registrations. Watermark, freshness and
        retained writes stay as they are: nothing relies on early writes, so any of them may be missing. Same cost as process.
        """
        if image.version < self.watermark or image.kind in _UNORDERED:
            return []
        if image.kind is WriteKind.COLLECTION:
            self._writes.early.admit(image, None, 0, now_ms=now_ms)
            return self._fire(self._on_collection(image), image)
        entry = self._writes.admit_early(image, now_ms=now_ms)
        namespace = self._active.namespaces.get(image.namespace)
        if entry is None or namespace is None:
            return []
        changes = namespace.changed_by(entry, self._predicates, self.tally, early=True)
        if self.tally.failing:
            self._note_failures(now_ms)
        return self._fire(changes, entry.image)

    def _taken_in(self, image: AfterImage, now_ms: int, encoded: int) -> list[Invalidated]:
        self.watermark = max(self.watermark, image.version)
        if image.kind is WriteKind.TICK:
            # Only ticks prove a time: ingest's clock dates them, the database's clock dates writes.
            self.fresh_as_of_ms = max(self.fresh_as_of_ms, image.wall_ms)
            self._writes.rates.begin(now_ms=now_ms)
            if image.version:
                self._writes.in_order.reached(image.version)
            return []
        if image.kind is WriteKind.GAP:
            self._writes.interrupted(image.version)
            return self._fire(dict.fromkeys(self._live.values(), MatchType.MATCH), image)
        if image.kind is WriteKind.COLLECTION:
            if not image.of_indexes:
                self._writes.in_order.forget_records(lambda namespace: covers(image.namespace, namespace))
            self._writes.in_order.admit(image, None, 0, now_ms=now_ms)
            return self._fire(self._on_collection(image), image)
        return self._written(image, now_ms, encoded)

    def expire(self, now_ms: int, *, leases_ms: int | None = None) -> list[Invalidated]:
        """Forget registrations whose lease is over, and writes older than the retention. Cheap; call it every second.

        Returns the registrations evicted because their matching costs more than the node can do.

        leases_ms: time by which leases end, if it differs from this node's time.
        """
        self.tally.trial_rates.advance(now_ms, tried=self.tally.tried)
        leases_ms = now_ms if leases_ms is None else leases_ms
        for live in self._live.over(leases_ms):
            self._forget(live)
        self._live.compact_leases()
        self._writes.trim(now_ms=now_ms)
        gone: list[Invalidated] = []
        for query in self._eviction.shed_load(now_ms=now_ms):
            gone += self._evict(query, now_ms)
        return gone

    def _written(self, image: AfterImage, now_ms: int, encoded: int) -> list[Invalidated]:
        entry = self._writes.admit(image, now_ms=now_ms, encoded=encoded)
        if entry is None:
            return []
        self._gc_freezing.allocated()
        self.tally.writes += 1
        self.tally.tried_last = 0
        namespace = self._active.namespaces.get(image.namespace)
        if namespace is None:
            return []
        changes = namespace.changed_by(entry, self._predicates, self.tally)
        if self.tally.failing:
            self._note_failures(now_ms)
        gone = self._fire(changes, entry.image) if changes else []
        due = self._active.watches.written(entry, now_ms=now_ms) if self._active.watches.by_live else ()
        return gone + self._fire_due(due, now_ms) if due else gone

    @property
    def next_due_ms(self) -> int | None:
        """See ClockWatches."""
        return self._active.watches.next_ms

    def due(self, now_ms: int) -> list[Invalidated]:
        """Forget and return the registrations whose results the clock has changed."""
        return self._fire_due(self._active.watches.due(now_ms), now_ms)

    def _fire_due(self, lives: Sequence[LiveRegistration], now_ms: int) -> list[Invalidated]:
        for live in lives:
            self._forget(live)
        return due_notifications(lives, self.cell, now_ms=now_ms) if lives else []

    def _refusal(self, registration: Registration, now_ms: int) -> str | None:
        floor = self._writes.in_order.floor
        if floor is None:
            return "this cell has not seen any write or tick yet"
        since = registration.since if registration.watch is None else min(registration.since, registration.watch.since)
        if since < floor:
            return f"read after version {since}, but writes are only retained after {floor}"
        if registration.expires_at_ms <= now_ms:
            return "its lease is over"
        return self._eviction.demand.refusal(registration.query_id, now_ms=now_ms)

    def _admit(self, registration: Registration, now_ms: int) -> LiveRegistration:
        query, plan = self._active.prepare(
            registration.query_id, registration.query, tenant=registration.tenant, now_s=now_ms // 1_000
        )
        rules = query.rules
        members = self._hashes.members(registration)
        live = LiveRegistration(
            registration,
            query,
            members=members,
            boundary=boundary_of(registration, rules),
            needs_before=members is None or rules.window is Window.OFFSET,
        )
        watch = None if registration.watch is None else Watch(live, registration, registration.watch)
        self._active.add(live, plan)
        self._live.add(live)
        if watch is not None:
            self._active.watches.add(watch)
        self._gc_freezing.allocated()
        return live

    def _forget(self, live: LiveRegistration) -> None:
        del self._live[live.id]
        self._active.forget(live)

    def _evict(self, query: ActiveQuery, now_ms: int) -> list[Invalidated]:
        """Forget the registrations of a query and report them: this cell no longer guards their results."""
        lives = list(elements(query.registrations))
        for live in lives:
            self._forget(live)
        self._eviction.demand.evicted(query.query_id, now_ms=now_ms)
        return [self._evicted(query.query_id, lives, now_ms)]

    def _evicted(self, query_id: str, lives: Sequence[LiveRegistration], now_ms: int) -> Invalidated:
        self.tally.evicted += len(lives)
        return eviction_notification(query_id, lives, self.cell, now_ms=now_ms)

    def _note_failures(self, now_ms: int) -> None:
        for query_id in self.tally.failing:
            self._eviction.demand.failed(query_id, now_ms=now_ms)
        self.tally.failing.clear()

    def _activated(self, live: LiveRegistration, now_ms: int) -> Activated:
        rate = self._writes.rates.rate_hz(live.members or (), now_ms=now_ms)
        return Activated(registration_id=live.id, cell=self.cell, write_rate_hz=rate)

    def _on_collection(self, image: AfterImage) -> Changes:
        concerned = self._active.concerned(image)
        return {live: MatchType.MATCH for live in concerned if live.since < image.version or not image.version}

    def _fire(self, changes: Changes, image: AfterImage) -> list[Invalidated]:
        """Forget the changed registrations and return their notifications."""
        notifications = invalidations(changes, image, self.cell)
        for live in changes:
            self._forget(live)
        return notifications
