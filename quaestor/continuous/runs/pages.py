"""Pages of published results: each run with results is a page, and a page never changes."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from threading import Lock
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

from quaestor.continuous.delivery.batch import moment, to_json
from quaestor.continuous.installed import OWN, ROW, RUN, InstalledQueries, InstalledQuery
from quaestor.continuous.plain_rows import plain_rows
from quaestor.tables.catalogue import Catalogue
from quaestor.tables.schema import TS
from quaestor.tables.versioned import VersionedTable

MOST_ROWS: Final = 1_000
"""Rows of one part of a page."""


class PageHead(NamedTuple):
    """Run that has results.

    run: its instant, which is its number.
    """

    run: int
    rows: int


class _Runs:
    """Runs of one result table, by number: their rows, and the instants of their publication.

    Three integers of 8 bytes a run. Each look reads only what is new.
    """

    def __init__(self) -> None:
        self.runs = array("q")
        self.rows = array("q")
        self.published = array("q")
        self._upto = -1
        self._lock = Lock()

    def refresh(self, table: VersionedTable) -> None:
        """Read the runs that are new in a table. Raises DependencyError."""
        with self._lock:
            snapshot = table.snapshot()
            if snapshot.instant <= self._upto:
                return
            if table.files(snapshot, self._upto, snapshot.instant):
                fresh = table.scan(snapshot, self._upto, snapshot.instant, [RUN])
                counted = fresh.group_by([TS, RUN]).aggregate([([], "count_all")]).sort_by(TS)
                for at, run, rows in zip(
                    counted.column(TS).cast("int64").to_pylist(),
                    counted.column(RUN).to_pylist(),
                    counted.column("count_all").to_pylist(),
                    strict=True,
                ):
                    self.runs.append(run)
                    self.rows.append(rows)
                    self.published.append(at)
            self._upto = snapshot.instant


class ResultPages:
    """Pages of the results of all installed queries. Implements the source of pages of `quaestor.live`. Blocks; thread-safe.

    Every method raises ConfigurationError if no query of this name is installed, DependencyError if the storage fails.
    """

    def __init__(self, catalogue: Catalogue, installed: InstalledQueries) -> None:
        self._catalogue = catalogue
        self._installed = installed
        self._known: WeakKeyDictionary[VersionedTable, _Runs] = WeakKeyDictionary()

    def newest(self, name: str) -> int | None:
        """Return the newest run with results; None: there is none."""
        for _, runs in reversed(self._tables(name)):
            if runs.runs:
                return runs.runs[-1]
        return None

    def after(self, name: str, run: int, limit: int) -> list[PageHead]:
        """Return the runs with results after a run, oldest first; 0: from the first one."""
        heads: list[PageHead] = []
        for _, runs in self._tables(name):
            begin = bisect_right(runs.runs, run)
            end = begin + limit - len(heads)
            heads += map(PageHead, runs.runs[begin:end], runs.rows[begin:end])
        return heads

    def body(self, name: str, run: int, first: int = 0) -> str | None:
        """Return a part of a run's page as JSON, from the row of a number on; None: the run has no such rows.

        `previous` is the run before it, `more` the number of the next part's first row. The text never changes.
        """
        before: int | None = None
        for table, runs in self._tables(name):
            place = bisect_left(runs.runs, run)
            if place < len(runs.runs) and runs.runs[place] == run:
                rows = runs.rows[place]
                if not 0 <= first < rows:
                    return None
                return to_json(
                    {
                        "query": name, "run": run, "instant": moment(run), "first": first,
                        "previous": runs.runs[place - 1] if place else before,
                        "more": first + MOST_ROWS if first + MOST_ROWS < rows else None,
                        "rows": _rows(table, runs.published[place], name, run, first),
                    }
                )  # fmt: skip
            before = runs.runs[-1] if runs.runs else before
        return None

    def _tables(self, name: str) -> list[tuple[VersionedTable, _Runs]]:
        """Return the result tables of a query, oldest first, with their present runs."""
        query: InstalledQuery = self._installed.get(name)
        tables = []
        for table in map(self._catalogue.open, query.tables):
            runs = self._known.setdefault(table, _Runs())
            runs.refresh(table)
            tables.append((table, runs))
        return tables


def _rows(table: VersionedTable, published: int, name: str, run: int, first: int) -> list[dict[str, Any]]:
    rows = plain_rows(table.scan(table.snapshot(), published - 1, published).sort_by(ROW).slice(first, MOST_ROWS))
    return [
        {
            "key": f"{name}/{run}/{row[ROW]}",
            "row": {column: value for column, value in row.items() if column not in OWN},
        }
        for row in rows
    ]
