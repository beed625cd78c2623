"""Timed conditions: filters in which moments stand beside fields, and the instants at which records begin or cease to match.

A record's truth changes only when a moment passes one of its times. A record therefore has few candidates. The filter,
compiled for each of them, decides. `docs/adr/0031-answers-that-end-by-the-clock.md` has the reasons.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any, Final, NamedTuple

from bson.datetime_ms import DatetimeMS

from quaestor.errors import QueryError, UnsupportedQueryError
from quaestor.model import Document
from quaestor.planning.moments import MARK, Moment, date_of, moment_of, ms_of
from quaestor.planning.timed_expressions import compared
from quaestor.query.compiled import compile_query

_ORDERING: Final = frozenset({"$eq", "$ne", "$gt", "$gte", "$lt", "$lte"})
_LISTING: Final = frozenset({"$in", "$nin"})
_JOINING: Final = frozenset({"$and", "$or", "$nor"})
_LEADING: Final = frozenset({"$text", "$near", "$nearSphere", "$geoNear", "$where"})
_MOST_COMPARED: Final = 32


class Compared(NamedTuple):
    """Field that a condition compares with a moment."""

    path: str
    moment: Moment


class TimedCondition:
    """Condition with moments.

    condition: the filter; a moment stands in it as `{MARK: [...]}`.
    compared: every comparison of a field with a moment.
    """

    def __init__(self, condition: Document) -> None:
        """Raises UnsupportedQueryError if the instants of a record cannot be known."""
        self.condition = condition
        pairs = tuple(dict.fromkeys(_of_filter(condition, "")))
        if not pairs or len(pairs) > _MOST_COMPARED:
            raise UnsupportedQueryError(f"{len(pairs)} comparisons of a field with the clock")
        if _names_any(condition, _LEADING):
            raise UnsupportedQueryError("the clock beside $text, $near or $where")
        self.compared = pairs
        self._by_field: dict[str, list[Moment]] = {}
        for path, moment in pairs:
            self._by_field.setdefault(path.partition(".")[0], []).append(moment)

    @cached_property
    def _rest(self) -> Document:
        return _without_moments(self.condition)

    def at(self, now_ms: int) -> Document:
        """Return the condition as an ordinary filter, for the time `now_ms`."""
        condition: Document = _put(self.condition, now_ms)
        return condition

    def seen_from(self, ahead_ms: int) -> TimedCondition:
        """Return the condition for a clock that shows `ahead_ms` less."""
        return TimedCondition(_moved(self.condition, ahead_ms))

    def changing(self, compared: Compared, *, after_ms: int, until_ms: int) -> Document:
        """Return a filter for the records whose truth this comparison may change after one instant, and until another."""
        path, moment = compared
        times = {path: {"$gte": date_of(moment.at(after_ms)), "$lte": date_of(moment.at(until_ms))}}
        return {"$and": [self._rest, times]} if self._rest else times

    def may_change(self, *, after_ms: int, until_ms: int) -> Document:
        """Return a filter that every record passes whose truth changes after one instant, and until another."""
        filters = [self.changing(pair, after_ms=after_ms, until_ms=until_ms) for pair in self.compared]
        return filters[0] if len(filters) == 1 else {"$or": filters}

    def holds(self, record: Document, now_ms: int) -> bool:
        """Whether a record matches while the clock shows `now_ms`. Raises QueryError."""
        return compile_query(self.at(now_ms)).matches(record)

    def next_change(self, record: Document, *, after_ms: int, until_ms: int) -> int | None:
        """Return the first instant after `after_ms` at which the record's truth changes; None: not until `until_ms`.

        If a filter does not decide, the earliest possible instant counts. O(times of the record).
        """
        instants = sorted(
            {
                instant
                for name, moments in self._by_field.items()
                if name in record
                for value_ms in _times(record[name])
                for moment in moments
                for instant in (moment.first_at(value_ms), moment.first_at(value_ms + 1))
                if after_ms < instant <= until_ms
            }
        )
        if not instants:
            return None
        try:
            before = self.holds(record, after_ms)
            return next((instant for instant in instants if self.holds(record, instant) is not before), None)
        except QueryError:
            return instants[0]


def has_moment(value: Any) -> bool:
    """Whether a moment stands anywhere in a value."""
    if isinstance(value, Mapping):
        return MARK in value or any(map(has_moment, value.values()))
    return isinstance(value, list | tuple) and any(map(has_moment, value))


def _of_filter(condition: Any, within: str) -> Iterator[Compared]:
    """Iterate over the comparisons in a filter. within: path of the array whose elements it judges, with a dot."""
    if not isinstance(condition, Mapping):
        raise UnsupportedQueryError("a condition that is no document")
    for name, value in condition.items():
        if not has_moment(value):
            continue
        if name in _JOINING:
            for clause in value:
                yield from _of_filter(clause, within)
        elif name == "$expr":
            if within:
                raise UnsupportedQueryError("the clock in $expr inside of $elemMatch")
            yield from (Compared(path, moment) for path, moment in compared(value))
        elif name.startswith("$"):
            raise UnsupportedQueryError(f"the clock in {name}")
        else:
            yield from _of_field(within + name, value)


def _of_field(path: str, value: Any) -> Iterator[Compared]:
    moment = moment_of(value)
    if moment is not None:
        yield Compared(path, moment)
        return
    if not isinstance(value, Mapping) or not all(name.startswith("$") for name in value):
        raise UnsupportedQueryError(f"the clock within a document or an array that {path} is compared with")
    for operator, operand in value.items():
        if not has_moment(operand):
            continue
        if operator in _ORDERING or operator in _LISTING:
            yield from (Compared(path, each) for each in _operands(operator, operand))
        elif operator == "$not":
            yield from _of_field(path, operand)
        elif operator == "$elemMatch" and isinstance(operand, Mapping):
            plain = all(name.startswith("$") and name not in _JOINING for name in operand)
            yield from _of_field(path, operand) if plain else _of_filter(operand, f"{path}.")
        else:
            raise UnsupportedQueryError(f"the clock in {operator}")


def _operands(operator: str, operand: Any) -> Iterator[Moment]:
    for item in operand if operator in _LISTING else (operand,):
        moment = moment_of(item)
        if moment is not None:
            yield moment
        elif has_moment(item):
            raise UnsupportedQueryError(f"the clock within a document or an array in {operator}")


def _without_moments(condition: Document) -> Document:
    """Return a weaker filter without the parts that hold a moment."""
    rest: dict[str, Any] = {}
    for name, value in condition.items():
        if not has_moment(value):
            rest[name] = value
        elif name == "$and":
            clauses = [clause for clause in map(_without_moments, value) if clause]
            if clauses:
                rest[name] = clauses
    return rest


def _put(value: Any, now_ms: int) -> Any:
    moment = moment_of(value)
    if moment is not None:
        return date_of(moment.at(now_ms))
    if isinstance(value, Mapping):
        return {name: _put(item, now_ms) for name, item in value.items()}
    return [_put(item, now_ms) for item in value] if isinstance(value, list | tuple) else value


def _moved(value: Any, ahead_ms: int) -> Any:
    moment = moment_of(value)
    if moment is not None:
        return moment.seen_from(ahead_ms).marked()
    if isinstance(value, Mapping):
        return {name: _moved(item, ahead_ms) for name, item in value.items()}
    return [_moved(item, ahead_ms) for item in value] if isinstance(value, list | tuple) else value


def _times(value: Any) -> Iterator[int]:
    """Iterate over the times anywhere in a value, in ms since the epoch."""
    if isinstance(value, datetime):
        yield ms_of(value)
    elif isinstance(value, DatetimeMS):
        yield int(value)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _times(item)
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        for item in value:
            yield from _times(item)


def _names_any(value: Any, names: frozenset[str]) -> bool:
    if isinstance(value, Mapping):
        return not names.isdisjoint(value) or any(_names_any(item, names) for item in value.values())
    return isinstance(value, list | tuple) and any(_names_any(item, names) for item in value)
