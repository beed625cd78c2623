"""Maintenance of a table: small files become larger ones, and old ones go.

Maintenance may be interrupted at any moment, and may run beside writers and readers. A snapshot stays readable for the grace
period after a maintenance; a run over a snapshot must be shorter.
"""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from quaestor.tables.changes import Change, DataFile, Snapshot
from quaestor.tables.files import TS_TYPE, data_file, instants
from quaestor.tables.log import Table
from quaestor.tables.pins import oldest_pin
from quaestor.tables.schema import STEP, TS
from quaestor.tables.storage import DRAFTS, FolderStorage

DATE: Final = "date"
_FEWEST: Final = 2
_UNPUBLISHED_S: Final = 6 * 3600.0
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
    for group in groups(table.snapshot(), file_bytes):
        if compact(table, group, now_ms=now_ms):
            compacted, made = compacted + len(group), made + 1
    expired = expire(table, keep_days=keep_days, now_ms=now_ms) if keep_days else 0
    deleted = tidy(table, grace_s=grace_s, now_ms=now_ms)
    return Maintained(compacted=compacted, made=made, expired=expired, deleted=deleted)


def groups(snapshot: Snapshot, file_bytes: int) -> Iterator[list[DataFile]]:
    """Yield groups of small files of one partition, each group about as large as a file should be.

    The files of a group are adjacent in time: no other file of the partition has rows between theirs.
    """
    by_partition: dict[tuple[tuple[str, str], ...], list[DataFile]] = {}
    for file in snapshot.files.values():
        by_partition.setdefault(file.partition, []).append(file)
    for files in by_partition.values():
        group: list[DataFile] = []
        size = 0
        for file in sorted(files, key=lambda data_file: (data_file.first, data_file.last, data_file.path)):
            large = file.bytes >= file_bytes
            if group and (large or size + file.bytes > file_bytes or len(group) >= _MOST_AT_ONCE):
                if len(group) >= _FEWEST:
                    yield group
                group, size = [], 0
            if not large:
                group.append(file)
                size += file.bytes
        if len(group) >= _FEWEST:
            yield group


def compact(table: Table, files: Sequence[DataFile], *, now_ms: int) -> bool:
    """Join these files; return whether one file now holds their rows. O(rows), bounded memory.

    files: of one partition, and adjacent in time; the new file has the instant of each row in the column `ts`.

    False: another process removed one of them meanwhile.
    """
    path = f"{files[0].path.rpartition('/')[0]}/compacted-{uuid.uuid4().hex}.parquet"
    with tempfile.TemporaryDirectory(dir=drafts(table)) as folder:
        draft = Path(folder, "compacted.parquet")
        rows = _write(draft, table, files)
        if rows != sum(file.rows for file in files):
            raise ValueError(f"{path} would hold {rows} rows, not {sum(file.rows for file in files)}")
        size = draft.stat().st_size
        table.storage.take(path, draft)
    first, last = min(file.first for file in files), max(file.last for file in files)
    made = replace(data_file(path, rows=rows, size=size), first=first, last=last)
    gone = tuple(file.path for file in files)

    def decide(now: Snapshot) -> Change | None:
        return Change(add=(made,), remove=gone) if all(path in now.files for path in gone) else None

    published = made.path in table.publish(decide, now_us=now_ms * 1000).files
    if not published:
        table.storage.delete(path)
    return published


