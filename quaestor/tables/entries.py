"""Entries of a table's log as JSON, each with a checksum.

Format 1 had times in milliseconds, and no instants of files. Its entries stay readable: the files of an entry get its time, and
the files of a sum get instant 0, before every other.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import xxhash

from quaestor.errors import DependencyError
from quaestor.tables.changes import UNPUBLISHED, Change, DataFile, Snapshot

FORMAT: Final = 2
_OLD_FORMAT: Final = 1
_CHECKSUM: Final = "checksum"


class Entry(NamedTuple):
    """Entry of the log.

    instant: first instant of the entry.
    writer: identity of the call that wrote it; "": not known.
    """

    change: Change
    instant: int
    writer: str


def encode(change: Change, instant: int, writer: str) -> bytes:
    """Return an entry as JSON."""
    return _text(
        {
            "v": FORMAT, "instant": instant, "instants": change.instants, "writer": writer,
            "add": [_encode_file(file) for file in change.add], "remove": list(change.remove), "batch": change.batch,
            "forget": list(change.forget), "progress": dict(change.progress), "notes": dict(change.notes),
        }
    )  # fmt: skip


def decode(content: bytes, place: str) -> Entry:
    """Return an entry from its JSON. Raises DependencyError if it is damaged."""
    fields = _fields(content, place)
    try:
        batch = fields["batch"]
        old = fields["v"] == _OLD_FORMAT
        change = Change(
            add=tuple(map(_decode_file, fields["add"])),
            remove=tuple(fields["remove"]),
            batch=None if batch is None else (batch[0], batch[1]),
            forget=tuple(fields["forget"]),
            progress={} if old else fields["progress"],
            notes={} if old else fields["notes"],
            instants=1 if old else fields["instants"],
        )
        return Entry(change, fields["at"] * 1000, "") if old else Entry(change, fields["instant"], fields["writer"])
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise _damaged(place, error) from error


def encode_full(snapshot: Snapshot) -> bytes:
    """Return the sum of all entries as JSON."""
    return _text(
        {
            "v": FORMAT, "number": snapshot.number, "files": [_encode_file(file) for file in snapshot.files.values()],
            "batches": dict(snapshot.batches), "removed": dict(snapshot.removed), "instant": snapshot.instant,
            "progress": dict(snapshot.progress), "notes": dict(snapshot.notes),
            "writers": [[number, writer] for number, writer in snapshot.writers.items()],
        }
    )  # fmt: skip


def decode_full(content: bytes, place: str) -> Snapshot:
    """Return the sum of all entries from its JSON. Raises DependencyError if it is damaged."""
    fields = _fields(content, place)
    try:
        old = fields["v"] == _OLD_FORMAT
        files = [_decode_file([*entry, 0, 0] if old else entry) for entry in fields["files"]]
        return Snapshot(
            number=fields["number"],
            files={file.path: file for file in files},
            batches=fields["batches"],
            removed=fields["removed"],
            instant=0 if old else fields["instant"],
            progress={} if old else fields["progress"],
            notes={} if old else fields["notes"],
            writers={} if old else dict(fields["writers"]),
        )
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise _damaged(place, error) from error


def _text(fields: Mapping[str, Any]) -> bytes:
    return _compact({**fields, _CHECKSUM: xxhash.xxh3_64_hexdigest(_compact(fields))})


def _compact(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()


def _fields(content: bytes, place: str) -> dict[str, Any]:
    try:
        fields = json.loads(content)
        if fields["v"] not in (_OLD_FORMAT, FORMAT):
            raise ValueError(f"format {fields['v']!r}, not {FORMAT}")
        if fields["v"] == FORMAT:
            checksum = fields.pop(_CHECKSUM)
            if checksum != xxhash.xxh3_64_hexdigest(_compact(fields)):
                raise ValueError("its checksum is wrong")
    except (ValueError, KeyError, TypeError) as error:
        raise _damaged(place, error) from error
    return dict(fields)


def _damaged(place: str, error: Exception) -> DependencyError:
    return DependencyError(f"{place} is damaged: {error}; restore it", retryable=False)


def _encode_file(file: DataFile) -> list[Any]:
    partition = [list(pair) for pair in file.partition]
    instants = [] if file.first == UNPUBLISHED else [file.first, file.last]
    return [file.path, file.rows, file.bytes, partition, *instants]


def _decode_file(fields: list[Any]) -> DataFile:
    path, rows, size, partition, *instants = fields
    first, last = instants or (UNPUBLISHED, UNPUBLISHED)
    return DataFile(
        path=path, rows=rows, bytes=size, partition=tuple((name, value) for name, value in partition), first=first, last=last
    )  # fmt: skip
