"""Execution of runs: alone, or as one plan with the queries of equal shape."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary
from zlib import crc32

from quaestor.continuous.engine import Engine, OutdatedCompilationError, PreparedQuery, SharingEngine
from quaestor.continuous.installed import InstalledQuery
from quaestor.continuous.runs.remembered import Remembered
from quaestor.continuous.runs.run import Known, Run, begin, close, missed, publish, run
from quaestor.errors import QuaestorError
from quaestor.tables.catalogue import Catalogue
from quaestor.tables.pins import pinned
from quaestor.tables.versioned import VersionedTable

_QUIET: Final = 3_600 * 1_000_000
"""Longest time after which the progress of a query without results is published again, in microseconds."""


class _Covered(NamedTuple):
    """Progress of a query without new results. This process alone knows it: after a restart the interval is run again.

    published: progress in the result table.
    upto: instant up to which there is no result after it.
    """

    published: int
    upto: int


class _Prepared(NamedTuple):
    """Compiled query with its text. A compilation may end after the text has changed; the query then counts no more."""

    text: str
    query: PreparedQuery


class Executions:
    """Runs of the queries of one service. Methods block; thread-safe for different queries."""

    def __init__(self, engine: Engine, catalogue: Catalogue) -> None:
        self._engine = engine
        self._catalogue = catalogue
        self._remembered = Remembered()
        self._prepared: dict[str, _Prepared] = {}
        self._covered: WeakKeyDictionary[VersionedTable, _Covered] = WeakKeyDictionary()

    def forget(self, name: str) -> None:
        """Forget a query, whose text has changed, which has failed, or which was dropped."""
        self._prepared.pop(name, None)

    def groups(self, queries: Iterable[InstalledQuery]) -> list[list[InstalledQuery]]:
        """Return the queries in groups that can run as one plan. A query that cannot be prepared is a group of its own."""
        queries = list(queries)
        self._prepare_all([query for query in queries if self._known(query) is None])
        groups: dict[str, list[InstalledQuery]] = {}
        for query in queries:
            try:
                shape = self._of(query).shape if isinstance(self._engine, SharingEngine) else ""
            except Exception:  # its run reports the failure
                shape = ""
            groups.setdefault(shape or f" {query.name}", []).append(query)
        return list(groups.values())

    def _prepare_all(self, queries: Sequence[InstalledQuery]) -> None:
        """Prepare new queries together, so that equal shapes are compiled once."""
        if not queries or not isinstance(self._engine, SharingEngine):
            return
        with suppress(QuaestorError):  # each run reports its failure
            for query, prepared in zip(
                queries, self._engine.prepare_all([query.text for query in queries]), strict=True
            ):
                if not isinstance(prepared, QuaestorError):
                    self._prepared[query.name] = _Prepared(query.text, prepared)

    def run(self, query: InstalledQuery) -> Run:
        """Run a query. Raises as `runs.run.run` does."""
        self._covered.pop(self._catalogue.open(query.results), None)  # the run publishes a later progress
        try:
            return run(query, self._of(query), self._catalogue, self._remembered)
        except OutdatedCompilationError:
            self.forget(query.name)
            return run(query, self._of(query), self._catalogue, self._remembered)

    def run_together(self, queries: Sequence[InstalledQuery]) -> Mapping[str, Run | QuaestorError]:
        """Run queries of equal shape as one plan; return the outcome of each by name.

        Only queries with new rows publish their progress each time, so quiet queries cost no entry of a log.

        Raises what the plan itself raises: then no query has run.
        """
        assert isinstance(self._engine, SharingEngine)
        prepared = {query.name: self._of(query) for query in queries}
        shared = self._engine.together(prepared)
        results = {query.name: self._catalogue.open(query.results) for query in queries}
        afters = {query.name: self._after(query, results[query.name]) for query in queries}
        closed = close(self._catalogue, shared.tables)
        due = {name: after for name, after in afters.items() if after < closed.instant}
        with pinned({self._catalogue.open(name).table: snapshot for name, snapshot in closed.snapshots.items()}):
            try:
                evaluated = shared.rows(due, closed.instant, closed.snapshots)
            except OutdatedCompilationError:
                for query in queries:
                    self.forget(query.name)
                raise
        outcomes: dict[str, Run | QuaestorError] = {
            name: Run(after=after, upto=after, rows=0, published=False) for name, after in afters.items()
        }
        read = evaluated.read
        for query in queries:
            name, known = query.name, self._covered.get(results[query.name])
            if name not in due:
                continue
            since = due[name] if known is None else known.published
            if not evaluated.rows[name].num_rows and closed.instant - since < _quiet(name):
                self._covered[results[name]] = _Covered(since, closed.instant)
                outcomes[name] = Run(after=due[name], upto=closed.instant, rows=0, published=True)
                continue
            try:
                done = self._publish(query, prepared[name], due[name], evaluated.rows[name], closed.instant)
                outcomes[name] = replace(done, missed=missed(closed, due[name]) if done.published else {})
            except QuaestorError as error:
                outcomes[name] = error
        first = next((name for name, outcome in outcomes.items() if isinstance(outcome, Run)), None)
        if first is not None and isinstance(outcome := outcomes[first], Run):
            outcomes[first] = replace(outcome, read=read)  # the plan has read it once
        return outcomes

    def _after(self, query: InstalledQuery, results: VersionedTable) -> int:
        known = self._covered.get(results)
        return begin(query, self._catalogue).after if known is None else known.upto

    def _publish(self, query: InstalledQuery, prepared: PreparedQuery, after: int, rows: object, upto: int) -> Run:
        begun = begin(query, self._catalogue)
        known = self._covered.pop(begun.results, None)
        if begun.progress is not None and begun.progress > (after if known is None else known.published):
            return Run(after=after, upto=after, rows=0, published=False)  # another process has run the query
        outcome = publish(query, begun, rows, upto, Known(self._remembered, prepared.repeats_within))
        if outcome.published:
            self._covered[begun.results] = _Covered(upto, upto)
        return replace(outcome, after=after)

    def _known(self, query: InstalledQuery) -> PreparedQuery | None:
        """Return the compilation of a query's present text; None: there is none."""
        prepared = self._prepared.get(query.name)
        return None if prepared is None or prepared.text != query.text else prepared.query

    def _of(self, query: InstalledQuery) -> PreparedQuery:
        prepared = self._known(query)
        if prepared is None:
            prepared = self._engine.prepare(query.text)
            self._prepared[query.name] = _Prepared(query.text, prepared)
        return prepared


def _quiet(name: str) -> int:
    """Return the time without results after which the progress of a query is published: half an hour to an hour.

    Queries that begin together thus publish at different times.
    """
    return _QUIET // 2 + crc32(name.encode()) % (_QUIET // 2)
