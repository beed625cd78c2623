"""Order of middlewares: which middlewares inside the cache belong around it, because on a hit nothing inside runs.

A middleware is recognised by its class, by the words of its name, or by those of the function given to
`@app.middleware("http")`. Middlewares that an application hides in a closure are not seen. See docs/middleware_order.md.

A middleware belongs around the cache if it may refuse a request, or adds data of one user or request: a hit would skip it.
A middleware may stand inside if it adds fixed fields (HSTS, frame options), because they are stored with the answer. The same
holds if it decides by parts of the cache key (hosts, schemes), because each key has its own entry.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from quaestor.middleware.interface import App
from quaestor.observability.event_log import EventLog

_MOST = 4096
_FRAMEWORK = ("starlette.middleware.errors", "starlette.middleware.exceptions", "fastapi.", "litestar.")
"""Modules whose middlewares are a framework's own stack."""
_BEHIND = ("app", "_app", "application", "middleware_stack", "asgi_handler")
"""Attributes of middlewares and apps that hold the wrapped app."""
_LOOKED_AT = frozenset(_BEHIND) | {"csrf_config", "middleware", "routes", "kwargs"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """Kind of middleware that belongs around the cache.

    words: any of them occurs in its name as a word.
    parts: any of them occurs in its name, written together.
    why: what goes wrong where it stands inside.
    """

    name: str
    words: frozenset[str]
    parts: tuple[str, ...]
    why: str


def _kind(name: str, words: str, parts: str, why: str) -> _Kind:
    return _Kind(name=name, words=frozenset(words.split()), parts=tuple(parts.split()), why=why)


_KINDS = (
    _kind("csrf", "csrf xsrf", "", "every client of a cached page receives the same token"),
    _kind(
        "csp-nonce", "csp nonce nonces talisman", "contentsecuritypolicy",
        "every client of a cached answer receives the same nonce",
    ),
    _kind(
        "address-filter", "ip ips firewall cidr geoip geoblock", "allowlist whitelist blocklist blacklist denylist",
        "hits skip the check of the client's address",
    ),
    _kind("rate-limit", "limiter throttle throttling throttler", "ratelimit slowapi", "hits are not counted"),
    _kind("request-id", "", "requestid correlationid", "hits carry the id of the request that their answer was made for"),
    _kind(
        "session", "session sessions", "",
        "a route's `by` does not see the session, and answers that renew its cookie are not stored",
    ),
    _kind(
        "authentication", "auth authn authz authentication authenticate authorization authorize jwt oauth oidc login bearer",
        "apikey requireuser",
        "hits skip authentication",
    ),
)  # fmt: skip
_CLASSES = {
    ("starlette.middleware.authentication", "AuthenticationMiddleware"): "authentication",
    ("starlette.middleware.sessions", "SessionMiddleware"): "session",
    ("litestar.middleware.authentication", "AbstractAuthenticationMiddleware"): "authentication",
    ("litestar.middleware.rate_limit", "RateLimitMiddleware"): "rate-limit",
    ("litestar.middleware.session.middleware", "SessionMiddleware"): "session",
}
_BY_NAME = {kind.name: kind for kind in _KINDS}
_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Misplaced:
    """A middleware that stands inside the cache, and belongs around it.

    name: of its class or function.
    kind: of middleware.
    why: what goes wrong where it stands.
    """

    name: str
    kind: str
    why: str


def misplaced(app: App) -> list[Misplaced]:
    """Return the middlewares inside the cache that belong around it, each name once.

    app: the app that the cache wraps: the next middleware, or a whole application.
    """
    judged = standing_inside(app).values()
    return [judgement for judgement in judged if judgement is not None]


def standing_inside(app: App) -> dict[str, Misplaced | None]:
    """Return all middlewares inside the cache by name; None: no reason to move it is known.

    app: see `misplaced`. A framework's own stack is left out.
    """
    inside: dict[str, Misplaced | None] = {}
    for part in _inside(app):
        name, kind = _judged(part)
        if kind is not None:
            inside[name] = inside.get(name) or Misplaced(name=name, kind=kind.name, why=kind.why)
        elif name:
            inside.setdefault(name, None)
    return inside


def report_misplaced(app: App, log: EventLog) -> None:
    """Report each misplaced middleware as a lasting failure. Never raises, although foreign objects are inspected."""
    try:
        faults = misplaced(app)
    except Exception as error:
        log.failure("configuration", "middleware.order_unreadable", error)
        return
    for fault in faults:
        text = f"{fault.name} ({fault.kind}) stands inside the cache: {fault.why}; add it after QuaestorMiddleware"
        log.failure("configuration", "middleware.misplaced", text, lasting=True, kind=fault.kind)


def _inside(app: Any) -> Iterator[Any]:
    """Iterate over every middleware inside an app: objects that wrap another one, and entries of an application's list."""
    waiting: list[Any] = [app]
    seen: set[int] = set()
    while waiting and len(seen) < _MOST:
        part = waiting.pop()
        if part is None or id(part) in seen:
            continue
        seen.add(id(part))
        has = _attributes(part)
        yield from _listed(has.get("user_middleware"))  # Starlette
        yield from _listed(has.get("middleware"))  # Litestar
        if has.get("csrf_config") is not None:  # Litestar's own
            yield has["csrf_config"]
        routes, is_route = _listed(has.get("routes")), hasattr(type(part), "matches")
        behind = [has[name] for name in _BEHIND if name in has and has[name] is not has.get("endpoint")]
        if behind and not routes and not is_route and "user_middleware" not in has:
            yield part
        waiting += [*behind, *routes, has.get("router")]


def _attributes(part: Any) -> dict[str, Any]:
    """Return an object's own attributes without running its code."""
    own: dict[str, Any] = {}
    if not isinstance(part, type) and not inspect.isroutine(part):
        for kind in type(part).__mro__:
            slots = vars(kind).get("__slots__", ())
            for name in _LOOKED_AT.intersection((slots,) if isinstance(slots, str) else slots):
                own[name] = getattr(part, name, None)
        own |= getattr(part, "__dict__", None) or {}
    return own


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else []


def _judged(part: Any) -> tuple[str, _Kind | None]:
    """Return the name of a middleware, and its kind if it belongs around the cache. No name: the framework's own."""
    has = _attributes(part)
    entered = has.get("cls") or has.get("middleware")  # an entry in Starlette's list, or Litestar's
    dispatch = has.get("dispatch_func") or (has.get("kwargs") or {}).get("dispatch")
    if getattr(dispatch, "__self__", None) is part:  # Starlette's BaseHTTPMiddleware: its own method
        dispatch = None
    called = entered or (part if isinstance(part, type) or inspect.isroutine(part) else type(part))
    names = []
    for given in (dispatch, called):
        given = getattr(given, "func", given)  # functools.partial
        names.append(str(getattr(given, "__name__", "")))
        kind = _of_class(given) or _of_name(names[-1])
        if kind is not None:
            return names[-1], kind
    if str(getattr(getattr(called, "func", called), "__module__", "")).startswith(_FRAMEWORK):
        return "", None
    return next(filter(None, names), ""), None


def _of_class(called: Any) -> _Kind | None:
    for base in getattr(called, "__mro__", ()):
        kind = _CLASSES.get((base.__module__, base.__name__))
        if kind is not None:
            return _BY_NAME[kind]
    return None


def _of_name(name: str) -> _Kind | None:
    words = [word.lower() for word in _WORD.findall(name)]
    together = "".join(words)
    for kind in _KINDS:
        if not kind.words.isdisjoint(words) or any(part in together for part in kind.parts):
            return kind
    return None
