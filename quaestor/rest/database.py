"""Calls of pymongo, asynchronous or not, within a time limit, and the meaning of its errors for a client.

A synchronous database is called in threads. The threads receive the request's context, so capture sees their reads.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio.to_thread
import pymongo
from bson.codec_options import CodecOptions
from bson.errors import BSONError
from bson.raw_bson import RawBSONDocument
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.database import Database
from pymongo.errors import (
    ConnectionFailure,
    DocumentTooLarge,
    DuplicateKeyError,
    OperationFailure,
    PyMongoError,
    ServerSelectionTimeoutError,
)
from pymongo.read_concern import ReadConcern
from pymongo.read_preferences import ReadPreference

from quaestor.errors import ConfigurationError
from quaestor.query.encoding import RAW
from quaestor.rest.problems import Problem

_RAW: Final[CodecOptions[RawBSONDocument]] = RAW
_TIMED_OUT: Final = frozenset({50, 262})
"""MaxTimeMSExpired, ExceededTimeLimit."""
_BAD_REQUEST: Final = frozenset({2, 9, 14, 15, 17, 27, 96, 291, 292, 16755, 17007, 51091})
"""BadValue, FailedToParse, TypeMismatch, Overflow (too long, too deep), IndexNotFound, OperationFailed, NoQueryExecutionPlans,
memory limit of a sort, a pattern that PCRE does not compile, ..."""
_UNACCEPTABLE: Final = frozenset({28, 34, 40, 52, 53, 54, 55, 56, 57, 66, 121, 171})
"""PathNotViable, CannotBackfillArray, ConflictingUpdateOperators, bad field names, ImmutableField,
DocumentValidationFailure, ..."""
_NOT_WRITABLE: Final = frozenset({166, 20})
"""CommandNotSupportedOnView, IllegalOperation."""
_CONFLICT: Final = object()
_TRIES: Final = 8
"""How often a transaction is tried, after write conflicts."""


class Connection:
    """A database, pymongo's synchronous or asynchronous one, behind one set of coroutines.

    Raises ConfigurationError for any other object.
    """

    def __init__(self, database: Any, *, time_ms: int) -> None:
        if not isinstance(database, AsyncDatabase | Database):
            raise ConfigurationError(f"a pymongo AsyncDatabase or Database is needed, not {type(database).__name__}")
        self.database: Any = database
        self._threads = isinstance(database, Database)
        self._time_s = time_ms / 1000

    @property
    def name(self) -> str:
        """Name of the database."""
        return str(self.database.name)

    def collection(self, name: str) -> Any:
        """Return the collection of this name.

        Its records are RawBSONDocuments: entity tags are made of their bytes.
        """
        return self.database.get_collection(name, codec_options=_RAW)

    async def run(self, call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Call a method of the driver, within the time limit. The server receives it too (maxTimeMS)."""
        with pymongo.timeout(self._time_s):
            if self._threads:
                return await anyio.to_thread.run_sync(lambda: call(*arguments, **options))
            result = call(*arguments, **options)
            return await result if inspect.isawaitable(result) else result

    async def read(self, cursor: Any, *, most_bytes: int) -> list[Any]:
        """Return the raw records of a cursor. Stops reading once the records exceed most_bytes, so that a thousand records of
        16 MiB are not gathered in vain."""
        return list(await self.run(_gather if self._threads else _gathered, cursor, most_bytes))

    async def exists(self, collection: str) -> bool:
        """Whether the collection exists."""
        names = await self.run(self.database.list_collection_names, filter={"name": collection})
        return bool(names)

    async def transaction(self, body: Callable[[Any], Any]) -> Any:
        """Run body(session), a coroutine function, and commit; after a write conflict, begin again.

        The records that it read are unchanged until the commit. Any exception of it aborts the transaction. All tries together
        take at most the time limit.
        """
        with pymongo.timeout(self._time_s):
            for _ in range(_TRIES):
                if (result := await self._attempt(body)) is not _CONFLICT:
                    return result
        raise Problem(
            503, "busy", "Other requests are changing the record at the moment.", headers={"retry-after": "1"}
        )

    async def _attempt(self, body: Callable[[Any], Any]) -> Any:
        async with self._session() as session:
            try:
                await self.run(
                    session.start_transaction,
                    read_concern=ReadConcern("snapshot"),
                    read_preference=ReadPreference.PRIMARY,
                )
                result = await body(session)
                await self.run(session.commit_transaction)
                return result
            except PyMongoError as error:
                if not error.has_error_label("TransientTransactionError") or error.timeout:
                    raise
                return _CONFLICT

    @asynccontextmanager
    async def _session(self) -> AsyncIterator[Any]:
        session = self.database.client.start_session()
        try:
            yield session
        finally:
            await self.run(session.end_session)


