"""Temporary folders that outlived their process: told from those in use by a lock that the kernel drops with its holder.

Unlike a process id, a lock cannot be mistaken after a restart of the machine, in another container, or when ids are used again.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Final

_OWNER: Final = "owner"
_MOST_ENTRIES: Final = 100_000
"""Of the temporary folder, which others fill too."""


@contextmanager
def own_folder(prefix: str) -> Iterator[Path]:
    """Make a temporary folder, removed at the end; if this process is killed, the next one with this prefix removes it."""
    _sweep(Path(tempfile.gettempdir()), prefix)
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    try:
        lock = os.open(folder / "new", os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            (folder / "new").rename(folder / _OWNER)  # whoever sees it sees it locked
            yield folder
        finally:
            os.close(lock)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _sweep(parent: Path, prefix: str) -> None:
    """Remove the folders there that `own_folder` made for processes of this user which are gone.

    Others may write to `parent` too: nothing is followed, and only folders that nobody else can write to are touched.
    """
    with suppress(OSError), os.scandir(parent) as entries:
        for entry in islice(entries, _MOST_ENTRIES):
            if entry.name.startswith(prefix) and entry.is_dir(follow_symlinks=False):
                with suppress(OSError):
                    _remove_if_abandoned(entry.path)


def _remove_if_abandoned(path: str) -> None:
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        found = os.fstat(folder)
        if found.st_uid != os.getuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return
        lock = os.open(_OWNER, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises if its process lives
            shutil.rmtree(".", ignore_errors=True, dir_fd=folder)  # not by its name, which may lead elsewhere by now
        finally:
            os.close(lock)
    finally:
        os.close(folder)
    os.rmdir(path)
