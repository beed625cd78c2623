"""Registry of one app process, its side of the grid: registers the queries of responses, and knows the live registrations.

A process has two threads. One sends registrations and cancellations (`query_sender`), one reads the notification pipeline
(`notification_reader`, `notification_handler`). A third begins with the database: it reads the contributors of registered
results (`contributor_reads`).

Entries are served only while their cells are fresh within the staleness bound (`Heartbeat.fresh_as_of_ms`), and none is added
meanwhile. A lagging query partition stops its own queries (`freshness`), a lagging write partition all queries.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence

from quaestor.event_layer.tenancy import origin_of
from quaestor.invalidation.registry.activation import Activations
from quaestor.invalidation.registry.cancellation import Cancellations
from quaestor.invalidation.registry.contributor_reads import ContributorReads
from quaestor.invalidation.registry.freshness import Freshness
from quaestor.invalidation.registry.grid_events import Consequences
from quaestor.invalidation.registry.held_registrations import Rechecker
from quaestor.invalidation.registry.held_renewal import HeldRenewal
from quaestor.invalidation.registry.housekeeping import Housekeeping
from quaestor.invalidation.registry.next_instants import Client, NextInstants
from quaestor.invalidation.registry.notification_handler import NotificationHandler
from quaestor.invalidation.registry.process_registrations import process_registrations
from quaestor.invalidation.registry.registrar import Registrar
from quaestor.invalidation.registry.registry_threads import RegistryThreads
from quaestor.invalidation.registry.resolving import Resolver
from quaestor.invalidation.registry.usage_reports import Served
from quaestor.invalidation.registry.write_progress import WriteProgress
from quaestor.model import CapturedRead, GridShape, Registration, Version
from quaestor.ports import EventLayer, Registered
from quaestor.realtime.snapshots import Snapshots
from quaestor.runtime.supervision.process_context import ProcessContext
from quaestor.settings import Settings


def new_origin(settings: Settings) -> str:
    """Return a name for one app process of a tenant, unlike any other's."""
    return origin_of(settings.owner, settings.deployment, uuid.uuid4().hex[:12])


def _ignore(views: Iterable[str]) -> None:
    """Ignore the names of views: no part takes digests."""


