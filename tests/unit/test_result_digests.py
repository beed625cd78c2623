"""Results have the same digest exactly if they are the same, byte for byte; incomparable results have none."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any

from bson.codec_options import DEFAULT_CODEC_OPTIONS, CodecOptions, TypeDecoder, TypeRegistry
from bson.decimal128 import Decimal128
from bson.int64 import Int64

from quaestor.capture.result_digests import MOST_BYTES, ResultDigest, loses_nothing, may_be_compared
from quaestor.model import Operation, Query

FOUND = Query(namespace="d.c", operation=Operation.FIND, filter={"a": 1})


def digest(*batches: list[Any]) -> bytes | None:
    made = ResultDigest(FOUND)
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


def of_reply(operation: Operation, reply: dict[str, Any], namespace: str = "d.c") -> bytes | None:
    made = ResultDigest(Query(namespace=namespace, operation=operation, filter={}))
    made.add(reply)
    return made.value()


def test_a_number_is_the_same_for_every_counting_command() -> None:
    counted = [
        of_reply(Operation.COUNT, reply)
        for reply in ({"n": 0}, {"n": 1}, {"n": 2}, {"cursor": {"id": 0, "firstBatch": [{"_id": 1, "n": 2}]}},
                      {"cursor": {"id": 0, "firstBatch": []}})
    ]  # fmt: skip
    assert counted[2] == counted[3]
    assert counted[0] == counted[4]
    assert len(set(counted)) == 3
    assert None not in counted


def test_the_values_of_a_distinct_have_no_order() -> None:
    values = [of_reply(Operation.DISTINCT, {"values": values}) for values in ([1, "a"], ["a", 1], [1], [1.0, "a"])]
    assert values[0] == values[1]
    assert len(set(values)) == 3


def test_a_view_shares_no_digest_with_its_collection() -> None:
    """An index may show other values of the collection than the view's pipeline finds."""
    reply = {"values": [1]}
    assert of_reply(Operation.DISTINCT, reply) != of_reply(Operation.DISTINCT, reply, "d.view")


def test_results_too_large_or_of_the_clients_own_types_have_no_digest() -> None:
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


def test_a_find_is_compared_if_it_leaves_open_whether_a_write_changes_it() -> None:
    """Such a find skips, shows some of many in no order, or hides the `_id`."""
    more = [
        {"skip": 5, "sort": (("_id", 1),)}, {"limit": 5}, {"limit": 5, "sort": (("$natural", -1),)}, {"projection": {"_id": 0}},
        {"operation": Operation.COUNT}, {"operation": Operation.DISTINCT, "distinct_key": "a"},
    ]  # fmt: skip
    assert all(may_be_compared(replace(FOUND, **options)) for options in more)
    plain = [{"limit": 5, "sort": (("a", 1),)}, {"filter": {"_id": 1}, "limit": 1}, {}]
    assert not any(may_be_compared(replace(FOUND, **options)) for options in plain)


def test_ordinary_finds_pay_nothing() -> None:
    """Ordinary finds are judged exactly. A query that was not understood as a whole cannot be run again."""
    plain = Query(namespace="d.c", operation=Operation.FIND, filter={"a": 1})
    pipeline = Query(namespace="d.c", operation=Operation.AGGREGATE, filter={}, pipeline=({"$group": {"_id": "$a"}},))
    hinted = Query(
        namespace="d.c", operation=Operation.AGGREGATE, filter={}, pipeline=pipeline.pipeline, widened="hint: ..."
    )
    collated = Query(namespace="d.c", operation=Operation.FIND, filter={"a": "b"}, collation={"locale": "en"})
    assert [may_be_compared(query) for query in (plain, pipeline, hinted, collated)] == [False, True, False, True]
