"""Join stage: `$lookup`, kept up to date by the writes of both collections.

Both sides are held: local rows by their join values, and foreign records by theirs. A write to the local side looks its
partners up. A write to the foreign side finds the rows that it concerns. Each row concerned is joined anew. The joined array
is ordered by the foreign `_id` unless the inner pipeline sorts; the database leaves its order open. Source: Wingerath's
thesis, section 3.3.2, designs this stage; the prototype did not have it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from quaestor.incremental.changes import Change, Row, same_row
from quaestor.query.bson_order import MISSING, order_key
from quaestor.query.expressions.compiler import Expression
from quaestor.query.paths import is_array, reached
from quaestor.query.projection import Values

_EVERY: Final = frozenset([("every",)])
"""Join value of all rows without an equality."""
_NULL: Final = order_key(None)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Join:
    """Compiled `$lookup` stage.

    namespace: namespace of the foreign collection.
    into: field of the joined array.
    local_field, foreign_field: None if only the pipeline decides the partners.
    let: variables of the local row.
    inner: transforms the partners, in order of their `_id`.
    """

    namespace: str
    into: str
    local_field: str | None
    foreign_field: str | None
    let: tuple[tuple[str, Expression], ...]
    inner: Callable[[list[Row], Values], list[Row]]


@dataclass(slots=True, eq=False)
class _Local:
    """Local row, with its join values and its joined row as last passed on."""

    id: Any
    row: Row
    keys: frozenset[Hashable]
    variables: Values
    joined: Row | None = None


class LookupStage:
    """Stage that joins rows with the records of another collection. Not thread-safe. O(partners) for each row concerned."""

    def __init__(self, join: Join) -> None:
        self._join = join
        self._local: dict[Hashable, _Local] = {}
        self._local_by: dict[Hashable, dict[Hashable, None]] = {}
        self._foreign: dict[Hashable, tuple[Row, frozenset[Hashable]]] = {}
        self._foreign_by: dict[Hashable, dict[Hashable, None]] = {}

    @property
    def namespace(self) -> str:
        """Foreign collection, whose writes go to `feed_foreign`."""
        return self._join.namespace

    def holds(self, key: Hashable) -> bool:
        """Whether the local row with this key is held."""
        return key in self._local

    def feed(self, changes: Sequence[Change]) -> list[Change]:
        """Return the changes of the joined rows that result from these changes of local rows."""
        return [joined for change in changes if (joined := self._on_local(change)) is not None]

    def feed_foreign(self, changes: Sequence[Change]) -> list[Change]:
        """Return the changes of the joined rows that result from these changes of foreign records."""
        concerned: dict[Hashable, None] = {}
        for change in changes:
            old = self._foreign.pop(change.key, None)
            if old is not None:
                _drop(self._foreign_by, old[1], change.key)
                concerned.update(self._joined_on(old[1]))
            if change.after is not None:
                keys = foreign_keys(change.after, self._join.foreign_field)
                self._foreign[change.key] = (change.after, keys)
                _put(self._foreign_by, keys, change.key)
                concerned.update(self._joined_on(keys))
        return [joined for key in concerned if (joined := self._change_of(key, self._local[key])) is not None]

    def forget(self, key: Hashable) -> None:
        """Forget a local row that no later stage knows: a later write to its record gives it anew."""
        old = self._local.pop(key, None)
        if old is not None:
            _drop(self._local_by, old.keys, key)

    def _on_local(self, change: Change) -> Change | None:
        old = self._local.pop(change.key, None)
        if old is not None:
            _drop(self._local_by, old.keys, change.key)
        if change.after is None:
            return None if old is None else Change(change.key, change.id, old.joined, None)
        keys = local_keys(change.after, self._join.local_field)
        variables = {name: evaluate(change.after) for name, evaluate in self._join.let} if self._join.let else None
        joined = None if old is None else old.joined
        new = self._local[change.key] = _Local(change.id, change.after, keys, variables, joined)
        _put(self._local_by, keys, change.key)
        return self._change_of(change.key, new)

    def _change_of(self, key: Hashable, local: _Local) -> Change | None:
        """Return the change of this row for the next stage, or None."""
        before = local.joined
        partners = {key: None for value in local.keys for key in self._foreign_by.get(value, ())}
        partners_found = [self._foreign[partner][0] for partner in sorted(partners)]  # type: ignore[type-var]
        local.joined = {**local.row, self._join.into: self._join.inner(partners_found, local.variables)}
        if before is not None and same_row(before, local.joined):
            return None
        return Change(key, local.id, before, local.joined)

    def _joined_on(self, keys: Iterable[Hashable]) -> Iterator[tuple[Hashable, None]]:
        for value in keys:
            for key in self._local_by.get(value, ()):
                yield key, None


def local_keys(row: Row, path: str | None) -> frozenset[Hashable]:
    """Return the join values of a local row: the value at the path, the elements of an array, null if there is nothing."""
    if path is None:
        return _EVERY
    return frozenset(map(order_key, _values(row, path.split(".")))) or frozenset({_NULL})


def foreign_keys(row: Row, path: str | None) -> frozenset[Hashable]:
    """Return the join values of a foreign record: every value by which equality on the path finds it."""
    if path is None:
        return _EVERY
    return frozenset(_NULL if value is MISSING else order_key(value) for value in reached(row, path))


def _values(row: Row, names: Sequence[str]) -> Iterator[Any]:
    value, rest = row.get(names[0], MISSING), names[1:]
    if not rest:
        if is_array(value):
            yield from value
        elif value is not MISSING:
            yield value
    elif isinstance(value, Mapping):
        yield from _values(value, rest)
    elif is_array(value):
        for element in value:
            if isinstance(element, Mapping):
                yield from _values(element, rest)


def _put(index: dict[Hashable, dict[Hashable, None]], values: Iterable[Hashable], key: Hashable) -> None:
    for value in values:
        index.setdefault(value, {})[key] = None


def _drop(index: dict[Hashable, dict[Hashable, None]], values: Iterable[Hashable], key: Hashable) -> None:
    for value in values:
        keys = index[value]
        del keys[key]
        if not keys:
            del index[value]
