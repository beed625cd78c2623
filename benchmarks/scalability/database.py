"""The same writes into MongoDB by an independent program: change stream and ingest are part of the measurement."""

from __future__ import annotations

import gc
import multiprocessing
import selectors
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import groupby
from multiprocessing.connection import Connection
from typing import Final

import bson

from benchmarks.scalability import workload
from benchmarks.scalability.wire import Insert, InsertConnection, require_inserted
from benchmarks.scalability.workload import Load

_WRITERS: Final = 8
"""Connections that write side by side: each waits for the journal most of the time."""
_COMMANDS_HZ: Final = 1_000
_SPAWN: Final = multiprocessing.get_context("spawn")


class DatabaseWriter:
    """A process that writes to MongoDB; takes the place of the client's writer."""

    def __init__(self, mongo_url: str) -> None:
        self.pipe, child_end = _SPAWN.Pipe()
        self._process = _SPAWN.Process(target=_serve, args=(mongo_url, child_end), daemon=True)
        self._process.start()
        child_end.close()

    def close(self) -> None:
        self.pipe.send(None)
        self._process.join(10)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def _serve(mongo_url: str, pipe: Connection) -> None:
    with ExitStack() as stack:
        connections = [stack.enter_context(closing(InsertConnection(mongo_url))) for _ in range(_WRITERS)]
        while (load := pipe.recv()) is not None:
            pipe.send(_write(connections, load))


def _write(connections: Sequence[InsertConnection], load: Load) -> tuple[list[int], float]:
    """When each measured write was acknowledged (monotonic ns), and writes per second.

    Up to 1,000 writes/s each is an insert of its own; beyond that, 1,000 inserts a second carry several each.
    """
    at_once = max(1, load.rate_hz // _COMMANDS_HZ)
    acknowledged = [0] * load.measured
    turns = list(_turns(load, at_once))
    replies: list[tuple[bytes, int]] = []
    gc.collect()
    gc.freeze()
    gc.disable()
    with selectors.DefaultSelector() as selector:
        idle, busy = list(connections), dict[InsertConnection, _Turn]()
        for connection in connections:
            selector.register(connection.socket, selectors.EVENT_READ, connection)
        begun_s, sent = time.monotonic(), 0
        while sent < len(turns) or busy:
            wait_s: float | None = None
            while sent < len(turns) and idle:
                wait_s = begun_s + turns[sent].number * at_once / load.rate_hz - time.monotonic()
                if wait_s > 0:
                    break
                busy[connection := idle.pop()] = turns[sent]
                connection.send(turns[sent].insert)
                sent, wait_s = sent + 1, None
            for key, _ in selector.select(wait_s):
                turn = busy.pop(key.data)
                replies.append((key.data.reply(), turn.insert.documents))
                at_ns = time.monotonic_ns()
                for index in turn.measured:
                    acknowledged[index] = at_ns
                idle.append(key.data)
        took_s = max(time.monotonic() - begun_s, load.writes / load.rate_hz)
    gc.unfreeze()
    gc.enable()
    for reply, documents in replies:
        require_inserted(reply, documents)
    return acknowledged, load.writes / took_s


@dataclass(frozen=True, slots=True)
class _Turn:
    """number: decides when it is due. measured: indexes of the measured writes in it."""

    number: int
    insert: Insert
    measured: list[int]


def _turns(load: Load, at_once: int) -> Iterator[_Turn]:
    """All writes of an experiment, encoded before anything is measured: one insert for each collection in each turn."""
    for number, batch in groupby(enumerate(workload.records(load)), lambda item: item[0] // at_once):
        by_namespace: dict[str, list[tuple[bytes, int]]] = {}
        for _, (which, record, measured) in batch:
            encoded = by_namespace.setdefault(load.collections.namespace(which), [])
            encoded.append((bson.encode(record), measured))
        for namespace, writes in by_namespace.items():
            hits = [measured for _, measured in writes if measured >= 0]
            yield _Turn(number, Insert(namespace, [record for record, _ in writes]), hits)
