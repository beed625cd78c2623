"""Storage that all processes share in Redis. Imported where there is one: its driver takes 20 MB of memory."""

from __future__ import annotations

from quaestor.cache_sketch.redis import RedisCacheSketch
from quaestor.cache_sketch.sizing import geometry_of
from quaestor.event_layer.connecting import event_layer
from quaestor.invalidation.registry.grid_events import GridEvents
from quaestor.observability.telemetry import Telemetry
from quaestor.read_path.entries import COPY_SLACK_MS
from quaestor.redis import clients
from quaestor.settings import Settings
from quaestor.storage import Storage
from quaestor.store.canary_reports import RedisCanaryReports
from quaestor.store.index_redis import RedisIndex
from quaestor.store.invalidation_script import shared_invalidation
from quaestor.store.memory import MemoryStore
from quaestor.store.outbox_redis import RedisOutbox
from quaestor.store.redis import RedisStore
from quaestor.store.two_level import TwoLevelStore


def in_redis(url: str, memory: MemoryStore, settings: Settings, telemetry: Telemetry, events: GridEvents) -> Storage:
    """Make the storage of a process that shares it with others. Connects to nothing."""

    def dependents_lost() -> None:
        """Nobody knows any more which copies outside depend on what: none of them can be trusted."""
        why = "Redis lost dependents that were added"
        telemetry.failure("store", "index.state_lost", why)
        events.reset(why)

    redis = clients.shared_client(url)
    index = RedisIndex(redis, deployment=settings.scope, on_lost=dependents_lost)
    store = RedisStore(
        redis,
        deployment=settings.scope,
        compress_above_bytes=settings.store.compress_above_bytes,
        compression_level=settings.store.compression_level,
        max_body_bytes=settings.store.max_body_bytes,
        budget_bytes=settings.store.shared_bytes,
        telemetry=telemetry,
    )
    sketch = RedisCacheSketch(
        redis,
        deployment=settings.scope,
        copies_live_ms=settings.lifetimes.ttl_max_ms + COPY_SLACK_MS,
        geometry=geometry_of(settings.sketch),
        telemetry=telemetry,
        distrust_new=not settings.sketch.trust_new_sketch,
    )
    return Storage(
        layer=event_layer(url, settings.deployment, beside=(index.keys[0], sketch.keys[0])),
        memory=memory,
        store=TwoLevelStore(memory, store),
        index=index,
        sketch=sketch,
        outbox=RedisOutbox(redis, deployment=settings.scope),
        canary_reports=RedisCanaryReports(redis, scope=settings.scope),
        leases=store,
        share=shared_invalidation(index=index, sketch=sketch, store=store),
        redis=redis,
        budget=store.budget,
    )
