"""The oracle over all ticks at once: the same brute force as `tests.continuous.oracle`, with a bit for each tick.

A truth is a pair of masks: the ticks at which a condition is true, and those at which it is false. At the other ticks it is NULL.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tests.continuous import oracle

Row = Mapping[str, Any]
Combination = tuple[dict[str, Row], int]
"""Rows by alias, and the ticks at which they are combined."""


class Truth(NamedTuple):
    """Ticks at which a condition is true, and false."""

    true: int
    false: int


class History:
    """Rows of all tables over a range of ticks.

    visible: of each table, its rows with the ticks at which they are in the table.
    """

    def __init__(self, tables: Mapping[str, Sequence[Row]], instants: range, versions: frozenset[str]) -> None:
        self.instants = instants
        self.all = (1 << len(instants)) - 1
        self.visible = {
            name: self._versions(rows) if name in versions else [(row, self.since(row["ts"])) for row in rows]
            for name, rows in tables.items()
        }

    def since(self, tick: int) -> int:
        """Return the ticks at a tick and later."""
        return self.all & ~((1 << min(max(tick - self.instants.start, 0), len(self.instants))) - 1)

    def compare(self, operator: str, shift: int, value: int) -> Truth:
        """Return at which ticks `now + shift OPERATOR value` is true."""
        later, not_before = self.since(value - shift + 1), self.since(value - shift)
        match operator:
            case ">":
                true = later
            case ">=":
                true = not_before
            case "<":
                true = self.all & ~not_before
            case "<=":
                true = self.all & ~later
            case "=":
                true = not_before & ~later
            case _:
                true = self.all & ~(not_before & ~later)
        return Truth(true, self.all & ~true)

    def constant(self, value: bool | None) -> Truth:
        """Return a truth that does not change."""
        return Truth(self.all if value is True else 0, self.all if value is False else 0)

    def _versions(self, rows: Sequence[Row]) -> list[tuple[Row, int]]:
        visible = []
        for row in rows:
            later = [other["ts"] for other in rows if other["id"] == row["id"] and other["ts"] > row["ts"]]
            until = self.since(min(later)) if later else 0
            if not row["deleted"]:
                visible.append((row, self.since(row["ts"]) & ~until))
        return visible


def first_instants(query: oracle.Query, history: History) -> dict[tuple[Any, ...], int]:
    """Return each row that the query returns at any tick, with the first of these ticks."""
    return {
        row: history.instants[(mask & -mask).bit_length() - 1]
        for row, mask in results(query, history, {}).items()
        if mask
    }


def results(query: oracle.Query, history: History, outer: Mapping[str, Row]) -> dict[tuple[Any, ...], int]:
    """Return the rows of a query with the ticks at which each is in the result."""
    if isinstance(query, oracle.SetOperation):
        left, right = results(query.left, history, outer), results(query.right, history, outer)
        return {
            row: {
                "UNION": left.get(row, 0) | right.get(row, 0),
                "INTERSECT": left.get(row, 0) & right.get(row, 0),
                "EXCEPT": left.get(row, 0) & ~right.get(row, 0),
            }[query.kind]
            for row in left | right
        }
    rows: dict[tuple[Any, ...], int] = {}
    for combination, mask in _joined(query, history, outer):
        if query.where is not None:
            mask &= truth(query.where, history, combination).true
        if mask:
            row = tuple(column.of(combination) for column in query.columns)
            rows[row] = rows.get(row, 0) | mask
    return rows


def truth(condition: oracle.Condition, history: History, rows: Mapping[str, Row]) -> Truth:
    """Return at which ticks a condition is true and false for some rows."""
    match condition:
        case oracle.Now():
            value = condition.column.of(rows)
            return Truth(0, 0) if value is None else history.compare(condition.operator, condition.shift, value)
        case oracle.NowBetween():
            low, high = condition.low.of(rows), condition.high.of(rows)
            return _and(
                Truth(0, 0) if low is None else history.compare(">=", 0, low),
                Truth(0, 0) if high is None else history.compare("<=", 0, high),
            )
        case oracle.And():
            whole = history.constant(True)
            for part in condition.parts:
                whole = _and(whole, truth(part, history, rows))
            return whole
        case oracle.Or():
            whole = history.constant(False)
            for part in condition.parts:
                whole = _or(whole, truth(part, history, rows))
            return whole
        case oracle.Not():
            inner = truth(condition.part, history, rows)
            return Truth(inner.false, inner.true)
        case oracle.Is():
            inner = truth(condition.part, history, rows)
            null = history.all & ~(inner.true | inner.false)
            mask = null if condition.wanted is None else inner.true if condition.wanted else inner.false
            mask = history.all & ~mask if condition.negated else mask
            return Truth(mask, history.all & ~mask)
        case oracle.Case():
            test = truth(condition.condition, history, rows).true
            value = truth(condition.value_if, history, rows)
            other = truth(condition.otherwise, history, rows) if condition.otherwise else Truth(0, 0)
            return Truth(value.true & test | other.true & ~test, value.false & test | other.false & ~test)
        case oracle.Coalesce():
            first, second = truth(condition.first, history, rows), truth(condition.second, history, rows)
            null = history.all & ~(first.true | first.false)
            return Truth(first.true | second.true & null, first.false | second.false & null)
        case oracle.Exists():
            mask = 0
            for ticks in results(condition.query, history, rows).values():
                mask |= ticks
            return Truth(mask, history.all & ~mask)
        case oracle.Quantified():
            return _quantified(condition, history, rows)
        case _:  # the other conditions do not name the time
            return history.constant(condition.value(oracle.World({}, frozenset(), 0), rows))


def _quantified(condition: oracle.Quantified, history: History, rows: Mapping[str, Row]) -> Truth:
    left = condition.value_of.of(rows)
    is_all = condition.form == "all"
    whole = history.constant(is_all)
    for (right,), present in results(condition.query, history, rows).items():
        equal = None if left is None or right is None else oracle.COMPARE[condition.operator](left, right)
        absent = history.all & ~present
        if is_all:
            whole = _and(whole, Truth(absent | (present if equal is True else 0), present if equal is False else 0))
        else:
            whole = _or(whole, Truth(present if equal is True else 0, absent | (present if equal is False else 0)))
    return whole


def _and(first: Truth, second: Truth) -> Truth:
    return Truth(first.true & second.true, first.false | second.false)


def _or(first: Truth, second: Truth) -> Truth:
    return Truth(first.true | second.true, first.false & second.false)


def _joined(query: oracle.Select, history: History, outer: Mapping[str, Row]) -> Iterator[Combination]:
    combinations: list[Combination] = [(dict(outer), history.all)]
    aliases = []
    for table, alias in query.tables:
        aliases.append(alias)
        combinations = [
            ({**rows, alias: row}, mask & visible)
            for rows, mask in combinations
            for row, visible in history.visible[table]
            if mask & visible
        ]
    for join in query.joins:
        aliases.append(join.alias)
        combinations = list(_join(join, history, outer, combinations, aliases))
    yield from combinations


def _join(
    join: oracle.Join, history: History, outer: Mapping[str, Row], left: list[Combination], aliases: list[str]
) -> Iterator[Combination]:
    rights = history.visible[join.table]
    matched = [0] * len(rights)
    for rows, mask in left:
        alone = mask
        for number, (right, visible) in enumerate(rights):
            both = {**rows, join.alias: right}
            ticks = mask & visible & truth(join.on, history, both).true
            if ticks:
                alone &= ~ticks
                matched[number] |= ticks
                yield both, ticks
        if alone and join.kind in ("LEFT", "FULL"):
            yield {**rows, join.alias: oracle.NULL_ROW}, alone
    if join.kind in ("RIGHT", "FULL"):
        for number, (right, visible) in enumerate(rights):
            if ticks := visible & ~matched[number]:
                yield {**outer, **dict.fromkeys(aliases, oracle.NULL_ROW), join.alias: right}, ticks
