"""Events suffice: the old result with the events applied is the new result."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quaestor.incremental import RenewalSettings, ResultEvent, maintain, replay
from quaestor.incremental.events import Shown, differences
from quaestor.model import AfterImage, MatchType, WriteKind
from tests.unit.matching.maintained.scene import NAMESPACE, find

RESULTS = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 2)), unique_by=lambda pair: pair[0])


def shown(rows: list[tuple[int, int]]) -> list[Shown]:
    return [Shown(key, key, {"_id": key, "n": number}) for key, number in rows]


def pairs(rows: list[Shown]) -> list[tuple[int, object]]:
    return [(row.id, row.document) for row in rows]


@given(RESULTS, RESULTS)
def test_differences_lead_from_any_result_to_any_other(old: list[tuple[int, int]], new: list[tuple[int, int]]) -> None:
    before, after = shown(old), shown(new)
    assert replay(pairs(before), differences(before, after, ordered=True)) == pairs(after)
    by_key = dict(replay(pairs(before), differences(before, after, ordered=False)))
    assert by_key == dict(pairs(after))


def test_differences_of_two_results_are_few() -> None:
    """One record that moves to the other end is one event."""
    rows = [(key, 0) for key in range(9)]
    events = differences(shown(rows), shown([*rows[1:], rows[0]]), ordered=True)
    assert [(event.match_type, event.key, event.index) for event in events] == [(MatchType.CHANGE_INDEX, 0, 8)]
    assert differences(shown(rows), shown(rows), ordered=True) == []


def test_events_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="not there"):
        replay([], [ResultEvent(match_type=MatchType.REMOVE, key=1, document=None)])
    with pytest.raises(ValueError, match="is at 0, not at 3"):
        replay([(1, None)], [ResultEvent(match_type=MatchType.REMOVE, key=1, document=None, previous_index=3)])


WRITES = st.lists(st.tuples(st.integers(0, 9), st.one_of(st.none(), st.integers(0, 5))), max_size=40)


@given(WRITES, st.integers(0, 3), st.integers(0, 3), st.integers(0, 3), st.booleans())
def test_any_window_follows_any_writes(
    writes: list[tuple[int, int | None]], skip: int, limit: int, slack: int, renewing: bool
) -> None:
    """Against sorting everything again after each write. Without renewals the result is right whenever none is asked for."""
    query = find(sort=(("n", 1),), skip=skip, limit=limit)
    initial = [{"_id": key, "n": key % 3} for key in range(10, 18)]
    state = {record["_id"]: record for record in initial}
    in_order = sorted(initial, key=lambda record: (record["n"], record["_id"]))
    settings = RenewalSettings(slack=slack)
    maintained = maintain(
        query, initial=in_order[: skip + limit + slack] if limit else in_order, version=1, settings=settings
    )
    client = replay([], maintained.initial_events())
    for version, (key, number) in enumerate(writes, start=2):
        key += 10
        after = None if number is None else {"_id": key, "n": number}
        kind = WriteKind.DELETE if after is None else WriteKind.UPDATE
        state.pop(key, None)
        if after is not None:
            state[key] = after
        image = AfterImage(namespace=NAMESPACE, kind=kind, version=version, key=key, after=after, wall_ms=version)
        client = replay(client, maintained.apply(image))
        in_order = sorted(state.values(), key=lambda record: (record["n"], record["_id"]))
        if maintained.renewal is not None and renewing:
            client = replay(client, maintained.renew(in_order[: maintained.renewal.query.limit], version))
        assert [document for _, document in client] == maintained.result()
        if maintained.renewal is None:
            assert maintained.result() == in_order[skip : skip + limit if limit else None]
