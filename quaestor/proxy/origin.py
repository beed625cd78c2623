"""Asking the origin: one HTTP/1.1 connection pool (httpx's transport, beneath everything that changes messages: no redirects, no
decoding, no cookies, no environment proxies)."""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from quaestor.errors import ConfigurationError, DependencyError
from quaestor.proxy.options import ProxyOptions

_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})


class OriginError(DependencyError):
    """The origin did not answer. status: what the client is told; error: its RFC 9209 name; detail: in a sentence."""

    def __init__(self, cause: Exception, *, status: int, error: str, detail: str) -> None:
        super().__init__(f"{error}: {type(cause).__name__}: {cause}")
        self.status = status
        self.error = error
        self.detail = detail


class OriginBrokeOffError(DependencyError):
    """The origin's answer ended before it was complete: the client has a part of it."""


class RequestBrokeOffError(Exception):
    """The client went away while it was sending its request."""


@dataclass(slots=True)
class Answer:
    """status, headers: raw, as they came, in order. version: of HTTP. Read body once, then aclose()."""

    status: int
    headers: list[tuple[bytes, bytes]]
    version: str
    _response: httpx.Response

    async def body(self) -> AsyncGenerator[bytes, None]:
        """The bytes as they are on the wire, without the transfer coding. Raises OriginBrokeOffError."""
        assert isinstance(self._response.stream, httpx.AsyncByteStream)
        try:
            async for chunk in self._response.stream:
                yield chunk
        except httpx.TransportError as error:
            raise OriginBrokeOffError(f"{type(error).__name__}: {error}") from error

    async def aclose(self) -> None:
        """The connection goes back to the pool if it is in step; otherwise it is closed."""
        if not _in_step(self._response):
            await self._response.extensions["network_stream"].aclose()
        await self._response.aclose()


class Origin:
    """The pool. Use from one event loop."""

    def __init__(self, options: ProxyOptions) -> None:
        self._base = options.base
        try:
            verify: ssl.SSLContext | bool = (
                ssl.create_default_context(cafile=str(options.origin_ca)) if options.origin_ca is not None else True
            )
        except (OSError, ssl.SSLError) as error:
            raise ConfigurationError(f"--origin-ca {options.origin_ca}: {error}") from error
        self._timeout = {
            "connect": options.connect_timeout_s,
            "read": options.read_timeout_s,
            "write": options.write_timeout_s,
            "pool": options.pool_timeout_s,
        }
        self._transport = httpx.AsyncHTTPTransport(
            verify=verify,
            trust_env=False,
            http2=False,
            limits=httpx.Limits(
                max_connections=options.max_connections,
                max_keepalive_connections=options.max_connections,
                keepalive_expiry=options.keepalive_s,
            ),
        )

    async def ask(
        self, method: str, target: bytes, headers: Sequence[tuple[bytes, bytes]], body: AsyncIterator[bytes] | None
    ) -> Answer:
        """Returns when the head of the answer is here. Raises OriginError, RequestBrokeOffError.

        A safe request without a body that met a connection which the origin was just closing is sent once more.
        """
        steps: set[str] = set()

        async def trace(step: str, _: object) -> None:
            steps.add(step)

        request = httpx.Request(
            method,
            self._base,
            headers=list(headers),
            stream=_Stream(body),
            extensions={"target": target, "timeout": self._timeout, "trace": trace},
        )
        try:
            try:
                response = await self._transport.handle_async_request(request)
            except (httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError):
                fresh = "connection.connect_tcp.started" in steps
                answered = "http11.receive_response_headers.complete" in steps
                if fresh or answered or body is not None or method not in _SAFE:
                    raise
                response = await self._transport.handle_async_request(request)
        except httpx.HTTPError as error:
            raise _translated(error) from error
        version = response.extensions.get("http_version", b"HTTP/1.1").decode("ascii", "replace").removeprefix("HTTP/")
        if not 200 <= response.status_code <= 599:
            await response.aclose()
            raise OriginError(
                ValueError(f"status {response.status_code}"),
                status=502,
                error="http_protocol_error",
                detail="The origin answered with a status that HTTP does not know.",
            )
        return Answer(response.status_code, response.headers.raw, version, response)

    async def aclose(self) -> None:
        await self._transport.aclose()


def _in_step(response: httpx.Response) -> bool:
    """Whether nothing came behind the answer. If anything did, it must not be taken for the next one's beginning.

    The library lets a connection be used again without asking its parser, so we have to: through private names, and a
    test says so when they have changed.
    """
    inner: Any = response.stream
    for name in ("_httpcore_stream", "_stream", "_connection", "_h11_state"):
        inner = getattr(inner, name, None)
    return inner is None or inner.trailing_data == (b"", False)


class _Stream(httpx.AsyncByteStream):
    def __init__(self, body: AsyncIterator[bytes] | None) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._body is not None:
            async for chunk in self._body:
                yield chunk


def _translated(error: httpx.HTTPError) -> OriginError:
    match error:
        case httpx.ConnectTimeout():
            return OriginError(
                error, status=504, error="connection_timeout", detail="The origin did not accept a connection in time."
            )
        case httpx.PoolTimeout():
            return OriginError(
                error, status=503, error="connection_limit_reached", detail="All connections to the origin are in use."
            )
        case httpx.TimeoutException():
            return OriginError(
                error, status=504, error="http_response_timeout", detail="The origin did not answer in time."
            )
        case httpx.ConnectError():
            return OriginError(
                error, status=502, error="connection_refused", detail="The origin could not be connected to."
            )
        case httpx.LocalProtocolError():
            return OriginError(
                error, status=400, error="http_request_error", detail="This request cannot be sent on as it is."
            )
        case httpx.ReadError() | httpx.WriteError() | httpx.CloseError():
            return _without_answer(error)
        case httpx.RemoteProtocolError() if "disconnected" in str(error):
            return _without_answer(error)
        case _:
            return OriginError(
                error, status=502, error="http_protocol_error", detail="The origin's answer is not valid HTTP."
            )


def _without_answer(error: httpx.HTTPError) -> OriginError:
    return OriginError(
        error, status=502, error="connection_terminated", detail="The origin closed the connection without an answer."
    )
