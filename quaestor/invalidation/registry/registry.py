"""Registry of one app process, its side of the grid: registers what responses read, and knows which registrations are live.

Two threads per process: one sends registrations and cancellations (`query_sender`), one reads the notification pipeline
(`notification_reader`, `notification_handler`). A third begins with the database: it reads who contributes to what is registered
(`contributor_reads`).

What cells guard that a process does not see fresh (`Heartbeat.fresh_as_of_ms`) within the staleness bound is not served from
cache, and nothing is added to it, until it does again: a query partition that lags stops its own queries (`freshness`), a write
partition all of them.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from quaestor.clock import Clock
from quaestor.errors import RegistrationRefusedError
from quaestor.event_layer.tenancy import origin_of
from quaestor.invalidation.registry.activation import Activations
from quaestor.invalidation.registry.cancellation import Cancellations
from quaestor.invalidation.registry.contributor_reads import ContributorReads
from quaestor.invalidation.registry.freshness import Freshness
from quaestor.invalidation.registry.grid_view import GridView
from quaestor.invalidation.registry.held_registrations import HeldRegistrations, Rechecker
from quaestor.invalidation.registry.housekeeping import Housekeeping
from quaestor.invalidation.registry.notification_handler import NotificationHandler
from quaestor.invalidation.registry.notification_reader import NotificationReader
from quaestor.invalidation.registry.query_sender import QuerySender
from quaestor.invalidation.registry.recheck_rule import RecheckRule
from quaestor.invalidation.registry.registrar import Registrar
from quaestor.invalidation.registry.resolving import Resolver
from quaestor.invalidation.registry.shared_registrations import SharedRegistrations
from quaestor.invalidation.registry.usage_reports import Served
from quaestor.invalidation.registry.validity import Validity
from quaestor.invalidation.registry.write_progress import WriteProgress
from quaestor.model import CapturedRead, GridShape, Invalidated, Registration, Version
from quaestor.observability.telemetry import Telemetry
from quaestor.ports import EventLayer, Registered
from quaestor.realtime.snapshots import Snapshots
from quaestor.runtime.supervision.supervisor import KeptThread, Supervisor
from quaestor.settings import Settings


def new_origin(settings: Settings) -> str:
    """A name for one app process of a tenant, unlike any other's."""
    return origin_of(settings.owner, settings.deployment, uuid.uuid4().hex[:12])


def _nothing(shape: GridShape) -> None:
    """What is done when another generation of the grid is relied on, if nobody cares."""


def _ignore(views: Iterable[str]) -> None:
    """What is done with the names of views if nobody takes digests."""


