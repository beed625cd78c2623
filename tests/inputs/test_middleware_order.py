"""Middlewares inside the cache that belong around it are reported when the app starts; others are not."""

from __future__ import annotations

import functools
import secrets
from typing import Any

import httpx
import litestar
import pytest
from fastapi import FastAPI
from litestar.config.csrf import CSRFConfig
from litestar.middleware import ASGIMiddleware, DefineMiddleware
from litestar.middleware.rate_limit import RateLimitConfig
from litestar.middleware.session.server_side import ServerSideSessionConfig
from starlette.applications import Starlette
from starlette.authentication import AuthCredentials, AuthenticationBackend, AuthenticationError, SimpleUser
from starlette.endpoints import HTTPEndpoint
from starlette.middleware import Middleware
from starlette.middleware.authentication import AuthenticationMiddleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.middleware.httpsredirect import HTTPSRedirectMiddleware
from starlette.middleware.sessions import SessionMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import HTTPConnection, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route

from quaestor import AdminApi, AdminToken, Quaestor, cached, public
from quaestor.admin.status_text import text
from quaestor.middleware import QuaestorMiddleware
from quaestor.middleware.interface import App, Receive, Scope, Send
from quaestor.middleware.order import misplaced, standing_inside
from tests.hand_driven import HandEngine, reads
from tests.inputs.orgs import is_hit

pytestmark = pytest.mark.anyio

TOKEN = secrets.token_urlsafe(32)


class Wrapping:
    """An ASGI middleware that does nothing."""

    def __init__(self, app: App, **_: Any) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.app(scope, receive, send)


def named(name: str) -> Any:
    return type(name, (Wrapping,), {})


async def page(request: Request) -> Response:
    return PlainTextResponse("page")


class LoginPage(HTTPEndpoint):
    """An endpoint, not a middleware."""


def kinds(app: Any) -> set[str]:
    return {finding.kind for finding in misplaced(app)}


@pytest.mark.parametrize(
    ("middleware", "kind"),
    [
        (Middleware(AuthenticationMiddleware, backend=AuthenticationBackend()), "authentication"),
        (Middleware(SessionMiddleware, secret_key="s"), "session"),
        (Middleware(named("JWTMiddleware")), "authentication"),
        (Middleware(named("APIKeyMiddleware")), "authentication"),
        (Middleware(named("IPAllowListMiddleware")), "address-filter"),
        (Middleware(named("GeoIPMiddleware")), "address-filter"),
        (Middleware(named("CSPMiddleware")), "csp-nonce"),
        (Middleware(named("ContentSecurityPolicy")), "csp-nonce"),
        (Middleware(named("CSRFMiddleware")), "csrf"),
        (Middleware(named("SlowAPIMiddleware")), "rate-limit"),
        (Middleware(named("CorrelationIdMiddleware")), "request-id"),
        (Middleware(functools.partial(named("RequestIdMiddleware"))), "request-id"),
    ],
)
def test_middlewares_that_belong_around_the_cache_are_known(middleware: Middleware, kind: str) -> None:
    """In a Starlette app that is wrapped, in one that is mounted below it, and in the stack that a framework builds."""
    inside = Starlette(routes=[Route("/", page)], middleware=[Middleware(GZipMiddleware), middleware])
    assert kinds(inside) == {kind}
    assert kinds(Starlette(routes=[Mount("/below", inside)])) == {kind}
    assert kinds(Wrapping(inside)) == {kind}
    assert kinds(inside.build_middleware_stack()) == {kind}


@pytest.mark.parametrize(
    "harmless",
    [
        Middleware(GZipMiddleware), Middleware(CORSMiddleware, allow_origins=["*"]), Middleware(HTTPSRedirectMiddleware),
        Middleware(TrustedHostMiddleware, allowed_hosts=["*"]), Middleware(named("AuthorMiddleware")),
        Middleware(named("ZipMiddleware")), Middleware(named("Shipping")), Middleware(named("TimingMiddleware")),
        Middleware(named("SecureHeadersMiddleware")), Middleware(named("HelmetMiddleware")), Middleware(named("HSTSMiddleware")),
        Middleware(named("AllowedHostsMiddleware")), Middleware(named("UnsecuredBlobs")),
    ],
)  # fmt: skip
def test_a_middleware_that_may_stand_inside_is_not_reported(harmless: Middleware) -> None:
    """Pages and applications with a name like a middleware's are not reported either."""
    below = type("AuthApp", (Starlette,), {})(routes=[Route("/login", page, name="login"), Route("/x", LoginPage)])
    assert kinds(Starlette(routes=[Mount("/auth", below)], middleware=[harmless])) == set()
    assert kinds(FastAPI(middleware=[harmless])) == set()


