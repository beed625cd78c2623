"""Declarations of how a route's answers are cached, written beside the route: `@cached(...)`, `Depends(cache_policy(...))`,
or a rule by path.

    @app.get("/items") @cached(ttl=300, tags=["items"], scope=public()) async def items(): ...

    router = APIRouter(dependencies=[Depends(cache_policy(scope=per_user(by=user_of)))])

    app.add_middleware(QuaestorMiddleware, quaestor=quaestor, routes={"/api/me": cached(scope=per_user(by=user_of))})

A declaration is read before the handler runs and changes nothing about calling it. Declarations add up: those of routers come
first, then the route's own, then the rule; of what only one can be true the last one counts, tags and the like are joined.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final, Literal, TypeVar

from quaestor.cache_sketch.partitions import valid_group
from quaestor.errors import ConfigurationError
from quaestor.model import Document
from quaestor.namespaces import Collection, namespace_of
from quaestor.policy import Live, Representation, RoutePolicy, Sharing, as_live
from quaestor.read_path.by_field import ByField
from quaestor.read_path.variant_key import cookie_values
from quaestor.tags import MAX_TAGS, valid_tag

ATTRIBUTE: Final = "__quaestor_policy__"
"""Attribute of a handler or a dependency that holds its Declaration."""

By = Callable[[Mapping[str, Any]], str | None]
Duration = float | timedelta
Handler = TypeVar("Handler")

_JOINED = frozenset({"tags", "groups", "depends_on", "headers", "cookies"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The group of people that answers are shared among. Make it with public(), per_user(), per_role() or private()."""

    sharing: Sharing
    by: By | None = None
    reads: tuple[bytes, ...] | None = None


def public() -> Scope:
    """The scope in which every client receives the same answer, whatever credentials and cookies came with the request. The
    handler still sees them. You guarantee that the answer does not depend on them."""
    return Scope(sharing=Sharing.PUBLIC)


def per_user(*, by: By, reads: Sequence[str] | None = None) -> Scope:
    """The scope in which requests share an answer if `by` returns the same text for them. No CDN ever keeps it.

    by: called with the ASGI scope on every request; returns the user whom the request is for, or None (then the cache keeps out).
        `by` must verify the fields that it reads: a client that can forge your name receives your answers. `cookie()` and
        `header()` are safe as they are. `by` must not block: it runs on the event loop, before every hit.
    reads: all request fields that decide what `by` returns, such as ["authorization"]. `Vary` names them, and clients tell their
        users apart by them. `cookie()` and `header()` say it themselves. Left open, or where something else decides (the
        scope, a client certificate), no client keeps the answer.

    Raises ConfigurationError for a `by` that cannot be called, and for names that are none.
    """
    return _personal(Sharing.PER_USER, by, reads, "per_user")


def per_role(*, by: By, reads: Sequence[str] | None = None) -> Scope:
    """The scope of per_user(), for all who share a role, a tenant or a plan."""
    return _personal(Sharing.PER_ROLE, by, reads, "per_role")


def private() -> Scope:
    """The scope in which nothing is stored, for any client."""
    return Scope(sharing=Sharing.PRIVATE)


def cookie(name: str) -> By:
    """The `by` of per_user(by=cookie("session")): clients with the same cookie are the same user; without it the cache keeps out.

    Safe without verification, because only who has the cookie finds the entry. A session that ends is noticed when the entry
    does: give such routes a ttl.
    """
    wanted = frozenset({name.encode()})
    return ByField(reads=("cookie",), values=lambda headers: cookie_values(headers, wanted))


def header(name: str) -> By:
    """The `by` of per_user(by=header("authorization")): clients with the same field are the same user."""
    wanted = name.lower().encode()
    return ByField(reads=(name.lower(),), values=lambda headers: [value for field, value in headers if field == wanted])


