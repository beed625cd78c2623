"""Origin of a proxy: its answers, or the reasons why there is none, with the status that the client receives."""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass

import h11

from quaestor.errors import DependencyError
from quaestor.proxy.connection import Connection, Interim, RequestBrokeOffError
from quaestor.proxy.options import ProxyOptions
from quaestor.proxy.pool import NoConnectionError, Pool
from quaestor.proxy.request_body import RequestBody

_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_FAILURES = (h11.ProtocolError, OSError, EOFError, TimeoutError)


class OriginError(DependencyError):
    """Error that the origin did not answer.

    status: status that the client receives.
    error: name of the error in RFC 9209.
    detail: the error in a sentence.
    """

    def __init__(self, cause: Exception, *, status: int, error: str, detail: str) -> None:
        super().__init__(f"{error}: {type(cause).__name__}: {cause}")
        self.status = status
        self.error = error
        self.detail = detail


class OriginBrokeOffError(DependencyError):
    """Error that the origin's answer ended before it was complete: the client has a part of it."""


@dataclass(slots=True)
class Answer:
    """Answer of the origin, up to its head.

    headers: raw fields, in order, with names in lower case.
    version: version of HTTP. Read body once, then close().
    """

    status: int
    headers: list[tuple[bytes, bytes]]
    version: str
    _pool: Pool
    _connection: Connection

    async def body(self) -> AsyncGenerator[bytes, None]:
        """Bytes as they are on the wire, without the transfer coding. Raises OriginBrokeOffError."""
        try:
            async for piece in self._connection.body():
                yield piece
        except (*_FAILURES, RequestBrokeOffError) as error:
            raise OriginBrokeOffError(f"{type(error).__name__}: {error}") from error

    def close(self) -> None:
        """Give the connection back; it is used again if its exchange is complete."""
        self._pool.put(self._connection)


class Origin:
    """Origin of one proxy. Use from one event loop."""

    def __init__(self, options: ProxyOptions) -> None:
        self._pool = Pool(options)

    async def ask(
        self,
        method: str,
        target: bytes,
        headers: Sequence[tuple[bytes, bytes]],
        body: RequestBody | None,
        *,
        interim: Interim,
    ) -> Answer:
        """Send a request; returns when the head of the answer has come. Raises OriginError, RequestBrokeOffError.

        body: read ahead. A safe request without a body is sent once more if the origin was just closing the connection.
        """
        again = False
        while True:
            try:
                connection = await self._pool.take(fresh=again, uploading=body is not None and not body.complete)
            except (OSError, TimeoutError, NoConnectionError) as error:
                raise _unconnected(error) from error
            try:
                answer = await connection.ask(method, target, headers, None if body is None else body.pieces(), interim)
            except _FAILURES as error:
                self._give_up(connection)
                stale = connection.exchanges > 1 and not connection.answered and not isinstance(error, TimeoutError)
                if again or not stale or body is not None or method not in _SAFE:
                    raise _unanswered(error) from error
                again = True
            except BaseException:
                self._give_up(connection)
                raise
            else:
                return self._answer(answer, connection)

    def _answer(self, answer: h11.Response, connection: Connection) -> Answer:
        if not 200 <= answer.status_code <= 599:
            self._give_up(connection)
            raise OriginError(
                ValueError(f"status {answer.status_code}"),
                status=502,
                error="http_protocol_error",
                detail="The origin answered with a status that HTTP does not know.",
            )
        version = answer.http_version.decode("ascii", "replace")
        return Answer(answer.status_code, list(answer.headers), version, self._pool, connection)

    def _give_up(self, connection: Connection) -> None:
        connection.close()
        self._pool.put(connection)

    def close(self) -> None:
        """Close all connections."""
        self._pool.close()


def _unconnected(error: Exception) -> OriginError:
    match error:
        case NoConnectionError():
            return OriginError(
                error, status=503, error="connection_limit_reached", detail="All connections to the origin are in use."
            )
        case TimeoutError():
            return OriginError(
                error, status=504, error="connection_timeout", detail="The origin did not accept a connection in time."
            )
        case ssl.SSLError():
            return OriginError(
                error, status=502, error="tls_certificate_error", detail="The origin's TLS could not be verified."
            )
        case _:
            return OriginError(
                error, status=502, error="connection_refused", detail="The origin could not be connected to."
            )


def _unanswered(error: Exception) -> OriginError:
    match error:
        case h11.LocalProtocolError():
            return OriginError(
                error, status=400, error="http_request_error", detail="This request cannot be sent on as it is."
            )
        case h11.RemoteProtocolError():
            return OriginError(
                error, status=502, error="http_protocol_error", detail="The origin's answer is not valid HTTP."
            )
        case TimeoutError():
            return OriginError(
                error, status=504, error="http_response_timeout", detail="The origin did not answer in time."
            )
        case _:
            return OriginError(
                error,
                status=502,
                error="connection_terminated",
                detail="The origin closed the connection without an answer.",
            )
