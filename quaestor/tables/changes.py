"""Changes of a table, and its state after them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

UNPUBLISHED: Final = -1
"""Instant of a file that is not in the table yet."""

KEPT_WRITERS: Final = 200
"""Number of the newest entries whose writers are known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """File of the table.

    path: below the table's root.
    partition: (name, value) of its folders, in order.
    first, last: instants of its rows, inclusive; equal for the rows of an entry with a single instant.
    """

    path: str
    rows: int
    bytes: int
    partition: tuple[tuple[str, str], ...]
    first: int = UNPUBLISHED
    last: int = UNPUBLISHED


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Change of the table: one entry of its log.

    add, remove: files. An added file without instants gets those of the entry.
    batch: (streaming query, batch) whose result this change is.
    forget: deleted files.
    progress: by query, the instant up to which its results are in the table.
    notes: texts to keep, by name; None forgets the note.
    instants: number of consecutive instants of the entry, for rows that become visible one after the other.
    """

    add: tuple[DataFile, ...] = ()
    remove: tuple[str, ...] = ()
    batch: tuple[str, int] | None = None
    forget: tuple[str, ...] = ()
    progress: Mapping[str, int] = field(default_factory=dict)
    notes: Mapping[str, str | None] = field(default_factory=dict)
    instants: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """State of the table after one change.

    number: number of the change that led to it; -1: an empty table.
    batches: newest batch of each streaming query.
    removed: files removed from the table, by the time of their removal (ms); they still exist.
    instant: newest instant of the table, in microseconds since 1970.
    progress: by query, the instant up to which its results are in the table.
    notes: texts of the table's writers, by name.
    writers: identities of the calls that wrote the newest entries, by number.
    """

    number: int = -1
    files: Mapping[str, DataFile] = field(default_factory=dict)
    batches: Mapping[str, int] = field(default_factory=dict)
    removed: Mapping[str, int] = field(default_factory=dict)
    instant: int = 0
    progress: Mapping[str, int] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    writers: Mapping[int, str] = field(default_factory=dict)

    def has(self, batch: tuple[str, int]) -> bool:
        """Whether the result of this batch is in the table."""
        return self.batches.get(batch[0], -1) >= batch[1]


def applied(before: Snapshot, change: Change, instant: int, writer: str) -> Snapshot:
    """Return the table after a change.

    instant: first instant of the change's entry. An entry of the old format may repeat an earlier one, and is moved behind it.
    """
    number, first = before.number + 1, max(instant, before.instant + 1)
    last = first + change.instants - 1
    gone = set(change.remove)
    files = {path: file for path, file in before.files.items() if path not in gone}
    for file in change.add:
        files[file.path] = replace(file, first=first, last=last) if file.first == UNPUBLISHED else file
    forgotten = set(change.forget)
    removed = {path: when for path, when in before.removed.items() if path not in forgotten}
    removed |= dict.fromkeys(change.remove, first // 1000)
    notes = {name: text for name, text in {**before.notes, **change.notes}.items() if text is not None}
    return Snapshot(
        number=number,
        files=files,
        batches=before.batches if change.batch is None else {**before.batches, change.batch[0]: change.batch[1]},
        removed=removed,
        instant=last,
        progress={**before.progress, **change.progress},
        notes=notes,
        writers={**{old: name for old, name in before.writers.items() if old > number - KEPT_WRITERS}, number: writer},
    )
