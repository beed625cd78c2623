"""Contributors of results that do not show them: the writes that a node passes over, and the writes that it never does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from quaestor.event_layer.partitioning import write_partition
from quaestor.model import Cell, Contributors, Document, GridShape, Query, WriteKind
from quaestor.planning.member_digests import member_digest
from quaestor.planning.plan import plan_query
from quaestor.planning.rules import rules_of
from tests.unit.matching.scene import Scene, aggregate, count, distinct, find, types

PAID = {"status": "paid"}
OPEN = {"status": "open"}
BY_PRICE = (("price", 1), ("_id", 1))


def supplied(
    scene: Scene,
    query: Query,
    *records: Document,
    members: tuple[Any, ...] | None = None,
    complete: bool = True,
    shown: bool = False,
    placed: bool = False,
) -> None:
    """Register a query, then supply its contributors as read after all writes so far."""
    registered = scene.registration(query, members, registration_id="app:c")
    assert types(scene.node.register(registered, now_ms=scene.now_ms)) == ["Activated"]
    known = Contributors(version=scene.version, records=records, complete=complete, placed=placed)
    if shown:
        rules = rules_of(plan_query(query))
        known = replace(known, digests=tuple(member_digest(rules, record) for record in records))
    assert types(scene.node.register(replace(registered, contributors=known), now_ms=scene.now_ms)) == ["Activated"]
    scene.write(WriteKind.TICK, version=scene.version + 1)
    scene.version += 1


def ids(*keys: int) -> list[Document]:
    return [{"_id": key} for key in keys]


def test_a_count_is_changed_by_who_begins_or_ceases_to_count_alone() -> None:
    """Without any image before the write."""
    scene = Scene()
    supplied(scene, count(PAID), *ids(1, 2))
    assert scene.update({"_id": 1, "n": 5} | PAID) == []
    assert scene.update({"_id": 3} | OPEN) == []
    assert scene.delete(4) == []
    assert types(scene.delete(1)) == ["remove"]


def test_a_count_takes_a_newcomer() -> None:
    scene = Scene()
    supplied(scene, count(PAID), *ids(1))
    assert types(scene.update({"_id": 2} | PAID)) == ["add"]


def test_a_count_at_its_limit_changes_when_nothing_is_to_spare() -> None:
    """A new contributor adds a spare one, and a returning contributor is not counted twice."""
    scene = Scene()
    supplied(scene, count(PAID, limit=2), *ids(1, 2, 3))
    assert scene.delete(1) == []
    assert scene.insert({"_id": 1} | PAID) == []
    assert scene.update({"_id": 1, "n": 1} | PAID) == []
    assert scene.delete(1) == []
    assert scene.insert({"_id": 7} | PAID) == []
    assert scene.delete(7) == []
    assert types(scene.delete(2)) == ["remove"]


def test_a_count_at_its_limit_is_known_from_some_of_its_records() -> None:
    scene = Scene()
    supplied(scene, count(PAID, limit=2), *ids(1, 2, 3), complete=False)
    assert scene.delete(9) == []
    assert scene.delete(3) == []
    assert types(scene.delete(2)) == ["remove"]


def test_a_count_within_its_bounds_is_changed_by_each() -> None:
    scene = Scene()
    supplied(scene, count(PAID, skip=1, limit=5), *ids(1, 2))
    assert scene.delete(5) == []
    assert types(scene.insert({"_id": 3} | PAID)) == ["add"]


def test_a_count_past_the_end_changes_when_enough_have_come() -> None:
    scene = Scene()
    supplied(scene, count(PAID, skip=2), *ids(1))
    assert scene.insert({"_id": 2} | PAID) == []
    assert types(scene.insert({"_id": 3} | PAID)) == ["add"]


def test_cells_share_what_is_to_spare() -> None:
    """None knows of the others' writes, so each takes its part alone."""
    scene = Scene(
        cell=Cell(query_partition=0, write_partition=0), shape=GridShape(query_partitions=1, write_partitions=2)
    )
    supplied(scene, count(PAID, skip=3), *ids(1))
    assert scene.insert({"_id": "x"} | PAID) == []
    assert types(scene.insert({"_id": "y"} | PAID)) == ["add"]


