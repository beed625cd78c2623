"""The node's work around matching: replay, retention, stale images, leases, capacity, partitions, isolation."""

from __future__ import annotations

from dataclasses import replace

import bson
import pytest

from quaestor.event_layer.codec import decode_image, encode_image
from quaestor.event_layer.partitioning import query_partition, write_partition
from quaestor.invalidation.matching.node import MatchingNode
from quaestor.model import Activated, AfterImage, Cancellation, Cell, GridShape, Invalidated, Refused, WriteKind
from tests.unit.matching.scene import Scene, aggregate, count, find, types

PAID = find({"status": "paid"})


# -- registration and replay


def test_a_write_that_arrived_before_the_registration_is_replayed() -> None:
    scene = Scene()
    registration = scene.registration(PAID, (1,))
    scene.insert({"_id": 2, "status": "paid"})
    assert types(scene.node.register(registration, now_ms=scene.now_ms)) == ["add"]
    assert scene.node.registrations == 0


def test_writes_that_the_read_has_seen_for_certain_are_not_replayed() -> None:
    scene = Scene()
    scene.insert({"_id": 2, "status": "paid"})
    assert types(scene.register(PAID, (2,))) == ["Activated"]


def test_in_the_uncertain_zone_what_agrees_with_the_result_is_passed_over() -> None:
    scene = Scene()
    since = scene.version
    scene.insert({"_id": 1, "status": "paid"})
    scene.insert({"_id": 2, "status": "open"})
    assert types(scene.register(PAID, (1,), since=since, read_at=scene.version)) == ["Activated"]


def test_in_the_uncertain_zone_what_contradicts_the_result_invalidates() -> None:
    scene = Scene()
    since = scene.version
    scene.insert({"_id": 1, "status": "paid"})
    assert types(scene.register(PAID, (), since=since, read_at=scene.version)) == ["add"]


def test_in_the_uncertain_zone_a_touched_member_invalidates() -> None:
    scene = Scene()
    since = scene.version
    scene.update({"_id": 1, "status": "paid", "x": 2})
    assert types(scene.register(PAID, (1,), since=since, read_at=scene.version)) == ["change"]


def test_images_of_writes_that_the_read_has_seen_are_ignored_when_they_arrive_late() -> None:
    scene = Scene()
    scene.register(PAID, (1,), since=500, read_at=500)
    assert scene.delete(1, version=400) == []
    assert types(scene.delete(1, version=501)) == ["remove"]


def test_a_registration_older_than_the_retained_writes_is_refused() -> None:
    scene = Scene()
    (refused,) = scene.register(PAID, (1,), since=99)
    assert isinstance(refused, Refused)
    assert "99" in refused.reason


def test_trimmed_writes_raise_the_floor() -> None:
    scene = Scene(retention_ms=1_000)
    since = scene.version
    scene.insert({"_id": 2, "status": "open"})
    scene.node.expire(scene.now_ms + 1_000)
    assert types(scene.register(PAID, (), since=since)) == ["Activated"]
    scene.node.expire(scene.now_ms + 1_001)
    assert types(scene.register(PAID, (), since=since)) == ["Refused"]
    assert types(scene.register(PAID, ())) == ["Activated"]


def test_only_so_many_images_are_retained() -> None:
    scene = Scene(max_images=2)
    since = scene.version
    for key in range(3):
        scene.insert({"_id": key, "status": "open"})
    assert types(scene.register(PAID, (), since=since)) == ["Refused"]
    assert types(scene.register(PAID, (), since=since + 1)) == ["Activated"]


def test_a_node_that_has_seen_nothing_refuses() -> None:
    node = MatchingNode(
        Cell(query_partition=0, write_partition=0),
        GridShape(query_partitions=1, write_partitions=1),
        retention_ms=1_000,
    )
    assert types(node.register(Scene().registration(PAID), now_ms=0)) == ["Refused"]


