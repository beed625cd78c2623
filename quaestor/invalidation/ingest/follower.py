"""Ingest: the database's change stream, appended to the write pipelines.

One cluster-wide change stream, so that writes by whoever made them are seen: other programs, shells, migrations.

**Lossless.** A batch is appended to every write pipeline it concerns before a position behind it is saved; after any
failure the stream is reopened at the saved position. Images may be appended twice, never skipped, and each pipeline has
them in cluster-time order. If the position cannot be resumed from (oplog too short, another database) every pipeline
gets a GAP, whose version is that of the fresh start.

**Versions.** A fresh start begins at the majority commit point M that the primary reports. A majority-committed history
has no holes, so every write up to M is visible to any later read on the primary, and every write after M will be
delivered: M is the first watermark. From then on the watermark is the version of what was delivered; or, when a getMore that
began after the primary was asked came back empty and the server says that it has looked through the history as far as the M
of that answer, this M: the database's time goes on while nobody writes, and reads are dated by it.

**Ticks** prove freshness: "every write that the database performed before `wall_ms` is in the pipelines". Silence alone
does not prove that, for writes that are visible but not yet majority-committed are not delivered, however long that
lasts. So before a getMore ingest notes its clock and then asks the primary for its newest write (A) and its majority
commit point (M). Whatever was performed before the noted moment has a version of at most A. It has all been delivered when

- a later getMore came back empty, and A <= M: that getMore read the history up to at least M; or
- an event newer than A was delivered, because events come in order.

The tick then carries the noted moment. After an empty getMore it also carries the watermark, and says that every write
up to it is in the pipelines; while events keep coming that is not known, for the writes of a transaction share their
version and may be spread over several reads. Clocks of ingest and of the app servers are expected to agree (NTP). An
outdated primary that is cut off from its set answers this too, for at most an election timeout (10 s by default).

**Elections.** A primary shows writes that its successor may never have had, and no event tells of their end; one that crashed
forgets what it had not yet written down. So each election is a gap, and a gap's version is the newest that the primary has:
above all that was delivered before, wherever ingest goes on. What was read before it dies, also what is registered only
later. The stream is then read from the member that answers the probes, and goes on unbroken. The version is kept with the
position: a cell whose checkpoint lies below it may not have heard of the gap, so whoever takes over from there tells it again.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import closing
from typing import Any, Final

import bson
import pymongo
from pymongo.command_cursor import CommandCursor
from pymongo.errors import AutoReconnect, OperationFailure, PyMongoError
from pymongo.read_concern import ReadConcern
from pymongo.read_preferences import ReadPreference

from quaestor.clock import Clock, system_clock
from quaestor.cluster_time import timestamp_of, version_of
from quaestor.errors import ConfigurationError, DatabaseError, EventLayerError, EventLayerResetError
from quaestor.event_layer import offsets, streams
from quaestor.event_layer.bounds import PipelineBounds
from quaestor.invalidation.grid.resizing.handover import Handover
from quaestor.invalidation.ingest.change_events import EVERYTHING, RAW_OPTIONS, STAGES, time_and_token
from quaestor.invalidation.ingest.primary_probes import PROBES_KEPT, Probe, proven
from quaestor.invalidation.ingest.resume_position import Position
from quaestor.invalidation.ingest.resume_tokens import time_of_token
from quaestor.invalidation.ingest.write_pipelines import WritePipelines
from quaestor.model import AfterImage, GridShape, Version, WriteKind
from quaestor.observability.telemetry import Telemetry
from quaestor.ports import EventLayer

_Stream = CommandCursor[Any]

_EVENTS_AT_ONCE: Final = 1_000
_ANSWER_TIMEOUT_S: Final = 5.0
_WIRE_VERSION_6_0: Final = 17
_POSITION_LOST: Final = frozenset({136, 260, 280, 286, 40647})
"""CappedPositionLost, InvalidResumeToken, ChangeStreamFatalError, ChangeStreamHistoryLost, not a resume token."""
_EVENT_TOO_LARGE: Final = 10334
_NOT_ALLOWED: Final = frozenset({13, 18, 8000})
"""Unauthorized, AuthenticationFailed, Atlas' own: says nothing about the position."""
_PATIENCE: Final = 5
"""Consecutive refusals of a position, for whatever other reason, before it is given up."""
_LONGEST_PAUSE_S: Final = 2.0
_SAVE_EVERY_S: Final = 0.1
"""While events keep coming: an ingest that dies repeats what it appended since."""
_BOUND_EVERY_S: Final = 1.0
_UNKNOWN: Final = 0


