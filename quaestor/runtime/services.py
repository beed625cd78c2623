"""Services of a Quaestor in the background: functions that take `Parts`, begin a service, and return the function that ends
it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

import anyio.to_thread

from quaestor.cache_sketch.sizing import geometry_of
from quaestor.capture.catalog import POLL_MS, Catalog, IndexChanges
from quaestor.capture.clients import WatchClient
from quaestor.capture.pre_images import ImagesResolver
from quaestor.capture.rereading import Rereader
from quaestor.errors import ConfigurationError, DependencyError, EventLayerError, StoreError
from quaestor.invalidation.effects.manual import ManualInvalidation
from quaestor.invalidation.effects.purge_probe import PurgeProbes, addresses, probe_tag
from quaestor.invalidation.grid.embedded import EmbeddedGrid
from quaestor.invalidation.registry.null_registry import NullRegistry
from quaestor.invalidation.registry.registry import Registry
from quaestor.read_path.entries import COPY_SLACK_MS
from quaestor.read_path.sketch_watching import keep_watching
from quaestor.realtime.snapshots import MongoSnapshots
from quaestor.runtime.parts import Parts
from quaestor.ttl.canary_watch import CanaryWatch
from quaestor.ttl.chosen import ChosenEstimators
from quaestor.ttl.published import Publication, PublishedParameters
from quaestor.ttl.recording import TraceRecorder

Stop = Callable[[], Awaitable[object]]
"""Function that ends a service, and returns when it has ended. Called once."""

_HOUSEKEEPING_EVERY_S: Final = 1.0
_TUNED_EVERY_S: Final = 5.0
_CONTRIBUTORS_WITHIN_MS: Final = 2_000
_SENT_AGAIN_S: Final = 1.0


async def invalidating(parts: Parts) -> Stop:
    """Effects of invalidations."""
    await parts.effects.start()
    return parts.effects.stop


async def purging(parts: Parts) -> Stop:
    """Purges from the outbox to the CDNs."""
    parts.effects.purging.begin(
        parts.storage.outbox,
        repurge_after_ms=parts.process.settings.cdn.repurge_after_ms,
        supervisor=parts.process.supervisor,
    )
    if parts.effects.cdn and not parts.storage.outbox.durable:
        parts.process.telemetry.event("cdn.outbox_in_memory", cdns=len(parts.effects.cdn))
    return nothing


async def purge_probes(parts: Parts) -> Stop:
    """Purge probes of the CDNs whose public addresses are known. Raises ConfigurationError for an invalid address."""
    known = addresses(parts.process.settings.cdn.cdn_addresses)
    names = {adapter.name for adapter in parts.effects.cdn}
    if not known or not parts.process.settings.cdn.cdn_canary_ms:
        return nothing
    if strangers := known.keys() - names:
        raise ConfigurationError(
            f"cdn_addresses names {sorted(strangers)}, which is no CDN here; there are: {', '.join(sorted(names)) or 'none'}"
        )
    watching = PurgeProbes(
        parts.effects.cdn, addresses=known, tag=probe_tag(parts.process.settings.scope), purge_of=parts.effects.purging.of,
        outbox=parts.storage.outbox, telemetry=parts.process.telemetry, clock=parts.process.clock,
    )  # fmt: skip
    return parts.process.supervisor.keep(
        "purge-probes", partial(watching.run, parts.process.settings.cdn.cdn_canary_ms / 1_000)
    ).aclose


async def registering(parts: Parts) -> Stop:
    """Registrations with the grid, and its notifications."""
    parts.registry.start()
    return partial(anyio.to_thread.run_sync, parts.registry.stop, abandon_on_cancel=True)


async def housekeeping(parts: Parts) -> Stop:
    """Housekeeping once a second: of the registry, verification of a share of the served answers, and hits for the metrics."""

    async def keep_house() -> None:
        while True:
            await asyncio.sleep(_HOUSEKEEPING_EVERY_S)
            served = parts.read_path.lookup.take_served()
            parts.registry.housekeep(served)
            if isinstance(parts.estimator, TraceRecorder):
                parts.estimator.served(served, now_ms=parts.process.clock())
            for verify in parts.read_path.lookup.samples.choose(served):
                verify()
            parts.process.telemetry.requests.flush()

    return parts.process.supervisor.keep("housekeeping", keep_house).aclose


async def recording(parts: Parts) -> Stop:
    """Recording of a trace, written once a second, if the settings want one."""
    recorder = parts.estimator
    if not isinstance(recorder, TraceRecorder):
        return nothing

    async def written(write: Callable[[], None]) -> None:
        try:
            await anyio.to_thread.run_sync(write)
        except OSError as error:
            parts.process.telemetry.failure("engine", "ttl.trace_not_written", error)

    async def keep_writing() -> None:
        while True:
            await asyncio.sleep(_HOUSEKEEPING_EVERY_S)
            await written(recorder.write)

    stop = parts.process.supervisor.keep("trace", keep_writing).aclose

    async def end() -> None:
        await stop()
        await written(recorder.end)

    return end


async def tuning(parts: Parts) -> Stop:
    """Use of newly published parameters of the lifetimes, without a restart. Without a Redis they are published in this
    process, and end with it."""
    recorder = parts.estimator
    estimator = recorder.inner if isinstance(recorder, TraceRecorder) else recorder
    if not isinstance(estimator, ChosenEstimators):
        return nothing
    published, own = PublishedParameters(parts.storage.layer, scope=parts.process.settings.scope), estimator.parameters
    telemetry = parts.process.telemetry
    watch = CanaryWatch(published, parts.storage.canary_reports, telemetry)

    def served(taken: Sequence[tuple[tuple[str, ...], int]]) -> None:
        if estimator.canary is not None:
            estimator.canary.served(taken, now_ms=parts.process.clock())

    async def history() -> list[Publication]:
        if parts.storage.layer.immediate:  # in memory: a thread for that would never rest
            return published.history()
        return await anyio.to_thread.run_sync(published.history)

    async def tune(taken: int) -> tuple[int, bool]:
        """Look once. Returns the number of the parameters in use, and whether another one counts already."""
        newest = (await history())[-1]
        if newest.number != taken:
            estimator.take_up(newest.parameters or own, newest.canary)
            telemetry.ttl.share.set(0 if newest.canary is None else newest.canary.share)
            telemetry.event("ttl.parameters_taken_up", number=newest.number)
        if estimator.canary is None:
            return newest.number, False
        try:
            cdn = bool(parts.effects.cdn)
            ended = await watch.look(newest, estimator.canary, cdn=cdn, now_ms=parts.process.clock())
        except StoreError as error:
            telemetry.failure("store", "ttl.canary_unjudged", error)
            ended = None
        return newest.number, ended is not None

    async def keep_tuned() -> None:
        taken, again = 0, False
        while True:
            try:
                taken, again = await tune(taken)
            except EventLayerError as error:
                again = False
                telemetry.failure("event-layer", "ttl.parameters_unread", error)
            if not again:
                await asyncio.sleep(_TUNED_EVERY_S)

    parts.read_path.lookup.served_to.append(served)
    stop = parts.process.supervisor.keep("tuning", keep_tuned).aclose

    async def end() -> None:
        parts.read_path.lookup.served_to.remove(served)
        await stop()

    return end


async def measuring(parts: Parts) -> Stop:
    """Measuring of the shared store, if there is one."""
    redis = parts.storage.redis
    if redis is None:
        return nothing
    from quaestor.runtime.shared_services import measured

    return parts.process.supervisor.keep("measuring", partial(measured, parts, redis)).aclose


async def accounting(parts: Parts) -> Stop:
    """Hits reported to the account of the shared store's entries, if there is one."""
    budget = parts.storage.budget
    if budget is None:
        return nothing
    from quaestor.runtime.shared_services import keep_accounting

    return parts.process.supervisor.keep("accounting", partial(keep_accounting, budget, parts.process.telemetry)).aclose


