"""Change stream of a whole cluster: opened at a resume position, read batch by batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import bson
import pymongo
from bson.raw_bson import RawBSONDocument
from pymongo.command_cursor import CommandCursor
from pymongo.read_concern import ReadConcern
from pymongo.read_preferences import ReadPreference

from quaestor.cluster_time import timestamp_of
from quaestor.invalidation.ingest.change_events import RAW_OPTIONS, STAGES, Collection, time_and_token
from quaestor.invalidation.ingest.raw_change_events import time_and_token_of
from quaestor.invalidation.ingest.record_source import RecordSource
from quaestor.invalidation.ingest.resume_position import ResumePosition
from quaestor.model import Version

EVENTS_AT_ONCE: Final = 1_000
"""Largest number of events in one read."""
_AWAITED: Final = "_max_await_time_ms"
"""The cursor's own field: how long the server waits for the first event of a batch."""
_TIMESTAMP: Final = 0x82
"""Byte that a KeyString puts before a timestamp."""


class ChangeStream:
    """An open change stream. Methods raise PyMongoError.

    Some fields of the cursor are not part of the driver's public interface. Without them events arrive one by one, positions
    advance only with events, and every read waits equally long.

    records: the records that updates carry.
    """

    def __init__(self, cursor: CommandCursor[Any], *, await_ms: int, records: RecordSource) -> None:
        self._cursor = cursor
        self._await_ms = await_ms
        self.records = records

    @classmethod
    def open(
        cls,
        client: pymongo.MongoClient[Any],
        position: ResumePosition,
        *,
        records: RecordSource,
        await_ms: int,
        without: Sequence[Collection] = (),
        at_once: int = EVENTS_AT_ONCE,
    ) -> ChangeStream:
        """Open the stream just behind a position.

        records: the records that updates are to carry.
        await_ms: time that a read waits for the first event.
        without: collections whose events the server skips, at a fifth of the cost of an event.
        at_once: largest number of events fetched on opening; the server searches until it has this number or has read every
            write.
        """
        admin = client.get_database(
            "admin",
            codec_options=RAW_OPTIONS,
            read_preference=ReadPreference.PRIMARY,
            read_concern=ReadConcern("majority"),
        )
        stage = records.stage | _place(position)
        left_out = [{"$match": {"ns": {"$nin": [collection._asdict() for collection in without]}}}] if without else []
        pipeline = [{"$changeStream": {"allChangesForCluster": True} | stage}, *left_out, *STAGES]
        cursor = admin.aggregate(pipeline, maxAwaitTimeMS=await_ms, batchSize=records.at_most(at_once))
        return cls(cursor, await_ms=await_ms, records=records)

    @property
    def alive(self) -> bool:
        """Whether the server keeps the stream open."""
        return self._cursor.alive

    def read(self, *, await_ms: int | None = None, at_once: int = EVENTS_AT_ONCE) -> list[RawBSONDocument]:
        """Return the next events: the first one within the time to wait, and the events that the driver already holds.

        await_ms: time to wait in this read, if it differs from the usual one.
        at_once: largest number of events in a batch.
        """
        self._cursor.batch_size(self.records.at_most(at_once))
        if hasattr(self._cursor, _AWAITED):
            setattr(self._cursor, _AWAITED, self._await_ms if await_ms is None else await_ms)
        event = self._cursor.try_next()
        if event is None:
            return []
        events = [event]
        while len(events) < EVENTS_AT_ONCE and getattr(self._cursor, "_data", None):
            events.append(self._cursor.try_next())
        return events

    def position_after(self, position: ResumePosition, event: RawBSONDocument | None) -> ResumePosition:
        """Return the position behind `event`, or, if it was the last of its batch, behind all that the server has scanned.

        position: the position before.
        """
        token, version = position.token, position.version
        if event is not None:
            time_of_event, token = time_and_token_of(bytes(event.raw)) or time_and_token(event)
            version = max(version, time_of_event)
        scanned = self._scanned
        if scanned is not None and not getattr(self._cursor, "_data", True):
            token = scanned.raw
        return position._replace(token=token, version=version)

    def position_at(self, position: ResumePosition, majority: Version) -> ResumePosition:
        """Return the position after an empty read: at this commit point, if the server has scanned the history that far."""
        position = self.position_after(position, None)
        looked_through = time_of_token(self._scanned) >= majority
        return position._replace(version=max(position.version, majority)) if looked_through else position

    def reopen(self, client: pymongo.MongoClient[Any], position: ResumePosition, records: RecordSource) -> None:
        """Go on from a position with other records in updates."""
        other = ChangeStream.open(client, position, records=records, await_ms=self._await_ms)
        self.close()
        self._cursor, self.records = other._cursor, records

    def close(self) -> None:
        """End the stream."""
        self._cursor.close()

    @property
    def _scanned(self) -> Any:
        """Resume token behind all that the server has scanned."""
        return getattr(self._cursor, "_post_batch_resume_token", None)


def _place(position: ResumePosition) -> dict[str, Any]:
    if position.token is None:
        return {"startAtOperationTime": timestamp_of(position.version + 1)}
    return {"resumeAfter": bson.decode(position.token)}


def time_of_token(token: Any) -> Version:
    """Return the cluster time in a resume token: the first value of a KeyString, in hexadecimal; 0 for another form.

    https://github.com/mongodb/mongo/blob/master/src/mongo/db/pipeline/resume_token.h
    """
    try:
        data = bytes.fromhex(token["_data"][:18])
    except (TypeError, KeyError, ValueError):
        return 0
    return int.from_bytes(data[1:], "big") if len(data) == 9 and data[0] == _TIMESTAMP else 0
