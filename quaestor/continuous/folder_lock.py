"""Lock of a folder: one process at a time runs what lies there."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def folder_lock(folder: Path, name: str, *, waits: bool = False) -> Iterator[bool]:
    """Hold a lock of a folder, unless another process holds it: yield whether it is ours. The lock ends with its process.

    name: of its file; a folder may have several locks.
    waits: whether to wait for the other process, for as long as that takes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / name).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
            return
        yield True
