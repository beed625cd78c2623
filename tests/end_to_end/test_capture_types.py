"""Ids and operands are the bytes that mongod has, with any codec options of the application."""

from __future__ import annotations

import datetime
import uuid
from typing import Any

import bson
import pymongo
import pytest
from bson.codec_options import CodecOptions, DatetimeConversion, TypeCodec, TypeRegistry
from bson.datetime_ms import DatetimeMS
from bson.raw_bson import RawBSONDocument
from pymongo import AsyncMongoClient

from quaestor.capture import recording
from quaestor.capture.clients import watch_client
from quaestor.capture.listener import Capture
from quaestor.capture.rereading import Rereader
from quaestor.capture.result_digests import ResultDigest
from quaestor.model import CapturedRead, Uncacheable
from quaestor.settings import Settings
from tests.end_to_end.captured import (
    Client,
    async_client,
    capture,
    client,
    now_ms,
    only_read,
    outcome_of,
    reasons,
)

__all__ = ["async_client", "capture", "client"]


def re_encoded(read: CapturedRead) -> list[bytes]:
    assert read.ids is not None
    return [bson.encode({"_id": key}) for key in read.ids]


IDS: list[Any] = [
    1, bson.Int64(2), 2**40, 2.5, "text", b"bytes", bson.ObjectId(), datetime.datetime(2013, 1, 1, 5, 0, 0, 7000),
    {"a": 1, "b": {"c": [1, 2]}}, bson.Decimal128("1.50"), bson.Binary(b"\x01" * 16, 4), bson.Binary(b"\x02" * 16, 3),
    True, bson.Timestamp(5, 6), bson.MinKey(), bson.MaxKey(),
]  # fmt: skip


@pytest.mark.parametrize(
    "options",
    [
        CodecOptions(),
        CodecOptions(tz_aware=True, tzinfo=datetime.timezone(datetime.timedelta(hours=2))),
        CodecOptions(document_class=bson.SON),
        CodecOptions(document_class=RawBSONDocument),
        CodecOptions(document_class=RawBSONDocument, tz_aware=True, uuid_representation=4),
        CodecOptions(uuid_representation=4),
        CodecOptions(uuid_representation=3),
        CodecOptions(datetime_conversion=DatetimeConversion.DATETIME_MS),
    ],
    ids=str,
)
def test_ids_are_the_same_bytes_under_any_codec_options(client: Client, prefix: str, options: Any) -> None:
    client[prefix].ids.insert_many([{"_id": identity} for identity in IDS])
    collection = client[prefix].ids.with_options(codec_options=options)
    read = only_read(outcome_of(lambda: collection.find({}).to_list()))
    assert sorted(re_encoded(read)) == sorted(bson.encode({"_id": identity}) for identity in IDS)


@pytest.mark.parametrize("representation", [3, 4, 5, 6])
@pytest.mark.anyio
async def test_native_uuids_in_filters_are_the_bytes_that_mongod_got(
    client: Client, async_client: AsyncMongoClient[dict[str, Any]], prefix: str, representation: int
) -> None:
    options: Any = CodecOptions(uuid_representation=representation)
    value = uuid.uuid4()
    expected = bson.Binary.from_uuid(value, representation)
    client[prefix].u.insert_one({"_id": expected})
    collection = client[prefix].u.with_options(codec_options=options)
    awaitable = async_client[prefix].u.with_options(codec_options=options)
    with recording() as recorder:
        assert collection.count_documents({"_id": value}) == 1
        assert collection.find_one({"_id": value}) == {"_id": value}
        assert await awaitable.find_one({"_id": value}) == {"_id": value}
        outcome = recorder.outcome(now_ms())
    assert outcome.reasons == ()
    for read in outcome.reads:
        assert read.query.filter == {"_id": expected}
        assert read.query.widened is None
        assert read.ids is None or re_encoded(read) == [bson.encode({"_id": expected})]


class Money:
    def __init__(self, cents: int) -> None:
        self.cents = cents


class MoneyCodec(TypeCodec):
    python_type = Money
    bson_type = bson.Int64

    def transform_python(self, value: Money) -> bson.Int64:
        return bson.Int64(value.cents)

    def transform_bson(self, value: bson.Int64) -> Money:
        return Money(value)


def test_types_of_the_applications_own_are_never_matched_exactly(client: Client, prefix: str) -> None:
    options: Any = CodecOptions(type_registry=TypeRegistry([MoneyCodec()]))
    client[prefix].m.insert_one({"_id": bson.Int64(5)})
    collection = client[prefix].m.with_options(codec_options=options)
    assert reasons(outcome_of(lambda: collection.find_one({"_id": Money(5)}))) == {Uncacheable.UNREADABLE}
    read = only_read(outcome_of(lambda: collection.find_one({})))
    assert read.ids is None


def test_dates_that_python_does_not_know_are_read_as_raw_records(client: Client, prefix: str, mongo_url: str) -> None:
    """Years before 1 and after 9999, in the id and beside it; the read is cached, and read again for a recheck."""
    far, long_ago = DatetimeMS(10**15), DatetimeMS(-(10**15))
    client[prefix].dates.insert_one({"_id": far, "when": long_ago, "a": 1})
    options: Any = CodecOptions(document_class=RawBSONDocument)
    collection = client[prefix].dates.with_options(codec_options=options)
    read = only_read(outcome_of(lambda: collection.find({"when": long_ago}, sort=[("when", 1)], limit=1).to_list()))
    assert re_encoded(read) == [bson.encode({"_id": far})]
    settings = Settings(mongo_url=mongo_url)
    with watch_client(Capture(), settings) as watching:
        again = Rereader(watching, timeout_ms=60_000).read(read.query)
    with pymongo.MongoClient[Any](mongo_url, datetime_conversion="DATETIME_AUTO") as plain:
        expected = ResultDigest(read.query)
        expected.add({"cursor": {"firstBatch": plain[prefix].dates.find().to_list()}})
    assert again.digest == expected.value()
