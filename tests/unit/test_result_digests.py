"""Results have the same digest exactly if they are the same, byte for byte; what cannot be told has none."""

from __future__ import annotations

import uuid
from typing import Any

from bson.codec_options import DEFAULT_CODEC_OPTIONS, CodecOptions, TypeDecoder, TypeRegistry
from bson.decimal128 import Decimal128
from bson.int64 import Int64

from quaestor.capture.result_digests import MOST_BYTES, ResultDigest, loses_nothing, may_be_compared
from quaestor.model import Operation, Query


def digest(*batches: list[Any]) -> bytes | None:
    made = ResultDigest()
    for number, batch in enumerate(batches):
        made.add({"cursor": {"id": 0, ("nextBatch" if number else "firstBatch"): batch}})
    return made.value()


def test_batches_do_not_matter_and_everything_else_does() -> None:
    """Order of records, order of fields, types of numbers."""
    rows = [{"a": 1, "b": 2}, {"a": 3}]
    assert digest(rows) == digest(rows[:1], rows[1:]) == digest([dict(row) for row in rows])
    others = [
        [rows[1], rows[0]], [{"b": 2, "a": 1}, rows[1]], [{"a": 1.0, "b": 2}, rows[1]], [{"a": Int64(1), "b": 2}, rows[1]],
        rows[:1], [], [*rows, {}],
    ]  # fmt: skip
    assert len({digest(rows), *map(digest, others)}) == len(others) + 1


def test_counts_and_values_have_digests_too() -> None:
    found = set()
    for reply in ({"n": 1, "ok": 1.0}, {"n": 2, "ok": 1.0}, {"values": [1, 2]}, {"values": [2, 1]}):
        made = ResultDigest()
        made.add(reply)
        found.add(made.value())
    assert len(found) == 4
    assert None not in found


def test_what_is_too_large_or_of_a_type_of_the_clients_own_has_none() -> None:
    """A later batch does not bring it back."""
    assert digest([{"a": "x" * MOST_BYTES}], [{"a": 1}]) is None
    assert digest([{"a": object()}], [{"a": 1}]) is None
    assert digest([{"a": uuid.UUID(int=1)}]) is not None


def test_a_client_that_decodes_by_rules_of_its_own_may_show_two_values_as_one() -> None:
    class Plain(TypeDecoder):
        bson_type = Decimal128

        def transform_bson(self, value: Decimal128) -> float:
            return float(value.to_decimal())

    assert loses_nothing(DEFAULT_CODEC_OPTIONS)
    assert not loses_nothing(CodecOptions(type_registry=TypeRegistry([Plain()])))
    assert not loses_nothing(None)


def test_ordinary_finds_pay_nothing() -> None:
    """They are judged exactly. What was not understood as a whole cannot be run again."""
    plain = Query(namespace="d.c", operation=Operation.FIND, filter={"a": 1})
    pipeline = Query(namespace="d.c", operation=Operation.AGGREGATE, filter={}, pipeline=({"$group": {"_id": "$a"}},))
    hinted = Query(
        namespace="d.c", operation=Operation.AGGREGATE, filter={}, pipeline=pipeline.pipeline, widened="hint: ..."
    )
    collated = Query(namespace="d.c", operation=Operation.FIND, filter={"a": "b"}, collation={"locale": "en"})
    assert [may_be_compared(query) for query in (plain, pipeline, hinted, collated)] == [False, True, False, True]
