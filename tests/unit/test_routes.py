"""What is read from a framework's routes before the handler runs, and the bounded memory in front of it."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from fastapi import APIRouter, Cookie, Depends, FastAPI, Header, Query, Request, Security
from fastapi.security import APIKeyCookie, APIKeyHeader, APIKeyQuery, HTTPBasic, OAuth2PasswordBearer, OpenIdConnect
from pydantic import BaseModel, ConfigDict, Field
from starlette.applications import Starlette
from starlette.convertors import Convertor, register_url_convertor
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import PlainTextResponse
from starlette.routing import Host, Mount, Route

from middleware import routes as routes_module
from middleware.declared import find, policy_of
from middleware.routes import Plan, Routes
from quaestor.caching import cache_policy, cached, per_user, private, public
from quaestor.errors import ConfigurationError
from quaestor.read_path.policy import DEFAULT, RoutePolicy, Sharing


def scope_of(path: str, *, method: str = "GET", query: bytes = b"", root_path: str = "", host: bytes = b"a") -> Any:
    return {
        "type": "http", "method": method, "scheme": "http", "path": path, "raw_path": path.encode(),
        "query_string": query, "root_path": root_path, "headers": [(b"host", host)],
    }  # fmt: skip


def read(app: Any, path: str, method: str = "GET", **more: Any) -> RoutePolicy:
    return policy_of(find(app, scope_of(path, method=method, **more), method=method), method=method)


def plan_of(routes: Routes, path: str, **more: Any) -> Plan:
    scope = scope_of(path, **more)
    return routes.plan(scope, host=scope["headers"][0][1], raw_path=scope["raw_path"], claimed=())


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


def test_what_the_cache_answers_itself_is_not_keyed() -> None:
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

    def deeper(found: Any = Depends(user)) -> Any:  # noqa: B008
        return found

    @app.get("/deep")
    async def deep(found: Any = Depends(deeper)) -> None: ...  # noqa: B008

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


# Rules by path


@pytest.mark.parametrize(
    ("path", "more", "ttl_ms"),
    [
        ("/me", {}, 1000),
        ("/me", {"method": "HEAD"}, 1000),
        ("/me/", {}, None),
        ("/me/x.css", {}, None),
        ("/me\n", {}, None),
        ("/items/7", {}, 2000),
        ("/items/7/x", {}, None),
        ("/items/", {}, None),
        ("/feed/", {}, 3000),
        ("/feed/a/b", {}, 3000),
        ("/feed", {}, None),
        ("/only", {"method": "POST"}, 4000),
        ("/only", {}, None),
        ("/a.b", {}, 5000),
        ("/aXb", {}, None),
        ("/root/me", {"root_path": "/root"}, 1000),
        ("/rooted/me", {"root_path": "/root"}, None),
    ],
)
def test_rules_are_for_whole_paths(path: str, more: dict[str, Any], ttl_ms: int | None) -> None:
    rules = {
        "/me": cached(ttl=1), "/items/{id}": cached(ttl=2), "/feed/*": cached(ttl=3), "POST /only": cached(ttl=4),
        "/a.b": cached(ttl=5),
    }  # fmt: skip
    assert plan_of(Routes(object(), rules=rules), path, **more).policy.ttl_ms == ttl_ms


def test_a_rule_has_the_last_word_and_the_first_rule_counts() -> None:
    rules = {"/one": cached(scope=private()), "/*": cached(ttl=9)}
    routes = Routes(starlette(), rules=rules)
    assert plan_of(routes, "/one").policy.closed
    assert plan_of(routes, "/two").policy.ttl_ms == 9000


@pytest.mark.parametrize("path", ["me", "", "/a{b", "/a/*/b", "/{a:path}", "GET", "G3T /a"])
def test_what_is_no_path_is_refused(path: str) -> None:
    with pytest.raises(ConfigurationError, match="routes"):
        Routes(object(), rules={path: cached()})


def test_a_rule_is_a_declaration() -> None:
    with pytest.raises(ConfigurationError, match="give what cached"):
        Routes(object(), rules={"/a": public()})  # type: ignore[dict-item]


# Plans


def test_a_plan_says_whether_memory_may_be_asked_at_once() -> None:
    app = fastapi_app()
    rules = {
        "/public": cached(scope=public()), "/me": cached(scope=per_user(by=lambda scope: None)),
        "/off": cached(bypass=True),
    }  # fmt: skip
    routes = Routes(app, rules=rules)
    assert plan_of(routes, "/none").simple
    assert plan_of(routes, "/public").simple
    assert not plan_of(routes, "/me").simple
    assert not plan_of(routes, "/off").simple
    assert not plan_of(routes, "/tree").simple
    assert not plan_of(routes, "/public", method="POST").simple


def test_who_asked_with_ignored_parameters_is_only_sent_what_all_are_sent() -> None:
    assert plan_of(Routes(object(), leaves_copies=False), "/a", query=b"gclid=1").simple
    assert not plan_of(Routes(object(), leaves_copies=True), "/a", query=b"gclid=1").simple
    kept = Routes(object(), leaves_copies=False, rules={"/a": cached(browser_ttl=5)})
    assert not plan_of(kept, "/a", query=b"gclid=1").simple


def test_a_declared_tracking_parameter_counts() -> None:
    plan = plan_of(Routes(fastapi_app()), "/utm", query=b"utm_source=x&gclid=1")
    assert plan.query == b"utm_source=x"
    assert plan.target is not None
    assert plan.target.resource == "/utm?utm_source=x"


def test_a_plan_is_made_once() -> None:
    routes = Routes(fastapi_app())
    assert plan_of(routes, "/tree") is plan_of(routes, "/tree")
    assert plan_of(routes, "/tree", method="HEAD") is plan_of(routes, "/tree")
    assert plan_of(routes, "/tree", query=b"q=1") is not plan_of(routes, "/tree")


def test_the_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes_module, "REMEMBERED_PLANS", 10)
    monkeypatch.setattr(routes_module, "REMEMBERED_ROUTES", 10)
    routes = Routes(starlette())
    for i in range(50):
        plan_of(routes, f"/below/deep/{i}")
    assert len(routes.plans) == len(routes._known) == 10
    long = "x" * 1000
    plan_of(routes, "/below/deep/" + long)
    plan_of(routes, "/one", query=long.encode())
    plan_of(routes, "/one", host=long.encode())
    for claimed in (((b"x-host", long.encode()),), ((b"x-host", b""),) * 1000):
        routes.plan(scope_of("/one"), host=b"a", raw_path=b"/one", claimed=claimed)
    assert all(len(str(name)) < 1000 for name in [*routes.plans, *routes._known])


def test_a_route_that_cannot_be_asked_is_passed_by() -> None:
    class Failing(Convertor[str]):
        regex = ".*"

        def convert(self, value: str) -> str:
            raise ValueError(value)

        def to_string(self, value: str) -> str:
            return value

    register_url_convertor("failing", Failing())
    errors: list[Exception] = []
    routes = Routes(Starlette(routes=[Route("/{a:failing}", page)]), on_error=errors.append)
    assert plan_of(routes, "/a").policy.bypass
    assert isinstance(errors[0], ValueError)


def test_another_endpoint_than_the_one_that_was_read_is_noticed_and_read_anew() -> None:
    app = starlette()
    routes = Routes(app)
    plan = plan_of(routes, "/other")
    assert not routes.rerouted(plan, {**scope_of("/other"), "endpoint": page})
    assert not routes.rerouted(plan, scope_of("/other"))
    assert plan_of(routes, "/other") is plan
    app.router.routes.insert(0, Route("/other", one_second))
    assert plan_of(routes, "/other") is plan
    assert routes.rerouted(plan, {**scope_of("/other"), "endpoint": one_second})
    assert plan_of(routes, "/other").policy.ttl_ms == 1000


def test_an_endpoint_that_was_not_foreseen_counts_if_it_declares_anything() -> None:
    routes = Routes(object())
    plan = plan_of(routes, "/a")
    assert not routes.rerouted(plan, {**scope_of("/a"), "endpoint": page})
    assert routes.rerouted(plan, {**scope_of("/a"), "endpoint": one_second})
