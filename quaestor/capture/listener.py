"""The pymongo listener: feeds every command of a recorded request to its recorder.

pymongo calls a command listener synchronously in the very context (task, thread) of the operation. MongoClient and
AsyncMongoClient both do, so the context variable leads to the right recorder. Nothing here raises, and a command outside
a recorded request costs one look at a context variable.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from operator import itemgetter
from typing import Any

from bson import ObjectId, Timestamp
from bson.binary import Binary
from bson.codec_options import CodecOptions
from bson.int64 import Int64
from bson.raw_bson import RawBSONDocument
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

from quaestor.capture.captured_clients import CapturedClients
from quaestor.capture.commands import READING
from quaestor.capture.context import heard_by, possible_recordings
from quaestor.capture.known_commands import KnownCommands
from quaestor.capture.listener_failures import ListenerFailures, distrust_request
from quaestor.capture.recorder import ReadInProgress, Recorder
from quaestor.capture.result_digests import ResultDigest, loses_nothing, may_be_compared
from quaestor.capture.snapshot import Findings, snapshot
from quaestor.capture.topology import Topology, Watcher
from quaestor.capture.uncaptured import notice_uncaptured
from quaestor.capture.unreported import APPLY_OPS, UnreportedWrites
from quaestor.capture.write_log import WriteLog, is_write
from quaestor.model import Document, Operation, Query, Uncacheable, Version
from quaestor.query.encoding import RAW

_NEVER_WRITES = frozenset({"find", "getMore", "count", "distinct"})
_MAX_FRAMES = 40
_MOST_COMPARED = 1_000
"""Views whose results are digested, at most."""
_ID = itemgetter("_id")
_PLAIN_IDS = frozenset({ObjectId, int, str, Int64, float, type(None), bytes, Binary})
"""Types of `_id` that are immutable and encoded alike by every codec."""


class Capture(CommandListener, ServerHeartbeatListener):
    """Listener for every client whose reads may be cached: `AsyncMongoClient(url, event_listeners=[capture])`.

    Thread-safe. Listens to heartbeats too: they report which address is a primary, and that a client has appeared. A command
    alone does not show the primary when its read preference leaves the choice open or the client is connected directly.

    clients: clients with this capture.
    unreported: writes that no change event reports.
    failures: of this listener and of those beside it.
    """

    def __init__(self) -> None:
        self._topology = Topology()
        self._known = KnownCommands()
        self._compared: set[str] = set()
        self.clients = CapturedClients(self, self._topology)
        self.unreported = UnreportedWrites()
        self.failures = ListenerFailures()
        notice_uncaptured(self.failures)

    def watcher(self) -> Watcher:
        """Return a listener for the client that watches the writes. With it, reads from any other cluster are refused."""
        return Watcher(self._topology, self.failures)

    def started(self, event: CommandStartedEvent | ServerHeartbeatStartedEvent) -> None:
        """See pymongo.monitoring. Never raises."""
        try:
            if not isinstance(event, CommandStartedEvent):
                if not event.awaited:
                    self.clients.heartbeat()
                return
            recorder, writes = heard_by(self)
            name = event.command_name
            if name == APPLY_OPS:
                self.unreported.started(event)
            if writes is not None and name not in _NEVER_WRITES:
                self._log_write(writes, event)
            if recorder is None:
                _started_without_recorder(event)
            else:
                recorder.claim(event)
                try:
                    self._started(recorder, name, event)
                except Exception as error:
                    _not_understood(recorder, name, error)
        except Exception as error:
            self._failed(error)

    def succeeded(self, event: CommandSucceededEvent | ServerHeartbeatSucceededEvent) -> None:
        """See pymongo.monitoring. Never raises."""
        try:
            if not isinstance(event, CommandSucceededEvent):
                self._topology.heartbeat_succeeded(event.connection_id, event.reply)
                return
            if event.command_name == APPLY_OPS:
                self.unreported.ended(event)
            recorder, writes = heard_by(self)
            if writes is not None:
                writes.succeeded(event)
            if recorder is not None:
                try:
                    _succeeded(recorder, event)
                except Exception as error:
                    _not_understood(recorder, event.command_name, error)
        except Exception as error:
            self._failed(error)

    def failed(self, event: CommandFailedEvent | ServerHeartbeatFailedEvent) -> None:
        """See pymongo.monitoring. Never raises."""
        try:
            if not isinstance(event, CommandFailedEvent):
                self._topology.heartbeat_failed(event.connection_id)
                return
            if event.command_name == APPLY_OPS:
                self.unreported.ended(event)
            recorder, writes = heard_by(self)
            if writes is not None:
                writes.failed(_request(event))
            if recorder is not None:
                recorder.failed(_request(event))
        except Exception as error:
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        distrust_request(error)
        self.failures.note(error)

    def _log_write(self, writes: WriteLog, event: CommandStartedEvent) -> None:
        """Log a write, unless it is in another cluster than the watched one: no answer waits for that."""
        try:
            if is_write(event) and not self._topology.is_in_another_cluster(event.connection_id):
                writes.started(event)
        except Exception:
            return  # a command that cannot be interpreted is not known to write

    def _started(self, recorder: Recorder, name: str, event: CommandStartedEvent) -> None:
        if name == "getMore":
            _get_more(recorder, event)
            return
        understood = self._known.understand(name, event.command, event.database_name, _uuid_representation)
        for reason, detail in understood.reasons:
            recorder.refuse(reason, detail)
        if understood.query is None:
            return
        if self._topology.is_in_another_cluster(event.connection_id):
            recorder.refuse(
                Uncacheable.UNREADABLE, f"{understood.description}, in another cluster than the one watched"
            )
        recorder.begin(
            _request(event),
            ReadInProgress(
                understood=understood,
                operation_id=event.operation_id,
                primary=understood.primary_preference or self._topology.is_primary(event.connection_id),
                ids=[] if understood.keeps_records else None,
                digest=self._digest(understood.query),
            ),
        )

    def compare(self, views: Iterable[str]) -> None:
        """Digest the reads of these namespaces from now on: they are views whose results may be compared."""
        self._compared.update(islice(views, max(0, _MOST_COMPARED - len(self._compared))))

    def _digest(self, query: Query) -> ResultDigest | None:
        """Return a digest of a result that may be compared with a later one; None: it may not."""
        wanted = may_be_compared(query) or (query.namespace in self._compared and query.widened is None)
        return ResultDigest(query) if wanted and loses_nothing(_codec_options()) else None


def _started_without_recorder(event: CommandStartedEvent) -> None:
    """Refuse the recordings that a command without a recorder may belong to: its thread may lack a request's context."""
    for recorder in possible_recordings():
        if event.command_name in READING:
            recorder.refuse(
                Uncacheable.UNREADABLE,
                f"{event.command_name} in a thread without a request's context: use asyncio.to_thread instead of "
                "run_in_executor, or a client without capture for background work",
            )


