"""Client of one live query over HTTP: snapshots, chunks and long polls, which caches may carry (docs/live_http.md)."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from quaestor.client.live.credentials import Credentials, present_token
from quaestor.client.live.pauses import UNAVAILABLE, spread_pause_s
from quaestor.client.live.rows import LiveRows, OutOfStepError
from quaestor.client.live.streams import decoded, query_fields
from quaestor.errors import ConfigurationError, SubscriptionError

if TYPE_CHECKING:
    import httpx

_READ_S: Final = 60.0
_MOST_GONE: Final = 5
"""Times that the server may not know the client's position before the client gives up, without a change in between."""
_AGAIN: Final = UNAVAILABLE | {429}
_UNAUTHORIZED: Final = 401
_WAITING: Final = ("live", "cursor")


class _Answer(NamedTuple):
    """Answer of the server, for the parameters that were sent. status: 200 or 409."""

    status: int
    body: Mapping[str, Any]


class _UnsuitableError(Exception):
    """Answer that is not for the request: a proxy has changed the request, or kept another answer."""


class HttpLiveQuery:
    """Results of one query over HTTP: an asynchronous iterator over whole results. For one task.

    `async with HttpLiveQuery("https://shop.example/live", "items", {"tag": "tea"}) as results:`

    url: of the endpoint.
    http: client for the requests, for example with credentials; None: the query has its own.
    options:
        pipeline: stages of an aggregation, in place of the filter, `sort`, `skip` and `limit`.
        collation: rules by which strings compare, such as {"locale": "de"}.
        token: credentials, sent as `Authorization: Bearer`, or a function that gives the present ones before each request. After
            a 401 the query asks the function and the server once more.

    Iteration raises SubscriptionError if the server refuses the query, or if a proxy gives answers to other requests.
    """

    def __init__(
        self,
        url: str,
        collection: str,
        filter: Mapping[str, Any] | None = None,  # noqa: A002 - pymongo's name
        *,
        sort: Sequence[tuple[str, int]] | None = None,
        skip: int = 0,
        limit: int = 0,
        http: httpx.AsyncClient | None = None,
        **options: Any,
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise ConfigurationError(f"{url!r} is no URL of HTTP: write 'https://shop.example/live'")
        unknown = sorted(options.keys() - {"pipeline", "collation", "token"})
        if unknown:
            raise ConfigurationError(f"HttpLiveQuery has no option {unknown[0]!r}")
        self._credentials: Credentials = options.pop("token", None)
        fields = query_fields(collection, filter, sort, skip, limit, **options)
        self._url = f"{url.rstrip('/')}/{quote(fields.pop('bucket'), safe='')}"
        if "offset" in fields:
            fields["skip"] = fields.pop("offset")
        if "collation" in fields:
            fields["collation"] = json.dumps(fields["collation"])
        self._first = self._next = "?" + urlencode(fields, quote_via=quote)
        self._rows = LiveRows()
        self._known = False
        self._gone = 0
        self._failed = 0
        self._http = http
        self._own = http is None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections, if they are the query's own. Does nothing the second time."""
        if self._own and self._http is not None:
            await self._http.aclose()
            self._http = None

    def latest(self) -> list[Any] | None:
        """The present result; None before the first one. The records belong to the query: do not change them."""
        return self._rows.records() if self._known else None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[Any]:
        while not await self._step():
            pass
        return self._rows.records()

    async def _step(self) -> bool:
        """Take one answer. Return whether the result has changed."""
        answer = await self._suitable()
        if answer.status == 409:
            self._gone += 1
            if self._gone > _MOST_GONE:
                raise SubscriptionError(
                    f"{self._url} does not know the position of its own snapshots; look for a cache that keeps 409",
                    retryable=False,
                )
            self._next = answer.body["next"]
            return False
        try:
            news = self._take(answer.body)
        except (OutOfStepError, KeyError, ValueError):
            self._gone, self._next = self._gone + 1, self._first
            return False
        self._next = answer.body["next"]
        return news

    def _take(self, body: Mapping[str, Any]) -> bool:
        if "data" in body:
            self._rows.replace(body["data"], body.get("keys"))
            self._known = True
            return True
        for change in body["changes"]:
            self._rows.apply(change)
        if body["changes"]:
            self._gone = 0
        return bool(body["changes"])

    async def _suitable(self) -> _Answer:
        """The answer to the next request. A wrong one is asked for once more, around all caches."""
        retry = self._gone > 1
        while True:
            try:
                return await self._asked(_changed(self._next, retry=uuid.uuid4().hex) if retry else self._next)
            except _UnsuitableError as error:
                if retry:
                    raise SubscriptionError(
                        f"{self._url} answered another request: {error}. Let the proxies in front pass the query "
                        "string on, and keep no answer longer than its Cache-Control allows",
                        retryable=False,
                    ) from None
                retry = True

    async def _asked(self, url: str) -> _Answer:
        """The answer to a request. Tries until the server answers."""
        import httpx

        if self._http is None:
            self._http, self._own = httpx.AsyncClient(timeout=_READ_S), True
        may_renew = callable(self._credentials)
        while True:
            token = await present_token(self._credentials)
            headers = {} if token is None else {"Authorization": f"Bearer {token}"}
            response: httpx.Response | None = None
            with suppress(httpx.TransportError):
                response = await self._http.get(self._url + url, headers=headers, follow_redirects=False)
            if response is not None and response.status_code == _UNAUTHORIZED and may_renew:
                may_renew = False  # the token may have ended during a long poll; a second refusal is final
            elif response is not None and response.status_code not in _AGAIN:
                self._failed = 0
                return _checked(url, response.status_code, response.text)
            else:
                await self._pause(response)
            url = _changed(url, without=_WAITING)

    async def _pause(self, response: httpx.Response | None) -> None:
        self._failed += 1
        after = "" if response is None else response.headers.get("retry-after", "")
        await asyncio.sleep(spread_pause_s(self._failed) + (float(after) if after.isdigit() else 0))


def _checked(url: str, status: int, text: str) -> _Answer:
    """The answer, if it is for this request and leads on. Raises _UnsuitableError if not, SubscriptionError for a refusal."""
    try:
        body = decoded(text)
        request = body.get("for")
    except (ValueError, AttributeError, TypeError):
        raise _UnsuitableError(f"status {status} without a JSON object") from None
    if status not in (200, 409):
        if status >= 400:
            raise SubscriptionError(str(body.get("detail", f"status {status}")), retryable=False)
        raise _UnsuitableError(f"status {status} and no result")
    sent = _parameters(url)
    if request != sent:
        raise _UnsuitableError(f"it is for {json.dumps(request)[:200]}, not for {json.dumps(sent)[:200]}")
    following = body.get("next")
    if not isinstance(following, str) or _parameters(following) == sent:
        raise _UnsuitableError("its `next` does not lead on")
    if status == 200 and not _advances(sent, body):
        raise _UnsuitableError(f"it does not advance behind offset {sent.get('offset')}")
    return _Answer(status, body)


def _advances(sent: Mapping[str, str], body: Mapping[str, Any]) -> bool:
    """Whether a 200 is a snapshot of the epoch that was wanted, or leads to a later position, or ends a wait."""
    if "offset" not in sent:
        return "data" in body and sent.get("epoch") in (None, body.get("epoch"))
    place = (sent["epoch"], int(sent["offset"]))
    reached = (str(body.get("epoch")), body.get("offset"))
    if not isinstance(body.get("changes"), list) or type(reached[1]) is not int:
        return False
    return reached == place if body.get("up_to_date") else reached > place


def _parameters(url: str) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(url).query, keep_blank_values=True))


def _changed(url: str, *, without: Sequence[str] = (), **more: str) -> str:
    kept = {name: value for name, value in _parameters(url).items() if name not in without}
    return "?" + urlencode(kept | more, quote_via=quote)
