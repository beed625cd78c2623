"""The read path of one Quaestor: its parts, put together.

`lookup` finds entries, `usability` says how they may be used, `coalescing` lets one request of many run the handler, `admission`
makes entries of answers. They are async shells around pure decisions (`decision`, `reuse`, `freshness`, `vary`).
"""

from __future__ import annotations

from quaestor.clock import Clock
from quaestor.model import Version
from quaestor.observability.telemetry import Telemetry
from quaestor.ports import CacheSketch, DependencyIndex, Leases, LifetimeEstimator, QueryRegistry
from quaestor.read_path.coalescing import RequestCoalescing
from quaestor.read_path.entry_admission import EntryAdmission
from quaestor.read_path.entry_lookup import EntryLookup
from quaestor.read_path.explicit_entries import Announce, ExplicitEntries
from quaestor.read_path.local_store import LocalStore
from quaestor.read_path.refresh import EarlyRefresh
from quaestor.read_path.usability import Usability
from quaestor.read_path.vary import Variants
from quaestor.settings import Settings


class ReadPath:
    """The parts of the read path, wired; one per Quaestor. Use from one event loop at a time.

    leases: of the store that is shared with other processes; None: this process is alone.
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
    ) -> None:
        self.clock = clock
        self.settings = settings
        self.telemetry = telemetry
        self.store = store
        self.coalescing = RequestCoalescing(leases)
        self.early = EarlyRefresh(beta=settings.early_refresh)
        self.variants = Variants(ignored=frozenset(name.lower().encode() for name in settings.ignored_fields))
        self.explicit = ExplicitEntries(store, telemetry=telemetry, clock=clock, announce=announce)
        self.usability = Usability(registry, settings, clock)
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
            settings=settings,
            telemetry=telemetry,
            clock=clock,
        )
        self._registry = registry

    def serving(self, now_ms: int) -> bool:
        """Whether a part of the grid at least is fresh enough for anything to be served from cache or stored."""
        return self._registry.serving(now_ms=now_ms)

    def watermark(self) -> Version:
        """The newest version seen from the grid. To be taken before a handler runs."""
        return self._registry.watermark()
