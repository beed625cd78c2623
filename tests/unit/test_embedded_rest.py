"""Ingest of an embedded grid rests only when nothing has been registered for a while."""

from __future__ import annotations

from quaestor.invalidation.grid.embedded import _IDLE_AFTER_S, _Rest


def test_ingest_rests_after_a_while_without_registrations_and_not_before() -> None:
    """An app that has just started does not rest: its first requests, and tests, wait for reports of ingest."""
    now_s = [100.0]
    rest = _Rest(3, lambda: now_s[0])
    assert rest.slack(guards=False) == 1
    now_s[0] += _IDLE_AFTER_S - 1
    assert rest.slack(guards=True) == 1
    now_s[0] += _IDLE_AFTER_S - 1
    assert rest.slack(guards=False) == 1
    now_s[0] += 1
    assert rest.slack(guards=False) == 3
    assert rest.slack(guards=True) == 1
    assert rest.slack(guards=False) == 1