@dataclass(frozen=True, slots=True)
class Declaration:
    """One declaration on a route. Applied to a handler, it marks the handler and returns it unchanged.

    given: fields of RoutePolicy; a field left open is absent.
    declared_only: of the query, only the parameters that the route is known to read count.
    implied: whether its scope was concluded, not declared: see without_implied_scope().
    """

    given: Mapping[str, Any]
    declared_only: bool = False
    implied: bool = False

    def __call__(self, handler: Handler) -> Handler:
        """Raises ConfigurationError for something that cannot be marked."""
        inner = getattr(handler, ATTRIBUTE, None)
        target = getattr(handler, "__func__", handler)
        try:
            setattr(target, ATTRIBUTE, self if inner is None else joined(inner, self))
        except AttributeError as error:
            raise ConfigurationError(
                f"@cached cannot mark {handler!r}: put it on the function or class that handles the request"
            ) from error
        return handler

    def apply(self, policy: RoutePolicy) -> RoutePolicy:
        """Return the policy with this declaration added. The stricter of two declarations wins. Nothing of a private route is
        stored, whatever its lifetime. No CDN keeps an answer for one user."""
        changes = dict(self.given)
        for name in _JOINED & changes.keys():
            changes[name] = _join(getattr(policy, name), changes[name])
        if self.declared_only:
            changes["query"] = policy.declared_query
        return replace(policy, explicit=True, **changes)


def with_implied_scope(declaration: Declaration) -> Declaration:
    """Return the declaration with a scope that Quaestor concluded from its own handlers. A security scheme, a dependency that can
    refuse, and a declared scope of the route outrank it."""
    return replace(declaration, implied=True, given={**declaration.given, "implied": True})


def without_implied_scope(declaration: Declaration) -> Declaration:
    """The declaration without its scope, if that was implied and shares answers at all."""
    if not declaration.implied or declaration.given.get("sharing") is Sharing.PRIVATE:
        return declaration
    of_the_scope = ("sharing", "by", "reads", "implied")
    given = {name: value for name, value in declaration.given.items() if name not in of_the_scope}
    return replace(declaration, implied=False, given=given)


def _join(known: tuple[Any, ...], further: tuple[Any, ...]) -> tuple[Any, ...]:
    return known + tuple(dependency for dependency in further if dependency not in known)


def joined(first: Declaration, then: Declaration) -> Declaration:
    """Both declarations as one, the second one on top."""
    given = {**first.given, **then.given}
    for name in _JOINED & first.given.keys() & then.given.keys():
        given[name] = _join(first.given[name], then.given[name])
    declared_only = then.declared_only or (first.declared_only and "query" not in then.given)
    implied = then.implied or (first.implied and "sharing" not in then.given)
    if not implied:
        given.pop("implied", None)
    return Declaration(given=given, declared_only=declared_only, implied=implied)


