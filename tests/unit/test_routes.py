"""Routes of a framework, read before the handler runs, and the bounded memory in front of them."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from fastapi import APIRouter, Cookie, Depends, FastAPI, Header, Query, Request, Security
from fastapi.security import APIKeyCookie, APIKeyHeader, APIKeyQuery, HTTPBasic, OAuth2PasswordBearer, OpenIdConnect
from pydantic import BaseModel, ConfigDict, Field
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import PlainTextResponse
from starlette.routing import Host, Mount, Route

from quaestor.caching import cache_policy, cached, public
from quaestor.middleware.framework_routes import find, policy_of
from quaestor.policy import DEFAULT, RoutePolicy, Sharing


def scope_of(path: str, *, method: str = "GET", query: bytes = b"", root_path: str = "", host: bytes = b"a") -> Any:
    return {
        "type": "http", "method": method, "scheme": "http", "path": path, "raw_path": path.encode(),
        "query_string": query, "root_path": root_path, "headers": [(b"host", host)],
    }  # fmt: skip


def read(app: Any, path: str, method: str = "GET", **more: Any) -> RoutePolicy:
    return policy_of(find(app, scope_of(path, method=method, **more), method=method), method=method)


async def page(request: Request) -> PlainTextResponse:
    return PlainTextResponse("page")


@cached(ttl=1)
async def one_second(request: Request) -> PlainTextResponse:
    return PlainTextResponse("page")


@cached(ttl=2)
async def two_seconds(request: Request) -> PlainTextResponse:
    return PlainTextResponse("page")


# Starlette


def starlette() -> Starlette:
    below = [Route("/deep/{name}", two_seconds), Route("/one", page)]
    return Starlette(
        routes=[
            Route("/one", one_second),
            Route("/posted", one_second, methods=["POST"]),
            Mount("/below", routes=below),
            Mount("/wrapped", app=Starlette(routes=below), middleware=[Middleware(GZipMiddleware)]),
            Host("api.{domain}", app=Starlette(routes=[Route("/two", two_seconds)])),
            Route("/two", one_second),
            Route("/{rest:path}", page),
        ]
    )


@pytest.mark.parametrize(
    ("path", "more", "ttl_ms"),
    [
        ("/one", {}, 1000),
        ("/other", {}, None),
        ("/below/deep/x", {}, 2000),
        ("/below/one", {}, None),
        ("/below/none", {}, None),
        ("/wrapped/deep/x", {}, 2000),
        ("/two", {}, 1000),
        ("/two", {"host": b"api.example"}, 2000),
        ("/posted", {"method": "POST"}, 1000),
        ("/posted", {}, None),
        ("/prefix/one", {"root_path": "/prefix"}, 1000),
        ("/prefix/below/deep/x", {"root_path": "/prefix"}, 2000),
    ],
)
def test_a_path_means_what_it_means_to_the_router(path: str, more: dict[str, Any], ttl_ms: int | None) -> None:
    assert read(starlette(), path, **more).ttl_ms == ttl_ms


def test_the_routes_are_found_below_what_is_wrapped_around_them() -> None:
    assert read(GZipMiddleware(GZipMiddleware(starlette())), "/one").ttl_ms == 1000


@pytest.mark.parametrize("app", [None, object(), lambda scope, receive, send: None])
def test_an_app_without_routes_declares_nothing(app: Any) -> None:
    assert read(app, "/one") == DEFAULT


def test_an_app_around_itself_ends() -> None:
    class Ring:
        app: Any

    ring = Ring()
    ring.app = ring
    assert read(ring, "/one") == DEFAULT


# FastAPI


class Fields(BaseModel):
    x_one: str = ""
    two: str = Field("", alias="X-Second")


class Filters(BaseModel):
    page: int = 1
    sort: str = ""


class Anything(BaseModel):
    model_config = ConfigDict(extra="allow")
    page: int = 1


def language(accept_language: Annotated[str, Header()] = "") -> str:
    return accept_language


def theme(name: Annotated[str, Cookie(alias="Theme")] = "", spoken: str = Depends(language)) -> str:
    return name + spoken


def fastapi_app() -> FastAPI:
    app = FastAPI()
    inner = APIRouter(prefix="/in", dependencies=[Depends(cache_policy(tags=["inner"], ttl=60))])
    outer = APIRouter(prefix="/out", dependencies=[Depends(cache_policy(tags=["outer"]))])

    @app.get("/tree")
    async def tree(
        chosen: Annotated[str, Depends(theme)], q: str = "", page: Annotated[int, Query(alias="p")] = 1
    ) -> None: ...

    @app.get("/models")
    async def models(fields: Annotated[Fields, Header()], filters: Annotated[Filters, Query()]) -> None: ...

    @app.get("/anything")
    @cached(query="declared")
    async def anything(filters: Annotated[Anything, Query()]) -> None: ...

    @app.get("/any-field")
    async def any_field(fields: Annotated[Anything, Header()]) -> None: ...

    @app.get("/ours")
    async def ours(if_none_match: Annotated[str, Header()] = "", host: Annotated[str, Header()] = "") -> None: ...

    @app.get("/utm")
    async def utm(utm_source: str = "") -> None: ...

    @inner.get("/{item}")
    @cached(ttl=5, tags=["own"])
    async def item(item: int) -> None: ...

    outer.include_router(inner)
    app.include_router(outer)
    sub = FastAPI(dependencies=[Depends(HTTPBasic())])

    @sub.get("/page")
    async def sub_page() -> None: ...

    app.mount("/sub", sub)
    return app


def test_parameters_of_the_whole_tree_of_dependencies_are_read() -> None:
    policy = read(fastapi_app(), "/tree")
    assert policy.headers == (b"accept-language",)
    assert policy.cookies == ("Theme",)
    assert policy.declared_query == {"q", "p"}
    assert not policy.explicit


def test_models_are_read_by_their_fields() -> None:
    policy = read(fastapi_app(), "/models")
    assert policy.headers == (b"x-one", b"x-second")
    assert policy.declared_query == {"page", "sort"}


def test_where_anything_may_be_read_nothing_is_ignored() -> None:
    policy = read(fastapi_app(), "/anything")
    assert (policy.query, policy.tracking) == (None, False)
    assert read(fastapi_app(), "/any-field").closed


def test_answers_of_the_cache_itself_are_not_keyed() -> None:
    assert read(fastapi_app(), "/ours").headers == ()


def test_routers_declare_for_their_routes_and_routes_have_the_last_word() -> None:
    policy = read(fastapi_app(), "/out/in/7")
    assert policy.ttl_ms == 5000
    assert policy.tags == ("outer", "inner", "own")


@pytest.mark.parametrize(
    "scheme",
    [
        HTTPBasic(),
        OAuth2PasswordBearer(tokenUrl="t", auto_error=False),
        OpenIdConnect(openIdConnectUrl="/o"),
        APIKeyHeader(name="x-key"),
        APIKeyQuery(name="key"),
        APIKeyCookie(name="key"),
    ],
)
def test_security_schemes_make_private_wherever_they_stand(scheme: Any) -> None:
    app = FastAPI()

    def user(token: Any = Security(scheme)) -> Any:  # noqa: B008
        return token

    def deeper(dependency: Any = Depends(user)) -> Any:  # noqa: B008
        return dependency

    @app.get("/deep")
    async def deep(dependency: Any = Depends(deeper)) -> None: ...  # noqa: B008

    @app.get("/beside", dependencies=[Depends(scheme)])
    @cached(ttl=60)
    async def beside() -> None: ...

    @app.get("/said", dependencies=[Security(scheme)])
    @cached(scope=public())
    async def said() -> None: ...

    assert read(app, "/deep").sharing is Sharing.PRIVATE
    assert read(app, "/beside").sharing is Sharing.PRIVATE
    assert read(app, "/said").sharing is Sharing.PUBLIC


def test_a_security_scheme_of_a_whole_app_counts_below_its_mount() -> None:
    assert read(fastapi_app(), "/sub/page").sharing is Sharing.PRIVATE


@pytest.mark.parametrize("first", [True, False])
def test_the_decorator_works_on_either_side_of_the_route(first: bool) -> None:
    app = FastAPI()

    def handler() -> None: ...

    if first:
        app.get("/a")(cached(ttl=1)(handler))
    else:
        cached(ttl=1)(app.get("/a")(handler))
    assert read(app, "/a").ttl_ms == 1000
