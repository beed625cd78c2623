"""Missing reads: the reads of an earlier run that the present one lacks."""

from __future__ import annotations

import pytest

from quaestor.model import Operation, Query
from quaestor.ports import Registered
from quaestor.read_path.missing_reads import MOST_KEYS, MOST_QUERIES, MissingReads

RATES, RECORDS, OTHERS = "shop.rates", "shop.records", "shop.others"


def of(**registrations: str) -> Registered:
    """Registrations by query; a query's name begins with its collection's."""
    queries = tuple(
        Query(namespace=f"shop.{name.partition('_')[0]}", operation=Operation.FIND, filter={}) for name in registrations
    )
    return Registered(
        ids=("own", *registrations.values()), query_ids=tuple(registrations), tags=(), write_rate_hz=0.0, widened=(),
        queries=queries,
    )  # fmt: skip


@pytest.fixture
def reads() -> MissingReads:
    return MissingReads(hold_ms=1_000, dead=lambda _: False)


def test_a_read_is_missing_once_it_has_changed_and_nothing_else_has(reads: MissingReads) -> None:
    reads.note("k", of(rates="1", records="2"))
    again = of(records="3")
    assert reads.missing("k", again, 0) == ()
    reads.changed(["1", "unknown"])
    assert reads.missing("k", again, 0) == (RATES,)
    assert reads.missing("other", again, 0) == ()
    assert reads.missing("k", of(rates="4", records="3"), 0) == ()


@pytest.mark.parametrize(
    ("again", "changed"),
    [
        (of(records="3"), ["1", "2"]),
        (of(records_2="3"), ["1"]),
        (of(rates_2="3", records="3"), ["1"]),
    ],
    ids=["what both read has changed", "another query there", "another query of the same collection"],
)
def test_inputs_that_may_lead_elsewhere_explain_a_missing_read(
    again: Registered, changed: list[str], reads: MissingReads
) -> None:
    reads.note("k", of(rates="1", records="2"))
    reads.changed(changed)
    assert reads.missing("k", again, 0) == ()


def test_a_death_counts_before_it_is_reported() -> None:
    reads = MissingReads(hold_ms=1_000, dead=lambda value: value == "1")
    reads.note("k", of(rates="1", records="2"))
    assert reads.missing("k", of(records="3"), 0) == (RATES,)


def test_it_is_held_against_a_key_for_a_while_only(reads: MissingReads) -> None:
    reads.note("k", of(rates="1", records="2"))
    reads.changed(["1"])
    again = of(records="3")
    assert [reads.missing("k", again, now_ms) for now_ms in (5, 1_004, 1_005, 1_006)] == [(RATES,), (RATES,), (), ()]
    assert len(reads) == 0


def test_an_answer_stored_again_begins_anew(reads: MissingReads) -> None:
    reads.note("k", of(rates="1", records="2"))
    reads.changed(["1"])
    reads.note("k", of(rates="3", records="4"))
    assert reads.missing("k", of(records="5"), 0) == ()
    reads.note("k", of(records="5"))
    assert len(reads) == 0


def test_doubt_of_a_key_needs_no_change(reads: MissingReads) -> None:
    reads.note("k", of(rates="1", records="2"))
    reads.doubt("k", until_ms=50)
    reads.changed(["2"])
    assert reads.missing("k", of(records="3"), 0) == (RATES,)
    assert reads.missing("k", of(records="3"), 50) == ()
    reads.doubt("unknown", until_ms=50)


def test_nothing_is_kept_of_what_was_forgotten(reads: MissingReads) -> None:
    """Keys share registrations, and changes are remembered for as long as any of them relies on one."""
    reads.note("a", of(rates="1", records="2"))
    reads.note("b", of(rates="1", records="3"))
    reads.changed(["1"])
    reads.forget("a")
    assert reads.missing("b", of(records="4"), 0) == (RATES,)
    reads.forget("b")
    assert not reads._relied_on
    assert not reads._changed


def test_so_many_keys_are_remembered_at_most(reads: MissingReads) -> None:
    for number in range(MOST_KEYS + 10):
        reads.note(str(number), of(rates=f"a{number}", records=f"b{number}"))
    assert len(reads) == MOST_KEYS
    reads.note("many", of(**{f"rates_{n}": f"c{n}" for n in range(MOST_QUERIES)}, records="2"))
    reads.note("one collection", of(records="1", records_2="2"))
    assert len(reads) == MOST_KEYS
