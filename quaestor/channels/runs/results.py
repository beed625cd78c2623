"""Results of a channel: one table, one entry for each run. The entry holds the results and the bounds that they come from."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from quaestor.channels.membership import NUMBER
from quaestor.channels.rewriting.joining import TARGET
from quaestor.continuous.arrow_sql import quoted, selected
from quaestor.continuous.delivery.batch import to_json
from quaestor.tables.catalogue import Catalogue
from quaestor.tables.changes import Change, DataFile, Snapshot
from quaestor.tables.schema import Column, Schema, Type
from quaestor.tables.versioned import VersionedTable

RUN: Final = "run"
ROW: Final = "row"
RECORD: Final = "record"
MEMBERS_AT: Final = "members_at"
SCHEMA: Final = Schema(
    (
        Column(RUN, Type.BIGINT),
        Column(ROW, Type.BIGINT),
        Column("target", Type.TEXT),
        Column("broker", Type.TEXT),
        Column(MEMBERS_AT, Type.BIGINT),
        Column(RECORD, Type.TEXT),
    )
)
"""run: instant of the run. target: group or subscription. members_at: instant of the subscriptions that the run has read."""
_PROGRESS: Final = "channel"
_BOUNDS: Final = "bounds"
_OLDEST: Final = "oldest"
_FILLED: Final = "filled"
"""Note: the newest run that has results."""
_DIRECT: Final = 2_000
"""Rows up to which each is encoded by itself."""

Bounds = Mapping[str, tuple[int, ...]]
"""Instant up to which a run has read each partition of each dataset, by dataset."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Newest run of a channel. run: None: no run yet; `bounds` are then those of the channel's start.

    least: least instant of a next run.
    """

    run: int | None
    bounds: Bounds
    least: int


class Results:
    """Result table of a channel. Methods raise DependencyError."""

    def __init__(self, catalogue: Catalogue, channel: str) -> None:
        self.table: VersionedTable = catalogue.open(table_name(channel))

    @classmethod
    def create(cls, catalogue: Catalogue, channel: str, start: Bounds) -> Results:
        """Create the table, with the bounds after which records are new. Raises ConfigurationError if it exists."""
        catalogue.create_all({table_name(channel): SCHEMA}, {_BOUNDS: json.dumps(start)})
        return cls(catalogue, channel)

    def progress(self, snapshot: Snapshot | None = None) -> Progress:
        """Return the newest run."""
        known = snapshot or self.table.snapshot()
        bounds = json.loads(known.notes[_BOUNDS])
        parts = {name: tuple(instants) for name, instants in bounds.items()}
        return Progress(known.progress.get(_PROGRESS), parts, known.instant + 1)

    def publish(self, parts: Iterable[Any], run: int, before: Progress, bounds: Bounds) -> int | None:
        """Publish the results of a run and its bounds as one entry; return the number of results, None: not published.

        parts: from `numbered`; each becomes a file.
        before: progress from which the run began. If the table has another one, another process was faster.

        A run is published at its instant or later, and before the next run: instants of entries and runs have one order.
        """
        published = False
        with self.table.preparing() as files:
            files += (self.table.prepare(rows, SCHEMA) for rows in parts if rows.num_rows)

        def decide(now: Snapshot) -> Change | None:
            nonlocal published
            published = now.progress.get(_PROGRESS) == before.run
            notes = {_BOUNDS: json.dumps(bounds)} | ({_FILLED: str(run)} if files else {})
            change = Change(add=tuple(files), progress={_PROGRESS: run}, notes=notes)
            return change if published else None

        self.table.publish(decide, files, now_us=run)
        return sum(file.rows for file in files) if published else None

    def without_delivered(self, rows: Any) -> Any:
        """Return the rows (target, broker, record) whose target has not received the record yet."""
        snapshot = self.table.snapshot()
        known = self.table.scan(snapshot, -1, snapshot.instant, ["target", RECORD])
        query = "SELECT target, broker, record FROM fresh ANTI JOIN known USING (target, record)"
        return selected(query, {"fresh": rows, "known": known}).cast(rows.schema)

    def runs(self, after: int) -> Iterator[Any]:
        """Yield the rows of the runs after a run, one or more whole runs at a time, oldest first.

        Files of earlier runs are not opened.
        """
        snapshot = self.table.snapshot()
        for first, last in _intervals(self.table.files(snapshot, after - 1, snapshot.instant)):
            rows = self.table.scan(snapshot, first - 1, last)
            yield rows.filter(pc.greater(rows.column(RUN), pa.scalar(after, pa.int64())))

    def newest(self, most: int) -> Iterator[Any]:
        """Yield the rows of the newest runs with results, so many times one or more whole runs."""
        snapshot = self.table.snapshot()
        for first, last in _intervals(self.table.files(snapshot, -1, snapshot.instant))[-most:]:
            yield self.table.scan(snapshot, first - 1, last)

    def newest_filled(self) -> int:
        """Return the newest run that has results; 0: there was none."""
        return int(self.table.snapshot().notes.get(_FILLED, 0))

    def oldest(self) -> int:
        """Return the first run whose results are kept; 0: nothing was dropped yet."""
        return int(self.table.snapshot().notes.get(_OLDEST, 0))

    def has_before(self, instant: int) -> bool:
        """Return whether `retain` would drop a file."""
        return any(file.last <= instant for file in self.table.snapshot().files.values())

    def retain(self, after: int) -> int:
        """Drop the runs up to a run, and return the number of their files. Maintenance deletes the files later."""
        removed: tuple[str, ...] = ()

        def decide(now: Snapshot) -> Change | None:
            nonlocal removed
            removed = tuple(path for path, file in now.files.items() if file.last <= after)
            oldest = str(max(int(now.notes.get(_OLDEST, 0)), after + 1))
            return Change(remove=removed, notes={_OLDEST: oldest}) if removed else None

        self.table.publish(decide)
        return len(removed)


def _intervals(files: Iterable[DataFile]) -> list[tuple[int, int]]:
    """Return the intervals of instants of files, in order. The files of one run, which have one instant, have one interval."""
    intervals: list[tuple[int, int]] = []
    for file in files:
        if intervals and file.first <= intervals[-1][1]:
            intervals[-1] = intervals[-1][0], max(file.last, intervals[-1][1])
        else:
            intervals.append((file.first, file.last))
    return intervals


def table_name(channel: str) -> str:
    """Return the name of the table of a channel's results."""
    return f"{channel}_results"


