"""Append-only table of Parquet files, with a log of the files in it.

A file counts once its name is in the log, and a log entry appears whole or not at all. A reader therefore sees every row once,
whichever process is killed at any moment. Layout below the root:

- `_log/<number>.json`: the files that one change added and removed, and the newest batch of its streaming query.
- `_log/<number>.full.json`: the sum of all changes up to there, every so often; older entries are removed.
- `data/<partition folders>/<file>.parquet`, `_staging/`: files in the table, and files being written.

Writers agree by creating the next number: one succeeds, the other looks again. Needs a POSIX file system (hard links).
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from quaestor.errors import DependencyError

FORMAT: Final = 1
FULL_EVERY: Final = 50
_ATTEMPTS: Final = 50
_DIGITS: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """File of the table.

    path: below the table's root.
    partition: (name, value) of its folders, in order.
    """

    path: str
    rows: int
    bytes: int
    partition: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Change of the table: one entry of its log.

    add, remove: files.
    batch: (streaming query, batch) whose result this change is.
    forget: deleted files.
    """

    add: tuple[DataFile, ...] = ()
    remove: tuple[str, ...] = ()
    batch: tuple[str, int] | None = None
    forget: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """State of the table after one change.

    number: number of the change that led to it; -1: an empty table.
    batches: newest batch of each streaming query.

    removed: files removed from the table, by the time of their removal (ms); they still exist.
    """

    number: int = -1
    files: Mapping[str, DataFile] = field(default_factory=dict)
    batches: Mapping[str, int] = field(default_factory=dict)
    removed: Mapping[str, int] = field(default_factory=dict)

    def has(self, batch: tuple[str, int]) -> bool:
        """Whether the result of this batch is in the table."""
        return self.batches.get(batch[0], -1) >= batch[1]


