"""An election that one generation's ingest sees last, or not at all, and the next one's first: earlier reads are dead.

The parts are driven by hand, so that the election falls at the most harmful moments.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import bson
import pymongo
import pytest

from benchmarks.setups.faults.members import ReplicaSet, replica_set
from quaestor.clock import system_clock
from quaestor.event_layer import streams
from quaestor.event_layer.codec import decode_notification, encode_query_event
from quaestor.event_layer.loop_context import LoopContext
from quaestor.event_layer.memory import MemoryEventLayer
from quaestor.invalidation.grid.cell_loop import CellLoop
from quaestor.invalidation.grid.resizing.handover import GridHandover
from quaestor.invalidation.grid.resizing.messages import Fence, encode_fence
from quaestor.invalidation.ingest.follower import ChangeStreamFollower
from quaestor.invalidation.ingest.resume_position import ResumePosition
from quaestor.invalidation.matching.node import MatchingNode
from quaestor.model import Activated, Cell, GridShape, Heartbeat, Invalidated, Operation, Query, Registration
from quaestor.observability.telemetry import Telemetry
from quaestor.testing.servers import HOST
from tests.support import running

DEADLINE_S = 60
HEARTBEAT_MS = 40
RETENTION_MS = 60_000
CELL = Cell(query_partition=0, write_partition=0)
Client = pymongo.MongoClient[dict[str, Any]]


def shape(generation: int) -> GridShape:
    return GridShape(query_partitions=1, write_partitions=1, generation=generation)


class Grids:
    """Generations of one cell each, on an event layer in memory. Cells only move by step(), ingests while they are let run."""

    def __init__(self, client: Client, deployment: str) -> None:
        self.client, self.deployment = client, deployment
        self.layer = MemoryEventLayer()
        self.cells: dict[int, CellLoop] = {}
        self.after = "0"
        self.dead: set[str] = set()
        self.active: set[str] = set()
        self.beats: dict[int, Heartbeat] = {}
        self.start_cell(0)

    def start_cell(self, generation: int) -> None:
        node = MatchingNode(CELL, shape(generation), retention_ms=RETENTION_MS)
        cell = self.cells[generation] = CellLoop(
            node,
            self.layer,
            CELL,
            shape(generation),
            LoopContext(deployment=self.deployment, heartbeat_ms=1, retention_ms=RETENTION_MS),
        )
        cell.start()

    def step(self, *generations: int) -> None:
        for generation in generations:
            self.cells[generation].parts.periodic.heartbeat_due_s = 0.0
            self.cells[generation].step()
        stream = streams.notifications(self.deployment)
        for entry in self.layer.read({stream: self.after}, count=10_000, block_ms=0):
            self.after = entry.offset
            match decode_notification(entry.payload):
                case Invalidated(registration_ids=ids):
                    self.dead.update(ids)
                case Activated(registration_id=one):
                    self.active.add(one)
                case Heartbeat() as beat:
                    self.beats[beat.shape.generation] = beat

    def until(self, enough: Callable[[], bool], *generations: int) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not enough():
            assert time.monotonic() < deadline
            self.step(*generations)

    @contextmanager
    def ingest(self, generation: int, *earlier: int) -> Iterator[ChangeStreamFollower]:
        handover = GridHandover(
            self.layer, shape(generation), [shape(state) for state in earlier], deployment=self.deployment,
            clock=system_clock, telemetry=Telemetry(),
        )  # fmt: skip
        made = ChangeStreamFollower(
            self.client,
            self.layer,
            shape(generation),
            LoopContext(deployment=self.deployment, heartbeat_ms=HEARTBEAT_MS),
            handover=handover,
        )
        with running(made.run, within_s=DEADLINE_S):
            yield made

    def register(self, name: str, *, since: int, generation: int = 0) -> None:
        """A cached find with an empty result."""
        registration = Registration(
            id=name, tenant=self.deployment, query_id=f"q-{name}",
            query=Query(namespace=f"{self.deployment}.c", operation=Operation.FIND, filter={"a": name}),
            since=since, read_at=since, members=(), last=None, expires_at_ms=system_clock() + 600_000,
        )  # fmt: skip
        self.layer.append(streams.queries(self.deployment, 0, generation), [encode_query_event(registration)])

    def position(self, generation: int) -> ResumePosition:
        value = self.layer.get(streams.resume_position(self.deployment, generation))
        assert value is not None
        return ResumePosition.decode(value)

    def elected(self, position: ResumePosition) -> None:
        """Make ingest find another primary from this position on.

        Like every primary, it has written its first entry.
        """
        self.put_position(0, position._replace(election="of another primary"))
        self.client[self.deployment]["new primary"].insert_one({})

    def put_position(self, generation: int, position: ResumePosition) -> None:
        self.layer.put(streams.resume_position(self.deployment, generation), position.encode())

    def watermark(self) -> int:
        return max(beat.watermark for beat in self.beats.values())

    def fresh(self, generation: int) -> bool:
        """The cell of this generation has heard of a moment that is later than this call."""
        moment = system_clock()
        self.until(lambda: generation in self.beats and self.beats[generation].fresh_as_of_ms > moment, generation)
        return True

    def guarded(self, name: str, generation: int = 0) -> None:
        """A registration that is active, and that the cell's checkpoint covers."""
        self.fresh(generation)
        self.register(name, since=self.watermark(), generation=generation)
        self.until(lambda: name in self.active, generation)
        self.fresh(generation)


