"""Administration of installed queries: the same operations for the command line and the admin API, with answers as plain data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any, Final

import pyarrow.compute as pc

from quaestor.clock import Clock, system_clock
from quaestor.continuous.declared_orders import order_of
from quaestor.continuous.delivery.addresses import sink_of
from quaestor.continuous.delivery.batch import moment, to_json
from quaestor.continuous.delivery.dead_letters import DeadLetters
from quaestor.continuous.functions import PREFIX
from quaestor.continuous.installed import OWN, ROW, RUN, InstalledQueries, InstalledQuery
from quaestor.continuous.plain_rows import plain_rows
from quaestor.continuous.runs.deliveries import confirmed
from quaestor.continuous.runs.run import close
from quaestor.continuous.sql_engine import SqlEngine
from quaestor.errors import ConfigurationError, QuaestorError
from quaestor.settings.continuous import ContinuousSettings
from quaestor.tables.catalogue import Catalogue
from quaestor.tables.instants import instant_of
from quaestor.tables.schema import TS

_ENTERED: Final = "_instant"
_PUBLISHED: Final = "_published"


class Administration:
    """Operations on the queries of one folder.

    engine: compiles texts before they are installed.

    Methods raise ConfigurationError for a wrong name or value, DependencyError if the storage fails.
    """

    def __init__(
        self, settings: ContinuousSettings, catalogue: Catalogue, engine: SqlEngine, *, clock: Clock = system_clock
    ) -> None:
        self.settings = settings
        self.catalogue = catalogue
        self.engine = engine
        self.installed = InstalledQueries(self.catalogue, clock=clock)
        self._clock = clock

    def all(self) -> list[dict[str, Any]]:
        """Return all installed queries."""
        return [_described(query) for query in self.installed.all()]

    def show(self, name: str) -> dict[str, Any]:
        """Return a query with its progress, its number of results, and the confirmations of its sinks."""
        query = self.installed.get(name)
        table = self.catalogue.open(query.results)
        snapshot = table.snapshot()
        progress = snapshot.progress.get(name)
        return {
            **_described(query),
            "progress": None if progress is None else moment(progress),
            "results": sum(file.rows for file in snapshot.files.values()),
            "confirmed": {sink: moment(at) if (at := confirmed(table, sink)) else None for sink in query.sinks},
        }

    def install(self, query: InstalledQuery, start: str) -> dict[str, Any]:
        """Install a query.

        start: `beginning`, `now`, or an instant in ISO 8601.

        Raises QueryError for a text that is refused.
        """
        self._check_sinks(query.sinks)
        self.engine.prepare(query.text)
        return _described(self.installed.install(replace(query, start=self._start(start))))

    def install_all(self, queries: Sequence[InstalledQuery], start: str) -> list[dict[str, Any]]:
        """Install queries in one step: all of them, or none. Texts that differ in values only are compiled once.

        start: see `install`.

        Raises QueryError for a text that is refused.
        """
        self._check_sinks({sink for query in queries for sink in query.sinks})
        for prepared in self.engine.prepare_all([query.text for query in queries]):
            if isinstance(prepared, QuaestorError):
                raise prepared
        first = self._start(start)
        return [
            _described(query)
            for query in self.installed.install_all([replace(query, start=first) for query in queries])
        ]

    def change_text(self, name: str, text: str, start: str) -> dict[str, Any]:
        """Give a query another text, from an instant on. Raises QueryError for a text that is refused."""
        self.engine.prepare(text)
        return _described(self.installed.change_text(name, text, start=self._start(start)))

    def change(
        self, name: str, *, every: str | None = None, sinks: Sequence[str] | None = None, at_most: str | None = None
    ) -> dict[str, Any]:
        """Change period, sinks or limit of a query; None: as before."""
        self._check_sinks(sinks or ())

        def change(query: InstalledQuery) -> InstalledQuery:
            return replace(
                query,
                every=query.every if every is None else every,
                sinks=query.sinks if sinks is None else tuple(sinks),
                at_most=query.at_most if at_most is None else at_most,
            )

        return _described(self.installed.change(name, change))

    def pause(self, name: str) -> dict[str, Any]:
        """Stop the runs of a query."""
        return _described(self.installed.pause(name))

    def resume(self, name: str) -> dict[str, Any]:
        """Let a query run again; its next run returns everything since its last one."""
        return _described(self.installed.resume(name))

    def drop(self, name: str) -> None:
        """Drop a query, its results and its dead letters."""
        self.installed.drop(name)
        DeadLetters(self.catalogue.root).drop(name)

    def drop_dead_letters(self, name: str) -> dict[str, Any]:
        """Drop the dead letters of a query for good."""
        self.installed.get(name)
        return {"dropped": DeadLetters(self.catalogue.root).drop(name)}

    def results(self, name: str, *, after: int = 0, limit: int = 1_000) -> dict[str, Any]:
        """Return results in the order of their publication, whole runs only, and where the next page begins.

        after: instant of publication, as `next` of the page before.
        limit: rows after which no further run is begun.
        """
        table = self.catalogue.open(self.installed.get(name).results)
        snapshot = table.snapshot()
        rows: list[dict[str, Any]] = []
        upto = after
        for file in table.files(snapshot, after, snapshot.instant):
            if len(rows) >= limit:
                break
            part = table.scan(snapshot, max(after, file.first - 1), file.last)
            # A joined file holds many runs.
            part = part.append_column(_PUBLISHED, part.column(TS).cast("int64"))
            part = part.sort_by([(TS, "ascending"), (ROW, "ascending")])
            wanted = part.slice(0, limit - len(rows)).column(_PUBLISHED)
            last = wanted[-1].as_py() if len(wanted) < part.num_rows else file.last
            upto = min(file.last, last)
            rows += plain_rows(part.filter(pc.less_equal(part.column(_PUBLISHED), upto)).drop_columns([_PUBLISHED]))
        return {
            "rows": [
                {
                    "key": f"{name}/{row[RUN]}/{row[ROW]}",
                    "run": row[RUN],
                    "row": {column: value for column, value in row.items() if column not in OWN},
                }
                for row in rows
            ],
            "next": upto,
            "complete": upto >= max((file.last for file in snapshot.files.values()), default=0),
        }

    def dry_run(self, text: str, after: str, upto: str) -> list[dict[str, Any]]:
        """Return the rows that a text would have delivered in (after, upto], by their instants. Raises QueryError.

        after, upto: `beginning`, `now`, or an instant in ISO 8601.
        """
        prepared = self.engine.prepare(text)
        first, last = self._start(after), self._start(upto)
        closed = close(self.catalogue, prepared.tables)
        rows = plain_rows(prepared.entries(min(last, closed.instant), closed.snapshots))
        delivered = [(instant_of(row.pop(_ENTERED)), row) for row in rows]
        return [
            {"instant": moment(at), "row": row}
            for at, row in sorted(delivered, key=lambda entry: (entry[0], to_json(entry[1])))
            if first < at <= last
        ]

    def run_once(self, text: str, at: str) -> list[dict[str, Any]]:
        """Return the rows that are true at one instant, and install nothing. Raises QueryError.

        at: `now`, or an instant in ISO 8601.
        """
        prepared = self.engine.prepare(text)
        closed = close(self.catalogue, prepared.tables)
        return plain_rows(prepared.at(min(self._start(at), closed.instant), closed.snapshots))

    def orders(self) -> list[dict[str, Any]]:
        """Return all declared orders, each with its first counterexample if it is broken."""
        return [{"order": str(declared.order), "broken": declared.broken} for declared in self.engine.orders.all()]

    def declare_order(self, earlier: str, later: str) -> dict[str, Any]:
        """Declare that no row of the first column comes after an equal one of the second: `messages.id`, `replies.message`."""
        order = order_of(earlier, later)
        self.engine.orders.declare(order)
        return {"order": str(order), "broken": ""}

    def drop_order(self, earlier: str, later: str) -> None:
        """Forget a declared order."""
        self.engine.orders.drop(order_of(earlier, later))

    def _check_sinks(self, addresses: Iterable[str]) -> None:
        """Raise ConfigurationError for an address of no sink. Functions belong to their application."""
        for address in addresses:
            if not address.startswith(PREFIX):
                sink_of(address, self.settings)

    def _start(self, text: str) -> int:
        if text == "beginning":
            return 0
        if text == "now":
            return self._clock() * 1_000
        return instant(text)


def instant(text: str) -> int:
    """Return the instant of a text in ISO 8601; without an offset it is UTC. Raises ConfigurationError."""
    try:
        when = datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigurationError(f"{text!r} is no instant: write beginning, now, or 2026-11-28T12:00:00Z") from error
    return instant_of(when)


def _described(query: InstalledQuery) -> dict[str, Any]:
    return {**asdict(query), "start": moment(query.start), "state": query.state.value}
