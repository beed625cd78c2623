"""Principals of sockets: from the handshake's fields and the tokens that messages bring."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request

from quaestor.clock import Clock
from quaestor.live.websocket.problems import ProtocolError
from quaestor.rest.access import ANONYMOUS, Principal


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """Principal with an end.

    expires_at_ms: time since the epoch at which the credentials end; None: they do not.
    """

    principal: Principal
    expires_at_ms: int | None = None

    def ended(self, now_ms: int) -> bool:
        """Whether the credentials have ended."""
        return self.expires_at_ms is not None and now_ms >= self.expires_at_ms


WhoSubscribes = Callable[[Request], Principal | Grant | Awaitable[Principal | Grant]]
"""The principal of a request: the function that a `QuaestorRouter` takes, or one that returns a Grant.

The request has the fields of the handshake. A token of a message replaces its `Authorization` by `Bearer <token>`.
"""


async def granted(
    who: WhoSubscribes | None, scope: MutableMapping[str, Any], token: str | None, *, clock: Clock
) -> Grant:
    """The grant of a client. Raises what `who` raises, such as HTTPException, and ProtocolError (401) if the grant has ended.

    scope: of the handshake, or of an HTTP request.
    """
    if who is None:
        return Grant(principal=ANONYMOUS)
    headers = list(scope["headers"])
    if token is not None:
        headers = [(name, value) for name, value in headers if name != b"authorization"]
        headers.append((b"authorization", f"Bearer {token}".encode("latin-1", "replace")))
    request = Request(dict(scope) | {"type": "http", "method": "GET", "headers": headers})
    answer = who(request)
    principal = await answer if inspect.isawaitable(answer) else answer
    grant = principal if isinstance(principal, Grant) else Grant(principal=principal)
    if grant.ended(clock()):
        raise expired()
    return grant


def expired() -> ProtocolError:
    """The problem of credentials that have ended."""
    return ProtocolError(
        401, "the credentials have expired; sign in again. On an open socket send `token` before they do"
    )
