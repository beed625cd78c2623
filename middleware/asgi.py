"""The ASGI middleware and its hit path: `app.add_middleware(QuaestorMiddleware, quaestor=quaestor, cdn=[...])`.

To wrap a framework's other work on a request as well, wrap the app itself:
`app = QuaestorMiddleware(app, quaestor=quaestor, cdn=[...])`.

__call__ is the hit path, from the request's bytes to an answer out of memory. Its only await is `send`. Every other request
goes to _closer_look(), and from there to an Exchange or straight to the app.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from quaestor.caching import Declaration
from quaestor.capture import logging_writes
from quaestor.errors import ConfigurationError
from quaestor.live.answers import Named
from quaestor.live.sse import wants_stream
from quaestor.middleware import bodies
from quaestor.middleware.audit import Audit
from quaestor.middleware.browser_client import BrowserClient
from quaestor.middleware.bypass import pass_by
from quaestor.middleware.construction import ReadableRefusal
from quaestor.middleware.context import ExchangeContext, ExchangeParts
from quaestor.middleware.exchange import Exchange
from quaestor.middleware.followed_reads import FOLLOWED_FACTS, Reading
from quaestor.middleware.headers import HeaderPolicy
from quaestor.middleware.interface import App, Engine, Mountable, Receive, Scope, Send
from quaestor.middleware.lifespan import Lifespan
from quaestor.middleware.live_answers import LiveAnswers, refusing_streams
from quaestor.middleware.order import report_misplaced
from quaestor.middleware.own_endpoints import OwnEndpoints
from quaestor.middleware.own_writes import after_own_writes
from quaestor.middleware.page_script import PageScript
from quaestor.middleware.quarantines import Quarantines
from quaestor.middleware.refresh import Refreshes, only_request
from quaestor.middleware.refused_run import Door
from quaestor.middleware.request_admission import wanted
from quaestor.middleware.routes import Plan, RouteDefaults, Routes
from quaestor.middleware.sending import refuse
from quaestor.middleware.unsafe_requests import outdating
from quaestor.middleware.verification import Verifications
from quaestor.policy import REPRESENTATION, Live, Representation, as_live
from quaestor.ports import CdnAdapter
from quaestor.read_path.doorkeeper import Turn
from quaestor.read_path.forwarded_fields import CLAIMS, shown
from quaestor.read_path.key import Target
from quaestor.read_path.request import NOTABLE, RequestFacts, inspect
from quaestor.read_path.unlisted_fields import UnlistedFields
from quaestor.read_path.unsafe_invalidation import SAFE


class QuaestorMiddleware(metaclass=ReadableRefusal):
    """The cache around an application, for GET and HEAD. An answer is kept until a write changes what its handler read.

    quaestor: started and stopped with the app's lifespan. Without a lifespan it runs from the first request until the event loop
        ends. With the setting `enabled` off every request goes to the app.
    cdn: CDNs that may keep copies, because they are purged.
    sketch_path: path of the Cache Sketch.
    metrics_path: path of the metrics; None: they are not served, because they show strangers how busy a site is.
    routes: declarations by path, for routes that carry no declaration themselves (see `quaestor.middleware.routes`).
    tracking: names of query parameters that are left out of keys unless a route declares them; None:
        `read_path.query.TRACKING`.
    browser_client: the parts of the browser client to serve; None: none.
    dashboard: a `quaestor.Dashboard` (docs/dashboard.md); None: there is none.
    forwards: the app forwards every request with its fields to an origin, and returns the origin's answers, `Vary` included.
        That `Vary` then names the deciding fields; copying a field does not make it one. `X-` fields that no list names are
        credentials (docs/proxy.md).
    live: clients may follow the answers of every route that does not say otherwise (docs/live.md).

    Raises ConfigurationError for a wrong argument. If the framework constructs it later, the app refuses to start with it.
    """

    def __init__(
        self,
        app: App,
        *,
        quaestor: Engine,
        cdn: Sequence[CdnAdapter] = (),
        sketch_path: str = "/quaestor/sketch",
        metrics_path: str | None = None,
        routes: Mapping[str, Declaration] | None = None,
        tracking: Sequence[str] | None = None,
        browser_client: BrowserClient | None = None,
        dashboard: Mountable | None = None,
        forwards: bool = False,
        live: bool | Live = False,
    ) -> None:
        self._endpoints = OwnEndpoints(
            quaestor, cdn, sketch_path=sketch_path, metrics_path=metrics_path, browser_client=browser_client,
            dashboard=dashboard,
        )  # fmt: skip
        self._app = app
        self._off = not quaestor.settings.enabled
        if browser_client is not None and browser_client.inject and not self._off:
            line = f"{browser_client.path.rstrip('/')}/register.js"
            self._app = PageScript(app, path=line, query=browser_client.rules(sketch_path=sketch_path))
        self._engine = quaestor
        self._read_path = quaestor.read_path
        self._clock = quaestor.read_path.clock
        self._servable = quaestor.read_path.lookup.servable
        self._outgoing = HeaderPolicy(quaestor.settings, cdn)
        self._lifespan = Lifespan(
            quaestor,
            before_stop=self._stop,
            on_start=self._look_inside,
            eases=quaestor.settings.observability.freeze_at_start,
        )
        ignored = tuple(name.encode() for name in quaestor.settings.store.ignored_fields)
        self._notable = UnlistedFields(ignored) if forwards else NOTABLE
        self._count_hit = quaestor.telemetry.requests.hit
        routes_of_app = Routes(
            app,
            rules=routes,
            defaults=RouteDefaults(
                tracking=tracking, sort_query=quaestor.settings.store.sort_query,
                leaves_copies=self._outgoing.leaves_copies, forwards=forwards,
            ),
            on_error=lambda error: quaestor.telemetry.failure("routes", "routes.unreadable", error),
            barred=quaestor.read_path.probation.barred,
            traffic=quaestor.telemetry.routes.of,
        )  # fmt: skip
        routes_of_app.live = as_live(live) or None
        quarantines = Quarantines(quaestor.read_path, routes_of_app)
        self._parts = ExchangeParts(
            app=self._app, read_path=quaestor.read_path, outgoing=self._outgoing, routes=routes_of_app,
            refreshes=Refreshes(quaestor.telemetry, quaestor.read_path.process.supervisor),
            verifications=Verifications(self._app, quaestor.read_path, quarantines), quarantines=quarantines,
            purge_again=quaestor.purge_again,
        )  # fmt: skip
        self._live = LiveAnswers(quaestor, name=self._named, ask=self._ask, answer=self._closer_look)
        self._plans = routes_of_app.plans
        self._door = Door(self._parts)
        for adapter in cdn:
            quaestor.add_cdn(adapter)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan" and not self._off:
                return await self._lifespan.run(self._app, scope, receive, send)
            return await self._app(scope, receive, send)
        if not self._lifespan.ready:
            if self._off:
                return await self._app(scope, receive, send)
            await self._lifespan.ensure()
        if scope["method"] == "GET":
            host, notable = None, self._notable
            claimed: tuple[tuple[bytes, bytes], ...] = ()
            for name, value in scope["headers"]:
                if notable[name]:
                    # A tuple grows by copying: with hundreds of claims that would take seconds.
                    if name not in CLAIMS or len(claimed) == len(CLAIMS):
                        break
                    claimed += ((name, shown(name, value)),)
                if name == b"host":
                    if host is not None:
                        break
                    host = value
            else:
                path = scope.get("raw_path")
                plan = self._plans.get(
                    ("GET", scope["scheme"], host or b"", scope["path"], path, scope["query_string"], claimed)
                )
                if (
                    plan is not None
                    and plan.simple
                    and "user" not in scope
                    and (not (extensions := scope.get("extensions")) or "tls" not in extensions)
                    and (target := plan.target) is not None
                    and not (self._parts.routes.follows and wants_stream(scope["headers"]))
                ):
                    now_ms = self._clock()
                    resident = self._servable(target.key, now_ms)
                    # _closer_look() sends an entry that was never rendered: the policy of its route is known there.
                    if (
                        resident is not None
                        and resident.rendered is not None
                        and (not self._outgoing.purges or target.url in resident.urls)
                    ):
                        self._count_hit()
                        plan.traffic.hits += 1
                        headers = self._outgoing.hit(resident, now_ms, plan.policy)
                        response = resident.response
                        # New messages and a new list: a middleware around this one may change them.
                        headers = headers.copy() if target.own else self._outgoing.to_be_revalidated(headers)
                        await send({"type": "http.response.start", "status": response.status, "headers": headers})
                        return await send({"type": "http.response.body", "body": response.body})
        return await self._closer_look(scope, receive, send)

    async def _closer_look(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"].removeprefix(scope.get("root_path", ""))
        method: str = scope["method"]
        endpoint = self._endpoints.of(scope, path, receive, send)
        if endpoint is not None:
            return await endpoint()
        if method not in ("GET", "HEAD"):
            if method in bodies.BY_BODY:
                return await self._by_body(scope, receive, send)
            return await self._unsafe(scope, receive, send)
        facts = inspect(scope["headers"], self._notable)
        plan = self._parts.routes.plan(scope, host=facts.host, raw_path=_raw_path(scope), claimed=facts.claims)
        if method == "HEAD" and not self._parts.routes.heads(scope):  # the handler of the GET does not answer it
            if facts.only_if_cached:
                return await refuse(send)
            plan.traffic.passed_by("request")
            return await pass_by(self._app, self._read_path, self._outgoing, scope, receive, send, reason="request")
        if self._parts.routes.follows:
            if plan.live is None:
                send = refusing_streams(scope, send)
            elif await self._live.serves(scope, receive, send, facts=facts, live=plan.live):
                return None
        target, reason = wanted(plan, facts, scope, on_error=self._by_failed)
        credentials = target is None and self._explicit and facts.personal
        if credentials:
            # Answers that their origin allows a shared cache to keep in spite of credentials (RFC 9111, section 3.5).
            target, reason = wanted(plan, replace(facts, personal=False), scope, on_error=self._by_failed)
            credentials = target is not None
        now_ms = self._clock()
        turn: Turn | None = None
        if target is not None and method == "GET" and facts.plain and target.own and not credentials:
            # A second look into memory, with the full key: declared fields, scopes, variants.
            key = self._read_path.variants.key(target.key, scope["headers"])
            resident = None if key is None else self._servable(key, now_ms)
            if (
                resident is not None
                and resident.rendered is not None
                and (not self._outgoing.purges or plan.policy.personal or target.url in resident.urls)
            ):
                self._count_hit()
                plan.traffic.hits += 1
                headers = self._outgoing.hit(resident, now_ms, plan.policy)
                response = resident.response
                await send({"type": "http.response.start", "status": response.status, "headers": headers.copy()})
                return await send({"type": "http.response.body", "body": response.body})
            if resident is None and key is not None:
                begun_s = time.perf_counter()
                turn = self._door.turn(plan, facts, scope, key, now_ms)
                if turn is Turn.REFUSED:
                    return await self._door.run(plan, target, key, scope, receive, send, begun_s)
        if target is not None and not self._explicit and not self._read_path.serving(now_ms):
            target, reason = None, "not-serving"
        if target is None and facts.only_if_cached and not plan.policy.closed:
            return await refuse(send)
        if target is None:
            plan.traffic.passed_by(reason)
            return await pass_by(self._app, self._read_path, self._outgoing, scope, receive, send, reason=reason)
        if plan.policy.representation is not Representation.AUTO:
            scope[REPRESENTATION] = plan.policy.representation
        return await self._exchange(scope, receive, send, facts, target, plan, credentials=credentials, turn=turn).run()

    def _exchange(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        facts: RequestFacts,
        target: Target,
        plan: Plan,
        *,
        credentials: bool = False,
        turn: Turn | None = None,
    ) -> Exchange:
        context = ExchangeContext(
            parts=self._parts, scope=scope, receive=receive, send=send, facts=facts, target=target, plan=plan,
            shared_state=self._lifespan.shared_state, credentials=credentials,
        )  # fmt: skip
        return Exchange(context, turn=turn)

    def _named(self, scope: Scope) -> Named:
        """The name of what a follower asks for. The scope is the follower's own and keeps the facts of its fields."""
        facts = scope.get(FOLLOWED_FACTS)
        if facts is None:
            facts = scope[FOLLOWED_FACTS] = inspect(scope["headers"], self._notable)
        plan = self._parts.routes.plan(scope, host=facts.host, raw_path=_raw_path(scope), claimed=facts.claims)
        target, reason = wanted(plan, facts, scope, on_error=self._by_failed)
        key = None if target is None else self._read_path.variants.key(target.key, scope["headers"])
        return Named(key=key, reason=reason, live=plan.live)

    async def _ask(self, scope: Scope, reading: Reading) -> None:
        """Answer a follower's GET through the cache."""
        facts = inspect(scope["headers"], self._notable)
        plan = self._parts.routes.plan(scope, host=facts.host, raw_path=_raw_path(scope), claimed=facts.claims)
        target, reason = wanted(plan, facts, scope, on_error=self._by_failed)
        receive = only_request()
        if target is not None and (self._explicit or self._read_path.serving(self._clock())):
            return await self._exchange(scope, receive, reading, facts, target, plan).run()
        reason = reason or "not-serving"
        reading.withheld((reason,))
        return await pass_by(self._app, self._read_path, self._outgoing, scope, receive, reading, reason=reason)

    async def _unsafe(self, scope: Scope, receive: Receive, send: Send) -> None:
        barrier = self._read_path.own_writes
        if scope["method"] not in SAFE:
            barrier.expect()
        with logging_writes() as log:
            outdating_send = outdating(self._read_path, scope, send)
            return await self._app(scope, receive, after_own_writes(barrier, log, outdating_send))

    async def _by_body(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request other than GET and HEAD: from cache if its route is keyed by the body, otherwise by the app."""
        facts = inspect(scope["headers"], self._notable)
        plan = self._parts.routes.plan(scope, host=facts.host, raw_path=_raw_path(scope), claimed=facts.claims)
        target = None
        if plan.policy.keyed_body and not facts.partial and self._read_path.serving(self._clock()):
            target, _ = wanted(plan, facts, scope, body=b"", on_error=self._by_failed)
        if target is not None:
            body = await bodies.read(receive)
            receive = body.receive
            if body.whole is not None:
                target, _ = wanted(plan, facts, scope, body=body.whole, on_error=self._by_failed)
            if body.whole is not None and target is not None:
                facts = replace(facts, has_body=True)
                return await self._exchange(scope, receive, send, facts, target, plan).run()
        return await self._unsafe(scope, receive, send)

    def audit(self, app: Any) -> Audit:
        """Return the audit of the app's routes. Raises ConfigurationError before the app has started.

        app: the outermost app, as the framework puts it into the scope of requests.
        """
        if not self._lifespan.ready:
            raise ConfigurationError("nothing can be audited before the app has started: run its lifespan first")
        return Audit(self._engine, self._parts.routes, self._parts.verifications, inner=self._app, outer=app)

    @property
    def _explicit(self) -> bool:
        return self._engine.settings.lifetimes.explicit

    @property
    def engine(self) -> Engine:
        """The Quaestor of this middleware."""
        return self._engine

    @property
    def serving(self) -> bool:
        """Whether anything can be served from cache or stored now."""
        return self._read_path.serving(self._clock())

    def _look_inside(self) -> None:
        report_misplaced(self._app, self._engine.telemetry)
        self._endpoints.begin()

    async def _stop(self) -> None:
        await self._endpoints.stop()
        await self._live.stop()
        await self._parts.verifications.stop()
        await self._parts.refreshes.stop()
        await self._parts.quarantines.stop()

    def _by_failed(self, why: str) -> None:
        self._engine.telemetry.failure("routes", "routes.scope_failed", why)


def _raw_path(scope: Scope) -> bytes:
    raw_path: bytes | None = scope.get("raw_path")
    return raw_path or quote(scope["path"], safe="/~!$&'()*+,;=:@").encode()
