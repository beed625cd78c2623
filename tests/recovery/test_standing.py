"""Subscriptions while a part dies, returns or is slow: no subscriber misses a change or receives it twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pymongo
import pytest

from quaestor.errors import DatabaseError, SubscriptionError
from quaestor.event_layer.connecting import event_layer
from quaestor.event_layer.memory import MemoryEventLayer
from quaestor.model import AfterImage, GridShape, Operation, Query, Version, WriteKind
from quaestor.ports import StreamEntry
from quaestor.realtime.codec import decode_result
from quaestor.realtime.live import Whole
from quaestor.realtime.messages import ResultChange
from quaestor.realtime.snapshots import Snapshot
from quaestor.realtime.stats import StageStats, stage_stats
from tests.oracle.maintained_generator import Document
from tests.oracle.standing_world import Racing
from tests.recovery.following import FOUR, ONE, Opened, Stalling, subscribed
from tests.support import eventually


@pytest.mark.anyio
@pytest.mark.parametrize("shape", [ONE, FOUR], ids=["1x1", "2x2"])
@pytest.mark.parametrize("images", [False, True], ids=["membership", "before-images"])
async def test_cells_and_stages_may_be_killed_at_any_time(opened: Opened, shape: GridShape, images: bool) -> None:
    """Writes go on while they are dead; afterwards every list is right, and nobody had to begin anew."""
    standing = opened(shape, seed=30, images=images)
    await subscribed(standing, 10)
    grid, draw = standing.grid, standing.world.random
    for number in range(12):
        standing.write(draw.randint(0, 3))
        if draw.random() < 0.5:
            cell = draw.choice(sorted(grid.cells))
            grid.cells[cell].kill()
            standing.write(draw.randint(0, 3))
            grid.start_cell(cell)
        else:
            partition = draw.choice(sorted(grid.stages))
            grid.stages[partition].kill()
            standing.write(draw.randint(0, 3))
            grid.start_stage(partition)
        standing.write(draw.randint(0, 3))
        if number % 2:
            await standing.check(f"kill {number}")
    assert all(subscriber.wholes == 1 for subscriber in standing.subscribers)
    assert sum(subscriber.events for subscriber in standing.subscribers) > 50


@pytest.mark.anyio
async def test_the_grid_may_be_partitioned_anew(opened: Opened) -> None:
    """More cells, then fewer: subscriptions move to where their queries belong now, and nobody has to begin anew."""
    standing = opened(ONE, seed=36)
    await subscribed(standing, 8)
    standing.write(5)
    await standing.check("one cell")
    for shape in (FOUR, GridShape(query_partitions=3, write_partitions=1), ONE):
        standing.grid.reshape(shape)
        standing.write(5)
        await standing.until_right()
        standing.write(5)
        await standing.check(str(shape))
    assert all(subscriber.wholes == 1 for subscriber in standing.subscribers)


@pytest.mark.anyio
@pytest.mark.parametrize("kind", [":matched", ":results"])
async def test_changes_trimmed_before_they_are_read_are_made_good(opened: Opened, kind: str) -> None:
    """A stage, or an app process, that stands still for longer than the retention: the lists are right afterwards."""
    layer = Stalling()
    layer.kind = kind
    standing = opened(ONE, seed=37, layer=lambda: layer, retention_ms=600)
    await subscribed(standing, 6)
    standing.write(5)
    await standing.check("before")
    layer.going.clear()
    standing.write(10)
    stream = f"quaestor:{{oracle:q0}}{kind}"
    await eventually(lambda: layer.first_offset(stream) is None)
    layer.going.set()
    standing.write(2)
    await standing.check("after")
    assert all(subscriber.wholes == 1 for subscriber in standing.subscribers)


@pytest.mark.anyio
async def test_a_gap_in_the_writes_is_bridged_by_reading_again(opened: Opened) -> None:
    """Writes that ingest never saw: after the gap event every list is right again."""
    standing = opened(FOUR, seed=31)
    await subscribed(standing, 8)
    standing.write(5)
    await standing.check("before")
    for _ in range(10):
        standing.world.write()
    standing.world.drain()
    gap = AfterImage(namespace="*", kind=WriteKind.GAP, version=standing.world.version)
    standing.grid.feed([gap], standing.world.version)
    standing.write(2)
    await standing.check("after the gap")


@pytest.mark.anyio
async def test_a_dropped_collection_empties_its_results(opened: Opened) -> None:
    standing = opened(seed=32)
    await subscribed(standing, 6)
    standing.write(3)
    await standing.check("before")
    standing.world.database["things"].drop()
    images = standing.world.drain()
    dropped = AfterImage(
        namespace=f"{standing.world.name}.things", kind=WriteKind.COLLECTION, version=standing.world.version
    )
    standing.grid.feed([*images, dropped], standing.world.version)
    await standing.check("dropped")
    standing.write(10)
    await standing.check("filled again")


class Counting(Racing):
    """MongoDB, and how often it was asked."""

    reads = 0

    def read(self, queries: Sequence[Query], *, at_least: Version, recent: Version = 0) -> Snapshot:
        self.reads += 1
        return super().read(queries, at_least=at_least, recent=recent)


@pytest.mark.anyio
async def test_a_new_index_causes_no_read_unless_it_may_hold_text(
    opened: Opened, client: pymongo.MongoClient[Document]
) -> None:
    """The subscribed queries have their own order, so only an index that may hold text can change their results."""
    snapshots = Counting(client)
    standing = opened(FOUR, seed=33, snapshots=snapshots)
    await subscribed(standing, 6)
    await standing.check("before")
    for first_fields, again in ((("a",), False), (("$**",), True)):
        reads = snapshots.reads
        standing.world.database["elsewhere"].insert_one({})  # the event is newer than what was read
        images = standing.world.drain()
        version = standing.world.version
        namespace = f"{standing.world.name}.things"
        event = AfterImage(namespace=namespace, kind=WriteKind.COLLECTION, version=version, changed=first_fields)
        standing.grid.feed([*images, event], version)
        await standing.check(str(first_fields))
        assert (snapshots.reads > reads) is again


@pytest.mark.anyio
async def test_a_cancelled_query_is_forgotten_everywhere(opened: Opened) -> None:
    standing = opened(FOUR)
    app = standing.grid.app()
    query = opened.find(standing, a={"$gt": 0})
    first, second = await app.subscribe(query), await app.subscribe(query)
    assert app.queries == 1, "subscribers of one query share it"
    standing.write(3)
    await first.cancel()
    await first.cancel()
    assert app.queries == 1
    with pytest.raises(StopAsyncIteration):
        await anext(first)
    await eventually(lambda: standing.grid.queries() == (1, 2))  # one stage, and each cell of its column
    await second.cancel()
    assert app.queries == 0
    await eventually(lambda: standing.grid.queries() == (0, 0))


@pytest.mark.anyio
async def test_a_result_that_nobody_holds_is_followed_no_longer(opened: Opened) -> None:
    """A subscriber that forgot to cancel costs nothing for ever."""
    standing = opened()
    app = standing.grid.app()
    await app.subscribe(opened.find(standing))
    await eventually(lambda: app.queries == 0 and standing.grid.queries() == (0, 0))


@pytest.mark.anyio
async def test_subscriptions_last_as_long_as_they_are_extended(opened: Opened) -> None:
    """An app process that is gone without a word is forgotten when its lease is over; one that is there stays."""
    standing = opened(FOUR, subscription_lease_ms=2_400, subscription_extend_ms=500)
    gone, there = standing.grid.app(), standing.grid.app()
    left = await gone.subscribe(opened.find(standing, a=1))
    stays = await standing.subscribe(there, opened.find(standing, a=2))
    await eventually(lambda: standing.grid.queries() == (2, 4))
    standing.grid.vanish(gone)
    await eventually(lambda: standing.grid.queries() == (1, 2))
    standing.write(20)
    await standing.check("long after the first lease")
    assert left.known
    assert stays is not None
    assert stays.wholes == 1


@pytest.mark.anyio
async def test_a_slow_subscriber_receives_the_whole_result_instead(opened: Opened) -> None:
    """Changes beyond the subscriber's queue are never lost in silence."""
    standing = opened(seed=33, subscription_queue=5)
    subscriber = await standing.subscribe(standing.grid.app(), opened.find(standing))
    assert subscriber is not None
    await subscriber.take()
    for _ in range(30):
        standing.write()
    await standing.settle()
    assert subscriber.live.waiting == 1
    event = await anext(subscriber.live)
    assert isinstance(event, Whole)
    assert event.overflow
    subscriber.rows = list(event.rows)
    await standing.check("after the overflow")


