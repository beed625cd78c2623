"""The route of a request and its declarations, found by the framework's own routes before the handler runs.

The `matches(scope)` of Starlette and FastAPI routes is called, through mounts, hosts and included routers. Therefore a path means
the same here and in the router. Of a FastAPI route the whole tree of dependencies is read: header and cookie parameters, query
parameters, security schemes, and declarations made with `Depends(cache_policy(...))`. Nothing is imported from either framework.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from quaestor.caching import Declaration, declaration_of, without_implied_scope
from quaestor.policy import RoutePolicy, Sharing
from quaestor.read_path.request import CONDITIONS

_DEEPEST = 32
_LARGEST_TREE = 4096
_KEYED_ANYWAY = CONDITIONS | {b"host"}
_NOT_OUR_BUSINESS = frozenset({b"", b"connection", b"content-length", b"transfer-encoding", b"range", b"if-range"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The route of a request.

    endpoint: the endpoint that the framework will call; None if no route matches.
    dependant: FastAPI's description of the injected values.
    """

    endpoint: Any = None
    dependant: Any = None


def find(app: Any, scope: Mapping[str, Any], *, method: str) -> Found:
    """Return the route that would handle this request; Found() if it cannot be determined. O(number of routes).

    app: the app behind the middleware. If it shows no routes, the app in the scope is used.
    """
    routes = routes_of(app)
    if routes is None:
        routes = routes_of(scope.get("app"))
    if routes is None:
        return Found()
    return _match(routes, {**scope, "method": method}, 0) or Found()


def routes_of(app: Any) -> Sequence[Any] | None:
    """Return the routes of an app, below any wrappers; None if there are none to see."""
    for _ in range(_DEEPEST):
        routes = getattr(app, "routes", None)
        if routes.__class__ is list or isinstance(routes, Sequence):
            return routes
        app = getattr(app, "app", None)
        if app is None:
            return None
    return None


def _match(routes: Iterable[Any], scope: dict[str, Any], depth: int) -> Found | None:
    if depth > _DEEPEST:
        return None
    for route in routes:
        matches = getattr(route, "matches", None)
        if matches is None:
            continue
        match, child = matches(dict(scope))
        if match._name_ == "FULL":  # `name` would cost two more calls for every route
            return _descend(route, {**scope, **child}, child, depth)
    return None


def _descend(route: Any, scope: dict[str, Any], child: Mapping[str, Any], depth: int) -> Found | None:
    candidates = getattr(route, "effective_candidates", None)  # FastAPI: a router that was included
    if callable(candidates):
        return _match(candidates(), scope, depth + 1)
    route = getattr(route, "starlette_route", None) or route
    endpoint = child.get("endpoint")
    below = routes_of(endpoint) if hasattr(route, "app") and getattr(route, "dependant", None) is None else None
    if below is not None and not inspect.isroutine(endpoint):
        return _match(below, scope, depth + 1)
    return Found(endpoint=endpoint, dependant=getattr(route, "dependant", None))


def policy_of(matched: Found, *, method: str, rules: Sequence[Declaration] = ()) -> RoutePolicy:
    """Return the policy that a route declares, with the rules for its path on top."""
    read = _Reading()
    for node in _tree(matched.dependant):
        read.take(node)
    declarations = [*read.declarations, declaration_of(matched.endpoint, method), *rules]
    policy = RoutePolicy(
        sharing=Sharing.PRIVATE if read.secured else Sharing.UNDECLARED,
        headers=tuple(sorted(read.headers)),
        cookies=tuple(sorted(read.cookies)),
        declared_query=frozenset(read.query),
    )
    scopes = [
        declaration
        for declaration in declarations
        if declaration is not None and not declaration.implied and "sharing" in declaration.given
    ]
    for declaration in declarations:
        if declaration is None:
            continue
        if scopes or read.secured or read.may_refuse:
            declaration = without_implied_scope(declaration)
        if declaration.declared_only and (matched.dependant is None or read.open_query):
            # The handler's parameters are unknown, so none may be ignored.
            declaration = replace(declaration, declared_only=False, given={**declaration.given, "tracking": False})
        policy = declaration.apply(policy)
    return replace(policy, tracking=False) if read.open_query else policy


