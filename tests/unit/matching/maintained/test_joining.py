"""The join stage: a `$lookup` follows the writes of both collections."""

from __future__ import annotations

from typing import Any

from quaestor.incremental import RenewalSettings, bootstrap_queries
from tests.unit.matching.maintained.scene import Scene, aggregate, event_rows

LOOKUP: dict[str, Any] = {"from": "others", "localField": "ref", "foreignField": "fk", "as": "joined"}


def joined(scene: Scene) -> dict[Any, list[Any]]:
    return {row["_id"]: [partner["_id"] for partner in row["joined"]] for row in scene.shown()}


def test_writes_of_either_side_change_the_joined_rows() -> None:
    scene = Scene(aggregate({"$lookup": LOOKUP}), [{"_id": 1, "ref": 7}], others=[{"_id": 10, "fk": 7}])
    assert joined(scene) == {1: [10]}
    assert event_rows(scene.put_other(11, fk=7)) == [("change", 1, None, None)]
    assert event_rows(scene.put(2, ref=8)) == [("add", 2, None, None)]
    assert event_rows(scene.put_other(10, fk=8)) == [("change", 1, None, None), ("change", 2, None, None)]
    assert joined(scene) == {1: [11], 2: [10]}
    assert event_rows(scene.delete_other(11)) == [("change", 1, None, None)]
    assert event_rows(scene.delete(2)) == [("remove", 2, None, None)]
    assert scene.put_other(12, fk=99) == []


def test_null_missing_and_arrays_join_as_equality_does() -> None:
    others = [{"_id": 10}, {"_id": 11, "fk": None}, {"_id": 12, "fk": [1, 2]}, {"_id": 13, "fk": 2.0}]
    initial = [{"_id": 1}, {"_id": 2, "ref": None}, {"_id": 3, "ref": 2}, {"_id": 4, "ref": [1, 5]}]
    scene = Scene(aggregate({"$lookup": LOOKUP}), initial, others=others)
    assert joined(scene) == {1: [10, 11], 2: [10, 11], 3: [12, 13], 4: [12]}


def test_the_inner_pipeline_decides_which_partners_count() -> None:
    inner = [{"$match": {"v": {"$gt": 0}}}, {"$sort": {"v": -1}}, {"$limit": 1}, {"$project": {"v": 1}}]
    scene = Scene(aggregate({"$lookup": LOOKUP | {"pipeline": inner}}), [{"_id": 1, "ref": 7}])
    assert scene.put_other(10, fk=7, v=0) == []
    scene.put_other(11, fk=7, v=5)
    assert scene.put_other(12, fk=7, v=3) == []
    assert scene.shown()[0]["joined"] == [{"_id": 11, "v": 5}]
    scene.delete_other(11)
    assert scene.shown()[0]["joined"] == [{"_id": 12, "v": 3}]


def test_the_inner_filter_is_part_of_what_is_read() -> None:
    pipeline = [{"$match": {"v": 1, "$expr": {"$gt": ["$v", "$$mine"]}}}]
    stage = {"$lookup": LOOKUP | {"let": {"mine": "$a"}, "pipeline": pipeline}}
    own, foreign = bootstrap_queries(aggregate({"$match": {"a": 1}}, stage))
    assert (own.namespace, own.filter) == ("db.things", {"a": 1})
    assert (foreign.namespace, foreign.filter) == ("db.others", {"v": 1})


def test_variables_of_the_local_row() -> None:
    stage = {
        "from": "others",
        "let": {"mine": "$a"},
        "pipeline": [{"$match": {"$expr": {"$lt": ["$v", "$$mine"]}}}],
        "as": "joined",
    }
    scene = Scene(aggregate({"$lookup": stage}), [{"_id": 1, "a": 5}], others=[{"_id": 10, "v": 4}])
    assert joined(scene) == {1: [10]}
    scene.put(1, a=3)
    assert joined(scene) == {1: []}
    scene.put_other(11, v=2)
    assert joined(scene) == {1: [11]}


def test_an_unwound_partner_keeps_its_identity_when_others_come() -> None:
    scene = Scene(
        aggregate({"$lookup": LOOKUP}, {"$unwind": "$joined"}), [{"_id": 1, "ref": 7}], others=[{"_id": 10, "fk": 7}]
    )
    assert event_rows(scene.put_other(5, fk=7)) == [("add", (1, 5), None, None)]
    assert event_rows(scene.delete_other(10)) == [("remove", (1, 10), None, None)]


