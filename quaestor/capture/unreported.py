"""Writes of captured clients that no change event reports: `applyOps`, which `mongorestore --oplogReplay` and mongosync use too.

mongod logs the operations of an `applyOps` as one entry, and change streams skip that entry unless it is a transaction.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from pymongo.monitoring import CommandFailedEvent, CommandStartedEvent, CommandSucceededEvent

APPLY_OPS: Final = "applyOps"
_DEEPEST: Final = 10
_MOST_PENDING: Final = 1_000
_NO_OPERATION: Final = "n"
_COMMAND: Final = "c"

Namespaces = frozenset[str]


class UnreportedWrites:
    """The `applyOps` of the captured clients. Thread-safe; never raises."""

    def __init__(self) -> None:
        self._pending: dict[tuple[Any, int], Namespaces] = {}
        self._lock = threading.Lock()
        self._report: Callable[[Namespaces], None] | None = None

    def follow(self, report: Callable[[Namespaces], None] | None) -> None:
        """Report each `applyOps` when it has ended, with its namespaces, in any thread; None: stop reporting."""
        self._report = report

    def started(self, event: CommandStartedEvent) -> None:
        """Note a command that was sent."""
        try:
            namespaces = frozenset(_named(event.command, depth=0))
        except Exception:
            namespaces = frozenset()
        # A command that cannot be interpreted may write to anything in its database.
        with self._lock:
            if len(self._pending) >= _MOST_PENDING:
                self._pending.pop(next(iter(self._pending)))
            self._pending[event.connection_id, event.request_id] = namespaces or frozenset({f"{event.database_name}.*"})

    def ended(self, event: CommandSucceededEvent | CommandFailedEvent) -> None:
        """Report a noted command, even if it failed: it may have applied some of its operations."""
        with self._lock:
            namespaces = self._pending.pop((event.connection_id, event.request_id), None)
        report = self._report
        if namespaces is not None and report is not None:
            report(namespaces)


def _named(command: Mapping[str, Any], *, depth: int) -> Iterator[str]:
    if depth > _DEEPEST:
        return
    for operation in command[APPLY_OPS]:
        kind, namespace, entry = operation.get("op"), str(operation.get("ns", "")), operation.get("o") or {}
        if kind == _NO_OPERATION:
            continue
        if kind != _COMMAND:
            yield namespace
        elif APPLY_OPS in entry:
            yield from _named(entry, depth=depth + 1)
        else:
            yield namespace.partition(".")[0] + ".*"
            if "to" in entry:
                yield str(entry["to"])
