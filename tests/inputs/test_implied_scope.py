"""An implied scope never outranks a check that may refuse: answers for staff never reach strangers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Annotated, Any

import httpx
import pytest
from fastapi import Depends, FastAPI, HTTPException, Request, Security
from fastapi.security import HTTPBearer
from pymongo import AsyncMongoClient
from starlette.middleware.sessions import SessionMiddleware
from starlette.responses import PlainTextResponse

from quaestor import Quaestor
from quaestor.caching import cache_policy, public
from quaestor.middleware import QuaestorMiddleware
from quaestor.middleware.interface import App, Receive, Scope, Send
from quaestor.rest import Access, Principal, QuaestorRouter
from tests.support import PATIENT, eventually

pytestmark = pytest.mark.anyio

STAFF = {"authorization": "Bearer staff"}


def check(request: Request) -> None:
    if request.headers.get("authorization") != STAFF["authorization"]:
        raise HTTPException(401)


class OnlyStaff:
    """An authentication middleware between the cache and the router."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (b"authorization", b"Bearer staff") not in scope["headers"]:
            return await PlainTextResponse("no", status_code=401)(scope, receive, send)
        return await self._app(scope, receive, send)


Router = Callable[..., QuaestorRouter]


def dependency_of_the_router(router: Router) -> FastAPI:
    app = FastAPI()
    app.include_router(router(), dependencies=[Depends(check)])
    return app


def dependency_of_the_app(router: Router) -> FastAPI:
    app = FastAPI(dependencies=[Depends(check)])
    app.include_router(router())
    return app


def security_scheme(router: Router) -> FastAPI:
    def bearer(token: Annotated[Any, Security(HTTPBearer())]) -> None:
        if token.credentials != "staff":
            raise HTTPException(401)

    app = FastAPI()
    app.include_router(router(), dependencies=[Depends(bearer)])
    return app


def middleware_inside(router: Router) -> FastAPI:
    app = FastAPI()
    app.include_router(router())
    app.add_middleware(OnlyStaff)
    return app


def open_to_all(router: Router) -> FastAPI:
    app = FastAPI()
    app.include_router(router())
    return app


class Site:
    """A router for a database, with something around it."""

    def __init__(
        self, make: Callable[[Router], FastAPI], mongo_url: str, database: str, around: Any = None, **options: Any
    ) -> None:
        self.quaestor = Quaestor(**PATIENT)
        self.client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(
            mongo_url, event_listeners=[self.quaestor.capture]
        )
        self.database = self.client[database]

        def router() -> QuaestorRouter:
            return QuaestorRouter(self.database, access=Access.public_read(), **options)

        app = make(router)
        if around is not None:
            around(app)
        app.add_middleware(QuaestorMiddleware, quaestor=self.quaestor)
        self.http = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://site")

    async def ask(self, **fields: str) -> httpx.Response:
        return await self.http.get("/db/notes/1", headers=fields)

    async def warm(self, **fields: str) -> httpx.Response:
        answers: list[httpx.Response] = []

        async def hit() -> bool:
            answers.append(await self.ask(**fields))
            return is_hit(answers[-1])

        await eventually(hit)
        return answers[-1]


def is_hit(response: httpx.Response) -> bool:
    return "; hit" in response.headers.get("cache-status", "")


@asynccontextmanager
async def site(
    make: Callable[[Router], FastAPI], mongo_url: str, database: str, around: Any = None, **options: Any
) -> AsyncIterator[Site]:
    made = Site(make, mongo_url, database, around, **options)
    await made.database.notes.insert_one({"_id": 1, "text": "secret"})
    try:
        yield made
    finally:
        await made.http.aclose()
        await made.quaestor.stop()
        await made.client.drop_database(database)
        await made.client.close()


@pytest.mark.parametrize("make", [dependency_of_the_router, dependency_of_the_app, security_scheme, middleware_inside])
async def test_answers_for_staff_are_not_for_strangers(
    make: Callable[[Router], FastAPI], mongo_url: str, prefix: str
) -> None:
    async with site(make, mongo_url, prefix) as world:
        for _ in range(4):
            assert "secret" in (await world.ask(**STAFF)).text
            for fields in ({}, {"authorization": "Bearer other"}, {"cookie": "a=b"}):
                refused = await world.ask(**fields)
                assert refused.status_code in (401, 403)
                assert "secret" not in refused.text


async def test_without_anything_that_may_refuse_everybody_shares(mongo_url: str, prefix: str) -> None:
    async with site(open_to_all, mongo_url, prefix) as world:
        await world.warm()
        for fields in (STAFF, {"cookie": "a=b"}, {"user-agent": "x"}):
            assert is_hit(await world.ask(**fields))


async def test_a_declared_scope_counts_before_an_implied_one(mongo_url: str, prefix: str) -> None:
    """Pages behind a check are shared if their author declares it; the decision is the author's."""

    def declared(router: Router) -> FastAPI:
        app = FastAPI()
        app.include_router(router(), dependencies=[Depends(cache_policy(scope=public())), Depends(check)])
        return app

    async with site(declared, mongo_url, prefix) as world:
        await world.warm(**STAFF)
        assert is_hit(await world.ask())


async def test_fields_that_an_inner_middleware_reads_divide_the_entries(mongo_url: str, prefix: str) -> None:
    """Requests with equal credentials share an entry; requests without credentials share another one."""

    def sessions(app: FastAPI) -> None:
        app.add_middleware(SessionMiddleware, secret_key="s")

    async with site(open_to_all, mongo_url, prefix, around=sessions) as world:
        await world.warm()
        first = await world.ask(cookie="a=b")
        assert not is_hit(first)
        assert "cookie" in first.headers["vary"]
        await world.warm(cookie="a=b")
        assert is_hit(await world.ask())


async def test_principals_still_share_by_what_they_may_see(mongo_url: str, prefix: str) -> None:
    """Fields that the router's own principal reads are in the key, and do not divide further."""

    def principal(request: Request) -> Principal:
        signed_in = "authorization" in request.headers
        return Principal(user="staff" if signed_in else None, roles=frozenset())

    async with site(open_to_all, mongo_url, prefix, principal=principal) as world:
        await world.warm(authorization="Bearer one")
        assert is_hit(await world.ask(authorization="Bearer two"))


async def test_principals_are_not_enough_where_something_else_may_refuse(mongo_url: str, prefix: str) -> None:
    def principal(request: Request) -> Principal:
        return Principal(user="staff" if "authorization" in request.headers else None, roles=frozenset())

    async with site(dependency_of_the_router, mongo_url, prefix, principal=principal) as world:
        for _ in range(4):
            assert "secret" in (await world.ask(**STAFF)).text
            assert (await world.ask(authorization="Bearer other")).status_code == 401
