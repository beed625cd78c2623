"""Which write is the first change of a cached result, rule by rule."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from quaestor.model import Query, WriteKind
from tests.unit.matching.scene import Scene, aggregate, count, distinct, find, types

PAID = find({"status": "paid"})
CHEAPEST = find({"status": "paid"}, sort=(("price", 1),), limit=2)


def test_a_record_that_neither_is_nor_was_in_the_result_changes_nothing() -> None:
    scene = Scene()
    scene.register(PAID, (1,))
    assert scene.insert({"_id": 2, "status": "open"}) == []
    assert scene.update({"_id": 3, "status": "open"}) == []
    assert scene.delete(4) == []


def test_a_record_that_begins_to_match_is_an_add() -> None:
    scene = Scene()
    scene.register(PAID, (1,))
    assert types(scene.update({"_id": 2, "status": "paid"})) == ["add"]


def test_a_member_that_stops_matching_is_a_remove() -> None:
    scene = Scene()
    scene.register(PAID, (1,))
    assert types(scene.update({"_id": 1, "status": "open"})) == ["remove"]


def test_a_deleted_member_is_a_remove() -> None:
    scene = Scene()
    scene.register(PAID, (1,))
    assert types(scene.delete(1)) == ["remove"]


def test_a_member_that_was_gone_at_look_up_is_a_remove() -> None:
    scene = Scene()
    scene.register(PAID, (1,))
    fired = scene.node.process(scene.image(WriteKind.UPDATE, 1, None), now_ms=scene.now_ms)
    assert types(fired) == ["remove"]


def test_a_member_that_is_written_and_still_matches_is_a_change() -> None:
    scene = Scene()
    scene.register(PAID, (1,))
    assert types(scene.update({"_id": 1, "status": "paid", "note": "x"})) == ["change"]


def test_a_registration_fires_once_and_is_forgotten() -> None:
    scene = Scene()
    scene.register(PAID, (1,))
    assert len(scene.delete(1)) == 1
    assert scene.node.registrations == 0
    assert scene.insert({"_id": 1, "status": "paid"}) == []


def test_all_registrations_of_a_query_fire_in_one_notification() -> None:
    scene = Scene()
    scene.register(PAID, (1,))
    scene.register(PAID, (1,))
    (fired,) = scene.delete(1)
    assert fired.registration_ids == ("app:1", "app:2")


def test_the_notification_names_write_and_query() -> None:
    scene = Scene()
    scene.register(PAID, (1,))
    (fired,) = scene.delete(1, version=777)
    assert (fired.version, fired.key, fired.written_at_ms) == (777, 1, scene.now_ms)
    assert fired.query_id == scene.registration(PAID).query_id


def test_a_moved_member_is_a_change_of_index() -> None:
    scene = Scene()
    scene.register(find({"status": "paid"}, sort=(("price", 1),)), (1, 2))
    before = {"_id": 1, "status": "paid", "price": 5}
    assert types(scene.update(before | {"price": 9}, before=before)) == ["changeIndex"]


# -- windows


def test_a_match_behind_the_last_member_of_a_full_window_changes_nothing() -> None:
    scene = Scene()
    scene.register(CHEAPEST, (1, 2), last={"_id": 2, "price": 20})
    assert scene.insert({"_id": 3, "status": "paid", "price": 21}) == []
    assert types(scene.insert({"_id": 4, "status": "paid", "price": 19})) == ["add"]


def test_a_tie_with_the_last_member_counts_as_a_change() -> None:
    scene = Scene()
    scene.register(CHEAPEST, (1, 2), last={"_id": 2, "price": 20})
    assert types(scene.insert({"_id": 3, "status": "paid", "price": 20})) == ["add"]


def test_a_sort_by_id_leaves_no_ties() -> None:
    scene = Scene()
    scene.register(
        find({"status": "paid"}, sort=(("price", 1), ("_id", 1)), limit=2), (1, 2), last={"_id": 2, "price": 20}
    )
    assert scene.insert({"_id": 3, "status": "paid", "price": 20}) == []
    assert types(scene.insert({"_id": 0, "status": "paid", "price": 20})) == ["add"]


def test_descending_windows_end_at_their_smallest() -> None:
    scene = Scene()
    scene.register(find({}, sort=(("price", -1),), limit=1), (1,), last={"_id": 1, "price": 50})
    assert scene.insert({"_id": 2, "price": 49}) == []
    assert scene.insert({"_id": 3}) == []
    assert types(scene.insert({"_id": 4, "price": 51})) == ["add"]


def test_a_window_that_is_not_full_takes_any_match() -> None:
    scene = Scene()
    scene.register(CHEAPEST, (1,))
    assert types(scene.insert({"_id": 3, "status": "paid", "price": 10**9})) == ["add"]


def test_an_unordered_window_takes_any_match() -> None:
    scene = Scene()
    scene.register(find({"status": "paid"}, limit=1), (1,))
    assert types(scene.insert({"_id": 3, "status": "paid"})) == ["add"]


def test_a_record_outside_of_an_unordered_window_counts_once_it_may_have_moved() -> None:
    """Records are found in the order of storage, or by an index of what the filter reads."""
    scene = Scene()
    scene.register(find({"status": "paid"}, limit=1), (1,))
    before = {"_id": 3, "status": "paid"}
    assert scene.update(before | {"n": 1}, before=before) == []
    assert scene.delete(3) == []
    assert types(scene.update({"_id": 3, "status": "paid", "n": 2})) == ["add"]


def test_a_record_outside_of_an_unordered_window_counts_by_the_fields_of_indexes_that_may_order_it() -> None:
    scene = Scene()
    query = find({"status": "paid"}, limit=1, index_keys=(("status", "n"),))
    before = {"_id": 3, "status": "paid", "n": 1}
    for projection in (None, {"name": 1}):
        scene.register(replace(query, projection=projection), (1,))
        assert scene.update(before | {"x": 1}, before=before) == []
        assert types(scene.update(before | {"n": 2}, before=before)) == ["add"]


def test_a_record_outside_of_an_unordered_window_does_not_count_for_fields_not_read() -> None:
    """The record does not count also without an image before the write."""
    scene = Scene()
    scene.register(find({"status": "paid"}, limit=1, projection={"name": 1}), (1,))
    assert scene.update({"_id": 3, "status": "paid", "n": 2}, changed=("n",)) == []
    assert types(scene.update({"_id": 3, "status": "paid"}, changed=("status",))) == ["add"]


def test_behind_an_offset_without_a_sort_a_record_that_keeps_its_place_does_not_count() -> None:
    scene = Scene()
    scene.register(find({"status": "paid"}, skip=1, limit=1), (2,))
    before = {"_id": 1, "status": "paid"}
    assert scene.update(before | {"n": 1}, before=before) == []
    assert scene.update(before | {"n": 2}, changed=("n",)) == []
    assert types(scene.delete(1, before=before)) == ["remove"]


def test_a_tie_that_is_not_touched_where_it_counts_does_not_count() -> None:
    scene = Scene()
    query = find({"status": "paid"}, sort=(("price", 1),), limit=1, projection={"price": 1})
    scene.register(query, (1,), last={"_id": 1, "price": 5})
    assert scene.update({"_id": 2, "status": "paid", "price": 5}, changed=("n",)) == []
    assert types(scene.update({"_id": 2, "status": "paid", "price": 5}, changed=("price",))) == ["add"]


# -- records named by their _id


BARE = {"_id": 0, "name": 1}


@pytest.mark.parametrize(
    "query",
    [
        find({"_id": 5}, limit=1, projection=BARE),
        find({"_id": 5, "status": "paid"}, projection=BARE),
        find({"_id": {"$in": [5, 7]}}, projection=BARE, sort=(("name", 1),)),
        find({"_id": {"$eq": 5.0}}, projection=BARE, skip=1),
        count({"_id": 5}),
        distinct("name", {"_id": 5}),
        aggregate({"$match": {"_id": 5}}, {"$group": {"_id": "$name"}}),
    ],
)
def test_writes_to_other_records_than_a_filter_names_change_nothing(query: Query) -> None:
    """Though nobody knows how they were before, nor which records the result shows."""
    scene = Scene()
    scene.register(query, None)
    assert scene.update({"_id": 6, "status": "paid", "name": "x"}, changed=("name",)) == []
    assert scene.delete(6) == []
    assert scene.write(WriteKind.REPLACE, 6, {"_id": 6}) == []
    assert types(scene.delete(5)) == ["match"]


def test_a_write_that_came_between_read_and_registration_is_judged_by_the_names_too() -> None:
    scene = Scene()
    since = scene.version
    scene.delete(6)
    query = find({"_id": 5}, limit=1, projection=BARE)
    assert types(scene.register(query, None, since=since)) == ["Activated"]
    scene.delete(5)
    assert types(scene.register(query, None, since=since)) == ["match"]


def test_changes_that_name_records_in_another_way_or_name_none_are_judged_as_before() -> None:
    for condition in ({"$or": [{"_id": 5}, {"a": 1}]}, {"_id": {"$in": [5, None]}}, {"_id": {"$gt": 5}}, {"a": 5}):
        scene = Scene()
        scene.register(find(condition, projection=BARE), None)
        assert types(scene.delete(4)) == ["match"], condition


def test_a_named_record_that_comes_or_is_written_counts() -> None:
    query = find({"_id": 5, "status": "paid"}, limit=1, projection=BARE)
    record = {"_id": 5, "status": "paid", "name": "x"}
    for write, expected in (
        (lambda scene: scene.insert(record), ["add"]),
        (lambda scene: scene.update(record, changed=("name",)), ["match"]),
        (lambda scene: scene.update(record, changed=("other",)), []),
        (lambda scene: scene.update(record, before=record | {"name": "y"}), ["change"]),
        (lambda scene: scene.update(record | {"n": 1}, before=record), []),
        (lambda scene: scene.update(record, before=record | {"status": "open"}), ["add"]),
        (lambda scene: scene.delete(5, before=record), ["remove"]),
        (lambda scene: scene.delete(5, before=record | {"status": "open"}), []),
    ):
        scene = Scene()
        scene.register(query, None)
        assert types(write(scene)) == expected


def test_each_of_many_filters_on_one_record_is_notified() -> None:
    """The index keeps such filters by another condition if there are many."""
    scene = Scene()
    for number in range(100):
        scene.register(find({"_id": 5, "n": number}, projection=BARE), None)
    assert sum(len(outcome.registration_ids) for outcome in scene.delete(5)) == 100


def test_records_farther_away_than_the_last_of_the_nearest_change_nothing() -> None:
    scene = Scene()
    nearest = find({"at": {"$near": [0, 0]}, "open": True}, limit=2)
    for _ in range(2):  # also where the query is known already
        scene.register(nearest, (1, 2), last={"_id": 2, "at": [3, 4]})
    assert scene.insert({"_id": 3, "open": True, "at": [3, 4.01]}) == []
    assert scene.insert({"_id": 4, "open": False, "at": [0, 1]}) == []
    assert scene.update({"_id": 3, "open": True, "at": [6, 6]}) == []
    assert types(scene.insert({"_id": 5, "open": True, "at": [3, 4]})) == ["add"], (
        "as far away: who comes first is open"
    )


def test_a_member_that_moves_away_is_a_change() -> None:
    scene = Scene()
    scene.register(find({"at": {"$near": [0, 0]}}, limit=2), (1, 2), last={"_id": 2, "at": [3, 4]})
    assert types(scene.update({"_id": 1, "at": [9, 9]})) == ["change"]


def test_a_poorer_match_than_the_last_of_the_best_changes_nothing() -> None:
    scene = Scene()
    index = {"weights": {"title": 1}, "default_language": "none", "textIndexVersion": 3}
    score = {"$meta": "textScore"}
    best = find(
        {"$text": {"$search": "dogs"}}, text_index=index, sort=(("s", score),), projection={"s": score}, limit=1
    )
    scene.register(best, (1,), last={"_id": 1, "title": "two dogs"})
    assert scene.insert({"_id": 2, "title": "four dogs or more"}) == []
    assert types(scene.insert({"_id": 3, "title": "dogs"})) == ["add"]


def test_parallel_arrays_in_the_sort_fields_invalidate_instead_of_failing() -> None:
    scene = Scene()
    scene.register(find({}, sort=(("a", 1), ("b", 1)), limit=1), (1,), last={"_id": 1, "a": 1, "b": 1})
    assert types(scene.insert({"_id": 2, "a": [1, 2], "b": [1, 2]})) == ["match"]
    assert scene.node.tally.failed == 1


def test_a_member_that_is_touched_where_it_is_filtered_by_alone_does_not_count_while_it_matches() -> None:
    """Without any image before the write, if what it is filtered by is not shown, and no part of its order."""
    scene = Scene()
    query = find({"stock": {"$gt": 0}}, sort=(("price", 1),), projection={"name": 1, "price": 1})
    scene.register(query, (1,))
    assert scene.update({"_id": 1, "stock": 5, "price": 1}, changed=("stock",)) == []
    assert types(scene.update({"_id": 1, "stock": 0, "price": 1}, changed=("stock",))) == ["remove"]
    for changed in (("stock", "price"), ("stock", "name"), None):
        scene.register(query, (1,))
        assert types(scene.update({"_id": 1, "stock": 5, "price": 1}, changed=changed)) == ["change"]
    indexed = replace(query, sort=(), index_keys=(("stock",),))
    scene.register(indexed, (1,))
    assert types(scene.update({"_id": 1, "stock": 6, "price": 1}, changed=("stock",))) == ["change"]
    scene.register(replace(query, sort=(), index_keys=(("price",),)), (1,))
    assert scene.update({"_id": 1, "stock": 7, "price": 1}, changed=("stock",)) == [], "no index finds it by its stock"


# -- offsets


def test_behind_an_offset_records_before_the_window_count_too() -> None:
    scene = Scene()
    second = find({}, sort=(("price", 1),), skip=1, limit=1)
    scene.register(second, (2,), last={"_id": 2, "price": 20})
    assert types(scene.delete(1, before={"_id": 1, "price": 10})) == ["remove"]


def test_behind_an_offset_records_behind_the_window_do_not_count() -> None:
    scene = Scene()
    scene.register(find({}, sort=(("price", 1),), skip=1, limit=1), (2,), last={"_id": 2, "price": 20})
    assert scene.delete(3, before={"_id": 3, "price": 30}) == []
    assert scene.insert({"_id": 4, "price": 40}) == []
    before = {"_id": 5, "price": 50}
    assert scene.update({"_id": 5, "price": 60}, before=before) == []


def test_behind_an_offset_a_record_that_keeps_its_place_outside_the_window_does_not_count() -> None:
    scene = Scene()
    scene.register(find({}, sort=(("price", 1),), skip=1, limit=1), (2,), last={"_id": 2, "price": 20})
    before = {"_id": 1, "price": 10}
    assert scene.update(before | {"note": "x"}, before=before) == []
    assert types(scene.update(before | {"price": 11, "note": "x"}, before=before | {"note": "x"})) == ["changeIndex"]


def test_behind_an_offset_without_images_before_the_write_any_update_counts() -> None:
    scene = Scene()
    scene.register(find({"a": 1}, sort=(("price", 1),), skip=1, limit=1), (2,), last={"_id": 2, "price": 20})
    assert types(scene.update({"_id": 9, "a": 2})) == ["match"]


def test_an_empty_page_is_only_changed_by_further_matches() -> None:
    scene = Scene()
    scene.register(find({"a": 1}, skip=100), ())
    assert scene.delete(9) == []
    assert scene.update({"_id": 8, "a": 2}) == []
    assert types(scene.insert({"_id": 7, "a": 1})) == ["add"]


# -- projections


def test_a_change_outside_projection_sort_and_filter_changes_nothing() -> None:
    scene = Scene()
    scene.register(find({"status": "paid"}, projection={"name": 1}, sort=(("price", 1),)), (1,))
    record = {"_id": 1, "status": "paid", "name": "n", "price": 1, "views": 1}
    assert scene.update(record | {"views": 2}, before=record) == []
    assert types(scene.update(record | {"views": 2, "name": "m"}, before=record | {"views": 2})) == ["change"]


def test_fields_that_only_the_filter_reads_may_change_while_it_matches() -> None:
    scene = Scene()
    scene.register(find({"price": {"$gt": 1}}, projection={"name": 1}, sort=(("rank", 1),)), (1,))
    record = {"_id": 1, "name": "n", "price": 5, "rank": 3}
    assert scene.update(record | {"price": 6}, before=record) == []
    assert types(scene.update(record | {"rank": 4}, before=record)) == ["changeIndex"]


def test_an_excluded_field_does_not_count() -> None:
    scene = Scene()
    scene.register(find({"status": "paid"}, projection={"views": 0}), (1,))
    record = {"_id": 1, "status": "paid", "views": 1}
    assert scene.update(record | {"views": 2}, before=record) == []
    assert types(scene.update(record | {"views": 2, "new": 1}, before=record | {"views": 2})) == ["change"]


def test_without_exact_images_a_projection_saves_nothing() -> None:
    scene = Scene()
    scene.register(find({"status": "paid"}, projection={"name": 1}), (1,))
    assert types(scene.update({"_id": 1, "status": "paid", "name": "n"})) == ["change"]


# -- results without members


def test_a_count_changes_only_when_the_record_enters_or_leaves() -> None:
    scene = Scene()
    scene.register(count({"status": "paid"}), None)
    paid, unpaid = {"_id": 1, "status": "paid"}, {"_id": 1, "status": "open"}
    assert scene.update(paid | {"x": 1}, before=paid) == []
    assert scene.insert({"_id": 2, "status": "open"}) == []
    assert types(scene.update(unpaid, before=paid | {"x": 1})) == ["remove"]
    scene.register(count({"status": "paid"}), None)
    assert types(scene.insert({"_id": 3, "status": "paid"})) == ["add"]


def test_a_count_without_images_before_the_write_takes_any_update_or_delete() -> None:
    scene = Scene()
    for write in (lambda: scene.update({"_id": 1, "status": "open"}), lambda: scene.delete(2)):
        scene.register(count({"status": "paid"}), None)
        assert types(write()) == ["match"]


def test_the_write_before_serves_as_the_image_before() -> None:
    scene = Scene()
    scene.insert({"_id": 1, "status": "open"})
    scene.register(count({"status": "paid"}), None)
    assert scene.update({"_id": 1, "status": "open", "x": 1}) == []
    # That update's own image was looked up later, so it says nothing certain about the next write.
    assert types(scene.update({"_id": 1, "status": "open", "x": 2})) == ["match"]


def test_a_looked_up_image_does_not_tell_what_the_next_write_replaces() -> None:
    """Both updates look up the latest state, which equals the first; the read saw the one in between."""
    scene = Scene()
    scene.insert({"_id": 1, "status": "open"})
    scene.register(count({"status": "paid"}), None, read_at=scene.version + 1)
    assert scene.update({"_id": 1, "status": "open"}) == []
    assert types(scene.update({"_id": 1, "status": "open", "x": 1})) == ["match"]


def test_distinct_changes_only_when_the_record_contributes_other_values() -> None:
    scene = Scene()
    scene.register(distinct("tags", {"status": "paid"}), None)
    record = {"_id": 1, "status": "paid", "tags": ["a", "b"]}
    assert scene.update(record | {"x": 1}, before=record) == []
    assert types(scene.update(record | {"tags": ["a"]}, before=record | {"x": 1})) == ["change"]


def test_a_find_whose_members_are_unknown_is_judged_by_the_images() -> None:
    scene = Scene()
    query = find({"status": "paid"}, projection={"_id": 0, "name": 1})
    record = {"_id": 1, "status": "paid", "name": "n"}
    scene.register(query, None)
    assert scene.update(record | {"x": 1}, before=record) == []
    assert types(scene.delete(1, before=record | {"x": 1})) == ["remove"]


# -- widened


def test_a_widened_query_is_changed_by_every_write_to_its_collection() -> None:
    scene = Scene()
    scene.register(find({"$where": "true"}), (1,))
    assert scene.insert({"_id": 2}, namespace="shop.other") == []
    assert types(scene.insert({"_id": 2})) == ["match"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [("y", []), ("X", []), (7, []), (None, []), ("x", ["match"]), (["y", "x"], ["match"]), ("\u200dx", ["match"])],
)
def test_under_a_collation_what_cannot_be_equal_changes_nothing(value: Any, expected: list[str]) -> None:
    """Characters beyond ASCII may be anything to it."""
    scene = Scene()
    scene.register(find({"a": "x"}, collation={"locale": "de"}), (1,))
    assert types(scene.insert({"_id": 2, "a": value})) == expected


def test_known_members_of_a_collated_find_show_whether_a_record_was_in_it() -> None:
    """The members suffice without images and with any collation."""
    scene = Scene()
    scene.register(find({"a": {"$gt": "x"}}, sort=(("b", 1),), collation={"locale": "sv"}), (1,))
    stranger = {"_id": 2, "a": "y"}
    assert scene.update(stranger | {"n": 1}, changed=("n",)) == []
    assert scene.delete(3) == []
    assert types(scene.update({"_id": 1, "a": "y", "n": 1}, changed=("n",))) == ["change"]


def test_a_pipeline_is_widened_to_its_leading_match() -> None:
    scene = Scene()
    query = aggregate({"$match": {"status": "paid"}}, {"$group": {"_id": "$day", "n": {"$sum": "$price"}}})
    scene.register(query, None)
    assert scene.insert({"_id": 2, "status": "open"}) == []
    record = {"_id": 3, "status": "open"}
    assert scene.update(record | {"x": 1}, before=record) == []
    assert types(scene.insert({"_id": 4, "status": "paid"})) == ["match"]


def test_a_group_is_not_changed_by_what_it_does_not_read() -> None:
    group = {"$group": {"_id": "$day", "n": {"$sum": "$price"}, "records": {"$sum": 1}}}
    paid = {"_id": 3, "status": "paid", "day": 1, "price": 5}
    for written, expected in (
        (paid | {"note": "x"}, []),
        (paid | {"price": 6}, ["match"]),
        (paid | {"day": 2}, ["match"]),
        (paid | {"status": "open"}, ["match"]),
    ):
        scene = Scene()
        scene.register(
            aggregate({"$match": {"status": "paid"}}, {"$sort": {"at": 1}}, group, {"$sort": {"n": 1}}), None
        )
        assert types(scene.update(written, before=paid)) == expected, written
    scene = Scene()
    scene.register(aggregate({"$match": {"status": "paid"}}, group), None)
    assert types(scene.update(paid | {"note": "x"})) == ["match"], "without the record as it was, nobody knows"


def test_a_group_that_reads_the_whole_record_is_changed_by_all_of_it() -> None:
    paid = {"_id": 3, "status": "paid", "day": 1}
    for group in (
        {"_id": "$day", "all": {"$push": "$$ROOT"}},
        {"_id": "$day", "top": {"$top": {"sortBy": {"price": 1}, "output": "$note"}}},
    ):
        scene = Scene()
        scene.register(aggregate({"$match": {"status": "paid"}}, {"$group": group}), None)
        assert types(scene.update(paid | {"note": "x"}, before=paid)) == ["match"], group


def test_writes_to_a_joined_collection_count() -> None:
    scene = Scene()
    lookup = {"$lookup": {"from": "makers", "localField": "m", "foreignField": "_id", "as": "maker"}}
    scene.register(aggregate({"$match": {"status": "paid"}}, lookup), None)
    assert scene.insert({"_id": 1, "status": "paid"}, namespace="other.makers") == []
    assert types(scene.insert({"_id": 1}, namespace="shop.makers")) == ["match"]
    assert scene.node.registrations == 0
    assert scene.insert({"_id": 2}, namespace="shop.makers") == []
