"""Refreshes in the background: the handler runs again after a stale answer was sent (RFC 5861, section 3)."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from quaestor.middleware.interface import Message, Receive, Scope, Send
from quaestor.observability.event_log import EventLog
from quaestor.runtime.supervision.supervisor import Supervisor

AT_ONCE = 64
"""Refreshes under way in one process, at most; further ones are left to the next request."""
_OF_ONE_CLIENT = frozenset({b"if-none-match", b"if-modified-since", b"range", b"if-range", b"cache-control", b"pragma"})

Work = Callable[[Scope, Receive, Send], Awaitable[None]]


def asked_alone(scope: Scope) -> Scope:
    """Return a copy of a scope for a background run: the handler's entries in it are lost, and the server's extensions are
    gone."""
    return {
        **scope,
        "headers": list(scope["headers"]),
        "extensions": {},
        "state": dict(scope.get("state") or {}),
    }


def only_request() -> Receive:
    """Return the `receive` of a request without a body, whose client never leaves."""
    requested = False

    async def receive() -> Message:
        nonlocal requested
        if requested:
            await asyncio.Event().wait()
        requested = True
        return {"type": "http.request", "body": b"", "more_body": False}

    return receive


class Refreshes:
    """The refreshes under way; one object per middleware. No request owns them: a client that leaves ends none, and stop()
    ends all."""

    def __init__(self, telemetry: EventLog, supervisor: Supervisor) -> None:
        self._telemetry = telemetry
        self._under_way = supervisor.errands("refreshes")

    def __len__(self) -> int:
        return len(self._under_way)

    def start(self, scope: Scope, work: Work) -> None:
        """Begin work on a GET like this one, without its conditions. No client receives the answer."""
        if len(self._under_way) >= AT_ONCE:
            return
        alone = asked_alone(scope)
        alone["headers"] = [(name, value) for name, value in scope["headers"] if name not in _OF_ONE_CLIENT]
        alone["method"] = "GET" if scope["method"] == "HEAD" else scope["method"]
        self._under_way.start(self._run(work, alone))

    def beside(self, work: Coroutine[Any, Any, None]) -> None:
        """Run work that belongs to no request and ends with the middleware."""
        self._under_way.start(work, context=contextvars.Context())

    async def _run(self, work: Work, scope: Scope) -> None:
        async def send(_: Message) -> None: ...

        try:
            await work(scope, only_request(), send)
        except Exception as error:  # the handler's; the next request for it will raise it again
            self._telemetry.failure("handler", "exchange.refresh_failed", repr(error))

    async def stop(self) -> None:
        """End the refreshes under way."""
        await self._under_way.aclose()
