"""Storage of a table: the entries of its log, and its data files. Two kinds: a folder, and an object store.

The log rests on one operation: `create_if_absent` makes an object whole or not at all, and only one of several writers succeeds.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from quaestor.errors import DependencyError

DRAFTS: Final = "_drafts"


class Stored(NamedTuple):
    """Object of a storage.

    path: below the table's root.
    modified_ms: time of its creation, by the storage's clock.
    """

    path: str
    modified_ms: int


class LogStorage(Protocol):
    """Storage of one table. Paths are relative, with slashes. Use from any thread.

    Every method raises DependencyError when the storage fails.
    """

    @property
    def location(self) -> str:
        """Place of the table, for messages."""
        ...

    def below(self, folder: str) -> LogStorage:
        """Return the storage of a table of its own below this one."""
        ...

    def list(self, folder: str) -> Iterator[Stored]:
        """Yield the objects below a folder, in no order. A new object is listed as soon as its creation has returned."""
        ...

    def read(self, path: str) -> bytes:
        """Return an object. Raises FileNotFoundError."""
        ...

    def open(self, path: str) -> Any:
        """Return an object for pyarrow: a path, or a file that can seek. Raises FileNotFoundError."""
        ...

    def create_if_absent(self, path: str, content: bytes) -> bool:
        """Create an object; return whether this call created it. The object appears whole, and is durable when this returns."""
        ...

    def take(self, path: str, local: Path) -> None:
        """Move a local file to a new path. The object appears whole, and is durable when this returns."""
        ...

    def delete(self, path: str) -> None:
        """Delete an object. An absent object is no error."""
        ...


class FolderStorage:
    """Storage in a folder of a POSIX file system, which needs hard links. Everything is synchronised to the disk."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def location(self) -> str:
        """Path of the folder."""
        return str(self.root)

    def below(self, folder: str) -> FolderStorage:
        """Return the storage in a folder below this one."""
        return FolderStorage(self.root / folder)

    def list(self, folder: str) -> Iterator[Stored]:
        """Yield the files below a folder, except hidden ones. Files that vanish meanwhile are left out."""
        try:
            yield from _files(self.root / folder, folder)
        except OSError as error:
            raise DependencyError(f"{self.root / folder} could not be listed: {error}") from error

    def read(self, path: str) -> bytes:
        """Return a file. Raises FileNotFoundError, DependencyError."""
        try:
            return (self.root / path).read_bytes()
        except FileNotFoundError:
            raise
        except OSError as error:
            raise DependencyError(f"{self.root / path} could not be read: {error}") from error

    def open(self, path: str) -> Path:
        """Return the path of a file. Raises FileNotFoundError."""
        if not (self.root / path).exists():
            raise FileNotFoundError(self.root / path)
        return self.root / path

    def create_if_absent(self, path: str, content: bytes) -> bool:
        """Write a draft, then link it to its name."""
        target, draft = self.root / path, self.root / DRAFTS / uuid.uuid4().hex
        try:
            self._make(draft.parent)
            self._make(target.parent)
            with draft.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.link(draft, target)
            sync_folder(target.parent)
        except FileExistsError:
            return False
        except OSError as error:
            raise DependencyError(
                f"{target} could not be written: {error}; make room, or restore the folder"
            ) from error
        finally:
            draft.unlink(missing_ok=True)
        return True

    def take(self, path: str, local: Path) -> None:
        """Rename the file, after a copy if it lies in another file system."""
        target, draft = self.root / path, self.root / DRAFTS / uuid.uuid4().hex
        try:
            self._make(draft.parent)
            self._make(target.parent)
            shutil.move(local, draft)
            with draft.open("rb") as file:
                os.fsync(file.fileno())
            os.replace(draft, target)
            sync_folder(target.parent)
        except OSError as error:
            raise DependencyError(
                f"{target} could not be written: {error}; make room, or restore the folder"
            ) from error

    def delete(self, path: str) -> None:
        """Delete a file."""
        try:
            (self.root / path).unlink(missing_ok=True)
        except OSError as error:
            raise DependencyError(f"{self.root / path} could not be deleted: {error}") from error

    def _make(self, folder: Path) -> None:
        """Make a folder that survives a power cut."""
        if not folder.is_dir():
            self._make(folder.parent)
            folder.mkdir(exist_ok=True)
            sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Make files created, renamed or removed in a folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _files(path: str | Path, shown: str) -> Iterator[Stored]:
    """Yield the files below a path. shown: how the paths of what is found begin."""
    try:
        entries = os.scandir(path)
    except (FileNotFoundError, NotADirectoryError):
        return
    with entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if entry.is_dir():
                if not entry.is_symlink():
                    yield from _files(entry.path, f"{shown}/{entry.name}")
                continue
            try:
                modified_ns = entry.stat().st_mtime_ns
            except FileNotFoundError:
                continue
            yield Stored(f"{shown}/{entry.name}", modified_ns // 1_000_000)
