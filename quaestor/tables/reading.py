"""Reading of a table's rows, without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from quaestor.errors import ConfigurationError, DependencyError
from quaestor.tables.changes import DataFile
from quaestor.tables.log import Table

_ATTEMPTS: Final = 5
_ROWS_AT_ONCE: Final = 1_000


def table_rows(
    table: Table, *, keep: Callable[[Mapping[str, str]], bool] = lambda folders: True
) -> Iterator[dict[str, Any]]:
    """Yield the rows of one snapshot of the table.

    keep: whether to read the files of a partition.

    Files compacted meanwhile stay for the grace period. A slower reader raises DependencyError, and never skips rows. Rows of
    compacted files have their instant in `ts`.
    """
    try:
        import pyarrow.parquet as pq
    except ImportError as error:
        raise ConfigurationError("the history needs pyarrow: pip install 'quaestor[spark]'") from error
    for attempt in range(_ATTEMPTS):
        snapshot = table.snapshot()
        wanted = [file for file in snapshot.files.values() if keep(dict(file.partition))]
        missing = [file.path for file in wanted if not (table.root / file.path).exists()]
        if not missing:
            break
        if attempt + 1 == _ATTEMPTS:
            raise DependencyError(
                f"{table.root} lacks {missing[0]} (and {len(missing) - 1} more): restore it", retryable=False
            )
    for file in wanted:
        with pq.ParquetFile(opened(table, file)) as content:
            for batch in content.iter_batches(_ROWS_AT_ONCE):
                yield from batch.to_pylist()


def opened(table: Table, file: DataFile) -> Any:
    """Return a file of a snapshot, for pyarrow. Raises DependencyError if the grace period is over."""
    try:
        return table.storage.open(file.path)
    except FileNotFoundError as error:
        raise DependencyError(f"{file.path} was compacted and deleted while it was being read: read again") from error
