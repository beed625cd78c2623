"""Images made of events of a change stream, without a server."""

from __future__ import annotations

from typing import Any

import pytest
from bson.timestamp import Timestamp

from quaestor.invalidation.ingest.change_events import after_images
from quaestor.invalidation.ingest.record_source import RecordSource
from quaestor.model import WriteKind


def event(operation: str, **fields: Any) -> dict[str, Any]:
    return {
        "operationType": operation,
        "ns": {"db": "d", "coll": "c"},
        "clusterTime": Timestamp(5, 1),
        "documentKey": {"_id": 1},
        **fields,
    }


def changed(described: dict[str, Any], *, records: RecordSource = RecordSource.IMAGES) -> tuple[str, ...] | None:
    (image,) = after_images(event("update", **described), records=records)
    return image.changed


def test_an_update_says_which_paths_it_touched() -> None:
    description = {
        "updatedFields": {"a.0.b": 1, "n": {}},
        "removedFields": ["old"],
        "truncatedArrays": [{"field": "list", "newSize": 2}],
    }
    assert changed({"updateDescription": description}) == ("a.0.b", "n", "old", "list")
    assert changed({"changed": ["a.0.b", "n"]}) == ("a.0.b", "n")


def test_an_older_server_may_name_what_is_inside_a_document_that_the_update_made() -> None:
    assert changed(
        {"updateDescription": {"updatedFields": {"a.b": 1, "a.c": 1}}}, records=RecordSource.LOOKED_UP_BEFORE_6_0
    ) == ("a",)


def test_very_many_paths_are_named_by_their_first_components_or_not_at_all() -> None:
    assert changed({"changed": [f"a.{n}" for n in range(1000)]}) == ("a",)
    assert changed({"changed": [f"a{n}" for n in range(1000)]}) is None


@pytest.mark.parametrize("kind", [WriteKind.INSERT, WriteKind.REPLACE, WriteKind.DELETE])
def test_other_writes_touch_everything(kind: WriteKind) -> None:
    (image,) = after_images(event(kind.value, fullDocument={"_id": 1}), records=RecordSource.IMAGES)
    assert image.changed is None
    assert changed({}) is None


TEXT = {"key": {"_fts": "text", "_ftsx": 1}}


@pytest.mark.parametrize(
    ("operation", "description", "expected"),
    [
        ("createIndexes", {"indexes": [TEXT]}, [None]),
        ("dropIndexes", {"indexes": [{"key": {"a": 1}}, TEXT]}, [None]),
        ("dropIndexes", {"indexes": [{"key": {"a": 1, "b": 1}}, {"key": {"c.d": -1}}]}, [("a", "c.d")]),
        ("createIndexes", {"indexes": [{"key": {"a": 1}, "hidden": True}]}, []),
        ("createIndexes", {}, [("$**",)]),
        ("startIndexBuild", {"indexes": [{"key": {"a": 1}}]}, []),
        ("modify", {"index": {"name": "a_1", "hidden": True}}, [("$**",)]),
        ("modify", {"index": {"name": "a_1", "hidden": True}, "viewOn": "other"}, [None]),
        ("modify", {"index": {"name": "a_1", "expireAfterSeconds": 9}}, []),
    ],
)
def test_an_event_of_indexes_tells_the_fields_that_they_begin_with_and_one_of_text_changes_everything(
    operation: str, description: dict[str, Any], expected: list[Any]
) -> None:
    images = after_images(event(operation, operationDescription=description), records=RecordSource.IMAGES)
    assert [image.changed for image in images] == expected
    assert all(image.kind is WriteKind.COLLECTION for image in images)
