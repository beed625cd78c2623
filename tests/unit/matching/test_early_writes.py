"""Writes that come before their turn: they invalidate at once, and everything that relies on order stays as it was."""

from __future__ import annotations

from quaestor.model import AfterImage, WriteKind
from tests.unit.matching.scene import Scene, count, find, types

PAID = find({"status": "paid"})
FAR_AHEAD = 500


def early(scene: Scene, record: dict[str, object], version: int = FAR_AHEAD) -> AfterImage:
    """The insertion of a record, to be handed to the node ahead of its turn."""
    return scene.image(WriteKind.INSERT, record["_id"], record, version=version)


def test_an_early_write_invalidates_and_leaves_watermark_and_freshness_alone() -> None:
    scene = Scene()
    scene.register(PAID, (1,))
    before = scene.node.watermark, scene.node.fresh_as_of_ms
    fired = scene.node.overtake(early(scene, {"_id": 2, "status": "paid"}), now_ms=scene.now_ms)
    assert types(fired) == ["add"]
    assert fired[0].version == FAR_AHEAD
    assert (scene.node.watermark, scene.node.fresh_as_of_ms) == before


def test_an_early_write_that_changes_no_result_invalidates_nothing() -> None:
    scene = Scene()
    scene.register(PAID, (1,))
    assert scene.node.overtake(early(scene, {"_id": 2, "status": "open"}), now_ms=scene.now_ms) == []
    assert scene.node.registrations == 1


def test_in_its_turn_the_write_ends_no_result_that_was_read_after_it() -> None:
    """The app dates its next read by the early write, so the same write and all before it are passed over."""
    scene = Scene()
    scene.register(PAID, (1,))
    image = early(scene, {"_id": 2, "status": "paid"})
    scene.node.overtake(image, now_ms=scene.now_ms)
    assert types(scene.register(PAID, (1, 2), since=FAR_AHEAD)) == ["Activated"]
    assert scene.insert({"_id": 9, "status": "paid"}) == []
    assert scene.node.process(image, now_ms=scene.now_ms) == []
    assert types(scene.insert({"_id": 3, "status": "paid"}, version=FAR_AHEAD + 1)) == ["add"]


def test_in_its_turn_the_write_ends_a_result_that_did_not_hear_of_it_early() -> None:
    """An early write may be missing anywhere: the write pipeline alone is enough."""
    scene = Scene()
    scene.register(PAID, (1,))
    assert types([*scene.node.process(early(scene, {"_id": 2, "status": "paid"}), now_ms=scene.now_ms)]) == ["add"]


def test_a_registration_that_arrives_behind_an_early_write_is_judged_by_it() -> None:
    """The read came before the write, its registration after it."""
    scene = Scene()
    scene.node.overtake(early(scene, {"_id": 2, "status": "paid"}), now_ms=scene.now_ms)
    assert types(scene.register(PAID, (1,))) == ["add"]
    assert scene.node.registrations == 0


def test_an_early_write_whose_turn_is_over_is_passed_over() -> None:
    scene = Scene()
    scene.insert({"_id": 5, "status": "open"}, version=FAR_AHEAD + 1)
    scene.register(PAID, (1,), since=FAR_AHEAD - 1)
    assert scene.node.overtake(early(scene, {"_id": 2, "status": "paid"}), now_ms=scene.now_ms) == []


def test_ticks_and_gaps_mean_nothing_before_their_turn() -> None:
    scene = Scene()
    scene.register(PAID, (1,))
    for kind in (WriteKind.TICK, WriteKind.GAP):
        image = scene.image(kind, version=FAR_AHEAD, namespace="*")
        assert scene.node.overtake(image, now_ms=scene.now_ms) == []
    assert scene.node.registrations == 1
    assert scene.node.watermark < FAR_AHEAD


def test_an_early_drop_of_a_collection_ends_what_is_read_from_it() -> None:
    scene = Scene()
    scene.register(PAID, (1,))
    dropped = scene.image(WriteKind.COLLECTION, version=FAR_AHEAD)
    assert types(scene.node.overtake(dropped, now_ms=scene.now_ms)) == ["match"]
    assert types(scene.register(PAID, (1,))) == ["match"], "of a read that did not see the drop"


def test_after_a_gap_no_early_write_from_before_it_counts() -> None:
    """Another history begins: writes that were seen ahead may have never been."""
    scene = Scene()
    scene.node.overtake(early(scene, {"_id": 2, "status": "paid"}), now_ms=scene.now_ms)
    scene.write(WriteKind.GAP, namespace="*", version=200)
    assert types(scene.register(PAID, (1,), since=200)) == ["Activated"]


def test_an_early_write_of_a_counted_record_ends_the_count() -> None:
    scene = Scene()
    scene.register(count({"status": "paid"}), (1,))
    assert types(scene.node.overtake(early(scene, {"_id": 2, "status": "paid"}), now_ms=scene.now_ms)) == ["add"]
