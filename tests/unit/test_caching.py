"""Declarations: what may be said, how they add up, and that contradictions are refused with the remedy."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.endpoints import HTTPEndpoint

from quaestor.caching import (
    Declaration,
    cache_policy,
    cached,
    cookie,
    declaration_of,
    header,
    joined,
    per_role,
    per_user,
    private,
    public,
)
from quaestor.errors import ConfigurationError
from quaestor.invalidation.effects.manual import MAX_NAMES, control_names, url_names
from quaestor.policy import DEFAULT, Representation, RoutePolicy, Sharing
from quaestor.settings import Settings


def said(**given: Any) -> RoutePolicy:
    return cached(**given).apply(RoutePolicy())


def nobody(scope: Any) -> str | None:
    return None


SAID = [
    ({}, {"explicit": True}),
    ({"ttl": 1.5}, {"ttl_ms": 1500}),
    ({"ttl": timedelta(minutes=1)}, {"ttl_ms": 60_000}),
    ({"browser_ttl": 0, "cdn_ttl": 2}, {"browser_ttl_ms": 0, "cdn_ttl_ms": 2000}),
    ({"stale_while_revalidate": 3}, {"stale_while_revalidate_ms": 3000}),
    ({"stale_if_error": timedelta(days=1)}, {"stale_if_error_ms": 86_400_000}),
    ({"scope": public()}, {"sharing": Sharing.PUBLIC}),
    ({"scope": per_user(by=nobody)}, {"sharing": Sharing.PER_USER, "by": nobody, "personal": True}),
    ({"scope": per_role(by=nobody)}, {"sharing": Sharing.PER_ROLE, "by": nobody, "personal": True}),
    ({"scope": private()}, {"sharing": Sharing.PRIVATE, "closed": True}),
    ({"bypass": True}, {"bypass": True, "closed": True}),
    ({"tags": ["a", "b", "a"]}, {"tags": ("a", "b")}),
    ({"headers": ["X-A", "Accept"]}, {"headers": (b"x-a", b"accept")}),
    ({"cookies": ("Theme",)}, {"cookies": ("Theme",)}),
    ({"query": ["a"]}, {"query": frozenset("a")}),
    ({"query": "all"}, {"query": None, "tracking": False}),
    ({"representation": "ids"}, {"representation": Representation.IDS}),
    ({"depends_on": [("shop.items", {"a": 1})]}, {"depends_on": (("shop.items", {"a": 1}),)}),
    (
        {"depends_on": [(SimpleNamespace(name="fs.files", database=SimpleNamespace(name="shop")), {})]},
        {"depends_on": (("shop.fs.files", {}),)},
    ),
    ({"keyed_body": True}, {"keyed_body": True}),
    ({"sketch_partition": "prices"}, {"sketch_partition": "prices"}),
]


@pytest.mark.parametrize(("given", "expected"), SAID)
def test_arguments_become_the_policy(given: dict[str, Any], expected: dict[str, Any]) -> None:
    policy = said(**given)
    assert {name: getattr(policy, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"ttl": 0}, r"ttl=0 is too short: .* bypass=True"),
        ({"ttl": -1}, r"ttl=-1"),
        ({"ttl": True}, r"ttl=True is no duration"),
        ({"ttl": "5"}, r"ttl='5' is no duration: give seconds or a timedelta"),
        ({"ttl": float("nan")}, r"nan is no duration"),
        ({"ttl": float("inf")}, r"inf is no duration"),
        ({"cdn_ttl": -1}, r"cdn_ttl=-1 is too short"),
        ({"tags": "items"}, r"tags='items' is one text: give a list"),
        ({"tags": ["a b"]}, r"'a b' cannot be used"),
        ({"tags": [1]}, r"1 cannot be used: it is no text"),
        ({"headers": ["x a"]}, r"'x a' cannot be used"),
        ({"headers": ["x:a"]}, r"cannot be used"),
        ({"cookies": [""]}, r"'' cannot be used"),
        ({"query": "some"}, r"query='some' is neither 'all' nor 'declared'"),
        ({"representation": "lists"}, r"representation='lists' is none of auto, objects, ids"),
        ({"depends_on": [("items", {})]}, r"'items' is no collection: give 'database.collection'"),
        ({"depends_on": ["shop.items"]}, r"no pair of a collection and a filter"),
        ({"depends_on": [("shop.items", None)]}, r"None is no filter; for the whole collection give \{\}"),
        ({"scope": "public"}, r"scope is public\(\)"),
        ({"scope": private(), "ttl": 5}, r"scope=private\(\) and ttl=5000 contradict"),
        ({"bypass": True, "keyed_body": True}, r"bypass=True and keyed_body=True contradict"),
        ({"scope": per_user(by=nobody), "cdn_ttl": 5}, r"cdn_ttl=5\.0 contradicts scope per-user"),
        ({"sketch_partition": "shop.items"}, r"sketch_partition='shop.items' is no name of a group"),
        ({"sketch_partition": ""}, r"sketch_partition='' is no name"),
        ({"sketch_partition": ["prices"]}, r"sketch_partition=\['prices'\] is no name"),
        ({"bypass": True, "sketch_partition": "prices"}, r"bypass=True and sketch_partition=prices contradict"),
        ({"keyed_body": True, "browser_ttl": 5}, r"keyed_body=True and a cdn_ttl or browser_ttl contradict"),
    ],
)
def test_a_declaration_that_makes_no_sense_is_refused_where_it_is_written(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        cached(**given)


def test_the_owner_of_an_answer_is_given_by_a_function() -> None:
    with pytest.raises(ConfigurationError, match=r"per_user\(by='session'\): give a function"):
        per_user(by="session")  # type: ignore[arg-type]

    async def by(scope: Any) -> str | None:
        return None

    with pytest.raises(ConfigurationError, match="asynchronous"):
        per_role(by=by)  # type: ignore[arg-type]


def test_identities_by_cookie_and_by_header_are_those_who_have_them() -> None:
    def asked(by: Callable[[Any], str | None], *headers: tuple[bytes, bytes]) -> str | None:
        return by({"headers": headers})

    session, token = cookie("session"), header("Authorization")
    ann, bob = (b"cookie", b"a=1; session=ann"), (b"cookie", b"session=bob")
    assert asked(session, ann) == asked(session, (b"cookie", b"session=ann; b=2")) != asked(session, bob)
    assert asked(session, (b"cookie", b"a=1")) is None
    assert asked(session) is None
    assert asked(token, (b"authorization", b"x")) != asked(token, (b"authorization", b"y"))
    assert asked(token, ann) is None


# Where declarations are found


def test_a_handler_is_marked_and_stays_what_it_was() -> None:
    def handler(a: int, b: str = "x") -> str:
        return b * a

    marked = cached(ttl=5)(handler)
    assert marked is handler
    assert marked(2) == "xx"
    assert list(inspect.signature(marked).parameters) == ["a", "b"]


def test_a_declaration_is_found_behind_wrappers_partials_and_on_classes() -> None:
    @cached(ttl=5)
    async def handler() -> None: ...

    @functools.wraps(handler)
    async def wrapped() -> None: ...

    class Page(HTTPEndpoint):
        @cached(ttl=6)
        async def get(self, request: Any) -> None: ...

    class Service:
        @cached(ttl=7)
        def list_items(self) -> None: ...

    def ttl(of: Any, method: str = "") -> Any:
        declaration = declaration_of(of, method)
        return None if declaration is None else declaration.given["ttl_ms"]

    assert ttl(handler) == ttl(wrapped) == ttl(functools.partial(handler)) == 5000
    assert ttl(Page, "GET") == 6000
    assert ttl(Page, "POST") is None
    assert ttl(Service().list_items) == 7000
    assert ttl(None) is ttl(lambda: None) is ttl(SimpleNamespace()) is None


def test_a_bound_method_can_be_marked_too() -> None:
    class Service:
        def list_items(self) -> None: ...

    service = Service()
    cached(ttl=7)(service.list_items)
    assert declaration_of(service.list_items) is not None


def test_an_object_that_cannot_be_marked_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="put it on the function or class"):
        cached()(5)


def test_a_policy_for_many_routes_is_a_dependency_that_does_nothing() -> None:
    dependency = cache_policy(tags=["a"])
    assert dependency() is None
    assert not inspect.signature(dependency).parameters
    declaration = declaration_of(dependency)
    assert declaration is not None
    assert declaration.given["tags"] == ("a",)


# How declarations add up


def test_the_last_word_counts_and_lists_are_joined() -> None:
    outer = cached(ttl=60, tags=["all"], headers=["x-a"], scope=public())
    inner = cached(ttl=5, tags=["items", "all"], cookies=["c"])
    policy = inner.apply(outer.apply(RoutePolicy(cookies=("read",))))
    assert policy.ttl_ms == 5000
    assert policy.sharing is Sharing.PUBLIC
    assert (policy.tags, policy.headers, policy.cookies) == (("all", "items"), (b"x-a",), ("read", "c"))


def test_two_declarations_on_one_handler_are_both_heard() -> None:
    @cached(tags=["outer"], query="all")
    @cached(tags=["inner"], ttl=3, query="declared")
    def handler() -> None: ...

    declaration = declaration_of(handler)
    assert declaration is not None
    policy = declaration.apply(RoutePolicy(declared_query=frozenset("a")))
    assert (policy.tags, policy.ttl_ms, policy.query, policy.tracking) == (("inner", "outer"), 3000, None, False)
    assert joined(cached(), cached(query="declared")).declared_only


def test_the_declared_parameters_count_where_only_they_do() -> None:
    declared = RoutePolicy(declared_query=frozenset({"page"}))
    assert cached(query="declared").apply(declared).query == frozenset({"page"})


def test_a_private_route_stays_private_with_any_declared_lifetime() -> None:
    secured = RoutePolicy(sharing=Sharing.PRIVATE)
    assert cached(ttl=60).apply(secured).closed
    assert not cached(scope=public()).apply(secured).closed


def test_without_a_declaration_nothing_is_explicit() -> None:
    assert not DEFAULT.explicit
    assert isinstance(cached(), Declaration)


# Names to invalidate by


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("/", ["/"]),
        ("/a?b=2&a=1", ["/a?a=1&b=2"]),
        ("/a#b", ["/a"]),
        ("/a?utm_source=x&b=1", ["/a?b=1&utm_source=x", "/a?b=1"]),
        ("/café", ["/caf%C3%A9"]),
        ("https://Shop.Example:443", ["https://shop.example/"]),
        ("HTTP://shop.example:80/a?b=1", ["http://shop.example/a?b=1"]),
        ("http://shop.example?a=1", ["http://shop.example/?a=1"]),
        ("//evil/a", ["//evil/a"]),
    ],
)
def test_a_url_means_what_answers_under_it_depend_on(url: str, expected: list[str]) -> None:
    assert url_names(url) == expected


@pytest.mark.parametrize("url", ["", "items", "http:/a", "http://a b/", "http://a@b/", "/" + "a" * 10_000])
def test_a_text_that_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="is no URL"):
        url_names(url)


def test_the_names_of_one_call_are_bounded_and_belong_to_one_deployment() -> None:
    assert control_names("d", tags=["a", "a"], urls=["/b"]) == ["d tag a", "d url /b"]
    with pytest.raises(ConfigurationError, match="at most"):
        control_names("d", tags=[str(i) for i in range(MAX_NAMES + 1)])


@pytest.mark.parametrize("namespace", ["", "quaestor", ".a", "a."])
def test_the_control_namespace_is_a_database_and_a_collection(namespace: str) -> None:
    with pytest.raises(ConfigurationError, match="control_namespace"):
        Settings(control_namespace=namespace)


def test_the_lists_of_a_declaration_are_bounded() -> None:
    with pytest.raises(ConfigurationError, match="tags: 65 of them: at most 64"):
        cached(tags=[str(i) for i in range(65)])


@pytest.mark.parametrize(
    ("reads", "message"),
    [
        ([], r"reads=\[\] of per_user names no request field"),
        (["x user"], "reads: 'x user' cannot be used"),
        ("authorization", "reads='authorization' is one text"),
        ([7], "reads: 7 cannot be used: it is no text"),
    ],
)
def test_fields_that_by_is_said_to_read_are_names(reads: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        per_user(by=nobody, reads=reads)


def test_fields_that_by_reads_are_known_where_they_are_said() -> None:
    """Of cookie() and header() always; of another function by what stands beside it."""
    assert per_user(by=cookie("session")).reads == (b"cookie",)
    assert per_role(by=header("X-Role")).reads == (b"x-role",)
    assert per_user(by=nobody).reads is None
    assert per_user(by=nobody, reads=["X-B", "x-a"]).reads == (b"x-a", b"x-b")
    assert per_user(by=header("x-c"), reads=["x-a"]).reads == (b"x-a", b"x-c")