def test_registering_again_only_confirms() -> None:
    scene = Scene()
    registration = scene.registration(PAID, (1,))
    for _ in range(2):
        assert types(scene.node.register(registration, now_ms=scene.now_ms)) == ["Activated"]
    assert scene.node.registrations == 1


def test_registering_again_after_it_fired_fires_again() -> None:
    scene = Scene()
    registration = scene.registration(PAID, (1,))
    scene.node.register(registration, now_ms=scene.now_ms)
    scene.delete(1)
    assert types(scene.node.register(registration, now_ms=scene.now_ms)) == ["remove"]


def test_a_full_node_refuses() -> None:
    scene = Scene(max_registrations=1)
    assert types(scene.register(PAID)) == ["Activated"]
    assert types(scene.register(PAID)) == ["Refused"]


def test_a_node_refuses_more_queries_without_an_index_than_it_can_try() -> None:
    scene = Scene(max_unindexed=1)
    assert types(scene.register(find({"a": {"$ne": 1}}))) == ["Activated"]
    assert types(scene.register(find({"a": {"$ne": 1}}, limit=5))) == ["Activated"]
    assert types(scene.register(find({"a": {"$ne": 2}}))) == ["Refused"]
    assert types(scene.register(find({"a": {"$ne": 2}}, namespace="shop.other"))) == ["Activated"]
    assert types(scene.register(PAID)) == ["Activated"]


def test_a_malformed_query_is_refused_with_the_reason() -> None:
    scene = Scene()
    bad = replace(scene.registration(PAID), query=find({"a": {"$gt": 1, "$nonsense": 2}}), query_id="bad")
    (refused,) = scene.node.register(bad, now_ms=scene.now_ms)
    assert isinstance(refused, Refused)
    assert "$nonsense" in refused.reason
    assert types(scene.register(PAID)) == ["Activated"]


def test_cancelled_registrations_do_not_fire() -> None:
    scene = Scene()
    registration = scene.registration(PAID, (1,))
    scene.node.register(registration, now_ms=scene.now_ms)
    scene.register(PAID, (1,))
    scene.node.cancel(
        Cancellation(tenant="t", query_id=registration.query_id, registration_ids=(registration.id, "unknown"))
    )
    (fired,) = scene.delete(1)
    assert fired.registration_ids == ("app:2",)


def test_registrations_whose_lease_is_over_are_forgotten() -> None:
    scene = Scene()
    scene.register(PAID, (1,), expires_in_ms=5_000)
    scene.node.expire(scene.now_ms + 4_000)
    assert scene.node.registrations == 1
    scene.node.expire(scene.now_ms + 6_000)
    assert scene.node.registrations == 0
    assert scene.delete(1) == []


def test_nothing_is_left_of_queries_without_registrations() -> None:
    scene = Scene()
    lookup = {"$lookup": {"from": "makers", "localField": "m", "foreignField": "_id", "as": "maker"}}
    for query in (PAID, count({"a": {"$gt": 1}}), find({"b": {"$ne": 1}}), aggregate({"$match": {"c": 1}}, lookup)):
        scene.register(query, None if query is not PAID else (1,), expires_in_ms=1)
    assert scene.node.queries == 4
    scene.node.expire(scene.now_ms + 10_000)
    assert scene.node.queries == 0
    assert scene.node._active.namespaces == {}


# -- stale and repeated images


def test_an_image_older_than_the_newest_of_its_record_is_ignored() -> None:
    scene = Scene()
    scene.update({"_id": 1, "status": "open"}, version=300)
    scene.register(PAID, (), since=200)
    assert scene.update({"_id": 1, "status": "paid"}, version=250) == []


def test_an_image_older_than_a_delete_is_ignored() -> None:
    scene = Scene()
    scene.delete(1, version=300)
    scene.register(PAID, (), since=200)
    assert scene.update({"_id": 1, "status": "paid"}, version=250) == []