class Registry:
    """Implements ports.QueryRegistry on any EventLayer. start() and stop() own its threads.

    on_invalidated: called in the reading thread with every batch of `Invalidated`, after they were marked dead.
    on_reset: called in the reading thread when nothing stored can be trusted any more (the event layer lost its data,
        notifications were missed, the grid was re-partitioned). Nothing is served until resume() is called.
    on_succeeded: called in the reading thread when another generation of the grid is relied on; may raise EventLayerError,
        which is a reset.
    resolver: None: reads are registered as they are.
    compare: see Registrar.
    origin: the ids of this process's registrations begin with it.
    progress: of the grid through the writes.
    live, lagging, serving, caught_up, lagging_partitions: see Validity; bound here, so that a hit takes no step more.
    held, renewals: see HeldRegistrations.any_held and rounds.
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
        on_succeeded: Callable[[GridShape], None] = _nothing,
        resolver: Resolver | None = None,
        compare: Callable[[Iterable[str]], None] = _ignore,
        supervisor: Supervisor | None = None,
    ) -> None:
        self._supervisor = supervisor or Supervisor(telemetry)
        self.origin = new_origin(settings)
        self._layer = layer
        self._clock = clock
        self._recheck_s = settings.grid.recheck_ms / 1000
        self._validity = validity = Validity()
        self.live, self.lagging = validity.live, validity.lagging
        self.serving, self.caught_up = validity.serving, validity.caught_up
        self.lagging_partitions = validity.lagging_partitions
        self._view = view = GridView()
        self.progress = WriteProgress(view)
        self._shared = shared = SharedRegistrations(validity.dead)
        self._sender = sender = QuerySender(layer, telemetry)
        self._rule = rule = RecheckRule(settings.grid.recheck)
        self._held = held = HeldRegistrations(
            validity,
            origin=self.origin,
            limit_ms=2 * settings.grid.recheck_ms,
            clock=clock,
            wanted=self._recheck_wanted,
        )
        self.held, self.renewals = held.any_held, held.rounds
        shared.held = held.names
        self._cancellations = cancellations = Cancellations(shared, view, sender, settings)
        self._activations = activations = Activations(
            shared=shared, sender=sender, cancellations=cancellations,
            settings=settings, telemetry=telemetry, clock=clock,
        )  # fmt: skip
        self._contributor_reads = ContributorReads(
            validity=validity, view=view, shared=shared, sender=sender,
            settings=settings, telemetry=telemetry, clock=clock,
        )  # fmt: skip
        self._registrar = Registrar(
            origin=self.origin, resolver=resolver, validity=validity, view=view, shared=shared, activations=activations,
            contributor_reads=self._contributor_reads, rule=rule, compare=compare,
            settings=settings, telemetry=telemetry, clock=clock,
        )  # fmt: skip
        self._handler = NotificationHandler(
            origin=self.origin, validity=validity, held=held, view=view, shared=shared, activations=activations,
            cancellations=cancellations,
            progress=self.progress, bound_ms=settings.grid.staleness_bound_ms, telemetry=telemetry, clock=clock,
            on_invalidated=on_invalidated, on_reset=on_reset, on_succeeded=on_succeeded,
        )  # fmt: skip
        self._reader = NotificationReader(
            layer, settings=settings, telemetry=telemetry, clock=clock, taker=self._handler
        )
        self._housekeeping = Housekeeping(
            origin=self.origin, validity=validity, view=view, shared=shared, cancellations=cancellations, sender=sender,
            rule=rule, settings=settings, telemetry=telemetry, clock=clock,
        )  # fmt: skip
        self._threads: list[KeptThread] = []
        self._stopped = False

    @property
    def shape(self) -> GridShape | None:
        """Shape of the grid, as the heartbeats tell; None until the first."""
        return self._view.shape

    @property
    def known_since_ms(self) -> int:
        """See ports.QueryRegistry."""
        return self._reader.known_since_ms

    def watermark(self) -> Version:
        """See ports.QueryRegistry."""
        return self._handler.watermark

    async def register(self, reads: Sequence[CapturedRead], *, since: Version, expires_at_ms: int) -> Registered:
        """See ports.QueryRegistry."""
        return await self._registrar.register(reads, since=since, expires_at_ms=expires_at_ms)

    def lease(self, registration_ids: Sequence[str], *, until_ms: int, cost_ms: int = 0) -> None:
        """See ports.QueryRegistry."""
        for registration_id in registration_ids:
            self._shared.lease(registration_id, until_ms=until_ms)
            query_id = self._shared.query_of(registration_id) if cost_ms else None
            if query_id is not None:
                self._rule.answered(query_id, cost_ms=cost_ms)

    async def settled(self, registration_ids: Sequence[str]) -> None:
        """See ports.QueryRegistry."""
        await self._held.settled(registration_ids, within_s=self._recheck_s)

    def recheck_by(self, rechecker: Rechecker) -> None:
        """Have queries run again before what relies on them is evicted, from now on."""
        self._held.rechecker = rechecker

    def renewable(self, name: str) -> Registration | None:
        """The registration behind a name that is held; None if it is held no longer, or nothing needs it any more."""
        return self._shared.renewable(name) if self._held.any_held((name,)) else None

    async def renew(self, names: Sequence[str], *, since: Version, read_at: Version) -> list[Registration]:
        """Activate one more round of these, whose results were read again and are the same; returns those that still matter.

        Raises RegistrationRefusedError; then none of them is active.
        """
        shape = self.shape
        rounds = [self._shared.next_round(name, since=since, read_at=read_at) for name in names]
        registrations = [one for one in rounds if one is not None]
        if shape is None:
            raise RegistrationRefusedError("the matching grid has to prove itself anew")
        if registrations:
            await self._activations.activate(registrations, shape, renewed=True)
        renewed = [one for one in registrations if self._shared.is_current(one.id)]
        self._contributor_reads.want(renewed, renewed=True)
        return renewed

    def rechecked(self, query_id: str, *, kept: bool, query_ms: float) -> None:
        """Note for the next time how a recheck has ended."""
        self._rule.rechecked(query_id, kept=kept, query_ms=query_ms)

    def _recheck_wanted(self, name: str, query_id: str) -> bool:
        """Whether a held registration of this process is to be rechecked: not one that is being made."""
        rechecker = self._held.rechecker
        if rechecker is None or name in self._activations.pending or self._shared.renewable(name) is None:
            return False
        return self._rule.wanted(query_id, now_ms=self._clock(), waiting=rechecker.waiting)

    def cancel(self, registration_ids: Sequence[str]) -> None:
        """Cancel what a response relied on that is gone: the grid forgets these, but for those that others rely on too. Unknown
        or finished ones are ignored."""
        self._cancellations.cancel(registration_ids)

    def keep_dead(self, registration_ids: Sequence[str]) -> None:
        """Prolong the tombstones of registrations whose effects are not settled yet."""
        self._validity.keep_dead(registration_ids, now_ms=self._clock())

    def housekeep(self, served: Served = ()) -> None:
        """Keep house, once a second: cancel what no copy needs any more, forget old tombstones, report what was read. Called from
        any one thread.

        served: what was served from cache since the last time.
        """
        self._housekeeping.run(served)

    def resume(self) -> None:
        """End a reset, when everything stored before it is gone: the next heartbeats may open the cache again."""
        self._handler.resume()

    def withhold(self, why: str) -> None:
        """Serve nothing from cache until `release`: a service is down without which some changes are not seen."""
        self._handler.withhold(why)

    def release(self, why: str) -> None:
        """Serve again when the grid proves itself next, unless there are other reasons not to."""
        self._handler.release(why)

    def read_contributors(self, snapshots: Snapshots) -> None:
        """Begin to read what contributes to registered results, in a thread of its own, which ends with the others."""
        self._threads.append(
            self._supervisor.thread(
                "contributors",
                partial(self._contributor_reads.run, snapshots),
                wake=self._contributor_reads.end,
            )
        )

    def start(self) -> None:
        """Start both threads. After a stop nothing counts that lived in this process's event layer: it is empty now."""
        if self._stopped and self._layer.immediate:
            self._handler.reset("started again after a stop")
            self._reader.forget()
        self._stopped = False
        self._threads = [
            self._supervisor.thread("sender", self._sender.run, wake=self._sender.end),
            self._supervisor.thread("notifications", self._reader.run),
        ]

    def stop(self) -> None:
        """End both threads; nothing is served any more. Blocks until they have ended."""
        self._stopped = True
        for thread in self._threads:
            thread.tell()
        for thread in self._threads:
            thread.stop()
        self._validity.prove(Freshness())
