"""Propagation limit: the limited stream against the unlimited one, on random writes."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from quaestor.incremental import ResultEvent, replay
from quaestor.model import MatchType, Query
from quaestor.realtime.propagation_limit import PropagationLimit
from tests.unit.matching.maintained.scene import Scene, find

INTERVAL_MS = 100
QUERIES = [find(filter={"a": {"$lt": 4}}), find(sort=(("a", 1),)), find(sort=(("a", -1),), skip=1, limit=3)]
WRITES = st.lists(
    st.tuples(
        st.integers(0, 5),
        st.none() | st.tuples(st.integers(0, 5), st.integers(0, 1_000)),
        st.integers(0, 60),
    ),
    max_size=60,
)


@settings(max_examples=300, deadline=None)
@given(query=st.sampled_from(QUERIES), writes=WRITES)
def test_the_limited_stream_shows_the_same_rows_with_the_last_state_of_each(
    query: Query, writes: list[tuple[int, tuple[int, int] | None, int]]
) -> None:
    """Rows and order are always equal; a record changes in place at most once an interval; in the end the states are equal."""
    scene, limit = Scene(query, slack=100, most_slack=100), PropagationLimit(INTERVAL_MS)
    whole: list[tuple[Any, Any]] = []
    limited: list[tuple[Any, Any]] = []
    changed_ms: dict[Any, int] = {}
    now_ms = 0

    def take(events: list[ResultEvent]) -> None:
        nonlocal limited
        for event in events:
            if event.match_type is MatchType.CHANGE:
                assert now_ms - changed_ms.get(event.key, -INTERVAL_MS) >= INTERVAL_MS
                changed_ms[event.key] = now_ms
        limited = replay(limited, events)

    for key, body, pause_ms in writes:
        now_ms += pause_ms
        events = scene.delete(key) if body is None else scene.put(key, a=body[0], n=body[1])
        whole = replay(whole, events)
        take(limit.offer(events, now_ms=now_ms))
        assert [row for row, _ in limited] == [row for row, _ in whole]
    while limit.due_ms is not None:
        now_ms = max(now_ms, limit.due_ms)
        take(limit.due(now_ms=now_ms))
    assert limited == whole


def test_a_removal_is_sent_at_once_and_drops_the_change_that_waits() -> None:
    scene, limit = Scene(find()), PropagationLimit(INTERVAL_MS)
    assert [event.match_type for event in limit.offer(scene.put(1, n=1), now_ms=0)] == [MatchType.ADD]
    assert limit.offer(scene.put(1, n=2), now_ms=10) == []
    assert limit.due_ms == INTERVAL_MS
    assert [event.match_type for event in limit.offer(scene.delete(1), now_ms=20)] == [MatchType.REMOVE]
    assert limit.due_ms is None


def test_the_newest_of_several_waiting_changes_is_sent() -> None:
    scene, limit = Scene(find()), PropagationLimit(INTERVAL_MS)
    limit.offer(scene.put(1, n=1), now_ms=0)
    for number in range(2, 6):
        assert limit.offer(scene.put(1, n=number), now_ms=number) == []
    assert limit.due(now_ms=INTERVAL_MS - 1) == []
    assert [event.document for event in limit.due(now_ms=INTERVAL_MS)] == [{"_id": 1, "n": 5}]