@dataclass(slots=True)
class _Reading:
    """The declarations in the tree of a route's dependencies.

    open_query: a model takes any parameter.
    may_refuse: a dependency is no declaration, so it may refuse a request.
    """

    headers: set[bytes] = field(default_factory=set)
    cookies: set[str] = field(default_factory=set)
    query: set[str] = field(default_factory=set)
    declarations: list[Declaration] = field(default_factory=list)
    secured: bool = False
    open_query: bool = False
    may_refuse: bool = False

    def take(self, node: Any) -> None:
        for parameter in getattr(node, "header_params", ()):
            names, anything = _names(parameter, header=True)
            fields = {name.lower().encode("latin-1", "replace") for name in names}
            self.headers |= fields - _KEYED_ANYWAY - _NOT_OUR_BUSINESS
            self.secured |= anything  # the handler sees every header field, so its answer is for one client only
        for parameter in getattr(node, "cookie_params", ()):
            names, anything = _names(parameter)
            self.cookies |= names
            self.secured |= anything
        for parameter in getattr(node, "query_params", ()):
            names, anything = _names(parameter)
            self.query |= names
            self.open_query |= anything
        call = _unwrapped(getattr(node, "call", None))
        if (
            _is_security(call)
            or getattr(node, "own_oauth_scopes", None)
            or getattr(node, "security_requirements", None)
        ):
            self.secured = True
        declaration = declaration_of(getattr(node, "call", None))
        if declaration is not None:
            self.declarations.append(declaration)
        elif call is not None:
            self.may_refuse = True


def _tree(dependant: Any) -> Iterator[Any]:
    """Iterate depth first, each dependency before its successors. The root comes without its call, which is the endpoint."""
    if dependant is None:
        return
    waiting = [dependant]
    root = True
    for _ in range(_LARGEST_TREE):
        if not waiting:
            return
        node = waiting.pop()
        yield _Root(node) if root else node
        root = False
        waiting += reversed(getattr(node, "dependencies", ()))


class _Root:
    """The endpoint's own parameters. Its declaration comes last, so it is not read with the dependencies."""

    def __init__(self, node: Any) -> None:
        self.header_params = getattr(node, "header_params", ())
        self.cookie_params = getattr(node, "cookie_params", ())
        self.query_params = getattr(node, "query_params", ())
        self.security_requirements = getattr(node, "security_requirements", ())


def _names(parameter: Any, *, header: bool = False) -> tuple[set[str], bool]:
    """Return all names that a parameter may be read from, and whether it takes any name (a model with extra fields)."""
    info = getattr(parameter, "field_info", parameter)
    names: set[str] = set()
    for model in _models(getattr(info, "annotation", None)):
        config = getattr(model, "model_config", {})
        by_name = bool(config.get("populate_by_name") or config.get("validate_by_name"))
        for name, model_field in model.model_fields.items():
            names |= _spellings(name, model_field, header=header, by_name=by_name)
        if config.get("extra") == "allow":
            return names, True
    return names or _spellings(getattr(parameter, "name", ""), info, header=header), False


def _spellings(name: str, info: Any, *, header: bool, by_name: bool = False) -> set[str]:
    """Return the names that a parameter is read from. by_name: its own name counts besides its alias."""
    names: set[str] = set()
    for alias in (getattr(info, "validation_alias", None), getattr(info, "alias", None)):
        names |= {choice for choice in getattr(alias, "choices", (alias,)) if isinstance(choice, str) and choice}
    if by_name or not names:
        names |= {name}
    if header and getattr(info, "convert_underscores", True):
        names = {name.replace("_", "-") for name in names}
    return names


def _models(annotation: Any) -> Iterator[Any]:
    for candidate in (annotation, *typing.get_args(annotation)):
        if inspect.isclass(candidate) and isinstance(getattr(candidate, "model_fields", None), Mapping):
            yield candidate


def _unwrapped(call: Any) -> Any:
    while isinstance(call, partial):
        call = call.func
    return inspect.unwrap(call) if callable(call) else call


def _is_security(call: Any) -> bool:
    """Whether a dependency is an instance of fastapi.security.base.SecurityBase."""
    return any(
        base.__name__ == "SecurityBase" and base.__module__.startswith("fastapi.") for base in type(call).__mro__
    )
