"""Admin API as an ASGI app: around the application, or mounted.

    app = AdminApi(app, quaestor=quaestor, token=AdminToken.load(Path("/run/secrets/quaestor")))

What is not below its path goes on to the application. Whoever has no token learns nothing, not even which endpoints exist. No
CORS fields: a page in a browser has no business here.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs

from middleware.interface import App, Receive, Scope, Send
from quaestor.admin.endpoints import Call, Endpoints, Refused, problem_of
from quaestor.admin.problem_details import problem
from quaestor.admin.registered_urls import RegisteredUrls
from quaestor.admin.token import AdminToken, Failures
from quaestor.app import Quaestor

PATH = "/quaestor/admin"
MAX_BODY_BYTES = 256 * 1024
BODY_TIMEOUT_S = 10.0
MAX_PARAMETERS = 64


class AdminApi:
    """Admin API as an ASGI app.

    app: what is wrapped; None: everything else is 404 (mounted: the mount's prefix takes the place of `path`).

    urls: where registered URLs are kept, for the proxy, which looks them up.
    database: of collections that declarations name without one.
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
        self._token = token
        self._telemetry = quaestor.telemetry
        self._failures = Failures(quaestor.read_path.clock)
        self._table = Endpoints(quaestor, urls, database=database).table()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        below = self._below(scope)
        if below is None:
            if self._app is not None:
                return await self._app(scope, receive, send)
            if scope["type"] != "http":
                raise RuntimeError(f"the admin API does not speak {scope['type']}")
            return await problem(send, 404, "There is nothing here.")
        if await self._refused(scope, send):
            return None
        status, answer = await self._answer(scope, below, receive)
        self._telemetry.event(
            "admin.call", method=scope["method"], path=below, status=status, client=_client(scope)
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
        """The path below the API's; None if the request is not for it."""
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

    async def _refused(self, scope: Scope, send: Send) -> bool:
        """Answer whoever has no token."""
        client = _client(scope)
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        # Behind a load balancer all have one address, and strangers must not keep out who has the token.
        if len(given) == 1 and self._token.allows(given[0]):
            return False
        if wait_ms := self._failures.wait_ms(client):
            self._telemetry.failure("admin", "admin.too_many_attempts", "wrong tokens", client=client)
            retry = [(b"retry-after", b"%d" % (wait_ms // 1000 + 1))]
            await problem(send, 429, "Too many attempts.", headers=retry)
            return True
        if given:
            self._failures.note(client)
            self._telemetry.failure("admin", "admin.wrong_token", "a request without the right token", client=client)
        challenge = [(b"www-authenticate", b'Bearer realm="quaestor"')]
        await problem(send, 401, "A bearer token is needed.", headers=challenge)
        return True

    async def _answer(self, scope: Scope, below: str, receive: Receive) -> tuple[int, Mapping[str, Any]]:
        method: str = scope["method"]
        endpoint = self._table.get((method, below))
        if endpoint is None:
            allowed = sorted(known for known, path in self._table if path == below)
            if not allowed:
                return 404, {"detail": "There is nothing here."}
            return 405, {"detail": f"Not {method} here.", "headers": [(b"allow", ", ".join(allowed).encode())]}
        try:
            call = Call(parameters=_parameters(scope), body=await _body(scope, receive) if method == "POST" else None)
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


async def _body(scope: Scope, receive: Receive) -> Any:
    kinds = [value.partition(b";")[0].strip().lower() for name, value in scope["headers"] if name == b"content-type"]
    if kinds != [b"application/json"]:
        raise Refused(415, "The body is application/json.")
    collected = bytearray()
    more = True
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise Refused(400, "The body broke off.")
                collected += message.get("body", b"")
                more = message.get("more_body", False)
                if len(collected) > MAX_BODY_BYTES:
                    raise Refused(413, f"The body has more than {MAX_BODY_BYTES} bytes.")
    except TimeoutError as error:
        raise Refused(408, "The body did not arrive in time.") from error
    try:
        return json.loads(collected)
    except (ValueError, RecursionError) as error:
        raise Refused(400, f"the body is not JSON: {error}"[:200]) from error


def _client(scope: Scope) -> str:
    client = scope.get("client")
    return client[0] if client else "unknown"
