"""Storage of a table in an object store with conditional puts: S3, Google Cloud Storage, Azure Blob Storage.

A put with `If-None-Match: *` takes the place of the hard link. The store's lists must show an object as soon as its put has
returned, which all three promise.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, NotFoundError

from quaestor.errors import ConfigurationError, DependencyError
from quaestor.tables.storage import Stored


class ObjectStorage:
    """Storage below a prefix of an object store.

    store: a store of `obstore`, for instance `obstore.store.from_url("s3://bucket")`.
    prefix: of all objects of the table.
    """

    def __init__(self, store: Any, prefix: str) -> None:
        if not prefix.strip("/"):
            raise ConfigurationError("a table in an object store needs a prefix, for instance 'tables/orders'")
        self._store = store
        self._prefix = prefix.strip("/")

    @property
    def location(self) -> str:
        """Store and prefix."""
        return f"{self._store!r}/{self._prefix}"

    def below(self, folder: str) -> ObjectStorage:
        """Return the storage below a longer prefix."""
        return ObjectStorage(self._store, f"{self._prefix}/{folder}")

    def list(self, folder: str) -> Iterator[Stored]:
        """Yield the objects below a folder."""
        start = len(self._prefix) + 1
        with _translated(f"{self.location}/{folder} could not be listed"):
            for page in obstore.list(self._store, f"{self._prefix}/{folder}"):
                for item in page:
                    yield Stored(item["path"][start:], int(item["last_modified"].timestamp() * 1000))

    def read(self, path: str) -> bytes:
        """Return an object. Raises FileNotFoundError, DependencyError."""
        with _translated(f"{self.location}/{path} could not be read", absent=True):
            return bytes(obstore.get(self._store, f"{self._prefix}/{path}").bytes())

    def open(self, path: str) -> Any:
        """Return a file that reads ranges of the object. Raises FileNotFoundError, DependencyError."""
        with _translated(f"{self.location}/{path} could not be read", absent=True):
            return _Ranges(self._store, f"{self._prefix}/{path}")

    def create_if_absent(self, path: str, content: bytes) -> bool:
        """Put an object under a condition of the store."""
        with _translated(f"{self.location}/{path} could not be written"):
            try:
                obstore.put(self._store, f"{self._prefix}/{path}", content, mode="create")
            except AlreadyExistsError:
                return False
        return True

    def take(self, path: str, local: Path) -> None:
        """Upload a local file, and delete it."""
        with _translated(f"{self.location}/{path} could not be written"):
            obstore.put(self._store, f"{self._prefix}/{path}", local)
        local.unlink()

    def delete(self, path: str) -> None:
        """Delete an object."""
        with _translated(f"{self.location}/{path} could not be deleted"):
            try:
                obstore.delete(self._store, f"{self._prefix}/{path}")
            except NotFoundError:
                return


class _Ranges(io.RawIOBase):
    """File that reads ranges of an object. Raises FileNotFoundError."""

    def __init__(self, store: Any, path: str) -> None:
        super().__init__()
        self._store = store
        self._path = path
        self._size: int = obstore.head(store, path)["size"]
        self._position = 0

    def readable(self) -> bool:
        """Whether the object can be read."""
        return True

    def seekable(self) -> bool:
        """Whether the position can be moved."""
        return True

    def tell(self) -> int:
        """Return the position."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move the position, and return it."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, start + offset)
        return self._position

    def readinto(self, buffer: Any) -> int:
        """Read the next range. Raises FileNotFoundError, DependencyError."""
        end = min(self._position + len(buffer), self._size)
        if end <= self._position:
            return 0
        with _translated(f"{self._path} could not be read", absent=True):
            content = bytes(obstore.get_range(self._store, self._path, start=self._position, end=end))
        buffer[: len(content)] = content
        self._position += len(content)
        return len(content)


@contextmanager
def _translated(message: str, *, absent: bool = False) -> Iterator[None]:
    """Translate errors of the store. absent: whether FileNotFoundError is passed on."""
    try:
        yield
    except (BaseError, OSError) as error:
        if absent and isinstance(error, FileNotFoundError):
            raise FileNotFoundError(f"{message}: there is no such object") from error
        raise DependencyError(f"{message}: {str(error).partition(chr(10))[0][:500]}") from error