class Leaky(MemoryEventLayer):
    """Some steps of results are never delivered."""

    lost = 0
    leaks = True

    def read(self, offsets: Mapping[str, str], *, count: int, block_ms: int) -> list[StreamEntry]:
        entries = super().read(offsets, count=count, block_ms=block_ms)
        return [entry for entry in entries if not self._loses(entry)]

    def _loses(self, entry: StreamEntry) -> bool:
        if (
            not self.leaks
            or not entry.stream.endswith(":results")
            or not isinstance(decode_result(entry.payload), ResultChange)
        ):
            return False
        lost = int(entry.offset.partition("@")[0].rpartition("-")[2]) % 3 == 0
        self.lost += lost
        return lost


@pytest.mark.anyio
async def test_a_step_that_was_missed_is_made_good(opened: Opened) -> None:
    """The numbers of the steps show the gap; subscribers receive the differences, and never begin anew."""
    layer = Leaky()
    standing = opened(seed=34, layer=lambda: layer)
    app, everything = standing.grid.app(), opened.find(standing)
    for query in (everything, replace(everything, sort=(("n", 1),)), replace(everything, operation=Operation.COUNT)):
        await standing.subscribe(app, query)
    for _ in range(25):
        standing.write()
    await eventually(lambda: layer.lost > 0)
    layer.leaks = False
    standing.world.database["things"].insert_one({"_id": "the next step"})
    standing.feed()
    await standing.until_right()
    assert all(subscriber.wholes <= 1 for subscriber in standing.subscribers)


