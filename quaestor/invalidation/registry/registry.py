"""The app process's side of the grid: registers what responses read, and knows which registrations are live.

Two threads per process: one sends registrations and cancellations (batched: everything waiting goes out in one round
trip), one reads the notification pipeline. An `Invalidated` marks its registrations dead in the reading thread, before
anything else happens, so that the very next look-up refuses the entry; the effects follow on the event loop.

What cells guard that a process does not see fresh (`Heartbeat.fresh_as_of_ms`) within the staleness bound is not served from
cache, and nothing is added to it, until it does again: a query partition that lags stops its own queries (`vouched`), a write
partition all of them.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Protocol

from quaestor.clock import Clock
from quaestor.errors import (
    EventLayerError,
    MalformedQueryError,
    NotCacheableError,
    PartitionLagsError,
    RegistrationRefusedError,
)
from quaestor.event_layer import codec, streams
from quaestor.event_layer.partitioning import query_partition
from quaestor.event_layer.tenancy import origin_of
from quaestor.invalidation.registry.activation import Activation
from quaestor.invalidation.registry.freshness import Freshness
from quaestor.invalidation.registry.grid_view import Change, GridView
from quaestor.invalidation.registry.lag_monitor import LagMonitor
from quaestor.invalidation.registry.notification_reader import NotificationReader
from quaestor.invalidation.registry.query_sender import QuerySender
from quaestor.invalidation.registry.registration_building import Dependency, dependencies, guarding
from quaestor.invalidation.registry.registration_ids import id_for
from quaestor.invalidation.registry.shared_registrations import SharedRegistrations
from quaestor.invalidation.registry.surrogate_tags import everything_tag, tag
from quaestor.invalidation.registry.usage_reports import UsageReports
from quaestor.model import (
    Activated,
    Cancellation,
    CapturedRead,
    Cell,
    GridShape,
    Heartbeat,
    Invalidated,
    Notification,
    Refused,
    Registration,
    Uncacheable,
    Version,
)
from quaestor.observability.telemetry import Telemetry
from quaestor.observability.vocabularies import widening
from quaestor.ports import EventLayer, Registered
from quaestor.settings import Settings

TOMBSTONE_MS = 120_000
"""How long a dead registration is remembered: longer than any store look-up that began before its death can last."""


_MOST_TOMBSTONES = 50_000
"""Forgotten at once; a second later comes the next time."""


class Resolver(Protocol):
    """Tells what a namespace is: a collection, a view (rewritten onto its collection), a time-series collection."""

    async def resolve(self, reads: Sequence[CapturedRead]) -> tuple[tuple[CapturedRead, ...], tuple[str, ...]]:
        """The reads to register, and the reasons (values of Uncacheable) why they cannot be."""


class Registry:
    """Implements ports.QueryRegistry on any EventLayer. start() and stop() own its threads.

    on_invalidated: called in the reading thread with every batch of `Invalidated`, after they were marked dead.
    on_reset: called in the reading thread when nothing stored can be trusted any more (the event layer lost its data,
        notifications were missed, the grid was re-partitioned). Nothing is served until resume() is called.
    on_succeeded: called in the reading thread when another generation of the grid is relied on.
    """

    def __init__(
        self,
        layer: EventLayer,
        *,
        settings: Settings,
        telemetry: Telemetry,
        clock: Clock,
        on_invalidated: Callable[[Sequence[Invalidated]], None],
        on_reset: Callable[[str], None],
        resolver: Resolver | None = None,
    ) -> None:
        self.origin = origin_of(settings.owner, settings.deployment, uuid.uuid4().hex[:12])
        self._layer = layer
        self._settings = settings
        self._telemetry = telemetry
        self._clock = clock
        self._on_invalidated = on_invalidated
        self._on_reset = on_reset
        self.resolver = resolver
        self.on_succeeded: Callable[[], None] = lambda: None
        self.usage = UsageReports(deployment=settings.deployment, tenant=settings.owner)
        self._counter = itertools.count(1)
        self._watermark: Version = 0
        self._grid = GridView()
        self._dead: dict[str, int] = {}
        self._held = SharedRegistrations(self._dead)
        self._pending: dict[str, Activation] = {}
        self._vouched = Freshness()
        self._all_until_ms = 0
        self._begun_ms = clock()
        self._columns = LagMonitor(telemetry, bound_ms=settings.staleness_bound_ms, begun_ms=self._begun_ms)
        self._suspended = False
        self._reader = NotificationReader(
            layer, settings=settings, telemetry=telemetry, clock=clock, take=self._take, reset=self._reset
        )
        self._sender = QuerySender(layer, telemetry)
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []

    # What the read path asks

    def watermark(self) -> Version:
        return self._watermark

    @property
    def shape(self) -> GridShape | None:
        """As the heartbeats tell; None until the first."""
        return self._grid.shape

    @property
    def known_since_ms(self) -> int:
        return self._reader.known_since_ms

    def serving(self, *, now_ms: int) -> bool:
        return now_ms <= self._vouched.any_until_ms

    def abreast(self, *, now_ms: int) -> bool:
        return now_ms <= self._all_until_ms

    def lagging(self, registration_ids: Sequence[str], *, now_ms: int) -> bool:
        return not self._vouched.vouches(registration_ids, now_ms=now_ms)

    def lagging_partitions(self, *, now_ms: int) -> list[int]:
        """The query partitions nothing of which is served from cache now; of a grid that was heard of."""
        return self._vouched.lagging(now_ms=now_ms)

    def live(self, registration_ids: Sequence[str], *, now_ms: int) -> bool:
        # The dead last: what a fresh heartbeat vouches for was marked before it was taken.
        return (
            now_ms <= self._all_until_ms or self._vouched.vouches(registration_ids, now_ms=now_ms)
        ) and self._dead.keys().isdisjoint(registration_ids)

    async def register(self, reads: Sequence[CapturedRead], *, since: Version, expires_at_ms: int) -> Registered:
        if not self.serving(now_ms=self._clock()):
            raise RegistrationRefusedError("the matching grid is not running or lags behind the staleness bound")
        if self.resolver is not None:
            # Tags and URLs are ours: nobody needs to be allowed to list them.
            control = self._settings.control_namespace
            own = [read for read in reads if read.query.namespace == control]
            resolved, reasons = await self.resolver.resolve([r for r in reads if r.query.namespace != control])
            if reasons:
                raise NotCacheableError(reasons)
            reads = (*resolved, *own)
        try:
            found = dependencies(reads)
        except MalformedQueryError as error:
            raise NotCacheableError((Uncacheable.UNREADABLE,)) from error
        if not found:
            raise NotCacheableError((Uncacheable.NO_READS,))
        shape = self._grid.shape
        if shape is None:
            raise RegistrationRefusedError("the matching grid has to prove itself anew")
        self._require_fresh(found)
        guard = guarding(
            found,
            self._held,
            new_id=lambda query_id: id_for(self.origin, next(self._counter), query_id),
            tenant=self._settings.owner,
            since=since,
            now_ms=self._clock(),
            expires_at_ms=expires_at_ms,
        )
        rate_hz = guard.rate_hz
        if guard.new:
            try:
                rate_hz += await self._activate(guard.new, shape)
                if not self._dead.keys().isdisjoint(guard.shared):
                    raise RegistrationRefusedError("the result changed while it was being registered")
            except BaseException:
                self.lease(guard.shared, until_ms=0)
                raise
        widened = tuple(d.plan.reason for d in found if d.plan.reason)
        for reason in widened:
            self._telemetry.invalidations.widened.labels(widening(reason)).inc()
        return Registered(
            ids=guard.ids,
            query_ids=tuple(d.plan.query_id for d in found),
            tags=(tag(guard.ids[0]), everything_tag(self._settings.scope)),
            write_rate_hz=rate_hz,
            widened=widened,
        )

    def _require_fresh(self, found: Sequence[Dependency]) -> None:
        partitions = len(self._vouched.until_ms)
        lagging = self._vouched.lagging(now_ms=self._clock())
        needed = {query_partition(one.plan.query_id, partitions) for one in found} if lagging else set()
        if late := sorted(needed.intersection(lagging)):
            raise PartitionLagsError(
                f"query partition {', '.join(map(str, late))} lags behind the database by more than the staleness bound of "
                f"{self._settings.staleness_bound_ms} ms; what it guards is cached again when it has caught up"
            )

    def lease(self, registration_ids: Sequence[str], *, until_ms: int) -> None:
        for registration_id in registration_ids:
            self._held.lease(registration_id, until_ms=until_ms)

    async def _activate(self, registrations: Sequence[Registration], shape: GridShape) -> float:
        """Send, wait for every cell of every column; returns the summed write rate of the members."""
        loop = asyncio.get_running_loop()
        columns = {r.id: query_partition(r.query_id, shape.query_partitions) for r in registrations}
        pending = Activation(
            loop=loop,
            done=loop.create_future(),
            missing={
                (registration_id, Cell(query_partition=column, write_partition=row))
                for registration_id, column in columns.items()
                for row in range(shape.write_partitions)
            },
        )
        for r in registrations:
            self._pending[r.id] = pending
            self._held.open(r)
        deployment = self._settings.deployment
        for r in registrations:
            stream = streams.queries(deployment, columns[r.id], shape.generation)
            self._sender.send(stream, codec.encode_query_event(r), pending)
        started_ms = self._clock()
        try:
            async with asyncio.timeout(self._settings.activation_deadline_ms / 1000):
                rate_hz = await pending.done
        except BaseException as error:
            self.cancel([r.id for r in registrations])
            if isinstance(error, TimeoutError):
                raise RegistrationRefusedError(
                    f"not activated within {self._settings.activation_deadline_ms} ms by {len(pending.missing)} cells"
                ) from error
            raise
        finally:
            for r in registrations:
                self._pending.pop(r.id, None)
        self._telemetry.grid.activation_s.observe((self._clock() - started_ms) / 1000)
        for r in registrations:
            self._held.offer(r.id, rate_hz=rate_hz / len(registrations))
        return rate_hz

    # Housekeeping

    def cancel(self, registration_ids: Sequence[str]) -> None:
        """A response that relied on these is gone: tell the grid to forget them, but for those that others rely on too. Unknown
        or finished ones are ignored."""
        self._cancel(self._held.take(registration_ids, unshared=True))

    def _cancel(self, by_query: Mapping[str, Sequence[str]]) -> None:
        shape = self._grid.shape
        if shape is None:
            return
        deployment = self._settings.deployment
        for query_id, ids in by_query.items():
            cancellation = Cancellation(tenant=self._settings.owner, query_id=query_id, registration_ids=tuple(ids))
            partition = query_partition(query_id, shape.query_partitions)
            stream = streams.queries(deployment, partition, shape.generation)
            self._sender.send(stream, codec.encode_query_event(cancellation))

    def housekeep(self) -> None:
        """Once a second: cancel what no copy needs any more, forget old tombstones, report what was read. Called from any one
        thread."""
        now_ms = self._clock()
        if self._vouched.any_until_ms > now_ms + self._settings.staleness_bound_ms:
            self._vouch(Freshness())  # our clock was set back: the next heartbeats are judged by what it says now
        self._cancel(self._held.take(self._held.over(now_ms)))
        # In one go: a dictionary looks for its first entry among all that were deleted before it.
        for registration_id, died_ms in list(islice(self._dead.items(), _MOST_TOMBSTONES)):
            if died_ms + TOMBSTONE_MS >= now_ms:
                break
            self._dead.pop(registration_id, None)
        self.usage.gather(self._held.query_of, origin=self.origin)
        if (shape := self._grid.shape) is not None:
            for stream, usage in self.usage.due(shape, now_ms=now_ms):
                self._sender.send(stream, codec.encode_query_event(usage))
        self._telemetry.grid.registrations.set(len(self._held))
        self._telemetry.grid.serving.set(self.serving(now_ms=now_ms))
        self._columns.observe(self._grid.columns_ms(), now_ms=now_ms)
        self._telemetry.grid.lag_s.set(max(0, now_ms - (self._grid.oldest_ms() or self._begun_ms)) / 1000)

    def keep_dead(self, registration_ids: Sequence[str]) -> None:
        """Prolong the tombstones of registrations whose effects are not settled yet."""
        now_ms = self._clock()
        for registration_id in registration_ids:
            self._dead.pop(registration_id, None)  # to the end: the oldest are forgotten from the front
            self._dead[registration_id] = now_ms

    # Threads

    def start(self) -> None:
        self._threads = [
            threading.Thread(target=self._sender.run, name="quaestor-sender", daemon=True),
            threading.Thread(target=self._reader.run, args=(self._stop,), name="quaestor-notifications", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._sender.end()
        for thread in self._threads:
            thread.join(timeout=10)
        self._vouch(Freshness())

    def _reset(self, why: str) -> None:
        """Nothing stored may be served: what we hold dies, pending registrations fail, the grid must prove itself anew."""
        self._suspended = True
        self._vouch(Freshness())
        self._grid = GridView()
        now_ms = self._clock()
        for registration_id in self._held:
            self._dead[registration_id] = now_ms
        self._held.withdraw_all()
        for pending in list(self._pending.values()):
            pending.finish(RegistrationRefusedError(why))
        self._on_reset(why)

    def _take(self, notifications: Sequence[Notification]) -> None:
        now_ms = self._clock()
        invalidated: list[Invalidated] = []
        for notification in notifications:
            match notification:
                case Invalidated():
                    for registration_id in notification.registration_ids:
                        self._dead[registration_id] = now_ms
                        if (pending := self._pending.get(registration_id)) is not None:
                            pending.finish(RegistrationRefusedError("the result changed while it was being registered"))
                    self._watermark = max(self._watermark, notification.version)
                    invalidated.append(notification)
                case Activated():
                    if (pending := self._pending.get(notification.registration_id)) is not None:
                        pending.observe(notification)
                case Refused():
                    if (pending := self._pending.get(notification.registration_id)) is not None:
                        pending.finish(RegistrationRefusedError(notification.reason))
                case Heartbeat():
                    self._watermark = max(self._watermark, notification.watermark)
                    self._beat(notification)
        if self._reader.caught_up and not self._suspended:
            bound_ms = self._settings.staleness_bound_ms
            self._vouch(Freshness.of(self._grid.columns_ms(), bound_ms=bound_ms, now_ms=now_ms))
        if invalidated:
            # The cell that fired has forgotten them; the others of the column have to be told.
            self.cancel([i for notification in invalidated for i in notification.registration_ids])
            self._on_invalidated(invalidated)

    def _beat(self, beat: Heartbeat) -> None:
        change = self._grid.observe(beat)
        if change is Change.RESHAPED:
            self._reset("the grid was re-partitioned")
            self._grid.observe(beat)
        elif change is Change.SUCCEEDED:
            # Whatever was active has been taken over; what the old cells have not activated yet, they will not.
            for pending in list(self._pending.values()):
                pending.finish(RegistrationRefusedError("the grid was partitioned anew meanwhile"))
            self._telemetry.event("registry.grid_succeeded", shape=str(beat.shape))
            try:
                self.on_succeeded()
            except EventLayerError as error:
                self._reset(f"the grid that has taken over could not be told what has changed: {error}")

    def _vouch(self, vouched: Freshness) -> None:
        """The hit path looks no further than at the first moment at which a column lags, if that has not come."""
        self._vouched = vouched
        self._all_until_ms = vouched.all_until_ms

    def resume(self) -> None:
        """Called when everything stored before a reset is gone: the next heartbeats may open the cache again."""
        self._suspended = False
