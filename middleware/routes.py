"""Plans of requests, with a bounded memory in front. A plan holds the policy of a request's route, its target, and the query
string for the handler. A hit costs one look-up here.

For frameworks whose routes cannot be read, the application declares by path:

    QuaestorMiddleware(app, quaestor=quaestor, routes={"/api/me": cached(scope=per_user(by=user_of)), "/feed/*": cached(ttl=60)})

`{name}` stands for one segment of a path, `*` at the end for anything; `GET /api/me` is for one method. The first matching rule
is applied on top of the route's own declaration.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import unquote

from quaestor.caching import Declaration
from quaestor.errors import ConfigurationError
from quaestor.fast_init import fast_init
from quaestor.middleware.framework_routes import Found, find, policy_of
from quaestor.observability.route_traffic import RouteCounts
from quaestor.policy import DEFAULT, Live, RoutePolicy, Sharing, fingerprint
from quaestor.read_path.forwarded_fields import CLAIMS, Claims
from quaestor.read_path.key import Target, spelling, target, usual_target
from quaestor.read_path.query import TRACKING, Tracking, kept
from quaestor.read_path.variant_key import selection

REMEMBERED_ROUTES = 8_192
REMEMBERED_PLANS = 8_192
_REMEMBERED_DECLARED = 1_024
_REMEMBERED_BYTES = 512
_SAFE = frozenset({"GET", "HEAD"})
_Names = tuple[str, str, bytes, str, bytes, bytes, Claims]
"""Method, scheme, host, path, raw path, query string and claims of a request: the key of its plan."""


@fast_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything known of a request before its handler runs.

    policy: of its route.
    target: the names of the requested resource, as far as URL and claims decide them; None: the request cannot be keyed.
    query: the query string for the handler.
    simple: without credentials, the target is complete, and all copies go out with the same header fields. Then memory may
        answer at once.
    endpoint: the endpoint that the framework is expected to call; None if unknown.
    route, route_name: identity of the route for verification, and its name for people.
    probation: the unit on probation: the route, or all paths without a known route together.
    barred: the reason why the route is quarantined; empty: it is not.
    names: the key that the plan is remembered by.
    forwards: its handler copies the request's fields into a request to an origin.
    traffic: counts of the route.
    live: how its answers are followed; None: they are not.
    """

    policy: RoutePolicy
    target: Target | None
    query: bytes
    simple: bool
    endpoint: Any = None
    route: Any = None
    route_name: str = ""
    probation: Any = None
    barred: str = ""
    names: tuple[Any, ...] = ()
    forwards: bool = False
    traffic: RouteCounts = field(default_factory=RouteCounts, compare=False)
    live: Live | None = None


class _Route(NamedTuple):
    """The part of a plan that method and path decide; see Plan.

    policy: with the defaults of this app.
    of_key: its part of the key (`policy.fingerprint`).
    probation: the route, or None if the endpoint cannot stand for a route.
    simple: as in Plan, unless the route is quarantined.
    alike: whether the fields of all copies are the same, whatever resource the client computes.
    """

    policy: RoutePolicy
    endpoint: Any
    of_key: bytes
    route: Any
    route_name: str
    probation: Any
    simple: bool
    alike: bool
    traffic: RouteCounts
    live: Live | None


class _Declared(NamedTuple):
    """The policy and name that a route and a rule declare, with its sources: they keep the ids in its key valid."""

    policy: RoutePolicy
    name: str
    matched: Found
    rule: _Rule | None


@dataclass(frozen=True, slots=True)
class _Rule:
    method: str | None
    pattern: re.Pattern[str]
    declaration: Declaration


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteDefaults:
    """Defaults of routes that do not say otherwise.

    tracking: names of query parameters that are left out of keys; None: `read_path.query.TRACKING`.
    sort_query: whether the order of query parameters is ignored.
    leaves_copies: whether caches outside may keep answers of routes that declare no lifetime.
    forwards: the whole app forwards requests to an origin.
    """

    tracking: Sequence[str] | None = None
    sort_query: bool = False
    leaves_copies: bool = True
    forwards: bool = False


