"""Time limit of a query in DuckDB: the query is interrupted, and its thread is free again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Final

import duckdb

_AGAIN_S: Final = 0.5
"""Time after which a cursor is interrupted again: an interruption between two statements has no effect."""


@contextmanager
def time_limit(cursor: duckdb.DuckDBPyConnection, limit_s: float) -> Iterator[None]:
    """Interrupt the statements of a cursor once a time has passed, until the context ends. They raise InterruptException."""
    ended = Event()

    def watch() -> None:
        if not ended.wait(limit_s):
            while True:
                cursor.interrupt()
                if ended.wait(_AGAIN_S):
                    return

    watcher = Thread(target=watch, name="quaestor-time-limit", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
