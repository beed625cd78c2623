"""The grid is partitioned anew, parts of it lag, die and fail, and its query pipelines are far too small: nothing is stale."""

from __future__ import annotations

import pytest

from quaestor.errors import EventLayerResetError
from quaestor.event_layer.bounds import PipelineBounds
from quaestor.model import Cell
from tests.property.test_resizing import FAILURES, NOTHING_ELSE, dice_of, random_shape, something
from tests.resizing_world import Generation, ResizingWorld

pytestmark = pytest.mark.anyio

KNOWN = (1, 2, 3, 4)
BOUNDS = PipelineBounds(entries=6)
YOUNG_MS = 6
"""In a world where every action takes a millisecond, and a heartbeat two."""


class LittleRoom(ResizingWorld):
    """Whenever a cell has done anything it looks for room."""

    given_up = 0

    def start_cell(self, generation: Generation, cell: Cell) -> None:
        super().start_cell(generation, cell)
        generation.cells[cell].parts.retention.bounds = BOUNDS

    def step_cell(self, generation: Generation, cell: Cell) -> None:
        loop = generation.cells[cell]
        retention, before = loop.parts.retention, loop.parts.retention.given_up
        super().step_cell(generation, cell)  # looks for room itself once a second: on a slow machine each time
        try:
            retention.bound(worked_off=loop.position.queries, now_ms=self.now_ms)
        except EventLayerResetError:
            loop.start_over()
        self.given_up += retention.given_up - before


@pytest.mark.parametrize("failing", [False, True], ids=["resizes", "failures"])
@pytest.mark.parametrize("seed", [*KNOWN, "another", "and another"])
async def test_nothing_is_stale_however_little_room_there_is(
    seed: int | str, failing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("quaestor.invalidation.grid.query_retention.YOUNGEST_TRIMMED_MS", YOUNG_MS)
    monkeypatch.setattr("quaestor.invalidation.grid.cell_reader.doubtful_after_ms", lambda _: YOUNG_MS // 2)
    dice = dice_of(seed)
    world = LittleRoom(random_shape(dice), tenants=("", "", "shop"))
    await world.settle()
    served = 0
    for _ in range(600):
        await something(world, dice, FAILURES if failing else NOTHING_ELSE)
        world.check()
        served += sum(world.live(entry, app) for entry in world.cached for app in world.apps)
    world.elect()
    await world.settle(rounds=400)
    world.check_settled()
    print(f"seed={seed}: {served} looks at live results, {world.given_up} registrations given up")
    if seed in KNOWN and not failing:
        assert served, "the test must serve something"
        assert world.given_up, "and give something up"
    await world.close()
