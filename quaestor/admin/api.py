"""Admin API as an ASGI app: around the application, or mounted.

    app = AdminApi(app, quaestor=quaestor, token=AdminToken.load(Path("/run/secrets/quaestor")))

Requests outside its path go on to the application. A client without a token learns nothing, not even which endpoints exist. The
answers have no CORS fields, because pages in a browser do not use this API.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs

from quaestor.admin.endpoints import Endpoints, problem_of
from quaestor.admin.guard import Guard, client_of
from quaestor.admin.problem_details import problem
from quaestor.admin.registered_urls import RegisteredUrls
from quaestor.admin.request import Call, Refused, json_body
from quaestor.admin.token import AdminToken
from quaestor.app import Quaestor
from quaestor.middleware.interface import App, Receive, Scope, Send

PATH = "/quaestor/admin"
MAX_PARAMETERS = 64


class AdminApi:
    """Admin API as an ASGI app.

    app: the application that is wrapped. None: every other path is 404 (mounted: the mount's prefix takes the place of `path`).

    urls: where the proxy's registered URLs are kept; the proxy looks them up there.
    database: database of collections whose declaration names none.
    """

    def __init__(
        self,
        app: App | None = None,
        *,
        quaestor: Quaestor,
        token: AdminToken,
        path: str = PATH,
        urls: RegisteredUrls | None = None,
        database: str | None = None,
    ) -> None:
        self._app = app
        self._path = path.rstrip("/")
        self._telemetry = quaestor.telemetry
        self._guard = Guard((token,), quaestor.telemetry, quaestor.read_path.clock)
        self._table = Endpoints(quaestor, urls, database=database).table()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        below = self._below(scope)
        if below is None:
            if self._app is not None:
                return await self._app(scope, receive, send)
            if scope["type"] != "http":
                raise RuntimeError(f"the admin API does not speak {scope['type']}")
            return await problem(send, 404, "There is nothing here.")
        if await self._guard.admitted(scope, send) is None:
            return None
        status, answer = await self._answer(scope, below, receive)
        self._telemetry.event(
            "admin.call", method=scope["method"], path=below, status=status, client=client_of(scope)
        )  # fmt: skip
        if status != 200:
            return await problem(send, status, str(answer["detail"]), headers=answer.get("headers"))
        body = json.dumps(answer, ensure_ascii=False).encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"cache-control", b"no-store"),
            (b"x-content-type-options", b"nosniff"),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        return await send({"type": "http.response.body", "body": body})

    def _below(self, scope: Scope) -> str | None:
        """Path below the API's path; None if the request is not for the API."""
        if scope["type"] != "http":
            return None
        path: str = scope["path"]
        root: str = scope.get("root_path", "")
        inner = path.removeprefix(root) if root else path
        if self._app is None and root:
            return inner
        if inner == self._path or inner.startswith(self._path + "/"):
            return inner.removeprefix(self._path)
        return None

    async def _answer(self, scope: Scope, below: str, receive: Receive) -> tuple[int, Mapping[str, Any]]:
        method: str = scope["method"]
        endpoint = self._table.get((method, below))
        if endpoint is None:
            allowed = sorted(known for known, path in self._table if path == below)
            if not allowed:
                return 404, {"detail": "There is nothing here."}
            return 405, {"detail": f"Not {method} here.", "headers": [(b"allow", ", ".join(allowed).encode())]}
        try:
            call = Call(
                parameters=_parameters(scope), body=await json_body(scope, receive) if method == "POST" else None
            )
            return 200, await endpoint(call)
        except Exception as error:
            foreseen = problem_of(error)
            if foreseen is None:
                self._telemetry.failure("admin", "admin.failed", repr(error), path=below)
            status, detail = foreseen or (500, "A mistake of ours; the log says more.")
            return status, {"detail": detail}


def _parameters(scope: Scope) -> Mapping[str, list[str]]:
    try:
        return parse_qs(
            scope["query_string"].decode("ascii"),
            keep_blank_values=True,
            strict_parsing=bool(scope["query_string"]),
            errors="strict",
            max_num_fields=MAX_PARAMETERS,
        )
    except ValueError as error:
        raise Refused(400, f"the query string is malformed: {error}"[:200]) from error
