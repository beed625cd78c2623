"""The filtering stage: membership, versions, records that come again, and what needs no membership at all."""

from __future__ import annotations

from dataclasses import replace

import bson
import pytest
from bson.raw_bson import RawBSONDocument

from quaestor.incremental.versions import Versions
from quaestor.model import AfterImage, WriteKind
from tests.unit.matching.maintained.scene import NAMESPACE, Scene, aggregate, event_rows, find

EVEN = find(filter={"n": {"$mod": [2, 0]}})


def test_a_record_comes_changes_and_goes() -> None:
    scene = Scene(EVEN)
    assert event_rows(scene.put(1, n=2)) == [("add", 1, None, None)]
    assert event_rows(scene.put(1, n=4)) == [("change", 1, None, None)]
    assert scene.shown() == [{"_id": 1, "n": 4}]
    assert event_rows(scene.put(1, n=5)) == [("remove", 1, None, None)]
    assert event_rows(scene.put(1, n=7)) == []
    assert event_rows(scene.put(1, n=8)) == [("add", 1, None, None)]
    assert event_rows(scene.delete(1)) == [("remove", 1, None, None)]
    assert scene.shown() == []


def test_a_change_that_the_projection_hides_makes_no_event() -> None:
    scene = Scene(find(projection={"n": 1}), [{"_id": 1, "n": 1, "m": 1}])
    assert scene.put(1, n=1, m=2) == []
    assert event_rows(scene.put(1, n=1.0, m=2)) == [("change", 1, None, None)], (
        "another numeric type is another value to see"
    )
    assert scene.shown() == [{"_id": 1, "n": 1.0}]


def test_an_image_older_than_the_newest_known_is_ignored() -> None:
    scene = Scene(EVEN)
    late = scene.image(1, {"n": 2})
    scene.put(1, n=4)
    assert scene.maintained.apply(late) == []
    assert scene.shown() == [{"_id": 1, "n": 4}]


def test_an_image_older_than_a_known_delete_is_ignored() -> None:
    scene = Scene(EVEN)
    late = scene.image(1, {"n": 2})
    scene.delete(1)
    assert scene.maintained.apply(late) == []
    assert scene.shown() == []


def test_an_id_inserted_again_after_its_delete_is_a_new_record() -> None:
    scene = Scene(EVEN, [{"_id": 1, "n": 2}])
    scene.delete(1)
    assert event_rows(scene.put(1, n=6)) == [("add", 1, None, None)]
    assert scene.shown() == [{"_id": 1, "n": 6}]


def test_images_that_the_read_contains_are_ignored() -> None:
    scene = Scene(EVEN, [{"_id": 1, "n": 2}])
    assert scene.maintained.apply(scene.image(1, None, version=10)) == []
    assert scene.ids() == [1]


def test_the_same_id_in_another_numeric_type_is_the_same_record() -> None:
    scene = Scene(EVEN, [{"_id": 1, "n": 2}])
    assert event_rows(scene.put(1.0, n=4)) == [("change", 1.0, None, None)]
    assert len(scene.shown()) == 1


def test_an_update_whose_record_is_gone_counts_as_its_delete() -> None:
    scene = Scene(EVEN, [{"_id": 1, "n": 2}])
    gone = replace(scene.image(1, {"n": 4}), after=None, after_exact=False)
    assert event_rows(scene.maintained.apply(gone)) == [("remove", 1, None, None)]
    assert scene.delete(1) == []


def test_lazily_decoded_records_are_decoded() -> None:
    scene = Scene(EVEN)
    image = scene.image(1, {"n": 2})
    raw = RawBSONDocument(bson.encode(dict(image.after or {})))
    scene.maintained.apply(replace(image, after=raw))
    assert scene.shown() == [{"_id": 1, "n": 2}]
    assert type(scene.shown()[0]) is dict


def test_other_namespaces_and_ticks_do_not_concern_it() -> None:
    scene = Scene(EVEN)
    assert scene.maintained.apply(scene.image(1, {"n": 2}, namespace="db.elsewhere")) == []
    assert scene.maintained.apply(AfterImage(namespace="*", kind=WriteKind.TICK, version=99)) == []
    assert scene.maintained.renewal is None


@pytest.mark.parametrize(
    ("namespace", "kind"),
    [(NAMESPACE, WriteKind.COLLECTION), ("db.*", WriteKind.COLLECTION), ("*", WriteKind.GAP)],
)
def test_after_a_collection_event_or_a_gap_everything_is_read_again(namespace: str, kind: WriteKind) -> None:
    """Until then the result stands still, and writes that come meanwhile are not lost."""
    scene = Scene(EVEN, [{"_id": 1, "n": 2}, {"_id": 2, "n": 4}])
    scene.maintained.apply(AfterImage(namespace=namespace, kind=kind, version=50))
    request = scene.maintained.renewal
    assert request is not None
    assert request.at_least == 50
    assert scene.ids() == [1, 2]
    scene.version = 60
    assert scene.put(3, n=6) == []
    events = scene.maintained.renew([{"_id": 2, "n": 8}], 55)
    assert event_rows(events) == [("remove", 1, None, None), ("change", 2, None, None), ("add", 3, None, None)]
    assert scene.maintained.renewal is None


def test_a_collection_event_elsewhere_does_not_concern_it() -> None:
    scene = Scene(EVEN)
    scene.maintained.apply(AfterImage(namespace="db.elsewhere", kind=WriteKind.COLLECTION, version=50))
    assert scene.maintained.renewal is None


def test_by_before_images_an_unordered_find_makes_events_without_kept_members() -> None:
    scene = Scene(EVEN, [{"_id": 1, "n": 2}], before_images=True)
    assert event_rows(scene.put(1, n=4)) == [("change", 1, None, None)]
    assert event_rows(scene.put(2, n=4)) == [("add", 2, None, None)]
    assert event_rows(scene.put(1, n=5)) == [("remove", 1, None, None)]
    assert event_rows(scene.put(1, n=7)) == []
    assert scene.shown() == []


def test_by_before_images_an_image_without_one_asks_for_a_renewal() -> None:
    scene = Scene(aggregate({"$group": {"_id": None, "n": {"$sum": "$n"}}}), [], before_images=True)
    scene.put(1, n=2)
    blind = replace(scene.image(1, {"n": 4}), before=None, before_known=False)
    assert scene.maintained.apply(blind) == []
    request = scene.maintained.renewal
    assert request is not None
    assert "changeStreamPreAndPostImages" in request.reason
    assert scene.shown() == [{"_id": None, "n": 2}]


def test_redelivery_is_recognised_where_it_would_count_twice() -> None:
    """A transaction may write a record twice under one version; the same image again is a redelivery."""
    versions = Versions(0, repeatable=False)
    first = AfterImage(namespace="n", kind=WriteKind.UPDATE, version=5, key=1, after={"_id": 1, "a": 1})
    second = replace(first, after={"_id": 1, "a": 2})
    assert [versions.admit(("n", 1), image) for image in (first, second, first, second)] == [True, True, False, False]


def test_memory_that_recognises_stale_images_can_be_given_up() -> None:
    versions = Versions(0, repeatable=True)
    for key in range(10):
        versions.admit(("n", key), AfterImage(namespace="n", kind=WriteKind.DELETE, version=key + 1, key=key))
    versions.forget(8)
    assert len(versions) == 3
    assert not versions.admit(("n", 0), AfterImage(namespace="n", kind=WriteKind.DELETE, version=7, key=0))
