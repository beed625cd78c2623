"""Description of a Parquet file in the form of the log."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

import pyarrow.parquet as pq

from quaestor.tables.log import DataFile, Table


def described(table: Table, path: Path) -> DataFile:
    """Return a file below `data` in the log's form."""
    relative = path.relative_to(table.root)
    folders = relative.parts[1:-1]
    return DataFile(
        path=str(relative),
        rows=pq.read_metadata(path).num_rows,
        bytes=path.stat().st_size,
        partition=tuple((name, unquote(value)) for name, _, value in (folder.partition("=") for folder in folders)),
    )
