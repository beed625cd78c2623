"""The composition root: which parts a Quaestor is made of, and in which order they start and stop.

Embedded (no redis_url): event layer, store, index and sketch in memory, one matching node in this process. Correct for one
app process; several processes need one Redis, because they must share the sketch and see each other's entries.
Distributed (redis_url): everything shared lives in Redis; the matching grid runs elsewhere
(`python -m quaestor.invalidation.grid.spark`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import anyio.to_thread

from quaestor.cache_sketch import MemoryCacheSketch, RedisCacheSketch
from quaestor.capture import Capture
from quaestor.capture.catalog import Catalog
from quaestor.capture.clients import WatchClient, watch_client
from quaestor.clock import Clock, system_clock
from quaestor.errors import ConfigurationError, DependencyError, EventLayerError
from quaestor.event_layer.connecting import event_layer
from quaestor.event_layer.memory import MemoryEventLayer
from quaestor.invalidation.effects.broadcast import Broadcast
from quaestor.invalidation.effects.collection_events import CollectionEvents
from quaestor.invalidation.effects.effects import Effects, Observed
from quaestor.invalidation.effects.manual import ManualInvalidation
from quaestor.invalidation.grid.embedded import EmbeddedGrid
from quaestor.invalidation.registry.null_registry import NullRegistry
from quaestor.invalidation.registry.registry import Registry
from quaestor.model import Query
from quaestor.observability.telemetry import Telemetry
from quaestor.observability.tracing import Tracing
from quaestor.ports import CacheSketch, CdnAdapter, DependencyIndex, EventLayer, Leases, SharedInvalidation
from quaestor.read_path.entries import COPY_SLACK_MS
from quaestor.read_path.service import ReadPath
from quaestor.realtime.live import LiveResult
from quaestor.realtime.subscriptions import Subscriptions
from quaestor.redis import clients
from quaestor.redis.clients import SharedClient
from quaestor.settings import Settings
from quaestor.store.index_memory import MemoryIndex
from quaestor.store.index_redis import RedisIndex
from quaestor.store.invalidation_script import shared_invalidation
from quaestor.store.measured import keep_measuring
from quaestor.store.memory import MemoryStore
from quaestor.store.redis import RedisStore
from quaestor.store.two_level import TwoLevelStore
from quaestor.tasks import ended
from quaestor.ttl import TtlEstimator


class Quaestor:
    """One per application. Attach `capture` to the MongoDB clients and give the object to QuaestorMiddleware.

    settings: see Settings; overrides are its fields, e.g. Quaestor(redis_url="redis://...", client_ttl="estimated").
        Making one connects to nothing. Raises ConfigurationError for settings that contradict each other.
    """

    def __init__(self, settings: Settings | None = None, *, clock: Clock = system_clock, **overrides: Any) -> None:
        if settings is not None and overrides:
            raise ConfigurationError("pass either a Settings object or its fields, not both")
        self.settings = settings or Settings.from_env({}, **overrides)
        self.telemetry = Telemetry(tracing=Tracing(enabled=self.settings.tracing))
        self.capture = Capture()
        self._clock = clock
        self._redis: SharedClient | None = None
        layer: EventLayer
        index: DependencyIndex
        share: SharedInvalidation | None = None
        leases: Leases | None = None
        memory = MemoryStore(
            budget_bytes=self.settings.memory_bytes,
            on_left=self.telemetry.stores.left,
            on_refused=lambda why: self.telemetry.stores.refused.labels("memory", why).inc(),
        )
        self.telemetry.stores.bytes.labels("memory").set_function(lambda: memory.used_bytes)
        self.telemetry.stores.entries.labels("memory").set_function(lambda: len(memory))
        store: MemoryStore | TwoLevelStore = memory
        if self.settings.redis_url is None:
            layer, index = MemoryEventLayer(clock=clock), MemoryIndex()
            self.sketch: CacheSketch = MemoryCacheSketch()
        else:
            self._redis = clients.shared_client(self.settings.redis_url)
            index = shared_index = RedisIndex(
                self._redis, deployment=self.settings.scope, on_lost=self._dependents_lost
            )
            leases = shared = RedisStore(
                self._redis,
                deployment=self.settings.scope,
                compress_above_bytes=self.settings.compress_above_bytes,
                compression_level=self.settings.compression_level,
                max_body_bytes=self.settings.max_body_bytes,
                telemetry=self.telemetry,
            )
            store = TwoLevelStore(memory, shared)
            self.sketch = shared_sketch = RedisCacheSketch(
                self._redis,
                deployment=self.settings.scope,
                copies_live_ms=self.settings.ttl_max_ms + COPY_SLACK_MS,
                telemetry=self.telemetry,
            )
            share = shared_invalidation(index=shared_index, sketch=shared_sketch, store=shared)
            layer = event_layer(
                self.settings.redis_url,
                self.settings.deployment,
                beside=(shared_index.keys[0], shared_sketch.keys[0]),
            )
        self._layer = layer
        estimator = TtlEstimator(
            ttl_min_ms=self.settings.ttl_min_ms,
            ttl_max_ms=self.settings.ttl_max_ms,
            quantile=self.settings.ttl_quantile,
        )
        self.registry = (Registry if self.settings.grid else NullRegistry)(
            layer,
            settings=self.settings,
            telemetry=self.telemetry,
            clock=clock,
            on_invalidated=lambda invalidated: self._effects.notify(invalidated),
            on_reset=lambda why: self._effects.reset(why),
        )
        self._collection_events = CollectionEvents(
            layer, deployment=self.settings.deployment, shape=lambda: self.registry.shape, clock=clock
        )
        self.registry.on_succeeded = self._collection_events.again
        self._effects = Effects(
            registrations=self.registry,
            store=store,
            forget=lambda names: by_name.heard(names),
            index=index,
            sketch=self.sketch,
            estimator=estimator,
            settings=self.settings,
            telemetry=self.telemetry,
            clock=clock,
            share=share,
        )
        self.read_path = ReadPath(
            registry=self.registry,
            store=store,
            index=index,
            sketch=self.sketch,
            estimator=estimator,
            settings=self.settings,
            telemetry=self.telemetry,
            clock=clock,
            leases=leases,
        )
        self.registry.usage.source = self.read_path.lookup.take_served
        by_name = Broadcast(
            layer,
            self.read_path,
            deployment=self.settings.deployment,
            tenant=self.settings.owner,
            clock=clock,
            forget=memory.drop_guarded,
            trims=not self.settings.grid,
        )
        self._kill, self._stored = by_name.announce, store.get
        if self.settings.grid or self.settings.redis_url is not None:
            self.read_path.explicit.announce = by_name.announce
        self.subscriptions = Subscriptions(
            layer, shape=lambda: self.registry.shape, settings=self.settings, telemetry=self.telemetry, clock=clock
        )
        self._grid: EmbeddedGrid | None = None
        self._watched: WatchClient | None = None
        self._by_hand: ManualInvalidation | None = None
        self._starting: asyncio.Task[None] | None = None
        self._polling: asyncio.Task[None] | None = None
        self._measuring: asyncio.Task[None] | None = None

    @classmethod
    def from_env(cls, **overrides: Any) -> Quaestor:
        """Settings from MONGO_URL, REDIS_URL and QUAESTOR_*; see Settings.from_env."""
        return cls(Settings.from_env(**overrides))

    @property
    def redis(self) -> SharedClient | None:
        """The connections to the shared Redis; None if everything is in this process. Closed by stop()."""
        return self._redis

    def add_cdn(self, adapter: CdnAdapter) -> None:
        """Purge this CDN too, and tag responses for it."""
        self._effects.cdn.append(adapter)

    def on_invalidated(self, observer: Callable[[Observed], None]) -> None:
        """Call observer on the event loop after each invalidation whose effects are done: for dashboards and tests."""
        self._effects.observers.append(observer)

    async def subscribe(self, query: Query) -> LiveResult:
        """Follow the result of a query: an asynchronous iterator of the whole result, then of the events that change it.

            async with await quaestor.subscribe(query) as live:
                async for told in live: ...

        Returns when the result is known. Each event comes once and in order, whatever dies in between; a subscriber that is
        slower than `settings.subscription_queue` events is told the whole result instead. See LiveResult.

        Raises QueryError if the query is malformed or cannot be maintained, SubscriptionError if the grid refuses it or does
        not answer, ConfigurationError if there is no grid.
        """
        if not self.settings.grid:
            raise ConfigurationError("nothing can be followed without a grid; leave `grid` on")
        return await self.subscriptions.subscribe(query)

    async def invalidate(
        self, *, tags: Sequence[str] = (), urls: Sequence[str] = (), collections: Sequence[Any] = ()
    ) -> None:
        """Invalidate answers by hand, in every process, in CDNs and in browsers. Takes effect as a write to the database does:
        within milliseconds, not necessarily before this returns. Calling it again does no harm.

        tags: of `@cached(tags=[...])`.
        urls: with host ("https://shop.example/items?page=2"), or without for all of them ("/items"). Of routes that
            carry a declaration, a bare `@cached()` at least, answers go in all their variants, stored or on their
            way; of others the one that is stored under exactly this URL, with its host.
        collections: "database.collection" or pymongo collections; whatever read from them.

        Raises ConfigurationError before the start and for what is no tag, URL or collection; DatabaseError if tags or URLs could
        not be written to `settings.control_namespace`, EventLayerError if the grid could not be told.
        """
        if self._by_hand is None:
            raise ConfigurationError("nothing can be invalidated before start(), or without a MongoDB that is watched")
        await self._by_hand.invalidate(tags=tags, urls=urls, collections=collections)

    async def start(self) -> None:
        """Start the background work. Never fails because a part is away: requests bypass the cache until it answers."""
        await self._effects.start()
        self.registry.start()
        if self._redis is not None:
            index = RedisIndex(self._redis, deployment=self.settings.scope)
            measuring = keep_measuring(self._redis, index, self.telemetry)
            self._measuring = asyncio.create_task(measuring, name="quaestor-measuring")
        if not self.settings.grid:
            self.telemetry.event("quaestor.started", mode="without a grid")
            return
        try:
            self._watched = watch_client(self.capture, self.settings)
        except ConfigurationError as error:
            self.telemetry.failure("configuration", "quaestor.not_watching", error)
            return
        self._by_hand = ManualInvalidation(
            self._watched,
            self.settings,
            collection_changed=self._collection_events.send,
            stored=self._stored,
            kill=self._kill,
        )
        catalog = Catalog(self._watched, on_changed=self._collection_changed, clock=self._clock)
        self.registry.resolver = self.subscriptions.resolver = catalog
        self._polling = asyncio.create_task(catalog.run(self._catalog_failed), name="quaestor-catalog")
        if self.settings.redis_url is None:
            self._grid = EmbeddedGrid(
                self._watched, layer=self._layer, settings=self.settings, telemetry=self.telemetry, clock=self._clock
            )
            self._grid.start()
            if self.settings.client_ttl == "estimated" or self._effects.cdn:
                # What an earlier process handed out is still out there, and only that process's memory knew it.
                self._effects.reset("a new embedded process does not know what was handed out before")
        self.telemetry.event("quaestor.started", mode="embedded" if self._grid else "distributed")

    async def stop(self) -> None:
        """Stop the background work and close what was opened. The object is done then."""
        if self._by_hand is not None:
            self._by_hand.close()
        await ended((self._polling, self._measuring))
        await anyio.to_thread.run_sync(self.subscriptions.stop)
        if self._grid is not None:
            await anyio.to_thread.run_sync(self._grid.stop)
        await anyio.to_thread.run_sync(self.registry.stop)
        await self._effects.stop()
        await self.read_path.coalescing.settle()
        for adapter in self._effects.cdn:
            await adapter.aclose()
        self._layer.close()
        if self._redis is not None:
            await self._redis.aclose()
        if self._watched is not None:
            await anyio.to_thread.run_sync(self._watched.close)

    def _dependents_lost(self) -> None:
        """Nobody knows any more which copies outside depend on what: none of them can be trusted."""
        why = "Redis lost dependents that were added"
        self.telemetry.failure("store", "index.state_lost", why)
        self._effects.reset(why)

    def _collection_changed(self, namespaces: frozenset[str]) -> None:
        """A view or a collection's options mean something else now: through the grid, as any other write."""
        try:
            self._collection_events.send(namespaces)
        except EventLayerError as error:
            self.telemetry.failure("event-layer", "quaestor.definition_not_sent", error)

    def _catalog_failed(self, error: DependencyError) -> None:
        self.telemetry.failure("mongodb", "catalog.poll_failed", error)
