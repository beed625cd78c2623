"""Load of a fault experiment: writers record their writes, readers have every answer checked. Both are threads of the test."""

from __future__ import annotations

import http.client
import json
import random
import socket
import threading
import time
from collections import Counter
from typing import Any

import pymongo
from pymongo.errors import PyMongoError
from pymongo.write_concern import WriteConcern

from benchmarks.setups.faults.checker import Checker, Served
from benchmarks.setups.faults.history import History
from quaestor.cluster_time import version_of
from quaestor.testing.servers import HOST

ANSWER_S = 8.0
_PAUSE_S = 0.1
_HITS_KEPT = 5_000


class Writer:
    """One thread that writes its own share of the records, at a steady rate."""

    def __init__(self, history: History, collection: Any, keys: list[int], *, per_s: float, rng: random.Random) -> None:
        self._history, self._keys, self.per_s, self._rng = history, keys, per_s, rng
        self._collection = collection.with_options(write_concern=WriteConcern("majority", wtimeout=10_000))
        self.failed = 0

    def run(self, stop: threading.Event) -> None:
        client = self._collection.database.client
        with client.start_session() as session:
            while not stop.wait(self._rng.expovariate(self.per_s)):
                # A few records change often; most are written seldom and stay cached meanwhile.
                key = self._keys[min(int(self._rng.expovariate(4 / len(self._keys))), len(self._keys) - 1)]
                self._write(key, session)

    def _write(self, key: int, session: Any) -> None:
        record = self._history.records[key]
        number = record.begin()
        change = {"n": number, "group": self._history.group_of(key, number)}
        try:
            # Only over older states: one that was delayed on its way must not undo what came after it.
            self._collection.update_one({"_id": key, "n": {"$lt": number}}, {"$set": change}, session=session)
        except PyMongoError:
            self.failed += 1  # it may have taken place
        else:
            record.acknowledge(number, version_of(session.operation_time))


class Reader:
    """One thread that asks one worker for pages; all that it is answered is checked."""

    def __init__(
        self, checker: Checker, *, worker: int, port: int, records: int, groups: int, per_s: float, rng: random.Random
    ) -> None:
        self._checker, self._worker, self._port = checker, worker, port
        self._records, self._groups, self.per_s, self._rng = records, groups, per_s, rng
        self.outcomes: Counter[str] = Counter()
        self.hits_s: list[float] = []
        """When it was answered from the cache, to a tenth of a second; the newest few thousand."""
        self.hits_by_column: Counter[str] = Counter()
        self.answered_s = 0.0

    def run(self, stop: threading.Event) -> None:
        connection = self._connection()
        while not stop.wait(self._rng.expovariate(self.per_s)):
            if self._rng.random() < 0.3:
                group, key = self._rng.randrange(self._groups), None
            else:
                group, key = None, self._rng.randrange(self._records)
            try:
                self._ask(connection, group, key)
            except (OSError, http.client.HTTPException):
                self.outcomes["no answer"] += 1
                connection.close()
                connection = self._connection()
                stop.wait(_PAUSE_S)
        connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(HOST, self._port, timeout=ANSWER_S)

    def _ask(self, connection: http.client.HTTPConnection, group: int | None, key: int | None) -> None:
        if connection.sock is None:
            connection.connect()
            connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        asked_s = time.monotonic()
        connection.request("GET", f"/page/{key}" if group is None else f"/group/{group}")
        answer = connection.getresponse()
        body = answer.read()
        answered_s = time.monotonic()
        if answer.status != 200:
            self.outcomes[f"status {answer.status}"] += 1
            return
        hit = "; hit" in answer.headers.get("cache-status", "")
        known = answer.headers.get("x-known", "")
        served = Served(
            worker=self._worker,
            group=group,
            key=key,
            shown={int(name): number for name, number in json.loads(body).items()},
            asked_s=asked_s,
            answered_s=answered_s,
            hit=hit,
            known={int(k): int(v) for k, _, v in (pair.partition(":") for pair in known.split(",") if pair)},
        )
        self.outcomes["hit" if hit else "handler"] += 1
        self.answered_s = answered_s
        if hit:
            self.hits_by_column[answer.headers.get("x-columns", "")] += 1
        if hit and (not self.hits_s or answered_s - self.hits_s[-1] >= 0.1):
            self.hits_s.append(answered_s)
            del self.hits_s[:-_HITS_KEPT]
        self._checker.check(served)


class Load:
    """Writers and readers together. start() and stop()."""

    def __init__(
        self,
        checker: Checker,
        history: History,
        client: pymongo.MongoClient[dict[str, Any]],
        *,
        database: str,
        groups: int,
        ports: list[int],
        writes_per_s: float,
        reads_per_s: float,
        seed: int,
    ) -> None:
        keys = list(range(len(history.records)))
        records = client[database].records
        records.insert_many([{"_id": key, "n": 0, "group": history.group_of(key, 0)} for key in keys])
        rng = random.Random(seed)
        self.writers = [
            Writer(history, records, keys[part::2], per_s=writes_per_s / 2, rng=random.Random(rng.random()))
            for part in range(2)
        ]
        self.readers = [
            Reader(
                checker, worker=worker, port=port, records=len(keys), groups=groups, per_s=reads_per_s / len(ports),
                rng=random.Random(rng.random()),
            )
            for worker, port in enumerate(ports)
        ]  # fmt: skip
        self._writing, self._reading = threading.Event(), threading.Event()
        self._writer_threads = [
            threading.Thread(target=w.run, args=(self._writing,), daemon=True) for w in self.writers
        ]
        self._reader_threads = [
            threading.Thread(target=r.run, args=(self._reading,), daemon=True) for r in self.readers
        ]

    def start(self) -> None:
        for thread in (*self._writer_threads, *self._reader_threads):
            thread.start()

    def pace(self, *, writes_per_s: float, reads_per_s: float) -> None:
        """From now on. Infinite: as fast as they are answered."""
        for writer in self.writers:
            writer.per_s = writes_per_s / len(self.writers)
        for reader in self.readers:
            reader.per_s = reads_per_s / len(self.readers)

    def stop_writing(self) -> None:
        self._writing.set()
        for thread in self._writer_threads:
            thread.join(60)

    def stop(self) -> None:
        self.stop_writing()
        self._reading.set()
        for thread in self._reader_threads:
            thread.join(60)

    @property
    def outcomes(self) -> Counter[str]:
        return sum((reader.outcomes.copy() for reader in self.readers), Counter())  # they go on counting
