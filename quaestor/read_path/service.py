"""The read path of one Quaestor, wired from its parts.

- `lookup` finds entries, and `usability` judges how they may be used.
- `coalescing` lets one request of many run the handler.
- `admission` makes entries of answers, and `copies` limits how long caches outside may keep them.
- `doorkeeper` decides which answers are not stored at the first request.
- `probation` and `samples` decide which answers are verified.

The parts are async shells around pure decisions (`decision`, `reuse`, `freshness`, `vary`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from quaestor.capture.seen_constants import SeenConstants
from quaestor.clock import Clock
from quaestor.model import Version
from quaestor.observability.telemetry import Telemetry
from quaestor.ports import CacheSketch, DependencyIndex, Leases, LifetimeEstimator, OwnWritesBarrier, QueryRegistry
from quaestor.read_path.coalescing import RequestCoalescing
from quaestor.read_path.doorkeeper import Doorkeeper
from quaestor.read_path.entry_admission import EntryAdmission
from quaestor.read_path.entry_lookup import EntryLookup
from quaestor.read_path.explicit_entries import Announce, ExplicitEntries
from quaestor.read_path.local_store import LocalStore
from quaestor.read_path.missing_reads import MissingReads
from quaestor.read_path.outside_copies import OutsideCopies
from quaestor.read_path.own_writes import NoBarrier
from quaestor.read_path.probation import Probation
from quaestor.read_path.refresh import EarlyRefresh
from quaestor.read_path.usability import Usability
from quaestor.read_path.vary import Variants
from quaestor.read_path.verification_samples import Samples
from quaestor.runtime.supervision.supervisor import Supervisor
from quaestor.settings import Settings

DefinitionsLookup = Callable[[], Awaitable[None]]


class ReadPath:
    """The parts of the read path, wired; one per Quaestor. Use from one event loop at a time.

    leases: of the store that is shared with other processes; None: this process is alone.
    capture: counts only reads of clients with this capture; None: of any.
    own_writes: barrier that answers to writing requests wait for.
    """

    def __init__(
        self,
        *,
        registry: QueryRegistry,
        store: LocalStore,
        index: DependencyIndex,
        sketch: CacheSketch,
        estimator: LifetimeEstimator,
        settings: Settings,
        telemetry: Telemetry,
        clock: Clock,
        leases: Leases | None = None,
        announce: Announce | None = None,
        capture: object | None = None,
        own_writes: OwnWritesBarrier | None = None,
        supervisor: Supervisor | None = None,
    ) -> None:
        self.supervisor = supervisor or Supervisor(telemetry)
        self.capture = capture
        self.clock = clock
        self.own_writes = own_writes or NoBarrier()
        self.settings = settings
        self.telemetry = telemetry
        self.store = store
        self.coalescing = RequestCoalescing(leases, errands=self.supervisor.errands("coalescing"))
        self.early = EarlyRefresh(beta=settings.lifetimes.early_refresh)
        self.doorkeeper = Doorkeeper(least_share=settings.store.doorkeeper_share)
        self.probation = Probation(
            answers=settings.verification.probation_answers,
            ttl_ms=settings.verification.probation_ttl_ms,
            quarantine_ms=settings.verification.quarantine_ms,
        )
        self.samples = Samples(
            share=settings.verification.verify_share, per_second=settings.verification.verify_per_second
        )
        self.variants = Variants(
            ignored=frozenset(name.lower().encode() for name in settings.store.ignored_fields),
            normalised=settings.lifetimes.explicit,
        )
        self.explicit = ExplicitEntries(
            store, telemetry=telemetry, clock=clock, announce=announce, heuristic=settings.lifetimes.heuristic_fraction,
            partial_bytes=settings.store.max_body_bytes if settings.store.partial_answers else 0,
        )  # fmt: skip
        self.usability = Usability(registry, settings, clock)
        self.copies = OutsideCopies(
            sketch=sketch, index=index, usability=self.usability, telemetry=telemetry, clock=clock
        )
        self.seen_constants = SeenConstants(searching=settings.lifetimes.clock_parts)
        self.missing_reads = MissingReads(hold_ms=settings.verification.quarantine_ms, dead=self._is_dead)
        self.lookup = EntryLookup(
            registry=registry,
            store=store,
            usability=self.usability,
            coalescing=self.coalescing,
            explicit=self.explicit,
            early=self.early,
            telemetry=telemetry,
            clock=clock,
        )
        self.admission = EntryAdmission(
            registry=registry,
            store=store,
            index=index,
            sketch=sketch,
            estimator=estimator,
            usability=self.usability,
            coalescing=self.coalescing,
            variants=self.variants,
            explicit=self.explicit,
            early=self.early,
            missing_reads=self.missing_reads,
            settings=settings,
            telemetry=telemetry,
            clock=clock,
        )
        self._registry = registry
        self.definitions: DefinitionsLookup | None = None

    async def look_up_definitions(self) -> None:
        """Look up the definitions of views and collections now instead of at the next listing, and end entries that depend on a
        changed one. Raises DatabaseError."""
        if self.definitions is not None:
            await self.definitions()

    def _is_dead(self, registration: str) -> bool:
        now_ms, one = self.clock(), (registration,)
        return not self._registry.live(one, now_ms=now_ms) and not self._registry.lagging(one, now_ms=now_ms)

    def serving(self, now_ms: int) -> bool:
        """Whether at least a part of the grid is fresh enough for serving from cache and storing."""
        return self._registry.serving(now_ms=now_ms)

    def watermark(self) -> Version:
        """Return the newest version seen from the grid. Take it before a handler runs."""
        return self._registry.watermark()
