"""Conditions that follow the clock: which records change, and when."""

from __future__ import annotations

import copy
import pickle
from datetime import UTC, datetime, timedelta
from typing import Any

import bson
import pytest

from quaestor import Now
from quaestor.capture.commands import understand
from quaestor.errors import UnsupportedQueryError
from quaestor.model import Operation, Query, Uncacheable
from quaestor.planning.moments import DeclaredTime, Moment, date_of
from quaestor.planning.plan_cache import plan_of
from quaestor.planning.timed_conditions import TimedCondition

T = 1_800_000_000_000
HORIZON = T + 3_600_000
NOW = Moment().marked()
HOUR = timedelta(hours=1)


def first(condition: dict[str, Any], **record: Any) -> int | None:
    """The next change of a record after T, in ms after T."""
    instant = TimedCondition(condition).next_change(record, after_ms=T, until_ms=HORIZON)
    return None if instant is None else instant - T


@pytest.mark.parametrize(
    ("condition", "instant"),
    [
        ({"at": {"$gt": NOW}}, 5_000),
        ({"at": {"$gte": NOW}}, 5_001),
        ({"at": {"$lt": NOW}}, 5_001),
        ({"at": {"$lte": NOW}}, 5_000),
        ({"at": NOW}, 5_000),
        ({"at": {"$ne": NOW}}, 5_000),
        ({"at": {"$not": {"$gt": NOW}}}, 5_000),
        ({"at": {"$gt": Moment(1_000).marked()}}, 4_000),
        ({"at": {"$lt": NOW}, "kind": "b"}, None),
        ({"$or": [{"kind": "a"}, {"at": {"$lt": NOW}}]}, None),
        ({"$expr": {"$lt": ["$at", NOW]}}, 5_001),
        ({"$expr": {"$gt": [{"$subtract": [NOW, "$at"]}, 2_000]}}, 7_001),
        ({"$expr": {"$lte": [{"$add": ["$at", {"$multiply": [2, 1_000]}]}, NOW]}}, 7_000),
        ({"$expr": {"$gt": [{"$dateSubtract": {"startDate": "$at", "unit": "second", "amount": 1}}, NOW]}}, 4_000),
        ({"$expr": {"$lte": ["$at", {"$dateTrunc": {"date": NOW, "unit": "minute"}}]}}, 60_000),
    ],
)
def test_a_record_changes_at_the_millisecond_that_its_operator_says(
    condition: dict[str, Any], instant: int | None
) -> None:
    assert first(condition, at=date_of(T + 5_000), kind="a") == instant


def test_a_record_passes_the_filter_of_those_that_may_change_exactly_if_it_changes_in_time() -> None:
    condition = TimedCondition({"at": {"$gt": NOW}, "kind": "a"})
    assert condition.may_change(after_ms=T, until_ms=HORIZON) == {
        "$and": [{"kind": "a"}, {"at": {"$gte": date_of(T), "$lte": date_of(HORIZON)}}]
    }


@pytest.mark.parametrize(
    "condition",
    [
        {"at": {"$mod": [NOW, 2]}},
        {"$expr": {"$lt": [{"$year": NOW}, "$year"]}},
        {"$expr": {"$lt": [{"$subtract": [NOW, "$a"]}, "$b"]}},
        {"$text": {"$search": "x"}, "at": {"$lt": NOW}},
        {"a": {"b": NOW}},
        {"kind": "a"},
    ],
)
def test_conditions_without_an_exact_plan_are_refused(condition: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedQueryError):
        TimedCondition(condition)


def test_a_moment_is_reached_first_at_the_instant_that_it_names() -> None:
    for moment in (Moment(), Moment(-7), Moment(5, 1_000, 7), Moment(0, 60_000)):
        for value in range(-3_000, 3_000, 11):
            instant = moment.first_at(value)
            assert moment.at(instant) >= value > moment.at(instant - 1)


def test_now_is_an_ordinary_datetime_for_everybody_else() -> None:
    """Drivers encode it, arithmetic keeps the declaration, other operations drop it."""
    now = Now()
    assert abs(now - datetime.now(UTC)) < HOUR
    assert bson.decode(bson.encode({"": now}))[""] == now.plain().replace(tzinfo=None)
    later = now + HOUR
    assert isinstance(later, DeclaredTime)
    assert (later.moment, later - now) == (Moment(3_600_000), HOUR)
    assert type(now.replace(second=0)) is type(now.astimezone(UTC)) is type(pickle.loads(pickle.dumps(now))) is datetime
    assert copy.deepcopy(now) is now
    assert now.floor(HOUR) == now.replace(minute=0, second=0, microsecond=0)
    with pytest.raises(ValueError, match="divides a day"):
        now.floor(timedelta(hours=5))


@pytest.mark.parametrize(
    ("command", "planned"),
    [
        (lambda: {"find": "c", "filter": {"at": {"$gt": Now()}}}, True),
        (lambda: {"find": "c", "filter": {"$expr": {"$gt": ["$at", "$$NOW"]}}}, True),
        (lambda: {"count": "c", "query": {"at": {"$gt": Now() - HOUR}}}, True),
        (lambda: {"aggregate": "c", "pipeline": [{"$match": {"at": {"$gt": Now()}}}, {"$group": {"_id": 1}}]}, True),
        (lambda: {"aggregate": "c", "pipeline": [{"$project": {"at": Now()}}]}, False),
        (lambda: {"find": "c", "filter": {"at": {"$gt": Now()}}, "projection": {"now": "$$NOW"}}, False),
        (lambda: {"find": "c", "filter": {"at": {"$gt": Now()}, "$expr": {"$gt": ["$b", "$$NOW"]}}}, False),
        (lambda: {"find": "c", "filter": {"at": {"$gt": Now()}}, "collation": {"locale": "de"}}, False),
    ],
)  # fmt: skip
def test_a_command_has_a_clock_or_the_reason_clock(command: Any, planned: bool) -> None:
    understood = understand("find" if "find" in command() else next(iter(command())), command(), "db")
    assert understood.query is not None
    assert (understood.query.clock is not None) is planned
    assert (Uncacheable.CLOCK in {reason for reason, _ in understood.reasons}) is not planned
    assert not understood.clock_values


def test_a_query_that_follows_the_clock_shares_no_registration_with_one_that_does_not() -> None:
    """The registration of a constant has no watch, so a result that ends by the clock must not rely on it."""
    ids = {
        plan_of(
            Query(namespace="a.b", operation=Operation.FIND, filter={"at": {"$gt": date_of(at)}}, clock=clock)
        ).query_id
        for at in range(3)
        for clock in (None, {"at": {"$gt": NOW}}, {"at": {"$gt": Moment(5).marked()}})
    }
    assert len(ids) == 9
