"""Results that end by the clock, when their cell is killed: the next instant survives, or the result is invalidated."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from quaestor.clock import ClockWatch, system_clock
from quaestor.event_layer import streams
from quaestor.event_layer.codec import encode_query_event
from quaestor.event_layer.loop_context import LoopContext
from quaestor.invalidation.grid.cell_loop import CellLoop
from quaestor.invalidation.matching.node import MatchingNode
from quaestor.model import Activated, Invalidated, MatchType, Operation, Query, Registration
from quaestor.planning.moments import Moment, date_of
from tests.recovery.cell_harness import CELL, RETENTION_MS, SHAPE, Harness
from tests.recovery.test_cell_succeeds_killed_cell import dead_when_proved, step_until_proved

PUBLISHED_MS = 20_000
"""Time from the read until the first scheduled record matches."""


@dataclass
class MovedClock:
    """True time, moved ahead."""

    ahead_ms: int = 0

    def __call__(self) -> int:
        return system_clock() + self.ahead_ms


def cell_of(harness: Harness, clock: MovedClock) -> CellLoop:
    """A cell that runs as far as the test steps it, and saves a checkpoint at each tick."""
    node = MatchingNode(CELL, SHAPE, retention_ms=RETENTION_MS)
    context = LoopContext(deployment=harness.deployment, heartbeat_ms=600_000, retention_ms=RETENTION_MS, clock=clock)
    return CellLoop(node, harness.layer, CELL, SHAPE, context)


def registered(harness: Harness, since: int, from_ms: int) -> None:
    """A result of the articles that are published, without any article at first."""
    registration = Registration(
        id="articles", tenant=harness.deployment, query_id="q-articles",
        query=Query(
            namespace="db.c", operation=Operation.FIND, filter={"at": {"$lte": date_of(from_ms)}},
            clock={"at": {"$lte": Moment().marked()}},
        ),
        since=since, read_at=since, members=(), last=None, expires_at_ms=from_ms + 600_000,
        watch=ClockWatch(from_ms, 0, since),
    )  # fmt: skip
    harness.layer.append(streams.queries(harness.deployment, 0), [encode_query_event(registration)])


def killed_after_a_scheduled_article(harness: Harness, clock: MovedClock) -> int:
    """A cell activates the result, takes in an article that will be published, saves its checkpoint, and is killed.

    Returns the instant of publication.
    """
    first = cell_of(harness, clock)
    harness.write("other", at=None)
    harness.tick()
    first.start()
    first.step()
    from_ms = clock()
    registered(harness, harness.version, from_ms)
    while not harness.all(Activated):
        first.step()
        harness.read()
    harness.write("article", at=date_of(from_ms + PUBLISHED_MS))
    step_until_proved(harness, first, harness.tick())
    assert harness.dead() == []
    return from_ms + PUBLISHED_MS


def reasons(harness: Harness) -> set[MatchType]:
    return {notification.match_type for notification in harness.all(Invalidated)}


def test_the_next_instant_survives_the_cell(harness: Harness) -> None:
    """The checkpoint is newer than the article. The next cell knows the article from the retained writes."""
    clock = MovedClock()
    killed_after_a_scheduled_article(harness, clock)
    second = cell_of(harness, clock)
    second.start()
    step_until_proved(harness, second, harness.tick())
    assert harness.dead() == []
    assert second.node.registrations == 1
    clock.ahead_ms += PUBLISHED_MS
    moment = harness.tick()
    step_until_proved(harness, second, moment)
    assert "articles" in dead_when_proved(harness, moment)
    assert reasons(harness) == {MatchType.DUE}


@pytest.mark.parametrize("away_ms", [PUBLISHED_MS, 2 * RETENTION_MS])
def test_nothing_is_proved_before_an_instant_that_passed_without_a_cell_is_reported(
    harness: Harness, away_ms: int
) -> None:
    """Also if the article is no longer retained: the result is then invalidated without it."""
    clock = MovedClock()
    killed_after_a_scheduled_article(harness, clock)
    clock.ahead_ms += away_ms
    second = cell_of(harness, clock)
    second.start()
    moment = harness.tick()
    step_until_proved(harness, second, moment)
    assert "articles" in dead_when_proved(harness, moment)
    assert second.node.registrations == 0