def _gather(cursor: Any, most_bytes: int) -> list[Any]:
    records: list[Any] = []
    with cursor:
        for record in cursor:
            records.append(record)
            most_bytes -= len(record.raw)
            if most_bytes < 0:
                break
    return records


async def _gathered(cursor: Any, most_bytes: int) -> list[Any]:
    records: list[Any] = []
    async with cursor:
        async for record in cursor:
            records.append(record)
            most_bytes -= len(record.raw)
            if most_bytes < 0:
                break
    return records


def problem_of(error: Exception, *, wrote: bool, quotable: bool = True) -> Problem | None:
    """Return the problem that a driver's error means for the client; None: a fault of the server.

    wrote: the request was a write.
    quotable: the client may read everything that the database's message may quote: its own body, and stored values.

    Messages of the database stay here, except messages about the client's own data.
    """
    later = {"retry-after": "1"}
    if isinstance(error, PyMongoError) and error.timeout:
        return Problem(503, "timeout", "The database took too long; ask for less, or later.", headers=later)
    if isinstance(error, DuplicateKeyError):
        return duplicate()
    if isinstance(error, DocumentTooLarge):
        return Problem(413, "record-too-large", "The record is larger than MongoDB's 16 MiB.")
    if isinstance(error, OperationFailure):
        return _of_code(error, later, wrote, quotable)
    if isinstance(error, ConnectionFailure | ServerSelectionTimeoutError):
        return Problem(503, "database-away", "The database does not answer.", headers=later)
    if isinstance(error, BSONError | OverflowError):
        return Problem(422, "record-malformed", f"Not a record that MongoDB can hold: {error}")
    return None


def duplicate(error: DuplicateKeyError | None = None) -> Problem:
    """Return the problem (409) of a value that another record has, with the fields of the unique index.

    error: None if the client may not read the other record; then the fields are left out.
    """
    pattern = {} if error is None else (error.details or {}).get("keyPattern") or {}
    which = f"the same value of {', '.join(map(str, pattern))}" if pattern else "a value that must be unique"
    return Problem(409, "duplicate-key", f"Another record has {which}.")


def duplicate_key(error: DuplicateKeyError) -> Mapping[str, Any]:
    """Return the values, by path, that another record has in a unique index; empty if the database does not report them."""
    key = (error.details or {}).get("keyValue")
    return key if isinstance(key, Mapping) else {}


def is_id_taken(error: DuplicateKeyError) -> bool:
    """Whether the duplicate key is the record's id."""
    return list((error.details or {}).get("keyPattern") or {}) == ["_id"]


def _of_code(error: OperationFailure, later: dict[str, str], wrote: bool, quotable: bool) -> Problem | None:
    code = error.code or 0
    said = str((error.details or {}).get("errmsg", error)) if quotable else "The change does not fit what is stored."
    if code in _TIMED_OUT:
        return Problem(503, "timeout", "The database took too long; ask for less, or later.", headers=later)
    if code == 121:
        return Problem(422, "record-invalid", "The record does not pass the collection's validation rules.")
    if code in _NOT_WRITABLE:
        return Problem(405, "not-writable", "Views cannot be written to.", headers={"allow": "GET, HEAD"})
    if code in _UNACCEPTABLE or (wrote and code in _BAD_REQUEST):
        return Problem(422, "record-malformed", said)
    if code == 10334:
        return Problem(413, "record-too-large", "The record is larger than MongoDB's 16 MiB.")
    if code in _BAD_REQUEST:
        return Problem(400, "query-refused", said)
    return None
