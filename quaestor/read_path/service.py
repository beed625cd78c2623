"""The read path of one Quaestor, wired from its parts.

- `lookup` finds entries, and `usability` judges how they may be used.
- `coalescing` lets one request of many run the handler.
- `admission` makes entries of answers, and `copies` limits how long caches outside may keep them.
- `admission.doorkeeper` decides which answers are not stored at the first request.
- `probation` and `lookup.samples` decide which answers are verified.

The parts are async shells around pure decisions (`decision`, `reuse`, `freshness`, `vary`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from quaestor.cache_sketch.partitions import Partitioning
from quaestor.capture.context import Recording, recording
from quaestor.capture.seen_constants import SeenConstants
from quaestor.clock import Clock
from quaestor.model import Version
from quaestor.ports import LifetimeEstimator, OwnWritesBarrier, QueryRegistry
from quaestor.read_path.answer_keys import AnswerKeys
from quaestor.read_path.coalescing import RequestCoalescing
from quaestor.read_path.earlier_runs import EarlierRuns
from quaestor.read_path.entry_admission import EntryAdmission
from quaestor.read_path.entry_announcement import EntryAnnouncement
from quaestor.read_path.entry_lookup import EntryLookup
from quaestor.read_path.entry_publication import EntryPublication
from quaestor.read_path.explicit_entries import Announce, ExplicitEntries
from quaestor.read_path.hidden_inputs import HiddenInputs
from quaestor.read_path.local_store import EntryStorage
from quaestor.read_path.missing_reads import MissingReads
from quaestor.read_path.outside_copies import OutsideCopies
from quaestor.read_path.probation import Probation
from quaestor.read_path.refresh import EarlyRefresh
from quaestor.read_path.usability import Usability
from quaestor.read_path.vary import Variants
from quaestor.runtime.supervision.process_context import ProcessContext

DefinitionsLookup = Callable[[], Awaitable[None]]


class NoBarrier:
    """Implements ports.OwnWritesBarrier where it is unknown when writes have taken effect: always passed."""

    def expect(self) -> None:
        """See ports.OwnWritesBarrier."""

    async def passed(self, version: Version) -> None:
        """See ports.OwnWritesBarrier."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCapture:
    """Settings of the capture of handler runs.

    capture: the one whose clients handlers read with; None: any.
    seen_constants: constants of queries that are no part of the present time.
    clock_window_ms: see LifetimeSettings.
    clock: of the cache.
    """

    capture: object | None
    seen_constants: SeenConstants
    clock_window_ms: int
    clock: Clock

    def recording(self) -> Recording:
        """Return a block that records the reads of one run."""
        return recording(clock_window_ms=self.clock_window_ms, capture=self.capture, clock=self.clock)


class ReadPath:
    """The parts of the read path, wired; one per Quaestor. Use from one event loop at a time.

    announce: reports dead registrations to every process; None: this process is alone.
    capture: counts only reads of clients with this capture; None: of any.
    own_writes: barrier that answers to writing requests wait for.
    """

    def __init__(
        self,
        registry: QueryRegistry,
        storage: EntryStorage,
        estimator: LifetimeEstimator,
        process: ProcessContext,
        *,
        announce: Announce | None = None,
        capture: object | None = None,
        own_writes: OwnWritesBarrier | None = None,
    ) -> None:
        settings, telemetry, clock = process.settings, process.telemetry, process.clock
        self.process = process
        self.clock = clock
        self.own_writes = own_writes or NoBarrier()
        self.store = store = storage.store
        self.coalescing = RequestCoalescing(storage.leases, errands=process.supervisor.errands("coalescing"))
        self.probation = Probation(
            answers=settings.verification.probation_answers,
            ttl_ms=settings.verification.probation_ttl_ms,
            quarantine_ms=settings.verification.quarantine_ms,
        )
        self.variants = Variants(
            ignored=frozenset(name.lower().encode() for name in settings.store.ignored_fields),
            normalised=settings.lifetimes.explicit,
        )
        self.explicit = ExplicitEntries(
            store, telemetry=telemetry, clock=clock, announce=announce, heuristic=settings.lifetimes.heuristic_fraction,
            partial_bytes=settings.store.max_body_bytes if settings.store.partial_answers else 0,
        )  # fmt: skip
        self.usability = usability = Usability(registry, settings, clock)
        self.copies = OutsideCopies(
            sketch=storage.sketch, index=storage.index, usability=usability, telemetry=telemetry, clock=clock
        )
        self.run_capture = RunCapture(
            capture=capture,
            seen_constants=SeenConstants(searching=settings.lifetimes.clock_parts),
            clock_window_ms=settings.lifetimes.clock_window_ms,
            clock=process.clock,
        )
        early = EarlyRefresh(beta=settings.lifetimes.early_refresh)
        self.lookup = EntryLookup(
            registry=registry, store=store, usability=usability, coalescing=self.coalescing, explicit=self.explicit,
            early=early, process=process,
        )  # fmt: skip
        publication = EntryPublication(registry, store, usability, self.coalescing, self.explicit, process)
        self.admission = EntryAdmission(
            registry, estimator, process,
            keys=AnswerKeys(self.variants, store),
            announcement=EntryAnnouncement(storage, usability, publication, early, telemetry),
            explicit=self.explicit,
            earlier=EarlierRuns(
                MissingReads(hold_ms=settings.verification.quarantine_ms, dead=self._is_dead), HiddenInputs(dead=self._is_dead)
            ),
            partitioning=Partitioning(settings.sketch.sketch_partitions, epoch=storage.sketch.epoch),
        )  # fmt: skip
        self._registry = registry
        self.definitions: DefinitionsLookup | None = None

    async def look_up_definitions(self) -> None:
        """Look up the definitions of views and collections now instead of at the next listing, and end entries that depend on a
        changed one. Raises DatabaseError."""
        if self.definitions is not None:
            await self.definitions()

    def _is_dead(self, registration: str) -> bool:
        now_ms, registrations = self.clock(), (registration,)
        return not self._registry.live(registrations, now_ms=now_ms) and not self._registry.lagging(
            registrations, now_ms=now_ms
        )

    def serving(self, now_ms: int) -> bool:
        """Whether at least a part of the grid is fresh enough for serving from cache and storing."""
        return self._registry.serving(now_ms=now_ms)

    def watermark(self) -> Version:
        """Return the newest version seen from the grid. Take it before a handler runs."""
        return self._registry.watermark()
