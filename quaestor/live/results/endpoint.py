"""Endpoint for readers of channels: pages of results, the newest run, acknowledgements, streams of events and sockets.

    app.router.routes.extend(channel_results(source))

A page that can grow no more is an immutable resource, so every cache may keep it. The newest run of a channel is the only
resource that changes. Protocol: docs/channels/brokers.md.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from collections.abc import Callable
from typing import Any, Final, TypeVar

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute

from quaestor.errors import ConfigurationError, DependencyError
from quaestor.live.long_poll import wait_s
from quaestor.live.results.source import ResultPage, ResultSource
from quaestor.live.results.streams import ResultSocket, ResultStream
from quaestor.live.sse import wants_stream
from quaestor.read_path.validation import none_match_fails

MOST_LIMIT: Final = 10_000
_DEFAULT_LIMIT: Final = 1_000
_MOST_BODY: Final = 4_096
_LEAST_GZIP: Final = 1_000
_LONGEST_WAIT_S: Final = 60
_NUMBER: Final = re.compile(r"\d{1,18}", re.ASCII)
_FINAL: Final = "max-age=31536000, immutable"
_SIGNATURE: Final = ("webhook-id", "webhook-timestamp", "webhook-signature")

T = TypeVar("T")


class _Refused(Exception):  # noqa: N818
    """Refusal of a request."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


def channel_results(source: ResultSource, *, path: str = "/channels", most_streams: int = 10_000) -> list[BaseRoute]:
    """Return the routes of the endpoint.

    most_streams: streams and sockets that may be open at a time.
    """
    endpoint = ResultEndpoint(source, most_streams)
    channel, subscription = f"{path}/{{channel}}", f"{path}/{{channel}}/subscriptions/{{subscription}}"
    return [
        Route(f"{channel}/newest", endpoint.newest, methods=["GET"]),
        Route(f"{channel}/results", endpoint.of_broker, methods=["GET"]),
        Route(f"{channel}/acknowledgements", endpoint.acknowledge, methods=["POST"]),
        Route(f"{subscription}/results", endpoint.of_subscription, methods=["GET"]),
        WebSocketRoute(f"{subscription}/socket", endpoint.socket),
    ]


def _never(_request: Request) -> bool:
    return False


