"""Which run of the grid serves, which one takes over from whom: the value in the event layer that tasks obey."""

from __future__ import annotations

from typing import Any, cast

import pytest

from quaestor.cli import main
from quaestor.event_layer import streams
from quaestor.event_layer.memory import MemoryEventLayer
from quaestor.invalidation.grid.resizing.state import GridState, Run, alone, enter, enter_elected, get_state, put_state
from quaestor.invalidation.registry.grid_view import Change, GridView
from quaestor.model import Cell, GridShape, Heartbeat
from quaestor.ports import EventLayer


def shape(query_partitions: int, write_partitions: int, generation: int = 0) -> GridShape:
    return GridShape(query_partitions=query_partitions, write_partitions=write_partitions, generation=generation)


FIRST = GridState(serving=Run(run="a", shape=shape(1, 1)))


def test_a_grid_of_the_same_shape_replaces_the_other_at_once() -> None:
    state, own, earlier = FIRST.started("b", shape(1, 1))
    assert (own.shape, earlier) == (shape(1, 1), ())
    assert (state.concerns("a"), state.concerns("b")) == (False, True)


def test_a_grid_of_another_shape_runs_beside_it_until_it_is_promoted() -> None:
    state, own, earlier = FIRST.started("b", shape(2, 2))
    assert (own.shape, earlier) == (shape(2, 2, 1), (shape(1, 1),))
    assert state.concerns("a")
    assert state.concerns("b")
    promoted = state.promoted("b")
    assert (promoted.concerns("a"), promoted.concerns("b")) == (False, True)
    assert promoted.started("c", shape(2, 2))[1].shape == shape(2, 2, 1), "and is now the one to replace"
    assert state.promoted("somebody else") == state


def test_an_unfinished_grid_is_taken_over_too_also_by_the_old_shape() -> None:
    state, _, _ = FIRST.started("b", shape(2, 2))
    failed = state.ended("b")
    assert (failed.concerns("a"), failed.concerns("b")) == (True, False)
    again, own, earlier = failed.started("c", shape(1, 1))
    assert own.shape == shape(1, 1, 2), "the old pipelines are fenced"
    assert earlier == (shape(1, 1), shape(2, 2, 1))
    assert again.promoted("c").earlier == ()


def test_the_serving_grid_may_be_stopped_while_another_takes_over() -> None:
    state, _, _ = FIRST.started("b", shape(2, 2))
    stopped = state.ended("a")
    assert (stopped.concerns("a"), stopped.concerns("b")) == (False, True)
    assert stopped.promoted("b").concerns("b")


def test_the_state_survives_the_event_layer() -> None:
    layer = MemoryEventLayer()
    assert get_state(layer, "d") is None
    state = FIRST.started("b", shape(2, 3))[0].ended("b").started("c", shape(4, 1))[0]
    for state_ in (FIRST, state, state.ended("a"), state.promoted("c")):
        put_state(layer, "d", state_)
        assert get_state(layer, "d") == state_


def beat(of: GridShape, cell: Cell, fresh_as_of_ms: int) -> Heartbeat:
    return Heartbeat(
        cell=cell, shape=of, at_ms=fresh_as_of_ms, fresh_as_of_ms=fresh_as_of_ms, watermark=1, registrations=0, writes=0
    )


class Late:
    """A driver's event layer that shows it the state as it was some time ago."""

    def __init__(self, layer: MemoryEventLayer) -> None:
        self._layer, self._state = layer, layer.get(streams.grid("d"))

    def get(self, name: str) -> bytes | None:
        return self._state if name == streams.grid("d") else self._layer.get(name)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._layer, name)


