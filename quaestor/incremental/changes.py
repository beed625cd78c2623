"""Changes of rows, which flow between the stages of a maintained result, and the stages themselves.

A *row* is a record, or the product of a stage: a joined record, an unwound element, a group. A row keeps its key through
every stage, so that a later change finds the traces of an earlier one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

import bson

from quaestor.query.encoding import OPTIONS

Row = Mapping[str, Any]
RowFunction = Callable[[Row], Row | None]
"""Function that turns a row into another; None if it is filtered out. Pure; raises QueryError where the database would fail."""


class Unknown:
    """Type of `UNKNOWN`, the placeholder for an unknown row."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN: Final = Unknown()


class Change(NamedTuple):
    """Change of one row: before and after a write.

    key: the row's identity, as an order key, so that ids equal to the database are equal here.
    id: identity for people and clients: the `_id` of the record or group, or a tuple.
    before: the row as this stage last saw it; None if it was absent; UNKNOWN if the stage must remember it itself.
    after: the row now; None if it is absent.
    """

    key: Hashable
    id: Any
    before: Row | Unknown | None
    after: Row | None


class Stage(Protocol):
    """Step of a maintained result. Synchronous, not thread-safe."""

    def feed(self, changes: Sequence[Change]) -> list[Change]:
        """Return the changes of the output that result from these changes of the input, in order."""

    def holds(self, key: Hashable) -> bool | None:
        """Whether the row with this key is remembered, so that its end would change the result.

        None: rows are never remembered.
        """


class RowStage:
    """Stage of `$match`, `$project` and similar stages, which process every row by itself. Remembers nothing."""

    __slots__ = ("_function",)

    def __init__(self, function: RowFunction) -> None:
        self._function = function

    def feed(self, changes: Sequence[Change]) -> list[Change]:
        """Return these changes after the function, without the rows that it filters out."""
        return [moved for change in changes if (moved := self._moved(change)) is not None]

    def holds(self, key: Hashable) -> None:
        """Return None: nothing is remembered."""

    def _moved(self, change: Change) -> Change | None:
        before, after = change.before, change.after
        if isinstance(before, Mapping):
            before = self._function(before)
        if after is not None:
            after = self._function(after)
        return None if before is None and after is None else Change(change.key, change.id, before, after)


def composed(functions: Iterable[RowFunction]) -> RowFunction:
    """Return a row function that applies these one after the other, until one filters the row out."""
    steps = tuple(functions)

    def through(row: Row) -> Row | None:
        now: Row | None = row
        for step in steps:
            if now is None:
                return None
            now = step(now)
        return now

    return through


def same_row(a: Any, b: Any) -> bool:
    """Whether a reader could not distinguish the two: equal as BSON, with numeric types and order of fields."""
    return a is b or bson.encode({"": a}, codec_options=OPTIONS) == bson.encode({"": b}, codec_options=OPTIONS)