def test_a_distinct_changes_with_its_values_alone() -> None:
    scene = Scene()
    supplied(
        scene,
        distinct("tag", PAID),
        {"_id": 1, "tag": ["a", "b"]},
        {"_id": 2, "tag": "a"},
        {"_id": 3, "tag": "b"},
    )
    assert scene.delete(2) == []
    assert scene.insert({"_id": 5, "tag": "b"} | PAID) == []
    assert scene.delete(3) == []
    assert scene.update({"_id": 1, "tag": "a"} | PAID) == []
    assert types(scene.delete(5)) == ["remove"]


def test_a_distinct_takes_a_new_value() -> None:
    scene = Scene()
    supplied(scene, distinct("tag", PAID), {"_id": 1, "tag": "a"})
    assert types(scene.insert({"_id": 2, "tag": ["a", "c"]} | PAID)) == ["add"]


def test_a_distinct_counts_who_lacks_the_field() -> None:
    """An index makes mongod show null for them."""
    scene = Scene()
    supplied(scene, distinct("tag", PAID), {"_id": 1, "tag": "a"})
    assert types(scene.insert({"_id": 2} | PAID)) == ["add"]
    scene = Scene()
    supplied(scene, distinct("tag", PAID), {"_id": 1, "tag": "a"}, {"_id": 2})
    assert scene.insert({"_id": 3} | PAID) == []
    assert scene.delete(2) == []
    assert types(scene.delete(3)) == ["remove"]


@pytest.mark.parametrize("tag", [["a"], [], [["a"]], [["a"], "b"]])
def test_a_distinct_counts_the_first_array(tag: list[Any]) -> None:
    """Once there is one in an index, mongod answers otherwise; nested ones are other values there."""
    scene = Scene()
    supplied(scene, distinct("tag", PAID), {"_id": 1, "tag": "a"}, {"_id": 2, "tag": "b"})
    assert types(scene.insert({"_id": 3, "tag": tag} | PAID)) == ["add"]


def test_a_distinct_of_arrays_changes_with_their_elements() -> None:
    scene = Scene()
    supplied(scene, distinct("tag", PAID), {"_id": 1, "tag": ["a", "b"]}, {"_id": 2, "tag": "c"})
    assert scene.insert({"_id": 3, "tag": ["b", "c"]} | PAID) == []
    assert scene.delete(2) == []
    assert types(scene.delete(1)) == ["remove"]


def test_a_distinct_of_one_number_in_two_types_is_judged_by_images() -> None:
    """Which of 1 and 1.0 it shows depends on which the database meets first."""
    scene = Scene()
    supplied(scene, distinct("tag", PAID), {"_id": 1, "tag": 1}, {"_id": 2, "tag": 1.0})
    assert types(scene.delete(1)) == ["match"]


def page(scene: Scene) -> None:
    first = {"_id": 3, "price": 30}
    last = {"_id": 4, "price": 40}
    query = find(PAID, sort=BY_PRICE, skip=2, limit=2)
    supplied(scene, query, *ids(1, 2), first, last, members=(3, 4))


def test_a_page_stays_while_who_is_skipped_stands_before_it() -> None:
    scene = Scene()
    page(scene)
    assert scene.update({"_id": 1, "price": 29} | PAID) == []
    assert scene.insert({"_id": 9, "price": 41} | PAID) == []
    assert scene.delete(9) == []
    assert types(scene.update({"_id": 1, "price": 31} | PAID)) == ["changeIndex"]


@pytest.mark.parametrize("price", [5, 35])
def test_a_page_moves_when_somebody_comes_before_or_into_it(price: int) -> None:
    scene = Scene()
    page(scene)
    assert types(scene.insert({"_id": 9, "price": price} | PAID)) == ["add"]