class Table:
    """Append-only table below one folder; see the module's text. Objects of several processes may work on the same table."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._log = root / "_log"
        self._known = Snapshot()

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
        for _ in range(_ATTEMPTS):
            numbers = self._names()
            if self._known.number > max(numbers, default=-1):
                self._known = Snapshot()  # the table was begun anew
            try:
                self._known = self._newest(self._known, numbers)
            except FileNotFoundError:
                continue  # the file was removed meanwhile
            return self._known
        raise DependencyError(f"{self._log} changes faster than it can be read", retryable=True)

    def publish(self, decide: Callable[[Snapshot], Change | None], *, now_ms: int) -> Snapshot:
        """Make one change.

        decide: returns the change for a given snapshot, None: no change; called again if another writer was faster.

        The change is durable when this returns. Raises DependencyError.
        """
        self._log.mkdir(parents=True, exist_ok=True)
        for _ in range(_ATTEMPTS):
            before = self.snapshot()
            change = decide(before)
            if change is None:
                return before
            if self._create(f"{before.number + 1:0{_DIGITS}d}.json", _encode_change(change, now_ms)):
                after = _applied(before, change, before.number + 1, now_ms)
                self._known = after
                if after.number % FULL_EVERY == FULL_EVERY - 1:
                    self._sum_up(after)
                return after
        raise DependencyError(
            f"{self._log}: other writers are always faster; run one maintenance at a time", retryable=True
        )

    def _names(self) -> dict[int, bool]:
        """Return the numbers in the log, each with whether there is a sum up to it."""
        numbers: dict[int, bool] = {}
        if self._log.is_dir():
            for entry in os.scandir(self._log):
                number, _, rest = entry.name.partition(".")
                if len(number) == _DIGITS and number.isdigit() and rest in ("json", "full.json"):
                    numbers[int(number)] = numbers.get(int(number), False) or rest == "full.json"
        return numbers

    def _newest(self, known: Snapshot, numbers: Mapping[int, bool]) -> Snapshot:
        last = max(numbers, default=-1)
        full = max((number for number, is_full in numbers.items() if is_full), default=-1)
        if full > known.number and known.number + 1 not in numbers:
            known = _decode_full(self._read(f"{full:0{_DIGITS}d}.full.json"))
        for number in range(known.number + 1, last + 1):
            change, at_ms = _decode_change(self._read(f"{number:0{_DIGITS}d}.json"))
            known = _applied(known, change, number, at_ms)
        return known

    def _sum_up(self, snapshot: Snapshot) -> None:
        self._create(f"{snapshot.number:0{_DIGITS}d}.full.json", _encode_full(snapshot))
        for number in self._names():
            if number < snapshot.number - FULL_EVERY:
                for suffix in ("json", "full.json"):
                    (self._log / f"{number:0{_DIGITS}d}.{suffix}").unlink(missing_ok=True)

    def _read(self, name: str) -> dict[str, Any]:
        text = (self._log / name).read_text()
        try:
            fields = json.loads(text)
            if fields["v"] != FORMAT:
                raise ValueError(f"format {fields['v']!r}, not {FORMAT}")
        except (ValueError, KeyError, TypeError) as error:
            raise DependencyError(f"{self._log / name} is damaged: {error}; restore it", retryable=False) from error
        return dict(fields)

    def _create(self, name: str, fields: Mapping[str, Any]) -> bool:
        """Create a file; return whether it is ours. The file appears whole, and only if there is none of that name."""
        draft = self._log / f".{uuid.uuid4().hex}"
        try:
            with draft.open("w") as file:
                json.dump(fields, file, separators=(",", ":"))
                file.flush()
                os.fsync(file.fileno())
            os.link(draft, self._log / name)
        except FileExistsError:
            return False
        except OSError as error:
            raise DependencyError(f"{self._log / name} could not be written: {error}") from error
        finally:
            draft.unlink(missing_ok=True)
        sync_folder(self._log)
        return True


def sync_folder(folder: Path) -> None:
    """Make files created, renamed or removed in a folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _applied(before: Snapshot, change: Change, number: int, at_ms: int) -> Snapshot:
    gone = set(change.remove)
    files = {path: file for path, file in before.files.items() if path not in gone}
    files |= {file.path: file for file in change.add}
    forgotten = set(change.forget)
    removed = {path: when for path, when in before.removed.items() if path not in forgotten}
    removed |= dict.fromkeys(change.remove, at_ms)
    batches = dict(before.batches)
    if change.batch is not None:
        batches[change.batch[0]] = change.batch[1]
    return Snapshot(number=number, files=files, batches=batches, removed=removed)


def _encode_change(change: Change, now_ms: int) -> dict[str, Any]:
    return {
        "v": FORMAT, "at": now_ms, "add": [_encode_file(file) for file in change.add], "remove": list(change.remove),
        "batch": change.batch, "forget": list(change.forget),
    }  # fmt: skip


def _decode_change(fields: Mapping[str, Any]) -> tuple[Change, int]:
    batch = fields["batch"]
    change = Change(
        add=tuple(map(_decode_file, fields["add"])),
        remove=tuple(fields["remove"]),
        batch=None if batch is None else (batch[0], batch[1]),
        forget=tuple(fields["forget"]),
    )
    return change, fields["at"]


def _encode_full(snapshot: Snapshot) -> dict[str, Any]:
    return {
        "v": FORMAT, "number": snapshot.number, "files": [_encode_file(file) for file in snapshot.files.values()],
        "batches": dict(snapshot.batches), "removed": dict(snapshot.removed),
    }  # fmt: skip


def _decode_full(fields: Mapping[str, Any]) -> Snapshot:
    files = [_decode_file(entry) for entry in fields["files"]]
    return Snapshot(
        number=fields["number"],
        files={file.path: file for file in files},
        batches=fields["batches"],
        removed=fields["removed"],
    )


def _encode_file(file: DataFile) -> list[Any]:
    return [file.path, file.rows, file.bytes, [list(pair) for pair in file.partition]]


def _decode_file(fields: list[Any]) -> DataFile:
    path, rows, size, partition = fields
    return DataFile(path=path, rows=rows, bytes=size, partition=tuple((name, value) for name, value in partition))
