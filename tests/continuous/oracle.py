"""Brute-force evaluator of SQL queries with current time, in plain Python: knows ticks and three-valued logic, and no rules."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Protocol

Row = Mapping[str, Any]
Truth = bool | None
COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
    "<>": operator.ne,
}
NULL_ROW: Row = {}


@dataclass(frozen=True)
class World:
    """Rows by table; tables of versions; the tick at which a query is evaluated."""

    tables: Mapping[str, Sequence[Row]]
    versions: frozenset[str]
    now: int

    def visible(self, table: str) -> list[Row]:
        rows = [row for row in self.tables[table] if row["ts"] <= self.now]
        if table not in self.versions:
            return rows
        newest: dict[Any, Row] = {}
        for row in sorted(rows, key=lambda row: row["ts"]):
            newest[row["id"]] = row
        return [row for row in newest.values() if not row["deleted"]]


Environment = Mapping[str, Row]


def ticks(number: int) -> str:
    return f"INTERVAL {number} MICROSECOND"


class Condition(Protocol):
    """Condition: its SQL, and its value."""

    def sql(self) -> str: ...
    def value(self, world: World, rows: Environment) -> Truth: ...


@dataclass(frozen=True)
class Column:
    alias: str
    name: str
    shift: int = 0

    def sql(self) -> str:
        base = f"{self.alias}.{self.name}"
        if self.shift == 0:
            return base
        return f"{base} {'+' if self.shift > 0 else '-'} {ticks(abs(self.shift))}"

    def of(self, rows: Environment) -> Any:
        value = rows[self.alias].get(self.name)
        return None if value is None else value + self.shift if self.shift else value


@dataclass(frozen=True)
class Now:
    """Comparison with current time. form: which way it is written."""

    column: Column
    operator: str
    shift: int
    form: int

    def sql(self) -> str:
        now = ("now()", "current_timestamp", "getdate()")[self.form % 3]
        if self.form < 3:
            return f"{now} + {ticks(self.shift)} {self.operator} {self.column.sql()}"
        if self.form < 6:
            return f"{self.column.sql()} {FLIPPED[self.operator]} {now} + {ticks(self.shift)}"
        if self.form < 8:
            return f"({now}) - ({self.column.sql()}) {self.operator} {ticks(-self.shift)}"
        return f"{self.column.sql()} - {now} {FLIPPED[self.operator]} {ticks(self.shift)}"

    def value(self, world: World, rows: Environment) -> Truth:
        value = self.column.of(rows)
        return None if value is None else COMPARE[self.operator](world.now + self.shift, value)


FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "<>": "<>"}


@dataclass(frozen=True)
class NowBetween:
    low: Column
    high: Column

    def sql(self) -> str:
        return f"now() BETWEEN {self.low.sql()} AND {self.high.sql()}"

    def value(self, world: World, rows: Environment) -> Truth:
        low, high = self.low.of(rows), self.high.of(rows)
        return conjunction([None if low is None else low <= world.now, None if high is None else world.now <= high])


@dataclass(frozen=True)
class Compare:
    left: Column
    operator: str
    right: Column | int | str

    def sql(self) -> str:
        right = self.right.sql() if isinstance(self.right, Column) else repr(self.right)
        return f"{self.left.sql()} {self.operator} {right}"

    def value(self, world: World, rows: Environment) -> Truth:
        left = self.left.of(rows)
        right = self.right.of(rows) if isinstance(self.right, Column) else self.right
        return None if left is None or right is None else COMPARE[self.operator](left, right)


@dataclass(frozen=True)
class IsNull:
    column: Column

    def sql(self) -> str:
        return f"{self.column.sql()} IS NULL"

    def value(self, world: World, rows: Environment) -> Truth:
        return self.column.of(rows) is None


def conjunction(values: Sequence[Truth]) -> Truth:
    return False if False in values else None if None in values else True


def disjunction(values: Sequence[Truth]) -> Truth:
    return True if True in values else None if None in values else False


@dataclass(frozen=True)
class And:
    parts: tuple[Condition, ...]

    def sql(self) -> str:
        return "(" + " AND ".join(part.sql() for part in self.parts) + ")"

    def value(self, world: World, rows: Environment) -> Truth:
        return conjunction([part.value(world, rows) for part in self.parts])


@dataclass(frozen=True)
class Or:
    parts: tuple[Condition, ...]

    def sql(self) -> str:
        return "(" + " OR ".join(part.sql() for part in self.parts) + ")"

    def value(self, world: World, rows: Environment) -> Truth:
        return disjunction([part.value(world, rows) for part in self.parts])


@dataclass(frozen=True)
class Not:
    part: Condition

    def sql(self) -> str:
        return f"NOT ({self.part.sql()})"

    def value(self, world: World, rows: Environment) -> Truth:
        value = self.part.value(world, rows)
        return None if value is None else not value


@dataclass(frozen=True)
class Is:
    part: Condition
    wanted: Truth
    negated: bool

    def sql(self) -> str:
        wanted = "NULL" if self.wanted is None else str(self.wanted).upper()
        return f"({self.part.sql()}) IS {'NOT ' if self.negated else ''}{wanted}"

    def value(self, world: World, rows: Environment) -> Truth:
        return (self.part.value(world, rows) is self.wanted) is not self.negated


@dataclass(frozen=True)
class Case:
    condition: Condition
    value_if: Condition
    otherwise: Condition | None

    def sql(self) -> str:
        otherwise = f" ELSE {self.otherwise.sql()}" if self.otherwise else ""
        return f"CASE WHEN {self.condition.sql()} THEN {self.value_if.sql()}{otherwise} END"

    def value(self, world: World, rows: Environment) -> Truth:
        if self.condition.value(world, rows):
            return self.value_if.value(world, rows)
        return self.otherwise.value(world, rows) if self.otherwise else None


@dataclass(frozen=True)
class Coalesce:
    first: Condition
    second: Condition

    def sql(self) -> str:
        return f"COALESCE({self.first.sql()}, {self.second.sql()})"

    def value(self, world: World, rows: Environment) -> Truth:
        value = self.first.value(world, rows)
        return self.second.value(world, rows) if value is None else value


@dataclass(frozen=True)
class Exists:
    query: Query

    def sql(self) -> str:
        return f"EXISTS ({self.query.sql()})"

    def value(self, world: World, rows: Environment) -> Truth:
        return any(True for _ in self.query.results(world, rows))


@dataclass(frozen=True)
class Quantified:
    """IN, ANY and ALL. form: `in`, `any`, or `all`."""

    value_of: Column
    operator: str
    form: str
    query: Query

    def sql(self) -> str:
        if self.form == "in":
            return f"{self.value_of.sql()} IN ({self.query.sql()})"
        return f"{self.value_of.sql()} {self.operator} {self.form.upper()} ({self.query.sql()})"

    def value(self, world: World, rows: Environment) -> Truth:
        left = self.value_of.of(rows)
        values: list[Truth] = [
            None if left is None or right is None else COMPARE[self.operator](left, right)
            for (right,) in self.query.results(world, rows)
        ]
        return conjunction(values) if self.form == "all" else disjunction(values)


@dataclass(frozen=True)
class Join:
    kind: str
    table: str
    alias: str
    on: Condition

    def sql(self) -> str:
        return f"{self.kind} JOIN {self.table} {self.alias} ON {self.on.sql()}"


@dataclass(frozen=True)
class Select:
    columns: tuple[Column, ...]
    tables: tuple[tuple[str, str], ...]
    joins: tuple[Join, ...]
    where: Condition | None

    def sql(self) -> str:
        columns = ", ".join(f"{column.sql()} AS c{number}" for number, column in enumerate(self.columns))
        tables = ", ".join(f"{table} {alias}" for table, alias in self.tables)
        where = f" WHERE {self.where.sql()}" if self.where else ""
        return f"SELECT {columns} FROM {tables} {' '.join(join.sql() for join in self.joins)}{where}"

    def results(self, world: World, outer: Environment) -> Iterator[tuple[Any, ...]]:
        for rows in self._joined(world, outer):
            if self.where is None or self.where.value(world, rows) is True:
                yield tuple(column.of(rows) for column in self.columns)

    def _joined(self, world: World, outer: Environment) -> Iterator[Environment]:
        aliases = [alias for _, alias in self.tables]
        combinations = [
            dict(zip(aliases, rows, strict=True))
            for rows in product(*(world.visible(table) for table, _ in self.tables))
        ]
        for join in self.joins:
            aliases.append(join.alias)
            combinations = list(self._join(world, outer, combinations, join, aliases))
        for rows in combinations:
            yield {**outer, **rows}

    @staticmethod
    def _join(
        world: World, outer: Environment, left: list[dict[str, Row]], join: Join, aliases: list[str]
    ) -> Iterator[dict[str, Row]]:
        rights = world.visible(join.table)
        matched: set[int] = set()
        for rows in left:
            alone = True
            for number, right in enumerate(rights):
                both = {**rows, join.alias: right}
                if join.on.value(world, {**outer, **both}) is True:
                    alone = False
                    matched.add(number)
                    yield both
            if alone and join.kind in ("LEFT", "FULL"):
                yield {**rows, join.alias: NULL_ROW}
        if join.kind in ("RIGHT", "FULL"):
            for number, right in enumerate(rights):
                if number not in matched:
                    yield {**dict.fromkeys(aliases, NULL_ROW), join.alias: right}


@dataclass(frozen=True)
class SetOperation:
    kind: str
    left: Query
    right: Query

    def sql(self) -> str:
        return f"({self.left.sql()}) {self.kind} ({self.right.sql()})"

    def results(self, world: World, outer: Environment) -> Iterator[tuple[Any, ...]]:
        left, right = set(self.left.results(world, outer)), set(self.right.results(world, outer))
        yield from {"UNION": left | right, "INTERSECT": left & right, "EXCEPT": left - right}[self.kind]


@dataclass(frozen=True)
class Aggregate:
    """Aggregate of a column of a group's rows. kind: `COUNT(*)`, `COUNT`, `COUNT(DISTINCT)`, `SUM`, `AVG`, `MIN` or `MAX`."""

    kind: str
    column: Column

    def sql(self) -> str:
        match self.kind:
            case "COUNT(*)":
                return self.kind
            case "COUNT(DISTINCT)":
                return f"COUNT(DISTINCT {self.column.sql()})"
        return f"{self.kind}({self.column.sql()})"

    def of(self, values: Sequence[Any]) -> Any:
        present = [value for value in values if value is not None]
        match self.kind:
            case "COUNT(*)":
                return len(values)
            case "COUNT":
                return len(present)
            case "COUNT(DISTINCT)":
                return len(set(present))
        if not present:
            return None
        match self.kind:
            case "SUM":
                return sum(present)
            case "AVG":
                return sum(present) / len(present)
            case "MIN":
                return min(present)
        return max(present)


