"""Newest version of one record, found by its key. Files and row groups that surely lack the key are not read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import reduce
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from quaestor.tables.changes import DataFile, Snapshot
from quaestor.tables.files import instants, statistics
from quaestor.tables.reading import opened
from quaestor.tables.schema import Schema
from quaestor.tables.versioned import ARROW, VersionedTable

_ROWS_AT_ONCE: Final = 50_000


class Version(NamedTuple):
    """Version of a record.

    instant: of its publication.
    row: all columns of the table, in the form of columns; a column that the file lacks is None.
    """

    instant: int
    row: dict[str, Any]


def newest_version(
    table: VersionedTable, snapshot: Snapshot, key: Mapping[str, Any], *, after: int = -1
) -> Version | None:
    """Return the newest version of a record; None: there is none after an instant.

    key: value of each column of the key, in the form of columns.
    after: only later versions count.

    Files are read from the newest one on, up to the first one with the key. Only columns of the key are read, except where the
    key is found. The memory holds 50,000 rows at a time. Raises DependencyError.
    """
    schema, newest = table.schema(snapshot), None
    for file in sorted(table.files(snapshot, after, snapshot.instant), key=lambda file: file.last, reverse=True):
        if newest is not None and file.last <= newest.instant:
            break
        for instant, row in _versions(table, file, schema, key):
            # One transaction may write several versions of one instant: the last row is the newest.
            if instant > after and (newest is None or instant >= newest.instant):
                newest = Version(instant, {name: row.get(name) for name in schema.names})
    return newest


def _versions(
    table: VersionedTable, file: DataFile, schema: Schema, key: Mapping[str, Any]
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the instants and rows of a file that have a key."""
    with pq.ParquetFile(opened(table.table, file)) as content:
        for group in range(content.num_row_groups):
            if _lacks(content, group, key):
                continue
            batches = content.iter_batches(_ROWS_AT_ONCE, row_groups=[group], columns=list(key))
            places = {number for number, batch in enumerate(batches) if pc.any(_has(batch, schema, key)).as_py()}
            if not places:
                continue
            for number, batch in enumerate(content.iter_batches(_ROWS_AT_ONCE, row_groups=[group])):
                if number in places:
                    has = _has(batch, schema, key)
                    at = pa.array(instants(batch, file)).filter(has).cast(pa.int64())
                    yield from zip(at.to_pylist(), batch.filter(has).to_pylist(), strict=True)


def _has(batch: Any, schema: Schema, key: Mapping[str, Any]) -> Any:
    """Return for each row whether it has a key."""

    def equal(name: str) -> Any:
        kind = schema.type_of(name)
        assert kind is not None
        return pc.fill_null(pc.equal(batch.column(name).cast(ARROW[kind]), pa.scalar(key[name], ARROW[kind])), False)

    return reduce(pc.and_, map(equal, key))


def _lacks(content: Any, group: int, key: Mapping[str, Any]) -> bool:
    """Whether the statistics of a row group show that no row has a key. Only whole numbers and texts are compared."""
    for name, value in key.items():
        known = statistics(content, group, name)
        if known is None or type(known.min) is not type(value) or not isinstance(value, int | str):
            continue
        if not known.min <= value <= known.max:
            return True
    return False
