"""Append-only table of Parquet files, with a log of the files in it.

A file counts once its name is in the log, and a log entry appears whole or not at all. A reader therefore sees every row once,
whichever process is killed at any moment. Layout below the root:

- `_log/<number>.json`: one change: files added and removed, progress, notes, and its instant.
- `_log/<number>.full.json`: the sum of all changes up to there, every so often; older entries are removed.
- `data/<partition folders>/<file>.parquet`: files in the table. `_drafts/`, `_staging/`: files being written.

Writers agree by creating the next number: one succeeds, the others look again.

**Instants.** Each entry has an instant, in microseconds since 1970: the clock, or the last instant + 1 if the clock is not later.
The rows of an entry are published at its instant. Instants of a table therefore always increase, whatever the clocks do. An entry
without files closes its instant: rows that come later always have a later instant.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Final

from quaestor.errors import DependencyError
from quaestor.tables import entries
from quaestor.tables.changes import KEPT_WRITERS, Change, Snapshot, applied
from quaestor.tables.storage import FolderStorage, LogStorage

LOG: Final = "_log"
FULL_EVERY: Final = 50
_ATTEMPTS: Final = 50
_DIGITS: Final = 20


class Table:
    """Append-only table; see the module's text. Objects of several processes may work on the same table.

    storage: its place; a path stands for a folder.
    """

    def __init__(self, storage: LogStorage | Path) -> None:
        self.storage: LogStorage = FolderStorage(storage) if isinstance(storage, Path) else storage
        self._known = Snapshot()

    @property
    def location(self) -> str:
        """Place of the table, for messages."""
        return self.storage.location

    @property
    def root(self) -> Path:
        """Folder of the table. Raises ValueError for a table in an object store."""
        if not isinstance(self.storage, FolderStorage):
            raise ValueError(f"{self.location} is not a folder")
        return self.storage.root

    @property
    def data(self) -> Path:
        """Folder of the files that are, or were, in the table."""
        return self.root / "data"

    @property
    def staging(self) -> Path:
        """Folder of the files being written."""
        return self.root / "_staging"

    def snapshot(self) -> Snapshot:
        """Return the present table. O(changes since the last call). Raises DependencyError if the log is damaged."""
        missing: FileNotFoundError | None = None
        for _ in range(_ATTEMPTS):
            numbers, sums = self._names()
            known = self._known
            if known.number > max(numbers | sums, default=-1):
                known = Snapshot()  # the table was begun anew
            try:
                self._known = known = self._newest(known, numbers, sums)
            except FileNotFoundError as error:
                missing = error
                continue  # the entry was summed up and removed meanwhile
            return known
        raise DependencyError(f"an entry of the log is missing: {missing}; restore it", retryable=False) from missing

    def publish(self, decide: Callable[[Snapshot], Change | None], *, now_us: int) -> Snapshot:
        """Make one change; return the table after it.

        decide: returns the change for a given snapshot, None: no change; called again if another writer was faster.

        The change is durable when this returns. Raises DependencyError; the change may then be made or not.
        """
        writer, tried = uuid.uuid4().hex[:16], -1
        for _ in range(_ATTEMPTS):
            before = self.snapshot()
            if before.writers.get(tried) == writer:
                return before
            if 0 <= tried <= before.number - KEPT_WRITERS:
                raise DependencyError(f"{self.location}: this process stood still; read whether entry {tried} was made")
            change = decide(before)
            if change is None:
                return before
            tried, instant = before.number + 1, max(now_us, before.instant + 1)
            path = _path(tried)
            if self.storage.create_if_absent(path, entries.encode(change, instant, writer)):
                if max(self._names()[1], default=-1) >= tried:
                    # A sum has this number. Either it holds the entry, or the number was free because its entry was removed.
                    self.storage.delete(path)
                    continue
                self._known = after = applied(before, change, instant, writer)
                if after.number % FULL_EVERY == FULL_EVERY - 1:
                    self._sum_up(after)
                return after
        raise DependencyError(
            f"{self.location}: other writers are always faster; run fewer writers at a time", retryable=True
        )

    def close(self, *, now_us: int) -> int:
        """Close an instant: publish an entry without files. Return its instant; later rows always have a later instant."""
        return self.publish(lambda _: Change(), now_us=now_us).instant

    def _names(self) -> tuple[set[int], set[int]]:
        """Return the numbers of the entries in the log, and those of the sums."""
        numbers: dict[str, set[int]] = {"json": set(), "full.json": set()}
        for stored in self.storage.list(LOG):
            number, _, rest = stored.path.rpartition("/")[2].partition(".")
            if len(number) == _DIGITS and number.isdigit() and rest in numbers:
                numbers[rest].add(int(number))
        return numbers["json"], numbers["full.json"]

    def _newest(self, known: Snapshot, numbers: set[int], sums: set[int]) -> Snapshot:
        """Return the newest snapshot, from a known one and the entries since then, or from the last sum.

        Entries that a sum allows to remove are not read: one of them may be a late writer's, who takes it back.
        """
        last, full = max(numbers | sums, default=-1), max(sums, default=-1)
        following = range(known.number + 1, full + 1)
        if following and (following.start < full - FULL_EVERY or not numbers.issuperset(following)):
            path = _path(full, full=True)
            known = entries.decode_full(self.storage.read(path), f"{self.location}/{path}")
        for number in range(known.number + 1, last + 1):
            path = _path(number)
            entry = entries.decode(self.storage.read(path), f"{self.location}/{path}")
            known = applied(known, entry.change, entry.instant, entry.writer)
        return known

    def _sum_up(self, snapshot: Snapshot) -> None:
        """Write the sum of all entries, and remove old entries, the oldest first: no gap ever lies between two entries."""
        self.storage.create_if_absent(_path(snapshot.number, full=True), entries.encode_full(snapshot))
        numbers, sums = self._names()
        for number in sorted(numbers | sums):
            if number < snapshot.number - FULL_EVERY:
                for full in (False, True):
                    self.storage.delete(_path(number, full=full))


def _path(number: int, *, full: bool = False) -> str:
    return f"{LOG}/{number:0{_DIGITS}d}.{'full.json' if full else 'json'}"