@dataclass(frozen=True)
class Threshold:
    """Condition of HAVING: aggregates compared with numbers, all of which or one of which hold."""

    parts: tuple[tuple[int, str, int], ...]
    together: bool

    def sql(self, aggregates: Sequence[Aggregate]) -> str:
        texts = [f"{aggregates[number].sql()} {sign} {value}" for number, sign, value in self.parts]
        return (" AND " if self.together else " OR ").join(texts)

    def value(self, values: Sequence[Any]) -> Truth:
        truths = [
            None if values[number] is None else COMPARE[sign](values[number], value)
            for number, sign, value in self.parts
        ]
        return conjunction(truths) if self.together else disjunction(truths)


@dataclass(frozen=True)
class Grouped:
    """Query with GROUP BY. shown: whether the aggregates are columns of the result. order: number of an aggregate, descending."""

    keys: tuple[Column, ...]
    aggregates: tuple[Aggregate, ...]
    tables: tuple[tuple[str, str], ...]
    where: Condition | None
    having: Threshold | None
    shown: bool
    order: tuple[tuple[int, bool], ...] = ()
    limit: int | None = None

    def sql(self) -> str:
        keys = [column.sql() for column in self.keys]
        columns = [*keys, *(item.sql() for item in self.aggregates)] if self.shown else keys
        listed = ", ".join(f"{text} AS c{number}" for number, text in enumerate(columns))
        text = f"SELECT {listed} FROM {', '.join(f'{table} {alias}' for table, alias in self.tables)}"
        text += f" WHERE {self.where.sql()}" if self.where else ""
        text += f" GROUP BY {', '.join(keys)}"
        text += f" HAVING {self.having.sql(self.aggregates)}" if self.having else ""
        if self.limit is None:
            return text
        order = [f"{self.aggregates[number].sql()} {'DESC' if down else 'ASC'}" for number, down in self.order]
        return f"{text} ORDER BY {', '.join(order)} LIMIT {self.limit}"

    def results(self, world: World, outer: Environment) -> Iterator[tuple[Any, ...]]:
        rows = Select((*self.keys, *(item.column for item in self.aggregates)), self.tables, (), self.where)
        groups: dict[tuple[Any, ...], list[tuple[Any, ...]]] = {}
        for row in rows.results(world, outer):
            groups.setdefault(row[: len(self.keys)], []).append(row[len(self.keys) :])
        members = []
        for key, values in groups.items():
            totals = tuple(item.of([value[number] for value in values]) for number, item in enumerate(self.aggregates))
            if self.having is None or self.having.value(totals) is True:
                members.append((key, totals))
        if self.limit is not None:
            members.sort(key=lambda member: [_last(value) for value in member[0]])
            for number, down in reversed(self.order):
                # Each order has NULL last, also a descending one.
                members.sort(key=lambda member: _order(member[1][number], down=down))
            members = members[: self.limit]
        for key, totals in members:
            yield (*key, *totals) if self.shown else key


def _last(value: Any) -> tuple[bool, Any]:
    return (value is None, "" if value is None else value)


def _order(value: Any, *, down: bool) -> tuple[bool, Any]:
    return (value is None, 0 if value is None else -value if down else value)


Query = Select | SetOperation | Grouped


def first_instants(query: Query, tables: Mapping[str, Sequence[Row]], instants: range) -> dict[tuple[Any, ...], int]:
    """Return each row that the query returns at any instant, with the first of these instants."""
    first: dict[tuple[Any, ...], int] = {}
    for now in instants:
        for row in query.results(World(tables, frozenset({"v"}), now), {}):
            first.setdefault(row, now)
    return first
