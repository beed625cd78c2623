"""Messages about subscribed queries: each is decoded as it was encoded, and other bytes are refused."""

from __future__ import annotations

from typing import Any

import bson
import pytest
from bson import ObjectId

from quaestor.errors import EventLayerError
from quaestor.event_layer.codec import encode_image, encode_query_event
from quaestor.incremental import PriorState, ResultEvent
from quaestor.model import AfterImage, Cancellation, Cell, MatchType, Operation, Query, WriteKind
from quaestor.realtime import codec
from quaestor.realtime.messages import (
    Announcement,
    CellProgress,
    CellReady,
    CellStarted,
    FullResult,
    LeaseRenewal,
    MatchedEvent,
    MatchedWrite,
    MatchingLost,
    QueriesEnded,
    QueryEvent,
    ResultChange,
    ResultMessage,
    StageProgress,
    Subscription,
    SubscriptionsEnded,
    Unsubscription,
)

CELL = Cell(query_partition=3, write_partition=5)
QUERY = Query(
    namespace="shop.items",
    operation=Operation.AGGREGATE,
    filter={},
    sort=(("n", -1), ("_id", 1)),
    pipeline=({"$match": {"n": {"$gt": 1}}}, {"$group": {"_id": "$kind"}}),
)
IMAGE = AfterImage(
    namespace="shop.items", kind=WriteKind.UPDATE, version=9 << 32, key=ObjectId(), after={"n": 2}, after_exact=True,
    before={"n": 1}, before_known=True, wall_ms=7,
)  # fmt: skip
EVENT = ResultEvent(
    match_type=MatchType.CHANGE_INDEX,
    key=[1, "part"],
    document={"n": 1.5, "list": [1, None]},
    index=2,
    previous_index=0,
    operation=WriteKind.UPDATE,
    version=9 << 32,
)


@pytest.mark.parametrize(
    "event",
    [
        Subscription(id="a:1", tenant="t", query_id="q", query=QUERY, fresh=True, expires_at_ms=12),
        Subscription(id="a:1", tenant="t", query_id="q", query=QUERY, fresh=True, expires_at_ms=12, exact=True),
        Unsubscription(query_id="q", subscription_ids=("a:1", "b:2")),
        Announcement(
            query_id="q", token="e:1", query=QUERY, memory=PriorState.MEMBERSHIP, version=1 << 40,
            members=((b"12345678", b""), (b"", b"")), expires_at_ms=1,
        ),
        Announcement(
            query_id="q", token="e:1", query=QUERY, memory=PriorState.BEFORE_IMAGES, version=1, members=None, expires_at_ms=1
        ),
        LeaseRenewal(queries=(("q", "e:1"), ("r", "e:2")), expires_at_ms=3),
        QueriesEnded(query_ids=("q",)),
    ],
    ids=lambda event: type(event).__name__,
)  # fmt: skip
def test_query_events_come_back(event: QueryEvent) -> None:
    payload = codec.encode_query_event(event)
    assert codec.decode_query_event(payload) == event
    assert codec.concerns_subscriptions(payload), "a cell tells them from registrations without decoding"
    assert codec.concerns_stage(payload) is isinstance(event, Subscription | Unsubscription)


@pytest.mark.parametrize(
    "event",
    [
        MatchedWrite(query_ids=("q", "r"), image=IMAGE),
        MatchedWrite(query_ids=None, image=AfterImage(namespace="*", kind=WriteKind.GAP, version=0)),
        CellReady(cell=CELL, query_id="q", token="e:1"),
        MatchingLost(cell=CELL, query_id="q", token="e:1", reason="why", final=True),
        CellProgress(cell=CELL, version=1 << 50, fresh_as_of_ms=17),
        CellStarted(cell=CELL),
    ],
    ids=lambda event: type(event).__name__,
)
def test_messages_of_cells_come_back(event: MatchedEvent) -> None:
    image = encode_image(event.image) if isinstance(event, MatchedWrite) else b""
    assert codec.decode_matched(codec.encode_matched(event, image)) == event


@pytest.mark.parametrize(
    "message",
    [
        FullResult(
            query_id="q", subscription_ids=("a:1",), epoch="e", sequence=4, version=9 << 32, ordered=True,
            rows=((ObjectId(), {"n": 1}), ([1, 2], 5)),
        ),
        FullResult(query_id="q", subscription_ids=None, epoch="e", sequence=0, version=0, ordered=False, rows=()),
        FullResult(
            query_id="q", subscription_ids=None, epoch="e", sequence=0, version=0, ordered=False, rows=(),
            lacking=("shop.items",),
        ),
        ResultChange(query_id="q", epoch="e", sequence=5, version=9 << 32, written_at_ms=3, events=(EVENT,)),
        ResultChange(query_id="q", epoch="e", sequence=5, version=9, written_at_ms=0, events=(EVENT,), reread=True),
        SubscriptionsEnded(query_id="q", subscription_ids=("a:1",), reason="why", again=True),
        StageProgress(stage="s", version=9 << 32, fresh_as_of_ms=8, behind=("q",)),
    ],
    ids=lambda message: type(message).__name__,
)  # fmt: skip
def test_results_survive_their_encoding(message: ResultMessage) -> None:
    payload = codec.encode_result(message)
    assert codec.decode_result(payload) == message
    assert codec.concerned_query(payload) == getattr(message, "query_id", None)


@pytest.mark.parametrize("query_id", ["x", "5e549844bc915d20e39d3df31f828910", "größe"])
def test_the_query_of_a_result_is_known_without_decoding(query_id: str) -> None:
    message = FullResult(
        query_id=query_id,
        subscription_ids=None,
        epoch="e",
        sequence=1,
        version=1,
        ordered=False,
        rows=(),
        read_version=7,
    )
    payload = codec.encode_result(message)
    assert codec.decode_result(payload) == message
    assert codec.concerned_query(payload) == query_id
    assert codec.concerned_query(b"") is None


def test_registrations_and_cancellations_are_not_ours() -> None:
    cancellation = encode_query_event(Cancellation(tenant="t", query_id="q", registration_ids=("a",)))
    assert not codec.concerns_subscriptions(cancellation)
    assert not codec.concerns_stage(cancellation)
    assert not codec.concerns_subscriptions(b"")


@pytest.mark.parametrize("decode", [codec.decode_query_event, codec.decode_matched, codec.decode_result])
@pytest.mark.parametrize(
    "payload", [b"", b"x" * 40, bson.encode({"v": 2, "t": "s"}), bson.encode({"v": 1, "t": "?"}), bson.encode({})]
)
def test_bytes_that_are_no_message_are_refused(decode: Any, payload: bytes) -> None:
    with pytest.raises(EventLayerError):
        decode(payload)
