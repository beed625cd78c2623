"""What keeps a node small and its measurements right: rates, leases, compiled predicates, the collector, buckets."""

from __future__ import annotations

import gc

import bson
import pytest

from quaestor.invalidation.matching.bucket import Bucket, added, removed, size, things
from quaestor.invalidation.matching.collector import Shield
from quaestor.invalidation.matching.leases import Leases
from quaestor.invalidation.matching.predicates import Predicates
from quaestor.invalidation.matching.rates import RecordRates
from quaestor.invalidation.matching.registered import Filter
from quaestor.invalidation.matching.rules import SharedRules
from quaestor.invalidation.query.plan import plan_query
from tests.unit.matching.scene import find

MINUTE_MS = 60_000


# -- write rates


def test_a_steady_rate_is_found_at_any_age() -> None:
    rates = RecordRates(period_ms=MINUTE_MS)
    for second in range(600):
        rates.observe(1, now_ms=second * 1_000)
        if second >= 10:
            assert rates.rate_hz([1], now_ms=second * 1_000) == pytest.approx(1.0, rel=0.11)


def test_one_write_after_the_start_is_not_a_thousand_a_second() -> None:
    rates = RecordRates()
    rates.observe(1, now_ms=5)
    assert rates.rate_hz([1], now_ms=6) <= 1.0


def test_a_record_that_is_no_longer_written_comes_to_rest() -> None:
    rates = RecordRates(period_ms=MINUTE_MS)
    for second in range(120):
        rates.observe(1, now_ms=second * 1_000)
    assert rates.rate_hz([1], now_ms=150_000) == pytest.approx(0.5, rel=0.1)
    assert rates.rate_hz([1], now_ms=4 * MINUTE_MS) == 0.0


def test_rates_of_several_records_add_up_and_unknown_ones_count_nothing() -> None:
    rates = RecordRates()
    for second in range(30):
        rates.observe(1, now_ms=second * 1_000)
        rates.observe(2, now_ms=second * 1_000)
    assert rates.rate_hz([1, 2, 3], now_ms=29_000) == pytest.approx(2.0, rel=0.1)


def test_only_the_records_written_last_are_remembered() -> None:
    rates = RecordRates(max_records=2)
    for record in (1, 2, 1, 3):
        rates.observe(record, now_ms=0)
    assert rates.rate_hz([2], now_ms=1_000) == 0.0
    assert rates.rate_hz([1], now_ms=1_000) == 2.0


# -- leases


def test_leases_end_within_a_second_after_their_time() -> None:
    leases = Leases()
    leases.add("a", 10_500)
    leases.add("b", 12_000)
    assert leases.over(10_500) == []
    assert leases.over(11_000) == ["a"]
    assert leases.over(13_000) == ["b"]
    assert leases.over(99_000) == []


# -- compiled predicates


def filters(number: int) -> list[Filter]:
    return [Filter(b"%d" % n, bson.encode({"a": n})) for n in range(number)]


def test_only_so_many_predicates_are_kept_compiled_and_all_answer() -> None:
    predicates = Predicates(most=10)
    made = filters(50)
    for _ in range(3):
        for number, item in enumerate(made):
            assert predicates.holds(item, {"a": number})
            assert not predicates.holds(item, {"a": -1})
    assert sum(item.matches is not None for item in made) <= 10


# -- the collector


def test_registrations_are_moved_out_of_the_collectors_sight() -> None:
    try:
        shield = Shield(every=100)
        before = gc.get_freeze_count()
        assert before > 0
        registrations = [[number] for number in range(500)]
        for _ in range(99):
            shield.grew()
        assert gc.get_freeze_count() == before
        shield.grew()
        assert gc.get_freeze_count() >= before + len(registrations)
    finally:
        gc.unfreeze()


def test_by_default_the_collector_is_left_alone() -> None:
    shield = Shield(every=0)
    before = gc.get_freeze_count()
    for _ in range(1_000):
        shield.grew()
    assert gc.get_freeze_count() == before


# -- sharing


def test_queries_of_one_shape_share_their_rules() -> None:
    shared = SharedRules()
    one, other = shared.of(plan_query(find({"a": 1}, limit=3))), shared.of(plan_query(find({"a": 2}, limit=7)))
    assert one is other
    assert shared.of(plan_query(find({"a": 1}, sort=(("a", 1),)))) is not one


def test_a_slot_holds_none_one_or_many() -> None:
    slot = None
    assert (size(slot), list(things(slot))) == (0, [])
    slot = added(slot, "a")
    assert (slot, size(slot)) == ("a", 1)
    slot = added(added(slot, "b"), "b")
    assert isinstance(slot, Bucket)
    assert list(things(slot)) == ["a", "b"]
    assert removed(slot, "a") == "b"
    assert removed("b", "b") is None
    assert removed("b", "z") == "b"