class Routes:
    """The plans of one app's requests. Use from one event loop.

    rules: declarations by path.
    defaults: of routes that do not say otherwise.
    on_error: receives the error of a framework's routes; the path then bypasses the cache.
    barred: returns the reason why a route's identity is quarantined; empty: it is not.
    traffic: returns the counts of a route, by its name.
    live: how answers are followed on routes without a declaration of it; None: they are not. Set before the first request.
    follows: whether any route is known to be live.
    """

    def __init__(
        self,
        app: Any,
        *,
        rules: Mapping[str, Declaration] | None = None,
        defaults: RouteDefaults | None = None,
        on_error: Callable[[Exception], None] = lambda error: None,
        barred: Callable[[Any], str] = lambda route: "",
        traffic: Callable[[str], RouteCounts] = lambda name: RouteCounts(),
    ) -> None:
        defaults = defaults or RouteDefaults()
        self.live: Live | None = None
        self.follows = False
        self._app = app
        self._rules = [_rule(path, declaration) for path, declaration in (rules or {}).items()]
        self._tracking = Tracking(TRACKING if defaults.tracking is None else frozenset(defaults.tracking))
        self._sort_query = defaults.sort_query
        self._leaves_copies = defaults.leaves_copies
        self._on_error = on_error
        self._barred = barred
        self._traffic = traffic
        self._forwards = defaults.forwards
        self._known: dict[tuple[str, str, str, str], _Route] = {}
        self._declared: dict[tuple[str, int, int, int], _Declared] = {}
        self._heads: dict[tuple[str, str, str, str], bool] = {}
        self.plans: dict[tuple[Any, ...], Plan] = {}
        """By (method, scheme, host, path, raw path, query string, claims). Look here before calling plan()."""

    def plan(self, scope: Mapping[str, Any], *, host: bytes, raw_path: bytes, claimed: Claims) -> Plan:
        """Return the plan of a request, and remember it if its URL is short. A HEAD has the plan of its GET."""
        method = _method(scope)
        query: bytes = scope["query_string"]
        path: str = scope["path"]
        name = (method, scope["scheme"], host, path, raw_path, query, claimed)
        plan = self.plans.get(name)
        if plan is None:
            plan = self._make(scope, name)
            size = sum(map(len, (path, host, raw_path, query)))
            size += sum(len(value) for _, value in claimed) if claimed else 0
            if size <= _REMEMBERED_BYTES and len(claimed) <= len(CLAIMS):
                _remember(self.plans, name, plan, REMEMBERED_PLANS)
        return plan

    def _route(self, scope: Mapping[str, Any], method: str, host: bytes) -> _Route:
        name = (method, host.decode("latin-1"), scope.get("root_path", ""), scope["path"])
        known = self._known.get(name)
        if known is None:
            known = self._described(*self._read(scope, method), method=method, path=scope["path"])
            if sum(map(len, name)) <= _REMEMBERED_BYTES:
                _remember(self._known, name, known, REMEMBERED_ROUTES)
        return known

    def rerouted(self, plan: Plan, scope: Mapping[str, Any]) -> bool:
        """Whether the framework called another endpoint than the plan's: a route was added, or a middleware around the router
        rewrote the path. Then the plan is forgotten, and nothing may be stored by it.

        scope: the handler's; frameworks note the called endpoint there. Without a note a middleware may have rewritten the
            path inside. The default policy fits any route then, but a declaration may belong to another route.
        """
        called = scope.get("endpoint")
        if called is None:
            return plan.endpoint is not None and (plan.policy.explicit or plan.policy.sharing is not Sharing.UNDECLARED)
        if called is plan.endpoint or called == plan.endpoint:
            return False
        if plan.endpoint is None:
            dependant = getattr(scope.get("route"), "dependant", None)
            if policy_of(Found(endpoint=called, dependant=dependant), method=_method(scope)) == plan.policy:
                return False
        self._known.pop(_known_by(scope), None)
        self._heads.pop(_known_by(scope), None)
        self.plans.pop(plan.names, None)
        return True

    def forget_route(self, route: Any) -> list[str]:
        """Forget all plans, because a route was quarantined or released. Returns the remembered keys of the route, without its
        variants."""
        keys = [plan.target.key for plan in self.plans.values() if plan.route == route and plan.target is not None]
        self.plans.clear()
        return keys

    def _make(self, scope: Mapping[str, Any], names: _Names) -> Plan:
        method, scheme, host, path, raw_path, query, claimed = names
        made = self._route(scope, method, host)
        shown = kept(query, made.policy, self._tracking, sort=self._sort_query)
        given = (*claimed, (b":policy", made.of_key)) if made.of_key else claimed
        named = usual_target(scheme, host, raw_path, query) if shown is query else None
        if named is None:
            named = target(scheme, host, raw_path, query, kept=shown)
            if spelt := spelling(raw_path, shown):
                given = (*given, (b":spelling", spelt))
        if not _as_sent(scope, raw_path):
            given = (*given, (b":path", path.encode("utf-8", "surrogatepass")))
        if named is not None and given:
            appended = selection(DEFAULT, (), claimed=given)
            named = None if appended is None else _with(named, appended)
        barred = self._barred(made.route)
        return Plan(
            policy=made.policy,
            target=named,
            query=shown,
            simple=made.simple and not barred and named is not None and (named.own or made.alike),
            endpoint=made.endpoint,
            route=made.route,
            route_name=made.route_name,
            probation=made.probation,
            barred=barred,
            names=names,
            forwards=self._forwards,
            traffic=made.traffic,
            live=made.live,
        )

    def _described(self, policy: RoutePolicy, endpoint: Any, called: str, *, method: str, path: str) -> _Route:
        """Return what a route decides for all its requests.

        called: name of the endpoint; empty: it may have many routes of its own. Then the path stands for the route.
        """
        of_key, live = fingerprint(policy), self._follows(policy, method)
        if policy.live is None and self.live is not None:
            policy = replace(policy, live=self.live)  # also for a HEAD, whose fields are those of the GET
        route, route_name = (endpoint, f"{method} {called}") if called else ((method, path), f"{method} {path}")
        return _Route(
            policy=policy,
            endpoint=endpoint,
            of_key=of_key,
            route=route,
            route_name=route_name,
            probation=route if called else None,
            simple=not (policy.closed or policy.personal or policy.headers or policy.cookies) and method == "GET",
            alike=not (self._leaves_copies or policy.browser_ttl_ms),
            traffic=self._traffic(route_name),
            live=live,
        )

    def _follows(self, policy: RoutePolicy, method: str) -> Live | None:
        """How answers of a route are followed, for requests with this method."""
        if method != "GET" or policy.live is False:
            return None
        live = self.live if policy.live is None else policy.live
        self.follows = self.follows or live is not None
        return live

    def heads(self, scope: Mapping[str, Any]) -> bool:
        """Whether a HEAD is answered like its GET, without the body. False: the route has no HEAD, or another handler for it."""
        name = _known_by(scope)
        known = self._heads.get(name)
        if known is None:
            try:
                matched = self._match(scope, "GET")
                known = matched.endpoint is None or _same(self._match(scope, "HEAD"), matched)
            except Exception as error:
                self._on_error(error)
                return True
            if sum(map(len, name)) <= _REMEMBERED_BYTES:
                _remember(self._heads, name, known, REMEMBERED_ROUTES)
        return known

    def _match(self, scope: Mapping[str, Any], method: str) -> Found:
        return find(self._app, scope, method=method)

    def _read(self, scope: Mapping[str, Any], method: str) -> tuple[RoutePolicy, Any, str]:
        """Return the policy of a request's route, its endpoint, and the endpoint's name."""
        path: str = scope["path"]
        root = scope.get("root_path", "")
        if root and path.startswith(root) and path[len(root) :][:1] in ("", "/"):
            path = path[len(root) :]
        rule = next((r for r in self._rules if r.method in (None, method) and r.pattern.fullmatch(path)), None)
        try:
            matched = self._match(scope, method)
            declared = self._declares(matched, method, rule)
            return declared.policy, matched.endpoint, declared.name
        except Exception as error:  # foreign code (a converter, a route class) may fail; the middleware must not
            self._on_error(error)
            return RoutePolicy(bypass=True), None, ""

    def _declares(self, matched: Found, method: str, rule: _Rule | None) -> _Declared:
        """Return the joint declarations of a route and a rule, read once for all paths that lead there."""
        name = (method, id(matched.endpoint), id(matched.dependant), id(rule))
        known = self._declared.get(name)
        if known is None:
            policy = policy_of(matched, method=method, rules=() if rule is None else (rule.declaration,))
            known = _Declared(policy, _called(matched.endpoint), matched, rule)
            _remember(self._declared, name, known, _REMEMBERED_DECLARED)
        return known