@pytest.mark.parametrize("first", [False, True])
def test_drivers_that_start_at_once_never_have_a_generation_in_common(first: bool) -> None:
    """Their pipelines would be, and what one has taken over the other would take for its own."""
    layer = MemoryEventLayer()
    if not first:
        enter(layer, "d", "a", shape(1, 1))
    late = [cast(EventLayer, Late(layer)) for _ in range(3)]
    entered = [
        enter(state, "d", run, shape(2, 2 + number))
        for number, (run, state) in enumerate(zip("bcd", late, strict=True))
    ]
    generations = [own.shape.generation for own, _ in entered]
    assert generations == ([0, 1, 2] if first else [1, 2, 3])
    shapes = ([] if first else [shape(1, 1)]) + [own.shape for own, _ in entered]
    assert [earlier for _, earlier in entered][-1] == tuple(shapes[:-1]), "the last takes over from all"
    state = get_state(layer, "d")
    assert state is not None
    assert [state.concerns(run) for run in "bcd"][-1]
    assert not any(state.concerns(run) for run in "bc"[first:])


def test_a_grid_that_was_forgotten_by_the_state_is_taken_over_from() -> None:
    """The grid was promoted; then a driver that slept since before its start wrote its own old state."""
    layer = MemoryEventLayer()
    enter(layer, "d", "a", shape(1, 1))
    asleep = cast(EventLayer, Late(layer))
    enter(layer, "d", "b", shape(2, 2))
    state = get_state(layer, "d")
    assert state is not None
    put_state(layer, "d", state.promoted("b"))
    enter(asleep, "d", "c", shape(1, 3))
    put_state(layer, "d", FIRST)  # and another driver, which knows of no grid
    for partitions in (shape(1, 1), shape(4, 4)):
        own, earlier = enter(layer, "d", "e", partitions)
        assert own.shape.generation >= 3
        assert {state.generation for state in earlier} >= {0, 1, 2}


def test_the_later_of_two_grids_survives_a_loss_of_all_data_and_remembers_whom_to_succeed() -> None:
    """Both drivers report again, in either order: the older grid ends,
    and the newer one's take-over is not taken for finished.

    That holds for the newer grid's replacement too.
    """
    old, new = Run(run="a", shape=shape(1, 1)), Run(run="b", shape=shape(2, 2, 1))
    for first in (alone(old), alone(new, (old.shape,))):
        state = alone(new, (old.shape,)) if first.forgets(new) else first
        assert not state.forgets(old)
        assert not state.forgets(new)
        assert (state.concerns("a"), state.concerns("b")) == (False, True)
        again, own, earlier = state.ended("b").started("c", shape(2, 2))
        assert own.shape == shape(2, 2, 2)
        assert earlier == (shape(1, 1), shape(2, 2, 1))
        assert not again.forgets(new), "it was overtaken"
    assert alone(new).serving == new


def test_a_grid_of_the_same_shape_goes_on_with_its_generation() -> None:
    layer = MemoryEventLayer()
    enter(layer, "d", "a", shape(1, 1))
    assert enter(layer, "d", "b", shape(1, 1)) == (Run(run="b", shape=shape(1, 1)), ())
    enter(layer, "d", "c", shape(2, 1))
    state = get_state(layer, "d")
    assert state is not None
    put_state(layer, "d", state.promoted("c"))
    assert enter(layer, "d", "e", shape(2, 1)) == (Run(run="e", shape=shape(2, 1, 1)), ())


def test_an_app_relies_on_a_successor_when_all_of_its_cells_were_heard_and_never_goes_back() -> None:
    view, old, new = GridView(), shape(1, 1), shape(1, 2, 1)
    assert view.observe(beat(old, old.cells[0], 10)) is Change.NOTHING
    assert view.observe(beat(new, new.cells[0], 90)) is Change.NOTHING
    assert (view.shape, view.oldest_ms()) == (old, 10)
    assert view.observe(beat(new, new.cells[1], 80)) is Change.SUCCEEDED
    assert (view.shape, view.oldest_ms()) == (new, 80)
    assert view.observe(beat(old, old.cells[0], 100)) is Change.NOTHING
    assert (view.shape, view.oldest_ms()) == (new, 80)


