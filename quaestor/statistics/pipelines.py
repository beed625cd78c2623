"""Pipelines of a deployment, and the content of each. Follows the grid through re-partitionings."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from quaestor.event_layer import streams
from quaestor.invalidation.grid.resizing.state import get_state
from quaestor.model import GridShape
from quaestor.ports import EventLayer


class Carries(StrEnum):
    """Kind of a pipeline: the content of its entries."""

    WRITES = "writes"
    READS = "reads"
    """Registrations, one for each uncached result, and reports of hits."""
    MATCHES = "matches"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """Pipeline that the job reads.

    shape: shape of the pipeline's grid; None: of every grid.
    partition: its number within its kind.
    tenant: receiver of the notifications.
    """

    stream: str
    carries: Carries
    partition: int = 0
    shape: GridShape | None = None
    tenant: str | None = None


def shapes(layer: EventLayer, deployment: str) -> tuple[GridShape, ...]:
    """Return the shapes of the grids whose pipelines must be read, oldest first.

    That is the serving grid, and during a replacement all grids involved. Raises EventLayerError."""
    state = get_state(layer, deployment)
    if state is None:
        return ()
    successor = () if state.successor is None else (state.successor.shape,)
    return ordered((state.serving.shape, *state.earlier, *successor))


def ordered(known: Iterable[GridShape]) -> tuple[GridShape, ...]:
    """Return the shapes, each once, oldest first."""
    return tuple(
        sorted(set(known), key=lambda shape: (shape.generation, shape.query_partitions, shape.write_partitions))
    )


def of_grids(deployment: str, known: Iterable[GridShape], wanted: frozenset[Carries]) -> list[Pipeline]:
    """Return the wanted write and query pipelines of these grids, in a fixed order; a stream appears once."""
    pipelines: dict[str, Pipeline] = {}
    for shape in known:
        if Carries.WRITES in wanted:
            for partition in range(shape.write_partitions):
                stream = streams.writes(deployment, partition, shape.generation)
                pipelines[stream] = Pipeline(stream=stream, carries=Carries.WRITES, partition=partition, shape=shape)
        if Carries.READS in wanted:
            for partition in range(shape.query_partitions):
                stream = streams.queries(deployment, partition, shape.generation)
                pipelines[stream] = Pipeline(stream=stream, carries=Carries.READS, partition=partition, shape=shape)
    return list(pipelines.values())


def of_tenants(deployment: str, tenants: Iterable[str], wanted: frozenset[Carries]) -> list[Pipeline]:
    """Return the wanted notification pipelines: of the tenant named like the deployment, and of these tenants."""
    if Carries.MATCHES not in wanted:
        return []
    return [
        Pipeline(stream=streams.notifications(deployment, tenant), carries=Carries.MATCHES, tenant=tenant)
        for tenant in (deployment, *tenants)
    ]