def test_all_middlewares_inside_are_named_once_before_and_after_the_build() -> None:
    """`quaestor doctor`, which has no table of its own, sees the same names before and after the framework builds its
    stack.

    No part of the framework's stack is named.
    """

    class Own(BaseHTTPMiddleware):
        async def dispatch(self, request: Request, call_next: Any) -> Response:
            return await call_next(request)  # type: ignore[no-any-return]

    async def stamped(request: Request, call_next: Any) -> Response:
        return await call_next(request)  # type: ignore[no-any-return]

    app = FastAPI()
    app.add_middleware(GZipMiddleware)
    app.add_middleware(Own)
    app.add_middleware(named("JWTMiddleware"))
    app.middleware("http")(stamped)
    for looked_at in (app, app.build_middleware_stack(), Starlette(routes=[Mount("/below", app)])):
        findings = standing_inside(looked_at)
        assert {name: finding and finding.kind for name, finding in findings.items()} == {
            "GZipMiddleware": None, "Own": None, "JWTMiddleware": "authentication", "stamped": None,
        }  # fmt: skip
        assert [*filter(None, findings.values())] == misplaced(looked_at)


def test_functions_are_known_by_their_names() -> None:
    async def require_api_key(request: Request, call_next: Any) -> Response:
        return await call_next(request)  # type: ignore[no-any-return]

    app = FastAPI()
    app.middleware("http")(require_api_key)
    assert [(named.name, named.kind) for named in misplaced(app)] == [("require_api_key", "authentication")]
    assert kinds(BaseHTTPMiddleware(Starlette(), dispatch=require_api_key)) == {"authentication"}


def test_litestar_s_own_are_known() -> None:
    class Authentication(ASGIMiddleware):
        async def handle(self, scope: Any, receive: Any, send: Any, next_app: Any) -> None:
            await next_app(scope, receive, send)

    @litestar.get("/")
    async def index() -> str:
        return ""

    limit, session = RateLimitConfig(rate_limit=("minute", 1)), ServerSideSessionConfig()
    options: dict[str, Any] = {"openapi_config": None, "logging_config": None}
    for given, kind in (
        ({"middleware": [Authentication()]}, "authentication"),
        ({"middleware": [DefineMiddleware(named("JWTMiddleware"))]}, "authentication"),
        ({"middleware": [named("IPFilter")]}, "address-filter"),
        ({"middleware": [limit.middleware]}, "rate-limit"),
        ({"middleware": [session.middleware]}, "session"),
        ({"csrf_config": CSRFConfig(secret="s")}, "csrf"),
    ):
        assert kinds(litestar.Litestar([index], **options, **given)) == {kind}
    assert kinds(litestar.Litestar([index], **options)) == set()


def test_an_unreadable_middleware_stops_nothing() -> None:
    class Angry:
        __slots__ = ()

        def __getattribute__(self, name: str) -> Any:
            raise RuntimeError(name)

    engine = HandEngine()
    made = QuaestorMiddleware(Angry(), quaestor=engine)  # type: ignore[arg-type]
    made._look_inside()
    assert engine.telemetry.lasting == []


async def test_only_what_was_added_before_the_cache_stands_inside() -> None:
    """Reported at the start, once, in the log, the metrics and the status of the admin API; the app runs as it did."""
    quaestor = Quaestor(grid=False, explicit=True)
    app = FastAPI()
    app.add_middleware(named("IPAllowListMiddleware"))
    app.add_middleware(QuaestorMiddleware, quaestor=quaestor)
    app.add_middleware(named("CSRFMiddleware"))
    app.add_middleware(SessionMiddleware, secret_key="s")
    messages: list[Any] = []
    quaestor.on_failure(messages.append)
    admin = AdminApi(app, quaestor=quaestor, token=AdminToken(TOKEN))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(admin), base_url="http://site") as http:
        for _ in range(2):
            assert (await http.get("/")).status_code == 404
        answer = await http.get("/quaestor/admin/status", headers={"authorization": f"Bearer {TOKEN}"})
    await quaestor.stop()
    assert [(named.name, named.fields["kind"]) for named in messages] == [("middleware.misplaced", "address-filter")]
    status = answer.json()
    assert [warning.partition(" ")[0] for warning in status["warnings"]] == ["IPAllowListMiddleware"]
    assert status["counts"]["failures"]["configuration"] == 1
    assert "IPAllowListMiddleware (address-filter) stands inside the cache" in text(status)


class Token(AuthenticationBackend):
    """Authentication of clients with a token in `valid`, a set in the memory of the process."""

    def __init__(self) -> None:
        self.valid = {"Bearer good"}

    async def authenticate(self, conn: HTTPConnection) -> tuple[AuthCredentials, SimpleUser]:
        if conn.headers.get("authorization") not in self.valid:
            raise AuthenticationError("no")
        return AuthCredentials(), SimpleUser("somebody")


@pytest.mark.parametrize("around", [True, False])
async def test_authentication_around_the_cache_runs_on_hits_and_inside_it_does_not(around: bool) -> None:
    """Authentication must stand around the cache, as the guide says; this difference is the reason of the report."""
    tokens = Token()

    @cached(scope=public())
    async def shared(request: Request) -> Response:
        reads()
        return PlainTextResponse("shared")

    app: Any = Starlette(routes=[Route("/", shared)])
    authentication = functools.partial(AuthenticationMiddleware, backend=tokens)
    cache = functools.partial(QuaestorMiddleware, quaestor=HandEngine())
    app = authentication(cache(app)) if around else cache(authentication(app))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://site") as http:
        good = {"authorization": "Bearer good"}
        await http.get("/", headers=good)
        assert is_hit(await http.get("/", headers=good))
        tokens.valid.clear()
        assert (await http.get("/", headers=good)).status_code == (400 if around else 200)
