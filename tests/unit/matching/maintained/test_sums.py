"""Sums from which everything can be taken away again."""

from __future__ import annotations

import math
from typing import Any

import bson
from bson import Decimal128, Int64
from hypothesis import example, given
from hypothesis import strategies as st

from quaestor.incremental.sums import Total
from quaestor.query.expressions import compile_expression

DECIMALS = st.decimals(-1000, 1000, places=3).map(Decimal128)
NUMBERS = st.one_of(
    st.integers(-(2**31), 2**31 - 1),
    st.integers(-(2**61), 2**61).map(Int64),
    st.floats(-1e15, 1e15),
    st.sampled_from([math.nan, math.inf, -math.inf, Decimal128("NaN"), Decimal128("Infinity"), Decimal128("1E+10")]),
    DECIMALS,
    st.sampled_from([None, "text", True]),
)
SUM = compile_expression({"$sum": "$values"})
AVERAGE = compile_expression({"$avg": "$values"})


def total(values: list[Any]) -> Total:
    results = Total()
    for value in values:
        results.add(value)
    return results


def same(a: Any, b: Any) -> bool:
    return bson.encode({"": a}) == bson.encode({"": b})


@given(st.lists(NUMBERS), st.lists(NUMBERS))
def test_a_number_added_and_removed_leaves_no_trace(stay: list[Any], go: list[Any]) -> None:
    changed = total([*go, *stay])
    for value in go:
        changed.add(value, -1)
    assert same(changed.sum(), total(stay).sum())
    assert same(changed.average(), total(stay).average())


@example([Int64(-9007199254740993), Int64(15708288834338816)])
@example([1, Int64(9007199254740993)])
@given(st.lists(st.one_of(st.integers(-(2**31), 2**31 - 1), st.integers(-(2**61), 2**61).map(Int64), DECIMALS)))
def test_the_sum_is_that_of_the_expression(values: list[Any]) -> None:
    """Which is compared with the real mongod elsewhere."""
    document = {"values": values}
    assert same(total(values).sum(), SUM(document))
    ours, theirs = total(values).average(), AVERAGE(document)
    largest = max((abs(int(value)) for value in values if isinstance(value, int)), default=0)
    if isinstance(theirs, float) and largest > 2**53:  # theirs is what its order of adding has left
        assert abs(ours - theirs) <= 2 * math.ulp(float(largest))
    else:
        assert same(ours, theirs)


@given(st.lists(st.floats(-1e300, 1e300), min_size=1))
def test_doubles_are_rounded_once(values: list[float]) -> None:
    assert total(values).sum() == math.fsum(values)


def test_integers_that_overflow_become_doubles() -> None:
    assert same(total([2**31 - 1, 1]).sum(), Int64(2**31))
    assert same(total([Int64(2**63 - 1), 1]).sum(), 2.0**63)


def test_infinities_of_both_signs_are_not_a_number() -> None:
    assert math.isnan(total([math.inf, -math.inf]).sum())
    assert total([math.inf, 1]).sum() == math.inf
