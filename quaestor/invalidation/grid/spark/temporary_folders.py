"""Temporary folders that outlived their process. A lock, which the kernel drops with its holder, marks folders in use.

Unlike a process id, a lock is never mistaken after a restart of the machine, in another container, or after a reuse of ids.
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
"""Largest number of entries searched in the temporary folder, which other programs fill too."""


@contextmanager
def own_folder(prefix: str) -> Iterator[Path]:
    """Make a temporary folder, removed at the end; if this process is killed, the next one with this prefix removes it."""
    _sweep(Path(tempfile.gettempdir()), prefix)
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    try:
        lock = os.open(folder / "new", os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            (folder / "new").rename(folder / _OWNER)  # no process ever sees it unlocked
            yield folder
        finally:
            os.close(lock)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _sweep(parent: Path, prefix: str) -> None:
    """Remove the folders there that `own_folder` made for ended processes of this user.

    Others may write to `parent` too. No link is followed, and only folders that no other user can write to are touched.
    """
    with suppress(OSError), os.scandir(parent) as entries:
        for entry in islice(entries, _MOST_ENTRIES):
            if entry.name.startswith(prefix) and entry.is_dir(follow_symlinks=False):
                with suppress(OSError):
                    _remove_if_abandoned(entry.path)


def _remove_if_abandoned(path: str) -> None:
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        status = os.fstat(folder)
        if status.st_uid != os.getuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
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
