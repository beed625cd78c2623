"""Pins: files of a snapshot that a long run still reads stay, however long ago they left the table.

Replaced files stay for a grace period anyway. A pin is therefore written only when a run lasts: a short run costs nothing. A pin
ends with its run, or after a day, if the process of the run was killed.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from quaestor.clock import Clock, system_clock
from quaestor.errors import DependencyError
from quaestor.tables.changes import Snapshot
from quaestor.tables.log import Table

PIN_AFTER_S: Final = 300.0
"""Duration from which a run pins its snapshots: far below the grace period of maintenance."""
LONGEST_S: Final = 86_400.0
_FOLDER: Final = "_pins"


@contextmanager
def pinned(
    snapshots: Mapping[Table, Snapshot], *, after_s: float = PIN_AFTER_S, clock: Clock = system_clock
) -> Iterator[None]:
    """Keep the files of snapshots while the block runs.

    after_s: duration after which the pins are written; a failing storage then leaves the snapshots to the grace period.
    """
    path = f"{_FOLDER}/{uuid.uuid4().hex}.json"
    lock, over, written = threading.Lock(), False, False

    def pin() -> None:
        nonlocal written
        with lock:
            written = not over
            for table, snapshot in {} if over else snapshots.items():
                until_ms = clock() + int(LONGEST_S * 1000)
                content = json.dumps({"instant": snapshot.instant, "until_ms": until_ms}).encode()
                try:
                    table.storage.create_if_absent(path, content)
                except DependencyError:
                    continue  # a reader of a missing file gets an error, never fewer rows

    timer = None
    if after_s > 0:
        timer = threading.Timer(after_s, pin)
        timer.daemon = True
        timer.start()
    else:
        pin()
    try:
        yield
    finally:
        if timer is not None:
            timer.cancel()
        with lock:
            over = True
        for table in snapshots if written else ():
            table.storage.delete(path)


def oldest_pin(table: Table, *, now_ms: int) -> int | None:
    """Return the instant of the oldest pinned snapshot; None: there is no pin. Pins that are over are deleted."""
    instants = []
    for stored in list(table.storage.list(_FOLDER)):
        try:
            pin = json.loads(table.storage.read(stored.path))
        except FileNotFoundError:
            continue
        if pin["until_ms"] <= now_ms:
            table.storage.delete(stored.path)
        else:
            instants.append(int(pin["instant"]))
    return min(instants, default=None)
