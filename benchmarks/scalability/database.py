"""The same writes, made in MongoDB by a program that knows nothing of Quaestor: change stream, ingest and all."""

from __future__ import annotations

import multiprocessing
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import Any, Final

import pymongo

from benchmarks.scalability import workload
from benchmarks.scalability.workload import Load

_WRITERS: Final = 8
"""Connections that write side by side: each waits for the journal most of the time."""
_COMMANDS_HZ: Final = 1_000
_SPAWN: Final = multiprocessing.get_context("spawn")


class DatabaseWriter:
    """A process that writes to MongoDB; takes the place of the client's writer."""

    def __init__(self, mongo_url: str) -> None:
        self.pipe, theirs = _SPAWN.Pipe()
        self._process = _SPAWN.Process(target=_serve, args=(mongo_url, theirs), daemon=True)
        self._process.start()
        theirs.close()

    def close(self) -> None:
        self.pipe.send(None)
        self._process.join(10)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def _serve(mongo_url: str, pipe: Connection) -> None:
    with pymongo.MongoClient[dict[str, Any]](mongo_url) as client, ThreadPoolExecutor(_WRITERS) as pool:
        while (load := pipe.recv()) is not None:
            pipe.send(_write(client, pool, load))


def _write(
    client: pymongo.MongoClient[dict[str, Any]], pool: ThreadPoolExecutor, load: Load
) -> tuple[list[int], float]:
    """When each measured write was acknowledged (monotonic ns), and writes per second.

    Up to 1,000 writes/s each is an insert of its own; beyond that, 1,000 inserts a second carry several each.
    """
    at_once = max(1, load.rate_hz // _COMMANDS_HZ)
    acknowledged = [0] * load.measured
    batches: list[list[tuple[str, dict[str, object], int]]] = []
    for number, (which, record, measured) in enumerate(workload.records(load)):
        if number % at_once == 0:
            batches.append([])
        batches[-1].append((load.collections.namespace(which), record, measured))
    begun_s = time.monotonic()

    def insert(turn: int) -> None:
        delay_s = begun_s + turn * at_once / load.rate_hz - time.monotonic()
        if delay_s > 0:
            time.sleep(delay_s)
        by_namespace: dict[str, list[dict[str, object]]] = {}
        for namespace, record, _ in batches[turn]:
            by_namespace.setdefault(namespace, []).append(record)
        for namespace, records in by_namespace.items():
            database, _, collection = namespace.partition(".")
            client[database][collection].insert_many(records, ordered=False)
        at_ns = time.monotonic_ns()
        for _, _, measured in batches[turn]:
            if measured >= 0:
                acknowledged[measured] = at_ns

    list(pool.map(insert, range(len(batches))))
    took_s = max(time.monotonic() - begun_s, load.writes / load.rate_hz)
    return acknowledged, load.writes / took_s