def test_the_same_id_inserted_again_after_a_delete_is_a_new_record() -> None:
    scene = Scene()
    scene.delete(1)
    scene.register(PAID, ())
    assert types(scene.insert({"_id": 1, "status": "paid"})) == ["add"]


def test_a_repeated_image_is_ignored() -> None:
    scene = Scene()
    image = scene.image(WriteKind.UPDATE, 1, {"_id": 1, "status": "paid"})
    scene.node.process(image, now_ms=scene.now_ms)
    scene.register(PAID, (), since=100, read_at=100)
    scene.register(PAID, (), since=100, read_at=100)
    assert scene.node.process(image, now_ms=scene.now_ms) == []


def test_two_writes_of_a_record_in_one_transaction_both_count() -> None:
    scene = Scene()
    scene.register(PAID, ())
    scene.update({"_id": 1, "status": "open"}, version=300)
    assert types(scene.update({"_id": 1, "status": "paid"}, version=300)) == ["add"]


# -- events that are not writes


def test_a_tick_advances_freshness_only() -> None:
    scene = Scene()
    scene.register(PAID, (1,))
    assert scene.write(WriteKind.TICK, namespace="*") == []
    assert (scene.node.watermark, scene.node.fresh_as_of_ms) == (scene.version, scene.now_ms)
    assert scene.node.registrations == 1


@pytest.mark.parametrize("namespace", ["shop.items", "shop", "shop.*", "*"])
def test_a_collection_event_fires_what_depends_on_the_collection(namespace: str) -> None:
    scene = Scene()
    scene.register(PAID, (1,))
    scene.register(find({}, namespace="shopping.items"), ())
    assert types(scene.write(WriteKind.COLLECTION, namespace=namespace))[0] == "match"
    assert scene.node.registrations == (0 if namespace == "*" else 1)


def test_a_collection_event_is_replayed() -> None:
    scene = Scene()
    registration = scene.registration(PAID, (1,))
    scene.write(WriteKind.COLLECTION)
    assert types(scene.node.register(registration, now_ms=scene.now_ms)) == ["match"]


def test_a_collection_event_on_a_joined_collection_counts() -> None:
    scene = Scene()
    lookup = {"$lookup": {"from": "makers", "localField": "m", "foreignField": "_id", "as": "maker"}}
    scene.register(aggregate({"$match": {"a": 1}}, lookup), None)
    assert types(scene.write(WriteKind.COLLECTION, namespace="shop.makers")) == ["match"]


def test_after_a_gap_everything_is_invalid_and_older_reads_are_refused() -> None:
    scene = Scene()
    scene.register(PAID, (1,))
    old = scene.registration(PAID, (1,))
    (fired,) = scene.write(WriteKind.GAP, namespace="*")
    assert isinstance(fired, Invalidated)
    assert types(scene.node.register(old, now_ms=scene.now_ms)) == ["Refused"]
    assert types(scene.register(PAID, (1,))) == ["Activated"]


def test_after_a_gap_of_unknown_extent_the_next_event_is_the_floor() -> None:
    scene = Scene()
    scene.write(WriteKind.GAP, namespace="*", version=0)
    assert types(scene.register(PAID, (1,))) == ["Refused"]
    scene.write(WriteKind.TICK, namespace="*")
    assert types(scene.register(PAID, (1,))) == ["Activated"]


# -- partitions


def test_each_record_and_each_query_belongs_to_one_partition() -> None:
    keys = ["a", 7, None, b"x", {"a": 1}]
    assert {write_partition(key, 1) for key in keys} == {0}
    assert all(0 <= write_partition(key, 3) < 3 for key in keys)
    assert len({write_partition(key, 16) for key in range(200)}) == 16
    assert len({query_partition(f"{number:032x}", 16) for number in range(200)}) == 16


def test_routing_never_changes_between_versions() -> None:
    """Nodes of different versions must agree: these values are part of the wire format."""
    assert [write_partition(key, 1000) for key in ("a", 7, None)] == [469, 199, 836]
    assert query_partition("0" * 32, 1000) == 747


