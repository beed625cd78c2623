"""Writer in a process of its own, which may be killed at a step: `python -m tests.versioned.writer PLACE NAME COUNT DIE_AT`.

Appends the numbers that follow its progress, and prints each number that is durable. Before change DIE_AT of the storage (counted
from 0, even) or after it (odd) the process kills itself.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from quaestor.tables import log
from quaestor.tables.log import Table
from quaestor.tables.object_storage import ObjectStorage
from quaestor.tables.schema import Column, Schema, Type
from quaestor.tables.storage import FolderStorage, LogStorage
from quaestor.tables.versioned import VersionedTable
from tests.versioned.object_store import store_at

SCHEMA = Schema((Column("writer", Type.TEXT), Column("n", Type.BIGINT)))


def storage_at(place: str) -> LogStorage:
    """Storage of a place: a path, or `URL#prefix`."""
    if place.startswith("http"):
        url, _, prefix = place.partition("#")
        return ObjectStorage(store_at(url), prefix)
    return FolderStorage(Path(place))


def table_at(place: str) -> VersionedTable:
    """Table of the writers."""
    return VersionedTable(Table(storage_at(place)), SCHEMA, "numbers")


class Dying:
    """Storage that kills its process around one of its changes."""

    def __init__(self, inner: LogStorage, die_at: int) -> None:
        self._inner = inner
        self._die_at = die_at
        self._changes = 0

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        return self._around(method) if name in ("create_if_absent", "take", "delete") else method

    def _around(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def change(*arguments: Any) -> Any:
            self._moment(2 * self._changes)
            result = method(*arguments)
            self._moment(2 * self._changes + 1)
            self._changes += 1
            return result

        return change

    def _moment(self, number: int) -> None:
        if number == self._die_at:
            os.kill(os.getpid(), signal.SIGKILL)


def main(place: str, name: str, count: int, die_at: int) -> None:
    """Append; see the module's text."""
    log.FULL_EVERY = 4  # type: ignore[misc]
    table = table_at(place)
    if die_at >= 0:
        table.table.storage = Dying(table.table.storage, die_at)  # type: ignore[assignment]
    begun = table.snapshot().progress.get(name, -1) + 1
    for number in range(begun, begun + count):
        table.append([{"writer": name, "n": number}], progress={name: number})
        print(number, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
