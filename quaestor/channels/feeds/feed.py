"""Feed: batches of a source become records of a dataset. Records that cannot be written become dead letters.

A batch with its offset is one entry of the dataset's log. Letters follow in an entry of their own. A process that ends in
between repeats the batch: the dataset reports the same rejections, and the letters are kept then.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol, runtime_checkable

from quaestor.channels.datasets import Mode, Position, Written
from quaestor.channels.feeds.dead_letters import FeedLetters, Refused
from quaestor.channels.feeds.definitions import FeedDefinition
from quaestor.channels.feeds.records import Incoming, SourceLostError, parsed
from quaestor.observability.telemetry import Telemetry

MOST_RECORDS: Final = 1_000
"""Records of a batch."""
KNOWN_KEYS: Final = 256
"""Idempotency keys that a feed remembers."""

Enrichment = Callable[[Sequence[dict[str, Any]]], Sequence["dict[str, Any] | ValueError"]]
"""Function on a batch: returns a record or an error for each record."""


class DatasetSink(Protocol):
    """Dataset that a feed writes to."""

    def write(self, records: Sequence[Mapping[str, Any]], mode: Mode, *, feed: Position | None = None) -> Written:
        """Write records with the position of the feed. A known position changes nothing, and has the same rejections."""
        ...

    def position(self, feed: str) -> Position | None:
        """Return the position of the newest complete batch of a feed; None: some records of each batch may be missing."""
        ...

    def newest_position(self, feed: str) -> Position | None:
        """Return the newest position of a feed, whose batch may be incomplete; None: it has written nothing."""
        ...


class OffsetSource(Protocol):
    """Source that can be read again from an offset. The same offset and number always give the same records.

    A source without this guarantee is a RepeatableSource, too.
    """

    def begin(self) -> str:
        """Return the offset at which a new feed begins; empty: before the oldest record. Raises DependencyError."""
        ...

    def read(self, after: str, most: int) -> Sequence[Incoming]:
        """Return records after an offset (empty: from the oldest on), in order; none, if there is none for a moment.

        Raises DependencyError.
        """
        ...

    def close(self) -> None:
        """Leave the source."""
        ...


@runtime_checkable
class RepeatableSource(Protocol):
    """Source of several parts, whose batches depend on what has arrived. The offset of a batch is enough to read it again."""

    def again(self, offset: str) -> Sequence[Incoming]:
        """Return the records of the batch that ended at an offset, in the same order. Raises DependencyError."""
        ...


@dataclass(frozen=True, slots=True)
class Taken:
    """Outcome of a batch.

    is_repeated: whether its idempotency key was known, and nothing was written.
    """

    accepted: int
    rejected: int
    is_repeated: bool = False


class _State(NamedTuple):
    """Position of a feed: the newest batch, the offsets before and after it, its records, and known keys.

    number: from 0; -1 before the first batch.
    after: of a batch without offsets, its idempotency key.
    """

    number: int
    before: str
    after: str
    records: int
    keys: tuple[str, ...]


_NEW: Final = _State(-1, "", "", 0, ())


class Feed:
    """Feed from one source to one dataset. One thread uses it at a time.

    enrichment: None: records are written as they come.
    turn: returns the turn of this process to take a batch; other processes may take batches of the same feed between two turns.
    """

    def __init__(
        self,
        definition: FeedDefinition,
        sink: DatasetSink,
        letters: FeedLetters,
        telemetry: Telemetry,
        *,
        enrichment: Enrichment | None = None,
        turn: Callable[[], AbstractContextManager[object]] | None = None,
    ) -> None:
        self.definition = definition
        self.letters = letters
        self._sink = sink
        self._telemetry = telemetry
        self._enrichment = enrichment
        self._turn = turn
        self._state: _State | None = None
        self._is_complete = False

    def step(self, source: OffsetSource, most: int = MOST_RECORDS) -> int:
        """Read a batch from a source and write it; return the number of records. Raises DependencyError."""
        state = self._present()
        if state == _NEW and (begin := source.begin()):
            state = _NEW._replace(before=begin, after=begin)
            self._written((), state)  # a failure before the first record must not move the beginning
        if not self._is_complete:
            self._complete(source, state)
        batch = source.read(state.after, most)
        if not batch:
            return 0
        self._written(batch, _State(state.number + 1, state.after, batch[-1].offset, len(batch), state.keys))
        return len(batch)

    def take(self, batch: Sequence[Incoming], key: str = "") -> Taken:
        """Write records of a source without offsets. Returns once they are durable. Raises DependencyError.

        key: idempotency key of the batch; a known key changes nothing. Empty: none.
        """
        if self._turn is None:
            return self._taken(batch, key)
        with self._turn():
            self._state = None  # another process may have written since
            return self._taken(batch, key)

    def close(self) -> None:
        """End what the enrichment has begun."""
        close = getattr(self._enrichment, "close", None)
        if close is not None:
            close()

    def _taken(self, batch: Sequence[Incoming], key: str) -> Taken:
        state = self._present()
        if key and key in state.keys:
            if key == state.after:
                self._written(batch, state)  # completes what an ended process has left
            return Taken(0, 0, is_repeated=True)
        known = self._complete_keys(state)
        keys = (*known, key)[-KNOWN_KEYS:] if key else known
        return self._written(batch, _State(state.number + 1, "", key, len(batch), keys))

    def _complete_keys(self, state: _State) -> tuple[str, ...]:
        """Return the keys of complete batches. The newest batch may lack records, and its sender sends it again."""
        if self._is_complete or not state.after:
            return state.keys
        whole = self._sink.position(self.definition.place)
        if whole is not None and whole.number == state.number:
            return state.keys
        return tuple(key for key in state.keys if key != state.after)

    def replay(self) -> Taken:
        """Write dead letters again; written letters are removed. Raises DependencyError."""
        letters = self.letters.all()
        records = [Incoming(row["bytes"], row["offset"] or "") for row in letters]
        good, refused = self._judged(records)
        written = self._sink.write([record for _, record in good], self.definition.mode)
        kept = {entry.number for entry in refused} | {good[entry.number][0] for entry in written.rejected}
        self.letters.remove([row["letter"] for number, row in enumerate(letters) if number not in kept])
        return Taken(len(letters) - len(kept), len(kept))

    def _complete(self, source: OffsetSource, state: _State) -> None:
        """Write the newest batch again: an ended process may have left records or letters of it out."""
        try:
            batch = self._again(source, state) if state.records else ()
        except SourceLostError as error:
            self._telemetry.failure("feeds", "feeds.batch_unread", error, feed=self.definition.name)
        else:
            if batch:
                self._written(batch, state)
        self._is_complete = True

    @staticmethod
    def _again(source: OffsetSource, state: _State) -> Sequence[Incoming]:
        if isinstance(source, RepeatableSource):
            return source.again(state.after)
        return source.read(state.before, state.records)

    def _present(self) -> _State:
        if self._state is None:
            self._is_complete = False
            position = self._sink.newest_position(self.definition.place)
            self._state = _NEW if position is None else _decoded(position)
        return self._state

    def _written(self, batch: Sequence[Incoming], state: _State) -> Taken:
        began_s = time.monotonic()
        self._state = None  # read again, if the write fails
        good, refused = self._judged(batch)
        position = Position(self.definition.place, state.number, _encoded(state))
        written = self._sink.write([record for _, record in good], self.definition.mode, feed=position)
        for rejected in written.rejected:
            number = good[rejected.number][0]
            refused.append(Refused(number, batch[number], rejected.reason))
        if refused:
            self.letters.keep(state.number, sorted(refused, key=lambda entry: entry.number))
        self._state, self._is_complete = state, True
        metrics = self._telemetry.feeds
        metrics.records.labels(self.definition.name, "accepted").inc(len(batch) - len(refused))
        metrics.records.labels(self.definition.name, "rejected").inc(len(refused))
        metrics.batch_s.observe(time.monotonic() - began_s)
        return Taken(len(batch) - len(refused), len(refused))

    def _judged(self, batch: Sequence[Incoming]) -> tuple[list[tuple[int, dict[str, Any]]], list[Refused]]:
        """Return the records with their numbers, enriched, and the refused ones."""
        records: list[tuple[int, dict[str, Any]]] = []
        refused: list[Refused] = []
        for number, incoming in enumerate(batch):
            try:
                records.append((number, parsed(incoming.data)))
            except ValueError as error:
                refused.append(Refused(number, incoming, str(error)))
        if self._enrichment is None or not records:
            return records, refused
        enriched: list[tuple[int, dict[str, Any]]] = []
        for (number, _), result in zip(records, self._enrichment([record for _, record in records]), strict=True):
            if isinstance(result, ValueError):
                refused.append(Refused(number, batch[number], f"{self.definition.function}: {result}"))
            else:
                enriched.append((number, result))
        return enriched, refused


def _encoded(state: _State) -> str:
    return json.dumps([state.before, state.after, state.records, list(state.keys)])


def _decoded(position: Position) -> _State:
    before, after, records, keys = json.loads(position.offset)
    return _State(position.number, before, after, records, tuple(keys))
