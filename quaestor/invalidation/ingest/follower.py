"""Follower of the database's change stream: appends its events to the write pipelines.

A single cluster-wide change stream carries the writes of every writer: other programs, shells, migrations.

**Lossless.** A batch is appended to every write pipeline that it concerns before a position behind it is saved. After any
failure the stream is reopened at the saved position. Images may be appended twice, but are never skipped, and each pipeline
holds them in cluster-time order. If the stream cannot resume at the position (oplog too short, another database), every
pipeline gets a GAP. Its version is that of the fresh start.

**Versions.** A fresh start begins at the majority commit point M that the primary reports. A majority-committed history has no
holes. Every write up to M is therefore visible to any later read on the primary, and every write after M will be delivered.
M is the first watermark. From then on the watermark is the version of the newest delivered event. An empty getMore may raise
it to M. For that, the getMore must have begun after the primary reported M, and the server must have scanned the history
that far. The database's time goes on without writes, and reads are dated by it.

**Ticks** prove freshness: "every write that the database performed before `wall_ms` is in the pipelines". Silence alone does
not prove that. Writes that are visible but not yet majority-committed are not delivered, however long that lasts. Before a
getMore ingest therefore notes its clock. Then it asks the primary for its newest write (A) and its majority commit point
(M). All writes performed before the noted moment have a version of at most A. All of them have been delivered when

- a later getMore came back empty, and A <= M: that getMore read the history up to at least M; or
- an event newer than A was delivered, because events come in order.

The tick then carries the noted moment. After an empty getMore it also carries the watermark: every write up to it is in the
pipelines. While events keep coming that is unknown: the writes of a transaction share their version, and several reads may
deliver them. Prompt ticks come in between while app processes wait for their own writes (`prompt_ticks.py`). Clocks of
ingest and of the app servers must agree (NTP). An outdated primary, cut off from its set, answers the question too, for at
most an election timeout (10 s by default).

**Elections.** A primary shows writes that its successor may never have had, and no event reports their loss. A crashed primary
forgets writes that it had not written down. Each election is therefore a gap. The version of a gap is the newest that the
primary has: above everything delivered before, wherever ingest goes on. Results read before the gap die, even those
registered later. The stream is then read from the member that answers the probes, and goes on unbroken. The version is kept
with the position. A cell whose checkpoint lies below it may have missed the gap, so an ingest that starts from there repeats
the gap.

**Time that goes back.** Each start of the primary's process is a gap too, because its files may be an older copy. If the newest
write is older than the position, the stream starts anew at the commit point. The gap's version is then the newest that was ever
delivered, above every version that any reader saw. Cells accept no result older than a gap, so nothing is cached until the
database reaches that version. Then a second gap ends the results read in between.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any, Final

import pymongo
from bson.raw_bson import RawBSONDocument
from pymongo.errors import PyMongoError

from quaestor.errors import DatabaseError, EventLayerError, EventLayerResetError
from quaestor.event_layer import streams
from quaestor.event_layer.loop_context import LoopContext
from quaestor.invalidation.ingest.change_events import EVERYTHING
from quaestor.invalidation.ingest.change_stream import ChangeStream
from quaestor.invalidation.ingest.handover import NOT_KNOWN, FirstGeneration, Handover
from quaestor.invalidation.ingest.overtaking import Overtaking
from quaestor.invalidation.ingest.primary_probes import PROBES_KEPT, Probe, probe_primary, proven, replica_set_id
from quaestor.invalidation.ingest.prompt_ticks import SHORT_READ_MS, PromptTicks
from quaestor.invalidation.ingest.record_source import RecordSource, RecordSourceChoice
from quaestor.invalidation.ingest.resume_position import ResumePosition, ResumePositionStore
from quaestor.invalidation.ingest.starting_position import position_taken_over, starting_position
from quaestor.invalidation.ingest.stream_failures import StreamFailures
from quaestor.invalidation.ingest.write_pipelines import WritePipelines
from quaestor.model import AfterImage, GridShape, Version, WriteKind
from quaestor.ports import EventLayer

_BOUND_EVERY_S: Final = 1.0


class ChangeStreamFollower:
    """Reader of the change stream of one deployment, which feeds its pipelines. One thread.

    At most one should run. A second one for a moment (a restart before the old one is dead) only repeats images.
    """

    def __init__(
        self,
        client: pymongo.MongoClient[Any],
        layer: EventLayer,
        shape: GridShape,
        context: LoopContext,
        *,
        handover: Handover | None = None,
        slack: Callable[[], int] = lambda: 1,
    ) -> None:
        """Make a follower; `run` begins.

        layer: event layer for the follower and the handover only, see RedisEventLayer.
        shape: shape of the grid to feed.
        handover: handover from earlier grids, whose own ingest may still run; None: this is the first generation.
        slack: present factor of the pauses: more than 1 while no result relies on freshness.
        """
        self._client = client
        self._context = context
        self._slack = slack
        deployment, clock, telemetry = context.deployment, context.clock, context.telemetry
        names = [streams.writes(deployment, part, shape.generation) for part in range(shape.write_partitions)]
        self._prompt = PromptTicks(layer, streams.awaited(deployment), clock)
        self._pipelines = WritePipelines(client, layer, names, telemetry, context.bounds, prompt=self._prompt)
        early = [streams.early_writes(deployment, part, shape.generation) for part in range(shape.write_partitions)]
        early_pipelines = WritePipelines(client, layer, early, telemetry, context.bounds)
        self._overtaking = Overtaking(client, early_pipelines, telemetry, reached=self._reach, clock=clock)
        self._positions = ResumePositionStore(layer, streams.resume_position(deployment, shape.generation))
        self._handover: Handover = handover or FirstGeneration()
        self._position: ResumePosition | None = None
        self._loaded = False
        self._gap = False
        self._reached: Version = NOT_KNOWN
        self._failures = StreamFailures()
        self._records = RecordSourceChoice()
        self._bound_due_s = 0.0

    def check(self) -> None:
        """Check whether this database can be followed.

        Raises ConfigurationError with the remedy if it cannot, DatabaseError if it does not answer.
        """
        try:
            self._probe()
        except PyMongoError as error:
            raise DatabaseError(f"MongoDB did not answer: {error}") from error

    def run(self, stop: threading.Event) -> None:
        """Follow until stop is set. Survives failures of MongoDB and of the event layer; raises only ConfigurationError."""
        while not stop.is_set():
            try:
                self._follow(stop)
                continue
            except EventLayerResetError as error:
                self._context.telemetry.failure("event-layer", "ingest.event_layer_reset", error)
                self._gap = True
                self._handover.lost()
            except EventLayerError as error:
                self._context.telemetry.failure("event-layer", "ingest.append_failed", error)
            except (PyMongoError, DatabaseError) as error:
                self._context.telemetry.failure("mongodb", "ingest.stream_failed", error)
                self._consider_position(error)
            stop.wait(self._failures.pause_s())

    # One life of a change stream cursor

    def _follow(self, stop: threading.Event) -> None:
        if not self._handover.begin():
            stop.wait(self._heartbeat_s)
            return
        if not self._loaded:
            self._position, self._loaded = self._known_position(), True
        probe = self._probe()
        position = self._start_from(probe)
        records = self._records.choose(time.monotonic(), images=probe.images, slim=self._failures.slim)
        stream = ChangeStream.open(self._client, position, records=records, await_ms=self._await_ms)
        with closing(stream), closing(self._overtaking):
            # Opening succeeded: no event after the position can be missed from here on.
            events = self._read(stream, await_ms=self._await_ms)
            if self._gap:
                position = position._replace(gap=max(position.version, probe.applied, self._reached))
                self._pipelines.append(_gap(position.gap, now_ms=self._context.clock()))
                self._gap = False
            self._save(position)
            if not self._handover.done:
                self._take_over(position)
            self._failures.opened()
            self._pump(stream, events, probe, stop)

    def _pump(self, stream: ChangeStream, events: list[RawBSONDocument], probe: Probe, stop: threading.Event) -> None:
        """Alternate between probing and reading. events: result of a read begun after `probe`."""
        newest_probe = probe
        probes = deque([probe], maxlen=PROBES_KEPT)
        next_probe_s = time.monotonic() + self._heartbeat_s
        short = self._prompt.owed = False
        while not stop.is_set():
            self._overtaking.beside(events, self._watermark, images=probe.images)
            if events:
                self._deliver(events, stream)
                if self._failures.slim:
                    self._failures.slim = False
                    return  # past the oversized event: continue with records
            self._tick_promptly(delivered=bool(events))
            newest_probe = probes[-1] if probes else newest_probe
            moment = proven(probes, delivered=self._watermark, idle=not (events or short))
            if moment is not None:
                self._tick(moment, stream, None if events or short else newest_probe.majority)
            slack = self._slack()
            if time.monotonic() >= next_probe_s:
                next_probe_s = time.monotonic() + self._heartbeat_s * slack
                self._bound()
                probes.append(self._probe())
                if self._broken(probe, probes[-1]):
                    return
            if not stream.alive:
                raise DatabaseError("the server closed the change stream")
            short = self._prompt.owed
            # After the tick, which rests on what the old cursor has scanned.
            self._choose_records(stream, events, images=probe.images)
            events = self._read(stream, await_ms=SHORT_READ_MS if short else self._await_ms * slack)
        assert self._position is not None
        self._save(self._position)

    def _read(self, stream: ChangeStream, *, await_ms: int) -> list[RawBSONDocument]:
        """Return the next events, with the images that their collections record. All earlier ones are delivered."""
        events = stream.read(await_ms=await_ms)
        if stream.records is RecordSource.LOOKED_UP and self._records.hidden_image(events):
            assert self._position is not None
            stream.reopen(self._client, self._position, RecordSource.IMAGES)
            events = stream.read(await_ms=await_ms)
        return events

    def _choose_records(self, stream: ChangeStream, events: Sequence[RawBSONDocument], *, images: bool) -> None:
        """Let the server look records up while reads return few events, else ingest. events: the newest, already delivered."""
        assert self._position is not None
        now_s = time.monotonic()
        self._records.note(events, now_s)
        records = self._records.choose(now_s, images=images)
        if records is not stream.records:
            stream.reopen(self._client, self._position, records)

    def _deliver(self, events: Sequence[RawBSONDocument], stream: ChangeStream) -> None:
        self._pipelines.deliver(events, records=stream.records)
        assert self._position is not None
        self._position = stream.position_after(self._position, events[-1])
        if self._positions.due():
            self._save(self._position)

    def _tick_promptly(self, *, delivered: bool) -> None:
        """Report how far the pipelines are complete, if a process waits for that. The tick proves no new moment."""
        version = self._prompt.due(delivered=delivered, newest=self._watermark)
        if version is not None and self._prompt.proved_ms:
            self._pipelines.append(
                AfterImage(namespace=EVERYTHING, kind=WriteKind.TICK, version=version, wall_ms=self._prompt.proved_ms)
            )

    def _tick(self, moment_ms: int, stream: ChangeStream, majority: Version | None) -> None:
        """Report that every write performed before this moment is in the pipelines.

        majority: a commit point that the primary had before an empty read; None: the read was not empty.
        """
        assert self._position is not None
        self._prompt.proved_ms = moment_ms
        version = NOT_KNOWN
        if majority is not None:
            self._position = stream.position_at(self._position, majority)
            version = self._position.version
        self._pipelines.append(
            AfterImage(namespace=EVERYTHING, kind=WriteKind.TICK, version=version, wall_ms=moment_ms)
        )
        self._save(stream.position_after(self._position, None))
        self._handover.tidy()

    def _bound(self) -> None:
        if time.monotonic() >= self._bound_due_s:
            self._bound_due_s = time.monotonic() + _BOUND_EVERY_S
            self._pipelines.bound()
            self._overtaking.tidy()

    def _probe(self) -> Probe:
        return probe_primary(self._client, self._context.clock)

    def _broken(self, opened: Probe, latest: Probe) -> bool:
        """Whether the stream must be opened anew, because the history may differ from the one at its opening.

        Another primary: the cursor may be at a member that lags behind. A newest write older than the position: time went
        back. A gap ahead of the database: time has now reached it.
        """
        assert self._position is not None
        if opened.applied < self._position.gap <= latest.applied:
            self._gap = True
        newest = max(self._watermark, self._position.reached)
        return self._gap or latest.election != opened.election or latest.applied < newest

    # The position

    @property
    def _heartbeat_s(self) -> float:
        return self._context.heartbeat_ms / 1000

    @property
    def _await_ms(self) -> int:
        return max(1, round(500 * self._heartbeat_s))

    @property
    def _watermark(self) -> Version:
        return NOT_KNOWN if self._position is None else self._position.version

    def _known_position(self) -> ResumePosition | None:
        """Return the position of the former ingest, or else of the earlier grids."""
        saved = self._positions.load()
        if saved is None:
            return position_taken_over(self._handover, self._context.telemetry)
        if self._positions.precedes_loss(saved):
            why = "the position is from before the pipelines lost data"
            self._context.telemetry.failure("event-layer", "ingest.event_layer_reset", why)
            self._gap = True
        return saved

    def _start_from(self, probe: Probe) -> ResumePosition:
        database = replica_set_id(self._client)
        if self._position is not None:
            known = self._position
            self._reached = max(self._reached, known.version, known.gap, known.reached)
        start = starting_position(self._position, probe, database=database, telemetry=self._context.telemetry)
        self._position, self._gap = start.position, self._gap or start.gap
        return start.position

    def _take_over(self, position: ResumePosition) -> None:
        if position.token is None and position.version == self._handover.as_of:
            # From here on no event is missing. The cells cannot have matched results that were read before.
            self._pipelines.append(AfterImage(namespace=EVERYTHING, kind=WriteKind.TICK, version=position.version))
        self._handover.complete()

    def _reach(self, version: Version) -> None:
        """Save the version of an early event. Raises EventLayerError."""
        assert self._position is not None
        self._save(self._position._replace(reached=max(version, self._position.reached)))

    def _save(self, position: ResumePosition) -> None:
        self._position = position
        self._positions.save(position)

    def _consider_position(self, error: Exception) -> None:
        """Give the position up: at once if the server reports it as lost, else after repeated refusals."""
        if self._failures.position_lost(error) and self._position is not None:
            self._context.telemetry.failure("mongodb", "ingest.position_lost", error, version=self._position.version)
            self._position = None
            self._failures.refused = 0


def _gap(version: Version, *, now_ms: int) -> AfterImage:
    """Return a gap dated at the second of its version, at most now: every write performed before that is older than the gap."""
    moment_ms = min((version >> 32) * 1000, now_ms)
    return AfterImage(namespace=EVERYTHING, kind=WriteKind.GAP, version=version, wall_ms=moment_ms)
