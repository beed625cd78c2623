"""How many writes a second one ingest carries from MongoDB into the write pipelines, beside a bare change stream.

A real mongod and a real Valkey. A collection receives a burst of writes. Only then do the readers begin, one after the other,
at the moment before the burst. Each reads all of it:

- a bare change stream of the whole cluster, with the driver and undecoded events: no reader of one change stream is faster;
- ingest, which appends each write to its write pipeline, for 1 and for 4 write partitions.

Writes are inserts, updates without post-images (MongoDB's default: ingest looks their records up), and updates with images.
Several ingests that divide the records would each read the whole stream. The share of the bare stream in the time of an ingest is
therefore the limit of what they gain.
Run: python -m benchmarks.ingest_rate [--writes 50000] [--rounds 3] [--no-save] (2 minutes)
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any, Final

import pymongo
from bson import Timestamp
from bson.raw_bson import RawBSONDocument

from benchmarks import harness
from quaestor.clock import system_clock
from quaestor.event_layer import streams
from quaestor.event_layer.connecting import event_layer
from quaestor.event_layer.loop_context import LoopContext
from quaestor.invalidation.ingest.follower import ChangeStreamFollower
from quaestor.invalidation.ingest.primary_probes import probe_primary, replica_set_id
from quaestor.invalidation.ingest.resume_position import ResumePosition
from quaestor.model import GridShape
from quaestor.testing import servers

DATABASE: Final = "ingest_rate"
IMAGES: Final = {"changeStreamPreAndPostImages": {"enabled": True}}
LOOK_S: Final = 0.01
Client = pymongo.MongoClient[dict[str, Any]]


def _inserts(items: Any, writes: int) -> None:
    items.insert_many([{"_id": key, "n": 0, "text": "x" * 100} for key in range(writes)])


def _updates(items: Any, writes: int) -> None:
    items.update_many({}, {"$inc": {"n": 1}})


BURSTS: Final[dict[str, tuple[str, Callable[[Any, int], None]]]] = {
    "inserts": ("inserted", _inserts),
    "updates, looked up": ("plain", _updates),
    "updates with images": ("imaged", _updates),
}
"""Collection and writes of each burst."""


class Measured:
    """Seconds, and processor seconds of this process, from the first to the last write."""

    def __init__(self) -> None:
        self._begun_s, self._ran_s = time.perf_counter(), time.process_time()
        self.took_s = self.cpu_s = 0.0

    def end(self) -> Measured:
        """End the measurement."""
        self.took_s, self.cpu_s = time.perf_counter() - self._begun_s, time.process_time() - self._ran_s
        return self


def _bare(url: str, since: Timestamp, writes: int) -> Measured:
    """Read the burst with a change stream of the whole cluster, and nothing else."""
    with (
        pymongo.MongoClient[RawBSONDocument](url, document_class=RawBSONDocument) as client,
        client.watch(start_at_operation_time=since, batch_size=1_000) as stream,
    ):
        measured = Measured()
        for _ in range(writes):
            next(stream)
        return measured.end()


def _ingest(url: str, redis_url: str, position: ResumePosition, name: str, writes: int, partitions: int) -> Measured:
    """Let an ingest carry the burst into Valkey."""
    layer, shape = event_layer(redis_url, name), GridShape(query_partitions=1, write_partitions=partitions)
    layer.put(streams.resume_position(name), position.encode())
    pipelines = [streams.writes(name, part) for part in range(partitions)]
    stop = threading.Event()
    with pymongo.MongoClient[dict[str, Any]](url) as client:
        follower = ChangeStreamFollower(client, layer, shape, LoopContext(deployment=name, heartbeat_ms=100))
        thread = threading.Thread(target=follower.run, args=(stop,))
        measured = Measured()
        thread.start()
        while sum(layer.measure(pipeline).entries for pipeline in pipelines) < writes:
            time.sleep(LOOK_S)
        measured.end()
        stop.set()
        thread.join()
    for pipeline in pipelines:
        layer.trim(pipeline, before_ms=2**62)
    layer.close()
    return measured


def _rounds(url: str, redis_url: str, writes: int, rounds: int) -> Iterator[tuple[str, str, Measured]]:
    with pymongo.MongoClient[dict[str, Any]](url) as client:
        database = client[DATABASE]
        for collection, _ in BURSTS.values():
            database.command({"create": collection} | (IMAGES if collection == "imaged" else {}))
            _inserts(database[collection], writes)
        for number in range(rounds):
            for burst, (collection, write) in BURSTS.items():
                if collection == "inserted":
                    database[collection].delete_many({})
                probe = probe_primary(client, system_clock)
                since = Timestamp(probe.majority >> 32, (probe.majority & 0xFFFFFFFF) + 1)
                position = ResumePosition(None, probe.majority, replica_set_id(client), probe.election)
                write(database[collection], writes)
                yield burst, "bare stream", _bare(url, since, writes)
                for partitions in (1, 4):
                    name = f"ingest-{number}-{collection}-{partitions}"
                    measured = _ingest(url, redis_url, position, name, writes, partitions)
                    yield burst, f"ingest, {partitions} write partitions", measured


def main() -> None:
    given = harness.arguments(__doc__, writes=50_000, rounds=3)
    found: dict[str, dict[str, list[Measured]]] = {}
    with servers.mongo_url() as url, servers.redis_url() as redis_url:
        for burst, reader, measured in _rounds(url, redis_url, given.writes, given.rounds):
            found.setdefault(burst, {}).setdefault(reader, []).append(measured)
            print(f"{burst:22} {reader:28} {given.writes / measured.took_s:10,.0f}/s", flush=True)
    result: dict[str, Any] = {"writes": given.writes, "rounds": given.rounds}
    for burst, readers in found.items():
        bare_s = median(measured.took_s for measured in readers["bare stream"])
        result[burst] = {
            reader: {
                "writes_a_second": round(given.writes / median(measured.took_s for measured in runs)),
                "cpu_us_a_write": round(median(measured.cpu_s for measured in runs) / given.writes * 1e6, 1),
                "bare_in_its_time": round(bare_s / median(measured.took_s for measured in runs), 2),
            }
            for reader, runs in readers.items()
        }
    harness.report("ingest_rate", result, keep=not given.no_save)


if __name__ == "__main__":
    main()
