"""Thread pool in which a stage reads from the database, so that a slow query delays no other."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from quaestor.realtime.reading import ReadRequest, ReadResult, read
from quaestor.realtime.snapshots import Snapshots


@dataclass(frozen=True, slots=True)
class ReadOutcome:
    """Outcome of one read: its result, or the error that ended it."""

    request: ReadRequest
    result: ReadResult | Exception


class ReaderPool:
    """Pool of threads that read from the database.

    threads: how many; 0: what is submitted is read at once, in the caller's thread.
    """

    def __init__(self, snapshots: Snapshots, threads: int) -> None:
        self._snapshots = snapshots
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="quaestor-stage-reader") if threads else None
        self._outcomes: queue.SimpleQueue[ReadOutcome] = queue.SimpleQueue()
        self._open = 0

    @property
    def busy(self) -> bool:
        """Whether something is being read."""
        return self._open > 0

    @property
    def free(self) -> bool:
        """Whether what is submitted now is begun at once."""
        return self._open < max(self._threads, 1)

    def submit(self, request: ReadRequest) -> None:
        """Begin a read; its outcome will be among `completed`."""
        self._open += 1
        if self._pool is None:
            self._read(request)
        else:
            self._pool.submit(self._read, request)

    def completed(self) -> Iterator[ReadOutcome]:
        """Outcomes of the reads that have ended since the last call. Never waits."""
        while not self._outcomes.empty():
            self._open -= 1
            yield self._outcomes.get()

    def close(self) -> None:
        """End the threads. Does not wait for what is being read."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _read(self, request: ReadRequest) -> None:
        result: ReadResult | Exception
        try:
            result = read(request, self._snapshots)
        except Exception as error:  # the stage decides what it means
            result = error
        self._outcomes.put(ReadOutcome(request, result))
