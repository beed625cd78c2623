"""Change stream of one collection, read in batches of whole transactions, and its snapshot at one cluster time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from bson import json_util
from bson.codec_options import CodecOptions, DatetimeConversion
from pymongo.collection import Collection
from pymongo.errors import OperationFailure, PyMongoError
from pymongo.read_preferences import ReadPreference

from quaestor.cluster_time import timestamp_of, version_of
from quaestor.errors import ConfigurationError, DatabaseError

_BATCH: Final = 1_000
_AWAIT_MS: Final = 500
_NOT_FOUND: Final = 26
_EXISTS: Final = 48
_LOST: Final = frozenset({136, 222, 260, 280, 286})
"""CappedPositionLost, CloseChangeStream, InvalidResumeToken, ChangeStreamFatalError, ChangeStreamHistoryLost."""
_OPTIONS: Final[CodecOptions[dict[str, Any]]] = CodecOptions(datetime_conversion=DatetimeConversion.DATETIME_AUTO)


class StreamLostError(Exception):
    """Loss of the change stream: it cannot go on at its position. The message gives the reason."""


class Batch(NamedTuple):
    """Writes in their order.

    events: whole transactions.
    units: by event, the number of its transaction in the batch.
    position: from which the stream goes on after them; None: not known yet.
    """

    events: list[Mapping[str, Any]]
    units: list[int]
    position: str | None


class CollectionStream:
    """Open change stream of one collection. Methods raise PyMongoError, and StreamLostError after a drop or a rename."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._next: Mapping[str, Any] | None = None

    def read(self) -> Batch:
        """Return the next writes; none, if there is no write within half a second."""
        events: list[Mapping[str, Any]] = []
        units: list[int] = []
        while (not events or self._more(events[-1])) and (event := self._take()) is not None:
            if event["operationType"] not in ("insert", "update", "replace", "delete"):
                if not events:
                    raise StreamLostError(f"the collection had a {event['operationType']}")
                self._next = event
                break
            alone = not events or _transaction(event) is None or _transaction(event) != _transaction(events[-1])
            if alone and len(events) >= _BATCH:
                self._next = event
                break
            units.append(units[-1] + alone if units else 0)
            events.append(event)
        token = events[-1]["_id"] if events else self._stream.resume_token
        return Batch(events, units, None if token is None else json_util.dumps({"token": token}))

    def _more(self, last: Mapping[str, Any]) -> bool:
        """Whether to take another event: the driver holds it already, or it may belong to the transaction of the last one."""
        held = getattr(getattr(self._stream, "_cursor", None), "_data", None)
        return self._next is not None or bool(held) or _transaction(last) is not None

    def _take(self) -> Mapping[str, Any] | None:
        event, self._next = self._next, None
        return self._stream.try_next() if event is None else event


@contextmanager
def opened(collection: Collection[Any], position: str) -> Iterator[CollectionStream]:
    """Open the stream behind a position. Raises StreamLostError if it is no longer known, DatabaseError."""
    place = json_util.loads(position)
    start: dict[str, Any] = (
        {"start_at_operation_time": timestamp_of(place["version"] + 1)}
        if "version" in place
        else {"resume_after": place["token"]}
    )
    watched = collection.with_options(codec_options=_OPTIONS, read_preference=ReadPreference.PRIMARY)
    try:
        with watched.watch(
            full_document="whenAvailable", max_await_time_ms=_AWAIT_MS, batch_size=_BATCH, **start
        ) as stream:
            yield CollectionStream(stream)
    except PyMongoError as error:
        if isinstance(error, OperationFailure) and error.code in _LOST:
            raise StreamLostError(str(error)) from error
        raise DatabaseError(f"the change stream of {collection.full_name} failed: {error}") from error


class CollectionSnapshot(NamedTuple):
    """Records of a collection at one cluster time.

    position: from which the change stream goes on after them.
    """

    records: Iterator[Mapping[str, Any]]
    position: str


@contextmanager
def snapshot(collection: Collection[Any]) -> Iterator[CollectionSnapshot]:
    """Read the collection at the newest cluster time. Raises DatabaseError."""
    database = collection.database
    try:
        reply = database.client.admin.command("ping")
        if "operationTime" not in reply:
            raise ConfigurationError("tables from collections need a replica set: start mongod with --replSet")
        version = version_of(reply["operationTime"])
        concern = {"level": "snapshot", "atClusterTime": timestamp_of(version)}
        cursor = database.cursor_command(
            {"find": collection.name, "batchSize": _BATCH, "readConcern": concern},
            read_preference=ReadPreference.PRIMARY, codec_options=_OPTIONS,
        )  # fmt: skip
        with cursor:
            yield CollectionSnapshot(iter(cursor), json_util.dumps({"version": version}))
    except PyMongoError as error:
        raise DatabaseError(f"{collection.full_name} could not be read: {error}") from error


def any_record(collection: Collection[Any]) -> Mapping[str, Any] | None:
    """Return the `_id` of any record; None: the collection is empty. Raises DatabaseError."""
    try:
        record: Mapping[str, Any] | None = collection.find_one(projection=["_id"])
    except PyMongoError as error:
        raise DatabaseError(f"{collection.full_name} could not be read: {error}") from error
    return record


def keep_images(collection: Collection[Any]) -> None:
    """Let the server keep the image of each write, without which an update has no exact version. Make the collection if needed.

    Raises ConfigurationError with the remedy, DatabaseError.
    """
    database, images = collection.database, {"enabled": True}
    try:
        options = next(iter(database.list_collections(filter={"name": collection.name})), None)
        if options is None:
            try:
                database.create_collection(collection.name, changeStreamPreAndPostImages=images)
                return
            except OperationFailure as error:
                if error.code != _EXISTS:
                    raise
                options = {}
        if options.get("type", "collection") != "collection":
            raise ConfigurationError(
                f"{collection.full_name} is a {options['type']}: its writes appear in no change stream"
            )
        if not options.get("options", {}).get("changeStreamPreAndPostImages", {}).get("enabled"):
            database.command("collMod", collection.name, changeStreamPreAndPostImages=images)
    except OperationFailure as error:
        raise ConfigurationError(
            f"the images of {collection.full_name} could not be turned on ({error}): "
            f"run db.runCommand({{collMod: '{collection.name}', changeStreamPreAndPostImages: {{enabled: true}}}})"
        ) from error
    except PyMongoError as error:
        raise DatabaseError(f"{collection.full_name} did not answer: {error}") from error


def _transaction(event: Mapping[str, Any]) -> Any:
    return (event["lsid"]["id"], event["txnNumber"]) if "txnNumber" in event else None