def test_one_foreign_write_changes_groups_of_many_rows_once() -> None:
    scene = Scene(
        aggregate(
            {"$lookup": LOOKUP},
            {"$unwind": "$joined"},
            {"$group": {"_id": "$a", "sum": {"$sum": "$joined.v"}}},
        ),
        [{"_id": key, "ref": 7, "a": key % 2} for key in range(6)],
        others=[{"_id": 10, "fk": 7, "v": 2}],
    )
    events = scene.put_other(10, fk=7, v=5)
    assert [(event.key, event.document["sum"]) for event in events] == [(0, 15), (1, 15)]


def test_joined_rows_are_ordered_and_limited() -> None:
    scene = Scene(
        aggregate(
            {"$lookup": LOOKUP},
            {"$addFields": {"n": {"$size": "$joined"}}},
            {"$sort": {"n": -1}},
            {"$limit": 1},
            {"$project": {"n": 1}},
        ),
        [{"_id": 1, "ref": 7}, {"_id": 2, "ref": 8}],
    )
    assert scene.shown() == [{"_id": 1, "n": 0}]
    assert event_rows(scene.put_other(10, fk=8)) == [("remove", 1, None, 0), ("add", 2, 0, None)]


def test_a_collection_joined_with_itself() -> None:
    stage = {"$lookup": {"from": "things", "localField": "ref", "foreignField": "_id", "as": "joined"}}
    scene = Scene(aggregate(stage), [])
    scene.put(1, ref=2)
    assert joined(scene) == {1: []}
    scene.put(2, ref=2)
    assert joined(scene) == {1: [2], 2: [2]}
    scene.delete(2)
    assert joined(scene) == {1: []}


def test_two_joins_with_one_collection_read_it_once_and_keep_their_filters() -> None:
    stages = [
        {"$lookup": LOOKUP | {"pipeline": [{"$match": {"v": 1}}]}},
        {"$lookup": LOOKUP | {"pipeline": [{"$match": {"v": 2}}], "as": "second"}},
    ]
    query = aggregate(*stages)
    _, foreign = bootstrap_queries(query)
    assert foreign.filter == {"$or": [{"v": 1}, {"v": 2}]}
    scene = Scene(query, [{"_id": 1, "ref": 7}], others=[{"_id": 10, "fk": 7, "v": 1}, {"_id": 11, "fk": 7, "v": 2}])
    (row,) = scene.shown()
    assert [[partner["_id"] for partner in row[name]] for name in ("joined", "second")] == [[10], [11]]


def test_a_filter_behind_an_inner_limit_does_not_choose_what_is_limited() -> None:
    inner = [{"$sort": {"v": -1}}, {"$limit": 1}, {"$match": {"v": {"$lt": 5}}}]
    scene = Scene(aggregate({"$lookup": LOOKUP | {"pipeline": inner}}), [{"_id": 1, "ref": 7}])
    scene.put_other(10, fk=7, v=3)
    assert joined(scene) == {1: [10]}
    scene.put_other(11, fk=7, v=8)
    assert joined(scene) == {1: []}


def test_a_window_behind_a_join_reads_and_remembers_its_own_stretch() -> None:
    """Neither the first read nor later writes make the join hold records behind the slack."""
    query = aggregate({"$lookup": LOOKUP}, {"$sort": {"a": 1}}, {"$limit": 2})
    own, foreign = bootstrap_queries(query, settings=RenewalSettings(slack=1))
    assert (own.limit, own.sort, foreign.limit) == (3, (("a", 1), ("_id", 1)), 0)
    records = [{"_id": n, "a": n, "ref": 7} for n in range(1, 6)]
    scene = Scene(query, records, read=records[:3], others=[{"_id": 10, "fk": 7}], slack=1)
    for key, a in [(9, 9), (0, 0), (8, 8), (1, 7)]:
        scene.put(key, a=a, ref=7)
    assert joined(scene) == {0: [10], 2: [10]}
    assert {key for key in range(10) if scene.maintained.holds("db.things", key)} == {0, 2}
    scene.put_other(11, fk=7)
    assert joined(scene) == {0: [10, 11], 2: [10, 11]}
