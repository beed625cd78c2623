"""Run of a continuous query over (after, upto]: closes the instant, executes, publishes results and progress as one entry."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from quaestor.continuous.engine import NOTHING, PreparedQuery, Read
from quaestor.continuous.installed import InstalledQuery
from quaestor.continuous.runs.remembered import Remembered
from quaestor.continuous.runs.results import different, fitted, hashed, numbered, schema_of
from quaestor.tables.catalogue import Catalogue
from quaestor.tables.changes import Snapshot
from quaestor.tables.pins import pinned


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
    """

    after: int
    upto: int
    rows: int
    published: bool
    read: Read = NOTHING
    read_results: Read = NOTHING


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
    results = catalogue.open(query.results)
    before = results.snapshot()
    progress = before.progress.get(query.name)
    after = query.start if progress is None else progress
    closed = close(catalogue, prepared.tables)
    if closed.instant <= after:
        return Run(after=after, upto=after, rows=0, published=False)
    with pinned({catalogue.open(name).table: snapshot for name, snapshot in closed.snapshots.items()}):
        evaluated = prepared.rows(after, closed.instant, closed.snapshots)
    rows, read_results = fitted(evaluated.rows), NOTHING
    columns = schema_of(rows)
    if rows.num_rows:
        known = results.schema(before).names
        if prepared.may_repeat and before.files and all(name in known for name in rows.schema.names):
            rows, read_results = (remembered or Remembered()).new(rows, results, before)
        else:
            rows = different(rows)
    results.append(
        numbered(hashed(rows), closed.instant),
        progress={query.name: closed.instant},
        expected={query.name: progress},
        additions=columns,
    )
    published = results.snapshot().progress.get(query.name) == closed.instant
    return Run(
        after=after,
        upto=closed.instant,
        rows=rows.num_rows if published else 0,
        published=published,
        read=evaluated.read,
        read_results=read_results,
    )
