"""The grid is partitioned anew while apps read and the database changes: nothing is lost, and what was cached stays cached."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest

from quaestor.event_layer import streams
from quaestor.model import GridShape
from tests.resizing_world import Generation, ResizingWorld

pytestmark = pytest.mark.anyio

ONE = GridShape(query_partitions=1, write_partitions=1)
VALUES = 5
KEYS = 12
KNOWN = (1, 2, 3, 4)
EVENTS: Mapping[str, float] = {
    "cell": 30, "cells": 8, "ingest": 20, "app": 20, "write": 8, "read": 12, "die": 1, "resize": 2, "retire": 3, "vanish": 0.5,
}  # fmt: skip
NOTHING_ELSE: Mapping[str, float] = {}


async def test_entries_cached_before_are_guarded_after() -> None:
    """Results registered with one shape live on in the next two, and each dies by its first change, and only then."""
    world = ResizingWorld(ONE)
    await world.settle()
    for key in range(KEYS):
        world.write(key, key % VALUES)
    await world.settle()
    for value in range(VALUES):
        world.read(world.apps[0], value)
    await world.settle()
    assert [entry.ids for entry in world.cached if not entry.ids] == []
    for partitions in ((2, 2), (1, 2), (3, 1)):
        old = world.generations[-1]
        world.resize(*partitions)
        await world.settle()
        world.retire(old)
        await world.settle()
        assert all(world.live(entry, app) for entry in world.cached for app in world.apps)
    assert world.resets == []
    assert {entry.generation for entry in world.cached} == {0}
    for value in range(VALUES):
        world.write(100 + value, value)
        await world.settle()
        served = [entry.value for entry in world.cached if world.live(entry, world.apps[1])]
        assert served == list(range(value + 1, VALUES))
    await world.close()


async def test_a_write_that_only_the_old_cells_or_only_the_new_ones_see_is_not_lost() -> None:
    """The old grid stops in the middle; what it has not matched, the new one reads from the database's log."""
    world = ResizingWorld(ONE)
    await world.settle()
    world.read(world.apps[0], 1)
    world.read(world.apps[0], 2)
    await world.settle()
    old = world.generations[-1]
    world.write(1, 1)  # nobody has read it from the log yet
    world.resize(2, 2)
    world.retire(old)  # nor will the old ingest
    world.check()
    await world.settle()
    assert [entry.value for entry in world.cached if world.live(entry, world.apps[0])] == [2]
    assert world.resets == []
    await world.close()


async def test_without_a_checkpoint_nothing_is_taken_over_and_everything_is_invalidated() -> None:
    """A grid that left no word of how far it got cannot be succeeded without a gap."""
    world = ResizingWorld(ONE)
    await world.settle()
    world.read(world.apps[0], 1)
    await world.settle()
    assert world.live(world.cached[0], world.apps[0])
    world.write(1, 3)
    await world.settle()
    old = world.generations[-1]
    del world.layer._values[streams.checkpoint("d", old.shape.cells[0])]
    world.resize(1, 2)
    world.retire(old)
    await world.settle()
    assert not world.live(world.cached[0], world.apps[0])
    await world.close()


async def test_activations_of_old_cells_after_a_loss_of_all_data_are_taken_over_too() -> None:
    """The fences are lost with the data, so for a while the old cells activate again what the new ones do not know of."""
    world = ResizingWorld(ONE)
    await world.settle()
    old = world.generations[0]
    new = world.resize(2, 1)
    for cell in new.cells:
        world.step_cell(new, cell)
    world.lose()
    world.generations = [old]
    await world.settle()
    world.read(world.apps[0], 1)
    await world.settle()
    assert world.live(world.cached[0], world.apps[0])
    world.generations = [old, new]
    await world.settle()
    assert all(app.shape is not None and app.shape.generation == 1 for app in world.apps)
    world.retire(old)
    world.write(1, 1)
    await world.settle()
    assert not world.live(world.cached[0], world.apps[0])
    await world.close()


def dice_of(seed: int | str) -> random.Random:
    """By a name: others each time."""
    if isinstance(seed, str):
        seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    return random.Random(seed)


