"""Append of one batch of a streaming query to a table: exactly once, even if the batch is repeated."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from quaestor.tables.changes import Change, DataFile, Snapshot
from quaestor.tables.files import described
from quaestor.tables.log import Table
from quaestor.tables.storage import sync_folder

_PREFIX: Final = 8


def append(table: Table, frame: Any, *, query: str, batch: int, partition_by: Sequence[str], now_ms: int) -> bool:
    """Append a batch; return whether it was added. False: the table has it already, from before a crash.

    frame: a DataFrame with the columns to partition by.
    query: the streaming query's id, which its checkpoint keeps. Unpublished files of an earlier attempt are replaced, or
        removed by maintenance. Raises DependencyError.
    """
    if table.snapshot().has((query, batch)):
        return False
    name = f"{query[:_PREFIX]}-{batch:010d}"
    staged = table.staging / name
    shutil.rmtree(staged, ignore_errors=True)
    frame.repartition(*partition_by).write.mode("overwrite").partitionBy(*partition_by).parquet(str(staged))
    files = tuple(_moved(table, staged, name))
    shutil.rmtree(staged, ignore_errors=True)

    def decide(now: Snapshot) -> Change | None:
        return None if now.has((query, batch)) else Change(add=files, batch=(query, batch))

    table.publish(decide, now_us=now_ms * 1000)
    return True


def _moved(table: Table, staged: Path, name: str) -> Iterator[DataFile]:
    for number, source in enumerate(sorted(staged.rglob("*.parquet"))):
        folders = source.parent.relative_to(staged)
        target = table.data / folders / f"{name}-{number}.parquet"
        target.parent.mkdir(parents=True, exist_ok=True)
        with source.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(source, target)
        sync_folder(target.parent)
        yield described(table, target)