def cached(
    *,
    scope: Scope | None = None,
    ttl: Duration | None = None,
    browser_ttl: Duration | None = None,
    cdn_ttl: Duration | None = None,
    stale_while_revalidate: Duration | None = None,
    stale_if_error: Duration | None = None,
    tags: Sequence[str] = (),
    groups: Sequence[str] = (),
    sketch_partition: str | None = None,
    representation: Representation | str | None = None,
    depends_on: Sequence[tuple[Collection, Document]] = (),
    headers: Sequence[str] = (),
    cookies: Sequence[str] = (),
    query: Literal["all", "declared"] | Sequence[str] | None = None,
    sort_query: bool | None = None,
    keyed_body: bool | None = None,
    bypass: bool | None = None,
    live: bool | Live | None = None,
) -> Declaration:
    """Say how a route's answers are cached. Everything may be left open; a bare `@cached()` only makes them invalidable by URL.

    Durations are seconds or a timedelta.

    scope: with whom answers are shared: public(), per_user(by=...), per_role(by=...), private().
    ttl: at most so long in our own store.
    browser_ttl: in browsers.
    cdn_ttl: in CDNs that are purged.
    stale_while_revalidate, stale_if_error: how much longer an answer that outlived its lifetime may be used (RFC
        5861); one that a write has changed never is.
    tags: for `quaestor.invalidate(tags=[...])`.
    groups: cache groups (RFC 9875).
    sketch_partition: group of routes and collections that share a filter of the Cache Sketch, as in the setting
        `sketch_partitions`; left open: that decides.
    representation: "objects", "ids", "maintained" or "auto".
    depends_on: what else an answer depends on: a collection (namespace "database.collection" or a pymongo collection)
        and a filter; any write that may touch what it selects invalidates.
    headers, cookies: request fields that the answer depends on, beside the parameters that a FastAPI route declares.
    query: which parameters count: "all"; "declared" (those of the FastAPI route); names; left open: all but tracking
        ones. The handler does not see the others.
    sort_query: whether the order of parameters does not matter, except among those of one name: the handler is shown
        them by name then; left open: the setting `sort_query` decides.
    keyed_body: answer POST and QUERY from cache too, keyed by their body, for handlers that only read.
    bypass: keep the cache out of this route.
    live: clients may follow its answers at its own URL (docs/live.md); `Live(...)` says how.

    Raises ConfigurationError for values out of range and for contradictions.
    """
    given: dict[str, Any] = {}
    if scope is not None:
        if not isinstance(scope, Scope):
            raise ConfigurationError(
                f"scope is public(), per_user(by=...), per_role(by=...) or private(), not {scope!r}"
            )
        given |= {"sharing": scope.sharing, "by": scope.by, "reads": scope.reads}
    for name, value, least in (
        ("ttl_ms", ttl, 1),
        ("browser_ttl_ms", browser_ttl, 0),
        ("cdn_ttl_ms", cdn_ttl, 0),
        ("stale_while_revalidate_ms", stale_while_revalidate, 0),
        ("stale_if_error_ms", stale_if_error, 0),
    ):
        if value is not None:
            given[name] = _milliseconds(name.removesuffix("_ms"), value, least=least)
    given |= _several("tags", tags, valid_tag) | _several("groups", groups, valid_tag)
    given |= _several("cookies", cookies, _valid_name)
    given |= _several("headers", [_lower(name) for name in headers], _valid_name)
    if "headers" in given:
        given["headers"] = tuple(name.encode() for name in given["headers"])
    if depends_on:
        given["depends_on"] = tuple(_dependency(dependency) for dependency in depends_on)
    if sketch_partition is not None:
        given["sketch_partition"] = _group(sketch_partition)
    if representation is not None:
        given["representation"] = _representation(representation)
    for name, flag in (("sort_query", sort_query), ("keyed_body", keyed_body), ("bypass", bypass)):
        if flag is not None and not isinstance(flag, bool):
            raise ConfigurationError(f"{name}={flag!r} is neither True nor False")
        if flag is not None:
            given[name] = flag
    if live is not None:
        given["live"] = as_live(live)
    given |= _query(query)
    declaration = Declaration(given=given, declared_only=query == "declared")
    _check(declaration.apply(RoutePolicy()))
    return declaration


def cache_policy(**said: Any) -> Callable[[], None]:
    """A declaration for every route below a router or an app, as a dependency of it.

    Written `APIRouter(dependencies=[Depends(cache_policy(...))])`. Takes what cached() takes; raises ConfigurationError likewise.
    """

    def declared() -> None:
        """Nothing to do when it is called: it is read from the route."""

    return cached(**said)(declared)


def declaration_of(handler: Any, method: str = "") -> Declaration | None:
    """The declaration on a handler: on the function, on a class, or on the class's method of that name."""
    seen = 0
    while handler is not None and seen < 16:
        for candidate in (handler, getattr(handler, method.lower(), None) if method else None):
            declaration = getattr(candidate, ATTRIBUTE, None)
            if isinstance(declaration, Declaration):
                return declaration
        handler = getattr(handler, "func", None) or getattr(handler, "__wrapped__", None)
        seen += 1
    return None


def _check(policy: RoutePolicy) -> None:
    """Raises ConfigurationError for one declaration that contradicts itself."""
    if policy.closed:
        what = "bypass=True" if policy.bypass else "scope=private()"
        stored = ("ttl_ms", "cdn_ttl_ms", "stale_while_revalidate_ms", "stale_if_error_ms", "keyed_body")
        for name in (*stored, "sketch_partition"):
            if getattr(policy, name):
                raise ConfigurationError(
                    f"{what} and {name.removesuffix('_ms')}={getattr(policy, name)} contradict each other: "
                    "nothing of this route is stored; drop one of them"
                )
    if policy.personal and policy.cdn_ttl_ms:
        raise ConfigurationError(
            f"cdn_ttl={policy.cdn_ttl_ms / 1000} contradicts scope {policy.sharing.value}: a CDN would give one user's answer to "
            "another; drop cdn_ttl, or declare scope=public()"
        )
    if policy.keyed_body and (policy.cdn_ttl_ms or policy.browser_ttl_ms):
        raise ConfigurationError(
            "keyed_body=True and a cdn_ttl or browser_ttl contradict each other: nobody outside keeps answers to POST; "
            "declare them on a route of their own"
        )


