"""Answers about live queries over HTTP: their bodies, and the fields that tell caches how long to keep them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final
from weakref import WeakKeyDictionary

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from quaestor.live.websocket.events import PLAIN, date_text
from quaestor.live.websocket.forms import EXTENDED_JSON
from quaestor.live.websocket.group import QueryGroup
from quaestor.live.websocket.http.parameters import LiveRequest
from quaestor.live.websocket.positions import Position
from quaestor.live.websocket.problems import ProtocolError
from quaestor.read_path.validation import none_match_fails, strong_etag
from quaestor.rest.access import EVERYBODY, Access
from quaestor.rest.problems import Problem

CHUNK_S: Final = 600
"""Time for which caches keep a chunk. A chunk never becomes wrong; the bound is for records that are deleted or made private."""
SNAPSHOT_S: Final = 1
"""Time for which caches keep a snapshot: clients that begin together cost one request."""
NO_NEWS_S: Final = 2
"""Time for which caches keep the end of a long poll without news, for the clients that have waited with it."""
RETRY_AFTER_S: Final = 1

Fields = dict[str, str]


def is_public(access: Access, buckets: Iterable[str], *, anonymous: bool) -> bool:
    """Whether the result of a query is the same for every principal, whatever the records are.

    buckets: collections that the query reads.
    anonymous: whether the endpoint knows no principals.
    """
    if anonymous:
        return True
    rules = [access.collections.get(bucket, access.otherwise).read for bucket in buckets]
    return access.record_acl is None and all(EVERYBODY in read.allow and not read.deny for read in rules)


def snapshot(live_request: LiveRequest, group: QueryGroup, *, public: bool) -> tuple[bytes, Fields]:
    """The result, and the position behind which its changes begin."""
    position = group.position
    head = _text(
        {
            "for": live_request.given,
            "epoch": position.epoch,
            "offset": position.sequence,
            "delivery": group.delivery.value,
            "version": str(group.version),
            "next": live_request.link(position.epoch, position.sequence),
        }
    )
    body = f'{head[:-1]},"data":{group.result_text(EXTENDED_JSON)}'
    return body.encode(), _placed(position) | kept_for(0 if live_request.retry else SNAPSHOT_S, public=public)


def no_news(live_request: LiveRequest, group: QueryGroup, *, public: bool, cursor: int | None) -> tuple[bytes, Fields]:
    """The answer to a client that has the present result.

    cursor: for the next long poll; None: this was none.
    """
    position = group.position
    fields: dict[str, Any] = {
        "for": live_request.given,
        "epoch": position.epoch,
        "offset": position.sequence,
        "up_to_date": True,
        "next": live_request.link(position.epoch, position.sequence, cursor=cursor),
        "changes": [],
    }
    if group.live.fresh_as_of_ms:
        fields["fresh_as_of"] = date_text(group.live.fresh_as_of_ms)
    headers = _placed(position) | {"quaestor-up-to-date": "true"}
    if cursor is not None:
        headers["quaestor-cursor"] = fields["cursor"] = str(cursor)
    seconds = 0 if cursor is None or live_request.retry else NO_NEWS_S
    return _text(fields).encode(), headers | kept_for(seconds, public=public)


def gone(live_request: LiveRequest, group: QueryGroup) -> Response:
    """The answer to a client whose changes are not known here any more: 409, which no cache keeps."""
    position = group.position
    return Problem(
        409,
        "epoch-gone",
        "The changes behind this epoch and offset are not kept here. Follow `next`, which leads to a new snapshot.",
        headers=_placed(position) | kept_for(0, public=False),
        **{"for": live_request.given, "epoch": position.epoch, "next": live_request.link(position.epoch)},
    ).response()


def problem(error: Exception) -> Response:
    """The answer that an error means to a client. No cache keeps it."""
    if isinstance(error, Problem):
        refused = Problem(error.status, error.name, error.detail, headers=error.headers, **error.extra)
    else:
        refusal = ProtocolError.of(error)
        headers = dict(error.headers or {}) if isinstance(error, HTTPException) else {}
        refused = Problem(refusal.status, "live-query", refusal.message, headers=headers)
    refused.headers |= kept_for(0, public=False)
    if refused.status in (429, 503):
        refused.headers.setdefault("retry-after", str(RETRY_AFTER_S))
    return refused.response()


def answered(request: Request, body: bytes, headers: Fields) -> Response:
    """The answer with its entity tag, or 304 to a client that holds it."""
    etag = strong_etag(body)
    headers |= {"etag": etag.decode(), "x-content-type-options": "nosniff"}
    held = ", ".join(request.headers.getlist("if-none-match")).encode("latin-1")
    if held and none_match_fails(held, etag):
        return Response(status_code=304, headers=headers)
    return Response(body, media_type="application/json", headers=headers)


def kept_for(seconds: int, *, public: bool) -> Fields:
    """Fields for caches. `immutable` stands where a cache never needs to ask again."""
    fields = {"vary": "accept", "quaestor-live": "accept"}
    if not public or not seconds:
        return fields | {
            "cache-control": "no-store" if public else "private, no-store",
            "cdn-cache-control": "no-store",
        }
    lasting = ", immutable" if seconds == CHUNK_S else ""
    return fields | {"cache-control": f"public, max-age={seconds}{lasting}", "cdn-cache-control": f"max-age={seconds}"}


class Chunks:
    """Chunks of changes. All clients at one position share one encoded text."""

    def __init__(self) -> None:
        self._texts: WeakKeyDictionary[QueryGroup, tuple[Position, dict[Position, str | None]]] = WeakKeyDictionary()

    def behind(self, group: QueryGroup, position: Position) -> str | None:
        """Changes of a result behind a position, as JSON without the brackets; None: they are not known."""
        known = self._texts.get(group)
        if known is None or known[0] != group.position:
            known = self._texts[group] = (group.position, {})
        texts = known[1]
        if position not in texts:
            missed = group.missed(position.token)
            texts[position] = None if missed is None else ",".join("{" + (match.tail(PLAIN) or "") for match in missed)
        return texts[position]

    @staticmethod
    def answer(live_request: LiveRequest, group: QueryGroup, changes: str, *, public: bool) -> tuple[bytes, Fields]:
        """The changes behind the client's position, and the position behind them. This answer stays right for ever."""
        position = group.position
        head = _text(
            {
                "for": live_request.given,
                "epoch": position.epoch,
                "offset": position.sequence,
                "version": str(group.version),
                "next": live_request.link(position.epoch, position.sequence),
            }
        )
        headers = _placed(position) | kept_for(0 if live_request.retry else CHUNK_S, public=public)
        return f'{head[:-1]},"changes":[{changes}]}}'.encode(), headers


def _placed(position: Position) -> Fields:
    return {"quaestor-epoch": position.epoch, "quaestor-offset": str(position.sequence)}


def _text(fields: dict[str, Any]) -> str:
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False)
