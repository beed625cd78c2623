"""The binary form of live queries: records as BSON, everything else as JSON."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from typing import Any

import bson
import pytest
from bson import Binary, Decimal128, Int64, ObjectId, Regex, Timestamp
from websockets.asyncio.client import ClientConnection, connect

from quaestor import LiveClient, SocketLimits
from quaestor.live.websocket.answers import ANSWERS
from tests.live.socket_site import Site, live_site

pytestmark = pytest.mark.anyio

RECORD: dict[str, Any] = {
    "_id": ObjectId("5f5f5f5f5f5f5f5f5f5f5f5f"),
    "int": 1,
    "long": Int64(2**40),
    "double": 1.0,
    "text": "Grüße\0!",
    "date": datetime(2026, 1, 2, 3, 4, 5, 6000),
    "decimal": Decimal128("1.10"),
    "bytes": b"\0\xff",
    "uuid": Binary(bytes(16), 4),
    "regex": Regex("a+", "i"),
    "timestamp": Timestamp(1, 2),
    "nested": {"$odd": [None, True, {"": []}]},
}


@pytest.fixture(scope="module")
def site(mongo_url: str) -> Iterator[Site]:
    with live_site(mongo_url, "live_binary", limits=SocketLimits(waiting=5)) as running:
        yield running


@pytest.fixture
async def socket(site: Site) -> AsyncIterator[ClientConnection]:
    async with connect(site.url, subprotocols=["quaestor.v1.bson", "quaestor.v1"]) as connection:  # type: ignore[list-item]
        assert connection.subprotocol == "quaestor.v1.bson"
        yield connection


async def hear(socket: ClientConnection) -> tuple[type, Any]:
    """The kind of the next frame, and its message, which has the published schema."""
    frame = await socket.recv()
    message = bson.decode(frame) if isinstance(frame, bytes) else json.loads(frame)
    ANSWERS.validate_python(message)
    return type(frame), message


async def test_messages_with_records_are_bson_and_the_others_json(
    socket: ClientConnection, site: Site, items: Any
) -> None:
    """Result, match with record, before-image and changes are binary frames; pong, resumed and error are texts."""
    items.insert_one(RECORD)
    await socket.send(json.dumps({"type": "subscribe", "id": "whole", "bucket": "items", "beforeImages": True}))
    kind, result = await hear(socket)
    assert (kind, result["type"], result["data"]) == (bytes, "result", [RECORD])
    await socket.send(
        json.dumps({"type": "subscribe", "id": "delta", "bucket": "items", "delta": True, "initial": False})
    )
    kind, result = await hear(socket)
    assert (kind, result["type"], "data" in result) == (str, "result", False)

    items.update_one({}, {"$set": {"double": 2.5}, "$unset": {"nested": 1}})
    heard = dict[str, Any]()
    for _ in range(2):
        kind, match = await hear(socket)
        assert kind is bytes
        heard[match["id"]] = match
    after = {name: value for name, value in RECORD.items() if name != "nested"} | {"double": 2.5}
    assert (heard["whole"]["before"], heard["whole"]["data"]) == (RECORD, after)
    assert heard["delta"]["key"] == RECORD["_id"]
    assert heard["delta"]["changes"] == {"updated": {"double": 2.5}, "removed": ["nested"]}

    await socket.send('{"type": "ping"}')
    assert (await hear(socket))[0] is str
    await socket.send(json.dumps({"type": "unsubscribe", "id": "delta"}))
    await socket.send(
        json.dumps({"type": "resume", "id": "again", "bucket": "items", "offset_token": result["offset_token"]})
    )
    kind, resumed = await hear(socket)
    assert (kind, resumed["type"], resumed["missed"]) == (str, "resumed", 1)
    assert (await hear(socket))[0] is bytes
    await socket.send(json.dumps({"type": "subscribe", "id": "bad", "bucket": "items", "query": "{"}))
    assert (await hear(socket))[0] is str


async def test_a_cut_and_a_result_read_anew_are_binary_too(socket: ClientConnection, accounts: Any) -> None:
    """Messages that a cut holds back keep their form, and so does the result of a slow client."""
    await socket.send('{"type": "cut"}')
    await socket.send(json.dumps({"type": "subscribe", "id": "a", "bucket": "accounts"}))
    kinds = dict[str, type]()
    for number in range(40):
        accounts.insert_one({"_id": number})
    last = -1
    while last < 39:
        kind, message = await hear(socket)
        kinds[message["type"]] = kind
        if message["type"] == "match":
            last = message["data"]["_id"]
        elif message.get("data"):
            last = max(record["_id"] for record in message["data"])
    assert kinds.pop("result") is bytes
    assert kinds.pop("match", bytes) is bytes
    assert set(kinds.values()) <= {str}


@pytest.mark.parametrize("binary", [True, False])
async def test_records_are_those_of_the_database(site: Site, items: Any, binary: bool) -> None:
    """The Python client gives equal records in both forms."""
    items.insert_one(RECORD)
    async with LiveClient(site.url, binary=binary) as live, await live.result_stream("items") as rows:
        assert await anext(rows) == [RECORD]
        items.update_one({}, {"$set": {"int": 2}})
        assert await anext(rows) == [RECORD | {"int": 2}]
        assert live._socket is not None
        assert live._socket.subprotocol == ("quaestor.v1.bson" if binary else "quaestor.v1")