def _personal(sharing: Sharing, by: By, reads: Sequence[str] | None, name: str) -> Scope:
    """The scope of per_user() and per_role()."""
    named = reads if isinstance(reads, str) else [_lower(field) for field in reads or ()]
    said = _several("reads", named, _valid_name).get("reads", ())
    if reads is not None and not said:
        raise ConfigurationError(
            f"reads={reads!r} of {name} names no request field: name the fields that `by` reads, such as ['authorization'], "
            "or leave reads open: then no client keeps the answers"
        )
    known = [*said, *(by.reads if isinstance(by, ByField) else ())]
    fields = tuple(sorted({field.encode() for field in known})) or None
    return Scope(sharing=sharing, by=_callable(by, name), reads=fields)


def _lower(name: str) -> str:
    return name.lower() if isinstance(name, str) else name


def _milliseconds(name: str, value: Duration, *, least: int) -> int:
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ConfigurationError(f"{name}={value!r} is no duration: give seconds or a timedelta")
    duration_ms = round(value * 1000)
    if duration_ms < least:
        remedy = "to keep answers out of the cache say bypass=True" if least else "it cannot be negative"
        raise ConfigurationError(f"{name}={value!r} is too short: {remedy}")
    return duration_ms


def _several(name: str, values: Sequence[str], valid: Callable[[str], str | None]) -> dict[str, tuple[str, ...]]:
    if isinstance(values, str):
        raise ConfigurationError(f"{name}={values!r} is one text: give a list, [{values!r}]")
    if len(values) > MAX_TAGS:
        raise ConfigurationError(f"{name}: {len(values)} of them: at most {MAX_TAGS}")
    for value in values:
        reason = valid(value) if isinstance(value, str) else "it is no text"
        if reason:
            raise ConfigurationError(f"{name}: {value!r} cannot be used: {reason}")
    return {name: tuple(dict.fromkeys(values))} if values else {}


def _valid_name(name: str) -> str | None:
    allowed = name.isascii() and name.isprintable() and not set(name) & set(' \t()<>@,;:\\"/[]?={}')
    return None if name and allowed else "it is no name of a request field or cookie"


def _dependency(pair: tuple[Collection, Document]) -> tuple[str, Document]:
    if not isinstance(pair, Sequence) or isinstance(pair, str) or len(pair) != 2:
        raise ConfigurationError(f"depends_on: {pair!r} is no pair of a collection and a filter")
    collection, selected = pair
    namespace = namespace_of(collection, "depends_on")
    if not isinstance(selected, Mapping):
        raise ConfigurationError(f"depends_on: {selected!r} is no filter; for the whole collection give {{}}")
    return namespace, selected


def _representation(value: Representation | str) -> Representation:
    try:
        return Representation(value)
    except ValueError as error:
        raise ConfigurationError(f"representation={value!r} is none of {', '.join(Representation)}") from error


def _group(name: str) -> str:
    if not isinstance(name, str) or not valid_group(name):
        raise ConfigurationError(
            f"sketch_partition={name!r} is no name of a group: up to 64 letters and digits of ASCII, '-' and '_'"
        )
    return name


def _query(query: str | Sequence[str] | None) -> dict[str, Any]:
    if query is None or query == "declared":
        return {}
    if query == "all":
        return {"query": None, "tracking": False}
    if isinstance(query, str):
        raise ConfigurationError(f"query={query!r} is neither 'all' nor 'declared' nor a list of names")
    return {"query": frozenset(query)}


def _callable(by: By, where: str) -> By:
    if not callable(by):
        raise ConfigurationError(
            f"{where}(by={by!r}): give a function of the ASGI scope that returns whom the request is for"
        )
    if inspect.iscoroutinefunction(by) or inspect.iscoroutinefunction(getattr(by, "__call__", None)):  # noqa: B004
        raise ConfigurationError(
            f"{where}(by={by!r}) is asynchronous, but it runs before every hit. Verify a signature, or let a middleware around "
            "this one look the user up, and read what it left in the scope"
        )
    return by
