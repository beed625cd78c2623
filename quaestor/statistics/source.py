"""Source of Structured Streaming: the pipelines of a deployment.

Spark keeps the positions in its checkpoint, and reads the same range again when a batch must be repeated. A range always
reads the same while it is retained; entries that are no longer retained become a row that reports them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows

from quaestor.errors import EventLayerError
from quaestor.event_layer.connecting import event_layer
from quaestor.event_layer.redis_pipelines import RedisPipelines
from quaestor.model import GridShape
from quaestor.statistics import rows
from quaestor.statistics.batch_planning import Planner
from quaestor.statistics.deduplication import CoveredWrites
from quaestor.statistics.pipelines import Carries, Pipeline, of_grids, of_tenants
from quaestor.statistics.positions import Position, Positions, decode
from quaestor.statistics.ranges import Range, events, history

FORMAT: Final = "quaestor"
"""Name of the source for spark.readStream.format()."""

EVENTS: Final = "events"
HISTORY: Final = "history"
_WANTED: Final[Mapping[str, frozenset[Carries]]] = {EVENTS: frozenset(Carries), HISTORY: frozenset({Carries.WRITES})}
_COLUMNS: Final = {EVENTS: rows.EVENT_COLUMNS, HISTORY: rows.HISTORY_COLUMNS}
_READ: Final = {EVENTS: events, HISTORY: history}
_ARROW: Final = {
    EVENTS: pa.schema(
        [
            ("at", pa.timestamp("us", tz="UTC")), ("scope", pa.string()), ("name", pa.string()),
            ("measure", pa.string()), ("n", pa.int64()), ("item", pa.string()),
        ]
    ),
    HISTORY: pa.schema(
        [
            ("namespace", pa.string()), ("kind", pa.string()), ("version", pa.int64()), ("key", pa.binary()),
            ("key_json", pa.string()), ("after", pa.binary()), ("after_exact", pa.bool_()), ("wall_ms", pa.int64()),
            ("appended_ms", pa.int64()), ("lost", pa.int64()), ("detail", pa.string()),
        ]
    ),
}  # fmt: skip
_ROWS_AT_ONCE: Final = 2_000
_BYTES_AT_ONCE: Final = 8 * 1024 * 1024
_ATTEMPTS: Final = 3
_AGAIN_AFTER_S: Final = 0.5


class PipelineSource(DataSource):
    """Source of Structured Streaming over the pipelines.

    Options: redis_url, deployment, rows ("events" or "history"), most_entries, most_bytes.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name by which Spark finds the source."""
        return FORMAT

    def schema(self) -> str:
        """Return the columns of the requested rows."""
        return _COLUMNS[self.options["rows"]]

    def streamReader(self, schema: Any) -> PipelineReader:  # noqa: N802
        """Return the reader of the stream, for Spark."""
        return PipelineReader(dict(self.options.items()))


@dataclass(frozen=True, slots=True)
class RangePartition(InputPartition):
    """Range that one task reads."""

    range: Range


class PipelineReader(DataSourceStreamReader):
    """Stream reader of the pipelines; see pyspark.sql.datasource.DataSourceStreamReader.

    Plans on the driver; `read` runs in Python workers.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = dict(options)
        self._rows = options["rows"]
        self._planner: Planner | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return the positions at which a new query begins."""
        return Positions().encode()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the largest number of entries in a batch."""
        return ReadMaxRows(int(self._options["most_entries"]))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return the positions up to which the next batch reads.

        An event layer that does not answer counts as having no new entries; a lasting failure shows as lag.
        """
        most = getattr(limit, "max_rows", int(self._options["most_entries"]))  # the batch is bounded in any case
        if self._planner is None:
            self._planner = Planner(
                self._layer(), self._options["deployment"], _WANTED[self._rows],
                most_bytes=int(self._options["most_bytes"]),
            )  # fmt: skip
        for attempt in range(_ATTEMPTS):
            try:
                return self._planner.advance(decode(start), most_entries=most).encode()
            except EventLayerError as error:
                if not error.retryable:
                    raise
                if attempt + 1 < _ATTEMPTS:
                    time.sleep(_AGAIN_AFTER_S)
        return start

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return one range of each pipeline, for one task each."""
        begun, reached = decode(start), decode(end)
        deployment, wanted = self._options["deployment"], _WANTED[self._rows]
        pipelines = [*of_grids(deployment, reached.shapes, wanted), *of_tenants(deployment, reached.tenants, wanted)]
        return [
            RangePartition(
                Range(
                    pipeline=pipeline,
                    start=begun.of(pipeline.stream),
                    end=reached.of(pipeline.stream),
                    covered=covered(pipelines, pipeline, begun, reached),
                )
            )
            for pipeline in pipelines
            if begun.of(pipeline.stream) != reached.of(pipeline.stream)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one range, in a Python worker."""
        assert isinstance(partition, RangePartition)
        with closing(self._layer()) as layer:
            yield from _batches(_READ[self._rows](layer, partition.range), _ARROW[self._rows])

    def _layer(self) -> RedisPipelines:
        return event_layer(self._options["redis_url"], self._options["deployment"])


def covered(
    pipelines: Sequence[Pipeline], pipeline: Pipeline, begun: Positions, reached: Positions
) -> tuple[CoveredWrites, ...]:
    """Return the writes for which other grids' pipelines were read: older grids up to this batch's end, newer ones before it."""
    if pipeline.carries is not Carries.WRITES or pipeline.shape is None:
        return ()
    others: dict[GridShape, list[Position]] = {}
    for other in pipelines:
        if other.carries is Carries.WRITES and other.shape is not None and other.shape != pipeline.shape:
            older = other.shape.generation < pipeline.shape.generation
            others.setdefault(other.shape, []).append((reached if older else begun).of(other.stream))
    return tuple(CoveredWrites(partitions=tuple(partitions)) for partitions in others.values())


def _batches(values: Iterator[tuple[Any, ...]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield record batches, bounded in rows and (except for a single large row) in bytes."""
    gathered: list[tuple[Any, ...]] = []
    size = 0
    for row in values:
        gathered.append(row)
        size += sum(len(value) for value in row if isinstance(value, bytes))
        if len(gathered) >= _ROWS_AT_ONCE or size >= _BYTES_AT_ONCE:
            yield _batch(gathered, schema)
            gathered, size = [], 0
    if gathered:
        yield _batch(gathered, schema)


def _batch(gathered: Sequence[tuple[Any, ...]], schema: pa.Schema) -> pa.RecordBatch:
    columns = zip(*gathered, strict=True)
    return pa.RecordBatch.from_arrays(
        [pa.array(column, type=field.type) for column, field in zip(columns, schema, strict=True)], schema=schema
    )
