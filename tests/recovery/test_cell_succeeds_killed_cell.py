"""A cell takes over from a killed one: what that one activated after its last checkpoint is guarded or invalidated."""

from __future__ import annotations

from typing import Any

import pytest

from quaestor.clock import Clock, system_clock
from quaestor.event_layer import streams
from quaestor.event_layer.loop_context import LoopContext
from quaestor.invalidation.grid.cell_loop import CellLoop
from quaestor.invalidation.matching.node import MatchingNode
from quaestor.model import Activated, Heartbeat, Invalidated, Refused
from tests.recovery.cell_harness import CELL, RETENTION_MS, SHAPE, Harness

AWAY_MS = 80_000
"""Longer than writes are kept for replay, and shorter than tombstones live in app processes."""
ONE_STEP = 200
"""Query events that a cell deals with in one step."""


def cell_of(harness: Harness, *, clock: Clock = system_clock) -> CellLoop:
    """A cell that runs as far as the test steps it. Between ticks it saves no checkpoint."""
    node = MatchingNode(CELL, SHAPE, retention_ms=RETENTION_MS)
    return CellLoop(
        node,
        harness.layer,
        CELL,
        SHAPE,
        LoopContext(deployment=harness.deployment, heartbeat_ms=600_000, retention_ms=RETENTION_MS, clock=clock),
    )


def later() -> int:
    return system_clock() + AWAY_MS


def killed_after_activating(harness: Harness, *names: str) -> None:
    """A cell saves its checkpoint, activates results that were read a little before that, and is killed."""
    first = cell_of(harness)
    harness.tick()
    first.start()
    first.step()
    read_at = harness.version
    harness.write("other", origin="EWR")
    harness.tick()
    first.step()
    for name in names:
        harness.register(name, since=read_at, origin=name)
    while not {activation.registration_id for activation in harness.all(Activated)} >= set(names):
        first.step()
        harness.read()
    assert harness.dead() == []


def proven_ms(harness: Harness) -> int:
    return max((beat.fresh_as_of_ms for beat in harness.all(Heartbeat)), default=0)


def dead_when_proved(harness: Harness, moment_ms: int) -> set[str]:
    """The names that were invalidated before the first heartbeat that proves the moment."""
    dead: set[str] = set()
    for notification in harness.said:
        if isinstance(notification, Invalidated):
            dead.update(notification.registration_ids)
        elif isinstance(notification, Heartbeat) and notification.fresh_as_of_ms >= moment_ms:
            return dead
    raise AssertionError("the moment is not proved")


def step_until_proved(harness: Harness, cell: CellLoop, moment_ms: int) -> None:
    while proven_ms(harness) < moment_ms:
        cell.step()
        harness.read()
        harness.tick()


@pytest.mark.parametrize("changed", [True, False])
def test_a_result_that_cannot_be_replayed_after_a_long_outage_is_invalidated(harness: Harness, changed: bool) -> None:
    """The app relies on an activation of the killed cell, so a refusal by the next one is an invalidation."""
    killed_after_activating(harness, "JFK")
    if changed:
        harness.write(1, origin="JFK")
    moment = harness.tick()
    second = cell_of(harness, clock=later)
    second.start()
    step_until_proved(harness, second, moment)
    assert "JFK" in dead_when_proved(harness, moment)
    assert second.node.registrations == 0


def test_a_result_that_can_be_replayed_after_a_short_outage_is_guarded(harness: Harness) -> None:
    killed_after_activating(harness, "JFK")
    moment = harness.tick()
    second = cell_of(harness)
    second.start()
    step_until_proved(harness, second, moment)
    assert harness.dead() == []
    assert second.node.registrations == 1
    harness.write(1, origin="JFK")
    moment = harness.tick()
    step_until_proved(harness, second, moment)
    assert "JFK" in dead_when_proved(harness, moment)


def test_nothing_is_proved_fresh_before_all_that_the_killed_cell_activated_is_guarded(harness: Harness) -> None:
    """More results than one step takes in wait in the query pipeline; the write that changed the last one is read at once."""
    names = [f"airport-{number}" for number in range(2 * ONE_STEP + 1)]
    killed_after_activating(harness, *names)
    harness.write(1, origin=names[-1])
    moment = harness.tick()
    second = cell_of(harness)
    second.start()
    step_until_proved(harness, second, moment)
    assert dead_when_proved(harness, moment) == {names[-1]}


def test_results_whose_writes_were_trimmed_are_invalidated_also_behind_the_checkpoint(harness: Harness) -> None:
    killed_after_activating(harness, "JFK")
    harness.write(1, origin="JFK")
    writes = streams.writes(harness.deployment, 0)
    harness.layer.trim(writes, before_ms=system_clock() + 60_000)
    moment = harness.tick()
    second = cell_of(harness)
    second.start()
    step_until_proved(harness, second, moment)
    assert "JFK" in dead_when_proved(harness, moment)


def test_a_result_that_came_after_the_killed_cell_is_refused_without_an_invalidation(harness: Harness) -> None:
    """No entry relies on the refused result, because an app waits for its activation; so none has to be evicted."""
    killed_after_activating(harness)
    second = cell_of(harness, clock=later)
    second.start()
    step_until_proved(harness, second, harness.tick())
    harness.register("late", since=1, origin="JFK")
    while not harness.all(Refused):
        second.step()
        harness.read()
    assert harness.dead() == []


def test_a_live_registration_that_fails_when_it_comes_again_is_invalidated(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A registration comes again with its contributors. The app relies on it already, so a refusal alone would be ignored."""
    killed_after_activating(harness, "JFK")
    second = cell_of(harness)
    second.start()
    step_until_proved(harness, second, harness.tick())
    assert second.node.registrations == 1

    def fails(*_: Any, **__: Any) -> Any:
        raise ValueError("cannot be matched")

    monkeypatch.setattr(second.node, "register", fails)
    harness.register("JFK", origin="JFK")
    step_until_proved(harness, second, harness.tick())
    assert second.node.registrations == 0
    assert harness.dead() == ["JFK"]
