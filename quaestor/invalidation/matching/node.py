"""Matching node: one cell of the grid, as a pure state machine. No clock, no I/O; time is an argument.

Registrations are one-shot: a cached result needs only its first change, so the node keeps the result as it was read and
forgets the registration when it fires. What has to be invalidated is found from the write (see namespace.py and
index.py), judged by change.py, and replayed from retention.py when a registration comes after the write did.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from heapq import nlargest
from typing import Final

from quaestor.errors import QueryError
from quaestor.event_layer.partitioning import record_key
from quaestor.gc_freezing import GcFreezing
from quaestor.invalidation.matching.active import ActiveQueries, concerns
from quaestor.invalidation.matching.boundary import boundary_of
from quaestor.invalidation.matching.compact_set import elements
from quaestor.invalidation.matching.demand import Demand
from quaestor.invalidation.matching.entities import ActiveQuery, LiveRegistration, Tenant
from quaestor.invalidation.matching.eviction import Eviction, Limits, NoRoomError
from quaestor.invalidation.matching.leases import Leases
from quaestor.invalidation.matching.namespace import Changes, judged
from quaestor.invalidation.matching.notifications import eviction_notification, invalidations
from quaestor.invalidation.matching.predicates import Predicates
from quaestor.invalidation.matching.record_hashes import RecordHashes
from quaestor.invalidation.matching.retention import Record, Retained, Retention
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
from quaestor.planning.plan import Window
from quaestor.ttl.write_rates import WriteRates

_MOST_USED: Final = 10_000
"""More queries than any report names (registry/usage_reports.py)."""
_LONGEST_ID: Final = 128
_SPARE_LEASES: Final = 1_000
"""Leases of what is gone that may be kept, beside as many as there are of what lives."""
_MOST_FAILURES: Final = 100

Outcome = Activated | Refused | Invalidated


class MatchingNode:
    """Matches registrations of one query partition against the writes of one write partition. Not thread-safe.

    retention_ms: how long writes are kept for replay.
    max_images, max_image_bytes: at most so many of them.
    max_registrations, max_bytes: what is held, bytes as memory_estimates.py reckons; subscribed queries may take half
        of them.
    max_unindexed: so many different predicates without an index a namespace may have, or with one that most records
        satisfy ($ne, $nin), since nearly every write tries them all.
    max_tried_per_s: predicates tried a second, over all. What is more makes room for what has more benefit (see
        eviction.py), or is refused.
    grace_ms: after which what is new may be made to go.
    freeze_every: see gc_freezing.py; only for a process of its own.
    watermark: the newest version seen.
    fresh_as_of_ms: wall time up to which every write has been seen, by ingest's clock.
    tally: what matching has cost so far.
    subscriptions: the queries that subscribers follow.
    """

    def __init__(
        self,
        cell: Cell,
        shape: GridShape,
        *,
        retention_ms: int,
        max_registrations: int = 1_000_000,
        max_unindexed: int = 5_000,
        max_images: int = 200_000,
        max_bytes: int = 2 * 1024**3,
        max_image_bytes: int = 512 * 1024**2,
        max_tried_per_s: int = 1_000_000,
        grace_ms: int = 10_000,
        freeze_every: int = 0,
    ) -> None:
        self.cell = cell
        self.shape = shape
        self.watermark: Version = 0
        self.fresh_as_of_ms = 0
        self.tally = Tally()
        self._retention = Retention(retention_ms=retention_ms, max_images=max_images, max_bytes=max_image_bytes)
        self._rates = WriteRates()
        self._active = ActiveQueries()
        self._limits = Limits(
            registrations=max_registrations,
            bytes=max_bytes,
            unindexed=max_unindexed,
            tried_per_s=max_tried_per_s,
            grace_s=grace_ms // 1_000,
        )
        self._demand = Demand()
        self._failures: deque[str] = deque(maxlen=_MOST_FAILURES)
        self._live: dict[str, LiveRegistration] = {}
        self._leases = Leases()
        self._predicates = Predicates()
        self._gc_freezing = GcFreezing(freeze_every)
        self._hashes = RecordHashes(cell, shape)
        self._waiting = WaitingContributors(self._hashes, shape)
        self.subscriptions = SubscribedQueries(
            self._active.namespaces,
            self._retention,
            self._predicates,
            self.tally,
            max_queries=max_registrations,
            max_unindexed=max_unindexed // 2,
            max_bytes=max_bytes // 2,
        )
        self._eviction = Eviction(
            self._active,
            self._demand,
            self._limits,
            self.tally.trial_rates,
            taken=lambda: self.subscriptions.held_bytes,
        )

    @property
    def guards_nothing(self) -> bool:
        """Whether no registration lives here, and no query is followed."""
        return not self._live and not self.subscriptions

    @property
    def registrations(self) -> int:
        """Number of live registrations."""
        return len(self._live)

    @property
    def queries(self) -> int:
        """Number of different queries among them."""
        return len(self._active)

    @property
    def bytes(self) -> int:
        """Bytes that queries, registrations and subscribed queries are taken to cost (see memory_estimates.py)."""
        return self._active.tenants.bytes + self.subscriptions.held_bytes

    def register(self, registration: Registration, *, now_ms: int) -> list[Outcome]:
        """Match this result from now on, and against the retained writes that are newer than its `since`.

        Returns one of: Activated; Refused (nothing is kept); Invalidated, if a retained write already changed it. Before it
        come the registrations that had to make room for it: Invalidated with EVICTED.
        Registering the same id again while it is live confirms it, and supplies its contributors if they come with it. O(size of
        query and result + writes replayed).
        """
        known = self._live.get(registration.id)
        if known is not None:
            if (known.query.query_id, known.query.tenant.name) != (registration.query_id, registration.tenant):
                taken = "its id is that of another registration"
                return [Refused(registration_id=registration.id, cell=self.cell, reason=taken)]
            return self._supplied(known, registration, now_ms)
        reason = self._refusal(registration, now_ms)
        if reason is not None:
            return [Refused(registration_id=registration.id, cell=self.cell, reason=reason)]
        try:
            live = self._admit(registration, now_ms)
        except QueryError as error:
            return [Refused(registration_id=registration.id, cell=self.cell, reason=str(error))]
        except Exception as error:
            self.tally.failed += 1
            reason = f"cannot be matched: {error!r}"
            return [Refused(registration_id=registration.id, cell=self.cell, reason=reason)]
        gone: list[Outcome] = []
        try:
            for query in self._eviction.make_room(live.query, now_ms=now_ms):
                gone += self._evict(query, now_ms)
        except NoRoomError as full:
            self._forget(live)
            return [*gone, Refused(registration_id=registration.id, cell=self.cell, reason=str(full))]
        return gone + self._caught_up(live, registration, now_ms)

    def _caught_up(self, live: LiveRegistration, registration: Registration, now_ms: int) -> list[Outcome]:
        """The outcome of what came between the read and its registration."""
        return [*self._replay(live, registration.since)] or self._supplied(live, registration, now_ms)

    def _replay(self, live: LiveRegistration, since: Version) -> list[Invalidated]:
        for entry in self._retention.newer_than(since, live.query.rules.namespaces):
            change = self._replayed(live, entry)
            if change is not None:
                return self._fire({live: change}, entry.image)
        return []

    def _supplied(self, live: LiveRegistration, registration: Registration, now_ms: int) -> list[Outcome]:
        """The outcome of a registration's contributors, if it has any: it is judged by them from their version on."""
        gone: list[Outcome] = []
        if self._waiting.add(live, registration, floor=self._retention.floor):
            gone += self._supply_reached(self.watermark - 1)
        return [*gone, self._activated(live, now_ms)] if live.id in self._live else gone

    def _supply_reached(self, version: Version) -> list[Invalidated]:
        """Take up the contributors of all up to this version, and what was written after them."""
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
        """Forget those of these that are live, and say so; unlike what makes room here they are welcome again at once. O(ids)."""
        given_up: dict[str, list[LiveRegistration]] = {}
        for registration_id in registration_ids:
            live = self._live.get(registration_id)
            if live is not None:
                self._forget(live)
                given_up.setdefault(live.query.query_id, []).append(live)
        return [self._evicted(query_id, lives, now_ms) for query_id, lives in given_up.items()]

    def used(self, usage: Usage, *, now_ms: int) -> None:
        """Count reads that were answered from cache. O(queries and registrations named)."""
        for query_id, reads in usage.queries[:_MOST_USED]:
            if len(query_id) <= _LONGEST_ID:
                self._demand.add(query_id, reads, now_ms=now_ms)
        for registration_id, reads in usage.registrations[:_MOST_USED]:
            live = self._live.get(registration_id)
            if live is not None:
                self._demand.add(live.query.query_id, reads, now_ms=now_ms)

    def take_failures(self) -> list[str]:
        """Ids of the queries whose predicates raised since the last call, one for each time; the latest hundred."""
        failures = list(self._failures)
        self._failures.clear()
        return failures

    def largest_tenants(self, *, most: int = 10) -> list[tuple[Tenant, float]]:
        """The tenants that hold the most bytes, each with how many of its predicates are tried per second. O(tenants)."""
        largest = nlargest(most, self._active.tenants.all(), key=lambda tenant: tenant.bytes)
        return [(tenant, self.tally.trial_rates.tried_hz(tenant)) for tenant in largest]

    def process(self, image: AfterImage, *, now_ms: int, encoded: int = 0) -> list[Invalidated]:
        """Take in one event and forget and return the registrations whose results it changes.

        encoded: its size in the pipeline, in bytes. Stale and repeated images are ignored. O(paths in use + queries
            tried + registrations fired).
        """
        gone: list[Invalidated] = []
        if self._waiting and image.version >= self.watermark:
            # A version may have several writes: only the next one says that all of them have been matched.
            gone = self._supply_reached(image.version - (image.kind is not WriteKind.TICK))
        return gone + self._taken_in(image, now_ms, encoded)

    def _taken_in(self, image: AfterImage, now_ms: int, encoded: int) -> list[Invalidated]:
        self.watermark = max(self.watermark, image.version)
        if image.kind is WriteKind.TICK:
            # Only ticks prove a moment: they are dated by ingest's clock, writes by the database's.
            self.fresh_as_of_ms = max(self.fresh_as_of_ms, image.wall_ms)
            self._rates.begin(now_ms=now_ms)
            if image.version:
                self._retention.reached(image.version)
            return []
        if image.kind is WriteKind.GAP:
            self._retention.interrupted(image.version)
            return self._fire(dict.fromkeys(self._live.values(), MatchType.MATCH), image)
        if image.kind is WriteKind.COLLECTION:
            if not image.of_indexes:
                self._retention.forget_records(lambda namespace: covers(image.namespace, namespace))
            self._retention.admit(image, None, 0, now_ms=now_ms)
            return self._fire(self._on_collection(image), image)
        return self._written(image, now_ms, encoded)

    def expire(self, now_ms: int, *, leases_ms: int | None = None) -> list[Invalidated]:
        """Forget registrations whose lease is over and writes older than the retention. Cheap; call it every second.

        leases_ms: the time by which leases end, if it is another one than this node's. Returns the registrations that
            had to go because matching them costs more than the node can do.
        """
        self.tally.trial_rates.advance(now_ms, tried=self.tally.tried)
        leases_ms = now_ms if leases_ms is None else leases_ms
        for registration_id in self._leases.over(leases_ms):
            live = self._live.get(registration_id)
            if live is not None and live.expires_at_ms <= leases_ms:
                self._forget(live)
        self._leases.compact(
            lambda registration_id, _: registration_id in self._live, most=2 * len(self._live) + _SPARE_LEASES
        )
        self._retention.trim(now_ms=now_ms)
        gone: list[Invalidated] = []
        for query in self._eviction.shed_load(now_ms=now_ms):
            gone += self._evict(query, now_ms)
        return gone

    def _written(self, image: AfterImage, now_ms: int, encoded: int) -> list[Invalidated]:
        try:
            key = record_key(image.key)
        except Exception:
            # Not a value that BSON knows, so no member can be told from another: as if the collection had changed.
            self.tally.failed += 1
            return self._fire(self._on_collection(image), image)
        identity = self._hashes.of(image.namespace, key)
        entry = self._retention.admit(image, Record(image.namespace, key), identity, now_ms=now_ms, encoded=encoded)
        if entry is None:
            return []
        self._gc_freezing.allocated()
        self.tally.writes += 1
        self.tally.tried_last = 0
        self._rates.observe(identity, now_ms=now_ms)
        namespace = self._active.namespaces.get(image.namespace)
        if namespace is None:
            return []
        changes = namespace.changed_by(entry, self._predicates, self.tally)
        if self.tally.failing:
            self._note_failures(now_ms)
        return self._fire(changes, entry.image) if changes else []

    def _refusal(self, registration: Registration, now_ms: int) -> str | None:
        floor = self._retention.floor
        if floor is None:
            return "this cell has not seen any write or tick yet"
        if registration.since < floor:
            return f"read after version {registration.since}, but writes are only retained after {floor}"
        if registration.expires_at_ms <= now_ms:
            return "its lease is over"
        return self._demand.refusal(registration.query_id, now_ms=now_ms)

    def _admit(self, registration: Registration, now_ms: int) -> LiveRegistration:
        query, plan = self._active.prepare(
            registration.query_id, registration.query, tenant=registration.tenant, now_s=now_ms // 1_000
        )
        rules = query.rules
        members = self._hashes.members(registration)
        live = LiveRegistration(
            registration.id,
            query,
            since=registration.since,
            read_at=registration.read_at,
            members=members,
            empty=registration.members == (),
            boundary=boundary_of(registration, rules),
            needs_before=members is None or rules.window is Window.OFFSET,
            expires_at_ms=registration.expires_at_ms,
        )
        self._active.add(live, plan)
        self._live[live.id] = live
        self._leases.add(live.id, live.expires_at_ms)
        self._gc_freezing.allocated()
        return live

    def _forget(self, live: LiveRegistration) -> None:
        del self._live[live.id]
        self._active.forget(live)

    def _evict(self, query: ActiveQuery, now_ms: int) -> list[Invalidated]:
        """Forget the registrations of a query, and say so: from now on nobody guards what they guarded."""
        lives = list(elements(query.registrations))
        for live in lives:
            self._forget(live)
        self._demand.evicted(query.query_id, now_ms=now_ms)
        return [self._evicted(query.query_id, lives, now_ms)]

    def _evicted(self, query_id: str, lives: Sequence[LiveRegistration], now_ms: int) -> Invalidated:
        self.tally.evicted += len(lives)
        return eviction_notification(query_id, lives, self.cell, now_ms=now_ms)

    def _note_failures(self, now_ms: int) -> None:
        for query_id in self.tally.failing:
            self._demand.failed(query_id, now_ms=now_ms)
        self._failures += self.tally.failing
        self.tally.failing.clear()

    def _replayed(self, live: LiveRegistration, entry: Retained) -> MatchType | None:
        image, rules = entry.image, live.query.rules
        if image.kind is WriteKind.COLLECTION:
            return MatchType.MATCH if concerns(rules, image) else None
        namespace = self._active.namespaces.get(image.namespace)
        if namespace is not None and namespace.foreign.changes(live.query, image):
            return MatchType.MATCH
        return judged(live, entry, self._predicates, self.tally) if image.namespace == rules.namespace else None

    def _activated(self, live: LiveRegistration, now_ms: int) -> Activated:
        rate = self._rates.rate_hz(live.members or (), now_ms=now_ms)
        return Activated(registration_id=live.id, cell=self.cell, write_rate_hz=rate)

    def _on_collection(self, image: AfterImage) -> Changes:
        concerned = self._active.concerned(image)
        return {live: MatchType.MATCH for live in concerned if live.since < image.version or not image.version}

    def _fire(self, changes: Changes, image: AfterImage) -> list[Invalidated]:
        """Forget what changed, and say so."""
        notifications = invalidations(changes, image, self.cell)
        for live in changes:
            self._forget(live)
        return notifications
