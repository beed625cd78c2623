"""GOOD, the glued alternative of the paper on Big Active Data: a Redis Stream for Kafka, Spark, and MongoDB or Delta tables.

Each run joins the new tweets with the stored subscriptions, and stores the results (good_stores.py). Tweets are broadcast. One
variant keeps the subscriptions in Spark between runs; then a new subscriber waits until the developer loads them again.

No connector of the JVM for Kafka, MongoDB or Delta is to be had here. The readers of the stream and of MongoDB are Python data
sources. Spark itself reads the files of a Delta table.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, Final

import pyarrow as pa
import redis
from pyspark.sql import functions

from benchmarks.setups.good_stores import TASKS, Tables
from benchmarks.workloads.police import SEED, Setup, tweets
from quaestor.continuous.executors.spark_session import spark_session

_STREAM: Final = "tweets"
_BATCH_S: Final = 0.25


class Good:
    """GOOD on one machine.

    tables: store of subscriptions and results.
    cached: whether Spark keeps the subscriptions between runs.
    """

    def __init__(self, setup: Setup, tables: Tables, redis_url: str, *, cached: bool) -> None:
        os.environ["PYTHONPATH"] = os.pathsep.join([str(Path.cwd()), os.environ.get("PYTHONPATH", "")])
        os.environ["PYSPARK_PYTHON"] = sys.executable  # Spark's Python processes need the libraries of this one
        self._setup = setup
        self._tables = tables
        self._redis_url = redis_url
        self._cached = cached
        self._redis: Any = redis.Redis.from_url(redis_url)
        self._spark = spark_session(f"local[{TASKS}]")
        self._after = "-"
        self._expected = 0
        self._subscriptions: Any = None

    def fill(self) -> None:
        """Write the subscriptions: equally many of each area and broker."""
        self._tables.fill(self._spark, self._setup)
        if self._cached:
            self._subscriptions = self._tables.subscriptions(self._spark, self._setup).cache()
            self._subscriptions.count()

    def run(self, number: int, *, staged: bool) -> dict[str, float]:
        """Execute a run; return seconds and the number of results.

        staged: whether each stage ends before the next begins, so that its seconds are known. Otherwise Spark overlaps them.
        """
        began_s = last_s = time.perf_counter()
        figure: dict[str, float] = {}

        def end(stage: str, frame: Any) -> Any:
            nonlocal last_s
            if staged:
                frame = frame.cache()
                frame.count()
                now_s = time.perf_counter()
                figure[stage], last_s = round(now_s - last_s, 3), now_s
            return frame

        fresh = end("load_records_s", self._new_tweets())
        subscriptions = (
            self._subscriptions
            if self._cached
            else end("load_subscriptions_s", self._tables.subscriptions(self._spark, self._setup))
        )
        hateful = functions.broadcast(fresh.where("hateful_flag").select("tid", "text", "area_code"))
        results = subscriptions.join(hateful, subscriptions["area"] == hateful["area_code"])
        joined = end("join_s", results.select("id", "broker", "tid", "text"))
        tables = self._tables

        def persist(batches: Iterator[Any]) -> Iterator[Any]:
            with tables.results(number) as write:
                for batch in batches:
                    if batch.num_rows:
                        write(batch)
                    yield pa.record_batch({"rows": [batch.num_rows]})

        counts = joined.mapInArrow(persist, "rows bigint").toArrow().column("rows")
        if staged:
            figure["persist_s"] = round(time.perf_counter() - last_s, 3)
        figure |= {"total_s": round(time.perf_counter() - began_s, 3), "results": sum(counts.to_pylist())}
        if figure["results"] != self._expected:
            raise RuntimeError(f"a run has {figure['results']} results, and {self._expected} were expected")
        for frame in (fresh, joined, *(() if self._cached else (subscriptions,))):
            frame.unpersist()
        return figure

    def wait_for_tweets(self) -> None:
        """Return when the stream holds tweets that no run has read."""
        while not self._redis.xread({_STREAM: "0" if self._after == "-" else self._after}, count=1, block=1000):
            pass

    def close(self) -> None:
        """End Spark."""
        self._redis.close()
        self._spark.stop()

    def _new_tweets(self) -> Any:
        entries = self._redis.xrange(_STREAM, min=self._after if self._after == "-" else f"({self._after}")
        if entries:
            self._after = entries[-1][0].decode()
        records = [json.loads(fields[b"record"]) for _, fields in entries]
        areas = [record["area_code"] for record in records if record["hateful_flag"]]
        self._expected = sum(len(range(area, self._setup.subscribers, self._setup.areas)) for area in areas)
        wanted = [("tid", pa.int64()), ("text", pa.string()), ("area_code", pa.int64()), ("hateful_flag", pa.bool_())]
        columns = {name: pa.array([record[name] for record in records], kind) for name, kind in wanted}
        return self._spark.createDataFrame(pa.table(columns))


@contextmanager
def ingestion(setup: Setup, tables: Tables, redis_url: str) -> Iterator[None]:
    """Write tweets at their rate to the stream, and to the store, from another process."""
    context = multiprocessing.get_context("spawn")
    end = context.Event()
    process = context.Process(target=_ingest, args=(setup, tables, redis_url, end), daemon=True)
    process.start()
    try:
        yield
    finally:
        end.set()
        process.join()


def _ingest(setup: Setup, tables: Tables, redis_url: str, end: Any) -> None:
    client: Any = redis.Redis.from_url(redis_url)
    random, first, due_s, carried = Random(SEED + 1), 0, time.monotonic(), 0.0
    with tables.tweets() as store:
        while not end.is_set():
            carried += setup.rate * _BATCH_S
            batch = tweets(setup, first, int(carried), random)
            first, carried = first + len(batch), carried - len(batch)
            pipeline = client.pipeline()  # a transaction: a run sees a batch whole
            for record in batch:
                pipeline.xadd(_STREAM, {"record": json.dumps(record)})
            pipeline.execute()
            if batch:
                store(batch)
            due_s += _BATCH_S
            end.wait(max(0.0, due_s - time.monotonic()))
