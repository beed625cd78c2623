"""Installed queries: their texts, schedules, sinks and states, kept durably in the folder of the catalogue.

The log of tables keeps them, one note for each query. Several processes may change them at the same time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any, Final

from quaestor.clock import Clock, system_clock
from quaestor.continuous.schedule.periods import duration, period
from quaestor.errors import ConfigurationError, DependencyError
from quaestor.tables.catalogue import Catalogue
from quaestor.tables.changes import Change, Snapshot
from quaestor.tables.log import Table
from quaestor.tables.schema import TS, Column, Schema, Type

RUN: Final = "_run"
ROW: Final = "_row"
HASH: Final = "_hash"
"""Columns of result tables: instant of the run, number of the row in it, and hash of the row's values."""
RESULTS: Final = Schema((Column(RUN, Type.BIGINT), Column(ROW, Type.BIGINT), Column(HASH, Type.BIGINT)))
OWN: Final = frozenset({RUN, ROW, HASH, TS})
"""Columns of a result table that no query gives."""
_FOLDER: Final = "_queries"
NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,62}", re.ASCII)
_FORMAT: Final = 1


class State(StrEnum):
    """State of an installed query."""

    ACTIVE = "active"
    WAITING = "waiting"
    PAUSED = "paused"
    QUARANTINED = "quarantined"


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledQuery:
    """Installed query.

    every: period, as `schedule.periods.period` reads it.
    at_most: longest interval that its user accepts under load; empty: any.
    sinks: addresses of the receivers.
    start: instant after which results count.
    tables: result tables, oldest first: each change of the text begins a new one.
    reason: of the quarantine, or of the waiting.
    """

    name: str
    text: str
    every: str
    sinks: tuple[str, ...] = ()
    at_most: str = ""
    start: int = 0
    tables: tuple[str, ...] = ()
    state: State = State.ACTIVE
    reason: str = ""

    @property
    def runs(self) -> bool:
        """Whether the query is in the schedule. A waiting query runs as soon as its tables exist."""
        return self.state in (State.ACTIVE, State.WAITING)

    @property
    def results(self) -> str:
        """Name of the present result table."""
        return self.tables[-1]


class InstalledQueries:
    """Installed queries of one catalogue. Every change is durable when its method returns.

    All methods raise DependencyError if the storage fails.
    """

    def __init__(self, catalogue: Catalogue, *, clock: Clock = system_clock) -> None:
        self._catalogue = catalogue
        self._log = Table(catalogue.root.below(_FOLDER))
        self._clock = clock
        self._decoded: dict[str, tuple[str, InstalledQuery]] = {}

    def all(self) -> list[InstalledQuery]:
        """Return all installed queries, by name."""
        notes = self._log.snapshot().notes
        known = self._decoded
        self._decoded = {
            name: known[name] if name in known and known[name][0] == text else (text, _decoded(text, name))
            for name, text in sorted(notes.items())
        }
        return [query for _, query in self._decoded.values()]

    def get(self, name: str) -> InstalledQuery:
        """Return a query. Raises ConfigurationError if there is none of this name."""
        return _of(self._log.snapshot(), name)

    def progress(self, query: InstalledQuery) -> int:
        """Return the instant up to which the runs of a query's present text are published; without a run, its start."""
        snapshot = self._catalogue.open(query.results).snapshot()
        return snapshot.progress.get(query.name, query.start)

    def install(self, query: InstalledQuery) -> InstalledQuery:
        """Install a query, and create its result table. Raises ConfigurationError for a bad or taken name, or period."""
        _check_new(query)
        table = self._new_table(query.name)
        return self._install([replace(query, tables=(table,))])[0]

    def install_all(self, queries: Sequence[InstalledQuery]) -> list[InstalledQuery]:
        """Install queries in one step: all of them, or none. Raises as `install` does."""
        for query in queries:
            _check_new(query)
        if len({query.name for query in queries}) < len(queries):
            raise ConfigurationError("two of the queries have the same name: give each its own")
        if not queries:
            return []
        taken = set(self._catalogue.names())
        tables = {query.name: _free_name(query.name, taken) for query in queries}
        self._refuse_taken(self._log.snapshot(), tables)
        self._catalogue.reserve(tables.values())
        return self._install([replace(query, tables=(tables[query.name],)) for query in queries])

    def _install(self, queries: Sequence[InstalledQuery]) -> list[InstalledQuery]:
        """Publish new queries, whose result tables exist, as one entry."""
        notes = {query.name: _encoded(query) for query in queries}

        def decide(now: Snapshot) -> Change:
            self._refuse_taken(now, notes)
            return Change(notes=notes)

        try:
            self._publish(decide)
        except ConfigurationError:
            for query in queries:
                self._catalogue.drop(query.results)
            raise
        return list(queries)

    @staticmethod
    def _refuse_taken(now: Snapshot, names: Iterable[str]) -> None:
        for name in names:
            if name in now.notes:
                raise ConfigurationError(f"the query {name!r} is installed: drop it first, or change its text")

    def change(self, name: str, change: Callable[[InstalledQuery], InstalledQuery]) -> InstalledQuery:
        """Change period, sinks, limit or state of a query; return it. Raises ConfigurationError.

        change: called again if another process was faster.
        """

        def decide(now: Snapshot) -> Change:
            changed = change(_of(now, name))
            _check(changed)
            return Change(notes={name: _encoded(changed)})

        return _of(self._publish(decide), name)

    def change_text(self, name: str, text: str, *, start: int) -> InstalledQuery:
        """Give a query another text, from an instant on: a new query with results of its own. Raises ConfigurationError.

        Results of the old text that are not delivered yet are still delivered.
        """
        self.get(name)
        table = self._new_table(name)
        return self.change(
            name,
            lambda query: replace(
                query, text=text, start=start, tables=(*query.tables, table), state=State.ACTIVE, reason=""
            ),
        )

    def pause(self, name: str) -> InstalledQuery:
        """Stop the runs of a query. Its next run, after `resume`, returns everything since its last one."""
        return self.change(name, lambda query: replace(query, state=State.PAUSED, reason=""))

    def resume(self, name: str) -> InstalledQuery:
        """Let a paused or quarantined query run again."""
        return self.change(name, lambda query: replace(query, state=State.ACTIVE, reason=""))

    def wait(self, name: str, reason: str) -> InstalledQuery:
        """Note that an active query waits for a table."""
        return self.change(
            name,
            lambda query: replace(query, state=State.WAITING, reason=reason) if query.state is State.ACTIVE else query,
        )

    def go_on(self, name: str) -> InstalledQuery:
        """Note that a waiting query has run."""
        return self.change(
            name,
            lambda query: replace(query, state=State.ACTIVE, reason="") if query.state is State.WAITING else query,
        )

    def quarantine(self, name: str, reason: str) -> InstalledQuery:
        """Stop the runs of a query until `resume`, for a reason."""
        return self.change(name, lambda query: replace(query, state=State.QUARANTINED, reason=reason))

    def drop(self, name: str) -> None:
        """Drop a query and its results. Raises ConfigurationError if there is none of this name."""
        query = self.get(name)
        self._publish(lambda now: Change(notes={name: None}) if name in now.notes else None)
        for table in query.tables:
            if table in self._catalogue.names():
                self._catalogue.drop(table)

    def _publish(self, decide: Callable[[Snapshot], Change | None]) -> Snapshot:
        return self._log.publish(decide, now_us=self._clock() * 1000)

    def _new_table(self, name: str) -> str:
        table = _free_name(name, set(self._catalogue.names()))
        self._catalogue.create(table, RESULTS)
        return table