class ResultEndpoint:
    """Handlers of the routes.

    is_stored: whether the cache around the application stores the newest run, and is invalidated with each new one.
    """

    def __init__(
        self, source: ResultSource, most_streams: int, *, is_stored: Callable[[Request], bool] = _never
    ) -> None:
        self._source = source
        self._is_stored = is_stored
        self._stream = ResultStream(source, most_streams)
        self.socket = ResultSocket(source, self._stream.places)

    async def newest(self, request: Request) -> Response:
        """The newest run that has results. With `Prefer: wait=25` the answer waits for a run after the parameter `after`."""
        return await _answered(request, self._newest)

    async def of_broker(self, request: Request) -> Response:
        """A page of results for the subscriptions of a broker. The broker signs the request, unless its pages are public."""
        return await _answered(request, self._of_broker)

    async def of_subscription(self, request: Request) -> Response:
        """A page of results for a subscription, or a stream of events. The identity of the subscription admits to it."""
        return await _answered(request, self._of_subscription)

    async def acknowledge(self, request: Request) -> Response:
        """Acknowledgement of a run: {"broker", "run"}, signed by the broker."""
        return await _answered(request, self._acknowledge)

    async def _newest(self, request: Request) -> Response:
        channel = request.path_params["channel"]
        await self._hold(request, channel)
        run = await _in_thread(lambda: self._source.newest(channel))
        body = json.dumps({"channel": channel, "newest": run}).encode()
        if "prefer" in request.headers:
            return _page_response(request, body, "no-store")
        return _page_response(request, body, "" if self._is_stored(request) else "no-cache")

    async def _of_broker(self, request: Request) -> Response:
        channel, broker = request.path_params["channel"], request.query_params.get("broker", "")
        if not broker:
            raise _Refused(400, "name the broker: ?broker=")
        is_public = await _in_thread(lambda: self._source.is_public(broker))
        if not is_public:
            await self._check(request, broker, f"GET {request.url.path}?{request.url.query}")
        after, limit, upto = _range(request)
        await self._hold(request, channel)
        page = await _in_thread(lambda: self._source.for_broker(channel, broker, after, limit, upto))
        return _page(request, page, scope="public" if is_public else "private")

    async def _of_subscription(self, request: Request) -> Response:
        channel, subscription = request.path_params["channel"], request.path_params["subscription"]
        after, limit, upto = _range(request)
        if wants_stream(request.scope["headers"]):
            return await self._stream.response(request, channel, subscription, after)
        await self._hold(request, channel)
        page = await _in_thread(lambda: self._source.for_subscription(channel, subscription, after, limit, upto))
        return _page(request, page, scope="public")

    async def _acknowledge(self, request: Request) -> Response:
        channel, content = request.path_params["channel"], bytearray()
        async for part in request.stream():
            content += part
            if len(content) > _MOST_BODY:
                raise _Refused(413, f"an acknowledgement has at most {_MOST_BODY} bytes")
        try:
            text = content.decode()
            fields = json.loads(text)
            broker, run = fields["broker"], fields["run"]
        except (ValueError, KeyError, TypeError) as error:
            raise _Refused(400, 'the body is {"broker": name, "run": number}') from error
        if not isinstance(broker, str) or isinstance(run, bool) or not isinstance(run, int) or run < 0:
            raise _Refused(400, 'the body is {"broker": name, "run": number}')
        await self._check(request, broker, text)
        upto = await _in_thread(lambda: self._source.acknowledge(channel, broker, run))
        return JSONResponse({"channel": channel, "acknowledged": upto})

    async def _check(self, request: Request, broker: str, content: str) -> None:
        fields = {name: request.headers.get(name, "") for name in _SIGNATURE}
        if not await _in_thread(lambda: self._source.admits(broker, fields, content)):
            raise _Refused(401, f"the request is not signed with the key of broker {broker!r}, or not now")

    async def _hold(self, request: Request, channel: str) -> None:
        """Hold a long poll back until there is a run after the client's, or its time is over."""
        seconds = min(wait_s(request.scope["headers"]), _LONGEST_WAIT_S)
        if seconds:
            await self._source.wait(channel, _range(request)[0], seconds)


async def _answered(request: Request, work: Callable[[Request], Any]) -> Response:
    try:
        response: Response = await work(request)
    except _Refused as error:
        return JSONResponse({"error": str(error)}, status_code=error.status)
    except ConfigurationError as error:
        return JSONResponse({"error": str(error)}, status_code=404)
    except DependencyError:
        return JSONResponse({"error": "the results cannot be read now"}, status_code=503, headers={"retry-after": "1"})
    return response


async def _in_thread(work: Callable[[], T]) -> T:
    return await anyio.to_thread.run_sync(work)


def _range(request: Request) -> tuple[int, int, int | None]:
    """Return the parameters after, limit and upto of a request. Raises _Refused."""
    after, limit, upto = (_number(request, name) for name in ("after", "limit", "upto"))
    limit = _DEFAULT_LIMIT if limit is None else limit
    if not 0 < limit <= MOST_LIMIT:
        raise _Refused(400, f"limit is from 1 to {MOST_LIMIT}")
    return after or 0, limit, upto


def _number(request: Request, name: str) -> int | None:
    text = request.query_params.get(name)
    if text is None:
        return None
    if not _NUMBER.fullmatch(text):
        raise _Refused(400, f"{name} is a whole number")
    return int(text)


def _page(request: Request, page: ResultPage, *, scope: str) -> Response:
    return _page_response(request, page.body, f"{scope}, {_FINAL}" if page.is_final else f"{scope}, no-cache")


def _page_response(request: Request, body: bytes, cache_control: str) -> Response:
    etag = f'W/"{hashlib.sha256(body).hexdigest()[:32]}"'
    fields = {"etag": etag, "vary": "accept-encoding, accept"} | (
        {"cache-control": cache_control} if cache_control else {}
    )
    held = request.headers.getlist("if-none-match")
    if held and none_match_fails(", ".join(held).encode("latin-1"), etag.encode()):
        return Response(status_code=304, headers=fields)
    if len(body) >= _LEAST_GZIP and "gzip" in request.headers.get("accept-encoding", ""):
        body = gzip.compress(body, mtime=0)
        fields["content-encoding"] = "gzip"
    return Response(body, media_type="application/json", headers=fields)