def test_members_of_other_write_partitions_are_not_kept() -> None:
    shape = GridShape(query_partitions=1, write_partitions=4)
    cells = [Scene(cell=Cell(query_partition=0, write_partition=number), shape=shape) for number in range(4)]
    members = tuple(range(40))
    for scene in cells:
        scene.register(PAID, members)
    kept = [sum(len(space.members) for space in scene.node._active.namespaces.values()) for scene in cells]
    assert sum(kept) == 40
    assert all(kept)


# -- what the node measures


def test_activation_reports_the_write_rate_of_the_members() -> None:
    scene = Scene()
    for _ in range(20):
        scene.now_ms += 500
        scene.update({"_id": 1, "status": "paid"})
        scene.update({"_id": 2, "status": "paid"})
    (activated,) = scene.register(PAID, (1,))
    assert activated.write_rate_hz == pytest.approx(2.0, rel=0.1)
    (activated,) = scene.register(PAID, (1, 2, 3))
    assert activated.write_rate_hz == pytest.approx(4.0, rel=0.1)


def test_equal_predicates_are_evaluated_once_per_write() -> None:
    scene = Scene()
    for limit in range(1, 51):
        scene.register(find({"status": "paid"}, limit=limit), ())
        scene.register(find({"status": "paid"}, limit=limit), ())
    assert len(scene.insert({"_id": 1, "status": "paid"})) == 50
    assert scene.node.tally.tried_last == 1


def test_a_predicate_that_raises_invalidates_its_query_and_no_other() -> None:
    scene = Scene()
    scene.register(PAID, ())
    scene.register(find({"status": "paid", "a": 1}), ())
    namespace = scene.node._active.namespaces["shop.items"]
    broken = next(item for item in namespace.filters.values() if item.source == bson.encode({"status": "paid"}))

    def matches(record: object) -> bool:
        raise RuntimeError("unforeseen")

    broken.matches = matches
    assert types(scene.insert({"_id": 1, "status": "paid", "a": 2})) == ["match"]
    assert (scene.node.registrations, scene.node.tally.failed) == (1, 1)


def test_a_value_that_cannot_be_ordered_hides_no_match() -> None:
    scene = Scene()
    scene.register(find({"a": 5}), ())
    scene.register(find({"b": 5}), ())
    fired = scene.insert({"_id": 1, "a": object(), "b": 5})
    assert types(fired) == ["match", "add"] or types(fired) == ["add", "match"]


def test_images_from_the_wire_are_judged_like_any_other() -> None:
    """Images from the wire decode their records on demand; an earlier image still shows what the next write replaces."""
    scene = Scene()
    scene.node.process(_over_the_wire(scene.image(WriteKind.INSERT, 1, {"_id": 1, "status": "open"})), now_ms=0)
    scene.register(count({"status": "paid"}), None)
    for value in (1, 2):
        image = scene.image(WriteKind.REPLACE, 1, {"_id": 1, "status": "open", "x": value})
        assert scene.node.process(_over_the_wire(image), now_ms=0) == []
    image = scene.image(WriteKind.REPLACE, 1, {"_id": 1, "status": "paid"})
    assert types(scene.node.process(_over_the_wire(image), now_ms=0)) == ["add"]


def _over_the_wire(image: AfterImage) -> AfterImage:
    return decode_image(encode_image(image))


def test_the_write_rate_counts_from_the_first_tick_not_from_the_first_write() -> None:
    """Ten quiet minutes and one write are not one write in a moment."""
    scene = Scene()
    scene.now_ms += 600_000
    scene.insert({"_id": 1, "a": 1})
    (activated,) = scene.register(find({"a": 1}), (1,), expires_in_ms=60_000)
    assert isinstance(activated, Activated)
    assert 0 < activated.write_rate_hz < 0.02
