"""Parameters of a live query in a URL: read strictly, and written in one canonical form, so that equal queries share URLs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, urlencode

from pydantic import ValidationError
from starlette.requests import Request

from quaestor.live.websocket.limits import SocketLimits
from quaestor.live.websocket.pipelines import PIPELINE_DEEPER
from quaestor.live.websocket.positions import Position
from quaestor.live.websocket.requests import Collation, Subscribe
from quaestor.rest import strict_json
from quaestor.rest.filters import parse_filter, parse_sort
from quaestor.rest.list_parameters import given_parameters
from quaestor.rest.problems import Problem

PARAMETERS: Final = (
    "query", "sort", "skip", "limit", "pipeline", "collation", "poll", "delivery", "epoch", "offset", "live", "cursor", "retry",
)  # fmt: skip
"""Known parameters, in canonical order. Only `retry` is in no link of the server."""
_BRANCHES: Final = ("$and", "$or", "$nor")
_EPOCH: Final = re.compile(r"[A-Za-z0-9:.-]{1,80}")
_MOST_RETRY: Final = 64
_MOST_POLL_MS: Final = 3_600_000
_MOST: Final = 10**15
_MOST_ROWS: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRequest:
    """Request for a live query.

    given: the parameters as they came. Each answer repeats them, so that a client notices a cache that changed them.
    query: the canonical parameters of the query, without defaults, in order.
    message: the query as a message of a socket.
    epoch: the epoch that the client wants; None: any.
    offset: the number of the newest change that the client has; None: the client wants a snapshot.
    live: whether the answer may wait for a change.
    cursor: of the answer before that had no news.
    retry: whether the client has met a wrong answer, and goes round all caches.
    """

    given: Mapping[str, str]
    query: tuple[tuple[str, str], ...]
    message: Subscribe
    epoch: str | None
    offset: int | None
    live: bool
    cursor: int
    retry: bool

    @property
    def position(self) -> Position | None:
        """The position of the client; None: the client wants a snapshot."""
        return None if self.epoch is None or self.offset is None else Position(self.epoch, self.offset)

    def link(self, epoch: str, offset: int | None = None, *, cursor: int | None = None) -> str:
        """Relative URL of the next request: of the snapshot of an epoch, or of what comes behind a change."""
        pairs = [*self.query, ("epoch", epoch)]
        if offset is not None:
            pairs += [("offset", str(offset)), ("live", "true")]
        if cursor is not None:
            pairs.append(("cursor", str(cursor)))
        return "?" + urlencode(pairs, quote_via=quote)


def parse_live(request: Request, bucket: str, limits: SocketLimits) -> LiveRequest:
    """Return the query and the position in the parameters of a request.

    Raises Problem (400) with the parameter, the value and the remedy.
    """
    given = given_parameters(request, PARAMETERS)
    query, sort = _canonical(given, limits)
    poll = _number(given, "poll", most=_MOST_POLL_MS) or 0
    pipeline, collation = _pipeline(given, limits), _collation(given)
    skip = _number(given, "skip", most=limits.rows - 1)
    limit = _number(given, "limit", most=_MOST_ROWS)
    delivery = given.get("delivery", "state")
    if delivery not in ("state", "exact"):
        raise _refused("delivery", delivery, "write `state` or `exact`")
    epoch, offset = given.get("epoch"), _number(given, "offset", most=_MOST)
    if epoch is not None and not _EPOCH.fullmatch(epoch):
        raise _refused("epoch", epoch, "copy it from an answer")
    if offset is not None and epoch is None:
        raise _refused("offset", str(offset), "it needs `epoch`; follow the `next` of an answer")
    live = given.get("live", "false")
    if live not in ("true", "false"):
        raise _refused("live", live, "write `true` or `false`")
    if live == "true" and offset is None:
        raise _refused("live", live, "it needs `epoch` and `offset`; ask for a snapshot first, and follow its `next`")
    retry = given.get("retry", "")
    if len(retry) > _MOST_RETRY:
        raise _refused("retry", retry, f"at most {_MOST_RETRY} characters")
    pairs = (
        ("query", "" if query == "{}" else query), ("sort", sort), ("skip", skip), ("limit", limit), ("pipeline", pipeline),
        ("collation", collation and collation.model_dump_json(exclude_none=True)), ("poll", poll),
    )  # fmt: skip
    canonical = [(name, str(value)) for name, value in pairs if value]
    if delivery != "state":
        canonical.append(("delivery", delivery))
    return LiveRequest(
        given=given,
        query=tuple(canonical),
        message=_message(
            bucket,
            query,
            sort,
            offset=skip,
            limit=limit,
            pipeline=pipeline,
            collation=collation,
            delivery=delivery,
            poll=poll,
        ),
        epoch=epoch,
        offset=offset,
        live=live == "true",
        cursor=_number(given, "cursor", most=_MOST) or 0,
        retry=bool(retry),
    )


def _message(bucket: str, query: str, sort: str, **fields: Any) -> Subscribe:
    try:
        return Subscribe(type="subscribe", id="live", bucket=bucket, query=query, sort=sort or None, **fields)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        name = str(first["loc"][0]) if first["loc"] else "query"
        raise _refused(name, str(fields.get(name) or ""), first["msg"]) from None


def _pipeline(given: Mapping[str, str], limits: SocketLimits) -> str | None:
    """The pipeline as canonical text: without blanks. The order of names may matter within stages, and stays."""
    text = given.get("pipeline")
    if text is None or len(text.encode("utf-8", "replace")) > limits.query.filter_bytes:
        return text  # it is refused with the reason later
    try:
        canonical = strict_json.dumps(
            strict_json.parse(text, depth=PIPELINE_DEEPER * limits.query.filter_depth)
        ).decode()
    except strict_json.JsonError as error:
        raise _refused("pipeline", text, error.reason) from error
    return canonical


def _collation(given: Mapping[str, str]) -> Collation | None:
    text = given.get("collation")
    if text is None:
        return None
    try:
        return Collation.model_validate_json(text)
    except ValidationError as error:
        raise _refused("collation", text, error.errors(include_url=False, include_input=False)[0]["msg"]) from None


def _canonical(given: Mapping[str, str], limits: SocketLimits) -> tuple[str, str]:
    """The query and the sort as canonical texts. The query's text is read again, so it means the same in every link."""
    text = given.get("query", "{}")
    document = parse_filter(text, limits.query).document
    canonical = strict_json.dumps(_ordered(document)).decode()
    again = strict_json.dumps(_ordered(parse_filter(canonical, limits.query).document)).decode()
    sort = parse_sort(given["sort"], limits.query) if given.get("sort") else ()
    return (canonical if again == canonical else text), strict_json.dumps(dict(sort)).decode() if sort else ""


def _ordered(document: Mapping[str, Any]) -> dict[str, Any]:
    """The filter with its conditions by name: their order means nothing to the database."""
    return {
        name: [_ordered(branch) if isinstance(branch, Mapping) else branch for branch in value]
        if name in _BRANCHES and isinstance(value, list)
        else value
        for name, value in sorted(document.items())
    }


def _number(given: Mapping[str, str], name: str, *, most: int) -> int | None:
    text = given.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(most)) and int(text) <= most):
        raise _refused(name, text, f"write an integer from 0 to {most}")
    return int(text)


def _refused(parameter: str, value: str, remedy: str) -> Problem:
    return Problem(400, f"{parameter}-refused", f"{parameter}={value[:80]!r}: {remedy}", parameter=parameter)