def test_a_page_moves_when_somebody_skipped_goes() -> None:
    scene = Scene()
    page(scene)
    assert types(scene.delete(2)) == ["remove"]


def test_a_window_knows_its_end_though_the_projection_hides_it() -> None:
    scene = Scene()
    query = find(PAID, sort=BY_PRICE, limit=2, projection={"name": 1})
    supplied(scene, query, {"_id": 1, "price": 10}, {"_id": 2, "price": 20}, members=(1, 2))
    assert scene.insert({"_id": 3, "price": 21} | PAID) == []
    assert types(scene.insert({"_id": 4, "price": 15} | PAID)) == ["add"]


def dressed(scene: Scene, projection: Document, *records: Document, **rest: Any) -> None:
    """A result that shows what is computed from its records, or parts of their arrays."""
    query = find(PAID, sort=BY_PRICE, projection=projection, **rest)
    skipped = rest.get("skip", 0)
    supplied(scene, query, *records, members=tuple(record["_id"] for record in records[skipped:]), shown=True)


def test_a_member_counts_by_the_part_of_an_array_that_is_shown() -> None:
    """Without any image before the write, also where it is replaced as a whole."""
    scene = Scene()
    record = {"_id": 1, "price": 5, "list": [{"n": 1}, {"n": 2}, {"n": 3}]} | PAID
    dressed(scene, {"price": 1, "list": {"$slice": 2}}, record)
    later = record | {"list": [{"n": 1}, {"n": 2}, {"n": 9}]}
    assert scene.update(later, changed=("list.2.n",)) == []
    assert scene.write(WriteKind.REPLACE, 1, later | {"note": "x"}) == []
    shown = record | {"list": [{"n": 1}, {"n": 7}]}
    assert types(scene.update(shown, changed=("list.1.n",))) == ["change"]


def test_a_member_counts_by_what_is_computed_of_it() -> None:
    scene = Scene()
    record = {"_id": 1, "price": 5, "n": 3} | PAID
    dressed(scene, {"many": {"$gt": ["$n", 2]}}, record)
    assert scene.update(record | {"n": 4}, changed=("n",)) == []
    assert types(scene.update(record | {"n": 1}, changed=("n",))) == ["change"]


@pytest.mark.parametrize("change", [{"price": 6}, {"status": "open"}])
def test_a_member_that_looks_the_same_counts_where_it_may_move_or_leaves(change: Document) -> None:
    scene = Scene()
    record = {"_id": 1, "price": 5, "n": 3} | PAID
    dressed(scene, {"many": {"$gt": ["$n", 2]}}, record)
    assert len(scene.update(record | change, changed=tuple(change))) == 1


def test_a_member_of_a_page_counts_by_what_is_shown_of_it() -> None:
    scene = Scene()
    records = [{"_id": key, "price": key, "n": 3} for key in (1, 2, 3)]
    dressed(scene, {"many": {"$gt": ["$n", 2]}}, *records, skip=1, limit=2)
    assert scene.update({"_id": 2, "price": 2, "n": 5} | PAID, changed=("n",)) == []
    assert scene.update({"_id": 1, "price": 1, "n": 0} | PAID, changed=("n",)) == []
    assert types(scene.update({"_id": 2, "price": 2, "n": 0} | PAID, changed=("n",))) == ["change"]


def test_shown_values_that_are_not_kept_are_not_compared() -> None:
    scene = Scene()
    record = {"_id": 1, "price": 5, "n": 3} | PAID
    query = find(PAID, sort=BY_PRICE, projection={"many": {"$gt": ["$n", 2]}})
    supplied(scene, query, record, members=(1,))
    assert types(scene.update(record | {"n": 4}, changed=("n",))) == ["change"]


