"""Retention of versioned tables: what is older than an instant goes, except versions that were still valid then."""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from quaestor.tables.changes import Change, DataFile, Snapshot
from quaestor.tables.files import TS_TYPE, data_file
from quaestor.tables.inference import DELETED
from quaestor.tables.maintenance import Maintained, drafts, maintain
from quaestor.tables.schema import TS
from quaestor.tables.versioned import VersionedTable

RETAINED: Final = "retained_from"
"""Note of the log: the instant of the last retention. Rows before it may be missing."""
_FILE_BYTES: Final = 64 * 1024 * 1024
_GRACE_S: Final = 3_600.0
_DAY_US: Final = 86_400_000_000


def retain(table: VersionedTable, *, before: int) -> int:
    """Remove old rows; return their number. Replaced files stay for the grace period, and for pins.

    before: instant. In a table without a key every row up to it goes. In a table of versions, superseded versions up to it
        go, and deletions. The records of that instant stay as they were.

    Memory: the keys of the old rows. Raises DependencyError.
    """
    snapshot = table.snapshot()
    if int(snapshot.notes.get(RETAINED, 0)) >= before:
        return 0
    old = table.files(snapshot, -1, before)
    if not old:
        return 0
    total = sum(file.rows for file in old)
    kept = _kept(table, snapshot, old, before)
    count = sum(map(len, kept))
    made = _rewritten(table, snapshot, old, kept) if 0 < count < total else None
    gone = tuple(file.path for file in old) if count < total else ()
    notes = {RETAINED: str(before)}

    def decide(now: Snapshot) -> Change | None:
        if any(path not in now.files for path in gone):
            return None  # a compaction was faster; the next retention looks again
        return Change(add=() if made is None else (made,), remove=gone, notes=notes)

    after = table.publish(decide)
    if made is not None and made.path not in after.files:
        table.table.storage.delete(made.path)
        return 0
    return total - count


def maintained(table: VersionedTable, *, keep_days: int, now_ms: int) -> Maintained:
    """Maintain a table: join small files, drop superseded versions of earlier days (UTC), delete files without readers.

    keep_days: 0: nothing is dropped.
    """
    if keep_days:
        today = now_ms * 1000 // _DAY_US
        retain(table, before=(today - keep_days) * _DAY_US)
    return maintain(table.table, file_bytes=_FILE_BYTES, keep_days=0, grace_s=_GRACE_S, now_ms=now_ms)


def _kept(table: VersionedTable, snapshot: Snapshot, files: Sequence[DataFile], before: int) -> list[list[int]]:
    """Return the places of the rows that stay, by file: later ones, and the last ones of their keys that are no deletions."""
    schema = table.schema(snapshot)
    marks = (DELETED,) if schema.type_of(DELETED) is not None else ()
    last: dict[tuple[Any, ...], tuple[int, int, bool]] = {}
    kept: list[list[int]] = [[] for _ in files]
    for number, rows in enumerate(_each(table, snapshot, files, (*schema.key, *marks))):
        at = rows.column(TS).cast(pa.int64()).to_pylist()
        deleted = rows.column(DELETED).to_pylist() if marks else [None] * rows.num_rows
        keys = [rows.column(name).to_pylist() for name in schema.key]
        for place, instant in enumerate(at):
            if instant > before:
                kept[number].append(place)
            elif keys:
                last[tuple(column[place] for column in keys)] = (number, place, bool(deleted[place]))
    for number, place, gone in last.values():
        if not gone:
            kept[number].append(place)
    return [sorted(places) for places in kept]


def _rewritten(
    table: VersionedTable, snapshot: Snapshot, files: Sequence[DataFile], kept: Sequence[Sequence[int]]
) -> DataFile:
    """Write the kept rows of files to a new file, with the instant of each row."""
    path = f"data/retained-{uuid.uuid4().hex}.parquet"
    instants: list[int] = []
    with tempfile.TemporaryDirectory(dir=drafts(table.table)) as folder:
        draft = Path(folder, "retained.parquet")
        writer: pq.ParquetWriter | None = None
        for places, rows in zip(kept, _each(table, snapshot, files, None), strict=True):
            chosen = rows.take(pa.array(places, pa.int64()))
            writer = writer or pq.ParquetWriter(draft, chosen.schema, compression="zstd")
            writer.write_table(chosen)
            if places:
                edges = pc.min_max(chosen.column(TS).cast(TS_TYPE).cast(pa.int64())).as_py()
                instants += [edges["min"], edges["max"]]
        assert writer is not None
        writer.close()
        size = draft.stat().st_size
        table.table.storage.take(path, draft)
    described = data_file(path, rows=sum(map(len, kept)), size=size)
    return replace(described, first=min(instants), last=max(instants))


def _each(
    table: VersionedTable, snapshot: Snapshot, files: Sequence[DataFile], columns: Sequence[str] | None
) -> Iterator[Any]:
    """Yield the rows of each file."""
    for file in files:
        alone = replace(snapshot, files={file.path: file})
        yield table.scan(alone, file.first - 1, file.last, columns)
