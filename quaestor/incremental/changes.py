"""Changes of rows, which flow between the stages of a maintained result, and the stages themselves.

A *row* is a record, or what a stage makes of one: a joined record, an unwound element, a group. It keeps its key through
every stage, so that a later change finds what an earlier one left behind.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

import bson

from quaestor.query.encoding import OPTIONS

Row = Mapping[str, Any]
RowFunction = Callable[[Row], Row | None]
"""What becomes of a row; None if it is filtered out. Pure; raises QueryError where the database would fail the query."""


class Unknown:
    """Type of `UNKNOWN`, which stands for a row that was not told."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN: Final = Unknown()


class Change(NamedTuple):
    """Change of one row: before and after a write.

    key: the row's identity, as an order key, so that ids which are equal to the database are equal here.
    id: the same for people and clients: the record's `_id`, the group's, or a tuple.
    before: the row as this stage last saw it; None if it was not there; UNKNOWN if the stage has to remember by
        itself.
    after: the row as it is now; None if it is not there.
    """

    key: Hashable
    id: Any
    before: Row | Unknown | None
    after: Row | None


class Stage(Protocol):
    """Step of a maintained result. Synchronous, not thread-safe."""

    def feed(self, changes: Sequence[Change]) -> list[Change]:
        """The changes of the output that these changes of the input make, in order."""

    def holds(self, key: Hashable) -> bool | None:
        """Whether the row with this key is remembered, so that its end would change something. None: never any is."""


class RowStage:
    """Stage of `$match`, `$project` and their kin, which look at every row by itself. Remembers nothing."""

    __slots__ = ("_function",)

    def __init__(self, function: RowFunction) -> None:
        self._function = function

    def feed(self, changes: Sequence[Change]) -> list[Change]:
        """The changes that are left of these."""
        return [moved for change in changes if (moved := self._moved(change)) is not None]

    def holds(self, key: Hashable) -> None:
        """Always None: nothing is remembered."""

    def _moved(self, change: Change) -> Change | None:
        before, after = change.before, change.after
        if isinstance(before, Mapping):
            before = self._function(before)
        if after is not None:
            after = self._function(after)
        return None if before is None and after is None else Change(change.key, change.id, before, after)


def composed(functions: Iterable[RowFunction]) -> RowFunction:
    """Row function that applies these one after the other, until one filters the row out."""
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
    """Whether a reader could not tell the two apart: equal as BSON, numeric types and order of fields included."""
    return a is b or bson.encode({"": a}, codec_options=OPTIONS) == bson.encode({"": b}, codec_options=OPTIONS)
