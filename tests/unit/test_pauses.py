"""Pauses after failures grow to a bound, however long the failures go on."""

from __future__ import annotations

import pytest

from quaestor.errors import DatabaseError
from quaestor.invalidation.ingest.stream_failures import StreamFailures
from quaestor.tasks import pause_after


@pytest.mark.parametrize(("failures", "pause_s"), [(1, 0.1), (2, 0.2), (3, 0.4), (5, 1.6), (6, 2.0), (100_000, 2.0)])
def test_a_pause_doubles_up_to_the_longest(failures: int, pause_s: float) -> None:
    """The first pause is the shortest, and an outage of days ends in the longest pause, without an overflow."""
    assert pause_after(failures, first_s=0.1, longest_s=2.0) == pytest.approx(pause_s)


def test_a_follower_outlives_thousands_of_failures() -> None:
    """The pause after the 5,000th failed opening is the longest, and the first one after an open stream is short."""
    failures = StreamFailures()
    pauses = [failures.pause_s() for _ in range(5_000)]
    assert pauses[0] < pauses[-1] == max(pauses)
    failures.opened()
    assert failures.pause_s() == pauses[0]


def test_a_position_is_given_up_after_repeated_refusals() -> None:
    """Four refusals keep the position, the fifth gives it up; an open stream begins the count anew."""
    failures, refusal = StreamFailures(), DatabaseError("another set")
    assert [failures.position_lost(refusal) for _ in range(4)] == [False] * 4
    failures.opened()
    assert [failures.position_lost(refusal) for _ in range(5)] == [False] * 4 + [True]
