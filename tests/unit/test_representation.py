"""The cost rule for lists: whole where nothing changes or much is read, as ids where members change and stay where they are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from quaestor.policy import Representation
from quaestor.rest.representations import EVIDENCE, HOLD_MS, MAX_QUERIES, Representations
from quaestor.ttl.representation import Costs, Load, choose, ids_cost, maintained_cost, objects_cost

OBJECTS, IDS = Representation.OBJECTS, Representation.IDS
rates = st.floats(0, 1e4, allow_nan=False)
loads = st.builds(Load, length=st.floats(0, 1e4), reads_hz=rates, changes_hz=rates, moves_hz=rates)


@given(loads)
def test_without_changes_of_members_a_list_is_kept_whole(load: Load) -> None:
    still = Load(length=load.length, reads_hz=load.reads_hz, changes_hz=0, moves_hz=load.moves_hz)
    assert choose(still, OBJECTS) is OBJECTS


@given(loads)
def test_a_choice_stands_against_its_own_reason(load: Load) -> None:
    """A choice made under a load is not changed under the same load."""
    for present in (OBJECTS, IDS):
        chosen = choose(load, present)
        assert choose(load, chosen) is chosen


@given(loads)
def test_costs_are_never_negative_and_grow_with_the_writes(load: Load) -> None:
    more = Load(length=load.length, reads_hz=load.reads_hz, changes_hz=load.changes_hz + 1, moves_hz=load.moves_hz + 1)
    for cost in (objects_cost, ids_cost):
        assert 0 <= cost(load, Costs()) <= cost(more, Costs()) + 1e-6


def test_a_long_list_whose_members_change_as_often_as_it_is_read_is_kept_as_ids() -> None:
    assert choose(Load(length=100, reads_hz=2, changes_hz=2, moves_hz=0), OBJECTS) is IDS
    assert choose(Load(length=100, reads_hz=2, changes_hz=0.1, moves_hz=2), OBJECTS) is OBJECTS
    assert choose(Load(length=100, reads_hz=50, changes_hz=1, moves_hz=0), IDS) is OBJECTS


def observe(seen: Representations, n: int, *, ids: bytes = b"x", now_ms: int) -> None:
    seen.choose("q", now_ms=now_ms)
    seen.observe("q", ids=ids, length=100, etag=str(n), now_ms=now_ms)


def test_evidence_comes_before_a_choice_and_a_choice_stands_for_a_while() -> None:
    seen = Representations()
    for n in range(EVIDENCE):
        observe(seen, n, now_ms=n * 1_000)
        assert seen.choose("q", now_ms=n * 1_000) is OBJECTS
    observe(seen, 99, now_ms=HOLD_MS)
    assert seen.choose("q", now_ms=HOLD_MS) is IDS
    for _ in range(10_000):
        assert seen.choose("q", now_ms=2 * HOLD_MS - 1) is IDS
    assert seen.choose("q", now_ms=2 * HOLD_MS) is OBJECTS, "it is read much more often than it changes"
    assert seen.choose("other", now_ms=HOLD_MS) is OBJECTS


def test_records_that_come_and_go_are_no_reason_for_ids() -> None:
    seen = Representations()
    for n in range(40):
        observe(seen, n, ids=str(n).encode(), now_ms=n * 1_000)
        assert seen.choose("q", now_ms=n * 1_000) is OBJECTS


def test_memory_is_bounded() -> None:
    seen = Representations()
    for n in range(MAX_QUERIES + 10):
        seen.choose(str(n), now_ms=n)
    assert len(seen._seen) == MAX_QUERIES


MAINTAINED = Representation.MAINTAINED


@given(loads)
def test_a_choice_among_three_stands_against_its_own_reason(load: Load) -> None:
    """A choice made under a load is not changed under the same load, maintained lists among them."""
    for present in Representation.OBJECTS, Representation.IDS, MAINTAINED:
        chosen = choose(load, present, maintainable=True)
        assert choose(load, chosen, maintainable=True) is chosen


@given(loads)
def test_maintenance_costs_more_with_every_write(load: Load) -> None:
    """The cost grows also beyond the reads: nothing bounds it."""
    more = Load(length=load.length, reads_hz=load.reads_hz, changes_hz=load.changes_hz + 1, moves_hz=load.moves_hz)
    assert maintained_cost(load, Costs()) < maintained_cost(more, Costs())


def test_a_hot_list_whose_records_move_is_maintained() -> None:
    """Maintenance ends when the list is no longer read, or must not be maintained."""
    hot = Load(length=100, reads_hz=100, changes_hz=5, moves_hz=5)
    assert choose(hot, OBJECTS, maintainable=True) is MAINTAINED
    assert choose(hot, OBJECTS) is OBJECTS
    assert choose(hot, MAINTAINED) is OBJECTS
    assert choose(Load(length=100, reads_hz=0.1, changes_hz=50, moves_hz=50), MAINTAINED, maintainable=True) is OBJECTS
    assert choose(Load(length=100, reads_hz=100, changes_hz=0, moves_hz=0), OBJECTS, maintainable=True) is OBJECTS


def test_members_that_others_have_read_again_make_ids_cheaper() -> None:
    alone = Load(length=100, reads_hz=2, changes_hz=2, moves_hz=0)
    shared = Load(length=100, reads_hz=2, changes_hz=2, moves_hz=0, member_hits=1.0)
    assert ids_cost(shared, Costs()) < ids_cost(alone, Costs())


def test_writes_seen_while_a_list_was_maintained_are_remembered() -> None:
    """A list that is written more often than it is read is not taken up again for the one change that a miss shows."""
    seen = Representations()

    def asked(second: int, changes: int) -> Representation:
        now_ms = second * 1_000
        chosen = seen.choose("q", now_ms=now_ms, maintainable=True)
        seen.read("q", now_ms=now_ms, times=99 if second < 60 else 0)
        seen.observe("q", ids=b"%d" % second, length=100, etag=str(second), now_ms=now_ms, changes=changes)
        return chosen

    assert [asked(second, 1) for second in range(60)][-1] is MAINTAINED
    later = [asked(second, 500) for second in range(60, 400, 10)]
    assert later[-1] is OBJECTS
    again = [asked(second, 1) for second in range(400, 860, 10)]
    assert set(again) == {OBJECTS}


def test_a_choice_is_explained_by_measurements_and_costs() -> None:
    """By what was measured, and what each representation would cost."""
    seen = Representations()
    observe(seen, 1, now_ms=0)
    why = seen.explained("q", now_ms=1_000)
    assert why["kept"] == "objects"
    assert {"reads_hz", "changes_hz", "moves_hz", "objects_us", "ids_us", "maintained_us"} <= set(why)
