"""Rewriting of a dataset's records: further versions that are computed from the present ones, in one step.

`rewrite` is for any number of records, and holds all of them in memory. `revise` is for one record, and holds a part of a file.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

import pyarrow as pa

from quaestor.channels.datasets import ATTEMPTS, WRITE, Dataset, visible
from quaestor.channels.records import accepted_rows
from quaestor.channels.versions import LatestVersions, present_record
from quaestor.errors import ConfigurationError, DependencyError
from quaestor.tables.changes import Change, DataFile, Snapshot
from quaestor.tables.inference import DELETED
from quaestor.tables.newest import newest_version
from quaestor.tables.schema import TS
from quaestor.tables.versioned import ARROW, VersionedTable
from quaestor.tasks import pause_after

_FIRST_PAUSE_S: Final = 0.002
_LONGEST_PAUSE_S: Final = 0.1


def rewrite(dataset: Dataset, change: Callable[[Any], Any]) -> int:
    """Write further versions of present records in one step; return their number.

    change: returns records with changed columns for the Arrow table of all records, without hidden columns; called again if
        another writer was faster. A record whose hidden mark `_deleted` it adds and sets is deleted.

    Raises ConfigurationError if the dataset has several partitions, DependencyError.
    """
    if len(dataset.partitions) > 1:
        raise ConfigurationError(f"dataset {dataset.name!r} has several partitions: write its records by upsert")
    table = dataset.partitions[0]
    for _ in range(ATTEMPTS):
        seen = table.snapshot()
        latest = LatestVersions(table, visible(table.schema(seen)))
        rows = change(latest.at(seen, seen.instant).drop_columns([TS]))
        if not rows.num_rows:
            return 0
        if DELETED not in rows.schema.names:
            rows = rows.append_column(DELETED, pa.repeat(False, rows.num_rows))
        file = table.prepare(rows, table.schema(seen))
        after = table.publish(_unless_written(file, seen), [file])
        if file.path in after.files:
            return int(rows.num_rows)
    raise DependencyError(f"dataset {dataset.name!r}: other writers are always faster; run fewer writers at a time")


def _unless_written(file: DataFile, seen: Snapshot) -> Callable[[Snapshot], Change | None]:
    """Return the decision to publish a file if no other writer has written since a state."""
    written = Change(add=(file,), notes={WRITE: uuid.uuid4().hex[:16]})

    def decide(now: Snapshot) -> Change | None:
        return written if now.notes.get(WRITE) == seen.notes.get(WRITE) else None

    return decide


def revise(
    dataset: Dataset,
    key: Mapping[str, Any],
    change: Callable[[dict[str, Any]], Mapping[str, Any]],
    *,
    pause: Callable[[float], None] = time.sleep,
) -> bool:
    """Write fields over those of one record; return whether the record is there.

    key: value of each column of the key.
    change: returns the fields to write for the present record; called again if another writer has written this record meanwhile.
        A true hidden mark `_deleted` deletes the record.
    pause: waits for seconds before another attempt, in this thread.

    Writers of other records are no reason for another attempt. Raises ValueError for fields that do not fit, DependencyError.
    """
    table = dataset.table_of(key)
    for attempt in range(ATTEMPTS):
        if attempt:
            pause(pause_after(attempt, first_s=_FIRST_PAUSE_S, longest_s=_LONGEST_PAUSE_S))
        seen = table.snapshot()
        schema, row = table.schema(seen), present_record(table, seen, key)
        if row is None:
            return False
        accepted = accepted_rows([{**key, **change(row)}], schema, extensible=False)
        for rejected in accepted.rejected:
            raise ValueError(rejected.reason)
        fields = pa.schema([(column.name, ARROW[column.type]) for column in schema.columns])
        file = table.prepare(pa.Table.from_pylist([{**row, DELETED: False, **accepted.rows[0].values}], fields), schema)
        if file.path in table.publish(_unless_revised(table, file, key, seen), [file]).files:
            return True
    raise DependencyError(f"dataset {dataset.name!r}: other writers of a record are always faster; write it less often")


def _unless_revised(
    table: VersionedTable, file: DataFile, key: Mapping[str, Any], seen: Snapshot
) -> Callable[[Snapshot], Change | None]:
    """Return the decision to publish a file if no version of a record has been published since a state."""
    written = Change(add=(file,), notes={WRITE: uuid.uuid4().hex[:16]})
    examined = seen.instant

    def decide(now: Snapshot) -> Change | None:
        nonlocal examined
        if newest_version(table, now, key, after=examined) is not None:
            return None
        examined = now.instant
        return written

    return decide
