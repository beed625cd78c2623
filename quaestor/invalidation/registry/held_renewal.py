"""Renewal of held registrations: their queries run again, and the same result activates a further round of each."""

from __future__ import annotations

from collections.abc import Sequence

from quaestor.errors import RegistrationRefusedError
from quaestor.invalidation.registry.activation import Activations
from quaestor.invalidation.registry.contributor_reads import ContributorReads
from quaestor.invalidation.registry.held_registrations import Rechecker
from quaestor.invalidation.registry.process_registrations import ProcessRegistrations
from quaestor.model import Registration, Version
from quaestor.runtime.supervision.process_context import ProcessContext


class HeldRenewal:
    """Renewal of one process's own registrations. From any thread, except `renew`, which runs on the event loop."""

    def __init__(
        self,
        registrations: ProcessRegistrations,
        activations: Activations,
        contributor_reads: ContributorReads,
        process: ProcessContext,
    ) -> None:
        self._held = registrations.held
        self._held.wanted = self._wanted
        self._shared = registrations.shared
        self._view = registrations.view
        self._rule = registrations.rule
        self._activations = activations
        self._contributor_reads = contributor_reads
        self._clock = process.clock
        self._within_s = process.settings.grid.recheck_ms / 1000

    async def settled(self, registration_ids: Sequence[str]) -> None:
        """Return when none of these is held any more, or when the time for a recheck is over."""
        await self._held.settled(registration_ids, within_s=self._within_s)

    def recheck_by(self, rechecker: Rechecker) -> None:
        """Run queries again from now on, before their entries are evicted."""
        self._held.rechecker = rechecker

    def renewable(self, name: str) -> Registration | None:
        """Return the registration behind a held name; None if it is held or needed no longer."""
        return self._shared.renewable(name) if self._held.any_held((name,)) else None

    async def renew(self, names: Sequence[str], *, since: Version, read_at: Version) -> list[Registration]:
        """Activate a further round of registrations whose results stayed the same; return those still current.

        Raises RegistrationRefusedError; then none of them is active.
        """
        shape = self._view.shape
        rounds = [self._shared.next_round(name, since=since, read_at=read_at) for name in names]
        registrations = [registration for registration in rounds if registration is not None]
        if shape is None:
            raise RegistrationRefusedError("the matching grid has to prove itself anew")
        if registrations:
            await self._activations.activate(registrations, shape, renewed=True)
        renewed = [registration for registration in registrations if self._shared.is_current(registration.id)]
        self._contributor_reads.want(renewed, renewed=True)
        return renewed

    def rechecked(self, query_id: str, *, kept: bool, query_ms: float) -> None:
        """Note the outcome of a recheck for the next decision."""
        self._rule.rechecked(query_id, kept=kept, query_ms=query_ms)

    def _wanted(self, name: str, query_id: str) -> bool:
        """Whether to recheck a held registration of this process. A registration under activation is not rechecked."""
        rechecker = self._held.rechecker
        if rechecker is None or name in self._activations.pending or self._shared.renewable(name) is None:
            return False
        return self._rule.wanted(query_id, now_ms=self._clock(), waiting=rechecker.waiting)
