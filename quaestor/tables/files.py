"""Parquet files of a table: their description in the log's form, and the instants of their rows.

A file has the instants of its rows in one of three forms:

- a file whose entry has a single instant has no column for it;
- a file whose entry has several instants has the column `_step`: the instant is `first + _step`;
- a file made by compaction has the column `ts`, the instant of each row.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from quaestor.tables.changes import DataFile
from quaestor.tables.log import Table
from quaestor.tables.schema import STEP, TS

TS_TYPE: Final = pa.timestamp("us", tz="UTC")


def described(table: Table, path: Path) -> DataFile:
    """Return a file below `data` in the log's form."""
    relative = path.relative_to(table.root)
    return data_file(relative.as_posix(), rows=pq.read_metadata(path).num_rows, size=path.stat().st_size)


def data_file(path: str, *, rows: int, size: int) -> DataFile:
    """Return a file that is not in the table yet in the log's form. Its folders are its partition."""
    folders = path.split("/")[1:-1]
    return DataFile(
        path=path,
        rows=rows,
        bytes=size,
        partition=tuple((name, unquote(value)) for name, _, value in (folder.partition("=") for folder in folders)),
    )


def instants(batch: Any, file: DataFile) -> Any:
    """Return the instants of the rows of a batch: an array of TS_TYPE.

    batch: record batch or table of this file, with its columns `ts` or `_step` if it has one.
    """
    if TS in batch.schema.names:
        return batch.column(TS)
    if STEP in batch.schema.names:
        return pc.add(batch.column(STEP), pa.scalar(file.first, pa.int64())).cast(TS_TYPE)
    return pa.repeat(pa.scalar(file.first, pa.int64()), batch.num_rows).cast(TS_TYPE)


def statistics(content: Any, group: int, name: str) -> Any:
    """Return the statistics of a column in a row group, with least and largest value; None: there are none.

    content: pq.ParquetFile. A point is two columns of the file, so numbers of columns in its schema are no guide.
    """
    columns = content.metadata.row_group(group)
    for number in range(columns.num_columns):
        column = columns.column(number)
        if column.path_in_schema == name:
            known = column.statistics
            return known if known is not None and known.has_min_max else None
    return None
