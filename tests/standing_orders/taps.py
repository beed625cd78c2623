"""Taps: a test lets a part see one entry of the event layer, or one answer of the database, at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from quaestor.event_layer.memory import MemoryEventLayer
from quaestor.ports import PipelineSize, StreamEntry
from quaestor.realtime.reader_pool import ReaderPool, ReadOutcome
from quaestor.realtime.reading import ReadRequest
from tests.standing_orders.database import Database

_OF_OTHERS = (":notifications", ":heartbeats")
"""Pipelines that no part reads in this world, so their order does not matter."""


class Tap:
    """The event layer as one part sees it: entries arrive when they are let through, one that concerns it at a time."""

    immediate = True

    def __init__(
        self, layer: MemoryEventLayer, concerns: Callable[[str, bytes], bool], touched: set[Any], *, times: int
    ) -> None:
        """times: so often everything is appended."""
        self._times = times
        self._layer = layer
        self._concerns = concerns
        self._touched = touched
        self._at: dict[str, str] = {}
        self.open = False
        self.let: str | None = None

    def offset_at(self, stream: str, at_ms: int) -> str:
        return self._layer.offset_at(stream, at_ms)

    def first_offset(self, stream: str) -> str | None:
        return self._layer.first_offset(stream)

    def trim(self, stream: str, *, before_ms: int) -> None:
        self._layer.trim(stream, before_ms=before_ms)

    def measure(self, stream: str) -> PipelineSize:
        return self._layer.measure(stream)

    def trim_and_measure(self, before_ms: Mapping[str, int | None]) -> dict[str, PipelineSize]:
        return self._layer.trim_and_measure(before_ms)

    def put(self, name: str, value: bytes) -> None:
        self._layer.put(name, value)

    def get(self, name: str) -> bytes | None:
        return self._layer.get(name)

    def close(self) -> None:
        """It is everybody's."""

    def append(self, stream: str, payloads: Sequence[bytes]) -> None:
        if payloads:
            if not stream.endswith(_OF_OTHERS):
                self._touched.add((stream, True))
            self._layer.append(stream, [*payloads] * self._times)

    def read(self, offsets: Mapping[str, str], *, count: int, block_ms: int) -> list[StreamEntry]:
        self._at = dict(offsets)
        if self.open:
            entries = self._layer.read(offsets, count=count, block_ms=0)
            self._at.update((entry.stream, entry.offset) for entry in entries)
            return entries
        stream, self.let = self.let, None
        if stream is None:
            return []
        entries = self._layer.read({stream: offsets[stream]}, count=10_000, block_ms=0)
        for taken, entry in enumerate(entries, start=1):
            if self._concerns(stream, entry.payload):
                self._at[stream] = entry.offset
                return entries[:taken]
        raise AssertionError(f"nothing in {stream} concerns this part")

    @property
    def streams(self) -> list[str]:
        """The pipelines that the part reads."""
        return [*self._at]

    def waiting(self) -> list[str]:
        """The pipelines in which there is an entry that concerns the part and has not been let through."""
        return [
            stream
            for stream, offset in self._at.items()
            if any(
                self._concerns(stream, entry.payload)
                for entry in self._layer.read({stream: offset}, count=10_000, block_ms=0)
            )
        ]


class HandReaderPool(ReaderPool):
    """A pool that reads orders, and hands over the results, when the test commands it.

    A read as of a version that its order names is done at once: the database's answer to that does not change.
    """

    def __init__(self, database: Database) -> None:
        super().__init__(database, 0)
        self.orders: deque[ReadRequest] = deque()
        self.delivering = False

    @property
    def free(self) -> bool:
        return True

    def submit(self, request: ReadRequest) -> None:
        self._open += 1
        if request.recent:
            self._read(request)
        else:
            self.orders.append(request)

    def perform(self) -> None:
        self._read(self.orders.popleft())

    @property
    def performed(self) -> bool:
        return not self._outcomes.empty()

    def completed(self) -> Iterator[ReadOutcome]:
        if self.delivering:
            self.delivering = False
            self._open -= 1
            yield self._outcomes.get()
