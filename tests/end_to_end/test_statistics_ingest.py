"""The history of a real database in the statistics equals its change stream: real mongod, ingest that restarts, real
Spark.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pymongo
import pytest

from quaestor.clock import system_clock
from quaestor.event_layer import streams
from quaestor.event_layer.loop_context import LoopContext
from quaestor.event_layer.redis import RedisEventLayer
from quaestor.invalidation.grid.resizing.state import GridState, Run, put_state
from quaestor.invalidation.ingest.follower import ChangeStreamFollower
from quaestor.model import GridShape
from quaestor.statistics.reader import writes
from quaestor.tables.log import Table
from tests.end_to_end.test_statistics import running

SHAPE = GridShape(query_partitions=1, write_partitions=2)
KINDS = {"insert": "insert", "update": "update", "replace": "replace", "delete": "delete"}


@contextmanager
def ingest(mongo_url: str, redis_url: str, deployment: str) -> Iterator[None]:
    stop = threading.Event()
    with (
        pymongo.MongoClient[dict[str, Any]](mongo_url) as client,
        closing(RedisEventLayer(redis_url, deployment)) as layer,
    ):
        follower = ChangeStreamFollower(client, layer, SHAPE, LoopContext(deployment=deployment, heartbeat_ms=100))
        thread = threading.Thread(target=follower.run, args=(stop,), daemon=True)
        stream = streams.writes(deployment, 0)
        after = layer.offset_at(stream, system_clock())
        thread.start()
        try:
            while not layer.read({stream: after}, count=1, block_ms=500):
                assert thread.is_alive()  # what is written before it follows the database is not its business
            yield
        finally:
            stop.set()
            thread.join(60)
            assert not thread.is_alive()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_history_equals_the_change_stream(mongo_url: str, redis_url: str, prefix: str, tmp_path: Path) -> None:
    """Inserts, updates, replacements, deletes, transactions; ingest and job restarted; everything once, with its image."""
    directory = tmp_path / "statistics"
    history = Table(directory / "history")

    def rows() -> int:
        return sum(
            dict(file.partition)["collection"].startswith(prefix) and file.rows
            for file in history.snapshot().files.values()
        )

    with pymongo.MongoClient[dict[str, Any]](mongo_url) as client, closing(RedisEventLayer(redis_url, prefix)) as layer:
        put_state(layer, prefix, GridState(serving=Run(run="run", shape=SHAPE)))
        database = client[prefix]
        for name in ("items", "others"):
            database.create_collection(name)
        with database.watch() as stream:
            expected: Counter[tuple[str, Any, int, str]] = Counter()

            def round_(number: int) -> None:
                items = database.items
                items.insert_many([{"_id": f"{number}-{n}", "n": n} for n in range(50)])
                items.update_many({"_id": {"$regex": f"^{number}-"}}, {"$inc": {"n": 1}})
                items.replace_one({"_id": f"{number}-1"}, {"replaced": True})
                items.delete_many({"_id": {"$in": [f"{number}-{n}" for n in range(10, 20)]}})
                with client.start_session() as session, session.start_transaction():
                    items.update_many(
                        {"_id": {"$regex": f"^{number}-3"}}, {"$set": {"together": True}}, session=session
                    )
                    database.others.insert_one({"_id": number}, session=session)
                while (event := stream.try_next()) is not None:
                    moment = event["clusterTime"]
                    identity = (
                        f"{prefix}.{event['ns']['coll']}", event["documentKey"]["_id"], moment.time << 32 | moment.inc,
                        KINDS[event["operationType"]],
                    )  # fmt: skip
                    expected[identity] += 1

            with running(redis_url, prefix, directory) as job:
                with ingest(mongo_url, redis_url, prefix):
                    round_(0)
                    job.until(lambda: rows() > 0)
                with ingest(mongo_url, redis_url, prefix):
                    round_(1)
                    job.until(lambda: rows() >= expected.total())
                    job.kill()
                    round_(2)
                    with running(redis_url, prefix, directory) as job:
                        job.until(lambda: rows() >= expected.total())
                        job.stop()
        state = {document["_id"]: document for document in database.items.find()}
        client.drop_database(prefix)
    told_rows = [write for write in writes(directory) if write.namespace.startswith(prefix)]
    assert Counter((row.namespace, row.key, row.version, row.kind) for row in told_rows) == expected
    assert [write for write in writes(directory) if write.kind in ("lost", "unreadable")] == []
    newest = {
        write.key: write
        for write in sorted(told_rows, key=lambda write: write.version)
        if write.namespace.endswith("items")
    }
    assert {key: write.after for key, write in newest.items() if write.kind != "delete"} == state
