"""Remembered results: hashes of published rows, so that a run reads earlier results only where they may equal its own."""

from __future__ import annotations

from threading import Lock
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from quaestor.continuous.engine import Read
from quaestor.continuous.installed import HASH, RUN
from quaestor.continuous.runs.results import hashed, matching, without
from quaestor.tables.changes import Snapshot
from quaestor.tables.versioned import VersionedTable

_MOST_ROWS: Final = 5_000_000
"""Remembered rows of all queries; 24 bytes each."""
_MOST_SCANS: Final = 64


class Remembered:
    """Hashes and instants of published rows, by result table. Kept while they fit, and otherwise read again.

    most: rows of all tables together.
    """

    def __init__(self, *, most: int = _MOST_ROWS) -> None:
        self._most = most
        self._kept: dict[VersionedTable, tuple[int, Any]] = {}
        self._lock = Lock()

    def new(
        self, rows: Any, table: VersionedTable, snapshot: Snapshot, *, since: int | None = None
    ) -> tuple[Any, Read]:
        """Return the rows that the table does not have, and what was read of the table. Raises DependencyError.

        rows: with columns that the table may lack: its rows are NULL there.
        since: instant; results of runs up to it are forgotten, because no row can equal them any more. None: none is.

        Only files with a row of an equal hash are read whole.
        """
        remembered, read = self._refreshed(table, snapshot, since)
        instants = matching(remembered, hashed(rows))
        parts = [rows.schema.empty_table()]
        present = table.schema(snapshot).names
        for first, last in joined(instants):
            part = table.scan(snapshot, first - 1, last, [name for name in rows.schema.names if name in present])
            read = read.plus(Read(len(table.files(snapshot, first - 1, last)), part.num_rows, part.nbytes))
            for field in rows.schema:
                if field.name not in present:
                    part = part.append_column(field, pa.nulls(part.num_rows, field.type))
            parts.append(part.select(rows.schema.names).cast(rows.schema))
        return without(rows, pa.concat_tables(parts)), read

    @property
    def rows(self) -> int:
        """Number of the rows that are remembered now."""
        with self._lock:
            return sum(kept.num_rows for _, kept in self._kept.values())

    def forget(self, table: VersionedTable) -> None:
        """Forget the rows of a table."""
        with self._lock:
            self._kept.pop(table, None)

    def _refreshed(self, table: VersionedTable, snapshot: Snapshot, since: int | None) -> tuple[Any, Read]:
        """Return hashes and instants of the rows of a snapshot that still matter, and what was read for them."""
        with self._lock:
            upto, known = self._kept.pop(table, (-1, None))
        fresh = table.scan(snapshot, upto, snapshot.instant, [HASH, RUN])
        read = Read(len(table.files(snapshot, upto, snapshot.instant)), fresh.num_rows, fresh.nbytes)
        rows = fresh if known is None else pa.concat_tables([known, fresh]).combine_chunks()
        if since is not None:
            rows = rows.filter(pc.greater(rows.column(RUN), since))
        with self._lock:
            self._kept[table] = (snapshot.instant, rows)  # the newest is the last
            total = sum(kept.num_rows for _, kept in self._kept.values())
            for oldest in list(self._kept):
                if total <= self._most:
                    break
                total -= self._kept.pop(oldest)[1].num_rows
        return rows, read


def joined(instants: list[int]) -> list[tuple[int, int]]:
    """Return intervals that hold the instants: one each, or fewer and wider ones if there are many."""
    if not instants:
        return []
    gaps = sorted(range(1, len(instants)), key=lambda place: instants[place - 1] - instants[place])
    starts = [0, *sorted(gaps[: _MOST_SCANS - 1])]
    ends = [*starts[1:], len(instants)]
    return [(instants[start], instants[end - 1]) for start, end in zip(starts, ends, strict=True)]
