"""Rewriting of a dataset's records: further versions that are computed from the present ones, in one step."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from quaestor.channels.datasets import ATTEMPTS, WRITE, Dataset, visible
from quaestor.channels.versions import LatestVersions
from quaestor.errors import ConfigurationError, DependencyError
from quaestor.tables.changes import Change, DataFile, Snapshot
from quaestor.tables.inference import DELETED
from quaestor.tables.schema import TS


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