class Registry:
    """Registry on any EventLayer. Implements ports.QueryRegistry. start() and stop() own its threads.

    resolver: None: reads are registered as they are.
    compare: see Registrar.
    origin: first part of the ids of this process's registrations.
    progress: progress of the grid through the writes.
    live, lagging, serving: see Validity; bound here, so that a hit takes no further step.
    held, renewals: see HeldRegistrations.any_held and rounds.
    """

    def __init__(
        self,
        layer: EventLayer,
        process: ProcessContext,
        consequences: Consequences,
        *,
        resolver: Resolver | None = None,
        compare: Callable[[Iterable[str]], None] = _ignore,
    ) -> None:
        self.origin = new_origin(process.settings)
        self._clock = process.clock
        self._registrations = registrations = process_registrations(layer, process, origin=self.origin)
        validity, held = registrations.validity, registrations.held
        self.live, self.lagging, self.serving = validity.live, validity.lagging, validity.serving
        self.held, self.renewals = held.any_held, held.rounds
        self.progress = WriteProgress(registrations.view)
        self._cancellations = Cancellations(registrations, process.settings)
        activations = Activations(registrations, self._cancellations, process)
        contributor_reads = ContributorReads(registrations, process)
        self._renewal = HeldRenewal(registrations, activations, contributor_reads, process)
        self._instants = NextInstants(process.clock, process.telemetry)
        self._registrar = Registrar(
            registrations, activations, contributor_reads, process, resolver=resolver, instants=self._instants,
            compare=compare,
        )  # fmt: skip
        handler = NotificationHandler(
            registrations, activations, self._cancellations, self.progress, process, consequences
        )
        self._threads = RegistryThreads(
            layer, process, sender=registrations.sender, handler=handler, contributor_reads=contributor_reads
        )
        self._housekeeping = Housekeeping(registrations, self._cancellations, process)

    @property
    def shape(self) -> GridShape | None:
        """Shape of the grid, as the heartbeats show it; None until the first."""
        return self._registrations.view.shape

    @property
    def known_since_ms(self) -> int:
        """See ports.QueryRegistry."""
        return self._threads.reader.known_since_ms

    def watermark(self) -> Version:
        """See ports.QueryRegistry."""
        return self._threads.handler.watermark

    async def register(self, reads: Sequence[CapturedRead], *, since: Version, expires_at_ms: int) -> Registered:
        """See ports.QueryRegistry."""
        return await self._registrar.register(reads, since=since, expires_at_ms=expires_at_ms)

    def lease(self, registration_ids: Sequence[str], *, until_ms: int, cost_ms: int = 0) -> None:
        """See ports.QueryRegistry."""
        shared, rule = self._registrations.shared, self._registrations.rule
        for registration_id in registration_ids:
            shared.lease(registration_id, until_ms=until_ms)
            query_id = shared.query_of(registration_id) if cost_ms else None
            if query_id is not None:
                rule.answered(query_id, cost_ms=cost_ms)

    def caught_up(self, *, now_ms: int) -> bool:
        """See Validity."""
        return self._registrations.validity.caught_up(now_ms=now_ms)

    def lagging_partitions(self, *, now_ms: int) -> list[int]:
        """See Validity."""
        return self._registrations.validity.lagging_partitions(now_ms=now_ms)

    async def settled(self, registration_ids: Sequence[str]) -> None:
        """See ports.QueryRegistry."""
        await self._renewal.settled(registration_ids)

    def recheck_by(self, rechecker: Rechecker) -> None:
        """See HeldRenewal."""
        self._renewal.recheck_by(rechecker)

    def renewable(self, name: str) -> Registration | None:
        """See HeldRenewal."""
        return self._renewal.renewable(name)

    async def renew(self, names: Sequence[str], *, since: Version, read_at: Version) -> list[Registration]:
        """See HeldRenewal."""
        return await self._renewal.renew(names, since=since, read_at=read_at)

    def rechecked(self, query_id: str, *, kept: bool, query_ms: float) -> None:
        """See HeldRenewal."""
        self._renewal.rechecked(query_id, kept=kept, query_ms=query_ms)

    def cancel(self, registration_ids: Sequence[str]) -> None:
        """Cancel the registrations of a response that is gone, except those shared with others.

        Unknown or finished ones are ignored.
        """
        self._cancellations.cancel(registration_ids)

    def keep_dead(self, registration_ids: Sequence[str]) -> None:
        """Prolong the tombstones of registrations whose effects are not settled yet."""
        self._registrations.validity.keep_dead(registration_ids, now_ms=self._clock())

    def housekeep(self, served: Served = ()) -> None:
        """Keep house, once a second: cancel unneeded registrations, forget old tombstones, report reads. From any one thread.

        served: hits served from cache since the last call.
        """
        self._housekeeping.run(served)

    def resume(self) -> None:
        """End a reset after the removal of everything stored before it: the next heartbeats may open the cache again."""
        self._threads.handler.resume()

    def withhold(self, why: str) -> None:
        """Serve nothing from cache until `release`: a service that sees some of the changes is down."""
        self._threads.handler.withhold(why)

    def release(self, why: str) -> None:
        """Serve again at the grid's next proof of freshness, unless other reasons remain."""
        self._threads.handler.release(why)

    def read_contributors(self, snapshots: Snapshots) -> None:
        """See RegistryThreads."""
        self._threads.read_contributors(snapshots)

    def read_instants(self, client: Client) -> None:
        """Read the next instants of queries that follow the clock by this client."""
        self._instants.connect(client)

    def start(self) -> None:
        """See RegistryThreads."""
        self._threads.start()

    def stop(self) -> None:
        """End all threads; nothing is served any more. Blocks until they have ended."""
        self._threads.stop()
        self._registrations.validity.prove(Freshness())