@pytest.mark.parametrize("seed", [*KNOWN, *(f"another {number}" for number in range(4))])
async def test_nothing_is_stale_during_resizes_deaths_and_lags(seed: int | str) -> None:
    """Writes, reads, lagging parts, cells that die, resizes, abandoned resizes and old grids that vanish, in any order."""
    dice = dice_of(seed)
    world = ResizingWorld(random_shape(dice))
    await world.settle()
    served, outlived = 0, 0
    for _ in range(900):
        await something(world, dice)
        world.check()
        for entry in world.cached:
            for app in world.apps:
                if world.live(entry, app):
                    served += 1
                    outlived += app.shape is not None and app.shape.generation > entry.generation
    world.retire(world.generations[-2]) if len(world.generations) > 1 else None
    await world.settle(rounds=400)
    world.check_settled()
    assert served or seed not in KNOWN, "the test must serve something"
    print(f"seed={seed}: {served} looks at live results, {outlived} of them taken over")
    assert world.resets == []
    await world.close()


FAILURES = {"ingest dies": 1.5, "app dies": 1.0, "uncommitted": 3.0, "elect": 0.8, "lose": 0.4}


@pytest.mark.parametrize("seed", [*range(1, 9), *(f"another {number}" for number in range(8))])
async def test_nothing_is_stale_during_failures_of_every_part(seed: int | str) -> None:
    """Besides, ingests and apps die, the event layer loses its data, and elected primaries lack writes that were read.

    Two apps share results, a third is another tenant.
    """
    dice = dice_of(seed)
    world = ResizingWorld(random_shape(dice), tenants=("", "", "shop"))
    await world.settle()
    served = 0
    for _ in range(700):
        await something(world, dice, FAILURES)
        world.check()
        served += sum(world.live(entry, app) for entry in world.cached for app in world.apps)
    world.elect()  # whatever is not committed will never be
    await world.settle(rounds=400)
    world.check_settled()
    print(f"seed={seed}: {served} looks at live results, {len(world.resets)} resets")
    await world.close()


def random_shape(dice: random.Random) -> GridShape:
    return GridShape(query_partitions=dice.randint(1, 3), write_partitions=dice.randint(1, 3))


async def something(world: ResizingWorld, dice: random.Random, failures: Mapping[str, float] = NOTHING_ELSE) -> None:
    generation: Generation = dice.choice(world.generations)
    newest = world.generations[-1]
    events = EVENTS | failures
    match dice.choices(list(events), list(events.values()))[0]:
        case "cell":
            world.step_cell(generation, dice.choice(list(generation.cells)))
        case "cells":
            for cell in list(generation.cells):
                world.step_cell(generation, cell)
        case "ingest":
            world.step_ingest(generation, dice.choice([1, 3, 100]))
        case "app":
            await world.step_app(dice.choice(world.apps))
        case "write":
            world.write(dice.randrange(KEYS), dice.choice([None, *range(VALUES)]))
        case "read":
            world.read(dice.choice(world.apps), dice.randrange(VALUES))
        case "die":
            world.start_cell(generation, dice.choice(list(generation.cells)))
        case "resize":
            if len(world.generations) < 4:
                shape = random_shape(dice)
                world.resize(shape.query_partitions, shape.write_partitions)
        case "retire":
            if len(world.generations) > 1 and all(app.shape == newest.shape for app in world.apps):
                world.retire(world.generations[-2])
        case "vanish":  # the old grid's processes are gone, though nobody has taken over yet
            if len(world.generations) > 1:
                world.generations[0].cells = {
                    cell: loop for cell, loop in world.generations[0].cells.items() if dice.random() < 0.5
                } or world.generations[0].cells
        case "ingest dies":
            world.start_ingest(generation)
        case "app dies":
            world.replace_app(dice.randrange(len(world.apps)))
        case "uncommitted":
            world.write(dice.randrange(KEYS), dice.choice([None, *range(VALUES)]), committed=False)
        case "elect":
            world.elect()
        case "lose":
            world.lose()
