"""Declared orders between rows of tables: kept with the table, and checked before each run that uses them (I5).

A declaration is a note in the log of the earlier row's table. A broken order is never used again; the exact rule is used instead.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Final

from sqlglot import exp

from quaestor.continuous.executors.executor import Executor
from quaestor.continuous.executors.stored import stored
from quaestor.continuous.rules.monotone import TAU, placeholder
from quaestor.continuous.rules.orders import KnownOrder
from quaestor.continuous.sql.current_time import T
from quaestor.continuous.sql.model import TableUse, column
from quaestor.continuous.sql.writing import select
from quaestor.errors import ConfigurationError, DependencyError
from quaestor.tables.catalogue import Catalogue
from quaestor.tables.changes import Change, Snapshot
from quaestor.tables.schema import TS

_PREFIX: Final = "order:"
_FORMAT: Final = 1
_KEPT_EVERY: Final = 3_600 * 1_000_000
"""Time after which the instant of the last check is published again, in microseconds."""


@dataclass(frozen=True, slots=True)
class DeclaredOrder:
    """Order of rows that an operator has declared.

    declaration: identity of the declaration.
    broken: the first counterexample; empty: there is none up to now.
    """

    order: KnownOrder
    declaration: str
    broken: str = ""


class DeclaredOrders:
    """Declared orders of the tables of a catalogue. Thread-safe; methods block, and raise DependencyError.

    executor: looks for counterexamples.
    report: called with a sentence after an order was broken.
    """

    def __init__(self, catalogue: Catalogue, executor: Executor) -> None:
        self.report: Callable[[str], object] = str
        self._catalogue = catalogue
        self._executor = executor
        self._lock = Lock()
        self._checked: dict[str, int] = {}

    def all(self) -> list[DeclaredOrder]:
        """Return all declared orders, by the names of their tables."""
        return [declared for name in self._catalogue.names() for declared in _of(self._catalogue, name)]

    def holding(self, tables: Iterable[str]) -> list[KnownOrder]:
        """Return the orders between these tables that are not broken."""
        return holding_orders(self._catalogue, tables)

    def declare(self, order: KnownOrder) -> None:
        """Declare an order, or declare it anew after it was broken. Raises ConfigurationError for an unknown table or column.

        The next run that uses the order checks all rows of both tables.
        """
        for table, name in ((order.earlier, order.earlier_column), (order.later, order.later_column)):
            schema = self._catalogue.open(table).schema()
            if schema.type_of(name) is None:
                raise ConfigurationError(f"table {table!r} has no column {name!r}: there are {', '.join(schema.names)}")
        note = _encoded(DeclaredOrder(order, uuid.uuid4().hex[:16]))
        self._catalogue.open(order.earlier).publish(lambda _: Change(notes={_name(order): note}))

    def drop(self, order: KnownOrder) -> None:
        """Forget a declaration. Raises ConfigurationError if there is none."""
        table = self._catalogue.open(order.earlier)
        if _name(order) not in table.snapshot().notes:
            raise ConfigurationError(f"the order is not declared: {order}")
        table.publish(lambda now: Change(notes={_name(order): None}) if _name(order) in now.notes else None)

    def hold(self, orders: Iterable[KnownOrder], upto: int, snapshots: Mapping[str, Snapshot]) -> bool:
        """Whether no row up to an instant breaks any of these orders. Reads the rows since the last check.

        snapshots: of the tables of the orders, closed at that instant.

        A broken order is noted durably and reported.
        """
        return all(self._holds(order, upto, snapshots) for order in orders)

    def _holds(self, order: KnownOrder, upto: int, snapshots: Mapping[str, Snapshot]) -> bool:
        snapshot = snapshots[order.earlier]
        note = snapshot.notes.get(_name(order))
        declared = None if note is None else _decoded(order, note)
        if declared is None or declared.broken:
            return False
        # Rows of another table under the later table's name were never checked.
        place = self._catalogue.open(order.later).table.location.rpartition("/")[2]
        progress = f"{_PREFIX}{declared.declaration}:{place}"
        with self._lock:
            kept = snapshot.progress.get(progress, -1)
            checked = max(kept, self._checked.get(progress, -1))
            if checked >= upto:
                return True
            counterexample = self._counterexample(order, checked, upto, snapshots)
            if not counterexample:
                self._checked[progress] = upto
                if upto - kept >= _KEPT_EVERY:
                    self._catalogue.open(order.earlier).append((), progress={progress: upto})
                return True
        self._break(DeclaredOrder(order, declared.declaration, counterexample))
        return False

    def _counterexample(self, order: KnownOrder, after: int, upto: int, snapshots: Mapping[str, Snapshot]) -> str:
        """Return a sentence on two rows that break an order, the first row in (after, upto]; empty: there are none."""
        query = counterexamples(order)
        names = {order.earlier, order.later}
        tables = stored(query, self._catalogue, sorted(names), max(after, 0), upto, snapshots)
        rows = self._executor.rows(query, after if after > 0 else None, upto, tables).to_pylist()
        if not rows:
            return ""
        row = rows[0]
        return (
            f"the row of {order.earlier} with {order.earlier_column} = {row['value']!r} came at {row['earlier']},"
            f" after the row of {order.later} at {row['later']}"
        )

    def _break(self, declared: DeclaredOrder) -> None:
        name = _name(declared.order)

        def decide(now: Snapshot) -> Change | None:
            note = now.notes.get(name)
            present = None if note is None else _decoded(declared.order, note)
            if present is None or present.broken or present.declaration != declared.declaration:
                return None
            return Change(notes={name: _encoded(declared)})

        self._catalogue.open(declared.order.earlier).publish(decide)
        self.report(f"{declared.order} does not hold: {declared.broken}")


def holding_orders(catalogue: Catalogue, tables: Iterable[str]) -> list[KnownOrder]:
    """Return the declared orders between these tables that are not broken. Raises DependencyError."""
    names = set(tables)
    return [
        declared.order
        for name in sorted(names)
        for declared in _of(catalogue, name)
        if not declared.broken and declared.order.later in names
    ]


def _of(catalogue: Catalogue, table: str) -> list[DeclaredOrder]:
    notes = catalogue.open(table).snapshot().notes
    orders = []
    for name in sorted(notes):
        if name.startswith(_PREFIX):
            earlier_column, later, later_column = json.loads(name.removeprefix(_PREFIX))
            orders.append(_decoded(KnownOrder(table, earlier_column, later, later_column), notes[name]))
    return orders


def counterexamples(order: KnownOrder) -> exp.Query:
    """Return the query of a pair of rows that breaks an order, where the first row is new in (tau, t]."""
    first, second = TableUse(order.earlier, "first"), TableUse(order.later, "second")
    published, before = column("first", TS), column("second", TS)
    return select(
        [
            exp.alias_(column("first", order.earlier_column), "value"),
            exp.alias_(published.copy(), "earlier"),
            exp.alias_(before.copy(), "later"),
        ],
        (first, second),
        (
            exp.EQ(this=column("first", order.earlier_column), expression=column("second", order.later_column)),
            exp.LT(this=placeholder(TAU), expression=published.copy()),
            exp.LTE(this=published.copy(), expression=placeholder(T)),
            exp.LT(this=before, expression=published),
        ),
    ).limit(1)


def order_of(earlier: str, later: str) -> KnownOrder:
    """Return the order of two columns in the form `messages.id`, `replies.message`. Raises ConfigurationError."""
    parts = [text.rpartition(".") for text in (earlier, later)]
    if not all(table and name for table, _, name in parts):
        raise ConfigurationError(f"{earlier!r} and {later!r} are no columns: write TABLE.COLUMN twice")
    return KnownOrder(parts[0][0], parts[0][2], parts[1][0], parts[1][2])


def _name(order: KnownOrder) -> str:
    return _PREFIX + json.dumps([order.earlier_column, order.later, order.later_column])


def _encoded(declared: DeclaredOrder) -> str:
    return json.dumps({"v": _FORMAT, "declaration": declared.declaration, "broken": declared.broken})


def _decoded(order: KnownOrder, note: str) -> DeclaredOrder:
    try:
        fields = json.loads(note)
        if fields["v"] != _FORMAT:
            raise ValueError("another format")
        return DeclaredOrder(order, fields["declaration"], fields["broken"])
    except (ValueError, KeyError, TypeError) as error:
        raise DependencyError(
            f"the declared order {order} is damaged: {error}; declare it again", retryable=False
        ) from error
