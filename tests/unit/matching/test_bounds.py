"""Bounds of a node's memory, and correct measurements: leases, compiled predicates, the collector, compact sets."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from typing import Any

import bson
import pytest

from quaestor.gc_freezing import GcFreezing
from quaestor.invalidation.matching.compact_set import CompactSet, added, elements, removed, size
from quaestor.invalidation.matching.entities import Filter
from quaestor.invalidation.matching.leases import Leases
from quaestor.invalidation.matching.predicates import Predicates
from quaestor.invalidation.matching.retention import Record, Retention
from quaestor.model import AfterImage, WriteKind
from quaestor.planning.access_entries import Equality
from quaestor.planning.plan import plan_query
from quaestor.planning.rules import SharedRules
from quaestor.query.compiled import RECENT
from quaestor.query.regex import ENGINES
from tests.unit.matching.scene import Scene, find, types

# -- leases


def test_leases_end_within_a_second_after_their_time() -> None:
    leases = Leases()
    leases.add("a", 10_500)
    leases.add("b", 12_000)
    assert leases.over(10_500) == []
    assert leases.over(11_000) == ["a"]
    assert leases.over(13_000) == ["b"]
    assert leases.over(99_000) == []


def test_leases_that_were_given_up_do_not_stay_until_their_time() -> None:
    """A result that changes every second is registered every second, each time for an hour."""
    scene = Scene()
    for second in range(300):
        for number in range(20):
            scene.register(find({"a": number}), expires_in_ms=3_600_000)
            scene.insert({"_id": f"{second}.{number}", "a": number})
        scene.now_ms += 1_000
        scene.node.expire(scene.now_ms)
    assert scene.node.registrations == 0
    assert len(scene.node._live.leases) < 60 * 20 * 6


def test_compacting_loses_no_lease_and_takes_turns() -> None:
    leases = Leases()
    for number in range(1_000):
        leases.add(f"{number}", number * 500)
    given_up = {f"{number}" for number in range(0, 1_000, 2)}
    for _ in range(500 // 60 + 1):
        leases.compact(lambda query, _: query not in given_up)
    assert len(leases) == 500
    assert {*leases.over(10**9)} == {f"{number}" for number in range(1, 1_000, 2)}
    leases.compact(lambda query, _: True)
    assert leases.over(10**9) == []


# -- compiled predicates


def filters(number: int) -> list[Filter]:
    made = [Filter(b"%d" % n, bson.encode({"a": n})) for n in range(number)]
    for n, item in enumerate(made):
        item.access = Equality("a", (n,))
    return made


def test_only_so_many_predicates_are_kept_compiled_and_all_answer() -> None:
    predicates = Predicates(most=10)
    made = filters(50)
    for _ in range(3):
        for number, item in enumerate(made):
            assert predicates.holds(item, {"a": number})
            assert not predicates.holds(item, {"a": -1})
    assert sum(item.matches is not None for item in made) <= 10


# -- the collector


def thawed_and_frozen() -> None:
    """Make a test's frozen objects collectable again; the objects of the whole run stay frozen (tests/conftest.py)."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()


def test_registrations_are_moved_out_of_the_collectors_sight() -> None:
    thresholds = gc.get_threshold()
    try:
        freezing = GcFreezing(every=100)
        before = gc.get_freeze_count()
        assert before > 0
        registrations = [[number] for number in range(500)]
        for _ in range(99):
            freezing.allocated()
        assert gc.get_freeze_count() == before
        freezing.allocated()
        assert gc.get_freeze_count() >= before + len(registrations)
    finally:
        gc.set_threshold(*thresholds)
        thawed_and_frozen()


def test_a_node_with_a_process_of_its_own_never_pauses_for_a_full_collection() -> None:
    thresholds = gc.get_threshold()
    try:
        freezing = GcFreezing(every=1_000)
        full = gc.get_stats()[2]["collections"]
        kept = []
        for number in range(100_000):
            kept.append([number])
            freezing.allocated()
        assert gc.get_stats()[2]["collections"] == full
    finally:
        gc.set_threshold(*thresholds)
        thawed_and_frozen()


def test_by_default_the_collector_is_left_alone() -> None:
    freezing = GcFreezing(every=0)
    before = gc.get_freeze_count()
    for _ in range(1_000):
        freezing.allocated()
    assert gc.get_freeze_count() == before


# -- sharing


def test_queries_of_one_shape_share_their_rules() -> None:
    shared = SharedRules()
    plan, other = shared.of(plan_query(find({"a": 1}, limit=3))), shared.of(plan_query(find({"a": 2}, limit=7)))
    assert plan is other
    assert shared.of(plan_query(find({"a": 1}, sort=(("a", 1),)))) is not plan


def test_a_slot_holds_none_one_or_many() -> None:
    slot = None
    assert (size(slot), list(elements(slot))) == (0, [])
    slot = added(slot, "a")
    assert (slot, size(slot)) == ("a", 1)
    slot = added(added(slot, "b"), "b")
    assert isinstance(slot, CompactSet)
    assert list(elements(slot)) == ["a", "b"]
    assert removed(slot, "a") == "b"
    assert removed("b", "b") is None
    assert removed("b", "z") == "b"


