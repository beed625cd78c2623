"""Storage of a Quaestor: everything that is kept, and the pipelines; here all of it in the memory of one process."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from quaestor.cache_sketch.memory import MemoryCacheSketch
from quaestor.cache_sketch.partitions import EPOCH_DIGITS
from quaestor.cache_sketch.sizing import geometry_of
from quaestor.clock import Clock
from quaestor.event_layer.memory import MemoryEventLayer
from quaestor.ports import CacheSketch, DependencyIndex, EventLayer, Leases, SharedInvalidation
from quaestor.purge_ports import PurgeOutbox
from quaestor.read_path.local_store import EntryStorage
from quaestor.settings import Settings
from quaestor.store.index_memory import MemoryIndex
from quaestor.store.memory import MemoryStore
from quaestor.store.outbox_memory import MemoryOutbox
from quaestor.store.two_level import TwoLevelStore
from quaestor.ttl.canary_watch import CanaryReports, OwnReports

if TYPE_CHECKING:
    from quaestor.redis.clients import SharedClient
    from quaestor.store.redis_budget import RedisBudget


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """Everything that is kept, and the pipelines.

    memory: this process's entries.
    store: these, and below them what all processes share.
    leases: who of all processes fetches what is missing; None: this process is alone.
    share: claims, tells the sketch and evicts in one operation; None: one after the other.
    redis: connections to the shared Redis; None: everything is in this process.
    budget: of the entries there.
    outbox: purges on their way to CDNs.
    canary_reports: what processes have counted of a canary of lifetimes.
    """

    layer: EventLayer
    memory: MemoryStore
    store: MemoryStore | TwoLevelStore
    index: DependencyIndex
    sketch: CacheSketch
    outbox: PurgeOutbox
    canary_reports: CanaryReports
    leases: Leases | None = None
    share: SharedInvalidation | None = None
    redis: SharedClient | None = None
    budget: RedisBudget | None = None

    @property
    def entries(self) -> EntryStorage:
        """Storage of entries alone."""
        return EntryStorage(
            store=self.store, index=self.index, sketch=self.sketch, leases=self.leases, share=self.share
        )


def in_process(memory: MemoryStore, settings: Settings, clock: Clock) -> Storage:
    """Make the storage of a process that shares nothing."""
    return Storage(
        layer=MemoryEventLayer(clock=clock),
        memory=memory,
        store=memory,
        index=MemoryIndex(),
        sketch=MemoryCacheSketch(
            geometry=geometry_of(settings.sketch),
            epoch="" if settings.sketch.trust_new_sketch else secrets.token_hex(EPOCH_DIGITS // 2),
        ),
        outbox=MemoryOutbox(),
        canary_reports=OwnReports(),
    )
