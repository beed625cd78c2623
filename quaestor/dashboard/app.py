"""Dashboard as an ASGI app below one path. Every client receives the page; holders of a token receive the figures.

No file of it names its own address. The page's references are relative: they work below any prefix, and behind proxies that
strip one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from quaestor.admin.endpoints import problem_of
from quaestor.admin.guard import Guard, client_of
from quaestor.admin.problem_details import problem
from quaestor.admin.request import Refused, json_body
from quaestor.admin.token import AdminToken
from quaestor.clock import Clock
from quaestor.dashboard import channels, continuous, publishing
from quaestor.dashboard.applying import Applying
from quaestor.dashboard.assets import GUARDED, Assets
from quaestor.dashboard.canaries import Canaries
from quaestor.dashboard.channels import ChannelsView
from quaestor.dashboard.continuous import ContinuousView
from quaestor.dashboard.leaving import each_while_there
from quaestor.dashboard.live import LiveView
from quaestor.dashboard.publishing import Publishing
from quaestor.dashboard.what_if import WhatIf
from quaestor.errors import ConfigurationError
from quaestor.middleware.interface import Receive, Scope, Send
from quaestor.middleware.sketch_snapshot import acceptable
from quaestor.observability.telemetry import Telemetry
from quaestor.ttl.parameters import BOUNDS, ESTIMATORS
from quaestor.ttl.published import SupersededError

_CALLS = {"/data": "GET", "/parameters": "GET", "/what-if": "POST"}
_CALLS |= dict.fromkeys(publishing.CALLS, "POST") | continuous.CALLS | channels.CALLS
_READ_ONLY = "This is read-only: only the operators' token can "
_TUNED_THERE = "this application has an estimator of its own: its lifetimes are tuned there"


@dataclass(frozen=True, slots=True)
class DashboardTokens:
    """Tokens that the dashboard accepts.

    operators: their holders may apply parameters; empty: no client may.
    viewers: their holders may look and try parameters.
    """

    operators: Sequence[AdminToken]
    viewers: Sequence[AdminToken]


@dataclass(frozen=True, slots=True)
class FolderViews:
    """Views of what lies in the folder of continuous queries."""

    queries: ContinuousView
    channels: ChannelsView


@dataclass(frozen=True, slots=True)
class DashboardProcess:
    """Process that serves the dashboard."""

    telemetry: Telemetry
    clock: Clock


class DashboardApp:
    """Dashboard of one process.

    applying, canaries: None: the application has an estimator of its own, and nothing can be applied.
    """

    def __init__(
        self,
        *,
        path: str,
        tokens: DashboardTokens,
        live: LiveView,
        applying: Applying | None,
        canaries: Canaries | None,
        what_if: WhatIf,
        folder: FolderViews,
        process: DashboardProcess,
    ) -> None:
        self._path = path
        self._operators = tuple(tokens.operators)
        self._guard = Guard((*tokens.operators, *tokens.viewers), process.telemetry, process.clock)
        self._assets = Assets()
        self._live, self._applying, self._what_if = live, applying, what_if
        self._publish = None if applying is None or canaries is None else Publishing(applying, canaries)
        self._folder = folder
        self._telemetry = process.telemetry

    def serves(self, path: str) -> bool:
        """Whether a path belongs to the dashboard."""
        return path == self._path or path.startswith(self._path + "/")

    def begin(self) -> None:
        """Begin the background work. Called on the event loop."""
        self._live.begin()

    async def stop(self) -> None:
        """Stop the background work; the object cannot be used afterwards."""
        await self._live.stop()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        below = scope["path"].removeprefix(scope.get("root_path", "")).removeprefix(self._path)
        method: str = scope["method"]
        if not below and method in ("GET", "HEAD"):
            location = self._path.rpartition("/")[2].encode() + b"/"
            headers = [(b"location", location), (b"content-length", b"0"), (b"cache-control", b"no-store")]
            await send({"type": "http.response.start", "status": 308, "headers": headers})
            return await send({"type": "http.response.body", "body": b""})
        if below in self._assets and method in ("GET", "HEAD"):
            return await self._assets(below, scope, send)
        token = await self._guard.admitted(scope, send)
        if token is None:
            return None
        if below not in _CALLS:
            return await problem(send, 404, "There is nothing here.")
        if method != _CALLS[below]:
            return await problem(send, 405, f"Not {method} here.", headers=[(b"allow", _CALLS[below].encode())])
        try:
            if below == "/data":
                return await self._data(scope, send)
            if below == "/what-if":
                return await self._try(await json_body(scope, receive), receive, send)
            if below == "/parameters":
                answer = await self._state(token)
            elif below in continuous.CALLS or below in channels.CALLS:
                answer = await self._in_folder(below, token, scope, receive)
            else:
                answer = await self._published(below, token, scope, receive)
        except Exception as error:
            status, detail = _problem(error)
            if status == 500:
                self._telemetry.failure("admin", "admin.failed", repr(error), path=below)
            return await problem(send, status, detail)
        return await _json(send, json.dumps(answer).encode())

    async def _data(self, scope: Scope, send: Send) -> None:
        body = await self._live.look(latest=b"latest" in scope["query_string"])
        packed = b"gzip" in acceptable(scope["headers"])
        await _json(send, body.packed if packed else body.plain, packed=packed)

    async def _state(self, token: AdminToken) -> Mapping[str, Any]:
        trace = self._what_if.trace()
        state: dict[str, Any] = {
            "may_apply": token in self._operators and self._applying is not None,
            "bounds": {name: list(bounds) for name, bounds in BOUNDS.items()},
            "estimators": ESTIMATORS,
            "trace": None if trace is None else trace.name,
            "delta_s": self._what_if.delta_s,
        }
        return state if self._applying is None else state | await self._applying.state()

    async def _in_folder(self, call: str, token: AdminToken, scope: Scope, receive: Receive) -> Mapping[str, Any]:
        """Answer a call about continuous queries or channels."""
        of_queries = call in continuous.CALLS
        view = self._folder.queries if of_queries else self._folder.channels
        may_change = token in self._operators
        if _CALLS[call] == "GET":
            return await view.look(call, scope["query_string"], may_change=may_change)
        body = await json_body(scope, receive)
        if not may_change:
            raise Refused(403, f"{_READ_ONLY}change {'queries' if of_queries else 'channels'}.")
        answer = await view.change(body)
        fields = {"do": body["do"], "client": client_of(scope)}
        if of_queries:
            self._telemetry.event("continuous.changed", query=body["name"], **fields)
        else:
            self._telemetry.event("channels.changed", channel=body["name"], **fields)
        return answer

    async def _published(self, call: str, token: AdminToken, scope: Scope, receive: Receive) -> Mapping[str, Any]:
        body = await json_body(scope, receive)
        if token not in self._operators:
            raise Refused(403, f"{_READ_ONLY}apply anything.")
        if self._publish is None:
            raise ConfigurationError(_TUNED_THERE)
        publication = await self._publish(call, body, receive)
        self._telemetry.event(
            "ttl.parameters_applied", number=publication.number, by=publication.by, client=client_of(scope)
        )
        return await self._state(token)

    async def _try(self, body: Any, receive: Receive, send: Send) -> None:
        """Try {"parameters": {...}, "clients": 100, "delta_s": 10}: lines of JSON, the last one is the result."""
        if not isinstance(body, dict):
            raise Refused(400, "the body is a JSON object")
        applying = self._changeable()
        newest = (await applying.history())[-1]
        request = self._what_if.asked(body, now=newest.parameters or applying.own)
        headers = [
            (b"content-type", b"application/x-ndjson"),
            (b"cache-control", b"no-store"),
            (b"x-accel-buffering", b"no"),  # a proxy would hold the progress back
            *GUARDED,
        ]
        begun = False
        async with aclosing(each_while_there(self._what_if.run(request), receive)) as lines:
            async for line in lines:
                if not begun:
                    await send({"type": "http.response.start", "status": 200, "headers": headers})
                    begun = True
                await send({"type": "http.response.body", "body": line, "more_body": True})
        if not begun:
            raise Refused(400, "the client has gone")
        await send({"type": "http.response.body", "body": b""})

    def _changeable(self) -> Applying:
        if self._applying is None:
            raise ConfigurationError(_TUNED_THERE)
        return self._applying


async def _json(send: Send, body: bytes, *, packed: bool = False) -> None:
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        (b"cache-control", b"no-store"),
        *GUARDED,
    ]
    if packed:
        headers.append((b"content-encoding", b"gzip"))
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _problem(error: Exception) -> tuple[int, str]:
    if isinstance(error, SupersededError):
        return 409, str(error)[:500]
    return problem_of(error) or (500, "A mistake of ours; the log says more.")