def test_a_limit_without_a_sort_whose_members_are_hidden_is_changed_by_what_matches_alone() -> None:
    """Which of them it shows nobody knows, so each counts as if it did."""
    scene = Scene()
    query = find(PAID, limit=2, projection={"_id": 0, "name": 1})
    supplied(scene, query, *ids(1, 2, 3))
    assert scene.update({"_id": 9, "name": "x"} | OPEN, changed=("name",)) == []
    assert scene.delete(9) == []
    assert scene.update({"_id": 3, "n": 1} | PAID, changed=("n",)) == []
    assert types(scene.update({"_id": 3, "name": "x"} | PAID, changed=("name",))) == ["change"]


def test_a_limit_without_a_sort_whose_members_are_hidden_takes_newcomers_and_loses_who_leaves() -> None:
    for write, expected in (
        (lambda scene: scene.insert({"_id": 7} | PAID), ["add"]),
        (lambda scene: scene.delete(2), ["remove"]),
        (lambda scene: scene.update({"_id": 1} | OPEN), ["remove"]),
    ):
        scene = Scene()
        supplied(scene, find(PAID, limit=2, projection={"_id": 0, "name": 1}), *ids(1, 2))
        assert types(write(scene)) == expected


def placed(scene: Scene, *records: Document, **rest: Any) -> None:
    """A result that shows names in the order of prices."""
    query = find(PAID, sort=BY_PRICE, projection={"name": 1}, **rest)
    members = tuple(record["_id"] for record in records[rest.get("skip", 0) :])
    supplied(scene, query, *records, members=members, placed=True)


THREE = ({"_id": 1, "price": 10}, {"_id": 2, "price": 20}, {"_id": 3, "price": 30})


def test_a_member_whose_hidden_key_changes_counts_once_it_passes_another() -> None:
    """Without any image before the write: the paths that it touched say that what is shown is the same."""
    scene = Scene()
    placed(scene, *THREE)
    for key, price in ((2, 29), (1, 28), (1, -5), (3, 29.5), (3, 1_000), (2, 999)):
        assert scene.update({"_id": key, "price": price} | PAID, changed=("price",)) == []
    assert types(scene.update({"_id": 1, "price": 999.5} | PAID, changed=("price",))) == ["change"]


def test_a_member_whose_hidden_key_changes_is_judged_by_images_too() -> None:
    scene = Scene()
    placed(scene, *THREE)
    before = {"_id": 2, "price": 20, "name": "x"} | PAID
    assert scene.update(before | {"price": 25, "n": 1}, before=before) == []
    assert types(scene.update(before | {"price": 26, "name": "y"}, before=before)) == ["changeIndex"]


def test_a_member_that_keeps_its_place_and_looks_otherwise_counts() -> None:
    scene = Scene()
    placed(scene, *THREE)
    assert types(scene.update({"_id": 2, "price": 21, "name": "y"} | PAID, changed=("price", "name"))) == ["change"]


@pytest.mark.parametrize(("key", "price", "stays"), [(3, 29, True), (3, 31, False), (2, 31, False), (1, -9, True)])
def test_the_last_member_of_a_full_window_gives_way_to_nobody(key: int, price: int, stays: bool) -> None:
    scene = Scene()
    placed(scene, *THREE, limit=3)
    assert (scene.update({"_id": key, "price": price} | PAID, changed=("price",)) == []) is stays


@pytest.mark.parametrize(("key", "price", "stays"), [(2, 19, False), (2, 29, True), (3, 99, True), (1, 19, True)])
def test_the_first_member_of_a_page_stays_behind_who_is_skipped(key: int, price: int, stays: bool) -> None:
    scene = Scene()
    placed(scene, *THREE, skip=1, limit=3)
    assert (scene.update({"_id": key, "price": price} | PAID, changed=("price",)) == []) is stays


def computed_and_placed(scene: Scene) -> None:
    """A result that shows whether there are many, in the order of prices, each of which is ten times `_id`."""
    query = find(PAID, sort=BY_PRICE, projection={"many": {"$gt": ["$n", 2]}})
    records = [{"n": 3} | record | PAID for record in THREE]
    supplied(scene, query, *records, members=(1, 2, 3), shown=True, placed=True)


