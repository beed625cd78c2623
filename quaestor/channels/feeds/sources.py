"""Sources that can be read again: files and folders, Redis Streams, change streams of MongoDB.

An offset names the place after a record. A source that no longer holds that place raises SourceLostError.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import bson
import redis
from bson import Decimal128, ObjectId, json_util
from bson.codec_options import DatetimeConversion
from bson.timestamp import Timestamp
from pymongo import MongoClient
from pymongo.errors import OperationFailure, PyMongoError

from quaestor.channels.feeds.records import LONGEST, Incoming, SourceLostError, from_beginning
from quaestor.errors import ConfigurationError, DependencyError
from quaestor.redis.clients import client

_WAIT_MS: Final = 200
_TIMEOUT_S: Final = 5.0
_JSON: Final = json_util.DEFAULT_JSON_OPTIONS.with_options(datetime_conversion=DatetimeConversion.DATETIME_AUTO)
_LOST: Final = frozenset({136, 222, 260, 280, 286})
"""CappedPositionLost, CloseChangeStream, InvalidResumeToken, ChangeStreamFatalError, ChangeStreamHistoryLost."""


class FileSource:
    """File, or the files of a folder in the order of their names: a JSON object on each line.

    Files only grow, and a new file has a later name than the others. The last line of a file counts once it has an end, or once
    there is a later file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def begin(self) -> str:
        """See OffsetSource."""
        return ""

    def read(self, after: str, most: int) -> Sequence[Incoming]:
        """See OffsetSource. An offset is the name of a file and the number of bytes."""
        name, start = json.loads(after) if after else ("", 0)
        records: list[Incoming] = []
        files = self._files()
        for number, path in enumerate(files):
            if path.name < name or len(records) >= most:
                continue
            is_last = number == len(files) - 1
            begin = start if path.name == name else 0
            records += self._lines(path, begin, most - len(records), is_last=is_last)
        return records

    def close(self) -> None:
        """See OffsetSource."""

    def _files(self) -> list[Path]:
        try:
            if self._path.is_dir():
                return sorted(path for path in self._path.iterdir() if path.is_file() and path.name[0] != ".")
            return [self._path] if self._path.exists() else []
        except OSError as error:
            raise DependencyError(f"{self._path} could not be read: {error}") from error

    def _lines(self, path: Path, begin: int, most: int, *, is_last: bool) -> list[Incoming]:
        records: list[Incoming] = []
        try:
            with path.open("rb") as file:
                if path.stat().st_size < begin:
                    raise SourceLostError(f"{path} is shorter than {begin} bytes, which were read before")
                file.seek(begin)
                while len(records) < most and (line := file.readline(LONGEST + 1)):
                    if len(line) > LONGEST and not line.endswith(b"\n"):
                        while (rest := file.readline(LONGEST)) and not rest.endswith(b"\n"):
                            pass
                    elif is_last and not line.endswith(b"\n"):
                        break
                    if line.strip():
                        records.append(Incoming(line.rstrip(b"\r\n"), json.dumps([path.name, file.tell()])))
        except OSError as error:
            raise DependencyError(f"{path} could not be read: {error}") from error
        return records


class RedisSource:
    """Redis Stream. An entry has its record as JSON in the field `record`, or its fields are the record.

    start: `beginning`, or `now`: entries that are there when the feed begins are left out.

    Servers before Redis 7 do not tell of trimmed and deleted entries, and neither does the source then.
    """

    def __init__(self, url: str, stream: str, *, start: str = "beginning") -> None:
        self._from_beginning = from_beginning(start)
        self._stream = stream
        self._client: Any = client(url, socket_timeout=_TIMEOUT_S, socket_connect_timeout=_TIMEOUT_S)

    def begin(self) -> str:
        """See OffsetSource."""
        if self._from_beginning:
            return ""
        try:
            present = self._present()
        except redis.RedisError as error:
            raise self._unread(error) from error
        return "0-0 0" if present is None else _offset(present.newest, present.added)

    def read(self, after: str, most: int) -> Sequence[Incoming]:
        """See OffsetSource. An offset is the id of an entry, and the number of entries that were added before its successor."""
        place, _, number = after.partition(" ")
        try:
            present = self._present()
            entries = self._client.xrange(self._stream, min=f"({place}" if place else "-", count=most)
            if not entries:
                self._client.xread({self._stream: place or "0"}, count=1, block=_WAIT_MS)
        except redis.RedisError as error:
            raise self._unread(error) from error
        ids = [identity.decode() for identity, _ in entries]
        added = int(number) if number else None
        if present is not None:
            seen = present.added_before(place, ids, most)
            if None not in (added, seen) and added != seen:
                raise SourceLostError(
                    f"entries of the stream {self._stream!r} after {place} were deleted before the feed read them"
                )
            added = seen if added is None else added
        return [
            Incoming(_entry(fields), _offset(identity, None if added is None else added + count))
            for count, (identity, (_, fields)) in enumerate(zip(ids, entries, strict=True), 1)
        ]

    def close(self) -> None:
        """See OffsetSource."""
        self._client.close()

    def _present(self) -> _Stream | None:
        """Return the state of the stream; None: there is none, or the server does not count entries."""
        try:
            state = self._client.xinfo_stream(self._stream)
        except redis.ResponseError as error:
            if "no such key" in str(error):
                return None
            raise
        if "entries-added" not in state:
            return None
        first = state["first-entry"]
        return _Stream(
            state["entries-added"],
            state["length"],
            state["last-generated-id"].decode(),
            first[0].decode() if first else "",
        )

    def _unread(self, error: redis.RedisError) -> DependencyError:
        return DependencyError(f"the stream {self._stream!r} could not be read: {error}")


