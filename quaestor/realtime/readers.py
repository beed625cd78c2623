"""The threads in which a stage reads from the database, so that a slow query delays no other."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from quaestor.realtime.reading import ReadDone, ReadOrder, read
from quaestor.realtime.snapshots import Snapshots


@dataclass(frozen=True, slots=True)
class Outcome:
    order: ReadOrder
    result: ReadDone | Exception


class Readers:
    """threads: how many; 0: what is submitted is read at once, in the caller's thread."""

    def __init__(self, snapshots: Snapshots, threads: int) -> None:
        self._snapshots = snapshots
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="quaestor-stage-reader") if threads else None
        self._done: queue.SimpleQueue[Outcome] = queue.SimpleQueue()
        self._open = 0

    @property
    def busy(self) -> bool:
        return self._open > 0

    @property
    def free(self) -> bool:
        """Whether what is submitted now is begun at once."""
        return self._open < max(self._threads, 1)

    def submit(self, order: ReadOrder) -> None:
        """Its outcome will be among `done`."""
        self._open += 1
        if self._pool is None:
            self._read(order)
        else:
            self._pool.submit(self._read, order)

    def done(self) -> Iterator[Outcome]:
        """What has been read since the last call. Never waits."""
        while not self._done.empty():
            self._open -= 1
            yield self._done.get()

    def close(self) -> None:
        """Does not wait for what is being read."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _read(self, order: ReadOrder) -> None:
        result: ReadDone | Exception
        try:
            result = read(order, self._snapshots)
        except Exception as error:  # the stage decides what it means
            result = error
        self._done.put(Outcome(order, result))