def test_a_member_whose_key_a_computed_projection_hides_counts_once_it_passes_another() -> None:
    """The member counts also if it is replaced as a whole."""
    scene = Scene()
    computed_and_placed(scene)
    assert scene.update({"_id": 2, "price": 25, "n": 4} | PAID, changed=("price", "n")) == []
    assert scene.write(WriteKind.REPLACE, 1, {"_id": 1, "price": 24, "n": 9} | PAID) == []
    assert scene.update({"_id": 2, "price": 24.5, "n": 4} | PAID, changed=("price",)) == []
    assert types(scene.update({"_id": 3, "price": 24.2, "n": 3} | PAID, changed=("price",))) == ["change"]


def test_a_member_that_keeps_its_place_and_of_which_another_value_is_computed_counts() -> None:
    scene = Scene()
    computed_and_placed(scene)
    assert types(scene.update({"_id": 2, "price": 21, "n": 0} | PAID, changed=("price", "n"))) == ["change"]


@pytest.mark.parametrize("changed", [("price",), ("price", "n")])
def test_a_member_that_moves_and_comes_back_is_followed(changed: tuple[str, ...]) -> None:
    """A member that returns has its first content and digest; a record that moved up to it meanwhile has passed it."""
    scene = Scene()
    computed_and_placed(scene)
    assert scene.update({"_id": 2, "price": 27, "n": 3} | PAID, changed=("price",)) == []
    assert scene.update({"_id": 2, "price": 20, "n": 3} | PAID, changed=("price",)) == []
    assert types(scene.update({"_id": 1, "price": 25, "n": 3} | PAID, changed=changed)) == ["change"]


def test_equal_keys_tell_nothing() -> None:
    scene = Scene()
    query = find(PAID, sort=BY_PRICE[:1], projection={"name": 1})
    supplied(scene, query, *THREE, members=(1, 2, 3), placed=True)
    assert types(scene.update({"_id": 2, "price": 10} | PAID, changed=("price",))) == ["change"]


def test_cells_divide_neighbours_that_they_do_not_share() -> None:
    """The one before keeps its side of where it stood, the one behind comes as near as that."""
    celled = [next(key for key in range(99) if write_partition(key, 2) == cell) for cell in (1, 0)]
    records = [{"_id": key, "price": 10 * place} for place, key in enumerate(celled)]
    for cell, key, price, stays in (
        (1, 0, 5, False), (1, 0, -5, True), (0, 1, 15, True), (0, 1, 5, True), (0, 1, -1, False),
    ):  # fmt: skip
        scene = Scene(
            cell=Cell(query_partition=0, write_partition=cell), shape=GridShape(query_partitions=1, write_partitions=2)
        )
        placed(scene, *records)
        assert (scene.update({"_id": celled[key], "price": price} | PAID, changed=("price",)) == []) is stays


def test_places_are_not_taken_over_by_another_cell() -> None:
    """Another cell has not seen the moves since the snapshot."""
    scene = Scene()
    known = Contributors(version=scene.version, records=THREE, complete=True, placed=True)
    scene.write(WriteKind.TICK, version=scene.version + 5)
    query = find(PAID, sort=BY_PRICE, projection={"name": 1})
    registered = scene.registration(query, (1, 2, 3), since=scene.version + 5, read_at=scene.version)
    scene.node.register(replace(registered, contributors=known), now_ms=scene.now_ms)
    scene.version += 6
    assert types(scene.update({"_id": 2, "price": 21} | PAID, changed=("price",))) == ["change"]


def test_writes_up_to_the_snapshot_are_judged_without_it() -> None:
    """The snapshot was taken after the result: a record that it has because it came in between ends the registration."""
    scene = Scene()
    registered = scene.registration(count(PAID), None)
    scene.node.register(registered, now_ms=scene.now_ms)
    known = Contributors(version=scene.version + 1, records=tuple(ids(1)), complete=True)
    scene.node.register(replace(registered, contributors=known), now_ms=scene.now_ms)
    assert types(scene.insert({"_id": 1} | PAID)) == ["add"]


