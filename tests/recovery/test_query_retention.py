"""A query pipeline beyond its bound while registrations live:
each result on which an app relies is still as it was read.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

from quaestor.event_layer import offsets, streams
from quaestor.event_layer.bounds import PipelineBounds
from quaestor.invalidation.grid.resizing.messages import Fence, encode_fence
from quaestor.model import Invalidated, MatchType, Refused
from quaestor.realtime.codec import decode_matched
from quaestor.realtime.messages import CellStarted
from tests.recovery.column_world import ColumnWorld, survives

BOUNDS = PipelineBounds(entries=100)
Opened = Callable[..., ColumnWorld]


@pytest.fixture
def opened(redis_url: str, prefix: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Opened]:
    worlds: list[ColumnWorld] = []

    def open_world(*, rows: int = 2, bounds: PipelineBounds = BOUNDS) -> ColumnWorld:
        world = ColumnWorld(redis_url, f"{prefix}{len(worlds)}", monkeypatch, rows=rows, bounds=bounds)
        worlds.append(world)
        world.settle()
        return world

    yield open_world
    for world in worlds:
        world.close()


def filled(world: ColumnWorld, *, dead: int, live: int) -> list[str]:
    """More than the bound, the living first; old enough to be trimmed. Returns the names of the living."""
    kept = [world.register(1_000 + number) for number in range(live)]
    for number in range(dead):
        world.cancel(world.register(number))
    world.settle()
    assert world.live() == set(kept)
    world.age(old=True)
    return kept


def test_queries_of_the_oldest_part_are_given_up_and_the_rest_stays(opened: Opened) -> None:
    world = opened()
    oldest = filled(world, dead=60, live=5)
    world.age(old=False)
    newest = [world.register(2_000 + number) for number in range(5)]
    world.settle()
    world.age(old=True)
    world.look_after(0)
    assert world.entries() <= 0.8 * BOUNDS.entries
    world.settle()
    assert world.given_up() == set(oldest)
    assert world.live() == set(newest)
    for number in range(5):
        world.write(2_000 + number)
    world.settle()
    assert not world.live()
    world.settle()
    assert all(not cell.node.registrations for cell in world.cells.values())


def test_dead_queries_go_silently(opened: Opened) -> None:
    world = opened()
    for number in range(80):
        world.cancel(world.register(number))
    live = [world.register(1_000 + number) for number in range(10)]
    world.settle()
    world.age(old=True)
    world.look_after(0)
    world.settle()
    assert world.entries() <= BOUNDS.entries
    assert (world.given_up(), world.live()) == (set(), set(live))


@pytest.mark.parametrize("seed", range(3))
def test_no_app_relies_on_a_changed_result(opened: Opened, seed: int) -> None:
    """Registrations, cancellations and writes, with cells at different places that are killed anywhere and replaced."""
    world, draw = opened(), random.Random(seed)
    deaths = 0
    for _ in range(60):
        world.age(old=False)
        for _ in range(draw.randint(0, 12)):
            world.register(draw.randint(0, 40))
        for name in draw.sample(sorted(world.live()), k=min(len(world.live()), draw.randint(0, 6))):
            world.cancel(name)
        if draw.random() < 0.4:
            world.write(draw.randint(0, 40))
        world.step(draw.randint(0, 1))
        world.age(old=True)
        row = draw.randint(0, 1)
        if draw.random() < 0.3:
            if not survives(world, row, draw.randint(0, 12)):
                deaths += 1
            world.start(row)
        else:
            world.look_after(row)
        if draw.random() < 0.5:
            world.age(old=False)
            world.settle()
            world.check()
    world.settle()
    world.check()
    world.age(old=True)
    world.look_after(0)
    assert world.entries() <= BOUNDS.entries
    assert deaths
    assert world.live(), "not everything was given up"
    assert world.given_up()


def test_a_cell_may_be_killed_before_everything_that_it_does(opened: Opened) -> None:
    """Between announcing, trimming, checkpoint and figures; the other cell of the column is ahead, or lags, or dies as well."""
    for changes in range(100):
        world = opened()
        filled(world, dead=60, live=20)
        survived = survives(world, 0, changes)
        world.start(0)
        if changes % 3 == 1:
            world.settle(1)
        elif changes % 3 == 2:
            world.start(1)
        for number in range(20):
            world.write(1_000 + number)
        world.settle()
        assert not world.live(), changes
        world.look_after(0)
        assert world.entries() <= BOUNDS.entries
        again = world.register(1_000)
        world.settle()
        assert world.live() == {again}
        if survived:
            assert changes > 8, "it does nothing that could be interrupted"
            return
    raise AssertionError("it never comes to an end")


def test_a_lagging_cell_misses_nothing_that_an_app_relies_on(opened: Opened) -> None:
    """The cell notices the gap, and reports a fresh start, so that stages repeat their announcements."""
    world = opened()
    world.register(0)
    world.settle()
    place = world.cells[1].position.queries
    for number in range(150):
        world.register(number)
    world.settle(0)
    world.age(old=True)
    world.look_after(0)
    first = world.layer.first_offset(world.queries)
    assert first is not None
    assert first > place
    matched = streams.matched(world.deployment, 0)
    before = len(world.layer.read({matched: "0"}, count=1_000, block_ms=0))
    world.settle()
    messages = [decode_matched(entry.payload) for entry in world.layer.read({matched: "0"}, count=1_000, block_ms=0)]
    assert [message.cell.write_partition for message in messages[before:] if isinstance(message, CellStarted)] == [1]
    for number in range(150):
        world.write(number)
    world.settle()
    assert not world.live()


def test_a_fence_holds_also_after_it_was_trimmed(opened: Opened) -> None:
    """A trimmed fence still holds for the cell that has read it, for a cell behind it, and for their replacements."""
    world = opened()
    live = filled(world, dead=0, live=3)
    world.layer.append(world.queries, [encode_fence(Fence(generation=1))])
    world.age(old=False)
    for number in range(120):
        world.register(number)
    world.settle(0)
    assert world.live() == set(live)
    world.age(old=True)
    world.look_after(0)
    assert not any(b"\x02t\x00\x02\x00\x00\x00f" in entry.payload for entry in
                   world.layer.read({world.queries: "0"}, count=1_000, block_ms=0))  # fmt: skip
    world.start(0)
    late = [world.register(5_000)]
    world.settle()
    world.start(1)
    late.append(world.register(5_001))
    world.settle()
    refused = {refusal.registration_id for refusal in world.said if isinstance(refusal, Refused)}
    assert refused >= set(late)
    assert not world.live()


def test_a_cell_that_cannot_keep_up_refuses_what_waits_until_there_is_room(opened: Opened) -> None:
    world = opened(rows=1)
    first = world.register(1)
    world.settle()
    waiting = [world.register(number) for number in range(2_000)]
    world.age(old=True)
    world.look_after(0)
    assert world.cells[0].parts.retention.behind
    for _ in range(3):  # the app cancels the registrations that were reported
        world.settle()
        world.look_after(0)
    assert not world.cells[0].parts.retention.behind
    assert world.entries() <= BOUNDS.entries
    assert world.live().isdisjoint({first, *waiting[600:]}), "guarded or refused, and not in between"
    world.write(5)
    world.settle()
    world.check()
    again = world.register(7)
    world.settle()
    assert again in world.live()


def test_a_burst_is_kept_however_large_it_is(opened: Opened) -> None:
    world = opened(rows=1)
    live = [world.register(number) for number in range(300)]
    world.settle()
    world.look_after(0)
    assert world.live() == set(live)
    assert not world.cells[0].parts.retention.behind


def test_entries_of_one_moment_are_all_gone_through(opened: Opened) -> None:
    """A cell with more entries of one moment than it reads at once continues in the middle.

    The cell forgets them when a later entry has come.
    """
    world = opened(rows=1, bounds=PipelineBounds(entries=1_000))
    junk = [b"not BSON"] * 4_000
    world.layer.append(world.queries, junk)
    moments = {
        offsets.appended_at_ms(entry.offset)
        for entry in world.layer.read({world.queries: "0"}, count=10_000, block_ms=0)
    }
    assert len(moments) < 4_000
    world.settle()
    name = world.register(1)
    world.settle()
    world.age(old=True)
    world.look_after(0)
    assert world.entries() <= 1_000
    world.settle()
    world.write(1)
    world.settle()
    assert name not in world.live()


def test_the_size_in_bytes_counts_as_well(opened: Opened) -> None:
    world = opened(bounds=PipelineBounds(bytes=20_000))
    live = filled(world, dead=100, live=3)
    world.look_after(1)
    assert world.layer.measure(world.queries).bytes <= 20_000
    world.settle()
    assert world.given_up() == set(live)
    invalidations = [invalidations for invalidations in world.said if isinstance(invalidations, Invalidated)]
    assert {notification.match_type for notification in invalidations} == {MatchType.EVICTED}
