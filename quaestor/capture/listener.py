"""The pymongo listener: feeds every command of a recorded request to its recorder.

pymongo calls a command listener in the very context (task, thread) that runs the operation, synchronously, for MongoClient
as for AsyncMongoClient, so the context variable leads to the right recorder. Nothing here raises, and a command outside
a recorded request costs one look at a context variable.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from bson import ObjectId, Timestamp
from bson.binary import Binary
from bson.codec_options import CodecOptions
from bson.int64 import Int64
from bson.raw_bson import DEFAULT_RAW_BSON_OPTIONS, RawBSONDocument
from pymongo.monitoring import (
    CommandFailedEvent,
    CommandListener,
    CommandStartedEvent,
    CommandSucceededEvent,
    ServerHeartbeatFailedEvent,
    ServerHeartbeatListener,
    ServerHeartbeatStartedEvent,
    ServerHeartbeatSucceededEvent,
)

from quaestor.capture.commands import READING, understand
from quaestor.capture.recorder import ReadInProgress, Recorder, current, suspects
from quaestor.capture.snapshot import Findings, snapshot
from quaestor.capture.topology import Topology, Watcher
from quaestor.model import Document, Uncacheable, Version

_MAX_FRAMES = 40
_PLAIN_IDS = frozenset({ObjectId, int, str, Int64, float, type(None), bytes, Binary})
"""Types of `_id` that are immutable and that every codec encodes alike."""


class Capture(CommandListener, ServerHeartbeatListener):
    """Give it to every client whose reads may be cached: `AsyncMongoClient(url, event_listeners=[capture])`.

    Thread-safe. Listens to heartbeats too: they tell which address is a primary, which a command alone does not
    when its read preference leaves the choice open or the client is connected directly.
    """

    def __init__(self) -> None:
        self._topology = Topology()

    def watcher(self) -> Watcher:
        """A listener for the client that watches the writes: reads from any other cluster are then refused."""
        return Watcher(self._topology)

    def started(self, event: CommandStartedEvent | ServerHeartbeatStartedEvent) -> None:
        recorder = current()
        if recorder is None:
            _stray(event)
        elif isinstance(event, CommandStartedEvent):
            try:
                self._started(recorder, event)
            except Exception as error:
                _not_understood(recorder, event.command_name, error)

    def succeeded(self, event: CommandSucceededEvent | ServerHeartbeatSucceededEvent) -> None:
        if not isinstance(event, CommandSucceededEvent):
            self._topology.heard(event.connection_id, event.reply)
            return
        recorder = current()
        if recorder is not None:
            try:
                _succeeded(recorder, event)
            except Exception as error:
                _not_understood(recorder, event.command_name, error)

    def failed(self, event: CommandFailedEvent | ServerHeartbeatFailedEvent) -> None:
        if not isinstance(event, CommandFailedEvent):
            self._topology.lost(event.connection_id)
            return
        recorder = current()
        if recorder is not None:
            recorder.failed(_request(event))

    def _started(self, recorder: Recorder, event: CommandStartedEvent) -> None:
        name = event.command_name
        if name == "getMore":
            _get_more(recorder, event)
            return
        understood = understand(name, event.command, event.database_name, _uuid_representation)
        for reason, detail in understood.reasons:
            recorder.refuse(reason, detail)
        if understood.query is None:
            return
        if self._topology.is_elsewhere(event.connection_id):
            recorder.refuse(
                Uncacheable.UNREADABLE, f"{understood.description}, in another cluster than the one watched"
            )
        recorder.begin(
            _request(event),
            ReadInProgress(
                understood=understood,
                operation_id=event.operation_id,
                primary=understood.primary_preference or self._topology.is_primary(event.connection_id),
                documents=[] if understood.keeps_records else None,
            ),
        )


def _stray(event: CommandStartedEvent | ServerHeartbeatStartedEvent) -> None:
    """A command outside every recorded request; or one inside, in a thread that does not know of it."""
    for recorder in suspects():
        if isinstance(event, CommandStartedEvent) and event.command_name in READING:
            recorder.refuse(
                Uncacheable.UNREADABLE,
                f"{event.command_name} in a thread without a request's context: use asyncio.to_thread instead of "
                "run_in_executor, or a client without capture for background work",
            )


def _get_more(recorder: Recorder, event: CommandStartedEvent) -> None:
    cursor_id = int(event.command["getMore"])
    if event.request_id == 0:
        # An exhaust cursor streams batches without asking; their replies cannot be told apart.
        recorder.refuse(Uncacheable.UNREADABLE, "an exhaust cursor")
    elif not recorder.go_on(_request(event), _cursor(event, cursor_id)):
        recorder.refuse(Uncacheable.UNREADABLE, "a cursor that was opened outside this request")


def _succeeded(recorder: Recorder, event: CommandSucceededEvent) -> None:
    request = _request(event)
    read = recorder.awaits(request)
    if read is None:
        return
    reply = event.reply
    cursor = reply.get("cursor")
    cursor_id = 0
    documents: Sequence[Document] | None = None
    if cursor is not None:
        cursor_id = int(cursor.get("id", 0))
        if read.documents is not None:
            documents = _records(cursor["firstBatch"] if "firstBatch" in cursor else cursor["nextBatch"])
        if cursor.get("partialResultsReturned"):
            recorder.refuse(Uncacheable.UNREADABLE, "a shard was down: the result is partial")
    recorder.replied(
        request,
        read_at=_version(reply.get("operationTime")),
        documents=documents,
        cursor=_cursor(event, cursor_id),
        cursor_id=cursor_id,
        duration_ms=event.duration_micros / 1000,
    )


def _request(event: CommandStartedEvent | CommandSucceededEvent | CommandFailedEvent) -> tuple[Any, int]:
    return event.connection_id, event.request_id


def _cursor(event: CommandStartedEvent | CommandSucceededEvent, cursor_id: int) -> tuple[Any, int]:
    return event.connection_id, cursor_id


def _version(operation_time: Any) -> Version:
    if not isinstance(operation_time, Timestamp):
        return 0
    return operation_time.time << 32 | operation_time.inc


def _records(batch: Sequence[Any]) -> list[Document] | None:
    """The batch as records that the handler cannot change any more: `_id`s and the whole last record are deep copies.

    None if one of them cannot be written as BSON again (a type of the client's own), or if the batch is raw bytes.
    """
    records: list[Document] = []
    for document in batch:
        if type(document) is not dict and isinstance(document, RawBSONDocument):
            # Immutable. Its own codec options may turn an _id into what the default options cannot encode.
            records.append(RawBSONDocument(document.raw, DEFAULT_RAW_BSON_OPTIONS))
            continue
        if type(document) is not dict and not isinstance(document, Mapping):
            return None
        record = dict(document)
        if type(record.get("_id")) not in _PLAIN_IDS:
            findings = Findings()
            record["_id"] = snapshot(record["_id"], findings, _uuid_representation)
            if findings.opaque is not None:
                return None
        records.append(record)
    if records and isinstance(records[-1], dict):
        findings = Findings()
        records[-1] = snapshot(records[-1], findings, _uuid_representation)
        if findings.opaque is not None:
            return None
    return records


def _uuid_representation() -> int | None:
    """How the command being run encodes native UUIDs; None if the driver's frames do not tell.

    The event does not carry the codec options of its operation, and a collection may have other ones than its client.
    The driver's own frames, below this one on the stack, hold them: only commands and `_id`s with a native UUID pay for
    the search, and a driver that keeps them elsewhere makes us widen.
    """
    frame = sys._getframe(1)
    for _ in range(_MAX_FRAMES):
        if frame.f_back is None:
            return None
        frame = frame.f_back
        if not frame.f_globals.get("__name__", "").startswith("pymongo."):
            continue
        local = frame.f_locals
        options = local.get("codec_options") or getattr(local.get("operation"), "codec_options", None)
        if isinstance(options, CodecOptions):
            return int(options.uuid_representation)
    return None


def _not_understood(recorder: Recorder, command_name: str, error: Exception) -> None:
    recorder.refuse(Uncacheable.UNREADABLE, f"{command_name}: {type(error).__name__}: {error}")
