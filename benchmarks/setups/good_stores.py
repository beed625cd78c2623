"""Stores of GOOD: MongoDB, and Delta tables (GOOD-Lake). Each holds subscriptions, tweets and results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from pymongo import MongoClient
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from benchmarks.workloads.police import Setup

TASKS: Final = 2
_ROWS: Final = 20_000
_FIELDS: Final = pa.schema([("id", pa.int64()), ("broker", pa.string()), ("area", pa.int64())])


class Tables(Protocol):
    """Tables for one run after another. Spark's tasks get a copy."""

    def fill(self, spark: Any, setup: Setup) -> None:
        """Write the subscriptions, equally many of each area and broker, and let Spark know their source."""
        ...

    def subscriptions(self, spark: Any, setup: Setup) -> Any:
        """Return the subscriptions as a frame of Spark."""
        ...

    def results(self, number: int) -> AbstractContextManager[Any]:
        """Yield a function that writes a batch of results of a run. Used in Spark's tasks."""
        ...

    def tweets(self) -> AbstractContextManager[Any]:
        """Yield a function that writes a batch of tweets."""
        ...


@dataclass(frozen=True, slots=True)
class MongoTables:
    """Collections of MongoDB. Spark's tasks read with a cursor each, as Arrow batches of three fields."""

    url: str

    def fill(self, spark: Any, setup: Setup) -> None:
        spark.dataSource.register(_StoredSubscriptions)
        with MongoClient[Any](self.url) as client:
            client.drop_database("good")
            for rows in _filled(setup):
                client.good.subscriptions.insert_many(rows, ordered=False)

    def subscriptions(self, spark: Any, setup: Setup) -> Any:
        source = spark.read.format("subscriptions").option("url", self.url)
        return source.option("count", setup.subscribers).load()

    @contextmanager
    def results(self, number: int) -> Iterator[Any]:
        with MongoClient[Any](self.url) as client:
            yield lambda batch: client.good.results.insert_many(
                [{"run": number, **row} for row in batch.to_pylist()], ordered=False
            )

    @contextmanager
    def tweets(self) -> Iterator[Any]:
        with MongoClient[Any](self.url) as client:
            yield lambda batch: client.good.tweets.insert_many(batch, ordered=False)


@dataclass(frozen=True, slots=True)
class DeltaTables:
    """Delta tables of a folder. A Delta table is Parquet files and a log.

    The log is read by a library outside of Spark, the files are read by Spark itself. The readers are therefore Spark's own.
    """

    folder: Path

    def fill(self, spark: Any, setup: Setup) -> None:
        write_deltalake(self._of("subscriptions"), pa.Table.from_batches(map(_batch, _filled(setup))))

    def subscriptions(self, spark: Any, setup: Setup) -> Any:
        return spark.read.parquet(*DeltaTable(self._of("subscriptions")).file_uris())

    @contextmanager
    def results(self, number: int) -> Iterator[Any]:
        def write(batch: Any) -> None:
            run = pa.array([number] * batch.num_rows, pa.int64())
            table = pa.Table.from_batches([batch]).append_column("run", run)
            write_deltalake(self._of("results"), table, mode="append")

        yield write

    @contextmanager
    def tweets(self) -> Iterator[Any]:
        yield lambda batch: write_deltalake(self._of("tweets"), pa.Table.from_pylist(batch), mode="append")

    def _of(self, name: str) -> str:
        return str(self.folder / name)


class _StoredSubscriptions(DataSource):
    """Subscriptions of MongoDB as a source of Spark. Options: url, count."""

    @classmethod
    def name(cls) -> str:
        return "subscriptions"

    def schema(self) -> str:
        return "id bigint, broker string, area bigint"

    def reader(self, schema: Any) -> DataSourceReader:
        return _Reader(self.options["url"], int(self.options["count"]))


class _Reader(DataSourceReader):
    def __init__(self, url: str, count: int) -> None:
        self._url = url
        self._count = count

    def partitions(self) -> Sequence[InputPartition]:
        step = -(-self._count // TASKS)
        return [InputPartition((start, start + step)) for start in range(0, self._count, step)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        start, end = partition.value
        with MongoClient[Any](self._url) as client:
            found = client.good.subscriptions.find({"_id": {"$gte": start, "$lt": end}}, batch_size=_ROWS)
            rows: list[dict[str, Any]] = []
            for row in found:
                rows.append(row)
                if len(rows) == _ROWS:
                    yield _batch(rows)
                    rows = []
            if rows:
                yield _batch(rows)


def _filled(setup: Setup) -> Iterator[list[dict[str, Any]]]:
    """Iterate over the subscriptions, many at a time."""
    for start in range(0, setup.subscribers, _ROWS):
        yield [
            {"_id": number, "broker": f"broker{number // setup.areas % setup.brokers}", "area": number % setup.areas}
            for number in range(start, min(setup.subscribers, start + _ROWS))
        ]


def _batch(rows: Sequence[dict[str, Any]]) -> Any:
    columns = [[row[name] for row in rows] for name in ("_id", "broker", "area")]
    return pa.record_batch(
        [pa.array(own, field.type) for own, field in zip(columns, _FIELDS, strict=True)], schema=_FIELDS
    )