def test_a_successor_that_was_itself_succeeded_does_not_count() -> None:
    """Heartbeats of an abandoned generation and of the one after it are never added up."""
    view, old, abandoned, new = GridView(), shape(1, 1), shape(1, 2, 1), shape(1, 2, 2)
    view.observe(beat(old, old.cells[0], 10))
    view.observe(beat(abandoned, abandoned.cells[0], 20))
    assert view.observe(beat(new, new.cells[1], 30)) is Change.NOTHING
    assert view.observe(beat(abandoned, abandoned.cells[1], 40)) is Change.NOTHING
    assert view.observe(beat(new, new.cells[0], 50)) is Change.SUCCEEDED
    assert view.shape == new


def test_another_shape_of_the_same_generation_is_nothing_to_rely_on() -> None:
    view = GridView()
    view.observe(beat(shape(1, 1), Cell(query_partition=0, write_partition=0), 10))
    assert view.observe(beat(shape(1, 2), Cell(query_partition=0, write_partition=0), 10)) is Change.RESHAPED
    assert view.oldest_ms() == 0


def test_resizing_without_a_grid_is_refused_in_a_sentence(
    redis_url: str, prefix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main.main(
            ["cluster", "resize", "--query-partitions", "2", "--write-partitions", "2", "--redis-url", redis_url,
             "--mongo-url", "mongodb://127.0.0.1:1", "--deployment", prefix]
        )  # fmt: skip
    assert ended.value.code == 2
    assert "no grid was ever started" in capsys.readouterr().err


def test_an_elected_grid_replaces_an_elected_one_in_its_generation_and_gives_way_to_any_other() -> None:
    layer = MemoryEventLayer()
    assert enter_elected(layer, "d", "a", shape(1, 1)) == (Run(run="a", shape=shape(1, 1), elected=True), ())
    assert enter_elected(layer, "d", "b", shape(1, 1)) == (Run(run="b", shape=shape(1, 1), elected=True), ())
    state = get_state(layer, "d")
    assert state is not None
    assert (state.concerns("a"), state.concerns("b"), state.unattended) == (False, True, True)
    own, earlier = enter(layer, "d", "grid", shape(2, 1))
    assert (own.shape.generation, earlier) == (1, (shape(1, 1),))
    again = enter_elected(layer, "d", "c", shape(1, 1))
    assert again is not None
    assert again[0].shape.generation == 0, "while the grid is about to take over, an elected one goes on in its place"
    state = get_state(layer, "d")
    assert state is not None
    assert state.concerns("c")
    assert state.concerns("grid")
    put_state(layer, "d", state.promoted("grid"))
    assert enter_elected(layer, "d", "e", shape(1, 1)) is None
    assert not state.promoted("grid").concerns("c")


def test_an_elected_grid_takes_over_from_one_that_was_stopped_and_its_successor_goes_on_with_that() -> None:
    layer = MemoryEventLayer()
    enter(layer, "d", "grid", shape(2, 2))
    state = get_state(layer, "d")
    assert state is not None
    put_state(layer, "d", state.ended("grid"))
    for run in ("a", "b"):
        expected = (Run(run=run, shape=shape(1, 1, 1), elected=True), (shape(2, 2),))
        assert enter_elected(layer, "d", run, shape(1, 1)) == expected
    state = get_state(layer, "d")
    assert state is not None
    assert state.promoted("b") == GridState(serving=Run(run="b", shape=shape(1, 1, 1), elected=True))


def test_a_grid_that_starts_in_the_same_moment_is_not_overwritten_by_an_elected_one() -> None:
    class Raced(MemoryEventLayer):
        """A grid starts between the look of the elected one and its write."""

        raced = False

        def swap(self, name: str, before: bytes | None, value: bytes) -> bool:
            if not self.raced:
                self.raced = True
                enter(self, "d", "grid", shape(1, 1))
            return super().swap(name, before, value)

    layer = Raced()
    assert enter_elected(layer, "d", "a", shape(1, 1)) is None
    state = get_state(layer, "d")
    assert state is not None
    assert state.concerns("grid")
    assert not state.unattended
