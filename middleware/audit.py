"""Audit of an app's GET routes, on demand: the reads of each, why a route is not cached, and whether two answers are the same.

The handlers run as on a miss; none of their answers is stored.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

from quaestor.errors import DependencyError, NotCacheableError, RegistrationRefusedError
from quaestor.middleware.framework_routes import routes_of
from quaestor.middleware.interface import App, Engine, Scope
from quaestor.middleware.request_admission import wanted
from quaestor.middleware.routes import Plan, Routes
from quaestor.middleware.verification import Answered, Repeatable, Sample, Verifications
from quaestor.model import Version
from quaestor.read_path import explaining, freshness
from quaestor.read_path.declared_dependencies import waived
from quaestor.read_path.doorkeeper import break_even
from quaestor.read_path.request import inspect
from quaestor.read_path.verification import Finding

_HOST = b"localhost"
_DEEPEST = 32
_LEASE_MS = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """The audit's findings about one path.

    route: name for people.
    status: of the handler's answer; None: it gave no answer that could be stored.
    reads: its queries without their values, each with how its invalidation is judged.
    not_covered: why its answers are not cached; empty: they are cached.
    verdict: of the comparison of two answers; None: no second answer, because the path is not cached.
    differs: the parts in which the two answers differed.
    break_even: estimate of the hit rate (0..1) below which caching costs the route more time than it saves, from the second run
        and its registration; None: no second answer.
    """

    path: str
    route: str
    status: int | None = None
    reads: tuple[str, ...] = ()
    not_covered: tuple[str, ...] = ()
    verdict: Finding | None = None
    differs: tuple[str, ...] = ()
    break_even: float | None = None


class Audit:
    """Audit of the started app behind one middleware.

    inner: the app.
    outer: the outermost app, as the framework puts it into the scope of requests.
    """

    def __init__(self, engine: Engine, routes: Routes, verifications: Verifications, *, inner: App, outer: Any) -> None:
        self._engine = engine
        self._routes = routes
        self._verifications = verifications
        self._inner = inner
        self._outer = outer

    def paths(self) -> list[str]:
        """Return the paths of the GET routes as templates, each once and in order, without routes outside the schema."""
        return list(dict.fromkeys(_paths(routes_of(self._inner) or (), "", 0)))

    async def examine(self, url: str) -> Examined:
        """Request a path, with or without a query string, and a second time if its answer would be cached. If the two differed in
        their queries alone, examine once more: the first run may have filled a memo."""
        result = await self._examine(url)
        return await self._examine(url) if result.differs == ("queries",) else result

    async def _examine(self, url: str) -> Examined:
        scope = self._scope(url)
        facts = inspect(scope["headers"])
        plan = self._routes.plan(scope, host=_HOST, raw_path=scope["raw_path"], claimed=facts.claims)
        target, reason = wanted(plan, facts, scope, on_error=lambda why: None)
        since = self._engine.read_path.watermark()
        request = Repeatable(scope={**scope, "query_string": plan.query})
        first = await self._verifications.answer(request)
        if first is None:
            return Examined(path=url, route=plan.route_name, not_covered=("failed",))
        reads = tuple(dict.fromkeys(explaining.shape(read.query) for read in first.reads))
        reasons = [] if target is not None else [reason]
        reasons += self._refusals(first, plan)
        verdict: Finding | None = None
        differs: tuple[str, ...] = ()
        pays_above: float | None = None
        if not reasons and first.reads:
            try:
                verdict, differs, pays_above = await self._again(request, plan, first, since)
            except (NotCacheableError, RegistrationRefusedError, DependencyError) as error:
                reasons.append(str(error))
        return Examined(
            path=url, route=plan.route_name, status=first.fingerprint.status, reads=reads,
            not_covered=tuple(reasons), verdict=verdict, differs=differs, break_even=pays_above,
        )  # fmt: skip

    def _scope(self, url: str) -> Scope:
        path, _, query = url.partition("?")
        return {
            "type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"}, "http_version": "1.1", "method": "GET",
            "scheme": "http", "path": unquote(path), "raw_path": quote(path, safe="/~!$&'()*+,;=:@%").encode(),
            "query_string": query.encode(), "root_path": "", "headers": [(b"host", _HOST)], "app": self._outer,
            "client": ("127.0.0.1", 0), "server": (_HOST.decode(), 80), "extensions": {}, "state": {},
        }  # fmt: skip

    def _refusals(self, first: Answered, plan: Plan) -> list[str]:
        """Return why such an answer is not stored, as far as it is known before registration."""
        refused = freshness.refusal(first.fingerprint.status, first.headers, personal=plan.policy.personal)
        reasons = [] if refused is None else [refused]
        refusals = [reason for reason in first.outcome.reasons if not waived(plan.policy, reason.reason)]
        return reasons + [f"{refusal.reason.value} ({refusal.detail})" for refusal in refusals]

    async def _again(
        self, request: Repeatable, plan: Plan, first: Answered, since: Version
    ) -> tuple[Finding, tuple[str, ...], float | None]:
        registry, expires_at_ms = self._engine.registry, self._engine.read_path.clock() + _LEASE_MS
        began_s = time.perf_counter()
        registered = await registry.register(first.reads, since=since, expires_at_ms=expires_at_ms)
        storing_s = time.perf_counter() - began_s
        sample = Sample(
            request=request, plan=plan, key="",
            registrations=registered.ids, fingerprint=first.fingerprint,
            fresh_until_ms=min(
                end_ms or expires_at_ms for end_ms in (first.outcome.valid_until_ms, registered.valid_until_ms)
            ),
        )  # fmt: skip
        began_s = time.perf_counter()
        try:
            finding, differs, _ = await self._verifications.compared(sample)
        finally:
            registry.lease(registered.ids, until_ms=0)
        return finding, differs, break_even(storing_s=storing_s, handler_s=time.perf_counter() - began_s)


def _paths(routes: Iterable[Any], prefix: str, depth: int) -> Iterator[str]:
    if depth > _DEEPEST:
        return
    for route in routes:
        candidates = getattr(route, "effective_candidates", None)  # FastAPI: a router that was included
        if callable(candidates):
            yield from _paths(candidates(), prefix, depth + 1)
            continue
        route = getattr(route, "starlette_route", None) or route
        path = getattr(route, "path", None)
        if not isinstance(path, str):
            continue
        methods, below = getattr(route, "methods", None), getattr(route, "routes", None)
        if methods is None and isinstance(below, Sequence):
            yield from _paths(below, prefix + path, depth + 1)
        elif not getattr(route, "include_in_schema", True):
            continue
        elif "GET" in (methods or ()) or hasattr(getattr(route, "endpoint", None), "get"):
            yield prefix + path
