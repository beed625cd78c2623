"""Registrar of one app process: plans the reads of a response, shares existing registrations, activates new ones."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence

from quaestor.capture.result_digests import may_be_compared
from quaestor.capture.views import is_definition
from quaestor.errors import MalformedQueryError, NotCacheableError, PartitionLagsError, RegistrationRefusedError
from quaestor.event_layer.partitioning import query_partition
from quaestor.invalidation.registry.activation import Activations
from quaestor.invalidation.registry.contributor_reads import ContributorReads
from quaestor.invalidation.registry.next_instants import NextInstants
from quaestor.invalidation.registry.process_registrations import ProcessRegistrations
from quaestor.invalidation.registry.registration_building import Dependency, Guard, dependencies, guarding
from quaestor.invalidation.registry.registration_ids import id_for, round_of
from quaestor.invalidation.registry.resolving import Resolver
from quaestor.invalidation.registry.surrogate_tags import everything_tag, tag
from quaestor.model import CapturedRead, GridShape, Uncacheable, Version
from quaestor.observability.vocabularies import widening
from quaestor.ports import Registered
from quaestor.runtime.supervision.process_context import ProcessContext


class Registrar:
    """Maker of registrations. Use from one event loop.

    resolver: None: reads are taken as they are.
    instants: next instants of queries that follow the clock.
    compare: receives the views whose results are worth a digest (CapturedRead.digest).
    """

    def __init__(
        self,
        registrations: ProcessRegistrations,
        activations: Activations,
        contributor_reads: ContributorReads,
        process: ProcessContext,
        *,
        resolver: Resolver | None,
        instants: NextInstants,
        compare: Callable[[Iterable[str]], None],
    ) -> None:
        self._origin = registrations.origin
        self._resolver = resolver
        self._instants = instants
        self._validity = registrations.validity
        self._view = registrations.view
        self._shared = registrations.shared
        self._activations = activations
        self._contributor_reads = contributor_reads
        self._rule = registrations.rule
        self._settings = process.settings
        self._rechecks = process.settings.grid.recheck != "off"
        self._compare = compare
        self._telemetry = process.telemetry
        self._clock = process.clock
        self._counter = itertools.count(1)

    async def register(self, reads: Sequence[CapturedRead], *, since: Version, expires_at_ms: int) -> Registered:
        """See ports.QueryRegistry."""
        if not self._validity.serving(now_ms=self._clock()):
            raise RegistrationRefusedError("the matching grid is not running or lags behind the staleness bound")
        read_dependencies = await self._dependencies(reads, expires_at_ms)
        self._compare_views(reads, read_dependencies)
        shape = self._view.shape
        if shape is None:
            raise RegistrationRefusedError("the matching grid has to prove itself anew")
        self._require_fresh(read_dependencies)
        guard = guarding(
            read_dependencies,
            self._shared,
            new_id=lambda query_id: id_for(self._origin, next(self._counter), query_id),
            tenant=self._settings.owner,
            since=since,
            now_ms=self._clock(),
            expires_at_ms=expires_at_ms,
            rechecked=self._rechecks,
        )
        self._note_costs(guard, read_dependencies)
        rate_hz = guard.rate_hz + (await self._activated(guard, shape) if guard.new else 0.0)
        self._contributor_reads.want(guard.new)
        return self._registered(guard, read_dependencies, rate_hz)

    async def _dependencies(self, reads: Sequence[CapturedRead], expires_at_ms: int) -> list[Dependency]:
        resolved = await self._resolved(reads)
        if any(read.query.clock is not None for read in reads):
            resolved = [
                read if read.query.clock is None else await self._instants.of(read, until_ms=expires_at_ms)
                for read in resolved
            ]
        try:
            read_dependencies = dependencies(resolved)
        except MalformedQueryError as error:
            raise NotCacheableError((Uncacheable.UNREADABLE,)) from error
        if not read_dependencies:
            raise NotCacheableError((Uncacheable.NO_READS,))
        return read_dependencies

    async def _resolved(self, reads: Sequence[CapturedRead]) -> Sequence[CapturedRead]:
        if self._resolver is None:
            return reads
        # Tags and URLs belong to Quaestor: no user needs the right to list them.
        control = self._settings.store.control_namespace
        own = [read for read in reads if read.query.namespace == control]
        resolved, reasons = await self._resolver.resolve([r for r in reads if r.query.namespace != control])
        if reasons:
            raise NotCacheableError(reasons)
        return (*resolved, *own)

    def _note_costs(self, guard: Guard, read_dependencies: Sequence[Dependency]) -> None:
        durations_ms = {dependency.plan.query_id: dependency.read.duration_ms for dependency in read_dependencies}
        for registration in guard.new:
            if registration.digest is not None:
                self._rule.registered(registration.query_id, query_ms=durations_ms[registration.query_id])

    def _compare_views(self, reads: Sequence[CapturedRead], read_dependencies: Sequence[Dependency]) -> None:
        """Request digests for the views among the reads, if these are useful: later answers can then be rechecked."""
        if self._rechecks and any(
            dependency.read.digest is None and may_be_compared(dependency.query) for dependency in read_dependencies
        ):
            collections = {
                dependency.query.namespace for dependency in read_dependencies if not is_definition(dependency.query)
            }
            views = {read.query.namespace for read in reads} - collections
            if views:
                self._compare(views)

    def _require_fresh(self, read_dependencies: Sequence[Dependency]) -> None:
        freshness = self._validity.freshness
        lagging = freshness.lagging(now_ms=self._clock())
        partitions = len(freshness.until_ms)
        needed = (
            {query_partition(dependency.plan.query_id, partitions) for dependency in read_dependencies}
            if lagging
            else set()
        )
        if late := sorted(needed.intersection(lagging)):
            raise PartitionLagsError(
                f"query partition {', '.join(map(str, late))} lags behind the database by more than the staleness bound of "
                f"{self._settings.grid.staleness_bound_ms} ms; its answers are cached again when it has caught up"
            )

    async def _activated(self, guard: Guard, shape: GridShape) -> float:
        try:
            rate_hz = await self._activations.activate(guard.new, shape)
            if self._validity.any_dead(guard.shared):
                raise RegistrationRefusedError("the result changed while it was being registered")
        except BaseException:
            for registration_id in guard.shared:
                self._shared.lease(registration_id, until_ms=0)
            raise
        return rate_hz

    def _registered(self, guard: Guard, read_dependencies: Sequence[Dependency], rate_hz: float) -> Registered:
        widened = tuple(d.plan.reason for d in read_dependencies if d.plan.reason)
        for reason in widened:
            self._telemetry.invalidations.widened.labels(widening(reason)).inc()
        return Registered(
            ids=guard.ids,
            query_ids=tuple(d.plan.query_id for d in read_dependencies),
            tags=(tag(guard.ids[0]), everything_tag(self._settings.scope)),
            write_rate_hz=rate_hz,
            widened=widened,
            queries=tuple(d.query for d in read_dependencies),
            rechecked=sum(
                round_of(registration_id) is not None for registration_id in guard.ids[-len(read_dependencies) :]
            ),
            valid_until_ms=min((until_ms for d in read_dependencies if (until_ms := d.until_ms)), default=None),
        )
