"""Schedule of journal flushes: ingest flushes only for a waiting write, and rarely where a flush does not help."""

from __future__ import annotations

import pytest

from quaestor.errors import ConfigurationError
from quaestor.invalidation.ingest.journal_flushing import FlushSchedule
from quaestor.settings import Settings

INTERVAL_S = 0.002


def test_a_write_that_still_waits_at_the_second_look_is_flushed_for() -> None:
    """Writers that wait for the majority themselves are behind at one look only."""
    schedule = FlushSchedule(INTERVAL_S)
    assert not schedule.due(10, 9, now_s=1.0)
    assert schedule.pause_s(1.0) < INTERVAL_S
    assert not schedule.due(11, 10, now_s=1.001)  # another write; the one before has arrived
    assert schedule.due(12, 10, now_s=1.002)


def test_nothing_is_flushed_while_nothing_waits() -> None:
    """While nothing waits, the primary is asked rarely; after a flush that helped often,
    and after a while rarely again.
    """
    schedule = FlushSchedule(INTERVAL_S)
    for _ in range(100):
        assert not schedule.due(9, 9, now_s=1.0)
    assert schedule.pause_s(1.0) == 0.05
    schedule.due(10, 9, now_s=1.0)
    assert schedule.due(10, 9, now_s=1.0)
    schedule.flushed(10)
    assert not schedule.due(10, 10, now_s=1.0)
    assert (schedule.effective, schedule.vain) == (1, 0)
    assert schedule.pause_s(1.0) == INTERVAL_S
    assert schedule.pause_s(20.0) == 0.05


def test_flushes_that_do_not_help_become_rare() -> None:
    """A member that is behind, and not the journal: looked at all the while, at most one flush in ten seconds in the end."""
    schedule = FlushSchedule(INTERVAL_S)
    flushes: list[float] = []
    now_s = 0.0
    for _ in range(20_000):
        if schedule.due(10, 9, now_s=now_s):
            schedule.flushed(10)
            flushes.append(now_s)
        now_s += schedule.pause_s(now_s)
    assert now_s > 900
    assert len(flushes) < 120
    assert flushes[-1] - flushes[-2] == pytest.approx(10, abs=0.1)
    assert schedule.vain == len(flushes)


def test_a_flush_that_helps_ends_the_restraint() -> None:
    schedule = FlushSchedule(INTERVAL_S)
    for _ in range(8):
        schedule.due(10, 9, now_s=0.0)
        schedule.flushed(10)
    schedule.due(10, 10, now_s=0.0)
    assert schedule.effective == 1
    schedule.due(12, 10, now_s=60.0)
    assert schedule.due(12, 10, now_s=60.0)


@pytest.mark.parametrize("value", [-1, 101])
def test_an_interval_that_cannot_be_is_refused_by_name(value: int) -> None:
    with pytest.raises(ConfigurationError, match=f"journal_flush_ms={value} is .*: it must be .* from 0 to 100"):
        Settings(journal_flush_ms=value)
