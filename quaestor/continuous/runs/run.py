"""Run of a continuous query over (after, upto]: closes the instant, executes, publishes results and progress as one entry."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from quaestor.continuous.engine import NOTHING, PreparedQuery, Read
from quaestor.continuous.installed import InstalledQuery
from quaestor.continuous.runs.remembered import Remembered
from quaestor.continuous.runs.results import different, fitted, hashed, numbered, schema_of
from quaestor.tables.catalogue import Catalogue
from quaestor.tables.changes import Snapshot
from quaestor.tables.pins import pinned
from quaestor.tables.retention import RETAINED
from quaestor.tables.versioned import VersionedTable


class Closed(NamedTuple):
    """Closed instant of several tables.

    instant: later rows of every table have a later one.
    snapshots: of each table, with all rows up to the instant.
    """

    instant: int
    snapshots: dict[str, Snapshot]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Outcome of a run.

    after, upto: its interval, microseconds since 1970.
    rows: new results.
    published: False: another process has published a run of this interval's beginning, and nothing is changed.
    read: amount that was read of the tables, and of the earlier results.
    missed: by table, the instant up to which versions of the interval may have been dropped before the run.
    """

    after: int
    upto: int
    rows: int
    published: bool
    read: Read = NOTHING
    read_results: Read = NOTHING
    missed: Mapping[str, int] = field(default_factory=dict)


def close(catalogue: Catalogue, tables: Iterable[str]) -> Closed:
    """Close an instant in all tables. Raises ConfigurationError for an unknown table, DependencyError."""
    opened = {name: catalogue.open(name) for name in tables}
    instant = min(table.close() for table in opened.values())
    return Closed(instant, {name: table.snapshot() for name, table in opened.items()})


def run(
    query: InstalledQuery, prepared: PreparedQuery, catalogue: Catalogue, remembered: Remembered | None = None
) -> Run:
    """Execute one run of a query. Results and progress are durable together, or not at all.

    remembered: results of earlier runs, as far as this process has read them.

    Raises QueryError, ConfigurationError (a table or a column is gone), DependencyError. The next run then begins where this
    one began, so nothing is lost, and nothing is published twice.
    """
    begun = begin(query, catalogue)
    closed = close(catalogue, prepared.tables)
    if closed.instant <= begun.after:
        return Run(after=begun.after, upto=begun.after, rows=0, published=False)
    with pinned({catalogue.open(name).table: snapshot for name, snapshot in closed.snapshots.items()}):
        evaluated = prepared.rows(begun.after, closed.instant, closed.snapshots)
    known = Known(remembered or Remembered(), prepared.repeats_within)
    outcome = publish(query, begun, evaluated.rows, closed.instant, known)
    return replace(outcome, read=evaluated.read, missed=missed(closed, begun.after) if outcome.published else {})


def missed(closed: Closed, after: int) -> dict[str, int]:
    """Return the tables whose retention has passed the beginning of an interval, each with the instant of its retention.

    after: 0: the query begins with the rows that there are, and misses none.
    """
    retained = {name: int(snapshot.notes.get(RETAINED, 0)) for name, snapshot in closed.snapshots.items()}
    return {name: instant for name, instant in retained.items() if 0 < after < instant}


class Known(NamedTuple):
    """Results of earlier runs that a new row may equal.

    within: microseconds after its result within which a row may come again; 0: never; None: without end.
    """

    remembered: Remembered
    within: int | None


class Begun(NamedTuple):
    """Beginning of a run: the result table as it was.

    progress: of the query, which must not move until the run is published; None: no run yet.
    after: beginning of the run's interval.
    """

    results: VersionedTable
    before: Snapshot
    progress: int | None
    after: int


def begin(query: InstalledQuery, catalogue: Catalogue) -> Begun:
    """Begin a run of a query. Raises ConfigurationError, DependencyError."""
    results = catalogue.open(query.results)
    before = results.snapshot()
    progress = before.progress.get(query.name)
    return Begun(results, before, progress, query.start if progress is None else progress)


def publish(query: InstalledQuery, begun: Begun, evaluated: Any, upto: int, known: Known) -> Run:
    """Publish the new rows of a run and the query's progress as one entry, unless another process was faster.

    evaluated: an Arrow table.
    Raises SchemaError, DependencyError.
    """
    results, before = begun.results, begun.before
    rows, read_results = fitted(evaluated), NOTHING
    columns = schema_of(rows)
    if rows.num_rows:
        if known.within != 0 and before.files:
            since = None if known.within is None else begun.after - known.within
            rows, read_results = known.remembered.new(rows, results, before, since=since)
        else:
            rows = different(rows)
    results.append(
        numbered(hashed(rows), upto),
        progress={query.name: upto},
        expected={query.name: begun.progress},
        additions=columns,
    )
    published = results.snapshot().progress.get(query.name) == upto
    return Run(
        after=begun.after,
        upto=upto,
        rows=rows.num_rows if published else 0,
        published=published,
        read_results=read_results,
    )
