"""Files of results: one JSON object a line (NDJSON), durable, and each key once."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
from pathlib import Path
from typing import BinaryIO, Final

from quaestor.continuous.delivery.batch import ResultBatch, to_json
from quaestor.continuous.delivery.sink import DeliveryError
from quaestor.tables.storage import sync_folder

_BLOCK: Final = 1 << 20


class FileSink:
    """File that grows by a line for each result. Implements Sink.

    name: address of the sink.
    path: its folder exists. Several processes may write to the same file.

    A repeated delivery adds nothing. Lines of other programs stay, and count for nothing. The lines are on the disk when
    `deliver` returns. A line that a power cut left unfinished is removed before the next one.
    """

    kind = "file"

    def __init__(self, name: str, path: Path) -> None:
        self.name = name
        self._path = path
        self._read_to = (0, 0)
        self._newest: dict[str, tuple[int, int]] = {}

    async def deliver(self, batch: ResultBatch) -> None:
        """See Sink."""
        try:
            await asyncio.to_thread(self._append, batch)
        except OSError as error:
            raise DeliveryError(
                f"{self._path} could not be written: {error}; make room, or restore the folder", reason="disk"
            ) from error

    def _append(self, batch: ResultBatch) -> None:
        is_new = not self._path.exists()
        with self._path.open("a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            end = _remove_unfinished_line(file)
            self._follow(file)
            is_later = (batch.run, batch.first) > self._newest.get(batch.query, (-1, -1))
            present = frozenset[str]() if is_later else _keys(file, f"{batch.query}/{batch.run}/")
            lines = [_line(batch, key, row) for key, row in batch.keyed_rows() if key not in present]
            try:
                _write(file.fileno(), b"".join(lines))
                os.fsync(file.fileno())
            except OSError:
                os.ftruncate(file.fileno(), end)
                raise
        if is_new:
            sync_folder(self._path.parent)

    def _follow(self, file: BinaryIO) -> None:
        """Read the lines since the last look, of all writers: the newest run and row of each query."""
        inode, start = os.fstat(file.fileno()).st_ino, self._read_to[1]
        if self._read_to[0] != inode:
            self._newest, start = {}, 0
        file.seek(start)
        for line in file:
            if (place := _place(line)) is not None:
                query, run, number = place
                self._newest[query] = max(self._newest.get(query, (-1, -1)), (run, number))
        self._read_to = inode, file.tell()


def _line(batch: ResultBatch, key: str, row: object) -> bytes:
    fields = {"key": key, "query": batch.query, "run": batch.run, "instant": batch.instant, "row": row}
    return to_json(fields).encode() + b"\n"


def _key(line: bytes) -> str | None:
    """Return the key of a line; None: another program or a person wrote the line."""
    try:
        key = json.loads(line)["key"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    return key if isinstance(key, str) else None


def _place(line: bytes) -> tuple[str, int, int] | None:
    """Return query, run and number of a line; None: the line is no result."""
    parts = (_key(line) or "").rsplit("/", 2)
    try:
        return parts[0], int(parts[1]), int(parts[2])
    except (LookupError, ValueError):
        return None


def _keys(file: BinaryIO, beginning: str) -> frozenset[str]:
    """Return the keys in the file that begin like this. O(size of the file)."""
    mark = b'{"key":' + to_json(beginning).encode()[:-1]
    file.seek(0)
    return frozenset(key for line in file if line.startswith(mark) and (key := _key(line)) is not None)


def _remove_unfinished_line(file: BinaryIO) -> int:
    """Cut the file behind its last line end; return its length."""
    end = file.seek(0, os.SEEK_END)
    size = end
    while size:
        start = max(0, size - _BLOCK)
        file.seek(start)
        line_end = file.read(size - start).rfind(b"\n")
        if line_end >= 0:
            size = start + line_end + 1
            break
        size = start
    if size != end:
        os.ftruncate(file.fileno(), size)
    return size


def _write(descriptor: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]
