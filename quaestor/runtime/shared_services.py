"""Services of a Quaestor that shares a Redis with others. Imported only with a Redis: see shared_storage.py."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

import anyio.to_thread

from quaestor.capture.clients import WatchClient
from quaestor.event_layer import streams
from quaestor.event_layer.connecting import event_layer
from quaestor.event_layer.fenced import fenced
from quaestor.event_layer.lease import Lease
from quaestor.event_layer.redis_pipelines import RedisPipelines
from quaestor.invalidation.grid.election import Election
from quaestor.invalidation.grid.embedded import EmbeddedGrid
from quaestor.redis.clients import SharedClient
from quaestor.runtime.parts import Parts
from quaestor.store.budget_reports import keep_accounting
from quaestor.store.index_redis import RedisIndex
from quaestor.store.size_metrics import keep_measuring

__all__ = ["elected", "filling_lease", "keep_accounting", "measured"]


def measured(parts: Parts, redis: SharedClient) -> Coroutine[Any, Any, None]:
    """Measure the shared store until cancelled."""
    return keep_measuring(redis, RedisIndex(redis, deployment=parts.process.settings.scope), parts.process.telemetry)


def elected(parts: Parts, client: WatchClient, url: str) -> Callable[[], Awaitable[object]]:
    """Stand for election; returns the function that ends it."""
    settings = parts.process.settings

    def layer() -> RedisPipelines:
        return event_layer(url, settings.deployment)

    def grid(held: Callable[[], bool]) -> EmbeddedGrid:
        return EmbeddedGrid(
            client, layer=parts.storage.layer, each_layer=lambda: fenced(layer(), held),
            settings=settings, telemetry=parts.process.telemetry, clock=parts.process.clock, supervisor=parts.process.supervisor,
        )  # fmt: skip

    election = Election(
        layer(), grid, deployment=settings.deployment, staleness_bound_ms=settings.grid.staleness_bound_ms,
        telemetry=parts.process.telemetry, clock=parts.process.clock, supervisor=parts.process.supervisor,
    )  # fmt: skip
    election.start()
    return partial(anyio.to_thread.run_sync, election.stop, abandon_on_cancel=True)


def filling_lease(url: str, deployment: str, *, lease_s: float) -> Lease:
    """Return the lease of the process that fills the tables of a deployment."""
    return Lease(event_layer(url, deployment), streams.filler(deployment), lease_s=lease_s)