def encoded(rows: Any) -> Any:
    """Return number of parameters and record of each row of a plan; the record is JSON."""
    names = rows.schema.names[1:]
    if rows.num_rows <= _DIRECT:
        texts = pa.array([to_json(record) for record in rows.select(names).to_pylist()], pa.string())
    else:
        texts = _encoded_once(rows, names)
    return pa.table([rows.column(TARGET).cast(pa.int64()), texts], names=[NUMBER, RECORD])


def different(rows: Any) -> Any:
    """Return each pair of number and record once. Parts of a run come later: equal rows could fall into several."""
    return rows.group_by([NUMBER, RECORD]).aggregate([])


def numbered(parts: Iterable[Any], run: int, members_at: int) -> Iterator[Any]:
    """Yield rows (target, broker, record) in their order, with the columns of the table."""
    first = 0
    for rows in parts:
        count = rows.num_rows
        columns = {
            RUN: pa.repeat(pa.scalar(run, pa.int64()), count),
            ROW: pa.array(range(first, first + count), pa.int64()),
            "target": rows.column("target"),
            "broker": rows.column("broker"),
            MEMBERS_AT: pa.repeat(pa.scalar(members_at, pa.int64()), count),
            RECORD: rows.column(RECORD),
        }
        first += count
        yield pa.table(columns)


def _encoded_once(rows: Any, names: list[str]) -> Any:
    """Return the JSON of each row; equal records are encoded once, because many targets share a record."""
    numbers = pa.array(range(rows.num_rows), pa.int64())
    columns = ", ".join(map(quoted, names))
    query = f"SELECT {columns}, list(_number) AS _numbers FROM numbered GROUP BY {columns}"
    grouped = selected(query, {"numbered": rows.select(names).append_column("_number", numbers)}).combine_chunks()
    texts = pa.array([to_json(record) for record in grouped.select(names).to_pylist()], pa.string())
    lists = grouped.column("_numbers").combine_chunks()
    places = pc.list_flatten(lists)
    return texts.take(pc.list_parent_indices(lists)).take(pc.sort_indices(places))
