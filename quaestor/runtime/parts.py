"""Parts of a Quaestor, and their construction: bottom-up, each from existing parts, and none changed afterwards.

A part that needs a later one receives its reports as events (`GridEvents`). A new capability is a function that takes `Parts`:
see `services`.
"""

from __future__ import annotations

import os
import traceback
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from quaestor.cache_sketch.sizing import geometry_of
from quaestor.capture import Capture
from quaestor.capture.pre_images import PreImages
from quaestor.clock import Clock
from quaestor.invalidation.effects.broadcast import Broadcast
from quaestor.invalidation.effects.collection_events import CollectionEvents
from quaestor.invalidation.effects.effects import Effects
from quaestor.invalidation.effects.local_eviction import LocalEviction
from quaestor.invalidation.effects.own_writes import OwnWrites
from quaestor.invalidation.effects.progress import EffectsProgress
from quaestor.invalidation.effects.rechecking import Rechecking
from quaestor.invalidation.registry.grid_events import GridEvents
from quaestor.invalidation.registry.null_registry import NullRegistry
from quaestor.invalidation.registry.registry import Registry
from quaestor.invalidation.registry.resolving import LateResolver, LenientResolver
from quaestor.observability.telemetry import Telemetry
from quaestor.observability.tracing import Tracing
from quaestor.ports import EventLayer, LifetimeEstimator
from quaestor.read_path.service import ReadPath
from quaestor.realtime.subscriptions import Subscriptions
from quaestor.runtime.declarations import ContinuousQueries
from quaestor.runtime.hosted_channels import HostedChannels
from quaestor.runtime.supervision.process_context import ProcessContext
from quaestor.runtime.supervision.supervisor import Supervisor
from quaestor.settings import Settings
from quaestor.storage import Storage, in_process
from quaestor.store.memory import MemoryStore
from quaestor.ttl.chosen import ChosenEstimators
from quaestor.ttl.parameters import TtlParameters, tuning_of
from quaestor.ttl.recording import TraceRecorder


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Parts of one Quaestor. None of them runs before start().

    capture: sees what handlers read.
    events: events of the grid, for their subscribers.
    resolver: resolver of namespaces; connected when a database is watched.
    pre_images: turns images on if the setting `pre_images` wants it.
    broadcast: reports to every process the entries that are invalid by name.
    rechecking: rechecks queries before results are evicted; None: it is off, or there is no grid.
    collection_events: reports to the grid that whole collections have changed.
    continuous: continuous queries of the application.
    """

    process: ProcessContext
    capture: Capture
    storage: Storage
    estimator: LifetimeEstimator
    events: GridEvents
    resolver: LateResolver
    pre_images: PreImages
    registry: Registry | NullRegistry
    broadcast: Broadcast
    collection_events: CollectionEvents
    read_path: ReadPath
    effects: Effects
    rechecking: Rechecking | None
    subscriptions: Subscriptions
    continuous: ContinuousQueries

    @property
    def channels(self) -> HostedChannels:
        """Channels of the application."""
        return self.continuous.channels


def build_parts(settings: Settings, *, clock: Clock, estimator: LifetimeEstimator | None = None) -> Parts:
    """Build all parts; connects to nothing.

    estimator: estimator of lifetimes; by default that of the settings, until other parameters are published.
    """
    telemetry = Telemetry(tracing=Tracing(enabled=settings.observability.tracing))
    supervisor = Supervisor(telemetry)
    process = ProcessContext(settings=settings, telemetry=telemetry, clock=clock, supervisor=supervisor)
    capture, events, resolver = Capture(), GridEvents(), LateResolver()
    capture.failures.report = partial(_listener_failed, telemetry)
    memory = _memory_store(settings, telemetry)
    if settings.redis_url is None:
        storage = in_process(memory, settings, clock)
    else:
        from quaestor.shared_storage import in_redis  # the driver costs an embedded process 20 MB

        storage = in_redis(settings.redis_url, memory, settings, telemetry, events)
    estimator = _recorded(estimator or _estimator(settings), settings, clock)
    registry = _registry(storage.layer, process, events, resolver, capture)
    collection_events = CollectionEvents(
        storage.layer, deployment=settings.deployment, shape=lambda: registry.shape, clock=clock
    )
    events.succeeded.subscribe(collection_events.send_again)
    broadcast = Broadcast(
        storage.layer,
        deployment=settings.deployment,
        tenant=settings.owner,
        clock=clock,
        trims=not settings.grid.enabled,
    )
    progress = EffectsProgress()
    own_writes = OwnWrites(
        storage.layer, grid=registry.progress, serving=registry.serving, effects=progress,
        settings=settings, telemetry=telemetry, clock=clock,
    )  # fmt: skip
    alone = settings.redis_url is None and not settings.grid.enabled
    announce = None if alone else broadcast.announce
    read_path = ReadPath(
        registry, storage.entries, estimator, process, announce=announce, capture=capture, own_writes=own_writes
    )
    forget = LocalEviction(read_path, memory.drop_guarded).evict
    effects = Effects(
        registry, storage.entries, estimator, process, forget=forget, progress=progress, announce=announce
    )
    rechecking = None
    if isinstance(registry, Registry) and settings.grid.recheck != "off":
        rechecking = Rechecking(
            registrations=registry, broadcast=broadcast, progress=progress, alone=alone, settings=settings,
            telemetry=telemetry, supervisor=supervisor,
        )  # fmt: skip
        registry.recheck_by(rechecking)
    events.invalidated.subscribe(effects.notify)
    events.reset.subscribe(own_writes.ask_again)
    events.reset.subscribe(effects.reset)
    return Parts(
        process=process,
        capture=capture,
        storage=storage,
        estimator=estimator,
        events=events,
        resolver=resolver,
        pre_images=PreImages(telemetry, clock, ignored=settings.store.control_namespace),
        registry=registry,
        broadcast=broadcast,
        collection_events=collection_events,
        read_path=read_path,
        effects=effects,
        rechecking=rechecking,
        continuous=ContinuousQueries(process),
        subscriptions=Subscriptions(
            storage.layer,
            process,
            shape=lambda: registry.shape,
            resolver=LenientResolver(resolver),
            lasting=storage.redis is not None,
        ),
    )


def _estimator(settings: Settings) -> ChosenEstimators:
    parameters = TtlParameters(default=tuning_of(settings.lifetimes))
    return ChosenEstimators(parameters, false_positive_rate=geometry_of(settings.sketch).false_positive_rate)


def _recorded(estimator: LifetimeEstimator, settings: Settings, clock: Clock) -> LifetimeEstimator:
    """Estimator, behind the recorder of a trace if the settings want one."""
    if not settings.observability.trace_file:
        return estimator
    path = Path(settings.observability.trace_file.replace("{pid}", str(os.getpid())))
    share, max_bytes = settings.observability.trace_share, settings.observability.trace_max_bytes
    return TraceRecorder(estimator, path=path, share=share, max_bytes=max_bytes, started_ms=clock())


def _memory_store(settings: Settings, telemetry: Telemetry) -> MemoryStore:
    memory = MemoryStore(
        budget_bytes=settings.store.memory_bytes,
        on_left=telemetry.stores.left,
        on_refused=lambda why: telemetry.stores.refused.labels("memory", why).inc(),
    )
    telemetry.stores.bytes.labels("memory").set_function(lambda: memory.used_bytes)
    telemetry.stores.entries.labels("memory").set_function(lambda: len(memory))
    return memory


def _listener_failed(telemetry: Telemetry, error: Exception) -> None:
    stack = "".join(traceback.format_exception(error))
    telemetry.failure("engine", "capture.listener_failed", repr(error), stack=stack)


def _registry(
    layer: EventLayer, process: ProcessContext, events: GridEvents, resolver: LateResolver, capture: Capture
) -> Registry | NullRegistry:
    if not process.settings.grid.enabled:
        return NullRegistry(layer, process, events.consequences)
    return Registry(layer, process, events.consequences, resolver=resolver, compare=capture.compare)