class Failing(Racing):
    """MongoDB does not answer for a while."""

    failures = 0

    def read(self, queries: Sequence[Query], *, at_least: Version, recent: Version = 0) -> Snapshot:
        if self.failures:
            self.failures -= 1
            raise DatabaseError("no answer")
        return super().read(queries, at_least=at_least, recent=recent)


@pytest.mark.anyio
async def test_reads_that_fail_are_repeated(opened: Opened, client: pymongo.MongoClient[Document]) -> None:
    snapshots = Failing(client)
    snapshots.failures = 3
    standing = opened(FOUR, snapshots=snapshots)
    await subscribed(standing, 2)
    standing.write(3)
    await standing.check("read at last")
    snapshots.failures = 3
    gap = AfterImage(namespace="*", kind=WriteKind.GAP, version=standing.world.version)
    standing.grid.feed([gap], standing.world.version)
    standing.write(3)
    await standing.check("read again at last")


@pytest.mark.anyio
async def test_a_query_that_cannot_be_followed_is_refused_with_the_reason(
    opened: Opened, client: pymongo.MongoClient[Document]
) -> None:
    """Views, capped collections, results without bound: and the others are followed on."""
    snapshots = Racing(client, max_records=50)
    standing = opened(snapshots=snapshots)
    app = standing.grid.app()
    database = standing.world.database
    database.create_collection("view", viewOn="things", pipeline=[])
    database.create_collection("ring", capped=True, size=4096)
    database["many"].insert_many([{"_id": number} for number in range(60)])
    good = await standing.subscribe(app, opened.find(standing, a=1))
    for name, reason in [("view", "is a view"), ("ring", "is capped"), ("many", "more than 50 records")]:
        query = Query(namespace=f"{standing.world.name}.{name}", operation=Operation.FIND, filter={})
        with pytest.raises(SubscriptionError, match=reason):
            await app.subscribe(query)
    standing.write(5)
    await standing.check("the good one")
    assert good is not None
    assert app.queries == 1


@pytest.mark.anyio
async def test_a_record_that_fails_one_query_disturbs_no_other(opened: Opened) -> None:
    """While MongoDB would fail the query, its result stands still and its subscriber is notified;
    it goes on without the record.
    """
    standing = opened(seed=38)
    app, things = standing.grid.app(), standing.world.database["things"]
    things.delete_many({})
    namespace = f"{standing.world.name}.things"
    divided = {"$project": {"share": {"$divide": [12, "$n"]}}}
    failing = Query(namespace=namespace, operation=Operation.AGGREGATE, filter={}, pipeline=(divided,))
    things.insert_one({"_id": 1, "n": 3})
    standing.feed()
    bad = await standing.subscribe(app, failing)
    await standing.subscribe(app, opened.find(standing))
    await standing.check("before")
    things.insert_one({"_id": 2, "n": 0})
    standing.feed()
    assert bad is not None
    standing.subscribers.remove(bad)
    await standing.check("the other")
    assert bad.live.version < standing.world.version
    things.delete_one({"_id": 2})
    things.insert_one({"_id": 3, "n": 4})
    standing.feed()
    standing.subscribers.append(bad)
    await standing.check("it is gone")
    assert bad.wholes == 1


