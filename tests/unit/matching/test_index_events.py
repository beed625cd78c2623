"""Events that tell of indexes end the results that an index may find otherwise, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from quaestor.event_layer.codec import decode_image, encode_image
from quaestor.model import AfterImage, Query, WriteKind
from tests.unit.matching.scene import NAMESPACE, Scene, aggregate, find

OLD, NEW = (("b", "c"),), (("a", "r"), ("b", "c"))
SHOWN = {"name": 1}
UNORDERED = find({"a": 1})
PROJECTED = find({"a": 1}, projection=SHOWN)
JOIN = {"$lookup": {"from": "makers", "localField": "m", "foreignField": "k", "as": "makers"}}


def of_indexes(version: int, *first_fields: str, listed: Any = None, namespace: str = NAMESPACE) -> AfterImage:
    """The event as it comes out of the pipeline."""
    image = AfterImage(
        namespace=namespace,
        kind=WriteKind.COLLECTION,
        version=version,
        changed=first_fields,
        after=None if listed is None else {"index_keys": [*map(list, listed)]},
    )
    return decode_image(encode_image(image))


def ends(query: Query, event: AfterImage) -> bool:
    scene = Scene()
    scene.register(query, None)
    ended = bool(scene.node.process(event, now_ms=scene.now_ms))
    assert scene.node.registrations == (not ended)
    return ended


@pytest.mark.parametrize(
    ("query", "first_fields", "expected"),
    [
        (UNORDERED, ["a"], True),
        (UNORDERED, ["r", "a.b"], True),
        (UNORDERED, ["$**"], True),
        (UNORDERED, ["r"], False),
        (find({"_id": 1}), ["_id", "$**"], False),
        (find({"_id": {"$in": [1, 2]}}), ["_id"], True),
        (find({"_id": {"$in": [1, 2]}}), ["a"], False),
        (find({}), ["a"], False),
        (find({"a": 1}, sort=(("a", 1), ("_id", 1))), ["a"], False),
        (aggregate({"$match": {"a": 1}}, {"$count": "n"}), ["a"], False),
        (aggregate({"$match": {"a": 1}}, JOIN), ["z"], True),
    ],
)
def test_results_that_an_index_may_change_end(query: Query, first_fields: list[str], expected: bool) -> None:
    assert ends(query, of_indexes(150, *first_fields)) is expected


def test_results_read_before_the_index_was_ready_end_and_later_results_live() -> None:
    scene = Scene()
    before = scene.registration(UNORDERED, (1,))
    assert scene.node.process(of_indexes(before.since + 5, "a"), now_ms=scene.now_ms) == []
    (ended,) = scene.node.register(before, now_ms=scene.now_ms)
    assert type(ended).__name__ == "Invalidated"
    after = replace(scene.registration(UNORDERED, (1,)), since=before.since + 5)
    (lives,) = scene.node.register(after, now_ms=scene.now_ms)
    assert type(lives).__name__ == "Activated"


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (replace(PROJECTED, index_keys=OLD), True),
        (PROJECTED, True),
        (replace(PROJECTED, index_keys=NEW), False),
        (replace(find({"x": 1}, projection=SHOWN), index_keys=OLD), False),
        (UNORDERED, False),
        (find({"_id": 1}, projection=SHOWN), False),
    ],
)
def test_a_listing_ends_what_was_planned_with_other_keys_that_matter(query: Query, expected: bool) -> None:
    assert ends(query, of_indexes(0, listed=NEW)) is expected


def test_on_a_server_without_events_the_listing_ends_what_the_index_may_find() -> None:
    assert ends(UNORDERED, of_indexes(0, "a", listed=NEW))
    assert not ends(find({"_id": 1}), of_indexes(0, "a", listed=NEW))


def test_indexes_of_a_joined_collection_count_but_not_those_of_another() -> None:
    join = aggregate({"$match": {"_id": 1}}, JOIN)
    assert ends(join, of_indexes(150, "k", namespace="shop.makers"))
    assert not ends(join, of_indexes(150, "k", namespace="shop.others"))


def test_knowledge_of_records_before_their_next_write_stays() -> None:
    scene = Scene()
    scene.write(WriteKind.INSERT, 1, {"_id": 1, "a": 1, "x": 1})
    scene.node.process(of_indexes(scene.version, "a"), now_ms=scene.now_ms)
    query = aggregate({"$match": {"a": 1}}, {"$count": "n"})
    scene.register(query, None)
    assert scene.write(WriteKind.UPDATE, 1, {"_id": 1, "a": 1, "x": 2}) == []