class Ingest:
    """Reads the change stream of one deployment and feeds its pipelines.

    At most one should run; a second one for a moment (a restart before the old one is dead) repeats images, no more.

    layer: its own, see RedisEventLayer.
    """

    def __init__(
        self,
        client: pymongo.MongoClient[Any],
        layer: EventLayer,
        shape: GridShape,
        *,
        deployment: str,
        heartbeat_ms: int,
        earlier: Sequence[GridShape] = (),
        bounds: PipelineBounds | None = None,
        clock: Clock = system_clock,
        telemetry: Telemetry | None = None,
    ) -> None:
        """earlier: the grids that this one takes over from (see resizing); their own ingest may go on meanwhile.
        bounds: of each write pipeline.
        """
        self._client = client
        self._layer = layer
        self._position_name = streams.resume_position(deployment, shape.generation)
        self._heartbeat_s = heartbeat_ms / 1000
        self._await_ms = max(1, heartbeat_ms // 2)
        self._clock = clock
        self._telemetry = telemetry or Telemetry()
        names = [streams.writes(deployment, part, shape.generation) for part in range(shape.write_partitions)]
        self._pipelines = WritePipelines(client, layer, names, self._telemetry, bounds or PipelineBounds())
        self._handover = Handover(layer, shape, earlier, deployment=deployment, clock=clock, telemetry=self._telemetry)
        self._position: Position | None = None
        self._loaded = False
        self._gap = False
        self._refused = 0
        self._failed = 0
        self._slim = False
        self._save_due_s = 0.0
        self._bound_due_s = 0.0

    def check(self) -> None:
        """Whether this database can be followed at all.

        Raises ConfigurationError with the remedy if it cannot, DatabaseError if it does not answer.
        """
        try:
            self._probe()
        except PyMongoError as error:
            raise DatabaseError(f"MongoDB did not answer: {error}") from error

    def run(self, stop: threading.Event) -> None:
        """Until stop is set. Survives failures of MongoDB and of the event layer; raises only ConfigurationError."""
        while not stop.is_set():
            try:
                self._follow(stop)
                continue
            except EventLayerResetError as error:
                self._telemetry.failure("event-layer", "ingest.event_layer_reset", error)
                self._gap = True
                self._handover.lost()
            except EventLayerError as error:
                self._telemetry.failure("event-layer", "ingest.append_failed", error)
            except (PyMongoError, DatabaseError) as error:
                self._telemetry.failure("mongodb", "ingest.stream_failed", error)
                self._consider_position(error)
            self._failed += 1
            stop.wait(min(0.05 * 2**self._failed, _LONGEST_PAUSE_S))

    # One life of a change stream cursor

    def _follow(self, stop: threading.Event) -> None:
        if not self._handover.begin():
            stop.wait(self._heartbeat_s)
            return
        if not self._loaded:
            self._position, self._loaded = self._saved_position() or self._taken_over(), True
        probe = self._probe()
        position = self._start_from(probe)
        with closing(self._open(position, probe)) as stream:
            first = stream.try_next()  # opening succeeded: nothing after the position can be missed from here on
            if self._gap:
                position = position._replace(gap=max(position.version, probe.applied))
                self._pipelines.append(_gap(position.gap))
                self._gap = False
            self._save(position)
            if not self._handover.done:
                self._take_over(position)
            self._refused = self._failed = 0
            self._pump(stream, first, probe, stop)

    def _pump(self, stream: _Stream, first: Any, probe: Probe, stop: threading.Event) -> None:
        """Alternate between probing and reading; `first` is what a read begun after `probe` has returned."""
        asked = probe
        probes = deque([probe], maxlen=PROBES_KEPT)
        next_probe_s = time.monotonic() + self._heartbeat_s
        while not stop.is_set():
            batch = _buffered(stream, first)
            if batch:
                self._deliver(batch, stream, probe.images)
                if self._slim:
                    self._slim = False
                    return  # past the oversized event: go on with images
            asked = probes[-1] if probes else asked
            moment = proven(probes, delivered=self._watermark, idle=not batch)
            if moment is not None:
                if not batch:
                    self._position = self._position_at(stream, asked.majority)
                version = _UNKNOWN if batch else self._watermark
                self._pipelines.append(
                    AfterImage(namespace=EVERYTHING, kind=WriteKind.TICK, version=version, wall_ms=moment)
                )
                self._save(self._position_after(stream, None))
                self._handover.tidy()
            if time.monotonic() >= next_probe_s:
                next_probe_s = time.monotonic() + self._heartbeat_s
                self._bound()
                probes.append(self._probe())
                if probes[-1].election != probe.election:
                    return  # the cursor may be at a member that lags behind the one that was asked
            if not stream.alive:
                raise DatabaseError("the server closed the change stream")
            first = stream.try_next()
        assert self._position is not None
        self._save(self._position)

    def _bound(self) -> None:
        if time.monotonic() >= self._bound_due_s:
            self._bound_due_s = time.monotonic() + _BOUND_EVERY_S
            self._pipelines.bound()

    def _deliver(self, events: Sequence[Any], stream: _Stream, post_images: bool) -> None:
        self._pipelines.deliver(events, post_images=post_images)
        self._position = self._position_after(stream, events[-1])
        if time.monotonic() >= self._save_due_s:
            self._save(self._position)

    # The database

    def _probe(self) -> Probe:
        at_ms = self._clock()
        with pymongo.timeout(_ANSWER_TIMEOUT_S):
            hello = self._client.get_database("admin", codec_options=bson.DEFAULT_CODEC_OPTIONS).command("hello")
        if hello.get("msg") == "isdbgrid":
            raise ConfigurationError(
                "this is a mongos: sharded clusters are not supported yet; set MONGO_URL to a replica set"
            )
        if "setName" not in hello:
            raise ConfigurationError(
                "this mongod is standalone and has no change streams: start it with --replSet rs0, run rs.initiate() "
                "once, and add ?replicaSet=rs0 to MONGO_URL (one member is enough)"
            )
        last = hello["lastWrite"]
        if "majorityOpTime" not in last:
            raise AutoReconnect("the primary was elected just now and does not know yet what a majority has")
        probe = Probe(
            at_ms=at_ms,
            applied=version_of(last["opTime"]["ts"]),
            majority=version_of(last["majorityOpTime"]["ts"]),
            images=hello["maxWireVersion"] >= _WIRE_VERSION_6_0,
            election=str(hello["electionId"]) if "electionId" in hello else None,
        )
        if self._position is not None and probe.applied < self._position.version:
            # A member that lags behind what a majority had, or other data than we have followed so far.
            raise DatabaseError(
                f"the primary's newest write ({probe.applied}) is older than what was already read "
                f"({self._position.version})"
            )
        return probe

    def _open(self, position: Position, probe: Probe) -> _Stream:
        stage: dict[str, Any] = {"allChangesForCluster": True}
        if not probe.images:
            stage["fullDocument"] = "updateLookup"
        else:
            stage["showExpandedEvents"] = True
            if not self._slim:
                stage |= {"fullDocument": "whenAvailable", "fullDocumentBeforeChange": "whenAvailable"}
        if position.token is None:
            stage["startAtOperationTime"] = timestamp_of(position.version + 1)
        else:
            stage["resumeAfter"] = bson.decode(position.token)
        admin = self._client.get_database(
            "admin",
            codec_options=RAW_OPTIONS,
            read_preference=ReadPreference.PRIMARY,
            read_concern=ReadConcern("majority"),
        )
        return admin.aggregate(
            [{"$changeStream": stage}, *STAGES],
            maxAwaitTimeMS=self._await_ms,
            batchSize=_EVENTS_AT_ONCE,
        )

    def _database_id(self) -> str | None:
        try:
            with pymongo.timeout(_ANSWER_TIMEOUT_S):
                config = self._client.admin.command("replSetGetConfig")["config"]
            return str(config["settings"]["replicaSetId"])
        except (OperationFailure, KeyError):
            return None  # not allowed to ask

    # The position

    def _taken_over(self) -> Position | None:
        if not (as_of := self._handover.as_of):
            return None
        known = self._handover.followed()
        if not known.unbroken:
            self._telemetry.failure(
                "mongodb", "ingest.primary_changed", "cells that are succeeded may not have heard of it"
            )
            return None
        return Position(None, as_of, known.database, known.election)

    def _take_over(self, position: Position) -> None:
        if position.token is None and position.version == self._handover.as_of:
            # From here on nothing is missing: what was read before cannot have been matched by these cells.
            self._pipelines.append(AfterImage(namespace=EVERYTHING, kind=WriteKind.TICK, version=position.version))
        self._handover.complete()

    @property
    def _watermark(self) -> Version:
        return 0 if self._position is None else self._position.version

    def _start_from(self, probe: Probe) -> Position:
        database = self._database_id()
        known = self._position
        if known is not None and None not in (known.database, database) and known.database != database:
            self._telemetry.failure(
                "mongodb", "ingest.other_database", "the data followed so far are another replica set's"
            )
            known = None
        if known is None:
            self._gap = True
            known = Position(None, probe.majority, database)
        elif None not in (known.election, probe.election) and known.election != probe.election:
            self._telemetry.failure("mongodb", "ingest.primary_changed", "what it did not pass on may have been read")
            self._gap = True
        self._position = known._replace(database=database, election=probe.election)
        return self._position

    def _position_after(self, stream: _Stream, event: Any) -> Position:
        """Behind `event`, or, if that was the last one of its batch, behind all that the server has looked through."""
        assert self._position is not None
        token, version = self._position.token, self._position.version
        if event is not None:
            time_of_event, token = time_and_token(event)
            version = max(version, time_of_event)
        scanned = getattr(stream, "_post_batch_resume_token", None)
        if scanned is not None and not getattr(stream, "_data", True):
            token = scanned.raw
        return self._position._replace(token=token, version=version)

    def _position_at(self, stream: _Stream, majority: Version) -> Position:
        """After a getMore that was empty: there is nothing up to this commit point, if the server has looked that far."""
        position = self._position_after(stream, None)
        scanned = time_of_token(getattr(stream, "_post_batch_resume_token", None))
        return position._replace(version=max(position.version, majority)) if scanned >= majority else position

    def _save(self, position: Position) -> None:
        self._position = position
        self._save_due_s = time.monotonic() + _SAVE_EVERY_S
        self._layer.put(self._position_name, position._replace(life=self._life()).encode())

    def _saved_position(self) -> Position | None:
        saved = self._layer.get(self._position_name)
        if saved is None:
            return None
        position = Position.decode(saved)
        if position.life not in (None, self._life()):
            why = "the position is from before the pipelines lost data"
            self._telemetry.failure("event-layer", "ingest.event_layer_reset", why)
            self._gap = True
        return position

    def _life(self) -> str | None:
        return offsets.epoch_of(self._layer.offset_at(self._position_name, 0))

    def _consider_position(self, error: Exception) -> None:
        """Whether to give the position up: at once if the server says that it is lost, else if it refuses repeatedly."""
        code = error.code if isinstance(error, OperationFailure) else None
        if code == _EVENT_TOO_LARGE and not self._slim:
            self._slim = True
            return
        if isinstance(error, DatabaseError) or (code is not None and code not in _NOT_ALLOWED):
            self._refused += 1
        if self._position is not None and (code in _POSITION_LOST or self._refused >= _PATIENCE):
            self._telemetry.failure("mongodb", "ingest.position_lost", error, version=self._position.version)
            self._position = None
            self._refused = 0


def _gap(version: Version) -> AfterImage:
    """Its moment is the second of its version: whatever was performed before then is older than the gap."""
    return AfterImage(namespace=EVERYTHING, kind=WriteKind.GAP, version=version, wall_ms=(version >> 32) * 1000)


def _buffered(stream: _Stream, first: Any) -> list[Any]:
    """`first` and what the driver holds already, without waiting for more.

    The buffer is not part of the driver's public interface; should it be gone, events are delivered one by one.
    """
    if first is None:
        return []
    events = [first]
    while len(events) < _EVENTS_AT_ONCE and getattr(stream, "_data", None):
        events.append(stream.try_next())
    return events