@pytest.fixture
def grids(client: Client, prefix: str) -> Grids:
    return Grids(client, prefix)


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplicaSet]:
    with replica_set(Path(tmp_path_factory.mktemp("members"))) as made:
        yield made


def step_down(members: ReplicaSet) -> None:
    """Returns when another member is the primary."""
    primary = members.primary()
    assert primary is not None
    with pymongo.MongoClient[dict[str, Any]](HOST, primary.port, directConnection=True) as client:
        client.admin.command({"replSetStepDown": 10, "secondaryCatchUpPeriodSecs": 10})
    deadline = time.monotonic() + DEADLINE_S
    while members.primary() in (None, primary):
        assert time.monotonic() < deadline


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_an_election_between_the_old_ingests_last_look_and_the_new_ones_first(members: ReplicaSet, prefix: str) -> None:
    with pymongo.MongoClient[dict[str, Any]](members.url) as client:
        grids = Grids(client, prefix)
        with grids.ingest(0):
            grids.guarded("before")
        step_down(members)
        grids.start_cell(1)
        with grids.ingest(1, 0):
            grids.fresh(1)
            assert grids.dead == {"before"}
            grids.guarded("after", 1)
        assert grids.dead == {"before"}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_an_election_that_the_old_ingest_saw_and_no_old_cell_learned_of(members: ReplicaSet, prefix: str) -> None:
    """The old ingest's position names the new primary; its gap lies in pipelines that no cell reads any more."""
    with pymongo.MongoClient[dict[str, Any]](members.url) as client:
        grids = Grids(client, prefix)
        with grids.ingest(0):
            grids.guarded("before")
            known = grids.position(0).election
            step_down(members)
            deadline = time.monotonic() + DEADLINE_S
            while grids.position(0).election == known:
                assert time.monotonic() < deadline
        assert grids.dead == set()
        grids.start_cell(1)
        with grids.ingest(1, 0):
            grids.fresh(1)
        assert grids.dead == {"before"}


def test_without_an_election_nothing_dies(grids: Grids) -> None:
    with grids.ingest(0):
        grids.guarded("before")
    grids.start_cell(1)
    with grids.ingest(1, 0):
        grids.fresh(1)
    assert grids.dead == set()


def test_results_read_long_after_the_checkpoint_die_too(grids: Grids, client: Client, prefix: str) -> None:
    """The old cell goes on for a while behind its last checkpoint; a result that is as new as that was still read from the old
    primary."""
    with grids.ingest(0):
        grids.guarded("before")
        checkpoint = grids.layer.get(streams.checkpoint(prefix, CELL))
        for _ in range(3):
            client[prefix]["c"].insert_one({})
        grids.guarded("late")
        assert checkpoint is not None
        grids.layer.put(streams.checkpoint(prefix, CELL), checkpoint)
    grids.elected(grids.position(0))
    grids.start_cell(1)
    with grids.ingest(1, 0):
        grids.fresh(1)
    assert grids.dead == {"before", "late"}


def test_queries_registered_only_after_a_restart_at_an_old_position_die_too(
    grids: Grids, client: Client, prefix: str
) -> None:
    """Ingest died and goes on at a position older than what it had delivered; meanwhile there was an election. A result whose
    read had seen all that was delivered comes last of all."""
    with grids.ingest(0):
        grids.fresh(0)
        old = grids.position(0)
        for _ in range(3):
            client[prefix]["c"].insert_one({})
        grids.fresh(0)
        since = grids.watermark()
        assert since > old.version
    grids.elected(old)
    with grids.ingest(0):
        grids.fresh(0)
        grids.register("late", since=since)
        grids.fresh(0)
    assert "late" not in grids.active


def test_an_election_seen_by_an_ingest_that_never_took_over(grids: Grids, prefix: str) -> None:
    """The second generation's ingest saw the election, informed its own pipelines,
    and died before it took anything over.

    The third generation takes over from both.
    """
    with grids.ingest(0):
        grids.guarded("before")
    followed = grids.position(0)
    grids.elected(followed)
    grids.put_position(1, followed)  # it follows the primary that there is now
    grids.layer.append(streams.queries(prefix, 0), [encode_fence(Fence(generation=1))])
    grids.start_cell(2)
    with grids.ingest(2, 0, 1):
        grids.fresh(2)
    assert grids.dead == {"before"}


def test_a_position_of_a_release_that_did_not_note_its_gaps_is_not_trusted(grids: Grids, prefix: str) -> None:
    with grids.ingest(0):
        grids.guarded("before")
    known = grids.position(0)
    grids.elected(known)
    without = {name: value for name, value in known._asdict().items() if name != "gap"}
    grids.layer.put(streams.resume_position(prefix, 0), bson.encode({"v": 1} | without))
    grids.start_cell(1)
    with grids.ingest(1, 0):
        grids.fresh(1)
    assert grids.dead == {"before"}