def queries_of(lines: Iterable[bytes | Mapping[str, Any]]) -> list[InstalledQuery]:
    """Return queries from objects with `name`, `text`, `every`, and perhaps `sinks` and `at_most`, or from lines of JSON.

    Raises ConfigurationError with the number of a bad line.
    """
    queries = []
    for number, line in enumerate(lines, 1):
        try:
            fields = json.loads(line) if isinstance(line, bytes) else dict(line)
            sinks = tuple(fields.pop("sinks", ()))
            if not all(isinstance(value, str) for value in (*fields.values(), *sinks)):
                raise ValueError("a value is no text")
            if unknown := fields.keys() - {"name", "text", "every", "at_most"}:
                raise ValueError(f"{min(unknown)!r} is unknown")
            queries.append(InstalledQuery(**fields, sinks=sinks))
        except (ValueError, TypeError, AttributeError) as error:
            raise ConfigurationError(
                f"line {number} is no query ({error}): write name, text, every, and perhaps sinks and at_most"
            ) from error
    return queries


def _free_name(name: str, taken: Set[str]) -> str:
    """Return a name for a new result table of a query."""
    number = 1
    while (table := f"results{'' if number == 1 else f'_{number}'}.{name}") in taken:
        number += 1
    return table


def _check_new(query: InstalledQuery) -> None:
    if not NAME.fullmatch(query.name):
        raise ConfigurationError(f"{query.name!r} cannot name a query: use small letters, digits and _, at most 63")
    _check(query)


def _check(query: InstalledQuery) -> None:
    period(query.every)
    if query.at_most:
        duration(query.at_most)
    if len(set(query.sinks)) < len(query.sinks):
        raise ConfigurationError(f"the query {query.name!r} names a sink twice: name each once")


def _of(snapshot: Snapshot, name: str) -> InstalledQuery:
    if name not in snapshot.notes:
        raise ConfigurationError(
            f"no query {name!r} is installed: there are {', '.join(sorted(snapshot.notes)) or 'none'}"
        )
    return _decoded(snapshot.notes[name], name)


def _encoded(query: InstalledQuery) -> str:
    return json.dumps({"v": _FORMAT, **asdict(query)})


def _decoded(text: str, name: str) -> InstalledQuery:
    try:
        fields = json.loads(text)
        if fields.pop("v") != _FORMAT:
            raise ValueError("another format")
        fields |= {"sinks": tuple(fields["sinks"]), "tables": tuple(fields["tables"]), "state": State(fields["state"])}
        return InstalledQuery(**fields)
    except (ValueError, KeyError, TypeError) as error:
        raise DependencyError(
            f"the installed query {name!r} is damaged: {error}; install it again", retryable=False
        ) from error