@pytest.mark.anyio
async def test_before_images_that_turn_out_incomplete_are_not_relied_on(opened: Opened) -> None:
    """The collection begins to record images, the stream does not carry them all: back to membership, and right."""
    standing = opened(FOUR, seed=39, images=False)
    await subscribed(standing, 10)
    standing.write(5)
    await standing.check("membership")
    for name in ("things", "others"):
        standing.world.database.command("collMod", name, changeStreamPreAndPostImages={"enabled": True})
    images = standing.world.drain()
    changed = [
        AfterImage(namespace=f"{standing.world.name}.{name}", kind=WriteKind.COLLECTION, version=standing.world.version)
        for name in ("things", "others")
    ]
    standing.grid.feed([*images, *changed], standing.world.version)
    await standing.check("before-images, says the collection")
    for number in range(6):
        standing.write(3)
        await standing.check(f"write {number}")
    assert all(subscriber.wholes == 1 for subscriber in standing.subscribers)


@pytest.mark.anyio
async def test_without_a_grid_subscribing_fails_by_the_deadline(opened: Opened) -> None:
    standing = opened()
    for loop in [*standing.grid.stages.values()]:
        loop.kill()
    standing.grid.stages.clear()
    with pytest.raises(SubscriptionError, match="within 0"):
        await standing.grid.app().subscribe(opened.find(standing), deadline_s=0.2)


@pytest.mark.anyio
async def test_the_event_layer_may_lose_everything(opened: Opened, shared_url: str, prefix: str) -> None:
    """On a real Valkey whose data are gone, every list is right again, and no subscriber has to begin anew."""
    standing = opened(FOUR, seed=35, layer=lambda: event_layer(shared_url, prefix), deployment=prefix)
    await subscribed(standing, 6)
    standing.write(5)
    await standing.check("before")
    standing.grid.lose_everything(shared_url)
    standing.write(5)
    await standing.until_right()
    standing.write(5)
    await standing.check("after")
    assert all(subscriber.wholes == 1 for subscriber in standing.subscribers)


@pytest.mark.anyio
async def test_a_partition_that_is_full_refuses_the_largest_tenant_and_nobody_loses_what_he_has(opened: Opened) -> None:
    """The reason names who holds how much; another tenant finds room; so does, in a stage that takes over, all that was there."""
    standing = opened(most_queries=10)
    grid = standing.grid
    greedy, modest = grid.app(tenant="greedy"), grid.app(tenant="modest")
    held = [await greedy.subscribe(opened.find(standing, a=number)) for number in range(9)]
    with pytest.raises(SubscriptionError, match="tenant 'greedy' holds 9 queries of the 10"):
        await greedy.subscribe(opened.find(standing, a=100))
    held.append(await modest.subscribe(opened.find(standing, a=200)))
    await eventually(lambda: grid.queries() == (10, 10))  # the cell hears of a query after its subscriber does

    def present_stats() -> StageStats:
        (stats,) = stage_stats(grid.layer, grid.settings.deployment, grid.shape)
        return stats

    await eventually(lambda: present_stats().refused == 1)
    assert (present_stats().queries, present_stats().subscriptions) == (10, 10)
    assert {tenant.tenant: tenant.queries for tenant in present_stats().tenants} == {"greedy": 9, "modest": 1}
    assert grid.telemetry.families.registry.get_sample_value("quaestor_subscriptions_refused_total") == 1
    grid.stages[0].kill()
    grid.start_stage(0)
    standing.write(3)
    for live in held:
        await eventually(lambda live=live: live.version >= standing.world.version)  # type: ignore[misc]
    await eventually(lambda: grid.telemetry.families.registry.get_sample_value("quaestor_subscribers") in (9, 1))
    await eventually(lambda: present_stats().queries == 10)
    assert present_stats().refused == 0
    for live in held:
        await live.cancel()
