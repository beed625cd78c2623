"""Pipelines from strangers: the endpoint refuses any text clearly, or the rules stand wherever records are read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from quaestor.live.websocket.limits import SocketLimits
from quaestor.live.websocket.pipelines import permitted_pipeline
from quaestor.live.websocket.problems import ProtocolError
from quaestor.rest.access import Access, Principal
from quaestor.rest.rights import Rights

LIMITS = SocketLimits(pipeline_stages=20)
RIGHTS = Rights(Access.public_read(), Principal(user="ann"))
RULES = RIGHTS.guarded({}, "read")
LEAVES = st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(["others", "$a", "a"])
NAMES = st.sampled_from(
    [
        "$match",
        "$lookup",
        "$unionWith",
        "$graphLookup",
        "$facet",
        "$geoNear",
        "$limit",
        "from",
        "coll",
        "pipeline",
        "as",
        "x",
    ]
)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=12
)
STAGES: st.SearchStrategy[Any] = st.deferred(
    lambda: st.one_of(
        st.just({"$match": {"a": 1}}),
        st.just({"$limit": 3}),
        st.just({"$unionWith": "others"}),
        st.just({"$graphLookup": {"from": "others", "startWith": "$a"}}),
        st.just({"$lookup": {"from": "others", "localField": "a", "foreignField": "a"}}),
        st.builds(lambda inner: {"$lookup": {"from": "others", "pipeline": inner}}, st.lists(STAGES, max_size=2)),
        st.builds(lambda inner: {"$unionWith": {"coll": "others", "pipeline": inner}}, st.lists(STAGES, max_size=2)),
        st.builds(lambda inner: {"$facet": {"x": inner}}, st.lists(STAGES, max_size=2)),
    )
)


def permitted(source: Any) -> tuple[Mapping[str, Any], ...]:
    return permitted_pipeline(json.dumps(source), database="shop", rights=RIGHTS, limits=LIMITS)


def unguarded(stages: Any) -> Iterator[Any]:
    """Places of a pipeline that read records without the rules."""
    for stage in stages:
        ((name, argument),) = stage.items()
        if name == "$facet":
            for branch in argument.values():
                yield from unguarded(branch)
        elif name == "$graphLookup":
            if RULES not in argument["restrictSearchWithMatch"]["$and"]:
                yield stage
        elif name in ("$lookup", "$unionWith"):
            yield from unread(argument["pipeline"])


def unread(stages: Any) -> Iterator[Any]:
    """The same, of a pipeline that begins with the records of a collection."""
    first = stages[0]["$match"]
    if first != RULES and RULES not in first["$and"]:
        yield stages
    yield from unguarded(stages)


@given(VALUES | st.lists(st.dictionaries(NAMES, VALUES, min_size=1, max_size=1), max_size=4))
@example([{"$lookup": {"from": "others", "pipeline": None, "as": "x"}}])
@example([{"$unionWith": None}])
@example([{"$facet": {"x": [{"$lookup": []}]}}])
@example([{"$match": 5}])
@example([{"$geoNear": 5}])
def test_any_text_is_taken_or_refused_with_a_reason(source: Any) -> None:
    """No text raises anything but the error of the protocol."""
    with suppress(ProtocolError):
        permitted(source)


@given(st.lists(STAGES, max_size=4))
def test_the_rules_stand_wherever_records_are_read(source: list[Any]) -> None:
    """Hidden records cannot enter through a nested pipeline, a union, a join or a search through a graph."""
    try:
        stages = permitted(source)
    except ProtocolError as refused:
        reason = refused.message
    else:
        assert list(unread(stages)) == []
        return
    assert any(limit in reason for limit in ("stages", "deep", "nest")), reason