def _same(first: Found, other: Found) -> bool:
    return first.endpoint is other.endpoint or bool(first.endpoint == other.endpoint)


def _called(endpoint: Any) -> str:
    """Return the name of the function or class that the framework calls; empty for other objects, such as a mounted app."""
    called = endpoint
    while isinstance(called, partial):
        called = called.func
    if inspect.isroutine(called) or inspect.isclass(called):
        return f"{called.__module__}.{called.__qualname__}"
    return ""


def _as_sent(scope: Mapping[str, Any], raw_path: bytes) -> bool:
    """Whether the application's path is the path that was sent, with or without the prefix of a mount or a proxy. If not, a
    middleware around the cache has rewritten it, for unknown reasons; then both paths are part of the key."""
    path, root = scope["path"], scope.get("root_path", "")
    sent = raw_path.decode("latin-1")
    if "%" in sent:
        sent = unquote(sent)
    return path == sent or (bool(root) and (root + path == sent or path == root + sent))


def _with(named: Target, appended: str) -> Target:
    return Target(key=named.key + appended, resource=named.resource, url=named.url, own=named.own)


def _known_by(scope: Mapping[str, Any]) -> tuple[str, str, str, str]:
    """Return the key of a route. Routes may depend on the host, and on the prefix that a mount or a proxy has removed."""
    host = next((value for name, value in scope["headers"] if name == b"host"), b"").decode("latin-1")
    return (_method(scope), host, scope.get("root_path", ""), scope["path"])


