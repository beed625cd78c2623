"""Queries about places and texts, from the plan to the first change."""

from __future__ import annotations

from typing import Any

from quaestor.planning.plan import plan_query
from quaestor.planning.plan_parts import Window
from tests.unit.matching.scene import Scene, find

AREA = {"type": "Polygon", "coordinates": [[[0, 0], [0, 6], [6, 6], [6, 0], [0, 0]]]}
WITHIN = {"loc": {"$geoWithin": {"$geometry": AREA}}}
NEAR = {"loc": {"$near": {"$geometry": {"type": "Point", "coordinates": [1, 1]}, "$maxDistance": 50_000}}}


def at(identifier: int, x: float, y: float, **rest: Any) -> dict[str, Any]:
    return {"_id": identifier, "loc": {"type": "Point", "coordinates": [x, y]}, **rest}


def kinds(events: Any) -> list[str]:
    return [event.match_type.value for event in events]


def test_the_plan_is_exact_and_says_by_what_it_is_found() -> None:
    plan = plan_query(find(WITHIN))
    assert (plan.match, plan.index) == ("exact", "cell on loc")
    assert plan_query(find({"loc": {"$geoWithin": {"$centerSphere": [[0, 0], 3]}}})).index == "cell on loc"
    assert plan_query(find({"loc": {"$near": [1, 1]}})).index == "existence of loc"


def test_only_records_inside_change_the_result() -> None:
    scene = Scene()
    scene.register(find(WITHIN), (1,))
    assert scene.insert(at(2, 20, 20)) == []
    assert kinds(scene.insert(at(3, 3, 3))) == ["add"]


def test_a_record_that_leaves_changes_the_result() -> None:
    scene = Scene()
    scene.register(find(WITHIN), (1,))
    assert kinds(scene.update(at(1, 20, 20))) == ["remove"]


def test_a_place_counts_although_it_is_not_shown_because_it_decides_the_order() -> None:
    plan = plan_query(find(NEAR, projection={"name": 1}))
    assert not plan.relevant.fields.same(at(1, 1, 1, name="a"), at(1, 1.1, 1, name="a"))
    assert plan.relevant.fields.same(at(1, 1, 1, name="a", seen=1), at(1, 1, 1, name="a", seen=2))


def test_with_a_limit_by_distance_the_farthest_is_the_end() -> None:
    assert plan_query(find(NEAR, limit=3)).window is Window.BOUNDARY
