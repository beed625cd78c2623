"""Which run of the grid serves, which one takes over from whom: the value in the event layer that tasks obey."""

from __future__ import annotations

import pytest

from quaestor import cli
from quaestor.invalidation.event_layer.memory import MemoryEventLayer
from quaestor.invalidation.grid_view import Change, GridView
from quaestor.invalidation.resizing.state import GridState, Run, get_state, put_state
from quaestor.model import Cell, GridShape, Heartbeat


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


def test_what_was_not_finished_is_taken_over_from_too_also_by_the_old_shape() -> None:
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
    for one in (FIRST, state, state.ended("a"), state.promoted("c")):
        put_state(layer, "d", one)
        assert get_state(layer, "d") == one


def beat(of: GridShape, cell: Cell, fresh_as_of_ms: int) -> Heartbeat:
    return Heartbeat(
        cell=cell, shape=of, at_ms=fresh_as_of_ms, fresh_as_of_ms=fresh_as_of_ms, watermark=1, registrations=0, writes=0
    )


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
        cli.main(
            ["cluster", "resize", "--query-partitions", "2", "--write-partitions", "2", "--redis-url", redis_url,
             "--mongo-url", "mongodb://127.0.0.1:1", "--deployment", prefix]
        )  # fmt: skip
    assert ended.value.code == 2
    assert "no grid was ever started" in capsys.readouterr().err