async def sketch_watching(parts: Parts) -> Stop:
    """Watching of the Cache Sketch, whose fill shortens lifetimes."""
    settings, sketch, factors = parts.process.settings, parts.storage.sketch, parts.read_path.admission.factors
    if settings.lifetimes.client_ttl == "none" and not parts.effects.cdn:
        return nothing
    watch = partial(
        keep_watching, sketch, factors, geometry_of(settings.sketch), parts.process.telemetry, parts.process.clock
    )
    return parts.process.supervisor.keep("sketch", watch).aclose


async def catalog_polling(parts: Parts, client: WatchClient) -> Stop:
    """Catalog of the database's views and collections, checked for changes at intervals. With the setting `pre_images`, the
    images of collections are also turned on as they are needed."""

    def changed(namespaces: frozenset[str]) -> None:
        """Report changed definitions of views and collections through the grid, like any other write."""
        try:
            parts.collection_events.send(namespaces)
        except EventLayerError as error:
            parts.process.telemetry.failure("event-layer", "quaestor.definition_not_sent", error)

    def indexed(changes: IndexChanges) -> None:
        """Report indexes that came or went: results planned without the change must be evicted."""
        try:
            for namespace, (keys, first_fields) in changes.items():
                parts.collection_events.send_indexes(namespace, keys, first_fields)
        except EventLayerError as error:
            parts.process.telemetry.failure("event-layer", "quaestor.definition_not_sent", error)

    def failed(error: DependencyError) -> None:
        parts.process.telemetry.failure("mongodb", "catalog.poll_failed", error)

    poll_ms = min(POLL_MS, parts.process.settings.grid.staleness_bound_ms // 2)
    catalog = Catalog(client, on_changed=changed, on_indexes=indexed, poll_ms=poll_ms, clock=parts.process.clock)
    parts.read_path.definitions = partial(anyio.to_thread.run_sync, catalog.poll)
    trust = _Trust(parts.registry, "catalog")
    poll = partial(catalog.run, failed, trust.confirmed)
    polling = parts.process.supervisor.keep("catalog", poll, on_failure=trust.lost)
    if parts.process.settings.grid.pre_images != "enable":
        parts.resolver.connect(catalog)
        return polling.aclose
    parts.resolver.connect(ImagesResolver(catalog, parts.pre_images))
    turning_on = parts.process.supervisor.keep("pre-images", partial(parts.pre_images.run, client, catalog))

    async def end() -> None:
        await turning_on.aclose()
        await polling.aclose()

    return end


async def unreported_writing(parts: Parts, client: WatchClient) -> Stop:
    """Invalidation of the collections that captured clients write to by `applyOps`, which no change event reports.

    Each is sent twice: a registration that was on its way at first has arrived by the second time.
    """
    loop, waiting, wake = asyncio.get_running_loop(), set[str](), asyncio.Event()

    def note(namespaces: frozenset[str]) -> None:
        waiting.update(namespaces)
        wake.set()

    def reported(namespaces: frozenset[str]) -> None:
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(note, namespaces)

    again = set[str]()
    trust = _Trust(parts.registry, "unreported-writes")

    async def send() -> None:
        while True:
            if not (waiting or again):
                trust.restored()
                await wake.wait()
            wake.clear()
            new = frozenset(waiting)
            try:
                await anyio.to_thread.run_sync(parts.collection_events.send, again | new)
            except EventLayerError as error:
                parts.process.telemetry.failure("event-layer", "quaestor.definition_not_sent", error)
            else:  # only now: if this task raises before, the restart sends them
                waiting.difference_update(new)
                again.clear()
                again.update(new)
            await asyncio.sleep(_SENT_AGAIN_S)

    parts.capture.unreported.follow(reported)
    stop = parts.process.supervisor.keep("unreported-writes", send, on_failure=trust.lost).aclose

    async def end() -> None:
        parts.capture.unreported.follow(None)
        await stop()

    return end


async def contributor_reading(parts: Parts, client: WatchClient) -> Stop:
    """Reading of the records that contribute to registered results, and of the next instants of results that follow the clock.

    The registry ends it.
    """
    if isinstance(parts.registry, Registry):
        parts.registry.read_instants(client)
    if parts.process.settings.grid.max_contributors and isinstance(parts.registry, Registry):
        most = parts.process.settings.grid.max_contributors + 1
        parts.registry.read_contributors(MongoSnapshots(client, max_records=most, timeout_ms=_CONTRIBUTORS_WITHIN_MS))
    return nothing


async def rechecking(parts: Parts, client: WatchClient) -> Stop:
    """Rechecking of widened results before they are evicted."""
    if parts.rechecking is None:
        return nothing
    parts.rechecking.start(Rereader(client, timeout_ms=parts.process.settings.grid.recheck_ms))
    return parts.rechecking.stop


async def elected_grid(parts: Parts, client: WatchClient) -> Stop:
    """Grid of all processes, run by one elected process, while a deployment on Redis has no grid of its own."""
    if parts.process.settings.redis_url is None or not parts.process.settings.grid.elect_grid:
        return nothing
    from quaestor.runtime.shared_services import elected  # drivers of Redis: see parts

    return elected(parts, client, parts.process.settings.redis_url)


async def embedded_grid(parts: Parts, client: WatchClient) -> Stop:
    """Grid in this process, if everything else is in it too."""
    if parts.process.settings.redis_url is not None:
        return nothing
    grid = EmbeddedGrid(
        client,
        layer=parts.storage.layer,
        settings=parts.process.settings,
        telemetry=parts.process.telemetry,
        clock=parts.process.clock,
        supervisor=parts.process.supervisor,
        followed=lambda: parts.subscriptions.queries > 0 or len(parts.read_path.lookup.watches) > 0,
    )
    grid.stage_at_once = parts.subscriptions.queries > 0
    parts.subscriptions.stage_needed = grid.need_stage
    grid.start()
    if parts.process.settings.lifetimes.client_ttl == "estimated" or parts.effects.cdn:
        # Copies that an earlier process handed out still exist, and only that process's memory knew them.
        parts.effects.reset("a new embedded process does not know what was handed out before", earlier=True)
    elif parts.process.settings.lifetimes.client_ttl == "sketch" and not parts.process.settings.sketch.trust_new_sketch:
        await parts.storage.sketch.saturate(
            parts.process.clock() + parts.process.settings.lifetimes.ttl_max_ms + COPY_SLACK_MS, earlier=True
        )
    return partial(anyio.to_thread.run_sync, grid.stop, abandon_on_cancel=True)


def manual_invalidation(parts: Parts, client: WatchClient) -> ManualInvalidation:
    """Invalidation by tag, by URL and by collection."""
    return ManualInvalidation(
        client,
        parts.process.settings,
        collection_changed=parts.collection_events.send,
        stored=parts.storage.store.get,
        announce=parts.broadcast.announce,
        supervisor=parts.process.supervisor,
    )


class _Trust:
    """Trust in a service that alone finds some changes. While the service is down nothing is served from cache."""

    def __init__(self, registry: Registry | NullRegistry, name: str) -> None:
        self._registry = registry
        self._name = name
        self._confirmations = 0

    def lost(self, _error: BaseException) -> None:
        """Serve nothing from cache."""
        self._confirmations = 0
        self._registry.withhold(self._name)

    def confirmed(self) -> None:
        """Note one complete pass. The first one finds what has changed meanwhile, and the second one repeats that."""
        self._confirmations += 1
        if self._confirmations == 2:
            self.restored()

    def restored(self) -> None:
        """Serve again, as soon as the grid has proved itself."""
        self._registry.release(self._name)


async def nothing() -> None:
    """End a service that was not begun."""