def _method(scope: Mapping[str, Any]) -> str:
    method: str = scope["method"]
    return "GET" if method in _SAFE else method


def _rule(path: str, declaration: Declaration) -> _Rule:
    if not isinstance(declaration, Declaration):
        raise ConfigurationError(f"routes[{path!r}] is {declaration!r}: give what cached(...) returns")
    method, _, rest = path.rpartition(" ")
    if not rest.startswith("/") or (method and not method.isalpha()):
        raise ConfigurationError(f"routes: {path!r} is no path: write '/items/{{id}}', '/feed/*' or 'GET /items'")
    body, anything = (rest[:-1], ".*") if rest.endswith("*") else (rest, "")
    pieces = re.split(r"\{[A-Za-z_][A-Za-z0-9_]*\}", body)
    if any(set(piece) & set("{}*") for piece in pieces):
        raise ConfigurationError(f"routes: {path!r}: '{{name}}' is one segment, '*' only stands at the end")
    return _Rule(method.upper() or None, path_pattern(pieces, anything), declaration)


def path_pattern(pieces: Sequence[str], anything: str) -> re.Pattern[str]:
    """Return an expression for paths that contain these pieces in order, with at least one character and no slash between two.

    Each piece is matched once, at its first place: an earlier place never excludes a match. O(path) for each piece.
    """
    escaped = [re.escape(piece) for piece in pieces]
    if len(escaped) == 1:
        return re.compile(escaped[0] + anything, re.DOTALL)
    between = [f"(?>[^/]+?{piece})" for piece in escaped[1:-1]]
    last = f"(?>[^/]+?{escaped[-1]}){anything}" if anything and escaped[-1] else f"[^/]+{escaped[-1]}{anything}"
    return re.compile(escaped[0] + "".join(between) + last, re.DOTALL)


def _remember(memory: dict[Any, Any], name: Any, value: Any, limit: int) -> None:
    while len(memory) >= limit:
        del memory[next(iter(memory))]
    memory[name] = value