class _Stream(NamedTuple):
    """State of a stream at a moment.

    added: number of entries that were ever added. length: number of entries that are there.
    newest: the highest id so far. oldest: id of the first entry that is there; empty: there is none.
    """

    added: int
    length: int
    newest: str
    oldest: str

    def added_before(self, place: str, ids: Sequence[str], most: int) -> int | None:
        """Return the number of entries that were added before those after a place; None: it cannot be known.

        ids: of the entries after the place, read after this state, at most `most`.

        An entry after the place that is trimmed or deleted raises the number, and nothing else does. A loss is noticed by that.
        """
        if not self.oldest or not place or _identity(self.oldest) > _identity(place):
            return self.added - self.length
        if len(ids) < most or _identity(ids[-1]) >= _identity(self.newest):
            return self.added - sum(_identity(identity) <= _identity(self.newest) for identity in ids)
        return None


def _offset(identity: str, added: int | None) -> str:
    return identity if added is None else f"{identity} {added}"


class MongoSource:
    """Change stream of a collection: new and changed records. Deletions are left out.

    start: `now`, or `beginning`: the present records come first, in the order of `_id`; one that changes meanwhile
        may come again. A present record whose `_id` is MaxKey is left out.
    """

    def __init__(self, url: str, database: str, collection: str, *, start: str = "now") -> None:
        self._from_beginning = from_beginning(start)
        self._client: MongoClient[Any] = MongoClient(
            url,
            serverSelectionTimeoutMS=int(_TIMEOUT_S * 1_000),
            tz_aware=True,
            datetime_conversion="DATETIME_AUTO",  # Python has no dates beyond the year 9999, MongoDB has
        )
        self._collection = self._client[database][collection]
        self._stream: Any = None
        self._reached = ""

    def begin(self) -> str:
        """See OffsetSource."""
        try:
            time = self._client.admin.command("ping").get("operationTime")
        except PyMongoError as error:
            raise self._unread(error) from error
        if time is None:
            raise ConfigurationError("a change stream needs a replica set: start mongod with --replSet")
        return json_util.dumps({"time": time, **({"record": None, "any": True} if self._from_beginning else {})})

    def read(self, after: str, most: int) -> Sequence[Incoming]:
        """See OffsetSource. An offset is a place in the collection, or a token of the stream."""
        place = json_util.loads(after or self.begin(), json_options=_JSON)
        try:
            if "record" in place:
                records = self._stored(place, most)
                if records:
                    return records
            return self._changed(after, place, most)
        except PyMongoError as error:
            self._leave()
            if isinstance(error, OperationFailure) and error.code in _LOST:
                raise SourceLostError(f"{self._collection.full_name}: {error}") from error
            raise self._unread(error) from error

    def close(self) -> None:
        """See OffsetSource."""
        self._leave()
        self._client.close()

    def _unread(self, error: PyMongoError) -> DependencyError:
        return DependencyError(f"{self._collection.full_name} could not be read: {error}")

    def _stored(self, place: Mapping[str, Any], most: int) -> list[Incoming]:
        """Return present records after a record, by `_id`."""
        cursor = self._collection.find().sort("_id", 1).limit(most + 1)
        if place.get("any"):
            records = list(cursor)[:most]
        else:
            # A condition with $gt would end with the type of this _id; a bound of the index does not. The bound is inclusive.
            records = list(cursor.hint([("_id", 1)]).min([("_id", place["record"])]))
            is_same = bool(records) and _bytes(records[0]["_id"]) == _bytes(place["record"])
            records = records[1:] if is_same else records[:most]
        return [
            Incoming(_document(record), json_util.dumps({"time": place["time"], "record": record["_id"]}))
            for record in records
        ]

    def _changed(self, after: str, place: Mapping[str, Any], most: int) -> list[Incoming]:
        """Return writes after a place. The open stream goes on if it stands there."""
        if self._stream is None or self._reached != after:
            self._leave()
            if "token" in place:
                start: dict[str, Any] = {"resume_after": place["token"]}
            else:
                time = place["time"]
                start = {"start_at_operation_time": Timestamp(time.time, time.inc + 1)}
            self._stream = self._collection.watch(
                [{"$match": {"operationType": {"$in": ["insert", "update", "replace", "drop", "rename", "invalidate"]}}}],
                full_document="updateLookup", max_await_time_ms=_WAIT_MS, **start,
            )  # fmt: skip
            self._reached = after
        records: list[Incoming] = []
        while len(records) < most and (event := self._stream.try_next()) is not None:
            if event["operationType"] in ("drop", "rename", "invalidate"):
                if records:
                    self._leave()
                    break
                raise SourceLostError(f"{self._collection.full_name} had a {event['operationType']}")
            offset = json_util.dumps({"token": event["_id"]})
            if event.get("fullDocument") is not None:
                records.append(Incoming(_document(event["fullDocument"]), offset))
                self._reached = offset
        return records

    def _leave(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()


def _entry(fields: Mapping[bytes, bytes]) -> bytes:
    if b"record" in fields:
        return fields[b"record"]
    return json.dumps(
        {name.decode(errors="replace"): value.decode(errors="replace") for name, value in fields.items()}
    ).encode()


def _identity(text: bytes | str) -> tuple[int, int]:
    time, _, number = (text.decode() if isinstance(text, bytes) else text).partition("-")
    return int(time), int(number or 0)


def _bytes(value: Any) -> bytes:
    return bson.encode({"": value})


def _document(record: Mapping[str, Any]) -> bytes:
    return json.dumps(record, default=_plain, ensure_ascii=False).encode()


def _plain(value: Any) -> Any:
    if isinstance(value, ObjectId | Decimal128):
        return str(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return json_util.default(value)
