"""Parts of read-your-writes: what counts as a write, how far cells are, when ingest ticks promptly, when effects are done."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import Any

import bson
import pytest
from bson import Timestamp
from pymongo.monitoring import CommandStartedEvent, CommandSucceededEvent

from quaestor.capture import WriteLog, logging_writes
from quaestor.capture.context import heard_by
from quaestor.capture.write_log import is_write
from quaestor.errors import ConfigurationError
from quaestor.event_layer import codec
from quaestor.event_layer.memory import MemoryEventLayer
from quaestor.invalidation.effects.progress import EffectsProgress
from quaestor.invalidation.ingest.prompt_ticks import PromptTicks
from quaestor.invalidation.registry.grid_view import GridView
from quaestor.invalidation.registry.write_progress import WriteProgress
from quaestor.model import Cell, GridShape, Heartbeat, Version
from quaestor.settings import Settings

pytestmark = pytest.mark.anyio

AT = Timestamp(1_700_000_000, 3)
VERSION = 1_700_000_000 << 32 | 3
SHAPE = GridShape(query_partitions=2, write_partitions=2)


def logged(name: str, command: dict[str, Any], reply: dict[str, Any], log: WriteLog | None = None) -> WriteLog:
    log = log or WriteLog()
    sent = CommandStartedEvent({name: "c", **command}, "db", 1, ("host", 1), 1)
    if is_write(sent):
        log.started(sent)
    log.succeeded(CommandSucceededEvent(timedelta(milliseconds=1), reply, name, 1, ("host", 1), 1))
    return log


@pytest.mark.parametrize(
    ("name", "command", "reply", "wrote"),
    [
        ("insert", {}, {"n": 1}, True),
        ("insert", {}, {"n": 0}, False),
        ("update", {}, {"n": 1, "nModified": 1}, True),
        ("update", {}, {"n": 1, "nModified": 0}, False),
        ("update", {}, {"n": 1, "nModified": 0, "upserted": [{"index": 0, "_id": 1}]}, True),
        ("delete", {}, {"n": 0}, False),
        ("findAndModify", {}, {"lastErrorObject": {"n": 1}, "value": {}}, True),
        ("findAndModify", {}, {"lastErrorObject": {"n": 0}, "value": None}, False),
        ("bulkWrite", {}, {"nInserted": 0, "nDeleted": 2}, True),
        ("bulkWrite", {}, {"nInserted": 0, "nMatched": 2}, False),
        ("aggregate", {"pipeline": [{"$match": {}}, {"$out": "d"}]}, {}, True),
        ("aggregate", {"pipeline": [{"$match": {}}]}, {}, False),
        ("drop", {}, {}, True),
        ("dropDatabase", {}, {"dropped": "db"}, True),
        ("dropDatabase", {}, {}, False),
        ("find", {}, {}, False),
    ],
)
def test_a_command_counts_as_a_write_if_its_reply_shows_a_change(
    name: str, command: dict[str, Any], reply: dict[str, Any], wrote: bool
) -> None:
    """A command that changed nothing has no change event to wait for."""
    assert logged(name, command, {**reply, "operationTime": AT}).version == (VERSION if wrote else 0)


def test_a_reply_without_a_time_leaves_the_write_undated() -> None:
    """An unacknowledged one says nothing at all."""
    log = logged("insert", {}, {"ok": 1})
    assert (log.wrote, log.undated, log.version) == (True, True, 0)


def test_the_writes_of_a_transaction_count_when_it_is_committed() -> None:
    """Before, nobody sees them; if it is given up, nobody ever does; and one that only read has nothing to wait for."""
    inside = {"autocommit": False}
    log = logged("insert", inside, {"n": 1, "operationTime": AT})
    assert not log.wrote
    assert not logged("abortTransaction", inside, {"operationTime": AT}, log).wrote
    assert not logged("commitTransaction", inside, {"operationTime": AT}, log).wrote
    logged("insert", inside, {"n": 1, "operationTime": AT}, log)
    assert logged("commitTransaction", inside, {"operationTime": AT}, log).version == VERSION


def test_a_log_ends_with_its_request() -> None:
    """A task that outlives it holds nothing of it."""
    with logging_writes() as log:
        assert heard_by(None)[1] is log
    assert heard_by(None)[1] is None


def beat(query_partition: int, write_partition: int, matched: Version) -> Heartbeat:
    return Heartbeat(
        cell=Cell(query_partition=query_partition, write_partition=write_partition), shape=SHAPE, at_ms=1,
        fresh_as_of_ms=1, watermark=99, registrations=0, writes=0, matched=matched,
    )  # fmt: skip


def test_a_grid_s_progress_is_the_one_of_its_slowest_cell() -> None:
    """A cell must have matched a version, not only seen it. A restart does not take reported progress back."""
    view = GridView()
    assert view.matched() == 0
    for number, cell in enumerate(SHAPE.cells):
        assert view.matched() == 0
        view.observe(beat(cell.query_partition, cell.write_partition, 5 + number))
    assert view.matched() == 5
    view.observe(beat(0, 0, 9))
    view.observe(beat(0, 0, 3))
    assert view.matched() == 6
    view.reset()
    assert view.matched() == 0


def test_earlier_cells_say_nothing_of_what_they_have_matched() -> None:
    """Their heartbeats are read all the same, and ours by earlier apps."""
    heartbeat = beat(0, 0, 7)
    fields = bson.decode(codec.encode_notification(heartbeat))
    assert codec.decode_notification(codec.encode_notification(heartbeat)) == heartbeat
    del fields["done"]
    assert codec.decode_notification(bson.encode(fields)) == beat(0, 0, 0)


async def test_a_waiter_for_a_version_wakes_after_all_receivers_of_its_notices() -> None:
    """The effects of an invalidation begin before any waiter learns that the grid has got that far.

    A waiter that stops waiting is forgotten.
    """
    view, notices = GridView(), []
    progress = WriteProgress(view)
    loop = asyncio.get_running_loop()

    def tell(matched: Version) -> None:
        for cell in SHAPE.cells:
            view.observe(beat(cell.query_partition, cell.write_partition, matched))
        loop.call_soon_threadsafe(notices.append, matched)
        progress.advance()

    waiting = asyncio.create_task(progress.until(5))
    given_up = asyncio.create_task(progress.until(50))
    for _ in range(3):
        await asyncio.sleep(0)
    for matched in (4, 6):
        assert not waiting.done()
        thread = threading.Thread(target=tell, args=(matched,))
        thread.start()
        thread.join()
    await waiting
    assert notices == [4, 6]
    tell(7)
    await progress.until(7)
    assert notices == [4, 6, 7]
    given_up.cancel()
    await asyncio.wait((given_up,))
    assert progress._waiting == {}


async def test_effects_are_done_when_all_that_had_begun_are_claimed_evicted_and_purged() -> None:
    """Effects that begin later are not waited for."""
    progress = EffectsProgress()
    await progress.caught_up()
    progress.began(3)
    waiting = asyncio.create_task(progress.caught_up())
    await asyncio.sleep(0)
    progress.began(5)
    progress.claimed(2)
    await asyncio.sleep(0)
    assert not waiting.done()
    purged = progress.finishing()
    progress.claimed(1)
    for _ in range(3):
        await asyncio.sleep(0)
    assert not waiting.done()
    progress.finishing()
    purged()
    await waiting


def test_ingest_ticks_promptly_while_somebody_asks_for_it() -> None:
    """After a short read that was empty up to the newest event; after one that was not, up to what came before it."""
    layer, now = MemoryEventLayer(clock=lambda: 1_000), 1_000
    ticks = PromptTicks(layer, "awaited", lambda: now)
    ticks._look_due_s = 0.0
    assert ticks.due(delivered=True, newest=10) is None
    assert not ticks.owed, "nobody asks"
    layer.put("awaited", bson.encode({"until": 2_000}))
    ticks._look_due_s = 0.0
    assert ticks.due(delivered=True, newest=11) is None
    assert ticks.owed
    assert ticks.due(delivered=False, newest=11) == 11
    assert not ticks.owed
    assert ticks.due(delivered=False, newest=11) is None
    assert ticks.due(delivered=True, newest=12) is None
    ticks._tick_due_s = 0.0
    assert ticks.due(delivered=True, newest=15) == 14
    assert ticks.owed
    assert ticks.due(delivered=False, newest=15) is None, "not so soon after the last one"
    ticks._tick_due_s = 0.0
    assert ticks.due(delivered=False, newest=15) == 15
    now = 2_001
    ticks._look_due_s = 0.0
    assert ticks.due(delivered=True, newest=16) is None
    assert not ticks.owed, "nobody asks any more"


@pytest.mark.parametrize("value", [b"", b"garbage", bson.encode({}), bson.encode({"until": "soon"})])
def test_a_demand_that_nobody_understands_is_none(value: bytes) -> None:
    layer = MemoryEventLayer(clock=lambda: 1_000)
    layer.put("awaited", value)
    ticks = PromptTicks(layer, "awaited", lambda: 1_000)
    assert ticks.due(delivered=True, newest=10) is None
    assert not ticks.owed


def test_a_negative_bound_is_refused_with_the_remedy() -> None:
    with pytest.raises(ConfigurationError, match="read_your_writes_ms=-1 is below the lowest value 0"):
        Settings(read_your_writes_ms=-1)
    assert Settings.from_env({"QUAESTOR_READ_YOUR_WRITES_MS": "0"}).grid.read_your_writes_ms == 0
