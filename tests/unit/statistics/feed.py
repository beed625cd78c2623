"""A hand-fed event layer: what a grid's ingest, cells and apps would append."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

from quaestor.event_layer import streams
from quaestor.event_layer.codec import encode_image, encode_notification, encode_query_event
from quaestor.event_layer.connecting import event_layer
from quaestor.event_layer.partitioning import write_partition
from quaestor.event_layer.redis_pipelines import RedisPipelines
from quaestor.invalidation.grid.resizing.state import GridState, Run, put_state
from quaestor.model import (
    AfterImage,
    Cell,
    GridShape,
    Invalidated,
    MatchType,
    Operation,
    Query,
    Registration,
    Usage,
    WriteKind,
)
from quaestor.statistics.batch_planning import Planner
from quaestor.statistics.pipelines import Carries
from quaestor.statistics.positions import Positions, decode
from quaestor.statistics.source import EVENTS, HISTORY, PipelineReader, RangePartition

WALL_MS = 1_700_000_000_000
CELL = Cell(query_partition=0, write_partition=0)


def image(version: int, key: Any, *, namespace: str = "shop.items", kind: WriteKind = WriteKind.UPDATE) -> AfterImage:
    after = None if kind is WriteKind.DELETE else {"_id": key, "version": version}
    return AfterImage(namespace=namespace, kind=kind, version=version, key=key, after=after, wall_ms=WALL_MS + version)


TICK = AfterImage(namespace="*", kind=WriteKind.TICK, version=0, wall_ms=WALL_MS)


class Feed:
    """Appends to the pipelines of one deployment, and reads them as Spark would."""

    def __init__(self, layer: RedisPipelines, redis_url: str, deployment: str) -> None:
        self.layer, self.redis_url, self.deployment = layer, redis_url, deployment
        self.shape = GridShape(query_partitions=1, write_partitions=2)
        self.serve(self.shape)

    def serve(self, shape: GridShape, successor: GridShape | None = None) -> None:
        following = None if successor is None else Run(run="next", shape=successor)
        put_state(self.layer, self.deployment, GridState(serving=Run(run="run", shape=shape), successor=following))

    def write(self, *images: AfterImage, shape: GridShape | None = None) -> None:
        shape = shape or self.shape
        for write in images:
            if write.key is None:
                partitions: Sequence[int] = range(shape.write_partitions)
            else:
                partitions = [write_partition(write.key, shape.write_partitions)]
            for partition in partitions:
                self.layer.append(streams.writes(self.deployment, partition, shape.generation), [encode_image(write)])

    def register(self, registration_id: str, query_id: str, *, partition: int = 0, tenant: str | None = None) -> None:
        registration = Registration(
            id=registration_id, tenant=tenant or self.deployment, query_id=query_id, since=0, read_at=0, members=None, last=None,
            query=Query(namespace="shop.items", operation=Operation.FIND, filter={}), expires_at_ms=WALL_MS,
        )  # fmt: skip
        self.layer.append(streams.queries(self.deployment, partition), [encode_query_event(registration)])

    def used(
        self,
        queries: Iterable[tuple[str, int]] = (),
        registrations: Iterable[tuple[str, int]] = (),
        *,
        partition: int = 0,
    ) -> None:
        usage = Usage(tenant=self.deployment, queries=tuple(queries), registrations=tuple(registrations))
        self.layer.append(streams.queries(self.deployment, partition), [encode_query_event(usage)])

    def match(self, query_id: str, match_type: MatchType, key: Any = 1, *, tenant: str | None = None) -> None:
        invalidated = Invalidated(
            registration_ids=("a:1",), query_id=query_id, match_type=match_type, version=1, key=key, written_at_ms=WALL_MS,
            source=CELL,
        )  # fmt: skip
        self.layer.append(streams.notifications(self.deployment, tenant), [encode_notification(invalidated)])

    def planner(self, rows: str = HISTORY, *, most_bytes: int = 1 << 26) -> Planner:
        wanted = frozenset(Carries) if rows == EVENTS else frozenset({Carries.WRITES})
        return Planner(self.layer, self.deployment, wanted, most_bytes=most_bytes)

    def reader(self, rows: str = HISTORY) -> PipelineReader:
        return PipelineReader(
            {
                "redis_url": self.redis_url, "deployment": self.deployment, "rows": rows, "most_entries": "1000",
                "most_bytes": "1000000",
            }
        )  # fmt: skip

    def rows(self, start: Positions, end: Positions, rows: str = HISTORY) -> list[dict[str, Any]]:
        """Return the rows of a batch from start to end; positions travel as JSON, as in a checkpoint."""
        reader = self.reader(rows)
        results: list[dict[str, Any]] = []
        for partition in reader.partitions(start.encode(), end.encode()):
            assert isinstance(partition, RangePartition)
            for batch in reader.read(partition):
                results += batch.to_pylist()
        return results

    def batch(
        self, start: Positions, rows: str = HISTORY, *, most: int = 1000
    ) -> tuple[Positions, list[dict[str, Any]]]:
        """One batch, planned and read."""
        end = decode(self.planner(rows).advance(start, most_entries=most).encode())
        return end, self.rows(start, end, rows)


@contextmanager
def feed(redis_url: str, deployment: str) -> Iterator[Feed]:
    with closing(event_layer(redis_url, deployment)) as layer:
        yield Feed(layer, redis_url, deployment)
