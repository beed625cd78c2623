"""Paths that an update touched, where nothing is known of the record before it."""

from __future__ import annotations

from quaestor.model import WriteKind
from tests.unit.matching.scene import Scene, aggregate, count, distinct, find, types


def test_an_update_that_touches_nothing_that_matters_changes_nothing() -> None:
    record = {"_id": 1, "status": "paid", "name": "n", "views": 2}
    for query, members in (
        (find({"status": "paid"}, projection={"name": 1}, sort=(("price", 1),), index_keys=(("status",),)), (1,)),
        (find({"status": "paid"}, projection={"name": 1, "_id": 0}), None),
        (find({"status": "paid"}, projection={"views": 0}, limit=5), (1,)),
        (count({"status": "paid"}), None),
        (distinct("name", {"status": "paid"}), None),
        (aggregate({"$match": {"status": "paid"}}, {"$group": {"_id": "$name"}}), None),
    ):
        scene = Scene()
        scene.register(query, members)
        assert scene.update(record, changed=("views",)) == [], query
        assert scene.update({"_id": 8, "status": "open"}, changed=("views",)) == [], query
        assert types(scene.update(record, changed=("views", "status"))) in (["change"], ["match"]), query


def test_a_replacement_may_touch_anything() -> None:
    scene = Scene()
    scene.register(find({"status": "paid"}, projection={"name": 1}), (1,))
    assert types(scene.write(WriteKind.REPLACE, 1, {"_id": 1, "status": "paid"})) == ["change"]


def test_a_member_whose_later_image_no_longer_matches_waits_for_the_write_that_did_it() -> None:
    """The look-up saw a later state; that later write has an event of its own."""
    scene = Scene()
    scene.register(find({"status": "paid"}, projection={"name": 1}), (1,))
    gone = {"_id": 1, "status": "open"}
    assert scene.update(gone, changed=("views",)) == []
    assert types(scene.update(gone, changed=("status",))) == ["remove"]


def test_behind_an_offset_an_update_that_moves_nothing_does_not_count() -> None:
    scene = Scene()
    scene.register(find({"a": 1}, sort=(("price", 1),), skip=1, limit=1), (2,), last={"_id": 2, "price": 20})
    assert scene.update({"_id": 9, "a": 1, "price": 1}, changed=("note",)) == []
    assert types(scene.update({"_id": 9, "a": 1, "price": 2}, changed=("price",))) == ["match"]


def test_in_a_limited_result_a_tie_at_its_end_counts_where_an_index_may_order_it() -> None:
    """Which of two equal records mongod shows may depend on any other field of a compound index on what is filtered by."""
    for index_keys, events in (((), []), ((("a", "note"),), ["add"])):
        scene = Scene()
        query = find({"a": 1}, projection={"price": 1}, sort=(("price", 1),), limit=1, index_keys=index_keys)
        scene.register(query, (2,), last={"_id": 2, "price": 20})
        assert types(scene.update({"_id": 9, "a": 1, "price": 20}, changed=("note",))) == events


def test_among_equals_a_member_counts_that_an_index_finds_at_another_place() -> None:
    """Though nothing of the field is shown or sorted by. Not where `_id` completes the order, or nothing finds it by that."""
    filtered = {"status": {"$in": ["paid", "open"]}}
    before, after = ({"_id": 1, "status": status, "name": "n", "price": 5} for status in ("paid", "open"))
    index, by_price = ("status",), (("price", 1),)
    for sort, keys, events in (
        (by_price, (index,), ["change"]),
        (by_price, (("$*",),), ["change"]),
        (by_price, (("name",), ("price",)), []),
        ((*by_price, ("_id", 1)), (index,), []),
    ):
        for known in (None, before):
            scene = Scene()
            scene.register(find(filtered, projection={"name": 1}, sort=sort, index_keys=keys), (1, 2))
            assert types(scene.update(after, before=known, changed=("status",))) == events


def test_two_updates_of_one_transaction_that_look_up_the_same_record_are_two() -> None:
    scene = Scene()
    scene.register(count({"status": "paid"}), None)
    record = {"_id": 1, "status": "paid"}
    assert scene.update(record, changed=("views",), version=500) == []
    assert types(scene.update(record, changed=("status",), version=500)) == ["match"]