def _get_more(recorder: Recorder, event: CommandStartedEvent) -> None:
    cursor_id = int(event.command["getMore"])
    if event.request_id == 0:
        # An exhaust cursor streams batches without requests; their replies cannot be assigned to reads.
        recorder.refuse(Uncacheable.UNREADABLE, "an exhaust cursor")
    elif not recorder.get_more(_request(event), _cursor(event, cursor_id)):
        recorder.refuse(Uncacheable.UNREADABLE, "a cursor that was opened outside this request")


def _succeeded(recorder: Recorder, event: CommandSucceededEvent) -> None:
    request = _request(event)
    read = recorder.read_of(request)
    if read is None:
        return
    reply = event.reply
    cursor = reply.get("cursor")
    cursor_id = 0
    ids: list[Any] | None = None
    last: Document | None = None
    if cursor is not None:
        cursor_id = int(cursor.get("id", 0))
        if read.ids is not None:
            batch = cursor["firstBatch"] if "firstBatch" in cursor else cursor["nextBatch"]
            ids = _ids(batch)
            query = read.understood.query
            if ids and query is not None and (query.limit or query.pipeline):
                last = _record(_deciding(query, batch[-1]))
        if cursor.get("partialResultsReturned"):
            recorder.refuse(Uncacheable.UNREADABLE, "a shard was down: the result is partial")
    if read.digest is not None:
        read.digest.add(reply)
    recorder.replied(
        request,
        read_at=_version(reply.get("operationTime")),
        ids=ids,
        last=last,
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


def _ids(batch: Sequence[Any]) -> list[Any] | None:
    """Return the `_id` of each record, as copies that the handler cannot change any more. This runs for every record that is
    read, so the usual types are not copied.

    None for raw bytes, and if a record has no `_id` or one that cannot be written as BSON again (a client's own type).
    """
    if batch and isinstance(batch[0], RawBSONDocument):
        return _unusual_ids(batch)
    try:
        ids = list(map(_ID, batch))
    except (KeyError, TypeError):
        return None
    return ids if _PLAIN_IDS.issuperset(map(type, ids)) else _unusual_ids(batch)


def _unusual_ids(batch: Sequence[Any]) -> list[Any] | None:
    ids: list[Any] = []
    for document in batch:
        if isinstance(document, RawBSONDocument):
            # Its own codec options may not know a value of the record, or decode the _id to a type that ours cannot encode.
            document = RawBSONDocument(document.raw, RAW)
        elif not isinstance(document, Mapping):
            return None
        key = document["_id"]
        if type(key) not in _PLAIN_IDS and not isinstance(key, RawBSONDocument):
            findings = Findings()
            key = snapshot(key, findings, _uuid_representation)
            if findings.opaque is not None:
                return None
        ids.append(key)
    return ids


def _deciding(query: Query, document: Any) -> Any:
    """Return the sorting fields of the last record in a sorted find: the rest need not be copied. Other records as they are."""
    if query.operation is not Operation.FIND or not query.sort or type(document) is not dict:
        return document
    if not all(isinstance(direction, int) for _, direction in query.sort):
        return document
    fields = {path.split(".", 1)[0] for path, _ in query.sort} | {"_id"}
    return {field: document[field] for field in fields if field in document}


def _record(document: Any) -> Document | None:
    """Return a copy that the handler cannot change; None if it cannot be written as BSON again."""
    if isinstance(document, RawBSONDocument):
        return RawBSONDocument(document.raw, RAW)
    findings = Findings()
    record: Document = snapshot(document, findings, _uuid_representation)
    return record if findings.opaque is None else None


def _uuid_representation() -> int | None:
    """Return how the running command encodes native UUIDs; None if the driver's frames do not show it."""
    options = _codec_options()
    return None if options is None else int(options.uuid_representation)


def _codec_options() -> CodecOptions[Any] | None:
    """Return the codec options of the running command; None if the driver's frames do not show them.

    The event does not carry the codec options of its operation, and a collection may have other options than its client. The
    driver's own frames, below this one on the stack, hold them. Only commands and `_id`s with a native UUID, and results that
    may be compared later, pay for the search. A driver that keeps the options elsewhere makes us widen.
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
            return options
    return None


def _not_understood(recorder: Recorder, command_name: str, error: Exception) -> None:
    recorder.refuse(Uncacheable.UNREADABLE, f"{command_name}: {type(error).__name__}")
