"""Plans of requests: rules by path, what may be asked of memory at once, and the bounded memory of all that."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.convertors import Convertor, register_url_convertor
from starlette.routing import Route

from quaestor.caching import cached, per_user, private, public
from quaestor.errors import ConfigurationError
from quaestor.middleware import routes as routes_module
from quaestor.middleware.routes import Plan, RouteDefaults, Routes
from tests.unit.test_routes import fastapi_app, one_second, page, scope_of, starlette


def plan_of(routes: Routes, path: str, **more: Any) -> Plan:
    scope = scope_of(path, **more)
    return routes.plan(scope, host=scope["headers"][0][1], raw_path=scope["raw_path"], claimed=())


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
def test_a_text_that_is_no_path_is_refused(path: str) -> None:
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


def test_a_request_with_ignored_parameters_is_sent_the_answer_of_all() -> None:
    assert plan_of(Routes(object(), defaults=RouteDefaults(leaves_copies=False)), "/a", query=b"gclid=1").simple
    assert not plan_of(Routes(object(), defaults=RouteDefaults(leaves_copies=True)), "/a", query=b"gclid=1").simple
    kept = Routes(object(), rules={"/a": cached(browser_ttl=5)}, defaults=RouteDefaults(leaves_copies=False))
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


# One deploy after the other, on one shared store


def _key(declaration: Any) -> str:
    target = plan_of(Routes(object(), rules={"/x": declaration}), "/x").target
    assert target is not None
    return target.key


def _by_id(scope: Any) -> str | None:
    return "17"


def _by_account(scope: Any) -> str | None:
    return "17"


def test_an_entry_of_another_declaration_is_not_found() -> None:
    """A worker of the next release reads the last one's entries, which may lack its tags or belong to another user."""
    declarations = [
        cached(),
        cached(scope=public()),
        cached(scope=per_user(by=_by_id)),
        cached(scope=per_user(by=_by_account)),
        cached(tags=["a"]),
        cached(tags=["a", "b"]),
        cached(groups=["a"]),
        cached(depends_on=[("shop.items", {"kind": 1})]),
        cached(depends_on=[("shop.items", {"kind": 2})]),
        cached(depends_on=[("shop.shelves", {"kind": 2})]),
    ]
    assert len({_key(declaration) for declaration in declarations}) == len(declarations)


def test_the_same_declaration_has_the_same_key_in_every_process() -> None:
    """Written down: a change of it makes every process of a deployment cold."""
    assert _key(cached(ttl=3)) == "http://a/x"
    declaration = cached(scope=public(), tags=["a"], depends_on=[("shop.items", {"kind": object})])
    assert _key(declaration) == _key(cached(scope=public(), tags=["a"], depends_on=[("shop.items", {"kind": object})]))
    assert _key(cached(scope=public(), tags=["a"])).startswith("http://a/x#s")
