"""A FastAPI app with users, declared scopes and all kinds of parameters, behind the middleware, on a real mongod."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Annotated, Any

import httpx
from fastapi import APIRouter, Body, Cookie, Depends, FastAPI, Header, Request, Response, Security
from fastapi.responses import JSONResponse
from fastapi.security import APIKeyQuery, HTTPBearer
from pymongo import AsyncMongoClient
from pymongo.errors import CollectionInvalid

from quaestor import Quaestor
from quaestor.caching import cache_policy, cached, cookie, per_role, per_user, private, public
from quaestor.middleware import QuaestorMiddleware
from tests.hand_driven import TaggingCdn
from tests.support import PATIENT, eventually


def user_of(scope: Mapping[str, Any]) -> str | None:
    """The user of a session; in this site, `Authorization: Bearer <name>`."""
    credentials = [value for name, value in scope["headers"] if name == b"authorization"]
    return credentials[0].decode().removeprefix("Bearer ") if credentials else None


def role_of(scope: Mapping[str, Any]) -> str | None:
    user = user_of(scope)
    return None if user is None else user.partition("-")[0]


class Site:
    """An app whose pages say who asked. runs: how often each handler ran."""

    def __init__(self, mongo_url: str, database: str) -> None:
        self.quaestor = Quaestor(debug_header=True, client_ttl="estimated", **PATIENT)
        self.cdn = TaggingCdn()
        self.client: AsyncMongoClient[dict[str, Any]] = AsyncMongoClient(
            mongo_url, event_listeners=[self.quaestor.capture]
        )
        self.items = self.client[database].items
        self.database = database
        self.runs: dict[str, int] = {}
        self.app = FastAPI()
        self.app.add_middleware(
            QuaestorMiddleware,
            quaestor=self.quaestor,
            cdn=[self.cdn],
            routes={"/ruled/{name}": cached(scope=public()), "/ruled/{name}/*": cached(scope=private())},
        )
        self.add_routes()
        self.http = httpx.AsyncClient(transport=httpx.ASGITransport(self.app), base_url="http://site")

    async def page(self, name: str, **said: Any) -> dict[str, Any]:
        self.runs[name] = self.runs.get(name, 0) + 1
        return {"items": await self.items.count_documents({"kind": "a"}), "run": self.runs[name], **said}

    def add_routes(self) -> None:
        app = self.app

        @app.get("/undeclared")
        async def undeclared(request: Request) -> Any:
            return await self.page("undeclared", who=request.headers.get("authorization"))

        @app.get("/public")
        @cached(scope=public())
        async def shared() -> Any:
            return await self.page("public")

        @app.get("/me")
        @cached(scope=per_user(by=user_of), tags=["me"])
        async def me(request: Request) -> Any:
            return JSONResponse(await self.page("me", who=user_of(request.scope)), headers={"cache-control": "private"})

        @cached(scope=per_user(by=cookie("session")), ttl=60)
        @app.get("/session")
        async def session(request: Request) -> Any:
            return await self.page("session", who=request.cookies["session"])

        @app.get("/role", dependencies=[Depends(HTTPBearer())])
        @cached(scope=per_role(by=role_of))
        async def role(request: Request) -> Any:
            return await self.page("role", who=role_of(request.scope))

        @app.get("/secured")
        async def secured(token: Annotated[Any, Security(HTTPBearer(auto_error=False))]) -> Any:
            return await self.page("secured", who=token and token.credentials)

        @app.get("/keyed")
        async def keyed(key: Annotated[str | None, Depends(APIKeyQuery(name="key", auto_error=False))]) -> Any:
            return await self.page("keyed", who=key)

        # The whole tree below /account is one page, as in the classical web cache deception.
        @app.get("/account{rest:path}")
        async def account(rest: str, token: Annotated[Any, Security(HTTPBearer())]) -> Any:
            return JSONResponse(
                await self.page("account", who=token.credentials), headers={"cache-control": "public, max-age=60"}
            )

        @app.get("/ruled/{rest:path}")
        async def ruled(rest: str) -> Any:
            return await self.page("ruled")

        @app.get("/login")
        @cached(scope=public())
        async def login(response: Response) -> Any:
            response.set_cookie("session", "secret")
            return await self.page("login")

        @app.get("/language")
        async def language(
            accept_language: Annotated[str, Header()] = "en", x_theme: Annotated[str, Header()] = "light"
        ) -> Any:
            return await self.page("language", language=accept_language, theme=x_theme)

        @app.get("/cookies")
        @cached(scope=public())
        async def cookies(theme: Annotated[str, Cookie()] = "light") -> Any:
            return await self.page("cookies", theme=theme)

        @app.get("/link")
        async def link(request: Request) -> Any:
            host = request.headers.get("x-forwarded-host", request.headers["host"])
            return await self.page("link", script=f"//{host}/a.js", forwarded=request.headers.get("forwarded"))

        @app.get("/query")
        async def query(request: Request) -> Any:
            return await self.page("query", query=request.url.query)

        @app.get("/declared-query")
        @cached(query="declared")
        async def declared_query(request: Request, page: int = 1, utm_source: str = "") -> Any:
            return await self.page("declared-query", query=request.url.query)

        @app.post("/graphql")
        @cached(keyed_body=True)
        async def graphql(operation: Annotated[dict[str, Any], Body()]) -> Any:
            if "mutation" in operation["query"]:
                await self.items.insert_one({"kind": "b"})
            return await self.page("graphql", data=operation)

        @app.get("/graphql")
        async def graphql_get(query: str) -> Any:
            return await self.page("graphql-get", data=query)

        @app.api_route("/search", methods=["QUERY"])
        @cached(keyed_body=True)
        async def search(request: Request) -> Any:
            return await self.page("search", asked=(await request.body()).decode())

        @app.get("/weather")
        @cached(ttl=60, tags=["weather"])
        async def weather() -> Any:
            self.runs["weather"] = self.runs.get("weather", 0) + 1
            return {"run": self.runs["weather"]}

        @app.get("/depends")
        @cached(depends_on=[(f"{self.database}.stock", {"shop": 1})])
        async def depends() -> Any:
            self.runs["depends"] = self.runs.get("depends", 0) + 1
            return {"run": self.runs["depends"]}

        router = APIRouter(dependencies=[Depends(cache_policy(tags=["routed"], scope=public()))])

        @router.get("/routed")
        async def routed() -> Any:
            return await self.page("routed")

        app.include_router(router)

    async def ask(self, path: str, *, method: str = "GET", content: bytes | str | None = None, **headers: str) -> Asked:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return Asked(await self.http.request(method, path, headers=named, content=content))

    async def warm(self, path: str, **said: Any) -> Asked:
        """Ask until it is a hit."""
        requests: list[Asked] = []

        async def hit() -> bool:
            requests.append(await self.ask(path, **said))
            return requests[-1].hit

        await eventually(hit)
        return requests[-1]


class Asked:
    def __init__(self, response: httpx.Response) -> None:
        assert response.status_code == 200, response.text
        self.headers = response.headers
        self.said: dict[str, Any] = response.json()
        self.hit = "; hit" in response.headers.get("cache-status", "")


@asynccontextmanager
async def open_site(mongo_url: str, prefix: str) -> AsyncIterator[Site]:
    site = Site(mongo_url, prefix)
    await site.items.insert_one({"kind": "a"})
    database, _, collection = site.quaestor.settings.store.control_namespace.partition(".")
    # The first invalidation by hand on a server creates the collection, and that ends every entry with a tag or a URL.
    with suppress(CollectionInvalid):
        await site.client[database].create_collection(collection)
    try:
        await site.warm("/undeclared")  # the first request starts the rest
        yield site
    finally:
        await site.quaestor.stop()
        await site.client.drop_database(prefix)
        await site.client.close()
