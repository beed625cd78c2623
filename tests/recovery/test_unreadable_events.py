"""Values that mongod stores and no driver decodes: ingest neither stops at them nor skips them."""

from __future__ import annotations

from typing import Any

import bson
import pytest
from bson.raw_bson import RawBSONDocument

from quaestor.event_layer.memory import MemoryEventLayer
from quaestor.model import WriteKind
from tests.recovery.test_ingest import Client, ingesting, of


def not_utf8(document: dict[str, Any]) -> RawBSONDocument:
    return RawBSONDocument(bson.encode(document).replace(b"~", b"\xff"))


@pytest.mark.parametrize("images", [True, False])
def test_the_collection_counts_as_changed_and_the_stream_goes_on(client: Client, prefix: str, images: bool) -> None:
    collection, namespace = (
        client[prefix].create_collection("c", changeStreamPreAndPostImages={"enabled": images}),
        f"{prefix}.c",
    )
    with ingesting(client, MemoryEventLayer(), prefix, partitions=2) as pipelines:
        collection.insert_one(not_utf8({"_id": "key~"}))  # type: ignore[arg-type]
        collection.insert_one({"_id": 1, "x": 1})
        client[prefix].command({"update": "c", "updates": [not_utf8({"q": {"_id": 1}, "u": {"$set": {"name~": 2}}})]})
        collection.insert_one(not_utf8({"_id": 2, "x": "~"}))  # type: ignore[arg-type]
        collection.insert_one({"_id": 3})
        expected = {1, 2, 3}
        pipelines.until(lambda images: expected <= {image.key for image in images if image.kind is WriteKind.INSERT})
        images_seen = of(pipelines.until(lambda images: len(of(images, namespace)) == len(expected) + 4), namespace)
    client.drop_database(prefix)
    kinds = [image.kind for image in images_seen]
    assert kinds.count(WriteKind.COLLECTION) == 4  # two events, two pipelines
    assert {image.key for image in images_seen if image.kind is WriteKind.INSERT} == expected