def drafts(table: Table) -> Path | None:
    """Return the folder of drafts, in the table's own file system if it lies in one."""
    if not isinstance(table.storage, FolderStorage):
        return None
    folder = table.storage.root / DRAFTS
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _write(target: Path, table: Table, files: Sequence[DataFile]) -> int:
    """Write a file. Row groups are bounded in rows and bytes, so that large documents do not fill the memory."""
    schema = _joined_schema(table, files)
    rows = size = pending_rows = 0
    pending: list[pa.RecordBatch] = []
    with pq.ParquetWriter(target, schema, compression="zstd") as writer:
        for file in files:
            with pq.ParquetFile(table.storage.open(file.path)) as opened:
                for batch in opened.iter_batches(_ROWS_AT_ONCE):
                    pending.append(_conformed(batch, file, schema))
                    size, pending_rows = size + batch.nbytes, pending_rows + batch.num_rows
                    rows += batch.num_rows
                    if pending_rows >= _GROUP_ROWS or size >= _GROUP_BYTES:
                        writer.write_table(pa.Table.from_batches(pending, schema))
                        pending, size, pending_rows = [], 0, 0
        if pending:
            writer.write_table(pa.Table.from_batches(pending, schema))
    return rows


def _joined_schema(table: Table, files: Sequence[DataFile]) -> Any:
    """Return the columns of all files, of the newest file's types, and `ts` at the end."""
    fields: dict[str, Any] = {}
    for file in files:
        with pq.ParquetFile(table.storage.open(file.path)) as opened:
            fields.update((field.name, field) for field in opened.schema_arrow.remove_metadata())
    fields = {name: field.with_nullable(True) for name, field in fields.items() if name not in (TS, STEP)}
    return pa.schema([*fields.values(), pa.field(TS, TS_TYPE)])


def _conformed(batch: Any, file: DataFile, schema: Any) -> Any:
    """Return a batch with these columns: missing ones are NULL."""
    at = instants(batch, file)
    names = set(batch.schema.names)
    columns = [
        at
        if field.name == TS
        else batch.column(field.name).cast(field.type, safe=False)
        if field.name in names
        else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def expire(table: Table, *, keep_days: int, now_ms: int) -> int:
    """Remove the days (UTC) before the last keep_days; return the number of removed files."""
    first = (datetime.fromtimestamp(now_ms / 1000, UTC) - timedelta(days=keep_days)).date().isoformat()

    def old(now: Snapshot) -> tuple[str, ...]:
        return tuple(file.path for file in now.files.values() if dict(file.partition).get(DATE, first) < first)

    def decide(now: Snapshot) -> Change | None:
        return Change(remove=old_files) if (old_files := old(now)) else None

    count = len(old(table.snapshot()))
    table.publish(decide, now_us=now_ms * 1000)
    return count


def tidy(table: Table, *, grace_s: float, now_ms: int) -> int:
    """Delete files that were removed, or left behind unpublished, longer than grace_s ago. Pinned files stay."""
    before_ms, unpublished_before_ms = (now_ms - int(s * 1000) for s in (grace_s, max(grace_s, _UNPUBLISHED_S)))
    snapshot = table.snapshot()
    pin = oldest_pin(table, now_ms=now_ms)
    if pin is not None:
        before_ms = min(before_ms, pin // 1000 - 1)
    gone = [path for path, removed_ms in snapshot.removed.items() if removed_ms <= before_ms]
    for path in gone:
        table.storage.delete(path)
    if gone:
        table.publish(
            lambda now: Change(forget=tuple(path for path in gone if path in now.removed)), now_us=now_ms * 1000
        )
    known = snapshot.files.keys() | snapshot.removed.keys()
    left = [
        stored.path
        for folder in ("data", DRAFTS)
        for stored in table.storage.list(folder)
        if stored.path not in known and stored.modified_ms <= unpublished_before_ms
    ]
    current = table.snapshot().files if left else {}
    for path in left:
        if path not in current:
            table.storage.delete(path)
            gone.append(path)
    if isinstance(table.storage, FolderStorage):
        for folder in ("data", DRAFTS):
            _remove_empty(table.storage.root / folder, unpublished_before_ms)
    return len(gone)


def _remove_empty(root: Path, before_ms: int) -> None:
    for folder in sorted((path for path in root.rglob("*") if path.is_dir()), reverse=True):
        try:
            if folder.stat().st_mtime * 1000 <= before_ms:
                folder.rmdir()
        except OSError:
            continue  # the folder is in use
