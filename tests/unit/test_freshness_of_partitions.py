"""Freshness by partition: partition in a registration's id, heartbeats of a column, begin of a generation."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quaestor.event_layer.partitioning import query_partition
from quaestor.event_layer.tenancy import origin_of, tenant_of
from quaestor.invalidation.registry.freshness import Freshness
from quaestor.invalidation.registry.grid_view import Change, GridView
from quaestor.invalidation.registry.registration_ids import id_for, partition_of
from quaestor.model import Cell, GridShape, Heartbeat

BOUND_MS = 100
QUERY_IDS = st.integers(0, 2**128 - 1).map(lambda number: f"{number:032x}")
NAMES = st.from_regex(r"[A-Za-z0-9_.:#-]{1,20}", fullmatch=True)


@given(QUERY_IDS, NAMES, NAMES, st.integers(1, 2**63), st.integers(1, 10_000))
def test_an_id_tells_the_partition_of_its_query_for_any_number_of_them(
    query_id: str, tenant: str, process: str, number: int, partitions: int
) -> None:
    registration_id = id_for(origin_of(tenant, "another", process), number, query_id)
    assert partition_of(registration_id, partitions) == query_partition(query_id, partitions)
    assert tenant_of(registration_id, "another") == tenant


@pytest.mark.parametrize(
    "name",
    ["", "5f2c0a9be311:17", "5f2c0a9be311:1700000000000000", "a:1#", "a:1#12", "a:1#ghijklmnopqrstuv", "t:shop.test/a"],
)
def test_an_id_that_does_not_tell_needs_every_partition(name: str) -> None:
    assert partition_of(name, 4) is None
    vouched = Freshness.of([1_000, 2_000], bound_ms=BOUND_MS, now_ms=2_000)
    assert vouched.is_fresh([name], now_ms=1_100)
    assert not vouched.is_fresh([name], now_ms=1_101)


def test_each_column_vouches_for_its_own() -> None:
    vouched = Freshness.of([1_000, 1_050, 0], bound_ms=BOUND_MS, now_ms=1_050)
    ids = {partition_of(id_for("a", n, f"{n:032x}"), 3): id_for("a", n, f"{n:032x}") for n in range(30)}
    first, second, unheard = ids[0], ids[1], ids[2]
    assert vouched.lagging(now_ms=1_100) == [2]
    assert vouched.lagging(now_ms=1_101) == [0, 2]
    assert vouched.is_fresh([first, second], now_ms=1_100)
    assert not vouched.is_fresh([first], now_ms=1_101)
    assert vouched.is_fresh([second], now_ms=1_101)
    assert not vouched.is_fresh([second, first], now_ms=1_101)
    assert not vouched.is_fresh([second], now_ms=1_151)
    assert not vouched.is_fresh([unheard], now_ms=1)
    assert vouched.is_fresh([], now_ms=1_150)
    assert not vouched.is_fresh([], now_ms=1_151), "nothing is"


def test_nothing_is_vouched_for_before_anything_was_heard() -> None:
    assert not Freshness().is_fresh([], now_ms=1)
    assert Freshness.of(GridView().partitions_ms(), bound_ms=BOUND_MS, now_ms=1) == Freshness()


def test_no_moment_to_come_is_vouched_for() -> None:
    """A little ahead: as if it were now. More than the bound: not believed."""
    assert Freshness.of([1_000 + BOUND_MS], bound_ms=BOUND_MS, now_ms=1_000).all_until_ms == 1_000 + BOUND_MS
    assert Freshness.of([1_001 + BOUND_MS], bound_ms=BOUND_MS, now_ms=1_000).all_until_ms == 0


def beat(shape: GridShape, column: int, row: int, fresh_as_of_ms: int = 1_000) -> Heartbeat:
    return Heartbeat(
        cell=Cell(query_partition=column, write_partition=row), shape=shape, at_ms=0, fresh_as_of_ms=fresh_as_of_ms,
        watermark=1, registrations=0, writes=0,
    )  # fmt: skip


def test_a_column_is_as_fresh_as_its_slowest_cell_and_no_earlier_than_all_were_heard_of() -> None:
    view, shape = GridView(), GridShape(query_partitions=2, write_partitions=2)
    view.observe(beat(shape, 1, 0, 3_000))
    assert view.partitions_ms() == (0, 0)
    view.observe(beat(shape, 1, 1, 2_000))
    assert view.partitions_ms() == (0, 2_000)
    view.observe(beat(shape, 1, 1, 1_000))
    assert view.partitions_ms() == (0, 2_000), "a cell that begins anew does not undo what was proved"
    view.observe(beat(shape, 0, 0))
    view.observe(beat(shape, 0, 1))
    assert view.partitions_ms() == (1_000, 2_000)
    assert view.oldest_ms() == 1_000


def test_a_write_partition_that_is_silent_stops_every_column() -> None:
    view, shape = GridView(), GridShape(query_partitions=3, write_partitions=2)
    for column in range(3):
        view.observe(beat(shape, column, 0))
    assert view.partitions_ms() == (0, 0, 0)


def test_a_process_that_starts_amid_a_resize_relies_on_the_new_grid_when_all_others_do() -> None:
    """The process relies on a new grid after a heartbeat of each cell; before, a silent cell would go unnoticed."""
    view = GridView()
    shape = GridShape(query_partitions=2, write_partitions=1, generation=1)
    view.observe(beat(shape, 0, 0))
    assert view.partitions_ms() == (0, 0)
    view.observe(beat(shape, 1, 0))
    assert view.partitions_ms() == (1_000, 1_000)


def test_a_successor_is_relied_on_when_all_of_it_was_heard() -> None:
    old = GridShape(query_partitions=1, write_partitions=1)
    new = GridShape(query_partitions=2, write_partitions=1, generation=1)
    view = GridView()
    view.observe(beat(old, 0, 0))
    assert view.observe(beat(new, 1, 0)) is Change.NOTHING
    assert (view.shape, view.partitions_ms()) == (old, (1_000,))
    assert view.observe(beat(new, 0, 0, 4_000)) is Change.SUCCEEDED
    assert (view.shape, view.partitions_ms()) == (new, (4_000, 1_000))
    assert view.observe(beat(old, 0, 0, 9_000)) is Change.NOTHING
    assert view.partitions_ms() == (4_000, 1_000)


def test_a_generation_takes_over_no_earlier_than_each_of_its_cells_has_proved_a_moment() -> None:
    """Fresh entries of the old generation are served meanwhile."""
    view, first, second = (
        GridView(),
        GridShape(query_partitions=1, write_partitions=1),
        GridShape(query_partitions=1, write_partitions=2, generation=1),
    )
    view.observe(beat(first, 0, 0, 3_000))
    assert view.observe(beat(second, 0, 0, 3_100)) is Change.NOTHING
    assert view.observe(beat(second, 0, 1, 0)) is Change.NOTHING, "it runs, and has caught up with nothing"
    assert view.shape == first
    assert view.partitions_ms() == (3_000,)
    assert view.observe(beat(second, 0, 1, 3_050)) is Change.SUCCEEDED
    assert view.partitions_ms() == (3_050,)
