"""Wire format of subscribed queries: BSON documents that begin with `{"v": 1, "t": <type>}`, as in event_layer/codec.py.

| pipeline | type | fields |
|---|---|---|
| query | `s` subscription | id, tenant, qid, query, fresh, exp, x: exact, pi: poll interval |
| query | `x` unsubscription | qid, ids |
| query | `S` announcement | qid, tok, query, mem, ver, m: for each side a list of bytes for each write partition, exp |
| query | `K` lease renewal | q: [[qid, tok]], exp |
| query | `E` queries ended | ids |
| matched | `M` matched write | ids or none, i: the payload of the image |
| matched | `Y` cell ready, `L` matching lost | cell, qid, tok / reason, final |
| matched | `P` cell progress, `C` cell started | cell / ver, fresh |
| results | `R` full result | qid, ids or none, ep, seq, ver, ord, rows: [[key, document]], l: lacking images, rv: version read |
| results | `D` result change | qid, ep, seq, ver, w, e: [{m, k, d, i, p, o, ver}], r: reread, f: fresh as of |
| results | `F` subscriptions ended | qid, ids or none, reason, again |
| results | `H` stage progress | st, ver, fresh, behind |
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import bson
from bson.errors import BSONError
from bson.raw_bson import RawBSONDocument

from quaestor.errors import EventLayerError, UnsupportedQueryError
from quaestor.event_layer.codec import BSON_OPTIONS, FORMAT, Fields, decode_image, decode_payload, type_of
from quaestor.event_layer.query_fields import query_fields, query_of
from quaestor.incremental import PriorState, ResultEvent
from quaestor.model import Cell, MatchType, WriteKind
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

_QUERY_TYPES: Final = b"sxSKE"


def concerns_subscriptions(payload: bytes) -> bool:
    """Whether an entry of the query pipeline is about subscribed queries, without decoding it."""
    letter = type_of(payload)
    return letter is not None and letter in _QUERY_TYPES


def concerns_stage(payload: bytes) -> bool:
    """Whether an entry of the query pipeline comes from an app server, for the stage; those for the cells may be large."""
    letter = type_of(payload)
    return letter is not None and letter in b"sx"


def is_subscription(payload: bytes) -> bool:
    """Whether an entry of the query pipeline is a subscription, without decoding it."""
    return type_of(payload) == b"s"


def lease_end_ms(payload: bytes) -> int:
    """End of the lease of a subscription, whose query is not decoded. Raises EventLayerError if the payload is unreadable."""
    return decode_payload(payload, lambda fields: int(fields["exp"]))


def encode_query_event(event: QueryEvent) -> bytes:
    """Payload for a query pipeline. Raises UnsupportedQueryError if a filter holds what BSON cannot say without the client."""
    match event:
        case Subscription():
            fields = _typed(
                "s", id=event.id, tenant=event.tenant, qid=event.query_id, query=query_fields(event.query),
                fresh=event.fresh, exp=event.expires_at_ms, x=event.exact, pi=event.poll_interval_ms,
            )  # fmt: skip
        case Unsubscription():
            fields = _typed("x", qid=event.query_id, ids=list(event.subscription_ids))
        case Announcement():
            members = None if event.members is None else [list(side) for side in event.members]
            fields = _typed(
                "S", qid=event.query_id, tok=event.token, query=query_fields(event.query), mem=event.memory.value,
                ver=event.version, m=members, exp=event.expires_at_ms,
            )  # fmt: skip
        case LeaseRenewal():
            fields = _typed("K", q=[list(pair) for pair in event.queries], exp=event.expires_at_ms)
        case QueriesEnded():
            fields = _typed("E", ids=list(event.query_ids))
    try:
        return bson.encode(fields, codec_options=BSON_OPTIONS)
    except (BSONError, TypeError, ValueError, OverflowError) as error:
        raise UnsupportedQueryError(f"a value in it has no unambiguous BSON form: {error}") from error


def decode_query_event(payload: bytes) -> QueryEvent:
    """Event in a payload of a query pipeline. Raises EventLayerError if it is none."""
    return decode_payload(payload, _query_event)


def _query_event(fields: Fields) -> QueryEvent:
    match fields["t"]:
        case "s":
            return Subscription(
                id=fields["id"],
                tenant=fields["tenant"],
                query_id=fields["qid"],
                query=query_of(fields["query"]),
                fresh=fields["fresh"],
                expires_at_ms=int(fields["exp"]),
                exact=fields.get("x", False),
                poll_interval_ms=int(fields.get("pi", 0)),
            )
        case "x":
            return Unsubscription(query_id=fields["qid"], subscription_ids=tuple(fields["ids"]))
        case "S":
            members = fields["m"]
            return Announcement(
                query_id=fields["qid"],
                token=fields["tok"],
                query=query_of(fields["query"]),
                memory=PriorState(fields["mem"]),
                version=int(fields["ver"]),
                members=None if members is None else tuple(map(tuple, members)),
                expires_at_ms=int(fields["exp"]),
            )
        case "K":
            return LeaseRenewal(
                queries=tuple((query_id, token) for query_id, token in fields["q"]), expires_at_ms=int(fields["exp"])
            )
        case "E":
            return QueriesEnded(query_ids=tuple(fields["ids"]))
    raise _misplaced(fields)


def encode_matched(event: MatchedEvent, image: bytes = b"") -> bytes:
    """Payload for a matched pipeline.

    image: the payload of the image of a `MatchedWrite`, as it lies on the write pipeline.
    """
    match event:
        case MatchedWrite():
            ids = None if event.query_ids is None else list(event.query_ids)
            fields = _typed("M", ids=ids, i=image)
        case CellReady():
            fields = _typed("Y", cell=_partitions(event.cell), qid=event.query_id, tok=event.token)
        case MatchingLost():
            fields = _typed(
                "L", cell=_partitions(event.cell), qid=event.query_id, tok=event.token, reason=event.reason,
                final=event.final,
            )  # fmt: skip
        case CellProgress():
            fields = _typed("P", cell=_partitions(event.cell), ver=event.version, fresh=event.fresh_as_of_ms)
        case CellStarted():
            fields = _typed("C", cell=_partitions(event.cell))
    return bson.encode(fields, codec_options=BSON_OPTIONS)


def decode_matched(payload: bytes) -> MatchedEvent:
    """Event in a payload of a matched pipeline. Raises EventLayerError if it is none."""
    return decode_payload(payload, _matched)


def _matched(fields: Fields) -> MatchedEvent:
    if fields["t"] == "M":
        return MatchedWrite(query_ids=_ids(fields["ids"]), image=decode_image(fields["i"]))
    query_partition, write_partition = fields["cell"]
    cell = Cell(query_partition=query_partition, write_partition=write_partition)
    match fields["t"]:
        case "Y":
            return CellReady(cell=cell, query_id=fields["qid"], token=fields["tok"])
        case "L":
            return MatchingLost(
                cell=cell, query_id=fields["qid"], token=fields["tok"], reason=fields["reason"], final=fields["final"]
            )
        case "P":
            return CellProgress(cell=cell, version=int(fields["ver"]), fresh_as_of_ms=int(fields["fresh"]))
        case "C":
            return CellStarted(cell=cell)
    raise _misplaced(fields)


def encode_result(message: ResultMessage) -> bytes:
    """Payload for a results pipeline. Raises EventLayerError if a document of the result has no BSON form."""
    match message:
        case FullResult():
            fields = _typed(
                "R", qid=message.query_id, ids=_listed(message.subscription_ids), ep=message.epoch,
                seq=message.sequence, ver=message.version, ord=message.ordered, rows=[list(row) for row in message.rows],
                l=_listed(message.lacking), rv=message.read_version,
            )  # fmt: skip
        case ResultChange():
            fields = _typed(
                "D", qid=message.query_id, ep=message.epoch, seq=message.sequence, ver=message.version,
                w=message.written_at_ms, e=[_event_fields(event) for event in message.events], r=message.reread,
                f=message.fresh_as_of_ms,
            )  # fmt: skip
        case SubscriptionsEnded():
            ids = _listed(message.subscription_ids)
            fields = _typed("F", qid=message.query_id, ids=ids, reason=message.reason, again=message.again)
        case StageProgress():
            fields = _typed(
                "H", st=message.stage, ver=message.version, fresh=message.fresh_as_of_ms, behind=list(message.behind)
            )
    try:
        return bson.encode(fields, codec_options=BSON_OPTIONS)
    except (BSONError, TypeError, ValueError, OverflowError) as error:
        raise EventLayerError(f"a result is not BSON: {error}", retryable=False) from error


def decode_result(payload: bytes) -> ResultMessage:
    """Message in a payload of a results pipeline. Raises EventLayerError if it is none."""
    return decode_payload(payload, _result)


_QUERY_AT: Final = slice(20, 25)
"""Position of the field behind the type."""
_QUERY_HEAD: Final = b"\x02qid\x00"


class ChangePlace(NamedTuple):
    """Place of a result change: its query with the epoch, and its number."""

    query: tuple[str, str]
    sequence: int


def change_place(payload: bytes) -> ChangePlace | None:
    """Place of the change in a payload of a results pipeline, without decoding its events; None: another message."""
    if type_of(payload) != b"D":
        return None
    fields = RawBSONDocument(payload)
    return ChangePlace((fields["qid"], fields["ep"]), int(fields["seq"]))


def concerned_query(payload: bytes) -> str | None:
    """Id of the query that a payload of a results pipeline concerns, without decoding it; None: it concerns no single query."""
    if payload[_QUERY_AT] != _QUERY_HEAD:
        return None
    end = _QUERY_AT.stop + 4
    length = int.from_bytes(payload[_QUERY_AT.stop : end], "little")
    return payload[end : end + length - 1].decode()


def _result(fields: Fields) -> ResultMessage:
    match fields["t"]:
        case "R":
            return FullResult(
                query_id=fields["qid"],
                subscription_ids=_ids(fields["ids"]),
                epoch=fields["ep"],
                sequence=int(fields["seq"]),
                version=int(fields["ver"]),
                ordered=fields["ord"],
                rows=tuple((key, document) for key, document in fields["rows"]),
                lacking=_ids(fields.get("l")),
                read_version=int(fields.get("rv", 0)),
            )
        case "D":
            return ResultChange(
                query_id=fields["qid"],
                epoch=fields["ep"],
                sequence=int(fields["seq"]),
                version=int(fields["ver"]),
                written_at_ms=int(fields["w"]),
                events=tuple(map(_event, fields["e"])),
                reread=fields.get("r", False),
                fresh_as_of_ms=int(fields.get("f", 0)),
            )
        case "F":
            return SubscriptionsEnded(
                query_id=fields["qid"],
                subscription_ids=_ids(fields["ids"]),
                reason=fields["reason"],
                again=fields["again"],
            )
        case "H":
            return StageProgress(
                stage=fields["st"],
                version=int(fields["ver"]),
                fresh_as_of_ms=int(fields["fresh"]),
                behind=tuple(fields["behind"]),
            )
    raise _misplaced(fields)


def _event_fields(event: ResultEvent) -> dict[str, Any]:
    return {
        "m": event.match_type.value, "k": event.key, "d": event.document, "i": event.index, "p": event.previous_index,
        "o": None if event.operation is None else event.operation.value, "ver": event.version,
    }  # fmt: skip


def _event(fields: Fields) -> ResultEvent:
    operation = fields["o"]
    return ResultEvent(
        match_type=MatchType(fields["m"]),
        key=fields["k"],
        document=fields["d"],
        index=fields["i"],
        previous_index=fields["p"],
        operation=None if operation is None else WriteKind(operation),
        version=int(fields["ver"]),
    )


def _typed(letter: str, **fields: Any) -> dict[str, Any]:
    return {"v": FORMAT, "t": letter, **fields}


def _partitions(cell: Cell) -> list[int]:
    return [cell.query_partition, cell.write_partition]


def _ids(ids: Sequence[str] | None) -> tuple[str, ...] | None:
    return None if ids is None else tuple(ids)


def _listed(ids: tuple[str, ...] | None) -> list[str] | None:
    return None if ids is None else list(ids)


def _misplaced(fields: Fields) -> EventLayerError:
    return EventLayerError(f"a payload of type {fields['t']!r} does not belong on this pipeline", retryable=False)