# -- retained writes


def test_retained_writes_are_bounded_by_their_bytes() -> None:
    """A few huge records push out what came before, and who needs that is refused, not served stale."""
    scene = Scene(max_image_bytes=10_000_000)
    since = scene.version
    for number in range(200):
        scene.node.process(scene.image(WriteKind.INSERT, number, {"_id": number}), now_ms=scene.now_ms, encoded=100)
    assert types(scene.register(find({"a": 1}), (), since=since)) == ["Activated"]
    for number in range(3):
        image = scene.image(WriteKind.INSERT, f"huge{number}", {"_id": f"huge{number}"})
        scene.node.process(image, now_ms=scene.now_ms, encoded=1_000_000)
    assert types(scene.register(find({"a": 2}), (), since=since)) == ["Refused"]
    assert types(scene.register(find({"a": 2}), ())) == ["Activated"]


def test_one_record_larger_than_the_bound_is_still_matched_and_retained() -> None:
    scene = Scene(max_image_bytes=1_000)
    scene.register(find({"a": 1}))
    since = scene.version
    image = scene.image(WriteKind.INSERT, 1, {"_id": 1, "a": 1})
    assert types(scene.node.process(image, now_ms=scene.now_ms, encoded=10_000_000)) == ["add"]
    assert types(scene.register(find({"a": 1}), (), since=since)) == ["add"]


def test_a_replay_sees_the_writes_of_its_own_collections_and_collection_events_in_their_order() -> None:
    retention = Retention(retention_ms=1_000, max_images=6)

    def write(version: int, namespace: str, kind: WriteKind = WriteKind.INSERT) -> None:
        image = AfterImage(namespace=namespace, kind=kind, version=version, key=version, after={"_id": version})
        record = None if kind is WriteKind.COLLECTION else Record(namespace, b"%d" % version)
        retention.admit(image, record, 0, now_ms=0)

    def newer(since: int, *namespaces: str) -> list[int]:
        return [entry.version for entry in retention.newer_than(since, namespaces)]

    write(1, "d.a")
    write(2, "d.b")
    write(3, "d.c", WriteKind.COLLECTION)
    write(4, "d.a")
    write(5, "d.b")
    assert newer(0, "d.a") == [1, 3, 4]
    assert newer(1, "d.a", "d.b") == [2, 3, 4, 5]
    assert newer(0, "d.none") == [3]
    write(6, "d.a")
    write(7, "d.a")
    write(8, "d.a")
    assert newer(0, "d.a", "d.b") == [3, 4, 5, 6, 7, 8]
    retention.trim(now_ms=5_000)
    assert newer(0, "d.a", "d.b") == []
    write(9, "d.a")
    assert newer(0, "d.a") == [9]


# -- what elements are taken to cost


@pytest.mark.parametrize(
    ("condition", "members"),
    [
        (lambda n: {"a": n}, 0),
        (lambda n: {"a": n, "b": "x"}, 20),
        (lambda n: {"v": {"$gte": n * 1.5, "$lt": n * 1.5 + 1}}, 1),
        (lambda n: {"a": {"$in": list(range(40 * n, 40 * n + 40))}}, 1),
        (lambda n: {"$nor": [{"a": n}, {"b": {"$gt": n}}]}, 1),
        (lambda n: {"a": {"$regex": f"{n:09}$"}}, 1),
        (lambda n: {"a": {"$regex": f"x{n:09}|y{n:09}|{n:09}z", "$options": "i"}}, 1),
        (lambda n: {"b": {"$ne": n}}, 1),
        (lambda n: {"b": {"$nin": list(range(40 * n, 40 * n + 40))}}, 1),
        (lambda n: {"a": {"$mod": [10_000, n]}}, 1),
        (lambda n: {"a": {"$not": {"$elemMatch": {"$lt": n + 2}}}}, 1),
    ],
    ids=["equality", "members", "range", "in", "nor", "text", "texts", "ne", "nin", "remainder", "unindexed"],
)
def test_the_estimate_of_a_nodes_bytes_is_near_what_it_allocates(
    condition: Callable[[int], dict[str, Any]], members: int
) -> None:
    scene = Scene()
    scene.register(find({"first": 1}))  # what is loaded and cached by the first of all belongs to nobody
    scene.register(find(condition(-1)))
    registrations = [
        scene.registration(find(condition(n)), tuple(range(n * members, (n + 1) * members))) for n in range(600)
    ]
    known = scene.node.bytes
    tracemalloc.start()
    try:
        for registration in registrations:
            scene.node.register(registration, now_ms=scene.now_ms)
        ENGINES.clear()  # within a budget of their own, and not the node's
        RECENT.clear()  # bounded by their number
        if plan_query(find(condition(0))).index == "always try":
            scene.insert({"_id": "another", "a": [-1]})  # it is compiled when it is first tried
        gc.collect()
        allocated, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert scene.node.registrations == 602
    assert 0.6 < (scene.node.bytes - known) / allocated < 2.0
