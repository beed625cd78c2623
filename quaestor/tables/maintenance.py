"""Maintenance of a table: small files become larger ones, and old ones go.

Maintenance may be interrupted at any moment, and may run beside the job and readers.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from quaestor.tables.files import described
from quaestor.tables.log import Change, DataFile, Snapshot, Table, sync_folder

DATE: Final = "date"
_FEWEST: Final = 2
_UNPUBLISHED_S: Final = 600.0
"""Age from which a file outside the log counts as abandoned: no writer takes longer to publish one."""
_MOST_AT_ONCE: Final = 1_000
_ROWS_AT_ONCE: Final = 2_000
_GROUP_ROWS: Final = 20_000
_GROUP_BYTES: Final = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Maintained:
    """Numbers of files that one maintenance has touched."""

    compacted: int = 0
    made: int = 0
    expired: int = 0
    deleted: int = 0


def maintain(table: Table, *, file_bytes: int, keep_days: int, grace_s: float, now_ms: int) -> Maintained:
    """Compact, drop files older than keep_days (0: none), delete files without readers. Raises DependencyError."""
    compacted = made = 0
    for group in _groups(table.snapshot(), file_bytes):
        if compact(table, group, now_ms=now_ms):
            compacted, made = compacted + len(group), made + 1
    expired = expire(table, keep_days=keep_days, now_ms=now_ms) if keep_days else 0
    deleted = tidy(table, grace_s=grace_s, now_ms=now_ms)
    return Maintained(compacted=compacted, made=made, expired=expired, deleted=deleted)


def _groups(snapshot: Snapshot, file_bytes: int) -> Iterator[list[DataFile]]:
    """Yield groups of small files of one partition, each group about as large as a file should be."""
    by_partition: dict[tuple[tuple[str, str], ...], list[DataFile]] = {}
    for file in snapshot.files.values():
        if file.bytes < file_bytes:
            by_partition.setdefault(file.partition, []).append(file)
    for files in by_partition.values():
        group: list[DataFile] = []
        size = 0
        for file in sorted(files, key=lambda data_file: data_file.path):
            if group and (size + file.bytes > file_bytes or len(group) >= _MOST_AT_ONCE):
                if len(group) >= _FEWEST:
                    yield group
                group, size = [], 0
            group.append(file)
            size += file.bytes
        if len(group) >= _FEWEST:
            yield group


def compact(table: Table, files: Sequence[DataFile], *, now_ms: int) -> bool:
    """Join these files; return whether one file now holds their rows. O(rows), bounded memory.

    False: another process removed one of them meanwhile.
    """
    folder = (table.root / files[0].path).parent
    target = folder / f"compacted-{uuid.uuid4().hex}.parquet"
    rows = _write(target, [table.root / file.path for file in files])
    if rows != sum(file.rows for file in files):
        target.unlink()
        raise ValueError(f"{target} would hold {rows} rows, not {sum(file.rows for file in files)}")
    sync_folder(folder)
    made, gone = described(table, target), tuple(file.path for file in files)

    def decide(now: Snapshot) -> Change | None:
        return Change(add=(made,), remove=gone) if all(path in now.files for path in gone) else None

    published = made.path in table.publish(decide, now_ms=now_ms).files
    if not published:
        target.unlink()
    return published


def _write(target: Path, sources: Sequence[Path]) -> int:
    """Write a file. Row groups are bounded in rows and bytes, so that large documents do not fill the memory."""
    schema = pq.read_schema(sources[0]).remove_metadata()
    rows = size = pending_rows = 0
    pending: list[pa.RecordBatch] = []
    with pq.ParquetWriter(target, schema, compression="zstd") as writer:
        for source in sources:
            with pq.ParquetFile(source) as file:
                for batch in file.iter_batches(_ROWS_AT_ONCE):
                    pending.append(batch.cast(schema))
                    size, pending_rows = size + batch.nbytes, pending_rows + batch.num_rows
                    rows += batch.num_rows
                    if pending_rows >= _GROUP_ROWS or size >= _GROUP_BYTES:
                        writer.write_table(pa.Table.from_batches(pending, schema))
                        pending, size, pending_rows = [], 0, 0
        if pending:
            writer.write_table(pa.Table.from_batches(pending, schema))
    with target.open("rb") as written:
        os.fsync(written.fileno())
    return rows


def expire(table: Table, *, keep_days: int, now_ms: int) -> int:
    """Remove the days (UTC) before the last keep_days; return the number of removed files."""
    first = (datetime.fromtimestamp(now_ms / 1000, UTC) - timedelta(days=keep_days)).date().isoformat()

    def old(now: Snapshot) -> tuple[str, ...]:
        return tuple(file.path for file in now.files.values() if dict(file.partition).get(DATE, first) < first)

    def decide(now: Snapshot) -> Change | None:
        return Change(remove=old_files) if (old_files := old(now)) else None

    count = len(old(table.snapshot()))
    table.publish(decide, now_ms=now_ms)
    return count


def tidy(table: Table, *, grace_s: float, now_ms: int) -> int:
    """Delete files that were removed, or left behind unpublished, longer than grace_s ago."""
    before_ms, unpublished_before_ms = (now_ms - int(s * 1000) for s in (grace_s, max(grace_s, _UNPUBLISHED_S)))
    snapshot = table.snapshot()
    gone = [path for path, removed_ms in snapshot.removed.items() if removed_ms <= before_ms]
    for path in gone:
        (table.root / path).unlink(missing_ok=True)
    if gone:
        table.publish(lambda now: Change(forget=tuple(path for path in gone if path in now.removed)), now_ms=now_ms)
    known = snapshot.files.keys() | snapshot.removed.keys()
    left = [
        path
        for path in table.data.rglob("*.parquet")
        if str(path.relative_to(table.root)) not in known and path.stat().st_mtime * 1000 <= unpublished_before_ms
    ]
    current = table.snapshot().files if left else {}
    for orphan in left:
        if str(orphan.relative_to(table.root)) not in current:
            orphan.unlink(missing_ok=True)
            gone.append(str(orphan))
    _remove_empty(table.data, unpublished_before_ms)
    return len(gone)


def _remove_empty(root: Path, before_ms: int) -> None:
    for folder in sorted((path for path in root.rglob("*") if path.is_dir()), reverse=True):
        try:
            if folder.stat().st_mtime * 1000 <= before_ms:
                folder.rmdir()
        except OSError:
            continue  # the folder is in use