def test_writes_that_came_before_the_contributors_did_are_replayed() -> None:
    """The replay covers the writes between the snapshot and the arrival of the contributors."""
    scene = Scene()
    registered = scene.registration(count(PAID, limit=1), None)
    scene.node.register(registered, now_ms=scene.now_ms)
    known = Contributors(version=scene.version, records=tuple(ids(1, 2)), complete=False)
    before = {"before": {"_id": 8} | PAID}
    assert scene.update({"_id": 8, "n": 1} | PAID, **before) == []
    assert scene.update({"_id": 9} | OPEN, before={"_id": 9} | OPEN) == []
    assert types(scene.node.register(replace(registered, contributors=known), now_ms=scene.now_ms)) == ["Activated"]
    assert scene.delete(1) == []
    assert scene.delete(2) == []  # 8 has been counted since
    assert types(scene.delete(8)) == ["remove"]


def test_contributors_are_not_taken_over_by_a_cell_that_missed_writes() -> None:
    """Another cell has not seen the records that came and went without changing the result."""
    scene = Scene()
    known = Contributors(version=scene.version, records=tuple(ids(1, 2)), complete=True)
    scene.write(WriteKind.TICK, version=scene.version + 5)
    registered = scene.registration(count(PAID, limit=1), None, since=scene.version + 5, read_at=scene.version)
    scene.node.register(replace(registered, contributors=known), now_ms=scene.now_ms)
    scene.version += 6
    assert types(scene.delete(1)) == ["match"]


def test_contributors_are_part_of_the_account_and_leave_it() -> None:
    scene = Scene()
    supplied(scene, count(PAID), *ids(1, 2, 3))
    held = scene.node.bytes
    supplied_more = Scene()
    supplied(supplied_more, count(PAID), *ids(1))
    assert held > supplied_more.node.bytes > 0
    scene.delete(1)
    assert scene.node.bytes == 0


# -- what is computed from records


_SUMS: Any = ({"$match": PAID}, {"$group": {"_id": "$day", "n": {"$sum": "$price"}}})


def test_a_group_is_changed_by_what_it_reads_of_the_records_that_it_is_computed_from() -> None:
    """Without any image before the write."""
    scene = Scene()
    record = {"_id": 1, "day": 1, "price": 5} | PAID
    supplied(scene, aggregate(*_SUMS), record)
    assert scene.update(record | {"note": "x"}) == []
    assert scene.update({"_id": 2, "day": 1} | OPEN) == []
    assert scene.delete(3) == []
    assert types(scene.update(record | {"price": 6})) == ["change"]


def test_a_group_takes_newcomers_and_loses_who_leaves() -> None:
    record = {"_id": 1, "day": 1, "price": 5} | PAID
    for write, expected in (
        (lambda scene: scene.update({"_id": 2} | PAID), ["add"]),
        (lambda scene: scene.update(record | OPEN), ["remove"]),
        (lambda scene: scene.delete(1), ["remove"]),
    ):
        scene = Scene()
        supplied(scene, aggregate(*_SUMS), record)
        assert types(write(scene)) == expected


def test_more_records_than_are_kept_are_judged_by_images() -> None:
    scene = Scene()
    supplied(scene, aggregate(*_SUMS), {"_id": 1, "day": 1, "price": 5} | PAID, complete=False)
    assert types(scene.delete(7)) == ["match"]


def test_only_a_record_that_may_count_changes_a_collated_count() -> None:
    """The node does not know the collation's order; records without a difference count as before."""
    scene = Scene()
    query = count({"name": {"$gt": "x"}, "g": 1}, collation={"locale": "sv"})
    supplied(scene, query, {"_id": 1, "name": "y", "g": 1})
    assert scene.update({"_id": 1, "name": "y", "g": 1, "n": 1}) == []
    assert scene.update({"_id": 2, "name": "y", "g": 2}) == []
    assert scene.delete(3) == []
    assert types(scene.update({"_id": 1, "name": "z", "g": 1})) == ["change"]
