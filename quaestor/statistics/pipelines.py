"""Pipelines of a deployment, and what each of them carries. Follows the grid when it is partitioned anew."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from quaestor.event_layer import streams
from quaestor.invalidation.grid.resizing.state import get_state
from quaestor.model import GridShape
from quaestor.ports import EventLayer


class Carries(StrEnum):
    """Kind of a pipeline: what its entries tell of."""

    WRITES = "writes"
    READS = "reads"
    """Registrations, one for each result that was not cached, and reports of what was answered from cache."""
    MATCHES = "matches"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """Pipeline that the job reads.

    shape: of the grid whose pipeline it is; None: of every grid.
    partition: among those of its kind.
    tenant: to whom notifications are told.
    """

    stream: str
    carries: Carries
    partition: int = 0
    shape: GridShape | None = None
    tenant: str | None = None


def shapes(layer: EventLayer, deployment: str) -> tuple[GridShape, ...]:
    """Shapes of the grids whose pipelines are to be read.

    Of the grid that serves, and while it is being replaced of all that are involved; oldest first. Raises
    EventLayerError."""
    state = get_state(layer, deployment)
    if state is None:
        return ()
    successor = () if state.successor is None else (state.successor.shape,)
    return ordered((state.serving.shape, *state.earlier, *successor))


def ordered(known: Iterable[GridShape]) -> tuple[GridShape, ...]:
    """Shapes, each once, oldest first."""
    return tuple(
        sorted(set(known), key=lambda shape: (shape.generation, shape.query_partitions, shape.write_partitions))
    )


def of_grids(deployment: str, known: Iterable[GridShape], wanted: frozenset[Carries]) -> list[Pipeline]:
    """Write and query pipelines of these grids, if they are wanted, in a fixed order; a stream appears once."""
    found: dict[str, Pipeline] = {}
    for shape in known:
        if Carries.WRITES in wanted:
            for partition in range(shape.write_partitions):
                stream = streams.writes(deployment, partition, shape.generation)
                found[stream] = Pipeline(stream=stream, carries=Carries.WRITES, partition=partition, shape=shape)
        if Carries.READS in wanted:
            for partition in range(shape.query_partitions):
                stream = streams.queries(deployment, partition, shape.generation)
                found[stream] = Pipeline(stream=stream, carries=Carries.READS, partition=partition, shape=shape)
    return list(found.values())


def of_tenants(deployment: str, tenants: Iterable[str], wanted: frozenset[Carries]) -> list[Pipeline]:
    """Notification pipelines, if they are wanted: of the tenant that is named like the deployment, and of these."""
    if Carries.MATCHES not in wanted:
        return []
    return [
        Pipeline(stream=streams.notifications(deployment, tenant), carries=Carries.MATCHES, tenant=tenant)
        for tenant in (deployment, *tenants)
    ]
